"""The row space of a matrix that is too tall to hold, modulo a prime: what is known of it is its kernel.

A row lies in the space if and only if it annihilates the kernel. A few random vectors of the kernel test a row, and a
row of which all products vanish lies in it except with probability ``p^-t`` for ``t`` vectors. A row that fails is
added: then the rank grows by the rank of its products with the *whole* kernel, and the kernel becomes smaller. So rows
come in chunks, most of them are looked at once, and no elimination is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fiberscope.dimension.jacobian import rows_in_ring
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.elimination import Echelon, echelon_mod
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.numerics.modular import Residues, matmul_mod, scatter_mod
from fiberscope.run import ENDLESS, Run

PROBES = 4
"""Random vectors of the kernel that a row has to annihilate."""

CHUNK = 1 << 22
"""Entries of the rows that are held at once."""

SKETCHED = 6
"""Rows of the sketch in multiples of the columns: more of them are tested only."""


class RowSpace:
    """The span of all rows that were added, in a space of ``columns`` dimensions modulo a prime.

    >>> space = RowSpace(3, 2**61 - 1, np.random.default_rng(0))
    >>> space.extend(np.array([[1, 2, 3], [2, 4, 6]], np.uint64))
    >>> space.rank, space.leaves(np.array([[3, 6, 9], [0, 0, 1]], np.uint64))
    (1, array([False,  True]))
    """

    def __init__(self, columns: int, prime: int, rng: np.random.Generator) -> None:
        self.prime = prime
        self.rank = 0
        self._rng = rng
        self._columns = columns
        # The kernel is that of the last elimination within the one before, None for all of the space.
        self._before: Residues | None = None
        self._last: Echelon | None = None
        self._probes = self._random((PROBES, columns))

    def _random(self, shape: tuple[int, int]) -> Residues:
        return self._rng.integers(0, self.prime, shape, dtype=np.uint64)

    def _kernel(self, mix: Residues | None = None) -> Residues | None:
        """A basis of the kernel as rows, or combinations of it; None for all of the space."""
        if self._last is None:
            return None
        inner = self._last.kernel(mix)
        return inner if self._before is None else matmul_mod(inner, self._before, self.prime)

    def kernel(self) -> Residues:
        """A basis of what all rows annihilate, as rows."""
        found = self._kernel()
        return np.eye(self._columns, dtype=np.uint64) if found is None else found

    def leaves(self, rows: Residues) -> BoolArray:
        """Which rows lie outside of the space: surely those that are named, and with tiny probability another."""
        return _nonzero(rows, self._probes, self.prime)

    def add(self, rows: Residues, run: Run = ENDLESS) -> Echelon:
        """Extend the space by rows; what was eliminated is the answer, the rows themselves for the first ones."""
        self._before = self._kernel()
        if self._before is not None:
            rows = matmul_mod(rows, np.ascontiguousarray(self._before.T), self.prime)
        found = self._last = echelon_mod(rows, self.prime, run)
        self.rank += found.rank
        probes = self._kernel(self._random((PROBES, self._columns - self.rank)))
        assert probes is not None
        self._probes = probes
        return found

    def extend(self, rows: Residues, run: Run = ENDLESS) -> None:
        """Add those rows that leave the space, no more at a time than could be independent."""
        while len(rows := rows[self.leaves(rows)]):
            run.check()
            most = self._columns - self.rank
            self.add(rows[:most], run)
            rows = rows[most:]


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """Random combinations of the rows of a Jacobian, the same ones modulo every prime.

    Every one of some rows (points ``order`` first) goes into two of ``size`` buckets with integer factors. The ``rows``
    and ``columns`` of the sketch that were a basis modulo one prime are tried first modulo the next.
    """

    net: Network
    points: tuple[FloatArray, SignArray]
    seed: int
    rows: IntArray | None = None
    columns: IntArray | None = None

    @property
    def size(self) -> int:
        return self.net.num_parameters

    def order(self) -> IntArray:
        return np.random.default_rng(self.seed).permutation(len(self.points[0]))

    def chunks(self, prime: int, most: int | None, run: Run) -> Iterator[Residues]:
        """The Jacobian modulo a prime, some points at a time, up to so many rows."""
        X, signs = self.points
        order = self.order()
        if most is not None:
            order = order[: -(-most // self.net.out_size)]
        ring = ModularAlgebra(prime)
        step = max(1, CHUNK // (self.size * self.net.out_size))
        for start in range(0, len(order), step):
            run.step(start, len(order), "points of the Jacobian")
            part = order[start : start + step]
            yield rows_in_ring(self.net, X[part], ring, signs[part], run.quietly())

    def table(self, prime: int, run: Run) -> Residues:
        """The sketch modulo a prime: all buckets, or those that are known to matter."""
        kept = np.arange(self.size) if self.rows is None else self.rows
        place = np.full(self.size, -1)
        place[kept] = np.arange(len(kept))
        rng = np.random.default_rng(self.seed + 1)
        out = np.zeros((len(kept), self.size), np.uint64)
        for rows in self.chunks(prime, SKETCHED * self.size, run):
            places = place[rng.integers(0, self.size, (len(rows), 2))]
            scatter_mod(out, rows, places, rng.integers(1, 1 << 20, (len(rows), 2)), prime)
        return out


def streamed_rank(sketch: Sketch, prime: int, upper: int, run: Run = ENDLESS) -> tuple[int, Sketch]:
    """Rank of a Jacobian modulo a prime, a chunk of points at a time, and what to try first modulo the next prime.

    A sketch is eliminated once, and a few random vectors of its kernel are multiplied with every row: those that are
    not annihilated are added. It ends when the proven ``upper`` bound is met, and is too small with probability at most
    :func:`streaming_loss`.
    """
    rng = np.random.default_rng(sketch.seed + 2)
    table = sketch.table(prime, run)
    if sketch.rows is not None and sketch.columns is not None:
        probes = _probes(table, sketch.columns, prime, rng, run)
        if probes is not None and not any(
            _nonzero(rows, probes, prime).any() for rows in sketch.chunks(prime, None, run)
        ):
            return len(sketch.rows), sketch
        table = (again := replace(sketch, rows=None, columns=None)).table(prime, run)
        sketch = again
    space = RowSpace(sketch.size, prime, rng)
    found = space.add(table, run)
    known = replace(sketch, rows=np.sort(found.order[: found.rank]), columns=np.array(found.pivots, dtype=np.int64))
    if space.rank < upper:
        for rows in sketch.chunks(prime, None, run):
            space.extend(rows, run)
            if space.rank == upper:
                break
    return space.rank, known if space.rank == found.rank else sketch


def _probes(table: Residues, columns: IntArray, prime: int, rng: np.random.Generator, run: Run) -> Residues | None:
    """Random vectors of the kernel of independent rows, given columns on which they are expected to be independent."""
    free = np.setdiff1d(np.arange(table.shape[1]), columns)
    mix = rng.integers(0, prime, (len(free), min(PROBES, len(free))), dtype=np.uint64)
    mixed = matmul_mod(np.ascontiguousarray(table[:, free]), mix, prime)
    found = echelon_mod(np.concatenate([table[:, columns], mixed], axis=1), prime, run)
    if found.rank < len(columns) or found.pivots[-1:] >= (len(columns),):
        return None
    kernel = found.kernel()
    result = np.zeros((len(kernel), table.shape[1]), np.uint64)
    result[:, columns] = kernel[:, : len(columns)]
    result[:, free] = matmul_mod(np.ascontiguousarray(kernel[:, len(columns) :]), np.ascontiguousarray(mix.T), prime)
    return result


def _nonzero(rows: Residues, probes: Residues, prime: int) -> BoolArray:
    """Which rows do not annihilate the probes."""
    found: BoolArray = (matmul_mod(rows, np.ascontiguousarray(probes.T), prime) != 0).any(axis=1)
    return found


def streaming_loss(rows: int) -> Callable[[int], float]:
    """The probability that one of so many rows was taken for one inside by all probes, as a function of the prime."""
    return lambda prime: min(1.0, rows * float(prime) ** -PROBES)
