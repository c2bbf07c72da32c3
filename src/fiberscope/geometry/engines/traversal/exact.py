"""One cell in rational arithmetic: the same dictionary as the compiled kernel keeps, for what floats leave open.

Rows that are multiples of each other stand for one hyperplane, so only the first of them counts; then a row is a facet
iff the cell grows when it is dropped. Bland's rule keeps the pivots from cycling (R. G. Bland, *New finite pivoting
rules for the simplex method*, Math. Oper. Res. 2, 1977).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flint
import numpy as np

from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.points import quotient
from fiberscope.run import ENDLESS, Run

Row = list[Any]


class ExactCell:
    """The cell ``h_k >= 0`` around a strictly inner point, rows ``(g, c)`` of rationals meaning ``g x + c``.

    ``classes[k]`` are the rows that vanish on the same hyperplane as row k, itself among them; empty for a constant.

    >>> unit = ExactCell([[1, 0], [-1, 1], [2, 0]], [0.5])  # x >= 0, x <= 1, 2 x >= 0
    >>> unit.classes, [unit.beyond(k) is not None for k in (0, 1)]
    ([(0, 2), (1,), (0, 2)], [True, True])
    """

    def __init__(self, rows: Sequence[Sequence[Any]], inner: FloatArray | Sequence[float], run: Run = ENDLESS) -> None:
        self.n, self.run = len(inner), run
        point = [fraction(x) for x in inner]
        self.classes = _classes([list(row[:-1]) for row in rows], [row[-1] for row in rows])
        self.active = [k for k, group in enumerate(self.classes) if group and group[0] == k]
        self.table: dict[int, Row] = {}
        for k in self.active:
            run.check()
            g = [flint.fmpq(v) for v in rows[k][:-1]]
            self.table[k] = [*g, sum((a * x for a, x in zip(g, point, strict=True)), flint.fmpq(rows[k][-1]))]
        self.point: list[Row] = [[flint.fmpq(int(i == j)) for j in range(self.n)] + [x] for i, x in enumerate(point)]
        self.free: list[int] = [-1] * self.n  # the row that is free in this column, or -1 for a coordinate
        self._visited = [point]

    def centre(self) -> list[Any]:
        """The mean of the inner point and the vertices met so far; inside again, and deeper as a rule."""
        return [sum(column, flint.fmpq(0)) / len(self._visited) for column in zip(*self._visited, strict=True)]

    def beyond(self, i: int) -> list[Any] | None:
        """A point that violates row i and no other row (others may be zero there), or None if row i is no facet.

        ``i`` must be the first of its class.
        """
        while True:
            self.run.check()
            if i in self.free:
                e, direction, own = self.free.index(i), -1, flint.fmpq(0)
            else:
                move = self._entering(i)
                if move is None:
                    return None
                e, direction = move
                own = self.table[i][-1] / (-direction * self.table[i][e])
            blocking = self._blocking(e, direction, i)
            if blocking is None or own < blocking[0]:
                step = 2 * own + 1 if blocking is None else (own + blocking[0]) / 2
                return [row[-1] + direction * step * row[e] for row in self.point]
            self._pivot(blocking[1], e)

    def _entering(self, i: int) -> tuple[int, int] | None:
        order = sorted(range(self.n), key=lambda j: self.free[j])
        for j in order:
            value = self.table[i][j]
            if self.free[j] < 0 and value != 0:
                return j, -1 if value > 0 else 1
            if value < 0:
                return j, 1
        return None

    def _blocking(self, e: int, direction: int, i: int) -> tuple[Any, int] | None:
        best: tuple[Any, int] | None = None
        for k in self.active:
            rate = -direction * self.table[k][e]
            if k != i and rate > 0:
                key = (self.table[k][-1] / rate, k)
                best = key if best is None or key < best else best
        return best

    def _pivot(self, r: int, e: int) -> None:
        p = self.table[r]
        for row in (*self.table.values(), *self.point):
            if row is not p and row[e] != 0:
                f = row[e] / p[e]
                for j, value in enumerate(p):
                    if value != 0:
                        row[j] -= f * value
                row[e] = f
        for j in range(self.n + 1):
            p[j] = flint.fmpq(int(j == e))
        self.free[e] = r
        self._visited.append([row[-1] for row in self.point])


def towards(row: Sequence[Any], inner: Sequence[Any], far: Sequence[Any]) -> FloatArray:
    """Float points behind the zero set of a row, ever closer to it, on the segment from an inner point to a far one;
    infinite where they leave the range of floats.

    >>> towards([1, 0], [1], [-1])[:2].tolist()  # zero at 0
    [[-0.5], [-0.125]]
    """
    inside = sum((a * v for a, v in zip(row, inner, strict=False)), flint.fmpq(row[-1]))
    outside = sum((a * v for a, v in zip(row, far, strict=False)), flint.fmpq(row[-1]))
    cross = inside / (inside - outside)
    shares = [cross + (1 - cross) * fraction(0.5**k) for k in range(1, 64, 2)]
    points = [[a + t * (b - a) for a, b in zip(inner, far, strict=True)] for t in shares]
    return np.array([[quotient(int(q.p), int(q.q)) for q in point] for point in points])


def _classes(gradients: list[Row], constants: list[Any]) -> list[tuple[int, ...]]:
    """Rows with the same zero set, by their quotients with the first non-zero coefficient."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    keys: list[tuple[Any, ...] | None] = []
    for k, (g, c) in enumerate(zip(gradients, constants, strict=True)):
        pivot = next((flint.fmpq(v) for v in g if v != 0), None)
        key = None if pivot is None else tuple((q.p, q.q) for q in (flint.fmpq(v) / pivot for v in (*g, c)))
        key = None if key is None else tuple((int(p), int(q)) for p, q in key)
        keys.append(key)
        if key is not None:
            groups.setdefault(key, []).append(k)
    return [() if key is None else tuple(groups[key]) for key in keys]


def fraction(x: float) -> Any:
    """A float as an exact rational."""
    return flint.fmpq(*float(x).as_integer_ratio())
