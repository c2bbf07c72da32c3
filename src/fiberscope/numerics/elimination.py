"""Ranks, pivots and kernels of matrices of residues: a recursive elimination whose work is matrix products.

Half of the columns are eliminated first, the other half is updated by a triangular solution and one product, and then
eliminated itself (J.-G. Dumas, P. Giorgi, C. Pernet: Dense linear algebra over word-size prime fields, 2008). Modulo a
prime of at most 46 bits these products run in BLAS: see ``modular``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fiberscope.numerics.floats import IntArray
from fiberscope.numerics.modular import (
    MIDDLE,
    PrimeField,
    Residues,
    add_product,
    checked,
    field_of,
    matmul_mod,
    scale_mod,
)
from fiberscope.numerics.montgomery import BLOCK, lower_kernel, panel_kernel, upper_kernel
from fiberscope.run import ENDLESS, Run

PANEL = 8
"""Columns that are eliminated one by one: narrow, since all wider work is products."""


@dataclass(frozen=True, slots=True, eq=False)
class Echelon:
    """A matrix after elimination modulo a prime: its rank profile, and its kernel.

    ``pivots`` are the columns that are no combination of columns to their left. ``rows[: rank]`` is upper triangular
    on them; its entries are read as Montgomery forms, and below the pivots stand multipliers. ``order[: rank]`` are
    the rows of the matrix that the pivots were found in: independent ones that span all.
    """

    rows: Residues = field(repr=False)
    order: IntArray = field(repr=False)
    pivots: tuple[int, ...]
    prime: int

    @property
    def rank(self) -> int:
        return len(self.pivots)

    @property
    def free(self) -> IntArray:
        """The columns without a pivot."""
        return np.setdiff1d(np.arange(self.rows.shape[1]), self.pivots)

    def kernel(self, coefficients: Residues | None = None) -> Residues:
        """Vectors ``z`` with ``matrix z = 0``, as rows ``(count, columns)``.

        Their entries at :attr:`free` are the ``coefficients``, ``(count, nullity)``: random ones make random vectors of
        the kernel. By default the unit vectors, which make a basis.
        """
        f = field_of(self.prime)
        free, pivots = self.free, list(self.pivots)
        if coefficients is None:
            coefficients = np.eye(len(free), dtype=np.uint64)
        top = self.rows[: self.rank]
        solved = np.zeros((self.rank, len(coefficients)), np.uint64)
        add_product(solved, np.ascontiguousarray(top[:, free]), np.ascontiguousarray(coefficients.T), f)
        _solve_upper(np.ascontiguousarray(top[:, pivots]), solved, f)
        # The product of two forms, one of them no form, is divided by 2^64 once, and the solution gives that back.
        result = np.zeros((len(coefficients), self.rows.shape[1]), np.uint64)
        result[:, free] = coefficients
        result[:, pivots] = scale_mod(solved, -1, self.prime).T
        return result


def echelon_mod(matrix: Residues, prime: int, run: Run = ENDLESS) -> Echelon:
    """Eliminate a residue matrix over the field of p elements; the argument is not changed.

    >>> found = echelon_mod(np.array([[1, 2, 0], [0, 0, 1]], np.uint64), 2**61 - 1)
    >>> found.pivots, found.kernel() == np.array([[2**61 - 3, 1, 0]], np.uint64)
    ((0, 2), array([[ True,  True,  True]]))
    """
    work = checked(matrix, "matrix", 2).copy()
    pivots = np.empty(min(work.shape), np.int64)
    order = np.arange(len(work))
    rank = _eliminate((work, order), pivots, (0, 0, work.shape[1]), field_of(prime), run)
    return Echelon(work, order, tuple(int(c) for c in pivots[:rank]), prime)


def rank_mod(matrix: Residues, prime: int, run: Run = ENDLESS) -> int:
    """Rank of a residue matrix over the field of p elements.

    >>> from fiberscope.numerics.modular import residues
    >>> rank_mod(residues(np.array([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]]), 2**61 - 1), 2**61 - 1)
    1
    """
    return echelon_mod(matrix, prime, run).rank


class Ranks:
    """Ranks of one matrix modulo several primes; after the first, elimination is left to a minor where that will do.

    Let ``r`` be the rank modulo the first prime, and take ``r`` rows and columns with a regular minor. If it is regular
    modulo the next prime, too, the rank there is ``r`` at least, and larger only if some row does not vanish on the
    kernel of the ``r`` rows. On a uniformly random vector of that kernel such a row is zero with a probability of
    ``1 / p``: :meth:`loss`. Where it is not zero, or the minor is singular, the whole matrix is eliminated.

    >>> from fiberscope.numerics.modular import SMALL, random_primes, residues
    >>> rows, ranks = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 6.0, 9.0]]), Ranks(seed=0)
    >>> small, middle = random_primes(1, 0, SMALL) + random_primes(1, 0, MIDDLE)
    >>> [ranks.of(residues(rows, p), p) for p in (small, middle)], ranks.loss(middle) == 1 / middle
    ([1, 1], True)
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._minor: tuple[IntArray, list[int]] | None = None
        self._looked_at: set[int] = set()

    def of(self, matrix: Residues, prime: int, run: Run = ENDLESS) -> int:
        """The rank modulo a prime; of a prime of 46 bits perhaps from the minor of an earlier one."""
        if self._minor is not None and prime.bit_length() == MIDDLE and self._suffices(matrix, prime, run):
            self._looked_at.add(prime)
            return len(self._minor[1])
        found = echelon_mod(matrix, prime, run)
        self._minor = found.order[: found.rank], list(found.pivots)
        return found.rank

    def loss(self, prime: int) -> float:
        """Bound of the probability that the rank that was told is below that modulo the prime."""
        return 1 / prime if prime in self._looked_at else 0.0

    def _suffices(self, matrix: Residues, prime: int, run: Run) -> bool:
        assert self._minor is not None
        rows, pivots = self._minor
        free = np.setdiff1d(np.arange(matrix.shape[1]), pivots)
        rng = np.random.default_rng([self.seed, prime])
        vector = np.zeros((matrix.shape[1], 1), np.uint64)
        vector[free, 0] = rng.integers(0, prime, len(free), dtype=np.uint64)
        own = matrix[rows]
        found = echelon_mod(np.concatenate([own[:, pivots], matmul_mod(own, vector, prime)], axis=1), prime, run)
        if found.pivots != tuple(range(len(pivots))):
            return False
        vector[pivots, 0] = found.kernel()[0, :-1]
        return not matmul_mod(matrix, vector, prime).any()


def pivots_mod(matrix: Residues, prime: int, run: Run = ENDLESS) -> tuple[int, ...]:
    """The columns which are no combination of columns to their left, modulo p (the column rank profile).

    >>> pivots_mod(np.array([[0, 1, 1], [0, 2, 3]], np.uint64), 2**61 - 1)
    (1, 2)
    """
    return echelon_mod(matrix, prime, run).pivots


def _eliminate(
    matrix: tuple[Residues, IntArray], pivots: IntArray, corner: tuple[int, int, int], f: PrimeField, run: Run
) -> int:
    """Eliminate in columns ``left:right`` from row ``top`` on, in place; ``pivots`` is filled from its start.

    ``matrix`` is the table and the order of its rows.
    """
    (m, order), (top, left, right) = matrix, corner
    if top == len(m) or left == right:
        return 0
    if right - left <= PANEL:
        run.check()
        return int(panel_kernel(m, order, pivots, corner, f.constants))
    middle = left + _half(right - left)
    first = _eliminate(matrix, pivots, (top, left, middle), f, run)
    below = top + first
    if first:
        lower = m[top:, pivots[:first]]
        _solve_lower(lower[:first], m[top:below, middle:right], f)
        add_product(m[below:, middle:right], lower[first:], m[top:below, middle:right], f)
    return first + _eliminate(matrix, pivots[first:], (below, middle, right), f, run)


def _half(size: int) -> int:
    """About half, in whole panels."""
    return 8 * max(1, (size // 8 + 1) // 2)


def _solve_lower(lower: Residues, rows: Residues, f: PrimeField) -> None:
    """Finish the pivot ``rows``: those above are added with the negated multipliers ``lower``, in place."""
    if len(rows) <= BLOCK:
        lower_kernel(lower, rows, f.constants)
        return
    half = _half(len(rows))
    _solve_lower(lower[:half, :half], rows[:half], f)
    add_product(rows[half:], lower[half:, :half], rows[:half], f)
    _solve_lower(lower[half:, half:], rows[half:], f)


def _solve_upper(upper: Residues, rows: Residues, f: PrimeField) -> None:
    """``rows = upper^-1 rows`` in Montgomery forms, in place."""
    if len(rows) <= BLOCK:
        upper_kernel(upper, rows, f.constants)
        return
    half = _half(len(rows))
    _solve_upper(upper[half:, half:], rows[half:], f)
    add_product(rows[:half], upper[:half, half:], scale_mod(rows[half:], -1, f.prime), f)
    _solve_upper(upper[:half, :half], rows[:half], f)
