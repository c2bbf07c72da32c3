"""Who splits the cells of a complex by a block: calls of kernels, with room for what they make, and exact signs."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.errors import TooLargeError
from fiberscope.geometry.engines.lattice import kernels, splitting
from fiberscope.geometry.engines.lattice.levels import MOST_CELLS, Levels
from fiberscope.geometry.engines.limits import PATIENCE
from fiberscope.numerics.arrays import grown, pointers
from fiberscope.numerics.floats import IntArray

if TYPE_CHECKING:
    from fiberscope.geometry.engines.lattice.layers import LayerStep, LayerWalk

_PAUSE = 1 << 19
"""Splits after which it is looked for an interruption."""

_SPARE = (1 << 13, 1 << 10, 1 << 12, 1 << 14, 1 << 12)
"""Room to begin with: for new nodes, cells and entries; rows; records; entries of their lists; and specials."""

_USED = slice(splitting.NODES, splitting.NODES + splitting.ENDS)


class Splitter:
    """What is known while a block is at work, see :mod:`.splitting`; kept from block to block for its memory."""

    def __init__(self, dimension: int) -> None:
        self.heads = np.full((dimension + 1, splitting.BLOCK), -1, dtype=np.int64)
        self.level = np.zeros((7, dimension + 2), dtype=np.int64)
        self.at = np.zeros(splitting.PLACES, dtype=np.int64)
        self.nodes, self.where = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint32)
        self.specials = np.zeros((_SPARE[4], 3), dtype=np.uint32)
        self.records = np.zeros((_SPARE[2], 4), dtype=np.int32)
        self.lists = np.zeros(_SPARE[3], dtype=np.int32)

    def split(
        self, walk: LayerWalk, old: Levels, new: Levels, block: IntArray, layer: LayerStep, carriers: bool
    ) -> bool:
        """Make the ``new`` complex from the old one; False if interrupted. ``carriers`` of edges if they are wanted."""
        self.walk, self.layer, self.block, self.carriers = walk, layer, block, carriers
        self.decided: list[tuple[int, int]] = []  # rows, and how many signs were decided exactly there
        self.old, self.new = old, new
        new.clear()
        new.reserve(old.made + _SPARE[0], old.used + _SPARE[0], carriers)
        walk.reserve_rows(walk.num_vertices + _SPARE[1])
        first = pointers(np.append(walk.num_vertices, old.made[1:]))
        self.level[splitting.CELLS] = first
        self.at[splitting.NODES], self.at[splitting.ROWS] = first[-1], walk.num_vertices
        self._reserve_nodes(int(first[-1]) + _SPARE[0])
        self.at[splitting.SPECIALS] = self.at[splitting.WORK] = 0
        self.at[splitting.TICK] = _PAUSE
        splitting.vertex_nodes(walk.num_vertices, block, self.nodes, walk.signs)
        dimensions = range(1, old.dimension + 1)
        roots = [self._begin(d) for d in dimensions]
        done = all(self._dimension(d, roots[d - 1]) for d in dimensions)
        self._forget_specials(0)
        if done:
            self._tell_made()
            walk.num_vertices = int(self.at[splitting.ROWS])
            walk.exact_decisions += sum(number for _, number in self.decided)
        del self.walk, self.old, self.new  # or memory is kept that nobody needs
        return done

    def _begin(self, d: int) -> Any:
        """The old cells of one dimension that are crossed; the others go to the new complex."""
        old, new, specials = self.old, self.new, int(self.at[splitting.SPECIALS])
        roots = np.empty(int(old.made[d]), dtype=np.int32)
        while True:
            self._tell_room()
            count = splitting.begin(d, self.at, self.level, old.ptr[d], old.ind[d], old.carrier, new.ptr[d], new.ind[d],
                                    new.carrier, *self._nodes, self.lists, roots)  # fmt: skip
            if count >= 0:
                return roots[:count].copy()
            self._forget_specials(specials)
            self.specials = grown(self.specials, 2 * len(self.specials))
            self.lists = grown(self.lists, 2 * len(self.lists))

    @property
    def _nodes(self) -> tuple[Any, ...]:
        return self.nodes, self.where, self.specials

    def _forget_specials(self, count: int) -> None:
        """All but the first ones."""
        self.where[self.specials[count : self.at[splitting.SPECIALS], 0]] = 0
        self.at[splitting.SPECIALS] = count

    def _dimension(self, d: int, roots: Any) -> bool:
        """Split all roots of one dimension; False if interrupted."""
        at, begin = self.at, int(self.at[splitting.NODES])
        at[splitting.ROOT], at[splitting.LAST], at[splitting.BIT], at[splitting.FIRST] = 0, len(roots), -1, -1
        result = splitting.PAUSED
        while result != splitting.DONE:
            self._tell_room()
            result = self._advance(d, roots)
            if result == splitting.PAUSED:
                at[splitting.TICK] = at[splitting.WORK] + _PAUSE
                if self.walk.paused():
                    splitting.undo(d, at, self.level, self.heads, self.where, self.specials)
                    return False
            if result == splitting.FULL:
                self._make_room(d)
        first, oldest = self.level[splitting.CELLS], int(self.level[splitting.CELLS, -1])
        if self.at[splitting.SPECIALS] == 0 and begin > oldest:  # cells inside of lower roots are not met any more
            splitting.slide(self.nodes, begin, int(at[splitting.NODES]), oldest, first[d] + roots)
            at[splitting.NODES] -= begin - oldest
            if d == self.new.dimension - 1 and not self.carriers:  # top cells leave nothing behind, nor does this layer
                used = int(at[splitting.NODES])
                self.nodes.resize(min(len(self.nodes), used + used // 8 + _SPARE[0]), refcheck=False)
        return True

    def _advance(self, d: int, roots: Any) -> int:
        """Work until all is done, arrays are full, or it is time for a pause; see :data:`.splitting.DONE`."""
        walk, at, old, new = self.walk, self.at, self.old, self.new
        soon = monotonic() + PATIENCE
        while True:
            result = int(splitting.split_roots(
                d, roots, at, self.level, self.heads, self.block, self.layer.columns, old.ptr[d], old.ind[d],
                old.carrier, tuple(new.ptr), tuple(new.ind), new.carrier, *self._nodes, self.records, self.lists,
                *walk.vertices,
            ))  # fmt: skip
            if result != splitting.OPEN:
                return result
            first, last = int(at[splitting.FIRST]), int(at[splitting.ROWS])
            unsure = (walk.signs[first:last, : self.layer.end] == kernels.UNKNOWN).any(axis=1)
            self.decided.append((first, walk.decide_signs(first + np.flatnonzero(unsure), self.layer)))
            if monotonic() > soon:
                return splitting.PAUSED

    def _tell_room(self) -> None:
        """Tell the kernels how much room there is."""
        sizes = len(self.nodes), self.walk.room, len(self.records), len(self.lists), len(self.specials)
        self.at[splitting.NODES + splitting.ENDS : splitting.NODES + 2 * splitting.ENDS] = sizes
        self.level[splitting.CELL_END, :-1], self.level[splitting.ENTRY_END, :-1] = self.new.room

    def _tell_made(self) -> None:
        """Take over what kernels have made."""
        self.new.made[:], self.new.used[:] = self.level[splitting.MADE, :-1], self.level[splitting.USED, :-1]

    def _make_room(self, d: int) -> None:
        """More room for what is nearly full; the root is begun again."""
        at, new = self.at, self.new
        nodes, rows, records, lists, specials = (used + used // 8 for used in at[_USED].tolist())
        size = 3 * (int(at[splitting.NEED]) + 4)
        self._tell_made()
        cells, entries = new.made + new.made // 8 + 8, new.used + new.used // 8 + size
        splitting.undo(d, at, self.level, self.heads, self.where, self.specials)
        self._tell_made()
        self.decided = [(row, number) for row, number in self.decided if row < at[splitting.ROWS]]
        self.walk.num_vertices = int(at[splitting.ROWS])
        self.walk.reserve_rows(rows + 1)
        self._reserve_nodes(nodes + 3)
        new.reserve(cells, entries, self.carriers)
        if records + 3 > len(self.records):
            self.records = grown(self.records, records + 3)
        if lists + size > len(self.lists):
            self.lists = grown(self.lists, lists + size)
        if specials + splitting.BLOCK * size > len(self.specials):
            self.specials = grown(self.specials, specials + splitting.BLOCK * size)

    def _reserve_nodes(self, count: int) -> None:
        if count > MOST_CELLS:
            raise TooLargeError(f"a complex of more than {MOST_CELLS} cells")
        if count > len(self.nodes):
            self.nodes = grown(self.nodes[: self.at[splitting.NODES]], count)
            where, self.where = self.where, np.zeros(len(self.nodes), dtype=np.uint32)
            if self.at[splitting.SPECIALS]:
                kept = min(len(where), len(self.where))  # nodes may have been given back, and are fewer now
                self.where[:kept] = where[:kept]
