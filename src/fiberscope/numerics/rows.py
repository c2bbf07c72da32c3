"""Which rows of a matrix are multiples of each other, decided exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fiberscope.numerics.floats import FloatArray


def proportional_rows(matrix: FloatArray) -> list[list[int]]:
    """Groups of two or more non-zero rows that are multiples of each other, the floats taken as exact numbers.

    Rows that are multiples have their largest entries in the same places, and the same real quotients by the first of
    these; division rounds correctly, so their float quotients are bit-identical. That finds the candidates, and
    rational arithmetic decides.

    >>> proportional_rows(np.array([[0.1, 0.2], [1.0, 1.0], [-0.2, -0.4], [0.0, 0.0]]))
    [[0, 2]]
    """
    candidates: dict[bytes, list[int]] = {}
    pivots = np.abs(matrix).argmax(axis=1) if matrix.size else np.zeros(len(matrix), dtype=np.int64)
    for index, row in enumerate(matrix):
        if row.any():
            key = np.append(row / row[pivots[index]] + 0.0, pivots[index]).tobytes()
            candidates.setdefault(key, []).append(index)
    groups = []
    for left in candidates.values():
        while left:
            first, *rest = left
            same = [m for m in rest if _multiples(matrix[first], matrix[m], int(pivots[first]))]
            if same:
                groups.append([first, *same])
            left[:] = [m for m in rest if m not in same]
    return sorted(groups)


def _multiples(a: FloatArray, b: FloatArray, pivot: int) -> bool:
    p, q = Fraction(float(a[pivot])), Fraction(float(b[pivot]))
    return all(Fraction(float(x)) * q == Fraction(float(y)) * p for x, y in zip(a, b, strict=True))
