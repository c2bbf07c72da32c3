"""The order of the neurons in the canonical form: a sort, and where rows are equal a canonical labelling.

A chain is a layered graph with weights; inputs and outputs have names, hidden neurons have none. Classes of neurons are
refined by what they read and what reads them. What this cannot tell apart is individualised: each neuron of the first
class with several takes the front in turn, and of all orders that come out so the one with the least table is taken
(McKay & Piperno, Practical graph isomorphism II, J. Symbolic Computation 60, 2014). Two orders with one table are a
symmetry of the network, and symmetries save the work on neurons that they exchange. The search is exponential in the
worst case, so it has a budget and says when that ended.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fiberscope.numerics.floats import FloatArray, IntArray

WORK = 60_000_000
"""Numbers that are looked at in all before a search for the canonical order ends."""

_DEEP = 300
"""Neurons that are individualised one after the other before the search gives up."""

Key = tuple[int, float, bytes, float, bytes]
Neuron = tuple[int, int]
"""Hidden layer and neuron, both from 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Labelling:
    """For every hidden layer the neurons in order; ``canonical`` says whether all copies get the same table."""

    orders: list[IntArray]
    canonical: bool


def canonical_orders(rows: Sequence[FloatArray], slopes: Sequence[FloatArray]) -> list[IntArray]:
    """The orders of :func:`labelling` whether or not the budget was enough."""
    return labelling(rows, slopes).orders


def labelling(rows: Sequence[FloatArray], slopes: Sequence[FloatArray], work: int = WORK) -> Labelling:
    """The neurons of every hidden layer in canonical order; ``rows`` are the normalised ``(W_l | b_l)``."""
    orders: list[IntArray] = []
    for layer, slope in enumerate(slopes):
        columns = np.append(orders[-1], rows[layer].shape[1] - 1) if layer else np.arange(rows[layer].shape[1])
        order = _lexicographic(rows[layer], columns, slope)
        if order is None:
            return _Search([table + 0.0 for table in rows], slopes, work).run()
        orders.append(order)
    return Labelling(orders, True)


def _lexicographic(table: FloatArray, columns: IntArray, slope: FloatArray) -> IntArray | None:
    """Rows in lexicographic order of the columns, then of the slopes; None if two are equal.

    Most are told apart by the first column, and only the others are compared on.
    """
    order = np.argsort(table[:, columns[0]], kind="stable")
    first = table[order, columns[0]]
    cuts = [0, *(np.flatnonzero(first[1:] != first[:-1]) + 1).tolist(), len(order)]
    for start, stop in itertools.pairwise(cuts):
        if stop - start > 1:
            block = order[start:stop]
            rows = np.column_stack([table[np.ix_(block, columns)], slope[block]])
            turn = np.lexsort(rows[:, ::-1].T)
            if (rows[turn[1:]] == rows[turn[:-1]]).all(axis=1).any():
                return None
            order[start:stop] = block[turn]
    return order


@dataclass(slots=True)
class _Leaf:
    """An order of all neurons, the table that it gives, and how the search came there."""

    traces: list[bytes]
    table: bytes
    orders: list[IntArray]
    path: list[Neuron]


@dataclass(slots=True)
class _Search:
    """A tree: in each node the neurons of one class are individualised in turn."""

    rows: list[FloatArray]
    slopes: Sequence[FloatArray]
    work: int
    best: _Leaf | None = None
    symmetries: list[list[IntArray]] = field(default_factory=list)

    def run(self) -> Labelling:
        complete = self._visit(self._start(), [], []) is not None
        assert self.best is not None  # the first way down is always gone
        return Labelling(self.best.orders, complete)

    def _start(self) -> list[IntArray]:
        """Neurons that read the same and are read in the same way are counted: any order of them is the same table."""
        classes = []
        for layer, slopes in enumerate(self.slopes):
            met: dict[bytes, int] = {}
            numbers = np.zeros(len(slopes), dtype=np.int64)
            table = np.column_stack([self.rows[layer], slopes, self.rows[layer + 1][:, :-1].T])
            for i, row in enumerate(table):
                numbers[i] = met.get(row.tobytes(), 0)
                met[row.tobytes()] = numbers[i] + 1
            classes.append(numbers)
        return classes

    def _visit(self, classes: list[IntArray], path: list[Neuron], traces: list[bytes]) -> int | None:
        """Look at all orders below a node. Returns the depth to which the search goes back, None without budget."""
        classes, trace = self._refined(classes)
        traces, depth = [*traces, trace], len(path)
        if self.best is not None and traces > self.best.traces[: depth + 1]:
            return depth
        tied = _first_tie(classes)
        if tied is None:
            return self._leaf(_Leaf(traces, self._table(classes), [np.argsort(c) for c in classes], path))
        if depth >= _DEEP:
            self._hurry(classes, path, traces)
            return None
        layer, members = tied
        done: list[int] = []
        for i in members:
            if any(self._exchanged(layer, i, j, path) for j in done):
                continue
            if done and self.work <= 0:
                return None
            done.append(i)
            back = self._visit(_split(classes, layer, i), [*path, (layer, i)], traces)
            if back is None or back < depth:
                return back
        return depth

    def _hurry(self, classes: list[IntArray], path: list[Neuron], traces: list[bytes]) -> None:
        """One order below a node that is too deep to look at all of them."""
        while (tied := _first_tie(classes)) is not None:
            classes, _ = self._refined(_split(classes, tied[0], tied[1][0]))
        if self.best is None:
            self.best = _Leaf(traces, self._table(classes), [np.argsort(c) for c in classes], path)

    def _refined(self, classes: list[IntArray]) -> tuple[list[IntArray], bytes]:
        """Classes that no longer split, numbered in the order of what tells them apart; and a hash of that."""
        classes, count = list(classes), -1
        while True:
            seal = hashlib.blake2b()
            for layer in (*range(len(classes)), *range(len(classes) - 2, -1, -1)):
                keys = self._keys(classes, layer)
                rank = {key: place for place, key in enumerate(sorted(set(keys)))}
                classes[layer] = np.array([rank[key] for key in keys], dtype=np.int64)
                seal.update(np.bincount(classes[layer]).tobytes())
                seal.update(b"".join(key[2] + key[4] for key in rank))
            now = sum(len(np.unique(c)) for c in classes)
            if now == count:
                return classes, seal.digest()
            count = now

    def _keys(self, classes: list[IntArray], layer: int) -> list[Key]:
        rows, readers = self.rows[layer], self.rows[layer + 1][:, :-1].T
        before = None if layer == 0 else classes[layer - 1]
        after = None if layer + 1 == len(classes) else classes[layer + 1]
        self.work -= rows.size + readers.size
        reads, read = _signatures(rows[:, :-1], before), _signatures(readers, after)
        return [
            (int(c), float(slope), a, float(bias), b)
            for c, slope, a, bias, b in zip(classes[layer], self.slopes[layer], reads, rows[:, -1], read, strict=True)
        ]

    def _leaf(self, leaf: _Leaf) -> int:
        """Keep the least; an equal one is a symmetry, and what lies between the two ways down looks the same."""
        best = self.best
        if best is None or (leaf.traces, leaf.table) < (best.traces, best.table):
            self.best = leaf
        elif (leaf.traces, leaf.table) == (best.traces, best.table):
            moved = []
            for mine, theirs in zip(best.orders, leaf.orders, strict=True):
                images = np.empty(len(mine), dtype=np.int64)
                images[mine] = theirs
                moved.append(images)
            self.symmetries.append(moved)
            return next(k for k, (a, b) in enumerate(zip(best.path, leaf.path, strict=True)) if a != b)
        return len(leaf.path)

    def _exchanged(self, layer: int, i: int, j: int, path: list[Neuron]) -> bool:
        """Whether known symmetries that keep the neurons of the path take ``j`` to ``i``."""
        usable = [g[layer] for g in self.symmetries if all(g[k][n] == n for k, n in path)]
        reached, new = {j}, [j]
        while new and i not in reached:
            new = [int(g[n]) for g in usable for n in new if int(g[n]) not in reached]
            reached.update(new)
        return i in reached

    def _table(self, classes: list[IntArray]) -> bytes:
        """All numbers in the order of the classes, which are all different."""
        orders = [np.argsort(c) for c in classes]
        parts = []
        for layer, rows in enumerate(self.rows):
            table = rows if layer == 0 else np.column_stack([rows[:, :-1][:, orders[layer - 1]], rows[:, -1]])
            parts.append((table if layer == len(orders) else table[orders[layer]]).tobytes())
        return b"".join(parts)


def _first_tie(classes: list[IntArray]) -> tuple[int, list[int]] | None:
    """The first layer and class with several neurons, and these."""
    for layer, own in enumerate(classes):
        values, counts = np.unique(own, return_counts=True)
        if (counts > 1).any():
            return layer, np.flatnonzero(own == values[counts > 1][0]).tolist()
    return None


def _split(classes: list[IntArray], layer: int, i: int) -> list[IntArray]:
    """One neuron goes in front of its class: its number drops by one half, in twice as large numbers."""
    found = [2 * c if k == layer else c for k, c in enumerate(classes)]
    found[layer][i] -= 1
    return found


def _signatures(values: FloatArray, classes: IntArray | None) -> list[bytes]:
    """The values of every row in the order of their classes, sorted within each, where neurons have no order."""
    if classes is not None:
        order = np.argsort(classes, kind="stable")
        values, own = values[:, order], classes[order]
        start = 0
        for stop in [*(np.flatnonzero(np.diff(own)) + 1).tolist(), len(own)]:
            values[:, start:stop].sort(axis=1)
            start = stop
    return [row.tobytes() for row in values]
