"""Which rows of a matrix are multiples of each other, decided exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from fiberscope.numerics.exact_arrays import is_float
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray
from fiberscope.numerics.points import odd_parts

_AT_ONCE = 1 << 20
"""Entries that are compared in one pass."""


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
    candidates = _candidates(rows)
    for (left, pivot), known in zip(candidates, _with_first(rows, candidates), strict=True):
        rest, same = left, known
        while len(rest) > 1:
            first, others = rest[0], rest[1:]
            unit = Fraction(rows[first, pivot])
            group = [(int(i), Fraction(rows[i, pivot]) / unit) for i in others[same]]
            if group:
                groups.append([(int(first), Fraction(1)), *group])
            rest = others[~same]
            if len(rest) > 1:
                same = _proportional(rows[rest[0]], rows[rest[1:]], pivot)
    return sorted(groups)


def _with_first(rows: Any, candidates: list[tuple[IntArray, int]]) -> list[BoolArray]:
    """Which rows of every group are multiples of its first; all groups in a few passes, since most have two rows."""
    if not is_float(rows):
        return [_proportional(rows[group[0]], rows[group[1:]], pivot) for group, pivot in candidates]
    sizes = np.array([len(group) - 1 for group, _ in candidates], dtype=np.int64)
    first = np.repeat(np.array([group[0] for group, _ in candidates], dtype=np.int64), sizes)
    pivot = np.repeat(np.array([pivot for _, pivot in candidates], dtype=np.int64), sizes)
    other = np.concatenate([np.zeros(0, dtype=np.int64), *(group[1:] for group, _ in candidates)])
    same, step = np.empty(len(other), dtype=bool), max(1, _AT_ONCE // max(1, rows.shape[1]))
    for begin in range(0, len(other), step):
        part = slice(begin, begin + step)
        same[part] = _are_multiples(rows[first[part]], rows[other[part]], pivot[part])
    return np.split(same, np.cumsum(sizes)[:-1]) if len(sizes) else []


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
    return _are_multiples(a[None], others, np.full(len(others), pivot))


def _are_multiples(A: FloatArray, B: FloatArray, pivots: IntArray) -> BoolArray:
    """The same for floats: every row of ``B`` with the one of ``A`` beside it, or with the only one of ``A``."""
    (m, e), (n, f) = odd_parts(A), odd_parts(B)
    at = np.arange(len(B))
    m0, e0 = (np.broadcast_to(x, B.shape)[at, pivots][:, None] for x in (m, e))
    n0, f0 = n[at, pivots][:, None], f[at, pivots][:, None]
    zero = (m == 0) & (n == 0)
    return np.asarray((zero | ((e + f0 == f + e0) & _same_products(m, n0, n, m0))).all(axis=1))


def _same_products(a: IntArray, b: IntArray, c: IntArray, d: IntArray) -> BoolArray:
    """Whether ``a b = c d`` for integers below ``2^53``: the last 64 bits agree, and so do the floats.

    Two products with the same last 64 bits that are not the same are ``2^64`` apart; as floats they are each off by
    at most ``2^53``.
    """
    last = (a * b) == (c * d)  # integers of 64 bits wrap around
    near = np.abs(a.astype(np.float64) * b - c.astype(np.float64) * d) < 2.0**62
    return np.asarray(last & near)
