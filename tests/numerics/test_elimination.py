"""Ranks, pivots and kernels modulo primes of every size, against flint."""

from __future__ import annotations

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, OutOfTimeError
from fiberscope.numerics import elimination
from fiberscope.numerics import modular as mod
from fiberscope.numerics.elimination import Ranks, echelon_mod, pivots_mod, rank_mod
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


# --- ranks modulo one prime after the other ------------------------------------------------------------------------

FIRST = mod.random_primes(1, 3, mod.SMALL)[0]
LATER = mod.random_primes(2, 3, mod.MIDDLE)


def integers_of_rank(m: int, n: int, r: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([m, n, r, seed])
    return np.asarray(rng.integers(-9, 10, (m, r)) @ rng.integers(-9, 10, (r, n)), dtype=object)


def ranks_of(matrix: np.ndarray, primes: tuple[int, ...], seed: int = 0) -> list[int]:
    ranks = Ranks(seed)
    return [ranks.of(mod.residues_of_integers(matrix, p), p) for p in primes]


@pytest.mark.parametrize("shape", [(1, 1, 0), (7, 5, 0), (7, 5, 5), (5, 7, 5), (90, 70, 30), (60, 140, 59), (40, 3, 2)])
def test_later_ranks_are_those_of_eliminations(shape: tuple[int, int, int]) -> None:
    matrix = integers_of_rank(*shape)
    assert ranks_of(matrix, (FIRST, *LATER)) == [shape[2]] * 3


def test_later_ranks_are_found_without_the_whole_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    whole = elimination.echelon_mod

    def counted(matrix: np.ndarray, *rest: object) -> object:
        sizes.append(matrix.shape)
        return whole(matrix, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(elimination, "echelon_mod", counted)
    ranks_of(integers_of_rank(90, 70, 30), (FIRST, *LATER))
    assert sizes == [(90, 70), (30, 31), (30, 31)]


@settings(max_examples=100)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 30), st.integers(0, 2**32), st.integers(1, 3))
def test_one_entry_that_the_first_prime_does_not_see(m: int, n: int, r: int, seed: int, more: int) -> None:
    """Multiples of the first prime, anywhere: the rank modulo a later one is that of an elimination."""
    rng = np.random.default_rng(seed)
    matrix = integers_of_rank(m, n, min(r, m, n), seed)
    for _ in range(more):
        matrix[rng.integers(m), rng.integers(n)] += FIRST * int(rng.integers(1, 5))
    expected = [rank_mod(mod.residues_of_integers(matrix, p), p) for p in (FIRST, *LATER)]
    assert ranks_of(matrix, (FIRST, *LATER)) == expected


@pytest.mark.parametrize("place", range(4))
def test_a_minor_that_is_singular_modulo_the_later_prime(place: int) -> None:
    """Where the later prime loses a pivot of the first one, another minor may do, or the rank is smaller."""
    matrix = np.diag([1, 2, 3, 4]).astype(object)
    matrix[place, place] = LATER[0]
    assert ranks_of(matrix, (FIRST, *LATER)) == [4, 3, 4]
    wide = np.concatenate([matrix, np.eye(4, dtype=int).astype(object)], axis=1)
    assert ranks_of(wide, (FIRST, *LATER)) == [4, 4, 4]


def test_what_a_random_vector_may_miss_is_counted() -> None:
    ranks, matrix = Ranks(0), integers_of_rank(20, 20, 5)
    for prime, loss in ((FIRST, 0.0), (LATER[0], 1 / LATER[0]), (LATER[1], 1 / LATER[1])):
        ranks.of(mod.residues_of_integers(matrix, prime), prime)
        assert ranks.loss(prime) == loss
