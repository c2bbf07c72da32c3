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

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.numerics.compiling.kernels import strict
from fiberscope.numerics.floats import SMALL, SPLITTER, TINY, BoolArray, FloatArray, IntArray, U, gamma, norms, round_up


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
    """Numbers ``high + low`` of about 106 bits, each off by at most ``error``; ``low`` is a rounding of ``high``.

    ``norm`` is not below the Euclidean norm of what each row is off by, if that is known better than from ``error``.
    """

    high: FloatArray
    low: FloatArray
    error: FloatArray
    norm: FloatArray | None = None

    @classmethod
    def exact(cls, values: FloatArray) -> Twofold:
        """Floats as they stand."""
        return cls(values, np.zeros_like(values), np.zeros_like(values))

    def rows(self, index: IntArray) -> Twofold:
        """Some of the rows."""
        norm = None if self.norm is None else self.norm[index]
        return Twofold(self.high[index], self.low[index], self.error[index], norm)

    def times(self, B: FloatArray, start: FloatArray, spectral: float = np.inf, behind: Gate | None = None) -> Twofold:
        """``start + self @ B`` for ``(m, k)`` numbers and floats ``(k, n)``; what overflows has an infinite error.

        ``spectral`` is not below the spectral norm of ``B``. Over many products it grows by less than what absolute
        values do, which bound every entry by itself. Rows come in blocks as large as ``start``; ``behind`` says of
        which blocks to take which columns.

        >>> tiny = Twofold.exact(np.array([[1.0, 2.0**-80]])).times(np.ones((2, 1)), np.zeros((1, 1)))
        >>> difference = Twofold(tiny.high, tiny.low, tiny.error).times(np.ones((1, 1)), -np.ones((1, 1)))
        >>> float(difference.high[0, 0]) == 2.0**-80, bool(difference.error[0, 0] < 2.0**-95)
        (True, True)
        """
        k, n = B.shape
        if behind is None:
            blocks = len(self.high) // max(1, len(start))
            behind = np.arange(blocks), np.broadcast_to(np.array(True), (blocks, k)).copy()
        before = np.empty(len(self.high)) if self.norm is None else self.norm
        if spectral < np.inf and self.norm is None:
            before = norms(self.error)
        rows = len(behind[0]) * len(start)
        room = np.empty((3, rows, n))
        norm = np.empty(rows)
        with np.errstate(all="ignore"):
            c = SPLITTER * B
            top = c - (c - B)
            _twofold_dot(
                self.high, self.low, self.error, before, *behind, B, top, B - top, start, spectral, np.empty(n),
                *room, norm,
            )  # fmt: skip
        return Twofold(room[0], room[1], room[2], norm if spectral < np.inf else None)


Gate = tuple[IntArray, BoolArray]
"""Which blocks of rows, ``(blocks,)``, and which of their columns, ``(blocks, k)``; the others count as zero."""


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
def _twofold_dot(
    A: Any, rest: Any, error: Any, norm: Any, block: Any, alive: Any, B: Any, top: Any, bottom: Any, start: Any,
    spectral: float, lost: Any, high: Any, low: Any, bound: Any, new_norm: Any,
) -> None:  # fmt: skip
    """Block ``g`` of the result is ``start`` and the columns ``alive[g]`` of block ``block[g]`` times ``B``.

    Sums and products of the low parts are rounded, nothing else: each loses ``U`` of its result at most, and ``lost``
    adds the results up.
    """
    (k, n), every = B.shape, start.shape[0]
    floor, up = 32.0 * (k + 1) * TINY, 1.0 + 2.0 * (5.0 * k + n + 32.0) * U
    for i in range(high.shape[0]):
        g, t = i // every, i % every
        source, defect = block[g] * every + t, False
        for j in range(n):
            high[i, j], low[i, j], bound[i, j], lost[j] = start[t, j], 0.0, 0.0, 0.0
        for h in range(k):
            a, r, e = A[source, h], rest[source, h], error[source, h]
            if not alive[g, h] or (a == 0.0 and r == 0.0 and e == 0.0):
                continue
            c = SPLITTER * a
            first = c - (c - a)
            last = a - first
            for j in range(n):
                b = B[h, j]
                p, q = a * b, r * b
                s = (last * bottom[h, j] - (((p - first * top[h, j]) - last * top[h, j]) - first * bottom[h, j])) + q
                old = high[i, j]
                new = old + p
                part = new - old
                w = ((old - (new - part)) + (p - part)) + s
                total = low[i, j] + w
                high[i, j], low[i, j] = new, total
                lost[j] += abs(q) + abs(s) + abs(w) + abs(total)
                bound[i, j] += e * abs(b)
        size, squares = 0.0, 0.0
        for j in range(n):
            old, p, x = high[i, j], low[i, j], U * lost[j] + floor
            new = old + p
            part = new - old
            high[i, j] = new
            low[i, j] = (old - (new - part)) + (p - part)
            bound[i, j] = (bound[i, j] + x) * up
            size += x
            squares += x * x
            if not (abs(new) < np.inf and bound[i, j] < np.inf):
                bound[i, j], defect = np.inf, True
        if spectral < np.inf:
            slip = math.sqrt(squares) if SMALL < squares < 1 / SMALL else size
            most = (norm[source] * spectral + slip) * up + TINY
            if defect or not most < np.inf:
                most = np.inf
            new_norm[i] = most
            for j in range(n):
                bound[i, j] = min(bound[i, j], most)
