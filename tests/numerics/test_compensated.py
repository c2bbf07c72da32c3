"""Compensated products against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.numerics.compensated import Twofold, accurate_product
from fiberscope.numerics.floats import spectral_bound


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


def exactly(rows, B, start):
    """``start + rows @ B`` in fractions."""
    columns = [[Fraction(b) for b in column] for column in B.T]
    return [
        [Fraction(s) + sum((x * b for x, b in zip(row, column, strict=True)), Fraction(0)) for column, s in
         zip(columns, start[i % len(start)], strict=True)]
        for i, row in enumerate(rows)
    ]  # fmt: skip


@given(st.integers(0, 2**32), st.integers(1, 10), st.integers(1, 5), st.sampled_from([0, 30, 200]))
def test_norms_of_blocks_behind_gates_hold(seed, k, depth, spread):
    """Blocks of three rows, of which some are taken, in any order, with some of their columns; rows of zeros, too."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(6, k)) * 2.0 ** rng.integers(-spread, spread + 1, (6, k))
    rows[3:] *= rng.integers(0, 2)
    found, true = Twofold.exact(rows), [[Fraction(x) for x in row] for row in rows]
    for _ in range(depth):
        B = rng.normal(size=(k, k)) * 2.0 ** rng.integers(-spread, spread + 1, (k, k))
        B[-1] = -B[0]
        start = rng.normal(size=(3, k)) * rng.integers(0, 2, (3, 1))
        block, alive = rng.integers(0, len(true) // 3, 3), rng.random((3, k)) < 0.6
        found = found.times(B, start, spectral_bound(B), (block, alive))
        chosen = [true[3 * b + t] for b in block for t in range(3)]
        gated = [[x if on else Fraction(0) for x, on in zip(row, alive[i // 3], strict=True)] for i, row in
                 enumerate(chosen)]  # fmt: skip
        true = exactly(gated, B, start)
    for i, row in enumerate(true):
        off = [abs(x - Fraction(h) - Fraction(w)) for x, h, w in zip(row, found.high[i], found.low[i], strict=True)]
        assert all(e <= Fraction(bound) for e, bound in zip(off, found.error[i], strict=True) if np.isfinite(bound))
        if found.norm is not None and np.isfinite(found.norm[i]):
            assert sum(e**2 for e in off) <= Fraction(found.norm[i]) ** 2
            assert (found.error[i] <= found.norm[i]).all()


def test_norms_do_not_grow_as_sums_of_absolute_values_do():
    """A chain of rotations: entry by entry the bound doubles in every step, of the norm it stays."""
    H = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
    B = np.kron(np.kron(H, H), H)
    plain = sharp = Twofold.exact(np.ones((1, 8)))
    for _ in range(30):
        plain, sharp = plain.times(B, np.zeros((1, 8))), sharp.times(B, np.zeros((1, 8)), spectral_bound(B))
    assert sharp.error.max() < 1e-28
    assert plain.error.min() > 1e-22


def test_twofold_overflow_has_an_infinite_error():
    found = Twofold.exact(np.array([[1e300]])).times(np.array([[1e300]]), np.zeros((1, 1)))
    assert np.isinf(found.error).all()
