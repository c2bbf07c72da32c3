"""Ranks: exact with evidence, or numerical with a stated cut-off.

The rank modulo a prime never exceeds the rank over the rationals, so it is a proven lower bound. It is too
small only if the prime divides a certain nonzero minor. Hadamard's inequality bounds the minor, hence the
number of primes of a size that divide it; the prime is drawn at random from all of that size, of which there are more
than ``2.7e16`` with 61 bits, ``7e11`` with 46 and ``2.6e5`` with 23. Modulo a prime of 46 bits a rank that is known
from another prime is looked at on a random vector, which may miss what is beyond it: that is counted, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import flint
import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.errors import InputError
from fiberscope.numerics.elimination import Ranks
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.modular import MIDDLE, SMALL, WIDE, Residues, prime_count, random_primes, residues
from fiberscope.numerics.points import integer_rows, row_bits
from fiberscope.results import Result
from fiberscope.run import ENDLESS, Run

CHANCE = 1e-9
"""A rank whose probability of being too small is above this is asked of one prime more."""

QUICK = 1 << 24
"""Products of an elimination up to which primes of 61 bits are taken; above, BLAS is worth smaller ones."""

RATIONAL_LIMIT = 100
"""Largest number of rows or columns for which a rank below full is proven over the integers by default."""

Method = Literal["auto", "modular", "rational"]
ResidueFunction = Callable[[int], Residues]


@dataclass(frozen=True, slots=True)
class ExactRank(Result):
    """The rank of a matrix of exact numbers, and what stands behind it.

    ``lower`` is proven. ``rank`` is the same number, claimed for the true rank; the claim is wrong with a
    probability of at most ``failure_probability`` over the draw of the primes and of vectors modulo them, and 0 means
    proven.
    """

    rank: int
    lower: int
    failure_probability: float
    primes: tuple[int, ...] = field(repr=False)
    method: Literal["modular", "rational"]
    shape: tuple[int, int]

    @property
    def proven(self) -> bool:
        """Whether the rank holds with certainty."""
        return self.failure_probability == 0


def exact_rank(
    matrix: FloatArray | ResidueFunction,
    *,
    bits: int | None = None,
    method: Method = "auto",
    primes: int = 2,
    seed: int = 0,
    run: Run = ENDLESS,
) -> ExactRank:
    """Rank over the rationals of a matrix of floats, taken as exact, or of a matrix known by residues.

    Parameters
    ----------
    matrix
        ``(m, n)`` floats; or a function from a prime to the ``(m, n)`` residues, for entries that are
        products of many floats and are floats no longer.
    bits
        For a function: after multiplying each row by a power of two of its own, all entries must be integers
        of at most this many bits. Only the probability depends on it.
    method
        ``"auto"``: modulo primes, then over the integers if that proves nothing yet and the matrix is of
        floats with both sides at most :data:`RATIONAL_LIMIT`. ``"modular"``, ``"rational"`` insist on one.
    primes
        How many are drawn. The rank is the largest of the modular ranks: it fails only if all fail.
    seed
        Seed of the draw.
    run
        Its deadline is looked at on the way.

    >>> third = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [5.0, 7.0, 9.0]])  # the sum of the others
    >>> exact_rank(third)
    ExactRank(rank=2, lower=2, failure_probability=0.0, method='modular', shape=(3, 3))
    >>> ulp = third + np.diag([0, 0, 2.0**-49])
    >>> exact_rank(ulp).rank, numerical_rank(ulp).rank
    (3, 2)
    """
    if callable(matrix):
        if bits is None:
            raise InputError("expected a bound on the bits of the entries along with a residue function")
        if method == "rational":
            raise InputError("expected floats for the rational method, got a residue function")
        return _of_residues(matrix, bits, primes, seed, run)
    values = _matrix(matrix)
    if method == "rational" or min(values.shape) == 0:
        return _rational(values)
    size = (values.shape[0], values.shape[1])
    ranks = Ranks(seed)
    result = agreed_rank(
        lambda p: ranks.of(residues(values, p), p, run),
        size,
        lambda: float_minor_bits(values),
        loss=ranks.loss,
        primes=primes,
        seed=seed,
    )
    small = max(values.shape) <= RATIONAL_LIMIT
    return _rational(values) if method == "auto" and small and not result.proven else result


def agreed_rank(
    rank_of: Callable[[int], int],
    shape: tuple[int, int],
    minor_bits: Callable[[], int],
    *,
    upper: int | None = None,
    loss: Callable[[int], float] = lambda prime: 0.0,
    primes: int = 2,
    seed: int = 0,
) -> ExactRank:
    """Rank over the rationals of a matrix whose rank modulo a prime ``rank_of`` finds, perhaps too small by bad luck.

    A prime whose rank meets the shape or a proven ``upper`` bound is the last one. Small matrices are asked modulo
    ``primes`` primes of 61 bits; large ones modulo one of 23 bits, which often meets the bound and costs little, and
    then modulo one of 46 bits, or more until the failure is below :data:`CHANCE`. ``loss(prime)`` bounds the
    probability that ``rank_of`` itself misses something, ``minor_bits()`` is the size of the largest minor.
    """
    if primes < 1:
        raise InputError(f"expected at least one prime, got {primes}")
    rng = np.random.default_rng(seed)
    most = min(shape) if upper is None else min(upper, *shape)
    small = shape[0] * shape[1] * min(shape) <= QUICK
    drawn: list[int] = []
    rank, failure, largest = -1, 1.0, cache(minor_bits)
    while len(drawn) < primes or (not small and failure > CHANCE):
        bits = WIDE if small else SMALL if not drawn else MIDDLE
        (prime,) = random_primes(1, rng, bits)
        drawn.append(prime)
        rank = max(rank, rank_of(prime))
        if rank == most:
            return ExactRank(rank, rank, 0.0, tuple(drawn), "modular", shape)
        # The largest rank is wrong only if all primes are unlucky.
        failure *= min(1.0, failure_bound(largest(), 1, bits) + loss(prime)) * (1 + 2**-50)
    return ExactRank(rank, rank, failure, tuple(drawn), "modular", shape)


def _of_residues(function: ResidueFunction, bits: int, count: int, seed: int, run: Run) -> ExactRank:
    """Only a first table says the shape; it serves for the first prime of a small matrix too."""
    (first,) = random_primes(1, seed)
    table = function(first)
    shape, ranks = (table.shape[0], table.shape[1]), Ranks(seed)

    def rank_of(prime: int) -> int:
        return ranks.of(table if prime == first else function(prime), prime, run)

    largest = minor_bits(bits, min(shape))
    return agreed_rank(rank_of, shape, lambda: largest, loss=ranks.loss, primes=count, seed=seed)


def failure_bound(minor_bits: int, count: int, bits: int = WIDE) -> float:
    """Bound of the probability that all of ``count`` random primes of so many ``bits`` divide one nonzero integer.

    An integer of ``minor_bits`` bits has at most ``minor_bits/60`` prime factors above ``2^60``; below 60 bits none.

    >>> failure_bound(60_000, 1) < 1e-13
    True
    """
    single = min(1.0, (minor_bits // (bits - 1)) / prime_count(bits) * (1 + 2**-50))
    return float(single**count * (1 + count * 2**-50))


def minor_bits(bits: int, size: int) -> int:
    """Bits of a minor with at most ``size`` rows of integers of so many ``bits``."""
    return _minor_bits([bits] * size)


def _minor_bits(widths: list[int]) -> int:
    """Hadamard: ``|det| <= prod |row|``, where k entries below ``2^b`` have length below ``2^b sqrt(k)``."""
    k = len(widths)
    return sum(widths) + (k * k.bit_length() + 1) // 2


def float_minor_bits(values: FloatArray) -> int:
    """Bits of the largest possible minor of a float matrix whose rows are scaled to integers.

    >>> float_minor_bits(np.array([[0.5, 1.5], [4.0, 0.0]]))  # rows (1, 3), (1, 0): 2 + 1 bits, 2 for sqrt(2)
    5
    """
    size = min(values.shape)
    widths = [np.sort(row_bits(rows))[::-1][:size].tolist() for rows in (values, values.T)]
    return min(_minor_bits(w) for w in widths)


def _rational(values: FloatArray) -> ExactRank:
    shape = (values.shape[0], values.shape[1])
    rank = int(flint.fmpz_mat(integer_rows(values).tolist()).rank()) if min(shape) else 0
    return ExactRank(rank, rank, 0.0, (), "rational", shape)


def _matrix(matrix: Any) -> FloatArray:
    array = np.asarray(matrix)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InputError(f"expected a matrix of real numbers, got shape {array.shape} of {array.dtype}")
    if not np.isfinite(array).all():
        raise InputError("expected finite numbers, got NaN or infinity")
    return array.astype(np.float64)


# --- numerical -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class NumericalRank(Result):
    """How many singular values exceed the cut-off, and how clear the cut is."""

    rank: int
    singular_values: FloatArray = field(repr=False)
    cutoff: float
    gap: float
    """Last singular value kept over the first dropped; infinite if nothing, or only zeros, were dropped."""


def rank_cutoff(shape: tuple[int, ...], largest: float, dtype: np.dtype[Any], rtol: float | None = None) -> float:
    """The one rule for the cut-off: ``max(m, n) * sigma_max * eps`` of the dtype the matrix was computed in.

    The computed singular values are those of a matrix within a modest multiple of ``eps * sigma_max``; the
    factor ``max(m, n)`` is the custom of MATLAB, NumPy and *Numerical Recipes*. What rounding did to the
    entries before the decomposition is of the same size only if they were computed stably, so this is a rule,
    not a proof. ``rtol`` replaces ``max(m, n) * eps``.

    >>> rank_cutoff((2, 4), 1.0, np.dtype(np.float64)) == 4 * 2.0**-52
    True
    """
    if rtol is None:
        rtol = max(shape) * float(np.finfo(dtype).eps)
    return rtol * largest


def numerical_rank(
    matrix: Any, *, rtol: float | None = None, dtype: np.dtype[Any] | type | None = None
) -> NumericalRank:
    """Rank by singular values above :func:`rank_cutoff`.

    Parameters
    ----------
    matrix
        ``(m, n)`` of float32 or float64; give the matrix itself and not its Gram matrix, whose singular
        values are squared and fall below the cut-off too early.
    rtol
        Relative cut-off instead of ``max(m, n) * eps``.
    dtype
        The precision in which the entries were computed, if not that of the array.

    >>> numerical_rank(np.diag([1.0, 1e-3, 1e-20])).rank
    2
    """
    array = np.asarray(matrix)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InputError(f"expected a matrix of real numbers, got shape {array.shape} of {array.dtype}")
    if not np.isfinite(array).all():
        raise InputError("expected finite numbers, got NaN or infinity")
    if rtol is not None and not rtol >= 0:
        raise InputError(f"expected a non-negative rtol, got {rtol}")
    precision = np.dtype(dtype if dtype is not None else array.dtype)
    if precision not in (np.dtype(np.float32), np.dtype(np.float64)):
        if precision.kind == "f":
            raise InputError(f"expected float32 or float64, got {precision}")
        precision = np.dtype(np.float64)
    work = array.astype(precision if dtype is None else np.float64)
    if min(work.shape) == 0:
        return NumericalRank(0, np.zeros(0), 0.0, np.inf)
    values = np.asarray(scipy.linalg.svdvals(work), dtype=np.float64)
    cutoff = rank_cutoff(work.shape, float(values[0]), precision, rtol)
    rank = int((values > cutoff).sum())
    dropped = float(values[rank]) if rank < len(values) else 0.0
    gap = float(values[rank - 1]) / dropped if rank and dropped else np.inf
    return NumericalRank(rank, values, cutoff, float(gap))


def null_rows(rows: FloatArray, count: int) -> FloatArray:
    """The right singular vectors of the ``count`` smallest singular values, as rows.

    >>> np.abs(null_rows(np.array([[3.0, 0.0], [0.0, 0.0]]), 1))
    array([[0., 1.]])
    """
    if len(rows) == 0:
        return np.eye(rows.shape[1])[:count]
    if len(rows) > rows.shape[1]:  # the same right singular vectors, without a left one for every row
        rows = np.asarray(scipy.linalg.qr(rows, mode="r")[0][: rows.shape[1]], dtype=np.float64)
    vectors: FloatArray = scipy.linalg.svd(rows, full_matrices=True)[2]
    return vectors[rows.shape[1] - count :]
