"""Ranks, pivots and kernels modulo primes of every size, against flint."""

from __future__ import annotations

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, OutOfTimeError
from fiberscope.numerics import modular as mod
from fiberscope.numerics.elimination import echelon_mod, pivots_mod, rank_mod
from fiberscope.run import Run

PRIMES = (2**61 - 1, *mod.random_primes(1, 7, mod.MIDDLE), 2**46 - 21, 2**23 - 15)


@pytest.fixture(params=PRIMES)
def prime(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def product_of_rank(m: int, n: int, r: int, prime: int) -> np.ndarray:
    rng = np.random.default_rng(m + n + r)
    a, b = (rng.integers(0, prime, shape, dtype=np.uint64) for shape in ((m, r), (r, n)))
    return mod.matmul_mod(a, b, prime)


@pytest.mark.parametrize(
    ("m", "n", "r"),
    [(1, 1, 0), (1, 1, 1), (5, 9, 3), (70, 60, 40), (150, 140, 100), (64, 200, 64), (300, 331, 257), (400, 130, 129)],
)
def test_rank_and_kernel_of_products_are_known(m: int, n: int, r: int, prime: int) -> None:
    product = product_of_rank(m, n, r, prime)
    before = product.copy()
    found = echelon_mod(product, prime)
    assert found.rank == r == rank_mod(product, prime)
    assert np.array_equal(product, before)
    assert rank_mod(product[found.order[:r]], prime) == r
    assert sorted(found.order.tolist()) == list(range(m))
    kernel = found.kernel()
    assert kernel.shape == (n - r, n)
    assert not mod.matmul_mod(product, np.ascontiguousarray(kernel.T), prime).any()
    assert np.array_equal(kernel[:, found.free], np.eye(n - r, dtype=np.uint64))
    coefficients = np.random.default_rng(0).integers(0, prime, (2, n - r), dtype=np.uint64)
    assert np.array_equal(found.kernel(coefficients), mod.matmul_mod(coefficients, kernel, prime))


@settings(max_examples=60)
@given(st.integers(0, 90), st.integers(0, 150), st.integers(0, 2**32), st.floats(0, 1), st.sampled_from(PRIMES))
def test_rank_and_pivots_agree_with_flint_on_sparse_matrices(m, n, seed, density, prime) -> None:
    rng = np.random.default_rng(seed)
    small = rng.integers(-2, 3, (m, n)) * (rng.random((m, n)) < density)
    residues = mod.residues_of_integers(small, prime)
    pivots = pivots_mod(residues, prime)
    if m and n:
        reduced, rank = flint.nmod_mat(m, n, [int(v) for v in residues.ravel()], prime).rref()
        assert list(pivots) == [next(j for j in range(n) if int(reduced[i, j])) for i in range(rank)]
    else:
        assert pivots == ()


def test_zero_and_repeated_columns(prime: int) -> None:
    assert rank_mod(np.zeros((30, 80), np.uint64), prime) == 0
    assert rank_mod(np.tile(np.arange(30, dtype=np.uint64)[:, None], (1, 80)), prime) == 1
    late = np.zeros((4, 200), np.uint64)
    late[:, 199] = 1
    assert pivots_mod(late, prime) == (199,)
    assert np.array_equal(echelon_mod(np.zeros((0, 3), np.uint64), prime).kernel(), np.eye(3))


def test_a_prime_that_divides_lowers_the_rank(prime: int) -> None:
    assert rank_mod(mod.residues_of_integers([[1, 0], [0, prime]], prime), prime) == 1


def test_the_clock_is_looked_at_and_shapes_are_checked(prime: int) -> None:
    with pytest.raises(OutOfTimeError):
        rank_mod(np.eye(3, dtype=np.uint64), prime, Run.begin().within(0.0))
    with pytest.raises(InputError, match="axes"):
        rank_mod(np.ones(3, np.uint64), prime)
