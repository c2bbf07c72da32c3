"""Compensated products against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.numerics.compensated import Twofold, accurate_product


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_error_bound_holds_and_is_small(seed, k):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(2, k)) * 2.0 ** rng.integers(-30, 30, (2, k))
    B = rng.normal(size=(k, 2)) * 2.0 ** rng.integers(-30, 30, (k, 2))
    start = rng.normal(size=(2, 2))
    A[:, -1], B[-1] = -A[:, 0], B[0]  # cancellation
    value, error = accurate_product(A, B, start)
    for i in range(2):
        for j in range(2):
            true = Fraction(start[i, j]) + sum(Fraction(a) * Fraction(b) for a, b in zip(A[i], B[:, j], strict=True))
            assert abs(true - Fraction(value[i, j])) <= Fraction(error[i, j])
            size = np.abs(A[i]) @ np.abs(B[:, j]) + abs(start[i, j])
            assert error[i, j] <= 4e-16 * abs(value[i, j]) + 1e-28 * size


def test_overflow_is_not_a_value():
    value, error = accurate_product(np.array([[1e300]]), np.array([[1e300]]), np.zeros((1, 1)))
    assert not np.isfinite(value).all() or not np.isfinite(error).all()
    assert np.isinf(error).all()


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 4))
def test_twofold_chains_enclose_the_exact_product(seed, k, depth):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(2, k)) * 2.0 ** rng.integers(-30, 30, (2, k))
    found, true = Twofold.exact(rows), [[Fraction(x) for x in row] for row in rows]
    for _ in range(depth):
        B = rng.normal(size=(k, k)) * 2.0 ** rng.integers(-30, 30, (k, k))
        B[-1] = B[0]
        start = rng.normal(size=(2, k))
        found = found.times(B, start)
        true = [
            [
                Fraction(start[i, j]) + sum(x * Fraction(b) for x, b in zip(true[i], B[:, j], strict=True))
                for j in range(k)
            ]
            for i in range(2)
        ]
    for i in range(2):
        for j in range(k):
            value = Fraction(found.high[i, j]) + Fraction(found.low[i, j])
            assert abs(true[i][j] - value) <= Fraction(found.error[i, j])
    if depth == 1:
        size = np.abs(rows) @ np.abs(B) + np.abs(start)
        assert (found.error <= 1e-27 * size).all()


def test_twofold_overflow_has_an_infinite_error():
    found = Twofold.exact(np.array([[1e300]])).times(np.array([[1e300]]), np.zeros((1, 1)))
    assert np.isinf(found.error).all()
