"""Products with any linear operator almost as if computed in twice the precision, by splitting numbers into slices.

A number is a sum of slices of ``b`` bits each, on a grid that all numbers share. If ``2 b + log2(n)`` is at most 53,
sums of ``n`` products of slices are integers on a common grid below ``2**53`` and thus exact, in any order of
summation: fast products of matrices and of images stay usable (K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, Error-free
transformations of matrix multiplication by using fast routines of matrix multiplication, Numer. Algorithms 59, 2012).
"""

from __future__ import annotations

import numpy as np

from fiberscope.numerics.algebra.base import LinearMap
from fiberscope.numerics.floats import FloatArray, U

RANGE = 2.0**-200, 2.0**200
"""Largest numbers between these can be sliced without leaving the range of floats."""


_BLOCK = 1 << 19
"""Numbers that are handled at once."""


def sliced_product(stage: LinearMap, X: FloatArray, offset: FloatArray | None) -> tuple[FloatArray, FloatArray] | None:
    """``W x + offset`` for every row of ``X`` and a bound of its error, both ``(rows, out_size)``.

    The error is one rounding of the result and about ``2**-70`` of the largest terms. None where numbers are too large
    or too small to be sliced, or where too many products meet in one sum.

    >>> from fiberscope.network.operators import Dense
    >>> found = sliced_product(Dense([[1.0, 2.0**-60, -1.0]]), np.array([[1.0, 1.0, 1.0]]), None)
    >>> found is not None and bool(found[0][0, 0] == 2.0**-60)
    True
    """
    terms, W = max(stage.fan_in, 1), stage.coefficients
    bits = (53 - int(terms).bit_length()) // 2
    if W.size == 0 or bits < 20:
        return None
    largest, tops = float(np.abs(W).max()), np.abs(X).max(axis=1, initial=0.0)
    if not (RANGE[0] < largest < RANGE[1]) or not (((tops > RANGE[0]) | (tops == 0)) & (tops < RANGE[1])).all():
        return None
    unit = _above(np.array(largest))
    maps = [stage.with_coefficients(part) for part in _slices(W, unit, bits)]
    result, error = np.empty((2, len(X), stage.out_size))
    step = max(1, _BLOCK // max(1, stage.in_size, stage.out_size))
    for first in range(0, len(X), step):  # blocks that stay near
        rows = slice(first, first + step)
        result[rows], error[rows] = _block(maps, X[rows], tops[rows], offset, (terms, float(unit), bits))
    return result, error


def _block(
    maps: list[LinearMap], X: FloatArray, tops: FloatArray, offset: FloatArray | None, sizes: tuple[int, float, int]
) -> tuple[FloatArray, FloatArray]:
    """Some rows, by the slices of the operator; ``sizes`` are products in a sum, its unit, and bits of a slice."""
    terms, unit, bits = sizes
    units = _above(np.where(tops == 0, 1.0, tops))[:, None]
    rows = _slices(X, units, bits)
    high = maps[0].apply(rows[0])
    rest = maps[0].apply(rows[2]) + maps[1].apply(rows[1]) + maps[2].apply(rows[0])
    rest += maps[0].apply(rows[1]) + maps[1].apply(rows[0])
    if offset is not None:
        total = high + offset
        part = total - high
        rest += (high - (total - part)) + (offset - part)  # what this sum lost, exactly
        high = total
    result = high + rest
    # what was left out: every slice is below half a grid step of the one before; five roundings of the rest
    scale = terms * units * unit
    tail = 8 * scale * 2.0 ** (-3 * bits) + 8 * U * (np.abs(rest) + 4 * scale * 2.0**-bits)
    error = (U * np.abs(result) + tail) * (1 + 16 * U)
    return result, np.where(tops[:, None] == 0, 0.0, error)  # of nothing, the offset as it stands


def _above(x: FloatArray) -> FloatArray:
    """The power of two above a positive number."""
    return np.ldexp(1.0, np.frexp(x)[1])


def _slices(x: FloatArray, unit: FloatArray, bits: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Three slices of numbers below ``unit``: multiples of ``unit 2**-bits``, ``unit 2**-(2 bits)``, and so on."""
    found = []
    left = x
    for k in range(1, 4):
        push = 1.5 * 2.0**52 * unit * 2.0 ** (-k * bits)  # its last bit is the grid
        part = (left + push) - push
        found.append(part)
        left = left - part
    return found[0], found[1], found[2]
