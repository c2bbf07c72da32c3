"""The canonical polyhedral complex with cells of every dimension, by splitting a face lattice neuron by neuron.

The only geometric question is the sign of a neuron at a vertex, and every such sign is certified: by a float value
with an error bound, or exactly. All else is combinatorics. A cell is split iff the neuron is positive at one of its
vertices and negative at another; a vertex, edge or facet inside the zero set, coincident neurons, and neurons that
vanish identically are cases like any other. (Neuron by neuron as in J. A. Grigsby and K. Lindsey, *On transversality
of bent hyperplane arrangements and the topological expressiveness of ReLU neural networks*, 2022; that only signs at
vertices matter is also the idea of A. Berzins, *Polyhedral complex extraction from ReLU networks using edge
subdivision*, 2023, which keeps vertices and edges alone and needs generic parameters.)
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flint
import numpy as np

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.geometry import lattice_kernels as kernels
from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.geometry.lattice_exact import ExactVertices, exact_signs, rounded
from fiberscope.geometry.lattice_levels import BLOCK, HomogeneousBounds, Layer, Level, T, grown, proportional
from fiberscope.geometry.lattice_start import Start, box_start, fan_start, on_slice, sides_network
from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool, PiecewiseLinear
from fiberscope.network.run import step
from fiberscope.numerics.arithmetic import Bounded, BoundedArithmetic
from fiberscope.numerics.cutoffs import COORDINATE_ERROR
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, U, gamma, round_up

Progress = Callable[[int, int, str], Any]
"""Called as ``progress(done, total, text)`` after every neuron; may raise ``KeyboardInterrupt`` to stop."""


def lattice_cells(net: Network, domain: Domain, progress: Progress | None = None, limit: int | None = None) -> Cells:
    """All cells of the canonical complex of ``net`` on ``domain``, of every dimension.

    The result is not ``complete`` when interrupted, or when there are more than ``limit`` regions: then it is the
    complex of the neurons that were reached, and the signs of the others are given as 0.

    >>> net = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> cells = lattice_cells(net, Box([-1, -1], [1, 1]))
    >>> [cells.count(k) for k in range(3)], cells.complete
    ([9, 12, 4], True)
    """
    if isinstance(domain, Plane):
        net, domain = on_slice(net, domain)
    check_supported(net, domain)
    builder = LatticeBuilder(net, start_cells(net, domain))
    with deferred_interrupt() as interrupted:
        builder.run(progress, limit, interrupted)
    return builder.cells()


def check_supported(net: Network, domain: Domain) -> None:
    """Raise unless the engine takes this network on this domain."""
    if net.in_size != domain.dimension:
        raise InputError(f"domain: expected dimension {net.in_size}, the network's input, got {domain}")
    pool = next((index for index, node in enumerate(net.nodes) if isinstance(node, MaxPool)), None)
    if pool is not None:
        raise UnsupportedModelError(
            f"node {pool}: max pooling is not supported in dimension {domain.dimension}; "
            "take net.as_mlp(), or a two-dimensional slice (Plane)"
        )


def start_cells(net: Network, domain: Box | Orthant | Space | Polytope) -> Start:
    if isinstance(domain, Box):
        return box_start(domain)
    start = fan_start(net, domain)
    if not (start.domain_signs > 0).any():
        return start
    sides = LatticeBuilder(sides_network(domain), start)
    sides.run(None, None, lambda: False)
    return _inside(sides, domain)


def _inside(sides: LatticeBuilder, domain: Domain) -> Start:
    """What is left of a fan where no side of the domain is positive."""
    cells = sides.cells()
    keep: list[BoolArray] = [np.asarray(~(cells.signs(k) > 0).any(axis=1)) for k in range(cells.dimension + 1)]
    if not keep[-1].any():
        raise InputError(f"domain: expected a set with interior points, got {domain}, which has none")
    # Only faces of the remaining top cells belong to the domain (a face may touch it from outside).
    for k in range(cells.dimension, 0, -1):
        below = np.zeros(cells.count(k - 1), dtype=bool)
        for c in np.flatnonzero(keep[k]):
            below[cells.boundary[k - 1][int(c)]] = True
        keep[k - 1] &= below
    number = [np.cumsum(mask) - 1 for mask in keep]
    boundary = tuple(
        tuple(
            tuple(int(number[k - 1][f]) for f in cells.boundary[k - 1][int(c)] if keep[k - 1][f])
            for c in np.flatnonzero(keep[k])
        )
        for k in range(1, cells.dimension + 1)
    )
    vertices = np.flatnonzero(keep[0])
    points = tuple(sides.exact.point(int(v)) for v in vertices)
    return Start(points, boundary, cells.vertex_signs[vertices])


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


class LatticeBuilder:
    """The lattice under construction.

    ``table`` and ``error`` hold, for every vertex, float values of all live values of the program and bounds of their
    errors; ``signs`` holds certified signs, those of the domain's sides first and then the network's.
    """

    def __init__(self, net: Network, start: Start) -> None:
        self.net = net
        self.inputs, self.t = start.coordinates()
        self.levels = [Level.empty(), *(Level.of(facets) for facets in start.boundary)]
        self.sides = start.domain_signs.shape[1]
        self.levels[0].reserve(len(start.points), 0)
        self.levels[0].count = len(start.points)
        self.signs = np.zeros((len(start.points), self.sides + net.num_signs), dtype=np.int8)
        self.signs[:, : self.sides] = start.domain_signs
        self.parents = np.full((len(start.points), 3), -1, dtype=np.int32)
        self.carrier = np.zeros((0, 2), dtype=np.int32)
        self.table = self.error = np.zeros((0, 0))
        self.exact = ExactVertices(net, start.points, self._parents_of)
        self.exact_decisions = self.float_decisions = 0
        self.complete, self.reached = True, self.signs.shape[1]
        self.last_use = [
            max((i for i, n in enumerate(net.nodes) if k in n.sources), default=-1) for k in range(len(net.nodes) + 1)
        ]

    @property
    def dimension(self) -> int:
        return len(self.levels) - 1

    @property
    def num_vertices(self) -> int:
        return self.levels[0].count

    def _parents_of(self, vertex: int) -> tuple[int, int, int]:
        u, v, column = self.parents[vertex]
        return int(u), int(v), int(column) - self.sides

    # -- layers ------------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None, limit: int | None, interrupted: Callable[[], bool]) -> None:
        """Split by all neurons in order, or by as many as can be before an interruption."""
        values: dict[int, Bounded] = {0: self.inputs}
        done, total = 0, self.net.num_signs
        for index, node in enumerate(self.net.nodes):
            if done == total:
                break
            if isinstance(node, PiecewiseLinear):
                layer = self._begin_layer(index, node, values, self.sides + done)
                for column in self._split_all(layer):
                    if self._stops(column - self.sides + 1, total, progress, limit, interrupted):
                        self._drop_from(column + 1)
                        break
                self._end_layer(layer, node, values)
                if not self.complete:
                    return
                done += node.num_signs
            else:
                arithmetic = BoundedArithmetic() if self.t is None else HomogeneousBounds(self.t)
                with np.errstate(over="ignore", invalid="ignore"):
                    values[index + 1] = step(node, values, arithmetic)
            for key in [k for k in values if k and self.last_use[k] <= index]:
                del values[key]

    def _stops(
        self, done: int, total: int, progress: Progress | None, limit: int | None, interrupted: Callable[[], bool]
    ) -> bool:
        try:
            if progress is not None:
                progress(done, total, self.status())
        except KeyboardInterrupt:
            return done < total
        return done < total and (interrupted() or (limit is not None and self.levels[-1].count > limit))

    def status(self) -> str:
        """How far the work is, in words."""
        return f"{self.levels[-1].count} regions"

    def _drop_from(self, column: int) -> None:
        self.complete, self.reached = False, column
        self.signs[:, column:] = 0

    def _begin_layer(self, index: int, node: PiecewiseLinear, values: dict[int, Bounded], begin: int) -> Layer:
        """Lay out the table for this layer and certify the signs of its neurons at the vertices there are."""
        count = self.num_vertices
        keys = [k for k in sorted(values) if k in (0, node.source) or self.last_use[k] > index]
        parts = [values[k] for k in keys]
        if self.t is not None:
            keys, parts = [*keys, T], [*parts, self.t]
        self.table = np.concatenate([p.value for p in parts], axis=1)
        self.error = np.concatenate([p.error for p in parts], axis=1)
        ends = np.cumsum([p.value.shape[1] for p in parts])
        slices = {k: slice(int(e) - p.value.shape[1], int(e)) for k, p, e in zip(keys, parts, ends, strict=True)}
        copies = proportional(self.net, node)
        layer = Layer(index, node.source, begin, begin + node.num_signs, slices, copies)
        own = Bounded(self.table[:, slices[node.source]], self.error[:, slices[node.source]])
        signs = np.where(own.decided, np.sign(own.value), kernels.UNKNOWN).astype(np.int8)
        signs[:, node.linear] = 1
        signs[:, list(copies)] = 1  # set right at the end of the layer
        self.signs[:count, begin : layer.end] = signs
        self.float_decisions += int((signs != kernels.UNKNOWN).sum())
        self._decide(np.flatnonzero((signs == kernels.UNKNOWN).any(axis=1)), layer)
        edges = self.levels[1]
        self.carrier = grown(self.carrier[:0], len(edges.start))
        self.carrier[: edges.count] = edges.pool[: 2 * edges.count].reshape(-1, 2)
        return layer

    def _decide(self, vertices: IntArray, layer: Layer) -> None:
        """Decide open signs exactly; the floats of these vertices become as good as floats can be."""
        for some in np.array_split(vertices, len(vertices) // 256 + 1):
            if not len(some):
                continue
            values = self.exact.values(some, layer.source)
            signs = exact_signs(values[layer.source])
            own = self.signs[some, layer.begin : layer.end]
            self.exact_decisions += int((own == kernels.UNKNOWN).sum())
            self.signs[some, layer.begin : layer.end] = np.where(own == kernels.UNKNOWN, signs, own)
            scales = self.exact.scales(some)
            for key, columns in layer.slices.items():
                if key == T:
                    t = np.array([float(self.exact.point(int(v))[-1] > 0) for v in some])
                    self.table[some, columns], self.error[some, columns] = t[:, None], 0.0
                else:
                    self.table[some, columns], self.error[some, columns] = rounded(values[key], scales)

    def _end_layer(self, layer: Layer, node: PiecewiseLinear, values: dict[int, Bounded]) -> None:
        """Hand the values at all vertices, old and new, to the program, and apply the activation."""
        count = self.num_vertices
        signs = self.signs[:count, layer.begin : layer.end]
        for copy, (original, sign) in layer.copies.items():
            signs[:, copy] = sign * signs[:, original]
        for key, columns in layer.slices.items():
            part = Bounded(self.table[:count, columns], self.error[:count, columns])
            if key == T:
                self.t = part
            else:
                values[key] = part
        self.inputs = values[0]
        self.exact.forget()
        if layer.end == self.sides + self.net.num_signs or not self.complete:
            return  # the last activation: nobody asks for its values
        source = values[layer.source]
        slopes = np.where(signs > 0, 1.0, node.slopes)
        bound = np.where(slopes == 1, source.error, round_up(np.abs(slopes) * source.error, 2))
        rounding = np.where(slopes == 1, 0.0, gamma(1) * np.abs(slopes * source.value))
        zero = (signs == 0) | (slopes == 0)
        values[layer.index + 1] = Bounded(
            np.where(zero, 0.0, slopes * source.value), np.where(zero, 0.0, round_up(bound + rounding, 2))
        )

    # -- neurons -----------------------------------------------------------------------------------------------

    def _split_all(self, layer: Layer) -> Iterator[int]:
        """Split by the neurons of a layer, block by block; yields each column when the complex is whole again."""
        signs = self.signs[: self.num_vertices, layer.begin : layer.end]
        # A neuron with one sign at all vertices of the complex has it everywhere.
        both = np.flatnonzero((signs > 0).any(axis=0) & (signs < 0).any(axis=0)) + layer.begin
        for first in range(0, len(both), BLOCK):
            block = both[first : first + BLOCK]
            vertices = self.levels[0]
            kernels.vertex_masks(self.signs, block, 0, vertices.count, vertices.masks)
            for below, level in zip(self.levels, self.levels[1:], strict=False):
                kernels.cell_masks(level.start, level.length, level.pool, below.masks, level.count, level.masks)
                level.head[:] = -1
                kernels.enlist_all(level.count, level.masks, level.head, level.link)
            for bit, column in enumerate(block):
                self.split(bit, int(column), block, layer)
                yield int(column)

    def split(self, bit: int, column: int, block: IntArray, layer: Layer) -> None:
        """Split every cell that the neuron crosses, vertices first, then from edges up to the top cells."""
        crossed = [np.zeros(0, np.int32), *(self.crossed(level, bit) for level in self.levels[1:])]
        if not any(len(c) for c in crossed):
            return
        sizes = [len(c) for c in crossed] + [0]
        before = [level.count for level in self.levels]
        for k, level in enumerate(self.levels):
            level.reserve(sizes[k] + sizes[k + 1], 2 * (sizes[k] + sizes[k + 1]))
        self.cut(crossed[1], bit, column, block, layer)
        for k in range(2, self.dimension + 1):
            level, facets = self.levels[k], self.levels[k - 1]
            bases = (before[k], before[k - 1] + sizes[k - 1], before[k - 1], before[k - 2] + sizes[k - 2])
            done = 0
            while True:
                done, level.used, facets.used = kernels.split_cells(
                    crossed[k], done, bit, level.arrays, level.head, facets.arrays, facets.head,
                    self.levels[k - 2].masks, bases, level.used, facets.used,
                )  # fmt: skip
                if done == sizes[k]:
                    break
                level.reserve(0, level.used + 4096)
                facets.reserve(0, facets.used + 4096)
            if k == 2:
                fresh = slice(bases[1], bases[1] + sizes[2])
                self.carrier[fresh] = facets.pool[2 * fresh.start : 2 * fresh.stop].reshape(-1, 2)
        for k, level in enumerate(self.levels):
            level.count += sizes[k] + sizes[k + 1]
            kernels.forget(crossed[k], level.masks)

    @staticmethod
    def crossed(level: Level, bit: int) -> Any:
        out = np.empty(256, dtype=np.int32)
        while (count := kernels.drain(level.head[bit], level.link, level.masks, out)) < 0:
            out = np.empty(8 * len(out), dtype=np.int32)
        return out[:count]

    def cut(self, edges: Any, bit: int, column: int, block: IntArray, layer: Layer) -> None:
        level, vertices = self.levels[1], self.levels[0]
        first, minus = vertices.count, level.count
        last = first + len(edges)
        if last > len(self.table):
            for name in ("table", "error", "signs", "parents"):
                setattr(self, name, grown(getattr(self, name), 2 * last))
        self.grow_carrier()
        where = (layer.begin, layer.end, layer.slices[layer.source].start)
        unsure = np.empty(len(edges), dtype=np.int64)
        count = kernels.cut_edges(
            edges, level.pool, self.carrier, column, where, self.table, self.error, self.signs, self.parents, first,
            unsure,
        )  # fmt: skip
        self.float_decisions += len(edges)
        self._decide(unsure[:count], layer)
        kernels.vertex_masks(self.signs, block, first, last, vertices.masks)
        kernels.split_edges(edges, bit, level.arrays, self.carrier, level.head, vertices.masks, first, minus)
        level.used = 2 * (minus + len(edges))

    def grow_carrier(self) -> None:
        """As much room for the carriers of edges as for the edges themselves."""
        if len(self.levels[1].start) > len(self.carrier):
            self.carrier = grown(self.carrier, len(self.levels[1].start))

    # -- result ------------------------------------------------------------------------------------------------

    def cells(self) -> Cells:
        """The finished complex."""
        count = self.num_vertices
        rays = errors = None
        if self.t is None:
            points, errors = self._sharpened()
        else:
            rays = self._rays()
            points = self._finite(self.inputs.value, rays, self.t)
        boundary = tuple(level.incidence() for level in self.levels[1:])
        if self.dimension == 2:
            kernels.around_polygons(boundary[1].indptr, boundary[1].indices, boundary[0].indices)
        return Cells(
            points=np.ascontiguousarray(points),
            vertex_signs=np.ascontiguousarray(self.signs[:count, self.sides :]),
            boundary=boundary,
            point_errors=errors,
            rays=rays,
            exact_decisions=self.exact_decisions,
            float_decisions=self.float_decisions,
            domain_signs=np.ascontiguousarray(self.signs[:count, : self.sides]),
            complete=self.complete,
        )

    def _sharpened(self) -> tuple[FloatArray, FloatArray]:
        """Coordinates of the vertices, made anew where rounding has spoilt them, and bounds of their errors."""
        value, error = self.inputs.value.copy(), self.inputs.error.max(axis=1, initial=0.0)
        size = np.abs(value).max(axis=1, initial=1.0)
        for v in np.flatnonzero(~(error <= COORDINATE_ERROR * size)):
            *x, scale = self.exact.point(int(v))
            value[v] = [float(flint.arb(a) / scale) for a in x]
            error[v] = 4 * U * np.abs(value[v]).max()
        return value, error

    def _finite(self, points: FloatArray, rays: BoolArray, t: Bounded) -> FloatArray:
        """Points from homogeneous coordinates; exactly where t is lost in its error."""
        sure = (t.value > 4 * t.error)[:, 0]
        divisor = np.where(rays | ~sure, 1.0, t.value[:, 0])
        points = points / divisor[:, None]
        for v in np.flatnonzero(~sure & ~rays):
            *x, scale = self.exact.point(int(v))
            points[v] = [float(flint.arb(a) / scale) for a in x]
        return points

    def _rays(self) -> Any:
        """Which vertices are at infinity: those cut from an edge with both ends there."""
        rays = np.zeros(self.num_vertices, dtype=bool)
        assert self.t is not None
        for v, (a, b, _) in enumerate(self.parents[: self.num_vertices]):
            rays[v] = (rays[a] and rays[b]) if a >= 0 else self.exact.point(v)[-1] == 0
        return rays
