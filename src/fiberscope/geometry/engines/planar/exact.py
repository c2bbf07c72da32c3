"""The exact side of the planar engine: functionals on a polygon, vertices and orders as integers.

On a polygon every preactivation is an affine function of ``(x, y)``; with the polygon's signs held fixed it comes out
of the program as a row ``(a, b, c)`` of integers, up to a positive factor. A vertex is stored by the two lines that
define it and is their cross product, a homogeneous point ``(X, Y, W)`` with ``W > 0``. Floats are dyadic rationals, so
all of this is integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import flint
import numpy as np

from fiberscope.geometry.engines.planar.faces import compare_windows
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Dense, Operator
from fiberscope.numerics.floats import FloatArray, IntArray, ObjectArray, SignArray
from fiberscope.numerics.points import Triple, cross, dot, integer_rows, to_dyadic

_fmpz = np.frompyfunc(flint.fmpz, 1, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Dyadic:
    """``integers * 2**exponent`` in an object array."""

    integers: ObjectArray
    exponent: int

    @classmethod
    def of(cls, array: FloatArray) -> Dyadic:
        integers, exponent = to_dyadic(array)
        return cls(_fmpz(integers), exponent)

    def at(self, exponent: int) -> ObjectArray:
        """The integers for a smaller exponent."""
        shift = self.exponent - exponent
        return np.asarray(self.integers * (flint.fmpz(1) << shift) if shift else self.integers.copy())


def _plus(a: Dyadic, b: Dyadic) -> Dyadic:
    low = min(a.exponent, b.exponent)
    return Dyadic(a.at(low) + b.at(low), low)


State = tuple[int, dict[int, Any], list[Any]]
"""The index of a switch, the values needed from there on, and the functionals of all switches up to this one."""

_MOST_INTEGERS = 1 << 21
"""How many integers the states of an exact program may hold before they are dropped."""


class FixedProgram:
    """The program on three homogeneous rows (for x, y and 1) with all signs fixed, in some arithmetic.

    Polygons share the signs of their first layers with many others, so the state behind every switch is kept under
    the signs that led there. On a surface every triangle has coordinates of its own, its *chart*; a plane has one.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.last_use = {source: k for k, node in enumerate(nodes) for source in node.sources}
        self._maps: dict[int, Any] = {}
        self._states: dict[bytes, State] = {}
        self._held = 0

    def start(self, chart: int) -> Any:
        """The input as a function of the coordinates ``(x, y, 1)`` of a chart, ``(3, in_size)``."""
        raise NotImplementedError

    def _switch(self, node: PiecewiseLinear | MaxPool, value: Any, signs: SignArray) -> Any:
        raise NotImplementedError

    def _plain(self, node: Node, values: Mapping[int, Any]) -> Any:
        raise NotImplementedError

    def _rows(self, node: PiecewiseLinear | MaxPool, value: Any) -> Any:
        raise NotImplementedError

    def functionals(self, signs: Sequence[SignArray], chart: int = 0) -> list[Any]:
        """The rows whose signs are taken, ``(3, n)`` per switch, for as many switches as signs are given plus one."""
        keys = list(accumulate((part.tobytes() for part in signs), initial=chart.to_bytes(8, "little")))
        if self._held > _MOST_INTEGERS:
            self._states.clear()
            self._held = 0
        if keys[0] not in self._states:
            self._states[keys[0]] = self._onward(0, {0: self.start(chart)}, [])
        known = max(k for k, key in enumerate(keys) if key in self._states)
        for k in range(known, len(signs)):
            index, values, found = self._states[keys[k]]
            switch = self.nodes[index]
            assert isinstance(switch, PiecewiseLinear | MaxPool)
            after = self._switch(switch, values[switch.source], signs[k])
            self._states[keys[k + 1]] = self._onward(index + 1, {**values, index + 1: after}, found)
        return self._states[keys[-1]][2]

    def _onward(self, index: int, values: dict[int, Any], found: list[Any]) -> State:
        """On to the next switch and its functionals; values that nothing reads any more are let go."""
        while not isinstance(node := self.nodes[index], PiecewiseLinear | MaxPool):
            values[index + 1] = self._plain(node, values)
            index += 1
        rows = self._rows(node, values[node.source])
        self._held += 6 * node.num_signs
        live = {key: value for key, value in values.items() if self.last_use.get(key, -1) >= index}
        return index, live, [*found, rows]


class ExactProgram(FixedProgram):
    """The program with all signs fixed, in integers."""

    def start(self, chart: int) -> Dyadic:
        """The input as a function of the coordinates ``(x, y, 1)`` of a chart, ``(3, in_size)``."""
        return Dyadic(_fmpz(np.array([[1, 0], [0, 1], [0, 0]], dtype=object)), 0)

    def _rows(self, node: PiecewiseLinear | MaxPool, value: Dyadic) -> ObjectArray:
        return value.integers if isinstance(node, PiecewiseLinear) else _pairs(node, value.integers)

    def _switch(self, node: PiecewiseLinear | MaxPool, value: Dyadic, signs: SignArray) -> Dyadic:
        if isinstance(node, MaxPool):
            return Dyadic(value.integers[:, node.chosen(signs)], value.exponent)
        if not node.slopes.any():
            return Dyadic(np.where(signs > 0, value.integers, flint.fmpz(0)), value.exponent)
        factors = Dyadic.of(np.where(signs > 0, 1.0, node.slopes))
        return Dyadic(value.integers * factors.integers, value.exponent + factors.exponent)

    def _plain(self, node: Node, values: Mapping[int, Dyadic]) -> Dyadic:
        if isinstance(node, Affine):
            value = values[node.source]
            for stage in node.operator.stages():
                value = self._apply(stage, value)
            if node.offset is None:
                return value
            if id(node) not in self._maps:
                self._maps[id(node)] = Dyadic.of(node.offset)
            offset = self._maps[id(node)]
            low = min(value.exponent, offset.exponent)
            rows = value.at(low)
            rows[2] = rows[2] + offset.at(low)
            return Dyadic(rows, low)
        parts = [values[s] for s in node.sources]
        if isinstance(node, Add):
            total = parts[0]
            for part in parts[1:]:
                total = _plus(total, part)
            return total
        assert isinstance(node, Concat)
        low = min(part.exponent for part in parts)
        joined = np.concatenate([part.at(low) for part in parts], axis=1)
        return Dyadic(joined if node.order is None else joined[:, node.order], low)

    def _apply(self, stage: Operator, value: Dyadic) -> Dyadic:
        if id(stage) not in self._maps:
            self._maps[id(stage)] = _dense(stage) if isinstance(stage, Dense) else _sparse(stage)
        apply, exponent = self._maps[id(stage)]
        return Dyadic(apply(value.integers), value.exponent + exponent)


def _dense(stage: Dense) -> tuple[Callable[[ObjectArray], ObjectArray], int]:
    integers, exponent = to_dyadic(stage.matrix)
    matrix = flint.fmpz_mat(integers.T.tolist())

    def apply(rows: ObjectArray) -> ObjectArray:
        return np.array((flint.fmpz_mat(rows.tolist()) * matrix).tolist(), dtype=object)

    return apply, exponent


def _sparse(stage: Operator) -> tuple[Callable[[ObjectArray], ObjectArray], int]:
    matrix = stage.sparse()
    data = Dyadic.of(matrix.data)
    filled = np.flatnonzero(np.diff(matrix.indptr))
    starts = matrix.indptr[filled]

    def apply(rows: ObjectArray) -> ObjectArray:
        result = _fmpz(np.zeros((3, stage.out_size), dtype=object))
        if len(filled):
            result[:, filled] = np.add.reduceat(rows[:, matrix.indices] * data.integers, starts, axis=1)
        return np.asarray(result)

    return apply, data.exponent


def window_pairs(node: MaxPool) -> IntArray:
    """All pairs of inputs that meet in some window, ``(count, 2)``, each once, the smaller index first."""
    size = node.windows.shape[1]
    first, second = np.triu_indices(size, 1)
    pairs = np.stack([node.windows[:, first].ravel(), node.windows[:, second].ravel()], axis=1)
    pairs = np.sort(pairs[(pairs >= 0).all(axis=1)], axis=1)
    return np.asarray(np.unique(pairs, axis=0).reshape(-1, 2))


def _pairs(node: MaxPool, rows: ObjectArray) -> ObjectArray:
    i, j = window_pairs(node).T
    return np.asarray(rows[:, i] - rows[:, j])


def pool_signs(node: MaxPool, pair_signs: SignArray) -> SignArray:
    """Signs of all window entries ``(points, num_signs)`` from those of the differences of :func:`window_pairs`.

    Columns of ``pair_signs`` beyond the pairs are not read.
    """
    pairs, windows = window_pairs(node), node.windows
    size = int(np.prod(node.in_shape))
    a, b = windows[:, :, None], windows[:, None, :]
    wanted = np.minimum(a, b) * size + np.maximum(a, b)
    column = np.searchsorted(pairs[:, 0] * size + pairs[:, 1], np.where((a < 0) | (b < 0) | (a == b), -1, wanted))
    column = np.where((a < 0) | (b < 0) | (a == b), -1, column)
    result = np.empty((len(pair_signs), windows.size), dtype=np.int8)
    compare_windows(pair_signs, windows, column, result)
    return result


def ranks_between(lines: Sequence[Triple], a: Triple, b: Triple) -> tuple[list[int], list[float]]:
    """Order in which lines are met on the way from point ``a`` to point ``b``, equal ranks for a common point, and
    where on the way that is, between 0 and 1, rounded to floats.

    Every line separates the two points strictly. It divides their distance in the ratio of its values there.

    >>> ranks_between([(2, 0, -1), (1, 0, 0), (4, 1, -2)], (-1, 0, 1), (1, 0, 1))
    ([1, 0, 1], [0.75, 0.5, 0.75])
    """
    where = []
    for line in lines:
        here, there = abs(flint.fmpz(dot(line, a))) * b[2], abs(flint.fmpz(dot(line, b))) * a[2]
        where.append(flint.fmpq(here, here + there))
    order = {value: k for k, value in enumerate(sorted(set(where)))}
    return [order[t] for t in where], [int(t.p) / int(t.q) for t in where]


@dataclass(slots=True, eq=False)
class Stage:
    """What a complex was when it was split: its polygons, and the signs at its vertices of the switches before."""

    indptr: IntArray
    loop_v: IntArray
    signs: list[SignArray]
    parts: Sequence[Callable[[SignArray], SignArray]]
    root: IntArray | None = None
    rows: dict[int, list[ObjectArray]] = field(default_factory=dict)
    points: dict[tuple[int, int, int], Triple] = field(default_factory=dict)
    twofold_rows: dict[int, list[Any]] = field(default_factory=dict)
    twofold_points: dict[tuple[int, int, int], Triple] = field(default_factory=dict)

    def chart(self, polygon: int) -> int:
        """The chart of a polygon."""
        return 0 if self.root is None else int(self.root[polygon])

    def prefix(self, polygon: int) -> list[SignArray]:
        """Sign vector of a polygon, switch by switch."""
        vertices = self.loop_v[self.indptr[polygon] : self.indptr[polygon + 1]]
        return [part(signs[vertices]) for part, signs in zip(self.parts, self.signs, strict=True)]


class Oracle:
    """Exact answers about the vertices of a complex, kept for as long as their stage lives.

    Lines are numbered: ``offset[s] + j`` is functional ``j`` of switch ``s``, and ``-1 - k`` side ``k`` of the domain.
    A vertex is given by ``(stage, polygon, line, line)``.
    """

    def __init__(self, nodes: Sequence[Node], sides: FloatArray, offsets: IntArray) -> None:
        self.program: FixedProgram = ExactProgram(nodes)
        self.sides: list[Triple] = [(flint.fmpz(a), flint.fmpz(b), flint.fmpz(c)) for a, b, c in integer_rows(sides)]
        self.offsets = offsets

    def side(self, chart: int, number: int) -> Triple:
        """A side of the domain in the coordinates of a chart."""
        return self.sides[number]

    def seen_from(self, chart: int, point: Triple, own: int) -> Triple:
        """A point of chart ``own`` in the coordinates of another chart that has it too."""
        return point

    def line(self, stage: Stage, polygon: int, number: int) -> Triple:
        """A line's functional on a polygon."""
        if number < 0:
            return self.side(stage.chart(polygon), -1 - number)
        if polygon not in stage.rows:
            stage.rows[polygon] = self.program.functionals(stage.prefix(polygon), stage.chart(polygon))
        switch = int(np.searchsorted(self.offsets, number, side="right")) - 1
        column = stage.rows[polygon][switch][:, number - self.offsets[switch]]
        return column[0], column[1], column[2]

    def point(self, stage: Stage, polygon: int, first: int, second: int) -> Triple:
        """The vertex where two lines meet."""
        key = (polygon, first, second)
        if key not in stage.points:
            found = cross(self.line(stage, polygon, first), self.line(stage, polygon, second))
            if not found[2] > 0:  # pragma: no cover - lines that cross are not parallel
                raise ArithmeticError("two lines that define a vertex do not meet")
            stage.points[key] = found
        return stage.points[key]
