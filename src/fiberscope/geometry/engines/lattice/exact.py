"""Vertices of a complex as exact rational points, made only when the float bound leaves a sign open.

A point is ``x = X / t`` with integers ``(X, t)``, ``t >= 0``; ``t = 0`` is a direction at infinity. A vertex is stored
by what defines it: the edge it was cut from and the neuron that vanishes there. Networks are positively homogeneous
in ``(x, t)`` once their biases are multiplied by t, so integers serve everywhere and nothing is divided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd, isfinite
from typing import TYPE_CHECKING, Any

import flint
import numpy as np

from fiberscope.network.layout import Layout
from fiberscope.network.walk import all_values
from fiberscope.numerics.algebra.ball import EXACT, HomogeneousBalls, ball_signs
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.floats import TINY, FloatArray, IntArray, ObjectArray, SignArray, U
from fiberscope.numerics.points import quotient

if TYPE_CHECKING:
    from fiberscope.network.network import Network

Integers = tuple[int, ...]

Parents = Callable[[int], tuple[int, int, int]]
"""Of a vertex: the ends of the edge that it was cut from, and the entry of the sign vector that vanishes there."""


class ExactVertices:
    """Exact points and values of vertices, remembered."""

    def __init__(self, net: Network, points: Sequence[Integers], parents: Parents) -> None:
        self.net = net
        self._points: dict[int, Integers] = dict(enumerate(points))
        self._parents = parents
        self._values: dict[tuple[int, int], ObjectArray] = {}
        self.evaluated = 0

    def point(self, vertex: int) -> Integers:
        """Homogeneous integers ``(X, t)`` of a vertex, without common factor."""
        if vertex not in self._points:
            u, v, entry = self._parents(vertex)
            place = self.net.layout.at(entry)
            pair = np.array([self._value(w, place.index)[entry - place.start] for w in (u, v)], dtype=object)
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

    def forget(self) -> None:
        """Let go of values, not of points; called between layers to bound memory."""
        self._values.clear()

    def cut(self, count: int) -> None:
        """Forget vertices ``count, ...``: others will have their numbers."""
        self.forget()
        self._points = {v: point for v, point in self._points.items() if v < count}

    def scales(self, vertices: IntArray) -> list[int]:
        """What to divide homogeneous values by: t, or the largest coordinate of a direction."""
        points = [self.point(int(v)) for v in vertices]
        return [p[-1] if p[-1] else max(abs(x) for x in p) for p in points]


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Cells to begin with.

    ``points`` are homogeneous integers ``(X, t)``; ``boundary[k - 1]`` lists the facets of the k-cells;
    ``domain_signs`` are the signs of ``A x - b`` at the vertices (0 on a side of the domain, else -1).
    """

    points: tuple[Integers, ...]
    boundary: tuple[tuple[tuple[int, ...], ...], ...]
    domain_signs: SignArray

    @property
    def bounded(self) -> bool:
        return all(p[-1] > 0 for p in self.points)

    def coordinates(self) -> tuple[Bounded, Bounded | None]:
        """Float coordinates of the vertices with their errors, and t where there are directions at infinity.

        A coordinate beyond the floats is infinite, with an infinite error: then exact arithmetic decides.
        """
        scales = [p[-1] or max(map(abs, p)) for p in self.points]
        rows = [[quotient(x, scale) for x in p] for p, scale in zip(self.points, scales, strict=True)]
        exact = [
            [_is_quotient(f, x, scale) for f, x in zip(row, p, strict=True)]
            for row, p, scale in zip(rows, self.points, scales, strict=True)
        ]
        value = np.array(rows, dtype=np.float64)
        error = np.where(np.array(exact), 0.0, 4 * U * np.abs(value) + TINY)
        inputs = Bounded(value[:, :-1], error[:, :-1])
        return inputs, None if self.bounded else Bounded(value[:, -1:], error[:, -1:])


def _is_quotient(value: float, numerator: int, denominator: int) -> bool:
    if not isfinite(value):
        return False
    n, d = value.as_integer_ratio()
    return n * denominator == numerator * d


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

    >>> from fiberscope.numerics.algebra.ball import balls
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


def _exact_ball(value: Any) -> Any:
    return flint.arb(int(value))


_FROM_INT = np.frompyfunc(_exact_ball, 1, 1)
_TO_FLOAT = np.frompyfunc(lambda x: float(x.mid()), 1, 1)
