"""Who splits the roots of a block: calls of one kernel, with room for what it makes, and exact signs where it asks."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.geometry.engines.lattice import kernels
from fiberscope.geometry.engines.lattice.tree import Tree
from fiberscope.geometry.engines.limits import PATIENCE
from fiberscope.numerics.floats import IntArray

if TYPE_CHECKING:
    from fiberscope.geometry.engines.lattice.layers import LayerStep, LayerWalk

_PAUSE = 1 << 20
"""New cells after which it is looked for an interruption."""

_SPARE = (1 << 13, 1 << 16, 1 << 10)
"""Room for new nodes, entries and rows to begin with."""

_USED = [kernels.NODES, kernels.ENTRIES, kernels.ROWS, kernels.TOP]


class Splitter:
    """The roots of one block and the neurons that split them."""

    def __init__(self, walk: LayerWalk, tree: Tree, dimension: int, block: IntArray, layer: LayerStep) -> None:
        self.walk, self.tree, self.block, self.layer = walk, tree, block, layer
        self.where = (layer.begin, layer.end, layer.slices[layer.source].start)
        self.heads = np.full((dimension + 1, kernels.BLOCK), kernels.END, dtype=np.uint32)
        self.decided: list[tuple[int, int]] = []  # rows, and how many signs were decided exactly there
        self.new_regions = 0
        walk.reserve_rows(walk.num_vertices + _SPARE[2])
        tree.reserve(tree.count + _SPARE[0], tree.used + _SPARE[1])

    def split(self, roots: Any) -> bool:
        """Split all roots, which are sorted by dimension; False if interrupted."""
        at = np.full(kernels.PLACES, -1, dtype=np.int64)
        at[kernels.ROOT], at[kernels.LAST] = 0, len(roots)
        at[_USED] = self.tree.count, self.tree.used, self.walk.num_vertices, 0
        result = kernels.PAUSED
        while result != kernels.DONE:
            at[kernels.NODE_END : kernels.ROW_END + 1] = *self.tree.room, self.walk.room
            at[kernels.TICK] = at[kernels.NODES] + _PAUSE
            result = self._advance(roots, at)
            if result == kernels.PAUSED:
                if self.walk.paused():
                    return False
                continue
            if result == kernels.FULL:  # the root is begun again
                kernels.undo(at, self.heads)
                self.decided = [(row, number) for row, number in self.decided if row < at[kernels.ROWS]]
            self.tree.count, self.tree.used, self.walk.num_vertices, self.new_regions = at[_USED].tolist()
            if result == kernels.FULL:
                self.walk.reserve_rows(2 * self.walk.room)
                self.tree.reserve(*(2 * size for size in self.tree.room))
        self.walk.exact_decisions += sum(number for _, number in self.decided)
        return True

    def _advance(self, roots: Any, at: Any) -> int:
        """Work until all is done, arrays are full, or it is time for a pause; see :data:`.kernels.DONE`."""
        walk = self.walk
        soon = monotonic() + PATIENCE
        while True:
            result = int(kernels.split_roots(
                roots, at, self.heads, self.block, self.where, *self.tree.arrays, *walk.vertices
            ))  # fmt: skip
            if result != kernels.OPEN:
                return result
            first, last = int(at[kernels.FIRST]), int(at[kernels.ROWS])
            unsure = (walk.signs[first:last, : self.layer.end] == kernels.UNKNOWN).any(axis=1)
            self.decided.append((first, walk.decide_signs(first + np.flatnonzero(unsure), self.layer)))
            if monotonic() > soon:
                return kernels.PAUSED
