"""Which rows of a matrix are multiples of each other, decided exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from fiberscope.numerics.exact_arrays import is_float
from fiberscope.numerics.floats import FloatArray


def proportional_rows(matrix: FloatArray) -> list[list[int]]:
    """Groups of two or more non-zero rows that are multiples of each other, the floats taken as exact numbers.

    >>> proportional_rows(np.array([[0.1, 0.2], [1.0, 1.0], [-0.2, -0.4], [0.0, 0.0]]))
    [[0, 2]]
    """
    return [[i for i, _ in group] for group in multiples(matrix)]


def multiples(rows: Any) -> list[list[tuple[int, Fraction]]]:
    """Groups of rows that are multiples of each other: the first with factor 1, the others with theirs.

    Floats are taken as exact numbers; fractions may stand in their place. Rows that are multiples have their largest
    entries in the same places, and the same real quotients by the first of these; division rounds correctly, so their
    float quotients are bit-identical. That finds the candidates, and rational arithmetic decides.

    >>> multiples(np.array([[1.0, 2.0], [3.0, 1.0], [-2.0, -4.0], [0.0, 0.0]]))
    [[(0, Fraction(1, 1)), (2, Fraction(-2, 1))]]
    """
    exact = not is_float(rows)  # a fraction may round to zero or to infinity, so the largest is found exactly
    pivots = np.abs(rows).argmax(axis=1) if rows.size else np.zeros(len(rows), dtype=np.int64)
    candidates: dict[bytes, list[int]] = {}
    for i in range(len(rows)):
        row = rows[i]
        if not row.any():
            continue
        pivot = row[pivots[i]]
        quotient = np.array([float(v / pivot) for v in row]) if exact else row / pivot
        candidates.setdefault(np.append(quotient + 0.0, pivots[i]).tobytes(), []).append(i)
    groups = []
    for left in candidates.values():
        rest = list(left)
        while len(rest) > 1:
            first, *others = rest
            group = [(first, Fraction(1))]
            for other in others:
                factor = _factor(rows[first], rows[other], int(pivots[first]))
                if factor is not None:
                    group.append((other, factor))
            if len(group) > 1:
                groups.append(group)
            taken = {i for i, _ in group}
            rest = [i for i in others if i not in taken]
    return sorted(groups)


def _factor(a: Any, b: Any, pivot: int) -> Fraction | None:
    p, q = Fraction(a[pivot]), Fraction(b[pivot])
    if all(Fraction(x) * q == Fraction(y) * p for x, y in zip(a, b, strict=True)):
        return q / p
    return None
