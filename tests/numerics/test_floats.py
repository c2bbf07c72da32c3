"""Norms against those that floats give."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.numerics.floats import spectral_bound


@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 8))
def test_spectral_bound(seed, n, m):
    matrix = np.random.default_rng(seed).normal(size=(n, m))
    true = np.linalg.norm(matrix, 2)
    assert true <= spectral_bound(matrix) <= 1.4 * true
    assert spectral_bound(np.zeros((n, m))) >= 0


def is_no_longer_than(matrix, bound):
    """Whether ``bound^2 I - W W^T`` is positive semidefinite, by elimination in fractions."""
    rows = [[Fraction(x) for x in row] for row in matrix.tolist()]
    rest = [
        [(i == k) * Fraction(bound) ** 2 - sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0)) for k, b in
         enumerate(rows)]
        for i, a in enumerate(rows)
    ]  # fmt: skip
    for i, row in enumerate(rest):
        if row[i] < 0 or (row[i] == 0 and any(row[i:])):
            return False
        for other in rest[i + 1 :] if row[i] else []:
            share = other[i] / row[i]
            other[i:] = [x - share * y for x, y in zip(other[i:], row[i:], strict=True)]
    return True


MATRICES = {
    "one direction": lambda rng: np.outer(rng.normal(size=5), rng.normal(size=4)),
    "equal rows": lambda rng: np.tile(rng.normal(size=5), (4, 1)),
    "nearly cancelling": lambda rng: np.vstack([x := rng.normal(size=5), -x * (1 + 2.0**-52), x]),
    "rotation": lambda rng: np.linalg.qr(rng.normal(size=(5, 5)))[0],
    "top across ones": lambda rng: np.array([[1.0, -1.0], [-1.0, 1.0]]) * 7 + 0.125,
    "rows of zeros": lambda rng: np.vstack([np.zeros((3, 4)), rng.normal(size=(1, 4))]),
    "one number": lambda rng: np.eye(1, 5),
    "far apart": lambda rng: rng.normal(size=(4, 4)) * 2.0 ** rng.integers(-300, 100, (4, 4)),
    "subnormal beside one": lambda rng: np.diag([1.0, 2.0**-1074, 2.0**-600]),
}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("power", [-530, -190, 0, 190, 500])
def test_spectral_bound_is_proven(name, power):
    for seed in range(5):
        matrix = MATRICES[name](np.random.default_rng(seed)) * 2.0**power
        bound = spectral_bound(matrix)
        assert bound == np.inf or is_no_longer_than(matrix, bound)
        assert np.isfinite(bound) or abs(power) > 190 or name == "far apart"
        assert not is_no_longer_than(matrix, 0.7 * bound if bound < np.inf else 0.0)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e300, 2.0**-1074, 0.0])
def test_spectral_bound_beyond_the_range_of_floats_is_infinite(number):
    with np.errstate(all="raise", under="ignore"):
        assert spectral_bound(np.array([[number, 0.0], [0.0, 0.0]])) == np.inf
