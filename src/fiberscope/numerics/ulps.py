"""How far apart two numbers are in units in the last place, and how many of those count as rounding."""

from __future__ import annotations

import numpy as np

from fiberscope.numerics.floats import FloatArray, U

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


def distance(a: FloatArray, b: FloatArray) -> float:
    """Largest distance of two entries in ulps of the larger one; a zero against a non-zero is infinitely far.

    >>> distance(np.array([1.0, 2.0]), np.array([1.0, 2.0 + 2**-51]))
    1.0
    """
    if not a.size:
        return 0.0
    if np.array_equal(a, b):
        return 0.0
    gap = np.abs(a - b)
    size = np.maximum(np.abs(a), np.abs(b))
    with np.errstate(invalid="ignore", over="ignore"):
        ulps = np.where(gap == 0, 0.0, gap / np.spacing(size))
    return float(np.where(((a == 0) | (b == 0)) & (gap > 0), np.inf, ulps).max())
