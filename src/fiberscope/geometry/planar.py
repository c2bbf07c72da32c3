"""Regions of a network on a polygon of the plane, or on a planar slice of its input space, exactly and fast.

The complex is split switch by switch. On a polygon of the complex so far every preactivation is affine, so everything
about the next layer follows from three kinds of decisions: the signs at the vertices; the order in which lines cross
an edge; the order in which they cross each other's chords inside a polygon. Each decision is made by floats with a
rigorous error bound, and by integers where the bound does not suffice. Which chords cross, which faces there are and
which signs they have is then combinatorics of positions on the boundary. A max pooling is split by the differences of
its windows' inputs, and faces with equal winners are joined again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry import planar_kernels as kernels
from fiberscope.geometry import planar_values as track
from fiberscope.geometry.cells import Cells, Incidence, pool_layout
from fiberscope.geometry.domains import Box, Plane, Polytope
from fiberscope.geometry.planar_exact import (
    Oracle,
    Stage,
    Triple,
    dot,
    pool_signs,
    ranks_between,
    sign,
    window_pairs,
)
from fiberscope.geometry.planar_mesh import Mesh, corner_values, first_mesh, merged, winner_signs
from fiberscope.geometry.planar_values import Tracked
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear, Switch
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray

Progress = Callable[[int, int, str], None]
"""Called as ``progress(done, total, text)``."""

PlanarDomain = Box | Plane | Polytope

_CHUNK_BYTES = 1 << 28
"""Counting goes on in pieces when the values of all vertices would need more than this."""

XY = -1
"""Key of the coordinates among the values of a mesh."""


@dataclass(frozen=True, slots=True)
class PlanarCount:
    """How many regions there are, and how the decisions were made."""

    num_regions: int
    exact_decisions: int
    float_decisions: int

    def __int__(self) -> int:
        return self.num_regions

    __index__ = __int__

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "num_regions": self.num_regions,
            "exact_decisions": self.exact_decisions,
            "float_decisions": self.float_decisions,
        }


def planar_cells(net: Network, domain: PlanarDomain, *, progress: Progress | None = None) -> Cells:
    """The canonical complex of ``net`` on a two-dimensional domain: vertices, edges, polygons, certified signs.

    Parameters
    ----------
    net
        Any network; two inputs for a box or polytope, ``plane.ambient`` inputs for a plane.
    domain
        A box in two dimensions, a bounded two-dimensional polytope, or a :class:`Plane`.
    progress
        Called after every switch with how many are done.

    Examples
    --------
    The four quadrants:

    >>> net = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> cells = planar_cells(net, Box.cube(2))
    >>> [cells.count(k) for k in range(3)]
    [9, 12, 4]
    >>> sorted(map(tuple, cells.top_signs.tolist()))
    [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    """
    engine = _Engine(net, domain)
    mesh, node = engine.start(), 0
    total = len(engine.switches)
    for done in range(total):
        node = engine.advance(mesh, node)
        mesh = engine.split(mesh, done, node)
        engine.after(mesh, done, node)
        node += 1
        if progress is not None:
            progress(done + 1, total, f"{len(mesh.indptr) - 1} polygons")
    return engine.cells(mesh)


def planar_count(net: Network, domain: PlanarDomain, *, progress: Progress | None = None) -> PlanarCount:
    """The number of regions alone: the last layer is counted without being built.

    >>> net = Network([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, 0.0], [0.0]])
    >>> int(planar_count(net, Box.cube(2)))  # three lines through one point
    6
    """
    engine = _Engine(net, domain)
    found = engine.count(engine.start(), 0, 0, progress)
    return PlanarCount(found, engine.oracle.decisions, engine.float_decisions)


@dataclass(slots=True, eq=False)
class _Crossings:
    """Points on the edges: crossings per edge, in order, and one point for every distinct rank."""

    ptr: IntArray
    label: IntArray
    rank: IntArray
    point_ptr: IntArray
    points: tuple[IntArray, IntArray, FloatArray, FloatArray]


@dataclass(slots=True, eq=False)
class _Meetings:
    """Chords of the polygons, and the crossings on every chord in order."""

    slot_ptr: IntArray
    chords: tuple[IntArray, ...]
    ptr: IntArray
    other: IntArray
    rank: IntArray
    t: FloatArray
    d: FloatArray
    seen: IntArray
    inside: IntArray
    segments: IntArray


class _Engine:
    """One run: the program on the plane, the exact oracle, and the stages that vertices refer to."""

    def __init__(self, net: Network, domain: PlanarDomain) -> None:
        self.domain = domain
        self.nodes, self.sides = _setting(net, domain)
        self.net_signs = net.num_signs
        self.switch_nodes = [k for k, x in enumerate(self.nodes) if isinstance(x, PiecewiseLinear | MaxPool)]
        self.switches: list[Switch] = [self.nodes[k] for k in self.switch_nodes]  # type: ignore[misc]
        self.pairs = [window_pairs(x) if isinstance(x, MaxPool) else None for x in self.switches]
        sizes = [x.num_signs if p is None else len(p) for x, p in zip(self.switches, self.pairs, strict=True)]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.oracle = Oracle(self.nodes, self.sides, self.offsets)
        self.stages: list[Stage] = []
        self.float_decisions = 0

    # -- the program at the vertices -----------------------------------------------------------------------------

    @cached_property
    def last_use(self) -> list[int]:
        """Index of the last node before or at the last switch that reads each value."""
        last = [-1] * (len(self.nodes) + 1)
        for index, node in enumerate(self.nodes[: self.switch_nodes[-1] + 1] if self.switch_nodes else ()):
            for source in node.sources:
                last[source] = index
        return last

    def start(self) -> Mesh:
        mesh, points = first_mesh(self.sides)
        mesh.values = {XY: Tracked.exact(points), 0: corner_values(mesh, points, self.sides)}
        self.stages = [Stage(mesh.indptr, mesh.loop_v, [], [])]
        return mesh

    def advance(self, mesh: Mesh, node: int) -> int:
        """Evaluate the program up to the next switch; the index of that node."""
        values = mesh.values
        tight = self.switch_nodes[-1] > node
        while node not in self.switch_nodes:
            step = self.nodes[node]
            if isinstance(step, Affine):
                more = any(k > node for k in self.switch_nodes[1:]) and tight
                values[node + 1] = track.affine(step, values[step.source], more)
            elif isinstance(step, Add):
                values[node + 1] = track.add([values[s] for s in step.sources])
            elif isinstance(step, Concat):
                values[node + 1] = track.concat([values[s] for s in step.sources], step.order)
            self._release(values, node)
            node += 1
        return node

    def _release(self, values: dict[int, Tracked], node: int) -> None:
        for key in [k for k in values if k != XY and self.last_use[k] <= node]:
            del values[key]

    def after(self, mesh: Mesh, switch: int, node: int) -> None:
        """The switch's own value at all vertices of the split mesh."""
        if switch == len(self.switches) - 1:
            return
        step, values = self.switches[switch], mesh.values
        if isinstance(step, MaxPool):
            values[node + 1] = track.pool(step, values[step.source])
        else:
            values[node + 1] = track.activate(step, values[step.source], mesh.signs[switch])
        self._release(values, node)

    def functionals(self, mesh: Mesh, switch: int) -> Tracked:
        value = mesh.values[self.switches[switch].source]
        pairs = self.pairs[switch]
        return value if pairs is None else track.differences(value, pairs)

    # -- counting ------------------------------------------------------------------------------------------------

    def count(self, mesh: Mesh, switch: int, node: int, progress: Progress | None = None) -> int:
        """Regions inside the polygons of a mesh, in pieces of bounded memory."""
        if switch == len(self.switches):
            return mesh.num_polygons
        width = max(self.offsets[k + 1] - self.offsets[k] for k in range(switch, len(self.switches)))
        pieces = max(1, int(np.ceil(8.0 * width * mesh.num_vertices / _CHUNK_BYTES)))
        if pieces == 1:
            return self._count_piece(mesh, switch, node, progress)
        total, cuts = 0, np.linspace(0, mesh.num_polygons, pieces + 1).astype(np.int64)
        for lo, hi in zip(cuts[:-1], cuts[1:], strict=True):
            total += self._count_piece(mesh.part(int(lo), int(hi)), switch, node, None)
            if progress is not None:
                progress(int(hi), mesh.num_polygons, f"{total} regions")
        return total

    def _count_piece(self, mesh: Mesh, switch: int, node: int, progress: Progress | None) -> int:
        node = self.advance(mesh, node)
        if switch == len(self.switches) - 1 and isinstance(self.switches[switch], PiecewiseLinear):
            _, _, _, meetings = self._arrange(mesh, switch)
            self.stages.pop()
            if meetings is None:
                return mesh.num_polygons
            return mesh.num_polygons + int(meetings.segments.sum() - meetings.inside.sum())
        finer = self.split(mesh, switch, node)
        self.after(finer, switch, node)
        found = self.count(finer, switch + 1, node + 1, progress)
        self.stages.pop()
        return found

    # -- one layer -----------------------------------------------------------------------------------------------

    def _arrange(self, mesh: Mesh, switch: int) -> tuple[SignArray, Stage, _Crossings, _Meetings | None]:
        """All decisions of one switch: signs at vertices, points on edges, order of crossings on chords."""
        value = self.functionals(mesh, switch)
        stage = Stage(mesh.indptr, mesh.loop_v, mesh.signs, [_part(s) for s in self.switches[:switch]])
        self.stages.append(stage)
        signs = self._signs(mesh, switch, value, stage)
        crossings = self._cross_edges(mesh, switch, value, signs, stage)
        meetings = self._cross_chords(mesh, switch, value, signs, stage, crossings)
        return signs, stage, crossings, meetings

    def _signs(self, mesh: Mesh, switch: int, value: Tracked, stage: Stage) -> SignArray:
        V, n = value.z.shape
        signs = np.ones((V, -(-n // 8) * 8), dtype=np.int8)
        undecided = kernels.float_signs(value.z, value.c, value.r, value.floor, signs)
        node = self.switches[switch]
        if isinstance(node, PiecewiseLinear):
            signs[:, np.flatnonzero(node.linear)] = 1
        elif undecided and mesh.values[node.source].exact_zeros:
            pairs, z = self.pairs[switch], mesh.values[node.source].z
            assert pairs is not None
            both = (z[:, pairs[:, 0]] == 0) & (z[:, pairs[:, 1]] == 0)
            signs[:, :n][both & (signs[:, :n] == 2)] = 0
        self.float_decisions += V * n
        if undecided:
            self._decide(mesh, switch, signs, stage)
        return signs

    def _decide(self, mesh: Mesh, switch: int, signs: SignArray, stage: Stage) -> None:
        """Exact signs where the float bound left them open."""
        vertices, columns = np.nonzero(signs == 2)
        self.oracle.decisions += len(vertices)
        self.float_decisions -= len(vertices)
        polygon = np.zeros(mesh.num_vertices, dtype=np.int64)
        polygon[mesh.loop_v] = np.repeat(np.arange(mesh.num_polygons), np.diff(mesh.indptr))
        first = int(self.offsets[switch])
        for v, j in zip(vertices.tolist(), columns.tolist(), strict=True):
            line = self.oracle.line(stage, int(polygon[v]), first + j)
            signs[v, j] = sign(dot(line, self._point(mesh, v)))

    def _point(self, mesh: Mesh, vertex: int) -> Triple:
        stage, polygon, first, second = mesh.defined[vertex].tolist()
        return self.oracle.point(self.stages[stage], polygon, first, second)

    def _cross_edges(self, mesh: Mesh, switch: int, value: Tracked, signs: SignArray, stage: Stage) -> _Crossings:
        words = signs.view(np.uint64)
        counts = np.empty(len(mesh.ends), dtype=np.int64)
        kernels.count_crossings(mesh.ends, words, counts)
        ptr = _pointers(counts)
        label, t, d = np.empty(ptr[-1], dtype=np.int64), np.empty(ptr[-1]), np.empty(ptr[-1])
        sure = np.ones(len(counts), dtype=bool)
        kernels.fill_crossings(mesh.ends, words, value.z, value.c, value.r, value.floor, ptr, label, t, d, sure)
        rank = np.arange(ptr[-1]) - np.repeat(ptr[:-1], counts)
        self.float_decisions += int(ptr[-1])
        for e in np.flatnonzero(~sure).tolist():
            here = slice(int(ptr[e]), int(ptr[e + 1]))
            self._order(here, rank, (label, t, d), self._edge_ranks(mesh, switch, e, label[here], stage))
        counts[counts > 0] = rank[ptr[1:][counts > 0] - 1] + 1
        point_ptr = _pointers(counts)
        points = (
            np.empty(point_ptr[-1], dtype=np.int64),
            np.empty(point_ptr[-1], dtype=np.int64),
            np.empty(point_ptr[-1]),
            np.empty(point_ptr[-1]),
        )
        kernels.edge_points(ptr, rank, t, d, label, point_ptr, points)
        return _Crossings(ptr, label, rank, point_ptr, points)

    def _order(self, here: slice, rank: IntArray, arrays: tuple[Any, ...], found: list[int]) -> None:
        """Put exact ranks in place and bring the arrays in their order."""
        order = np.argsort(found, kind="stable")
        rank[here] = np.asarray(found)[order]
        for array in arrays:
            array[here] = array[here][order]
        self.oracle.decisions += len(found)
        self.float_decisions -= len(found)

    def _edge_ranks(self, mesh: Mesh, switch: int, edge: int, label: IntArray, stage: Stage) -> list[int]:
        polygon = int(mesh.polygon_of_edge[edge])
        first = int(self.offsets[switch])
        lines = [self.oracle.line(stage, polygon, first + j) for j in label.tolist()]
        a, b = mesh.ends[edge].tolist()
        return ranks_between(lines, self._point(mesh, a), self._point(mesh, b))

    def _cross_chords(
        self, mesh: Mesh, switch: int, value: Tracked, signs: SignArray, stage: Stage, crossings: _Crossings
    ) -> _Meetings | None:
        zeros, zero_j = np.nonzero(signs == 0)
        zero_ptr = _pointers(np.bincount(zeros, minlength=len(signs)))
        loops = (mesh.indptr, mesh.loop_v, mesh.loop_e)
        counts = np.empty(mesh.num_polygons, dtype=np.int64)
        kernels.count_chords(*loops, crossings.ptr, zero_ptr, zero_j, signs, counts)
        slot_ptr = _pointers(counts)
        N = int(slot_ptr[-1])
        if N == 0:
            return None
        chords = tuple(np.empty(N, dtype=np.int64) for _ in range(5)) + (counts,)
        closed = kernels.fill_chords(
            *loops, mesh.ends, crossings.ptr, crossings.label, crossings.rank, crossings.point_ptr,
            zero_ptr, zero_j, signs, slot_ptr, chords,
        )  # fmt: skip
        _check(closed)
        meet = np.empty(N, dtype=np.int64)
        kernels.count_meetings(slot_ptr, counts, chords[1], chords[2], meet)
        ptr = _pointers(meet)
        other, pair = np.empty(ptr[-1], dtype=np.int64), np.empty(ptr[-1], dtype=np.int64)
        t, d, sure = np.empty(ptr[-1]), np.empty(ptr[-1]), np.empty(mesh.num_polygons, dtype=bool)
        kernels.fill_meetings(
            *loops, mesh.ends, crossings.point_ptr, crossings.points, slot_ptr, chords,
            value.z, value.c, value.r, value.floor, ptr, other, t, d, pair, sure, self._most_positions(mesh, crossings),
        )  # fmt: skip
        rank = np.arange(ptr[-1]) - np.repeat(ptr[:-1], meet)
        self.float_decisions += int(ptr[-1])
        for f in np.flatnonzero(~sure).tolist():
            self._order_polygon(mesh, switch, f, stage, crossings, slot_ptr, chords, ptr, (other, t, d, pair), rank)
        seen = np.empty(ptr[-1], dtype=np.int64)
        inside, segments = np.empty_like(counts), np.empty_like(counts)
        kernels.count_inside(slot_ptr, counts, ptr, rank, pair, seen, inside, segments)
        return _Meetings(slot_ptr, chords, ptr, other, rank, t, d, seen, inside, segments)

    @staticmethod
    def _most_positions(mesh: Mesh, crossings: _Crossings) -> int:
        sizes = np.add.reduceat(1 + np.diff(crossings.point_ptr)[mesh.loop_e], mesh.indptr[:-1])
        return int(sizes.max())

    def _order_polygon(
        self, mesh: Mesh, switch: int, f: int, stage: Stage, crossings: _Crossings,
        slot_ptr: IntArray, chords: tuple[IntArray, ...], ptr: IntArray, arrays: tuple[Any, ...], rank: IntArray,
    ) -> None:  # fmt: skip
        """Exact order of the crossings on the chords of one polygon that the float bounds left open."""
        fun, p, q, lo, _, num = chords
        first = int(self.offsets[switch])
        ends = self._boundary_points(mesh, f, stage, crossings, first)
        for slot in range(int(slot_ptr[f]), int(slot_ptr[f] + num[f])):
            here = slice(int(ptr[slot]), int(ptr[slot + 1]))
            t, d = arrays[1][here], arrays[2][here]
            if ((t + d)[:-1] < (t - d)[1:]).all():
                continue
            lines = [self.oracle.line(stage, f, first + int(fun[lo[k]])) for k in arrays[0][here].tolist()]
            self._order(here, rank, arrays, ranks_between(lines, ends(int(p[slot])), ends(int(q[slot]))))

    def _boundary_points(
        self, mesh: Mesh, f: int, stage: Stage, crossings: _Crossings, first: int
    ) -> Callable[[int], Triple]:
        """The exact point at every position of a polygon."""
        places: list[tuple[int, int]] = []
        for i in range(int(mesh.indptr[f]), int(mesh.indptr[f + 1])):
            v, e = int(mesh.loop_v[i]), int(mesh.loop_e[i])
            places.append((v, -1))
            on = range(int(crossings.point_ptr[e]), int(crossings.point_ptr[e + 1]))
            places += [(e, k) for k in (on if mesh.ends[e, 0] == v else reversed(on))]

        def point(position: int) -> Triple:
            index, k = places[position]
            if k < 0:
                return self._point(mesh, index)
            line = first + int(crossings.points[1][k])
            return self.oracle.point(stage, f, int(mesh.line[index]), line)

        return point

    def split(self, mesh: Mesh, switch: int, node: int) -> Mesh:
        """The mesh cut by one switch, with all live values and signs at the new vertices."""
        signs, _, crossings, meetings = self._arrange(mesh, switch)
        step = self.switches[switch]
        if meetings is None:
            finer = mesh.copy()
            finer.signs = [*mesh.signs, signs]
        else:
            finer = self._build(mesh, switch, signs, crossings, meetings)
        if isinstance(step, MaxPool):
            finer.signs[-1] = pool_signs(step, finer.signs[-1][:, : len(self.pairs[switch])])  # type: ignore[arg-type]
            finer = merged(finer, mesh.num_vertices)
        return finer

    def _build(self, mesh: Mesh, switch: int, signs: SignArray, crossings: _Crossings, meetings: _Meetings) -> Mesh:
        V, E, P = mesh.num_vertices, len(mesh.ends), int(crossings.point_ptr[-1])
        counts = meetings.chords[5]
        refined = np.add.reduceat(1 + np.diff(crossings.point_ptr)[mesh.loop_e], mesh.indptr[:-1])
        faces = 1 + meetings.segments - meetings.inside
        loops = refined + 2 * meetings.segments
        bases = tuple(
            start + _pointers(sizes)
            for start, sizes in ((V + P, meetings.inside), (E + P, meetings.segments), (0, faces), (0, loops))
        )
        I = int(bases[0][-1]) - V - P
        ends, line = mesh.refined_edges(crossings.point_ptr, crossings.points[0], int(bases[1][-1]))
        indptr = np.zeros(int(bases[2][-1]) + 1, dtype=np.int64)
        loop_v, loop_e = (np.empty(int(bases[3][-1]), dtype=np.int64) for _ in range(2))
        ints = [np.empty(I, dtype=np.int64) for _ in range(6)]
        t, d = np.empty(I), np.empty(I)
        point = (ints[0], ints[1], ints[2], t, d, ints[3], ints[4], ints[5])
        records = np.zeros(mesh.num_polygons, dtype=np.int64)
        records[:] = meetings.ptr[meetings.slot_ptr[:-1] + counts] - meetings.ptr[meetings.slot_ptr[:-1]]
        sizes = np.array(
            [
                refined.max(),
                counts.max(),
                meetings.inside.max(),
                (refined + 2 * meetings.segments).max(),
                records.max(),
            ],
            dtype=np.int64,
        )
        fine = (meetings.ptr, meetings.other, meetings.rank, meetings.t, meetings.d, meetings.seen)
        closed = kernels.trace_faces(
            mesh.indptr, mesh.loop_v, mesh.loop_e, mesh.ends, crossings.point_ptr, meetings.slot_ptr,
            meetings.chords, fine, bases, V, sizes, (ends, line, indptr, loop_v, loop_e, point),
        )  # fmt: skip
        _check(closed)
        line[E + P :] += self.offsets[switch]
        finer = Mesh(ends, line, indptr, loop_v, loop_e, mesh.defined, mesh.sides, [], {}, E + P)
        self._define(mesh, finer, switch, crossings, meetings, point)
        edge_ends = mesh.ends[crossings.points[0]]
        blocks = [
            (edge_ends[:, 0].copy(), edge_ends[:, 1].copy(), crossings.points[2], crossings.points[3]),
            (point[5], point[6], t, d),
        ]
        finer.values = {key: value.extended(blocks) for key, value in mesh.values.items()}
        finer.sides, *finer.signs = self._new_signs(mesh, switch, signs, crossings, meetings, point, blocks)
        return finer

    def _define(
        self, mesh: Mesh, finer: Mesh, switch: int, crossings: _Crossings, meetings: _Meetings, point: Any
    ) -> None:
        """By which two lines, on which polygon of which stage, every new vertex is defined."""
        stage, first = len(self.stages) - 1, int(self.offsets[switch])
        fun, lo = meetings.chords[0], meetings.chords[3]
        edge, functional = crossings.points[:2]
        on_edges = np.stack(
            [
                np.full(len(edge), stage),
                mesh.polygon_of_edge[edge],
                mesh.line[edge],
                first + functional,
            ],
            axis=1,
        )
        inside = np.stack(
            [
                np.full(len(point[0]), stage),
                point[7],
                first + fun[lo[point[0]]],
                first + fun[lo[point[1]]],
            ],
            axis=1,
        )
        finer.defined = np.concatenate([mesh.defined, on_edges, inside])

    def _new_signs(
        self,
        mesh: Mesh,
        switch: int,
        signs: SignArray,
        crossings: _Crossings,
        meetings: _Meetings,
        point: Any,
        blocks: Any,
    ) -> list[SignArray]:
        V = mesh.num_vertices
        new = sum(len(block[0]) for block in blocks)
        result = []
        for k, old in enumerate([mesh.sides, *mesh.signs, signs], start=-1):
            rows = np.empty((V + new, old.shape[1]), dtype=np.int8)
            rows[:V] = old
            first = V
            for number, (A, B, _, _) in enumerate(blocks):
                kernels.join_signs(rows, A, B, first)
                step = self.switches[max(k, 0)]
                if 0 <= k < switch and isinstance(step, MaxPool):
                    rows[first : first + len(A)] = winner_signs(step, np.minimum(rows[A], rows[B]) < 0)
                if k == switch:
                    self._cross_signs(rows, first, A, B, number, crossings, meetings, point)
                first += len(A)
            result.append(rows)
        return result

    @staticmethod
    def _cross_signs(
        rows: SignArray,
        first: int,
        A: IntArray,
        B: IntArray,
        number: int,
        crossings: _Crossings,
        meetings: _Meetings,
        point: Any,
    ) -> None:
        if number == 0:
            every = np.arange(len(crossings.label))
            edge = crossings.points[0]
            rank = np.arange(len(edge)) - crossings.point_ptr[edge]
            lists = (crossings.ptr, crossings.rank, every, every, every + 1, crossings.label)
            kernels.cross_signs(rows, A, B, first, rank, edge, lists)
        else:
            fun, _, _, lo, hi, _ = meetings.chords
            lists = (meetings.ptr, meetings.rank, meetings.other, lo, hi, fun)
            kernels.cross_signs(rows, A, B, first, point[2], point[0], lists)

    # -- the result ----------------------------------------------------------------------------------------------

    def cells(self, mesh: Mesh) -> Cells:
        parts = [rows[:, : step.num_signs] for rows, step in zip(mesh.signs, self.switches, strict=True)]
        signs = np.concatenate(parts, axis=1) if parts else np.zeros((mesh.num_vertices, 0), dtype=np.int8)
        edges = Incidence(np.arange(0, 2 * len(mesh.ends) + 1, 2), mesh.ends.reshape(-1))
        return Cells(
            mesh.values[XY].z,
            signs,
            (edges, Incidence(mesh.indptr, mesh.loop_e)),
            exact_decisions=self.oracle.decisions,
            float_decisions=self.float_decisions,
            domain_signs=mesh.sides,
            pools=pool_layout(self.switches),
        )


def _setting(net: Network, domain: PlanarDomain) -> tuple[tuple[Node, ...], FloatArray]:
    """The program on two coordinates, and the sides of the domain as rows ``(a, b, c)`` with ``a x + b y + c <= 0``."""
    if isinstance(domain, Plane):
        if domain.ambient != net.in_size:
            raise InputError(f"plane: expected one in R^{net.in_size} for this network, got R^{domain.ambient}")
        lift = Affine(0, Dense(np.stack([domain.u, domain.v], axis=1)), domain.origin)
        A, b = domain.box.halfspaces()
        return (lift, *(_moved(node) for node in net.nodes)), np.column_stack([A, -b])
    if domain.dimension != 2 or net.in_size != 2:
        raise InputError(
            f"domain: expected two dimensions and a network of two inputs (or a Plane), "
            f"got {domain} and {net.in_size} inputs"
        )
    A, b = domain.halfspaces()
    return net.nodes, np.column_stack([A, -b])


def _moved(node: Node) -> Node:
    """The node behind one more value."""
    if isinstance(node, Add | Concat):
        return replace(node, sources=tuple(s + 1 for s in node.sources))
    if isinstance(node, PiecewiseLinear):
        return PiecewiseLinear(node.source + 1, node.slopes.reshape(node.shape), node.shape)
    return replace(node, source=node.source + 1)


def _part(node: Switch) -> Callable[[SignArray], SignArray]:
    """How the signs of a polygon follow from those at its vertices."""
    if isinstance(node, MaxPool):
        return lambda rows: np.asarray(winner_signs(node, (rows < 0).any(axis=0)[None])[0])
    return lambda rows: np.asarray((rows.max(axis=0) + rows.min(axis=0))[: node.num_signs])


def _pointers(counts: IntArray) -> IntArray:
    result = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=result[1:])
    return result


def _check(closed: bool) -> None:
    if not closed:  # pragma: no cover - all decisions are certified, so the combinatorics closes
        raise ArithmeticError("planar complex: certified decisions contradict each other; please report this network")
