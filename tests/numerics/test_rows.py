"""Proportional rows against pairwise rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.numerics.rows import proportional_rows


def multiples(a, b) -> bool:
    a, b = [Fraction(float(x)) for x in a], [Fraction(float(x)) for x in b]
    return any(a) and any(b) and all(p * s == q * r for (p, r), (q, s) in combinations(list(zip(a, b, strict=True)), 2))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(2, 4))
def test_groups_equal_pairwise_comparison(seed, rows, columns):
    rng = np.random.default_rng(seed)
    base = rng.integers(-1, 2, (rows, columns)) * rng.choice([1.0, 0.1, 1 / 3, 1e-310, 1e200], (rows, 1))
    matrix = np.concatenate([base, base[rng.integers(0, rows, 2)] * rng.choice([2.0, -0.5, 3.0], (2, 1))])
    found = proportional_rows(matrix)
    pairs = {(a, b) for group in found for a, b in combinations(group, 2)}
    expected = {(a, b) for a, b in combinations(range(len(matrix)), 2) if multiples(matrix[a], matrix[b])}
    assert pairs == expected


def test_one_ulp_apart_is_not_proportional():
    row = np.array([[0.1, 0.7, 0.3]])
    matrix = np.concatenate([row, row, np.nextafter(row, 1)])
    assert proportional_rows(matrix) == [[0, 1]]


def test_nothing_to_compare():
    assert proportional_rows(np.zeros((3, 2))) == []
    assert proportional_rows(np.zeros((0, 2))) == []
