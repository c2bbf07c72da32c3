"""The order of the neurons in the canonical form: a sort, and where rows are equal a refinement of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiberscope.numerics.floats import FloatArray, IntArray


def canonical_orders(rows: Sequence[FloatArray], slopes: Sequence[FloatArray]) -> list[IntArray]:
    """For every hidden layer the neurons in canonical order; ``rows`` are the normalised ``(W_l | b_l)``."""
    orders: list[IntArray] = []
    for layer, slope in enumerate(slopes):
        table = rows[layer]
        if layer:
            table = np.column_stack([table[:, :-1][:, orders[-1]], table[:, -1]])
        table = np.column_stack([table, slope])
        order = _lexicographic(table)
        same = (table[order[1:]] == table[order[:-1]]).all(axis=1)
        if same.any():
            return _refined(rows, slopes)
        orders.append(order)
    return orders


def _lexicographic(table: FloatArray) -> IntArray:
    """Rows in lexicographic order; most are told apart by the first column, and only the others are compared on."""
    order = np.argsort(table[:, 0], kind="stable")
    first = table[order, 0]
    start = 0
    breaks = np.flatnonzero(first[1:] != first[:-1]) + 1
    for stop in [*breaks.tolist(), len(order)]:
        if stop - start > 1:
            block = order[start:stop]
            order[start:stop] = block[np.lexsort(table[block, :0:-1].T)]
        start = stop
    return order


def _refined(rows: Sequence[FloatArray], slopes: Sequence[FloatArray]) -> list[IntArray]:
    """Refine classes by what a neuron reads and what reads it; split what is left one neuron at a time."""
    classes = [np.zeros(len(s), dtype=np.int64) for s in slopes]
    while True:
        classes = _stable(rows, slopes, classes)
        tied = next((layer for layer, c in enumerate(classes) if len(np.unique(c)) < len(c)), None)
        if tied is None:
            return [np.argsort(c) for c in classes]
        values, counts = np.unique(classes[tied], return_counts=True)
        members = np.flatnonzero(classes[tied] == values[counts > 1][0])
        # the first goes in front: its class number drops by one half, in twice as large numbers
        classes[tied] = 2 * classes[tied]
        classes[tied][members[0]] -= 1


def _stable(rows: Sequence[FloatArray], slopes: Sequence[FloatArray], classes: list[IntArray]) -> list[IntArray]:
    count = -1
    while True:
        for layer in (*range(len(classes)), *range(len(classes) - 2, -1, -1)):
            keys = _keys(rows, slopes, classes, layer)
            rank = {key: place for place, key in enumerate(sorted(set(keys)))}
            classes[layer] = np.array([rank[key] for key in keys], dtype=np.int64)
        now = sum(len(np.unique(c)) for c in classes)
        if now == count:
            return classes
        count = now


def _keys(rows: Sequence[FloatArray], slopes: Sequence[FloatArray], classes: list[IntArray], layer: int) -> list[Any]:
    reads, bias = rows[layer][:, :-1], rows[layer][:, -1]
    readers = rows[layer + 1][:, :-1].T
    before = None if layer == 0 else classes[layer - 1]
    after = None if layer + 1 == len(classes) else classes[layer + 1]
    return [
        (
            int(classes[layer][i]),
            float(slopes[layer][i]),
            tuple(_signature(reads[i], before)),
            float(bias[i]),
            tuple(_signature(readers[i], after)),
        )
        for i in range(len(bias))
    ]


def _signature(values: FloatArray, classes: IntArray | None) -> list[float]:
    """The values in the order of their classes, sorted within each: the order of equal neurons does not matter."""
    if classes is None:
        return [float(v) for v in values]
    order = np.lexsort((values, classes))
    return [float(v) for v in values[order]]
