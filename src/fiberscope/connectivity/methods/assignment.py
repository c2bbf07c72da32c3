"""The best assignment of neurons to neurons: one permutation for every copy of a group, from its matrix of gains.

Narrow problems go to SciPy, in float64. Wide ones are solved in float32 as they are, by shortest augmenting paths after
the reductions of Jonker and Volgenant (1987): a matrix of 11,008 neurons has 0.5 GB there and would need 1 GB more.

Arrays of the kernels: ``cost (n, n)`` in float32, never copied; ``x (n,)`` the column of every row and ``y (n,)`` the
row of every column, -1 where there is none, each the inverse of the other; ``v (n,)`` prices of the columns. Invariant:
a row that has a column has the cheapest one, ``cost - v``, up to rounding, so a full ``x`` is the best assignment.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from fiberscope.errors import InputError
from fiberscope.numerics.compiling.kernels import strict
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.run import ENDLESS, Run

WIDE = 2048
"""Neurons from which on the assignment is made in float32, and its cost announced."""


def assign(gains: FloatArray, run: Run = ENDLESS, name: str = "") -> IntArray:
    """For every copy the permutation ``p`` with the largest ``sum_i gains[copy, i, p[i]]``, ``(copies, n)``.

    >>> assign(np.array([[[1.0, 5.0], [2.0, 3.0]], [[9.0, 5.0], [2.0, 3.0]]])).tolist()
    [[1, 0], [0, 1]]
    """
    if not np.isfinite(gains).all():
        raise InputError(f"group {name}: expected finite gains, got NaN or infinity; are all weights finite?")
    copies, n, _ = gains.shape
    found = np.empty((copies, n), dtype=np.int64)
    for c, matrix in enumerate(gains):
        if n >= WIDE:
            run.report(c, copies, announced(n, name))
        run.check()
        found[c] = _one(matrix)
    return found


def announced(n: int, name: str = "") -> str:
    """What an assignment of so many neurons will cost, as measured on random matrices; others are often quicker."""
    return f"assignment {name} of {n} neurons: {4e-9 * n * n:.1f} GB, about {4e-9 * n**2.35:.0f} s"


def _one(matrix: FloatArray) -> IntArray:
    rows = np.arange(len(matrix))
    greedy = matrix.argmax(axis=1)
    if len(np.unique(greedy)) == len(matrix):  # every row takes its best: nothing can be better
        stay = matrix[rows, rows] == matrix[rows, greedy]
        return rows if stay.all() else greedy
    if len(matrix) < WIDE:
        return np.asarray(linear_sum_assignment(matrix, maximize=True)[1], dtype=np.int64)
    return np.asarray(_jonker_volgenant(-np.ascontiguousarray(matrix, dtype=np.float32)), dtype=np.int64)


@strict
def _jonker_volgenant(cost):  # type: ignore[no-untyped-def]
    """The permutation ``x`` with the smallest ``sum_i cost[i, x[i]]``.

    ``cost`` is ``(n, n)`` in float32; ``x[i]`` is the column of row ``i``, ``y[j]`` the row of column ``j``, -1 where
    there is none yet; ``v`` are prices of the columns, in float64. Invariant: a row that has a column has the cheapest
    one at these prices, up to rounding. Phases: every column takes its cheapest row; rows without a column bid twice;
    the rest are placed by shortest augmenting paths.
    """
    n = cost.shape[0]
    x, y = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    v = np.full(n, np.inf, np.float64)
    low = np.zeros(n, np.int64)
    for i in range(n):
        for j in range(n):
            if cost[i, j] < v[j]:
                v[j] = cost[i, j]
                low[j] = i
    for j in range(n - 1, -1, -1):
        if x[low[j]] < 0:
            x[low[j]] = j
            y[j] = low[j]
    for _ in range(2):
        _bid(cost, x, y, v)
    _augment(cost, x, y, v)
    return x


@strict
def _bid(cost, x, y, v):  # type: ignore[no-untyped-def]
    """Every row without a column takes its cheapest one, whose price falls until the second cheapest is as cheap."""
    n = cost.shape[0]
    for start in range(n):
        i = start
        for _ in range(n):  # a row that is thrown out bids in its turn, but not for ever
            if x[i] >= 0:
                break
            first, second, best = np.inf, np.inf, -1
            for j in range(n):
                value = cost[i, j] - v[j]
                if value < first:
                    second = first
                    first, best = value, j
                elif value < second:
                    second = value
            if y[best] >= 0 and not first < second:
                break
            if n > 1:
                v[best] -= second - first
            out = y[best]
            x[i], y[best] = best, i
            if out < 0:
                break
            x[out] = -1
            i = out


@strict
def _augment(cost, x, y, v):  # type: ignore[no-untyped-def]
    """Shortest augmenting paths (Dijkstra over the columns) from every row that has no column yet."""
    n = cost.shape[0]
    distance = np.empty(n, np.float64)
    before = np.empty(n, np.int64)
    waiting = np.empty(n, np.int64)
    for start in range(n):
        if x[start] >= 0:
            continue
        for j in range(n):
            distance[j] = cost[start, j] - v[j]
            before[j] = start
            waiting[j] = j
        left = n
        while True:
            near = 0
            for k in range(1, left):
                j, best = waiting[k], waiting[near]
                if distance[j] < distance[best] or (distance[j] == distance[best] and y[j] < 0 <= y[best]):
                    near = k  # of two that are as near, one that is free ends the search
            column = waiting[near]
            left -= 1
            waiting[near] = waiting[left]
            waiting[left] = column
            if y[column] < 0:
                break
            row = y[column]
            base = cost[row, column] - v[column] - distance[column]
            for k in range(left):
                j = waiting[k]
                value = cost[row, j] - v[j] - base
                if value < distance[j]:
                    distance[j] = value
                    before[j] = row
        end = distance[column]
        for k in range(left, n):
            v[waiting[k]] += distance[waiting[k]] - end
        while True:
            row = before[column]
            y[column] = row
            x[row], column = column, x[row]
            if row == start:
                break
