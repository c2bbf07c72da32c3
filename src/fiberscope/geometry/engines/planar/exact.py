"""The exact side of the planar engine: functionals on a polygon, vertices and orders as integers.

On a polygon every preactivation is an affine function of ``(x, y)``; with the polygon's signs held fixed it comes out
of the program as a row ``(a, b, c)`` of integers, up to a positive factor. A vertex is stored by the two lines that
define it and is their cross product, a homogeneous point ``(X, Y, W)`` with ``W > 0``. Floats are dyadic rationals, so
all of this is integer arithmetic.

A sharper filter comes before it. The values at vertices carry bounds that grow with every layer, by the norm of its
weights: on a trained network of six layers they leave some hundreds of decisions open that are not close at all. Then a
polygon's rows are composed from the weights in about 106 bits; points and orders follow in balls (``flint.arb``). What
is still open, a coincidence as a rule, goes on to the integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar, assert_never

import flint
import numpy as np

from fiberscope.geometry.cells import cell_signs
from fiberscope.geometry.engines.planar.faces import compare_windows, lowest_signs
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear, Switch
from fiberscope.network.walk import Choices, cuts, switches
from fiberscope.numerics.algebra.base import Algebra
from fiberscope.numerics.algebra.dyadic import Dyadic, DyadicAlgebra
from fiberscope.numerics.algebra.twofold import TwofoldAlgebra
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.compensated import Twofold
from fiberscope.numerics.cutoffs import ROUGH
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray, U
from fiberscope.numerics.points import Triple, cross, dot, integer_rows, sign

if TYPE_CHECKING:
    from fiberscope.network.layout import Layout

V = TypeVar("V")

Ranks = tuple[list[int], list[float], list[float] | float]
"""The order of crossings, where they are between the ends, and bounds of the errors of that."""

BITS = 128
"""Precision of balls: enough for the sum of a pair of floats."""

_DENSE = 1 << 20
"""Entries of a matrix up to which an operator is taken as a matrix."""

_BLURRED = 4
"""Values are made anew at all vertices where floats left one decision open for so many polygons."""

_MOST_ROWS = 1 << 21
"""How many numbers the states of a program may hold before they are dropped."""


class FixedProgram(Generic[V]):
    """The program on three homogeneous rows (for x, y and 1) with all signs fixed, in some algebra of rows.

    Polygons share the signs of their first layers with many others, so the state behind every switch is kept under
    the signs that led there. On a surface every triangle has coordinates of its own, its *chart*; a plane has one.
    ``start`` gives the input as a function of the coordinates of a chart, ``(3, in_size)``.
    """

    def __init__(self, layout: Layout, algebra: Algebra[V], start: Callable[[int], V]) -> None:
        self.layout, self.algebra, self.start = layout, algebra, start
        self._states: dict[bytes, tuple[dict[int, V], list[V]]] = {}
        self._held = 0

    def functionals(self, signs: Sequence[SignArray], chart: int = 0) -> list[V]:
        """The rows whose signs are taken, ``(3, n)`` per switch, for as many switches as signs are given plus one."""
        keys = list(accumulate((part.tobytes() for part in signs), initial=chart.to_bytes(8, "little")))
        if self._held > _MOST_ROWS:
            self._states.clear()
            self._held = 0
        if keys[0] not in self._states:
            self._states[keys[0]] = self._onward({0: self.start(chart)}, [], {}, 0)
        known = max(k for k, key in enumerate(keys) if key in self._states)
        for k in range(known, len(signs)):
            values, found = self._states[keys[k]]
            place = self.layout.places[k]
            choice = {place.index: place.node.chosen(signs[k])}
            self._states[keys[k + 1]] = self._onward(dict(values), found, choice, place.index)
        return self._states[keys[-1]][1]

    def _onward(self, values: dict[int, V], found: list[V], choices: Choices, first: int) -> Any:
        """On through one switch to the next and its functionals: the values there, and all functionals so far."""
        way = switches(self.layout, values, self.algebra, choices, first=first)
        place = next(place for place in way if place.index not in choices)
        self._held += 6 * place.node.num_signs
        return values, [*found, cuts(place.node, values[place.source], self.algebra)]


def exact_program(layout: Layout, start: Callable[[int], Dyadic]) -> FixedProgram[Dyadic]:
    """The program with all signs fixed, in integers."""
    return FixedProgram(layout, DyadicAlgebra(), start)


def pool_signs(node: MaxPool, pair_signs: SignArray) -> SignArray:
    """Signs of all window entries ``(points, num_signs)`` from those of the differences of :func:`window_pairs`.

    Columns of ``pair_signs`` beyond the pairs are not read.
    """
    pairs, windows = node.pairs, node.windows
    size = int(np.prod(node.in_shape))
    a, b = windows[:, :, None], windows[:, None, :]
    wanted = np.minimum(a, b) * size + np.maximum(a, b)
    column = np.searchsorted(pairs[:, 0] * size + pairs[:, 1], np.where((a < 0) | (b < 0) | (a == b), -1, wanted))
    column = np.where((a < 0) | (b < 0) | (a == b), -1, column)
    result = np.empty((len(pair_signs), windows.size), dtype=np.int8)
    compare_windows(pair_signs, windows, column, result)
    return result


def entry_signs(node: Switch, cut_signs: SignArray) -> SignArray:
    """Signs of a switch's entries ``(points, num_signs)`` from those of its :func:`~fiberscope.network.walk.cuts`.

    Columns beyond, which fill up words, stay where they are.
    """
    match node:
        case PiecewiseLinear():
            return cut_signs
        case MaxPool():
            return pool_signs(node, cut_signs)
        case _:
            assert_never(node)


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
    switches: Sequence[Switch]
    root: IntArray | None = None
    blurred: int = 0
    """Decisions that floats left open and pairs of floats made, and vertices whose values were made anew for others."""
    rows: dict[tuple[type[Oracle], int], list[Any]] = field(default_factory=dict)
    points: dict[tuple[type[Oracle], int, int, int], Triple] = field(default_factory=dict)

    @property
    def is_blurred(self) -> bool:
        """Whether the bounds of floats have grown too large for the layers to come."""
        return self.blurred * _BLURRED > len(self.indptr)

    def chart(self, polygon: int) -> int:
        """The chart of a polygon."""
        return 0 if self.root is None else int(self.root[polygon])

    def prefix(self, polygon: int) -> list[SignArray]:
        """Sign vector of a polygon, switch by switch."""
        return [rows[0] for rows in self.prefixes(np.array([polygon]))]

    def prefixes(self, polygons: IntArray) -> list[SignArray]:
        """Sign vectors of polygons, switch by switch, ``(polygons, num_signs)``."""
        first = self.indptr[polygons]
        size = self.indptr[polygons + 1] - first
        start = pointers(size)
        vertices = self.loop_v[np.repeat(first - start[:-1], size) + np.arange(start[-1])]
        corners = [signs[vertices] for signs in self.signs]
        return [cell_signs(node, *_extremes(start, rows)) for node, rows in zip(self.switches, corners, strict=True)]


def _extremes(start: IntArray, rows: SignArray) -> tuple[SignArray, SignArray]:
    """The least and the largest signs of stretches of rows."""
    low, high = (np.empty((len(start) - 1, rows.shape[1]), dtype=np.int8) for _ in range(2))
    order = np.arange(len(rows))
    lowest_signs(start, order, rows, low)
    lowest_signs(start, order, -rows, high)
    return low, -high


class Oracle:
    """Exact answers about the vertices of a complex, kept for as long as their stage lives.

    Lines are numbered: ``offset[s] + j`` is functional ``j`` of switch ``s``, and ``-1 - k`` side ``k`` of the domain.
    A vertex is given by ``(stage, polygon, line, line)``.
    """

    def __init__(
        self, layout: Layout, sides: FloatArray, offsets: IntArray, start: Callable[[int], Dyadic] | None = None
    ) -> None:
        self.layout, self._begin = layout, start or (lambda chart: Dyadic.of(np.eye(3, 2)))
        self.sides: list[Triple] = [(flint.fmpz(a), flint.fmpz(b), flint.fmpz(c)) for a, b, c in integer_rows(sides)]
        self.offsets = offsets

    @cached_property
    def program(self) -> FixedProgram[Any]:
        """The rows of every polygon; made when the first one is asked for, which is seldom."""
        return exact_program(self.layout, self._begin)

    @cached_property
    def rows(self) -> TwofoldAlgebra:
        """For the rows of many polygons in pairs of floats; it remembers the matrices."""
        return TwofoldAlgebra(every=3)

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
        key = (type(self), polygon)
        if key not in stage.rows:
            stage.rows[key] = self.program.functionals(stage.prefix(polygon), stage.chart(polygon))
        switch = int(np.searchsorted(self.offsets, number, side="right")) - 1
        return self._row(stage.rows[key][switch], number - int(self.offsets[switch]))

    def _row(self, rows: Any, column: int) -> Triple:
        a, b, c = rows.integers[:, column]
        return a, b, c

    def point(self, stage: Stage, polygon: int, first: int, second: int) -> Triple:
        """The vertex where two lines meet."""
        key = (type(self), polygon, first, second)
        if key not in stage.points:
            stage.points[key] = self._meeting(self.line(stage, polygon, first), self.line(stage, polygon, second))
        return stage.points[key]

    def _meeting(self, first: Triple, second: Triple) -> Triple:
        found = cross(first, second)
        if not found[2] > 0:  # pragma: no cover - lines that cross are not parallel
            raise ArithmeticError("two lines that define a vertex do not meet")
        return found


# -- the sharper filter ------------------------------------------------------------------------------------------------


class Unclear(Exception):
    """A ball contains zero, or two overlap."""


def _is_plain(node: Node) -> bool:
    """Whether a node is a moderate affine map or made of ReLUs (or linear entries) alone."""
    match node:
        case Affine():
            return all(stage.in_size * stage.out_size <= _DENSE for stage in node.operator.stages())
        case PiecewiseLinear():
            return bool(np.isin(node.slopes, (0.0, 1.0)).all())
        case MaxPool() | Add() | Concat():
            return False
        case _:
            assert_never(node)


class TwofoldOracle(Oracle):
    """Answers about the vertices of a complex in balls; raises :class:`Unclear` where they do not tell."""

    def __init__(self, exact: Oracle) -> None:
        self.layout, self.offsets = exact.layout, exact.offsets
        with flint.ctx.workprec(BITS):
            self.sides = [(flint.arb(a), flint.arb(b), flint.arb(c)) for a, b, c in exact.sides]

    @classmethod
    def of(cls, exact: Oracle) -> TwofoldOracle | None:
        """The filter in front of an exact oracle, where there is one: in the plane, not in charts."""
        plain = type(exact) is Oracle and all(_is_plain(node) for node in exact.layout.nodes)
        return cls(exact) if plain else None

    @cached_property
    def program(self) -> FixedProgram[Any]:
        return FixedProgram(self.layout, TwofoldAlgebra(), lambda chart: Twofold.exact(np.eye(3, 2)))

    def _row(self, rows: Any, column: int) -> Triple:
        return balls(rows, column)

    def _meeting(self, first: Triple, second: Triple) -> Triple:
        with flint.ctx.workprec(BITS):
            found = cross(first, second)
        if not found[2] > 0:
            raise Unclear
        return found

    @staticmethod
    def sign_at(line: Triple, point: Triple) -> int:
        """The sign of a line's functional at a point, never 0."""
        with flint.ctx.workprec(BITS):
            found = sign(dot(line, point))
        if found == 0:
            raise Unclear
        return found

    @staticmethod
    def ranks(lines: Sequence[Triple], a: Triple, b: Triple) -> Ranks:
        """As :func:`ranks_between`, for lines that meet the segment in different points, with bounds of the errors."""
        with flint.ctx.workprec(BITS):
            where = [_share(line, a, b) for line in lines]
            order = sorted(range(len(where)), key=lambda k: float(where[k].mid()))
            if any(not where[i] < where[k] for i, k in pairwise(order)):
                raise Unclear
            found = [float(t.mid()) for t in where]
            errors = [float(t.rad()) * (1 + 4 * U) + 2 * U for t in where]
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return ranks.tolist(), found, errors


def _share(line: Triple, a: Triple, b: Triple) -> Any:
    """Where a line divides a segment; a short segment need not be known to the precision of floats."""
    here, there = abs(dot(line, a)) * b[2], abs(dot(line, b)) * a[2]
    found = here / (here + there)
    if not (found.is_finite() and found.rad() < ROUGH):
        raise Unclear
    return found


def balls(rows: Twofold, column: int) -> Triple:
    """The three numbers of one functional."""
    a, b, c = (_ball(rows, i, column) for i in range(3))
    return a, b, c


def _ball(rows: Twofold, i: int, j: int) -> Any:
    """One number with its error; the two parts fit into the working precision."""
    parts: tuple[FloatArray, ...] = (rows.high, rows.low, rows.error)
    high, low, error = (float(part[i, j]) for part in parts)
    if not error < np.inf:
        raise Unclear
    with flint.ctx.workprec(BITS):
        return flint.arb(high, error) + flint.arb(low)
