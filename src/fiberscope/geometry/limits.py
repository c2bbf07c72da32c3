"""What is too large to be built: plain numbers, which the command line reads without loading engines."""

from __future__ import annotations

FACES = 6
"""Up to here vertices and faces are the fastest way to regions; above, regions are visited one by one."""

MOST_FACES = 8
"""Above, a complex with all its faces has millions of cells even for small networks, and is refused."""

MEMORY = 1 << 32
"""Bytes of the arrays of a complex that is built without a limit; while building, the peak is a few times that."""
