"""Vertices of a complex as exact rational points, made only when the float bound leaves a sign open.

A point is ``x = X / t`` with integers ``(X, t)``, ``t >= 0``; ``t = 0`` is a direction at infinity. A vertex is stored
by what defines it: the edge it was cut from and the neuron that vanishes there. Networks are positively homogeneous
in ``(x, t)`` once their biases are multiplied by t, so integers serve everywhere and nothing is divided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

import flint
import numpy as np

from fiberscope.network.layout import Layout
from fiberscope.network.network import Network
from fiberscope.network.walk import all_values
from fiberscope.numerics.algebra.ball import EXACT, BallAlgebra, ball_signs, balls
from fiberscope.numerics.floats import TINY, FloatArray, IntArray, ObjectArray, SignArray, U

Integers = tuple[int, ...]

Parents = Callable[[int], tuple[int, int, int]]
"""Of a vertex: the ends of the edge that it was cut from, and the entry of the sign vector that vanishes there."""


class HomogeneousBalls(BallAlgebra):
    """Exact arithmetic on homogeneous coordinates: biases are multiplied by the last coordinate, t, ``(points,)``."""

    def __init__(self, t: ObjectArray) -> None:
        super().__init__(EXACT)
        self.t = t

    def shift(self, value: ObjectArray, offset: FloatArray) -> Any:
        return value + balls(offset) * self.t[:, None]


class ExactVertices:
    """Exact points and values of vertices, remembered."""

    def __init__(self, net: Network, points: Sequence[Integers], parents: Parents) -> None:
        self.net = net
        self._points: dict[int, Integers] = dict(enumerate(points))
        self._parents = parents
        self._values: dict[tuple[int, int], ObjectArray] = {}
        self._entries = _entries(net)
        self.evaluated = 0

    def point(self, vertex: int) -> Integers:
        """Homogeneous integers ``(X, t)`` of a vertex, without common factor."""
        if vertex not in self._points:
            u, v, entry = self._parents(vertex)
            switch, neuron = self._entries[entry]
            pair = np.array([self._value(w, switch)[neuron] for w in (u, v)], dtype=object)
            a, b = (abs(z) for z in integers(pair))
            combined = (b * x + a * y for x, y in zip(self.point(u), self.point(v), strict=True))
            self._points[vertex] = reduced(tuple(combined))
        return self._points[vertex]

    def _value(self, vertex: int, switch: int) -> ObjectArray:
        """Values that enter the node ``switch``, at one vertex."""
        key = (vertex, switch)
        if key not in self._values:
            source = self.net.nodes[switch].sources[0]
            self._values[key] = self.values(np.array([vertex]), source)[source][0]
        return self._values[key]

    def values(self, vertices: IntArray, last: int) -> list[ObjectArray]:
        """Values 0 to ``last`` of the program, times t, as exact Arb numbers ``(vertices, features)``."""
        rows = np.array([self.point(int(v)) for v in vertices], dtype=object).reshape(len(vertices), -1)
        self.evaluated += len(vertices)
        with flint.ctx.workprec(EXACT):
            exact = np.asarray(_FROM_INT(rows), dtype=object)
            return all_values(Layout(self.net.nodes[:last]), exact[:, :-1], HomogeneousBalls(exact[:, -1]))

    def renumber(self, first: int, shift: int) -> None:
        """Vertices ``first, ...`` are called ``first - shift, ...`` from now on."""
        self._points = {v - shift if v >= first else v: p for v, p in self._points.items()}
        self._values = {(v - shift if v >= first else v, k): x for (v, k), x in self._values.items()}

    def forget_from(self, first: int) -> None:
        """There are no vertices ``first, ...`` any more; others will get these names."""
        self._points = {v: p for v, p in self._points.items() if v < first}
        self._values = {key: x for key, x in self._values.items() if key[0] < first}

    def forget(self) -> None:
        """Let go of values, not of points; called between layers to bound memory."""
        self._values.clear()

    def scales(self, vertices: IntArray) -> list[int]:
        """What to divide homogeneous values by: t, or the largest coordinate of a direction."""
        points = [self.point(int(v)) for v in vertices]
        return [p[-1] if p[-1] else max(abs(x) for x in p) for p in points]


def exact_signs(values: ObjectArray) -> SignArray:
    """Signs of exact numbers."""
    return np.asarray(ball_signs(values), dtype=np.int8)


def rounded(values: ObjectArray, scales: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Exact values divided by their row's scale, as floats with an error bound."""
    with flint.ctx.workprec(96):
        divided = values / np.array([flint.arb(s) for s in scales], dtype=object)[:, None]
        floats = np.asarray(_TO_FLOAT(divided), dtype=np.float64)
    return floats, np.where(floats == 0, np.where(exact_signs(values) == 0, 0.0, TINY), 8 * U * np.abs(floats) + TINY)


def integers(values: ObjectArray) -> Integers:
    """Exact dyadic numbers as integers up to a common positive factor.

    >>> integers(balls(np.array([0.75, -1.5])))
    (1, -2)
    """
    pairs = [x.man_exp() for x in values]
    lowest = min((int(e) for m, e in pairs if m != 0), default=0)
    return reduced(tuple(int(m) << (int(e) - lowest) if m != 0 else 0 for m, e in pairs))


def reduced(row: Integers) -> Integers:
    """The row without its common factor."""
    factor = gcd(*row)
    return tuple(x // factor for x in row) if factor > 1 else row


def _entries(net: Network) -> list[tuple[int, int]]:
    """For every entry of a sign vector its node and its place in the node."""
    found = []
    for index, node in enumerate(net.nodes):
        if node in net.switches:
            found += [(index, j) for j in range(node.num_signs)]
    return found


def _exact_ball(value: Any) -> Any:
    return flint.arb(int(value))


_FROM_INT = np.frompyfunc(_exact_ball, 1, 1)
_TO_FLOAT = np.frompyfunc(lambda x: float(x.mid()), 1, 1)
