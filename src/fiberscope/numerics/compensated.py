"""Matrix products almost as if computed in twice the precision and then rounded.

Every product and every sum is split into its rounded value and its exact error; the errors are summed up beside
(T. Ogita, S. M. Rump, S. Oishi, Accurate sum and dot product, SIAM J. Sci. Comput. 26, 2005: algorithm Dot2). With
both parts kept (:class:`Twofold`), products can be chained and lose nothing in between.

Arrays of the kernels: ``A (m, k)`` with its low part ``rest``, ``B (k, n)`` with the halves ``top + bottom`` of its
entries, or ``W (n, k)``, whose rows are multiplied; ``start``, ``out``, ``high``, ``low``, ``size`` ``(m, n)``. In
``high`` a kernel finds the start and leaves the rounded sum, in ``low`` what that lost; ``size`` adds up the absolute
terms. Invariant: before a term is added, ``total + rest`` (``high + low``) is the sum so far up to roundings of the
``rest``. No sum may be taken in another order here, so these kernels are compiled without ``fastmath``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.numerics.compiling.kernels import strict
from fiberscope.numerics.floats import SPLITTER, TINY, FloatArray, U, gamma, round_up


@strict
def _dot2(A: Any, B: Any, start: Any, out: Any) -> None:
    for i in range(A.shape[0]):
        for j in range(B.shape[1]):
            total, rest = start[i, j], 0.0
            for k in range(A.shape[1]):
                a, b = A[i, k], B[k, j]
                product = a * b
                c = SPLITTER * a
                high = c - (c - a)
                low = a - high
                d = SPLITTER * b
                top = d - (d - b)
                bottom = b - top
                error = low * bottom - (((product - high * top) - low * top) - high * bottom)
                new = total + product
                part = new - total
                rest += ((total - (new - part)) + (product - part)) + error
                total = new
            out[i, j] = total + rest


def accurate_product(A: FloatArray, B: FloatArray, start: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``start + A @ B`` and a bound of its error, both ``(m, n)``: one rounding, and ``gamma^2`` of the absolute sum.

    Numbers above ``2**970`` overflow the splitting; the result is then NaN with an infinite bound.

    >>> value, error = accurate_product(np.array([[1e16, 1.0, -1e16]]), np.ones((3, 1)), np.zeros((1, 1)))
    >>> float(value[0, 0]), bool(error[0, 0] < 1e-13)
    (1.0, True)
    """
    result = np.empty((A.shape[0], B.shape[1]))
    with np.errstate(all="ignore"):
        _dot2(np.ascontiguousarray(A), np.ascontiguousarray(B), np.ascontiguousarray(start), result)
        magnitude = np.abs(A) @ np.abs(B) + np.abs(start)
        k = A.shape[1] + 1
        error = round_up(U * np.abs(result) + gamma(2 * k) ** 2 * magnitude + 8 * k * TINY, k + 8)
    return result, np.where(np.isfinite(result) & np.isfinite(error), error, np.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Twofold:
    """Numbers ``high + low`` of about 106 bits, each off by at most ``error``; ``low`` is a rounding of ``high``."""

    high: FloatArray
    low: FloatArray
    error: FloatArray

    @classmethod
    def exact(cls, values: FloatArray) -> Twofold:
        """Floats as they stand."""
        return cls(values, np.zeros_like(values), np.zeros_like(values))

    def times(self, B: FloatArray, start: FloatArray) -> Twofold:
        """``start + self @ B`` for ``(m, k)`` numbers and floats ``(k, n)``; what overflows has an infinite error.

        >>> tiny = Twofold.exact(np.array([[1.0, 2.0**-80]])).times(np.ones((2, 1)), np.zeros((1, 1)))
        >>> difference = Twofold(tiny.high, tiny.low, tiny.error).times(np.ones((1, 1)), -np.ones((1, 1)))
        >>> float(difference.high[0, 0]) == 2.0**-80, bool(difference.error[0, 0] < 2.0**-95)
        (True, True)
        """
        high, low = np.array(start, dtype=np.float64), np.zeros_like(start)
        k = B.shape[0]
        with np.errstate(all="ignore"):
            c = SPLITTER * B
            top = c - (c - B)
            _twofold_dot(self.high, self.low, B, top, B - top, high, low)
            size = np.abs(B)
            # of 3 k terms of the rest, none above 2 u of the absolute sum and together below k + 3 times u of it
            slip = gamma(4 * k + 16) ** 2 * (np.abs(self.high) @ size + np.abs(start))
            error = round_up(slip + self.error @ size + 16 * (k + 1) * TINY, k + 8)
        return Twofold(high, low, np.where(np.isfinite(high + low) & np.isfinite(error), error, np.inf))


def row_products(A: FloatArray, W: FloatArray, start: FloatArray) -> Twofold:
    """``start + A @ W.T`` for floats ``(m, k)`` and ``(n, k)``, row by row: no matrix is copied or split.

    >>> found = row_products(np.array([[1e16, 1.0, -1e16]]), np.ones((1, 3)), np.zeros((1, 1)))
    >>> float(found.high[0, 0] + found.low[0, 0]), bool(found.error[0, 0] < 1e-12)
    (1.0, True)
    """
    high, low, size = np.array(start, dtype=np.float64), np.zeros_like(start), np.abs(start)
    k = A.shape[1]
    with np.errstate(all="ignore"):
        _row_dots(np.ascontiguousarray(A), np.ascontiguousarray(W), high, low, size)
        slip = gamma(4 * k + 16) ** 2 * size
        error = round_up(slip + 16 * (k + 1) * TINY, k + 8)
    return Twofold(high, low, np.where(np.isfinite(high + low) & np.isfinite(error), error, np.inf))


@strict
def _row_dots(A: Any, W: Any, high: Any, low: Any, size: Any) -> None:
    for i in range(A.shape[0]):
        for j in range(W.shape[0]):
            total, rest, most = high[i, j], 0.0, size[i, j]
            for k in range(A.shape[1]):
                a, b = A[i, k], W[j, k]
                p = a * b
                c, d = SPLITTER * a, SPLITTER * b
                first, top = c - (c - a), d - (d - b)
                last, bottom = a - first, b - top
                error = last * bottom - (((p - first * top) - last * top) - first * bottom)
                new = total + p
                part = new - total
                rest += ((total - (new - part)) + (p - part)) + error
                total = new
                most += abs(p)
            size[i, j] = most
            new = total + rest
            part = new - total
            high[i, j], low[i, j] = new, (total - (new - part)) + (rest - part)


@strict
def _twofold_dot(A: Any, rest: Any, B: Any, top: Any, bottom: Any, high: Any, low: Any) -> None:
    for i in range(A.shape[0]):
        for k in range(A.shape[1]):
            a, r = A[i, k], rest[i, k]
            if a == 0.0 and r == 0.0:
                continue
            c = SPLITTER * a
            first = c - (c - a)
            last = a - first
            for j in range(B.shape[1]):
                p = a * B[k, j]
                error = last * bottom[k, j] - (((p - first * top[k, j]) - last * top[k, j]) - first * bottom[k, j])
                old = high[i, j]
                new = old + p
                part = new - old
                low[i, j] += ((old - (new - part)) + (p - part)) + (error + r * B[k, j])
                high[i, j] = new
        for j in range(B.shape[1]):
            old, p = high[i, j], low[i, j]
            new = old + p
            part = new - old
            high[i, j] = new
            low[i, j] = (old - (new - part)) + (p - part)
