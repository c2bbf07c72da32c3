"""What is too large to be built: plain numbers, which the command line reads without loading engines."""

from __future__ import annotations

FACES = 6
"""Up to here vertices and faces are the fastest way to regions; above, regions are visited one by one."""

MOST_FACES = 8
"""Above, a complex with all its faces has millions of cells even for small networks, and is refused."""

MOST_VISITED = 30
"""Above, regions are visited one by one only where the neurons leave few of them: a region has so many neighbours, and
its facets are so dear, that the work would end neither today nor tomorrow."""

FEW_NEURONS = 10
"""So few neurons make at most 1,024 regions, which are visited in any dimension."""

ADVICE = "take a slice (fs.Plane, --slice), a line (regions_along, --segment) or an estimate (estimate_regions)"
"""What to do instead, for the end of a sentence."""

PATIENCE = 0.25
"""Seconds of exact arithmetic after which it is asked whether to go on."""

LARGE = 1 << 16
"""So many vertices may be built before anybody asks how many there will be in all."""

MEMORY = 1 << 32
"""Bytes of the arrays of a complex that is built without a limit; while building, the peak is a few times that."""

MEMORY_OF_A_COUNT = MEMORY >> 2
"""Bytes of the arrays of one piece of a count, several of which may be made at the same time."""
