"""Up to which dimension a complex is built: plain numbers, which the command line reads without loading engines."""

from __future__ import annotations

FACES = 6
"""Up to here vertices and faces are the fastest way to regions; above, regions are visited one by one."""

MOST_FACES = 8
"""Above, a complex with all its faces has millions of cells even for small networks, and is refused."""
