"""Do numbers lie on a grid, as quantised ones do?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.ulps import Rounding
from fiberscope.results import Result

LEVELS = 1 << 16
"""Most levels of a grid that is looked for: 16 bits."""

GRID_ROWS = 4096
"""Rows of a tensor whose own grids are looked for."""


@dataclass(frozen=True, slots=True)
class Grid(Result):
    """Numbers ``step * (code - zero)`` with codes from 0 to ``levels - 1``; ``zero`` is None where 0 is on no level."""

    step: float
    zero: int | None
    levels: int

    @property
    def bits(self) -> int:
        return max(1, int(np.ceil(np.log2(self.levels))))


def find_grid(values: FloatArray, rounding: Rounding) -> Grid | None:
    """The coarsest grid of at most 16 bits that all numbers lie on up to rounding; None where there is none.

    Fewer than four different numbers say nothing, and so does a grid that is as fine as the rounding.

    >>> from fiberscope.numerics.ulps import DOUBLE
    >>> find_grid(0.1 * np.array([-3.0, 0.0, 1.0, 4.0, 9.0]), DOUBLE)
    Grid(step=0.1, zero=3, levels=13)
    >>> find_grid(np.random.default_rng(0).normal(size=50), DOUBLE) is None
    True
    """
    numbers = np.unique(np.asarray(values, dtype=np.float64).reshape(-1))
    if not 4 <= numbers.size <= LEVELS or not np.isfinite(numbers).all():
        return None
    size = float(np.abs(numbers).max())
    room = 4 * rounding.unit * size
    if float(np.diff(numbers).min()) <= room:  # one level, rounded to two neighbours
        numbers = numbers[np.concatenate([[True], np.diff(numbers) > room])]
    if numbers.size < 4:
        return None
    reach = numbers - numbers[0]
    codes = np.round(reach / np.diff(numbers).min())
    if codes[-1] >= LEVELS:
        return None
    for _ in range(2):  # the smallest gap is off by its rounding, which counts more the further a number is
        step = float((codes * reach).sum() / (codes**2).sum())
        codes = np.round(reach / step)
    if not (np.abs(reach - codes * step) <= room).all() or not step > 8 * room:
        return None
    zero = -numbers[0] / step
    whole = round(zero) if abs(zero - round(zero)) * step <= room else None
    return Grid(_short(step, rounding), whole, int(codes[-1]) + 1)


def new_grid(a: FloatArray, b: FloatArray, rounding: Rounding) -> tuple[Grid | None, int]:
    """The grid that the numbers of ``b`` lie on and those of ``a`` do not, for all or for every row."""
    grid = find_grid(b, rounding)
    if grid is not None:
        return (None, 0) if find_grid(a, rounding) is not None else (grid, 0)
    if b.ndim < 2 or not 1 < len(b) <= GRID_ROWS:
        return None, 0
    rows = [find_grid(row, rounding) for row in b]
    held = [row for row in rows if row is not None]
    if len(held) < len(rows) or any(find_grid(row, rounding) is not None for row in a[:4]):
        return None, 0
    return held[0], len(held)


def _short(step: float, rounding: Rounding) -> float:
    """The number with the fewest digits that is this one up to rounding."""
    for digits in range(1, 17):
        found = float(f"{step:.{digits}g}")
        if abs(found - step) <= 4 * rounding.unit * abs(step):
            return found
    return step
