"""How many units in the last place, or units of rounding of the precision that numbers were stored in, count as
rounding."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Rounding:
    """What equality *up to rounding* allows for numbers that were stored in some precision.

    Every parameter ``w`` of either network may be off by ``few`` times ``unit * max(|w|, least)``: some units of
    rounding, where numbers below the smallest normal one are rounded like that one.

    >>> ROUNDINGS["float32"].share == 8 * 2.0**-24
    True
    """

    precision: str
    unit: float
    """Largest relative error of one rounding."""
    least: float
    """Smallest normal number."""
    few: int

    @property
    def share(self) -> float:
        """The part of itself by which a number may be off."""
        return self.few * self.unit

    @property
    def steps(self) -> float:
        """How many units of float64 make one of this precision."""
        return self.unit / U


STORED = 8
"""Units of rounding of a stored parameter that count as rounding. Folding a batch normalisation into the weights before
it takes five roundings (a sum, a root, a quotient, two products), one more to store what came out; what is left is for
libraries whose roots are off by two units. A parameter that was changed on purpose is off by thousands."""

ROUNDINGS = {
    "float64": Rounding("float64", U, 2.0**-1022, FEW),
    "float32": Rounding("float32", 2.0**-24, 2.0**-126, STORED),
    "float16": Rounding("float16", 2.0**-11, 2.0**-14, STORED),
    "bfloat16": Rounding("bfloat16", 2.0**-8, 2.0**-126, STORED),
}
"""By the name of the precision."""

DOUBLE = ROUNDINGS["float64"]


def nearest_power(factors: FloatArray | float, rounding: Rounding = DOUBLE) -> FloatArray:
    """Positive factors, those that are a power of two up to rounding as that power: multiplying by it rounds nothing.

    >>> nearest_power(np.array([2.0 + 2.0**-50, 3.0])).tolist()
    [2.0, 3.0]
    """
    found = np.asarray(factors, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = np.exp2(np.round(np.log2(found)))
        near = np.abs(found - power) <= power * max(1 / GRID, 2 * rounding.unit)
    return np.where(near, power, found)
