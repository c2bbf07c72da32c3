"""Who splits the roots of a block: one worker, or several that share out the roots of one dimension.

Roots of one dimension do not touch each other's parts, only those of lower dimension. Every worker writes to its own
stretch of the same arrays; then the stretches are pushed together, in the order of the roots. So the result is the
same, bit by bit, as that of one worker.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.geometry.engines.lattice import kernels
from fiberscope.geometry.engines.lattice.tree import Tree
from fiberscope.geometry.engines.limits import PATIENCE
from fiberscope.numerics.floats import FloatArray, IntArray

if TYPE_CHECKING:
    from fiberscope.geometry.engines.lattice.layers import LayerStep, LayerWalk

_PAUSE = 1 << 20
"""New cells after which a single worker looks for an interruption."""

_WORTH_THREADS = 1 << 17
"""Roots of fewer expected parts than that, all together, are not shared out: threads would cost more than they help."""

_SPARE = (1 << 13, 1 << 16, 1 << 10)
"""Room for new nodes, entries and rows to begin with."""

_USED = [kernels.NODES, kernels.ENTRIES, kernels.ROWS, kernels.TOP]


class Worker:
    """Roots ``first, ..., last - 1``, and where their parts go: nodes, entries and rows from ``begin`` to ``end``."""

    def __init__(self, first: int, last: int, dimension: int, begin: tuple[int, ...], end: tuple[int, ...]) -> None:
        self.at = np.full(kernels.PLACES, -1, dtype=np.int64)
        self.at[kernels.ROOT], self.at[kernels.LAST] = first, last
        self.at[_USED] = *begin, 0
        self.at[kernels.NODE_END : kernels.ROW_END + 1] = end
        self.begin = begin
        self.heads = np.full((dimension + 1, kernels.BLOCK), kernels.END, dtype=np.uint32)
        self.decided: list[tuple[int, int]] = []  # rows, and how many signs were decided exactly there
        self.result = kernels.PAUSED

    @property
    def done(self) -> bool:
        return self.result == kernels.DONE

    def undo(self) -> None:
        """Begin the root again."""
        kernels.undo(self.at, self.heads)
        self.decided = [(row, number) for row, number in self.decided if row < self.at[kernels.ROWS]]

    @property
    def next_root(self) -> int:
        return int(self.at[kernels.ROOT])


class Splitter:
    """The roots of one block and the neurons that split them."""

    def __init__(self, walk: LayerWalk, tree: Tree, dimension: int, block: IntArray, layer: LayerStep) -> None:
        self.walk, self.tree, self.dimension, self.block, self.layer = walk, tree, dimension, block, layer
        self.where = (layer.begin, layer.end, layer.slices[layer.source].start)
        self.stop = np.zeros(1, dtype=np.bool_)
        self.lock = threading.Lock()
        self.new_regions = 0
        walk.reserve_rows(walk.num_vertices + _SPARE[2])
        tree.reserve(tree.count + _SPARE[0], tree.used + _SPARE[1])

    def split(self, roots: Any, threads: int) -> bool:
        """Split all roots, which are sorted by dimension; False if interrupted."""
        if threads == 1:
            return self._alone(roots, 0, len(roots))
        ends = np.searchsorted(self.tree.dim[roots], np.arange(self.dimension + 1), side="right").tolist()
        return all(
            self._shared(roots, first, last, threads)
            if last - first >= threads and self._parts(roots, first, last)[-1] >= _WORTH_THREADS
            else self._alone(roots, first, last)
            for first, last in zip([0, *ends], ends, strict=False)
        )

    def _parts(self, roots: Any, first: int, last: int) -> FloatArray:
        """About how many parts roots ``first, ...`` of one dimension will have, summed up: by the neurons across."""
        own = self.tree.masks[roots[first:last]]
        crossings = np.bitwise_count(own[:, 0] & own[:, 1]).astype(np.float64)
        return np.cumsum(crossings ** self.tree.dim[roots[first]])

    def _used(self) -> tuple[int, int, int]:
        return self.tree.count, self.tree.used, self.walk.num_vertices

    def _room(self) -> tuple[int, int, int]:
        return *self.tree.room, self.walk.room

    def _grow(self) -> None:
        self.walk.reserve_rows(2 * self.walk.room)
        self.tree.reserve(*(2 * size for size in self.tree.room))

    def _commit(self, worker: Worker) -> None:
        """What the worker has made is part of the tree, which it continues."""
        self.tree.count, self.tree.used, self.walk.num_vertices, more = worker.at[_USED].tolist()
        self.new_regions += more
        worker.at[kernels.TOP] = 0
        self.walk.exact_decisions += sum(number for _, number in worker.decided)
        worker.decided = []

    def _advance(self, roots: Any, worker: Worker, patience: float = np.inf) -> None:
        """Work until all is done, arrays are full, or somebody asks for a pause; or after so many seconds, if exact
        decisions took them.
        """
        walk, at = self.walk, worker.at
        soon = monotonic() + patience
        while True:
            worker.result = kernels.split_roots(
                roots, at, worker.heads, self.stop, self.block, self.where, *self.tree.arrays,
                *walk.vertices,
            )  # fmt: skip
            if worker.result != kernels.OPEN:
                break
            first, last = int(at[kernels.FIRST]), int(at[kernels.ROWS])
            unsure = (walk.signs[first:last, : self.layer.end] == kernels.UNKNOWN).any(axis=1)
            with self.lock:
                worker.decided.append((first, walk.decide_signs(first + np.flatnonzero(unsure), self.layer)))
            if self.stop[0] or monotonic() > soon:
                worker.result = kernels.PAUSED
                break

    def _alone(self, roots: Any, first: int, last: int) -> bool:
        worker = Worker(first, last, self.dimension, self._used(), self._room())
        while not worker.done:
            worker.at[kernels.TICK] = worker.at[kernels.NODES] + _PAUSE
            self._advance(roots, worker, PATIENCE)
            full = worker.result == kernels.FULL
            if full:
                worker.undo()
            if full or worker.done:
                self._commit(worker)
            if full:
                self._grow()
                worker.at[kernels.NODE_END : kernels.ROW_END + 1] = self._room()
            elif not worker.done and self.walk.paused():
                return False
        return True

    def _shared(self, roots: Any, first: int, last: int, threads: int) -> bool:
        """As long as a worker's stretch is full, those behind it are given up, and all begin where it ended."""
        with ThreadPoolExecutor(threads) as pool:
            while first < last:
                workers = self._workers(roots, first, last, threads)
                tasks = [pool.submit(self._advance, roots, worker) for worker in workers]
                while wait(tasks, timeout=0.2).not_done:
                    if not self.stop[0] and self.walk.paused():
                        self.stop[0] = True
                for task in tasks:
                    task.result()
                if self.stop[0]:
                    return False
                for worker in workers:
                    if not worker.done:
                        worker.undo()
                    self._push(roots, first, worker)
                    first = worker.next_root
                    if not worker.done:
                        break
                if first < last:
                    self.tree.masks[roots[first:last], 3] = 0
                    self.walk.exact.forget_from(self.walk.num_vertices)
                    self._grow()
        return True

    def _workers(self, roots: Any, first: int, last: int, threads: int) -> list[Worker]:
        """Stretches of equal length, and roots by the number of neurons that cross them."""
        weight = self._parts(roots, first, last)
        cuts = first + np.searchsorted(weight, weight[-1] * np.arange(1, threads) / threads)
        edges = [first, *cuts.tolist(), last]
        used, room = np.array(self._used()), np.array(self._room())
        bounds = [tuple((used + (room - used) * i // threads).tolist()) for i in range(threads + 1)]
        made = []
        for i in range(threads):
            nodes, *others = bounds[i + 1]
            worker = Worker(edges[i], edges[i + 1], self.dimension, bounds[i], (nodes - 1, *others))
            worker.at[kernels.TICK] = np.iinfo(np.int64).max
            made.append(worker)
        return made

    def _push(self, roots: Any, first: int, worker: Worker) -> None:
        """Push what a worker has made down to the end of what there is."""
        tree, walk = self.tree, self.walk
        count, used, rows = self._used()
        node, _, row = worker.begin
        last_node, last_row = int(worker.at[kernels.NODES]), int(worker.at[kernels.ROWS])
        if node > count and last_node > node:
            tree.start[count] = used
            kernels.close_gap(node, last_node, count, row, row - rows, tree.arrays)
            tree.masks[roots[first : worker.next_root], 3] -= np.uint32(node - count)
            for array in walk.vertices:
                array[rows : rows + last_row - row] = array[row:last_row]
            parents = walk.parents[rows : rows + last_row - row, :2]
            parents[parents >= row] -= row - rows
            walk.exact.renumber(row, row - rows)
        worker.at[_USED[:3]] -= np.subtract(worker.begin, (count, used, rows))
        self._commit(worker)
