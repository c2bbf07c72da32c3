"""Paths between members of different strata of one hidden layer, along :mod:`~fiberscope.fibers.topology`'s graph.

With rows fixed, the outgoing weights that realise a function are an affine space, so a segment between two of them
stays in the fiber; and the row of a neuron without outgoing weight moves freely. A path is made of such moves alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import networkx as nx
import numpy as np

from fiberscope.fibers.one_layer.layer import OneLayer
from fiberscope.fibers.one_layer.representation import Form, form_of
from fiberscope.fibers.topology import Topology, cell_of, topology_of_layer
from fiberscope.numerics.cutoffs import SAME_ROWS
from fiberscope.numerics.exact_arrays import nearest
from fiberscope.numerics.exact_linear import matrix_of, reduced
from fiberscope.numerics.floats import FloatArray, IntArray, ObjectArray

Place = tuple[int, int]
"""A visible hyperplane, and +1 or -1 for the side that a neuron looks to."""

SIDE = {"+": (1,), "-": (-1,), "±": (1, -1)}


@dataclass(frozen=True, slots=True, eq=False)
class StrataPath:
    """Moves from 0 to 1, one after the other, and the order of the other's neurons at the end."""

    moves: list[Callable[[float], OneLayer]]
    order: IntArray
    strata: int


def walk(layer: OneLayer, other: OneLayer) -> StrataPath | str:
    """A path through the strata from ``layer`` to ``other``, or why there is none that is known."""
    topology = topology_of_layer(layer)
    if topology.components is None:
        return topology.reason
    form = form_of(layer.W, layer.b, layer.V, layer.c, False)
    here, there = _places(form, layer), _places(form, other)
    ends = [_number(topology, form, places) for places in (here, there)]
    if ends[0] is None or ends[1] is None:
        return "a group of neurons is needed for the linear part, and paths through groups are not written"
    if topology.component[ends[0]] != topology.component[ends[1]]:
        return APART if _all_told(layer, here) and _all_told(other, there) else UNTOLD
    plain = topology.graph.subgraph([k for k, s in enumerate(topology.strata) if not s.group])
    if not nx.has_path(plain, ends[0], ends[1]):
        return "they are in one component, but paths through groups are not written"
    steps = [topology.strata[k].sides for k in nx.shortest_path(plain, ends[0], ends[1])]
    return _Walker(form, layer, here).through(steps, other, there)


APART = "the two are in different components of the fiber, among all parameters"
UNTOLD = "a neuron that is read is on no visible hyperplane, so that the component is not certain"


def _all_told(layer: OneLayer, places: list[Place | None]) -> bool:
    """Whether all neurons are on visible hyperplanes, but for constant ones and those that nothing reads."""
    apart = [row[:-1].any() and out.any() for row, out in zip(layer.rows, layer.V.T, strict=True)]
    return all(place is not None or not bends for place, bends in zip(places, apart, strict=True))


def _places(form: Form, layer: OneLayer) -> list[Place | None]:
    """Where each neuron is; None for all that are on no visible hyperplane, or that nothing reads."""
    planes = np.array([nearest(matrix_of([row], len(row)))[0] for row in sorted(form.planes)])
    planes = planes.reshape(-1, layer.d + 1)
    found: list[Place | None] = []
    for row, out in zip(layer.rows, layer.V.T, strict=True):
        near = [(_multiple(row, plane), h) for h, plane in enumerate(planes)] if out.any() else []
        best = min((gap, h, sign) for (gap, sign), h in near) if near else (np.inf, 0, 1)
        found.append((best[1], best[2]) if best[0] <= SAME_ROWS else None)
    return found


def _multiple(row: FloatArray, plane: FloatArray) -> tuple[float, int]:
    """How far a row is from a multiple of another one, entry by entry, and the sign of the factor.

    Entries are compared with themselves: where inputs have other units than biases, a constant and a hyperplane far
    away are no multiples.
    """
    if not np.array_equal(row == 0, plane == 0):
        return np.inf, 1
    k = int(np.abs(plane).argmax())
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what is no number is no multiple
        gap = float(np.abs((row[row != 0] / row[k]) / (plane[row != 0] / plane[k]) - 1).max(initial=0.0))
    return gap if gap >= 0 else np.inf, 1 if (row[k] > 0) == (plane[k] > 0) else -1


def _number(topology: Topology, form: Form, places: list[Place | None]) -> int | None:
    taken = [frozenset(p[1] for p in places if p is not None and p[0] == h) for h in range(len(form.planes))]
    names = {frozenset(signs): side for side, signs in SIDE.items()}
    sides = tuple(names.get(signs, "") for signs in taken)
    match = [k for k, s in enumerate(topology.strata) if s.sides == sides and not s.group]
    return match[0] if match else None


@dataclass
class _Walker:
    form: Form
    now: OneLayer
    places: list[Place | None]
    moves: list[Callable[[float], OneLayer]] = field(default_factory=list)

    def through(self, steps: list[tuple[str, ...]], other: OneLayer, there: list[Place | None]) -> StrataPath:
        for sides in steps:
            wanted = [(h, s) for h, side in enumerate(sides) for s in SIDE[side]]
            for place in wanted:
                if place not in self.places:
                    self.put(place)
            self.weigh(sides, wanted)
            self.places = [p if p in wanted and self.places.index(p) == i else None for i, p in enumerate(self.places)]
        order = self.matched(there)
        self.finish(OneLayer(other.W[order], other.b[order], other.V[:, order], other.c, False))
        return StrataPath(self.moves, order, len(steps))

    def row(self, place: Place) -> FloatArray:
        key = sorted(self.form.planes)[place[0]]
        plane = nearest(matrix_of([key], len(key)))[0]
        return np.asarray(place[1] * plane / np.abs(plane).max())

    def put(self, place: Place) -> None:
        """A neuron without weight goes to a place."""
        i = next(i for i, p in enumerate(self.places) if p is None)
        rows = self.now.rows.copy()
        rows[i] = self.row(place)
        self.to(OneLayer(rows[:, :-1], rows[:, -1], self.now.V, self.now.c, False))
        self.places[i] = place

    def weigh(self, sides: tuple[str, ...], wanted: list[Place]) -> None:
        """All weights to the first neurons of the wanted places."""
        V = np.zeros_like(self.now.V)
        amounts = _amounts(self.form, sides)
        for place in wanted:
            i = self.places.index(place)
            plane = sorted(self.form.planes)[place[0]]
            size = np.abs(self.now.rows[i]).max() / float(max(abs(v) for v in plane))
            V[:, i] = amounts[place] / size
        zero = np.maximum(self.now.b, 0.0)
        value = self.now.c + self.now.V @ zero
        self.to(OneLayer(self.now.W, self.now.b, V, value - V @ zero, False))

    def matched(self, there: list[Place | None]) -> IntArray:
        """For every neuron one of the other's: those with weight at their places, the rest as they come."""
        order = np.full(len(self.places), -1, dtype=np.int64)
        for i, place in enumerate(self.places):
            if place is not None:
                order[i] = there.index(place)
        rest = iter(sorted(set(range(len(there))) - set(order.tolist())))
        return np.array([k if k >= 0 else next(rest) for k in order], dtype=np.int64)

    def finish(self, end: OneLayer) -> None:
        """Rows of neurons without weight go to their ends, the others are rescaled; then the weights."""
        start, spare = self.now, np.array([p is None for p in self.places])
        sizes = [np.where(spare, 1.0, np.abs(a.rows).max(axis=1)) for a in (start, end)]
        factor = sizes[1] / sizes[0]

        def rows(s: float) -> OneLayer:
            now = np.where(spare[:, None], (1 - s) * start.rows + s * end.rows, start.rows * (factor**s)[:, None])
            return OneLayer(now[:, :-1], now[:, -1], start.V / factor**s, start.c, False)

        self.moves.append(rows)
        self.now = rows(1.0)
        self.to(end)

    def to(self, end: OneLayer) -> None:
        start = self.now

        def move(s: float) -> OneLayer:
            W, b, V, c = ((1 - s) * x + s * y for x, y in zip(_parts(start), _parts(end), strict=True))
            return OneLayer(W, b, V, c, False)

        self.moves.append(move)
        self.now = end


def _parts(layer: OneLayer) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    return layer.W, layer.b, layer.V, layer.c


def _amounts(form: Form, sides: tuple[str, ...]) -> dict[Place, FloatArray]:
    """Weights for the rows of the form: against a hyperplane with both sides ``U`` where ``A_0 + U W_M = 0``."""
    cell = cell_of(form, sides)
    mixed = matrix_of([cell.rows[h][:-1] for h in cell.mixed], cell.d)
    U = _solution(mixed, -cell.wanted) if len(mixed) else None
    found: dict[Place, FloatArray] = {}
    for h, side in enumerate(sides):
        weight = nearest(matrix_of([form.planes[cell.rows[h]]], cell.m))[0]
        back = nearest(U)[:, cell.mixed.index(h)] if side == "±" and U is not None else weight
        for sign in SIDE[side]:
            found[h, sign] = back if sign < 0 else (weight - back if side == "±" else weight)
    return found


def _solution(rows: ObjectArray, wanted: ObjectArray) -> ObjectArray:
    """One ``U`` with ``U rows = wanted``, exactly; zero where nothing asks for more."""
    n = len(rows)
    both, pivots = reduced(np.concatenate([rows.T, wanted.T], axis=1))
    U = matrix_of([[0] * n for _ in range(len(wanted))], n)
    for k, pivot in enumerate(p for p in pivots if p < n):
        U[:, pivot] = both[k, n:]
    return U
