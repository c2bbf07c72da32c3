"""How far apart two numbers are in units in the last place, and how many of those count as rounding."""

from __future__ import annotations

from fiberscope.numerics.floats import U

FEW = 16
"""Largest distance, in units in the last place of an entry, that equality *up to rounding* allows.

A row that was multiplied by a scale and a column that was divided by one are off by two roundings; the scales that
are found from two such copies add four more. Sixteen leaves room for a second such step and is far below what any
change of a parameter on purpose amounts to.
"""

ROWS = 4.0 * FEW * U
"""Entries of rows with largest entry 1 that differ by less may be the same number up to rounding: as :data:`FEW`, once
for each of the two rows, and twice since an ulp is up to two units of rounding."""

GRID = 2.0**36
"""Entries of rows with largest entry 1 are put on a grid of this many points per unit where rounding errors must not
tell them apart: a step is a thousand times :data:`ROWS`. Who uses it tries a shifted grid too, and checks what it
finds."""
