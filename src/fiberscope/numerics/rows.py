"""Which rows of a matrix are multiples of each other, decided exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from fiberscope.numerics.exact_arrays import is_float
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray
from fiberscope.numerics.points import odd_parts


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
    float quotients are bit-identical. That finds the candidates, and exact products decide.

    >>> multiples(np.array([[1.0, 2.0], [3.0, 1.0], [-2.0, -4.0], [0.0, 0.0]]))
    [[(0, Fraction(1, 1)), (2, Fraction(-2, 1))]]
    """
    groups = []
    for left, pivot in _candidates(rows):
        rest = left
        while len(rest) > 1:
            first, others = rest[0], rest[1:]
            same = _proportional(rows[first], rows[others], pivot)
            unit = Fraction(rows[first, pivot])
            group = [(int(i), Fraction(rows[i, pivot]) / unit) for i in others[same]]
            if group:
                groups.append([(int(first), Fraction(1)), *group])
            rest = others[~same]
    return sorted(groups)


def _candidates(rows: Any) -> list[tuple[IntArray, int]]:
    """Groups of non-zero rows that may be multiples of each other, each with a place where none of them is zero."""
    found: dict[Any, list[int]] = {}
    if is_float(rows):
        filled = np.flatnonzero(rows.any(axis=1))
        pivots = np.abs(rows[filled]).argmax(axis=1) if rows.size else filled
        quotients = rows[filled] / rows[filled, pivots][:, None] + 0.0  # one zero
        for i, pivot, quotient in zip(filled.tolist(), pivots.tolist(), quotients, strict=True):
            found.setdefault((pivot, quotient.tobytes()), []).append(i)
    else:  # a fraction may round to zero or to infinity: a few quotients are taken as they are
        for i, row in enumerate(rows):
            places = np.flatnonzero(row)
            if len(places):
                pivot = int(places[0])
                few = places[:: max(1, len(places) // 4)]
                found.setdefault((pivot, places.tobytes(), *(row[few] / row[pivot])), []).append(i)
    return [(np.array(group), key[0]) for key, group in found.items() if len(group) > 1]


def _proportional(a: Any, others: Any, pivot: int) -> BoolArray:
    """Which rows ``b`` are multiples of ``a``: ``a_k b_pivot`` and ``b_k a_pivot`` are the same numbers."""
    if not is_float(others):
        same = [all(x * b[pivot] == y * a[pivot] for x, y in zip(a, b, strict=True)) for b in others]
        return np.array(same, dtype=bool)
    (m, e), (n, f) = odd_parts(a), odd_parts(others)
    zero = (m == 0) & (n == 0)
    exponents = e + f[:, pivot : pivot + 1] == f + e[pivot]
    return np.asarray((zero | (exponents & _same_products(m, n[:, pivot : pivot + 1], n, m[pivot]))).all(axis=1))


def _same_products(a: IntArray, b: IntArray, c: IntArray, d: IntArray) -> BoolArray:
    """Whether ``a b = c d`` for integers below ``2^53``: the last 64 bits agree, and so do the floats.

    Two products with the same last 64 bits that are not the same are ``2^64`` apart; as floats they are each off by
    at most ``2^53``.
    """
    last = (a * b) == (c * d)  # integers of 64 bits wrap around
    near = np.abs(a.astype(np.float64) * b - c.astype(np.float64) * d) < 2.0**62
    return np.asarray(last & near)
