"""Matrix products almost as if computed in twice the precision and then rounded.

Every product and every sum is split into its rounded value and its exact error; the errors are summed up beside
(T. Ogita, S. M. Rump, S. Oishi, Accurate sum and dot product, SIAM J. Sci. Comput. 26, 2005: algorithm Dot2).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fiberscope.numerics.floats import TINY, FloatArray, U, gamma, round_up

_SPLITTER = 2.0**27 + 1


@numba.njit(cache=True, nogil=True)
def _dot2(A: Any, B: Any, start: Any, out: Any) -> None:
    for i in range(A.shape[0]):
        for j in range(B.shape[1]):
            total, rest = start[i, j], 0.0
            for k in range(A.shape[1]):
                a, b = A[i, k], B[k, j]
                product = a * b
                c = _SPLITTER * a
                high = c - (c - a)
                low = a - high
                d = _SPLITTER * b
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
