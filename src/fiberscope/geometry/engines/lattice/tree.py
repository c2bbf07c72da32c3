"""The cells of the lattice engine, of every dimension, and what they were split from: arrays that grow.

``start (nodes + 1,)``, ``pool``, ``dim (nodes,)`` and ``masks (nodes, 4)`` are longer than what is used: ``count``
nodes and ``used`` entries of the pool count, the rest is room. All numbers are 32 bits, half the memory of 64: a
complex beyond them is refused. Invariant: a node's facets have smaller numbers than it has, so one pass in order
suffices for whatever goes from facets to cells, and cutting back to a number leaves a whole tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.errors import TooLargeError
from fiberscope.geometry.cells import Incidence
from fiberscope.geometry.engines.lattice import kernels
from fiberscope.numerics.arrays import grown
from fiberscope.numerics.floats import IntArray

_MOST_CELLS, _MOST_ENTRIES = (1 << 31) - 8, (1 << 32) - 1


@dataclass(slots=True)
class Tree:
    """Nodes as :mod:`fiberscope.geometry.engines.lattice.kernels` describes them."""

    start: Any
    pool: Any
    dim: Any
    masks: Any
    count: int
    used: int

    @classmethod
    def of(cls, vertices: int, boundary: Sequence[Sequence[Sequence[int]]]) -> Tree:
        """The cells of a beginning, all of them whole; ``boundary[k - 1]`` lists the facets of the k-cells."""
        lists: list[list[int]] = [[row] for row in range(vertices)]
        sizes = [len(lists), *(len(cells) for cells in boundary)]
        before = 0
        for k, cells in enumerate(boundary):
            lists += [[before + f for f in facets] + ([0, 0] if k == 0 else []) for facets in cells]
            before += sizes[k]
        begin = np.zeros(len(lists) + 1, dtype=np.uint32)
        begin[1:] = np.cumsum([len(entries) for entries in lists])
        pool = np.array([x for entries in lists for x in entries], dtype=np.uint32)
        dim = np.repeat(np.arange(len(sizes), dtype=np.int8), sizes)
        return cls(begin, pool, dim, np.zeros((len(lists), 4), dtype=np.uint32), len(lists), len(pool))

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self.start, self.pool, self.dim, self.masks

    @property
    def room(self) -> tuple[int, int]:
        """How many nodes and entries fit."""
        return min(len(self.start) - 1, len(self.dim), len(self.masks)), min(len(self.pool), _MOST_ENTRIES)

    def reserve(self, count: int, used: int) -> None:
        """Room for so many nodes and entries in all."""
        if count > _MOST_CELLS or used > _MOST_ENTRIES:
            raise TooLargeError(f"a complex of more than {min(count, _MOST_CELLS)} cells")
        if count > self.room[0]:
            self.start = grown(self.start[: self.count + 1], count + 1)
            self.dim, self.masks = grown(self.dim[: self.count], count), grown(self.masks[: self.count], count)
        if used > len(self.pool):
            self.pool = grown(self.pool[: self.used], used)

    def cut(self, count: int) -> None:
        """Forget nodes ``count, ...``."""
        self.count, self.used = count, int(self.start[count])

    def crossed(self, signs: Any, columns: IntArray) -> Any:
        """Whole cells that a neuron of the block crosses, sorted by dimension; sets the masks of all."""
        marks = np.empty(self.count, dtype=np.bool_)
        kernels.block_masks(self.count, *self.arrays, signs, columns, marks)
        found = np.flatnonzero(marks).astype(np.uint32)
        return found[np.argsort(self.dim[found], kind="stable")]

    def reset_carriers(self) -> None:
        """Every edge is its own carrier."""
        place = self.start[np.flatnonzero(self.dim[: self.count] == 1)].astype(np.int64)
        for end in (0, 1):
            self.pool[place + 2 + end] = self.pool[self.start[self.pool[place + end]]]

    def boundary(self, dimension: int) -> tuple[tuple[Incidence, ...], IntArray]:
        """Facets of the whole cells in dimensions 1, 2, ..., numbered anew, and the rows of the whole vertices."""
        sizes = np.zeros((dimension + 1, 2), dtype=np.int64)
        whole = self.masks[: self.count, 3] == 0
        for d in range(dimension + 1):
            found = np.flatnonzero(whole & (self.dim[: self.count] == d))
            self.masks[found, 0] = np.arange(len(found))
            entries = int((self.start[found + 1] - self.start[found]).sum(dtype=np.int64))
            sizes[d] = len(found) + 1, 2 * len(found) if d == 1 else entries
        at = np.cumsum(sizes, axis=0) - sizes
        ends = at + sizes
        indptr, indices = np.zeros(ends[-1, 0], dtype=np.int64), np.empty(ends[-1, 1], dtype=np.int32)
        begin = at.copy()
        kernels.write_cells(self.count, *self.arrays, at, indptr, indices)
        parts = [
            Incidence(indptr[begin[k, 0] : ends[k, 0]], indices[begin[k, 1] : ends[k, 1]])  # half of 64-bit indices
            for k in range(dimension + 1)
        ]
        return tuple(parts[1:]), parts[0].indices
