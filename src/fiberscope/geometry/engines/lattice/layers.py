"""What the lattice and the skeleton share: a walk through the layers, with values and signs at the vertices.

While a layer is split, ``table`` and ``error`` ``(vertices, columns)`` hold all live values side by side, cut by
``slices`` (by the number of the value, :data:`T` for the last homogeneous coordinate), so that a new vertex between two
others is one row. ``signs (vertices, sides + num_signs)`` begin with those of the domain's sides. Invariants: a sign is
certified or :data:`.kernels.UNKNOWN`, and none is unknown when a layer ends; values are bounded by ``error``, a row
that was decided exactly to one rounding; columns from ``reached`` on are 0 if the walk was stopped.
"""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, assert_never
from weakref import proxy

import numpy as np

from fiberscope.geometry.engines.lattice import kernels
from fiberscope.geometry.engines.lattice.exact import ExactVertices, Start, exact_signs, rounded
from fiberscope.geometry.engines.limits import LARGE, PATIENCE
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.network.walk import switches
from fiberscope.numerics.algebra.bounded import BOUNDED, Bounded, BoundedAlgebra
from fiberscope.numerics.arrays import grown
from fiberscope.numerics.floats import FloatArray, IntArray, gamma, round_up
from fiberscope.numerics.rows import proportional_rows
from fiberscope.run import ENDLESS, STOPPED, Run

if TYPE_CHECKING:
    from fiberscope.network.layout import Place

T = -1
"""Key of the homogeneous coordinate among the live values."""


@dataclass(frozen=True, slots=True)
class LayerStep:
    """One activation: its node, the value it acts on, its columns of the sign table, where live values stand in the
    float table, and neurons that are multiples of earlier ones (neuron -> (earlier neuron, sign)); and how many of the
    first neurons are done and need no column of the float table any more."""

    index: int
    source: int
    begin: int
    end: int
    slices: dict[int, slice]
    copies: dict[int, tuple[int, int]]
    done: int = 0

    @property
    def columns(self) -> tuple[int, int, int]:
        """As kernels take them: the first sign that may be open, the end of the signs, and the column of the first."""
        return self.begin + self.done, self.end, self.slices[self.source].start


def proportional(net: Network, node: PiecewiseLinear) -> dict[int, tuple[int, int]]:
    """Neurons of a dense layer whose row is a multiple of an earlier one: they vanish together, so one is enough."""
    affine = net.nodes[node.source - 1] if node.source else None
    if not (isinstance(affine, Affine) and isinstance(affine.operator, Dense)):
        return {}
    bias = np.zeros(affine.operator.out_size) if affine.offset is None else affine.offset
    rows = np.concatenate([affine.operator.coefficients, bias[:, None]], axis=1)
    rows[node.linear] = 0.0
    leads = np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]).astype(np.int64)
    return {
        copy: (group[0], int(leads[copy] * leads[group[0]])) for group in proportional_rows(rows) for copy in group[1:]
    }


class Stopped(Exception):
    """Exact decisions were given up, because somebody asked for it."""


class HomogeneousBounds(BoundedAlgebra):
    """Bounded floats on homogeneous coordinates: biases are multiplied by the last coordinate, t, ``(points, 1)``.

    It is asked for when it is needed, because every layer makes more points; None where t is 1 for all.
    """

    def __init__(self, t: Callable[[], Bounded | None]) -> None:
        super().__init__()
        self.t = t

    def shift(self, value: Bounded, offset: FloatArray) -> Bounded:
        t = self.t()
        if t is None:
            return super().shift(value, offset)
        shift = t.value * offset
        # A product of zero proves nothing: it may have underflowed.
        exact = (offset == 0) | ((t.error == 0) & ((t.value == 0) | (t.value == 1)))
        slip = round_up(gamma(1) * np.abs(shift) + np.abs(offset) * t.error, 4)
        return self.add([value, Bounded(shift, np.where(exact, 0.0, slip))])


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back until a neuron is done, because in between the lattice is torn."""
    asked: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, lambda *_: asked.append(True))
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def never() -> bool:
    return False


class LayerWalk(ABC):
    """Vertices under construction, layer by layer.

    ``table`` and ``error`` hold, for every vertex, float values of all live values of the program and bounds of their
    errors; ``signs`` holds certified signs, those of the domain's sides first and then the network's.
    """

    def __init__(self, net: Network, start: Start) -> None:
        self.net = net
        self.inputs, self.t = start.coordinates()
        self.sides = start.domain_signs.shape[1]
        self.num_vertices = len(start.points)
        self.signs = np.zeros((len(start.points), self.sides + net.num_signs), dtype=np.int8)
        self.signs[:, : self.sides] = start.domain_signs
        self.parents = np.full((len(start.points), 3), -1, dtype=np.int32)
        self.table = self.error = np.zeros((0, 0))
        # By a weak reference: a builder that holds itself alive keeps its whole lattice until the collector runs.
        self.exact = ExactVertices(net, start.points, partial(LayerWalk._parents_of, proxy(self)))
        self.exact_decisions = self.float_decisions = 0
        self.complete, self.reached = True, self.signs.shape[1]
        self.run = ENDLESS
        self.paused: Callable[[], bool] = never

    @property
    def vertices(self) -> tuple[Any, ...]:
        """The tables that kernels fill, one row for each vertex."""
        return self.table, self.error, self.signs, self.parents

    @property
    def room(self) -> int:
        """How many vertices fit."""
        return min(map(len, self.vertices))

    def reserve_rows(self, count: int) -> None:
        """Room for so many vertices; with the first many of them the guard of the run is asked."""
        if count > LARGE and self.run.guard is not None:
            guard, self.run = self.run.guard, replace(self.run, guard=None)
            guard()
        for name in ("table", "error", "signs", "parents"):
            if count > len(getattr(self, name)):
                setattr(self, name, grown(getattr(self, name)[: self.num_vertices], count))

    def _parents_of(self, vertex: int) -> tuple[int, int, int]:
        u, v, column = self.parents[vertex]
        return int(u), int(v), int(column) - self.sides

    @property
    @abstractmethod
    def status(self) -> str:
        """How far the work is, in words."""

    @property
    @abstractmethod
    def size(self) -> int:
        """What a limit is compared with."""

    @abstractmethod
    def split_layer(self, layer: LayerStep) -> Iterator[int]:
        """Split by the neurons of a layer; yields each column of the sign table that is done."""

    @abstractmethod
    def reset_carriers(self) -> None:
        """Values of the new layer are affine on edges: every edge is its own carrier again."""

    def walk(self, run: Run, interrupted: Callable[[], bool]) -> None:
        """Split by all neurons in order, or by as many as can be before an interruption or the deadline.

        The run's progress is told of every neuron that is done.
        """
        values: dict[int, Bounded] = {0: self.inputs}
        total = self.net.num_signs
        self.run = run
        algebra = HomogeneousBounds(lambda: self.t)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                for place in switches(self.net.layout, values, algebra, {}, keep=(0,)):
                    match place.node:
                        case PiecewiseLinear() as node:
                            self.paused = partial(self._stops, place.start, total, interrupted)
                            if not self._split_by(place, node, values, total, interrupted):
                                return
                        case MaxPool():  # its inputs have been compared before, see pools.py
                            self.signs[: self.num_vertices, self.sides + place.start : self.sides + place.stop] = 0
                        case _:
                            assert_never(place.node)
        finally:
            self.paused = never  # a bound method of our own would keep the lattice alive

    def _split_by(
        self,
        place: Place,
        node: PiecewiseLinear,
        values: dict[int, Bounded],
        total: int,
        interrupted: Callable[[], bool],
    ) -> bool:
        """Split by one layer, with the values behind it; False if the walk ends here."""
        try:
            layer = self._begin_layer(place.index, node, values, self.sides + place.start)
        except Stopped:
            LayerWalk.drop_from(self, self.sides + place.start)  # nothing is split by this layer yet
            return False
        for column in self.split_layer(layer):
            if self._stops(column - self.sides + 1, total, interrupted, self.run.limit):
                self.drop_from(column + 1)
                break
        self._end_layer(layer, node, values)
        return self.complete

    def _stops(self, done: int, total: int, interrupted: Callable[[], bool], limit: int | None = None) -> bool:
        try:
            self.run.step(done, total, self.status)
        except STOPPED:
            return done < total
        return done < total and (interrupted() or (limit is not None and self.size > limit))

    def drop_from(self, column: int) -> None:
        """The complex is that of the neurons before this column."""
        self.complete, self.reached = False, column
        self.signs[:, column:] = 0

    def _begin_layer(self, index: int, node: PiecewiseLinear, values: dict[int, Bounded], begin: int) -> LayerStep:
        """Lay out the table for this layer and certify the signs of its neurons at the vertices there are."""
        count = self.num_vertices
        keys = [k for k in sorted(values) if k in (0, node.source) or self.net.layout.last_use[k] > index]
        parts = [values[k] for k in keys]
        if self.t is not None:
            keys, parts = [*keys, T], [*parts, self.t]
        order = sorted(range(len(keys)), key=lambda i: keys[i] == node.source)  # columns that are done are at the end
        keys, parts = [keys[i] for i in order], [parts[i] for i in order]
        self.table = np.concatenate([p.value for p in parts], axis=1)
        self.error = np.concatenate([p.error for p in parts], axis=1)
        ends = np.cumsum([p.value.shape[1] for p in parts])
        slices = {k: slice(int(e) - p.value.shape[1], int(e)) for k, p, e in zip(keys, parts, ends, strict=True)}
        copies = proportional(self.net, node)
        layer = LayerStep(index, node.source, begin, begin + node.num_signs, slices, copies)
        own = Bounded(self.table[:, slices[node.source]], self.error[:, slices[node.source]])
        signs = np.where(own.decided, np.sign(own.value), kernels.UNKNOWN).astype(np.int8)
        signs[:, node.linear] = 1
        signs[:, list(copies)] = 1  # set right at the end of the layer
        self.signs[:count, begin : layer.end] = signs
        self.float_decisions += int((signs != kernels.UNKNOWN).sum())
        self.exact_decisions += self.decide_signs(
            np.flatnonzero((signs == kernels.UNKNOWN).any(axis=1)), layer, PATIENCE
        )
        self.reset_carriers()
        return layer

    def decide_signs(self, vertices: IntArray, layer: LayerStep, patience: float = np.inf) -> int:
        """Decide open signs exactly; the floats of these vertices become as good as floats can be. Returns how many.

        Raises :class:`Stopped` if somebody asks for it, which is looked for after so many seconds.
        """
        decided, soon = 0, monotonic() + patience
        for some in np.array_split(vertices, len(vertices) // 64 + 1):
            if not len(some):
                continue
            if monotonic() > soon:
                soon = monotonic() + patience
                if self.paused():
                    raise Stopped
            values = self.exact.values(some, layer.source)
            signs = exact_signs(values[layer.source])
            own = self.signs[some, layer.begin : layer.end]
            decided += int((own == kernels.UNKNOWN).sum())
            self.signs[some, layer.begin : layer.end] = np.where(own == kernels.UNKNOWN, signs, own)
            scales = self.exact.scales(some)
            for key, columns in layer.slices.items():
                if key == T:
                    t = np.array([float(self.exact.point(int(v))[-1] > 0) for v in some])
                    self.table[some, columns], self.error[some, columns] = t[:, None], 0.0
                else:
                    done = layer.done if key == layer.source else 0
                    self.table[some, columns], self.error[some, columns] = rounded(values[key][:, done:], scales)
        return decided

    def _is_last(self, layer: LayerStep) -> bool:
        """Whether nobody asks for the values of this layer's neurons."""
        return bool(layer.end == self.sides + self.net.num_signs)

    def without_done(self, layer: LayerStep, first: int) -> LayerStep:
        """The layer when all neurons before this one are done; in the last layer the table becomes smaller."""
        if first == layer.done or layer.source == 0 or not self._is_last(layer):
            return layer
        begin, count = layer.slices[layer.source].start, self.num_vertices
        kept = np.r_[:begin, begin + first - layer.done : self.table.shape[1]]
        self.table, self.error = self.table[:count, kept], self.error[:count, kept]
        slices = layer.slices | {layer.source: slice(begin, len(kept))}
        return replace(layer, slices=slices, done=first)

    def _end_layer(self, layer: LayerStep, node: PiecewiseLinear, values: dict[int, Bounded]) -> None:
        """Hand the values at all vertices, old and new, to the program, and apply the activation."""
        count = self.num_vertices
        signs = self.signs[:count, layer.begin : layer.end]
        for copy, (original, sign) in layer.copies.items():
            if layer.begin + copy < self.reached:  # signs of others are not told
                signs[:, copy] = sign * signs[:, original]
        for key, columns in layer.slices.items():
            if key and key == layer.source and self._is_last(layer):
                continue  # see :meth:`without_done`
            part = Bounded(self.table[:count, columns], self.error[:count, columns])
            if key == T:
                self.t = part
            else:
                values[key] = part
        self.inputs = values[0]
        self.exact.forget()
        self.table = self.error = np.zeros((0, 0))  # they are parts of the values now
        if self._is_last(layer) or not self.complete:
            return  # the last activation: nobody asks for its values
        source = values[layer.source]
        behind = BOUNDED.gate(source, signs > 0, node.leak)
        known = signs != 0  # a zero is exact whatever the slope
        values[layer.index + 1] = Bounded(*(np.where(known, x, 0.0) for x in (behind.value, behind.error)))
