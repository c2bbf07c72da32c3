"""The whole cells of the lattice engine, of every dimension, in arrays that grow and become the answer.

``made (n + 1,)`` cells of every dimension and ``used (n + 1,)`` entries of their lists count; those of vertices are not
stored. Of cells of dimension d, ``ptr[d]`` are the ends of their lists, and ``ind[d]`` the lists: the facets of a cell,
numbered within their dimension. What lies behind is room. ``carrier``, if it is not empty, has for every edge the two
vertices of the edge that it was cut from in this layer. Numbers have 32 bits where that is enough; more than ``2^31``
cells of one dimension are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiberscope.errors import TooLargeError
from fiberscope.geometry.cells import Incidence
from fiberscope.geometry.engines.limits import MOST_FACES
from fiberscope.numerics.floats import IntArray

MOST_CELLS = (1 << 31) - 8

_NARROW = (1 << 31) - 1
"""Entries of one dimension above which their places have 64 bits."""

_ROOM = 1 << 26
"""Room is made for up to so many at once: untouched it costs nothing, but to move costs time and memory."""

_NOTHING = np.zeros(0, dtype=np.int32)


class Levels:
    """Whole cells and their facets."""

    def __init__(self, dimension: int) -> None:
        if dimension > MOST_FACES:
            raise TooLargeError(f"all faces: expected at most {MOST_FACES} dimensions, got {dimension}")
        self.made, self.used = (np.zeros(dimension + 1, dtype=np.int64) for _ in range(2))
        self.ptr: list[Any] = [_NOTHING] * (MOST_FACES + 1)  # as many for all, or kernels would be compiled for each
        self.ind: list[Any] = [_NOTHING] * (MOST_FACES + 1)
        self.carrier: Any = _NOTHING

    @classmethod
    def of(cls, boundary: Sequence[Sequence[Sequence[int]]]) -> Levels:
        """The cells of a beginning; ``boundary[k - 1]`` lists the facets of the k-cells."""
        levels = cls(len(boundary))
        sizes = [[], *([len(facets) for facets in cells] for cells in boundary)]
        made, used = (np.array([measure(own) for own in sizes]) for measure in (len, sum))
        levels.reserve(made, used)
        levels.made, levels.used = made, used
        for d, cells in enumerate(boundary, start=1):
            levels.ptr[d][: len(cells) + 1] = np.cumsum([0, *sizes[d]])
            levels.ind[d][: used[d]] = [f for facets in cells for f in facets]
        return levels

    @property
    def dimension(self) -> int:
        return len(self.made) - 1

    @property
    def room(self) -> tuple[list[int], list[int]]:
        """How many cells and entries fit."""
        count, most = self.dimension + 1, _NARROW if self.ptr[0].dtype == np.int32 else np.inf
        return [len(ends) - 1 for ends in self.ptr[:count]], [int(min(len(x), most)) for x in self.ind[:count]]

    def clear(self) -> None:
        """No cells, and as much room as before."""
        self.made[:], self.used[:] = 0, 0
        self.carrier = self.carrier[:0]

    def reserve(self, cells: IntArray, entries: IntArray, carriers: bool = False) -> None:
        """Room for so many cells and entries of every dimension, and for the carriers of edges."""
        if int(cells.max()) > MOST_CELLS:
            raise TooLargeError(f"a complex of more than {MOST_CELLS} cells of one dimension")
        if int(entries.max()) > _NARROW and self.ptr[0].dtype == np.int32:
            self.ptr = [ends.astype(np.int64) for ends in self.ptr]
        for d in range(1, self.dimension + 1):
            if entries[d] > len(self.ind[d]):
                self.ind[d] = _roomy(self.ind[d][: self.used[d]], int(entries[d]))
            if cells[d] >= len(self.ptr[d]):
                self.ptr[d] = _roomy(self.ptr[d][: self.made[d] + 1], int(cells[d]) + 1)
        if carriers and len(self.carrier) < 2 * len(self.ptr[1]):
            larger = np.empty(2 * len(self.ptr[1]), dtype=np.int32)
            larger[: len(self.carrier)] = self.carrier
            self.carrier = larger

    def boundary(self) -> tuple[Incidence, ...]:
        """Facets of the cells in dimensions 1, 2, ...; the arrays are given away."""
        parts = []
        for d in range(1, self.dimension + 1):
            ptr, ind, self.ptr[d], self.ind[d] = self.ptr[d], self.ind[d], _NOTHING, _NOTHING
            ptr.resize(int(self.made[d]) + 1, refcheck=False)  # in place: what is not needed goes back
            ind.resize(int(self.used[d]), refcheck=False)
            parts.append(Incidence(ptr, ind))
        return tuple(parts)


def _roomy(array: Any, size: int) -> Any:
    """A larger array with the same beginning, and more room than asked for, so that one has to move seldom."""
    factor = 64
    while factor > 1 and factor * size > _ROOM:
        factor //= 2
    try:
        larger = np.empty(max(factor, 2) * size, dtype=array.dtype)
    except MemoryError:
        larger = np.empty(size, dtype=array.dtype)
    larger[: len(array)] = array
    return larger
