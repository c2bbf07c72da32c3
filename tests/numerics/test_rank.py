"""Exact and numerical ranks against the rationals and against constructions of known rank."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fiberscope.errors import InputError
from fiberscope.numerics import modular as mod
from fiberscope.numerics.elimination import rank_mod
from fiberscope.numerics.points import integer_rows, row_bits
from fiberscope.numerics.rank import (
    ExactRank,
    exact_rank,
    failure_bound,
    float_minor_bits,
    numerical_rank,
    rank_cutoff,
)


def oracle(matrix: np.ndarray) -> int:
    rows = [[Fraction(float(v)) for v in row] for row in matrix]
    rank = 0
    for c in range(matrix.shape[1]):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][c]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            f = rows[i][c] / rows[rank][c]
            rows[i] = [a - f * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=5),
        elements=st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.0, 2.0**-1074, 1e300, 0.1, 0.30000000000000004]),
    ),
    st.sampled_from(["auto", "modular", "rational"]),
)
def test_every_method_gives_the_rank(matrix: np.ndarray, method: str) -> None:
    result = exact_rank(matrix, method=method)  # type: ignore[arg-type]
    assert result.rank == result.lower == oracle(matrix)
    assert result.shape == matrix.shape
    assert result.failure_probability < 1e-25
    assert method == "modular" or result.proven


def test_float_cancellation_is_seen() -> None:
    """0.1 + 0.2 is not 0.3: rank 2 read as decimals, rank 3 for the floats it holds."""
    matrix = np.array([[1.0, 0.0, 0.1], [0.0, 1.0, 0.2], [1.0, 1.0, 0.3]])
    assert exact_rank(matrix).rank == 3
    matrix[2, 2] = 0.5
    matrix[:2, 2] = 0.25
    assert exact_rank(matrix).rank == 2
    assert numerical_rank(np.array([[1.0, 0.0, 0.1], [0.0, 1.0, 0.2], [1.0, 1.0, 0.3]])).rank == 2


def test_evidence_of_a_modular_rank() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((150, 120))
    full = exact_rank(matrix)
    assert (full.rank, full.proven, full.method, len(full.primes)) == (120, True, "modular", 1)
    matrix[:, 5] = 2 * matrix[:, 3]
    lost = exact_rank(matrix, seed=1)
    assert (lost.rank, lost.method, len(lost.primes)) == (119, "modular", 2)
    assert 0 < lost.failure_probability < 1e-25
    assert exact_rank(matrix, seed=1, primes=1).failure_probability > lost.failure_probability
    assert exact_rank(matrix, seed=1) == lost
    assert exact_rank(matrix, seed=2).primes != lost.primes
    assert lost.to_dict()["rank"] == 119


def test_small_deficient_matrices_are_proven_over_the_integers() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((40, 30))
    matrix[:, 0] = matrix[:, 1]
    result = exact_rank(matrix)
    assert (result.rank, result.method, result.proven) == (29, "rational", True)


def test_products_known_by_residues_only() -> None:
    """A product of three float matrices through a bottleneck of width 7; as floats it has full rank."""
    rng = np.random.default_rng(2)
    a, b, c = rng.standard_normal((40, 7)), rng.standard_normal((7, 20)), rng.standard_normal((20, 50))

    def function(p: int) -> mod.Residues:
        return mod.matmul_mod(mod.matmul_mod(mod.residues(a, p), mod.residues(b, p), p), mod.residues(c, p), p)

    assert exact_rank(a @ b @ c).rank == 40
    result = exact_rank(function, bits=400)
    assert result.rank == 7
    assert 0 < result.failure_probability < 1e-25
    with pytest.raises(InputError, match="bits"):
        exact_rank(function)
    with pytest.raises(InputError, match="rational"):
        exact_rank(function, bits=400, method="rational")


@pytest.mark.parametrize("bad", [0, 1])
def test_a_bad_prime_is_outvoted(bad: int) -> None:
    """A prime that divides the minor gives too small a rank; the other one repairs it, in either order."""
    primes = mod.random_primes(2, seed=9)
    matrix = [[1, 0, 0], [0, primes[bad], 0], [0, 0, 0]]
    result = exact_rank(lambda p: mod.residues_of_integers(matrix, p), bits=61, seed=9)
    assert rank_mod(mod.residues_of_integers(matrix, primes[bad]), primes[bad]) == 1
    assert result == ExactRank(2, 2, result.failure_probability, primes, "modular", (3, 3))


def test_the_largest_minors_are_bounded() -> None:
    """Hadamard's own matrices attain his inequality."""
    matrix = scipy.linalg.hadamard(8).astype(float)
    assert 2 ** float_minor_bits(matrix) >= 8**4


@given(hnp.arrays(np.float64, (3, 4), elements=st.floats(-1e6, 1e6)))
def test_minor_bits_bound_all_minors(matrix: np.ndarray) -> None:
    rows = integer_rows(matrix)
    assert row_bits(matrix).tolist() == [max(int(abs(v)).bit_length() for v in row) for row in rows]
    columns = integer_rows(matrix.T).T
    bound = float_minor_bits(matrix)
    for keep in ([0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]):
        minors = [abs(int(flint.fmpz_mat(m[:, keep].tolist()).det())) for m in (rows, columns)]
        assert min(minors).bit_length() <= bound


def test_failure_bound() -> None:
    assert failure_bound(59, 1) == 0
    assert failure_bound(60, 1) >= 1 / mod.prime_count(61)
    assert failure_bound(10**30, 3) >= 1
    assert failure_bound(6000, 2) >= (100 / mod.prime_count(61)) ** 2


@pytest.mark.parametrize("function", [exact_rank, numerical_rank])
@pytest.mark.parametrize("bad", [[[np.nan, 1.0]], [[np.inf, 1.0]]])
def test_what_is_no_number_is_refused(function: object, bad: list[list[float]]) -> None:
    with pytest.raises(InputError, match="finite"):
        function(np.array(bad))  # type: ignore[operator]


@pytest.mark.parametrize("function", [exact_rank, numerical_rank])
def test_shapes_and_dtypes_are_refused(function: object) -> None:
    for bad in (np.zeros(3), np.zeros((2, 2), complex), np.array([["a"]])):
        with pytest.raises(InputError, match="matrix"):
            function(bad)  # type: ignore[operator]


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (3, 5)])
def test_empty_and_zero_matrices(shape: tuple[int, int]) -> None:
    zero = np.zeros(shape)
    assert exact_rank(zero).rank == 0
    result = numerical_rank(zero)
    assert (result.rank, result.cutoff, result.gap) == (0, 0.0, np.inf)


def test_dtype_decides_the_cutoff() -> None:
    matrix = np.diag([1.0, 1e-8, 1e-12])
    assert numerical_rank(matrix).rank == 3
    assert numerical_rank(matrix.astype(np.float32)).rank == 1
    assert numerical_rank(matrix, dtype=np.float32).rank == 1
    assert numerical_rank(matrix, rtol=1e-10).rank == 2
    assert numerical_rank(np.eye(3, dtype=int)).rank == 3
    with pytest.raises(InputError, match="rtol"):
        numerical_rank(matrix, rtol=-1.0)
    with pytest.raises(InputError, match="float32"):
        numerical_rank(matrix.astype(np.float16))


def test_gap_and_values_are_reported() -> None:
    result = numerical_rank(np.diag([4.0, 2.0, 1e-17]))
    assert result.rank == 2
    assert result.gap == pytest.approx(2e17)
    assert result.singular_values == pytest.approx([4.0, 2.0, 1e-17])
    assert result.cutoff == rank_cutoff((3, 3), 4.0, np.dtype(np.float64)) == 3 * 4 * 2.0**-52
    assert numerical_rank(np.eye(2)).gap == np.inf
    assert result.to_dict()["gap"] == result.gap
