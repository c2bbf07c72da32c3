"""All decisions about one switch on a mesh: signs at vertices, points on edges, crossings inside polygons.

Floats with error bounds decide first, then pairs of floats for the few that these leave open (counted with the floats);
what is open still is asked of the exact oracle. What comes out is integers: from these alone
:mod:`fiberscope.geometry.engines.planar.build` makes the finer mesh.

Three kinds of arrays meet here. Over vertices: values and ``signs (V, functionals)``. Over edges, cut by ``ptr``: the
functionals that cross an edge, by rank (:class:`.mesh.Crossings`). Over chords, cut by ``slot_ptr`` and ``ptr``: where
they begin and end, and who meets them, by rank (:class:`.mesh.Meetings`). Equal ranks are one point. Functional j of
this switch is number ``first + j`` of the whole network; sides of the domain have negative numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

import numpy as np

from fiberscope.errors import TooLargeError
from fiberscope.geometry.engines.limits import MEMORY
from fiberscope.geometry.engines.planar import kernels
from fiberscope.geometry.engines.planar.exact import Oracle, Ranks, Stage, TwofoldOracle, Unclear, ranks_between
from fiberscope.geometry.engines.planar.faces import count_inside
from fiberscope.geometry.engines.planar.mesh import Arrangement, Crossings, Meetings, Polygons, assure
from fiberscope.geometry.engines.planar.tracked import Tracked
from fiberscope.network.nodes import MaxPool, PiecewiseLinear, Switch
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.floats import ENTRY_FLOOR, FloatArray, IntArray, SignArray, U
from fiberscope.numerics.points import Triple, dot, sign
from fiberscope.run import ENDLESS, Run

MOST_MEETINGS = MEMORY // 96
"""Places on chords where they meet others, two for every crossing, that one mesh may have; each takes so many bytes."""


_SOME = 8
"""So many vertices of open decisions are worth arrays; fewer decisions are made one by one."""


@dataclass(slots=True, eq=False)
class Functionals:
    """The functionals of a switch at the vertices; ``anew`` makes some values anew, much sharper, and gives all."""

    value: Tracked
    anew: Callable[[IntArray], Tracked] | None = None

    def sharpen(self, vertices: IntArray, stage: Stage) -> bool:
        """Whether the values at these vertices were made anew."""
        if self.anew is None or len(vertices) < _SOME:
            return False
        self.value = self.anew(vertices)
        stage.blurred += len(vertices)
        return True

    def signs(self, vertices: IntArray | None, signs: SignArray) -> int:
        """Fill in the signs at some vertices or all, 2 where floats leave them open; how many these are."""
        value = self.value if vertices is None else self.value.rows(vertices)
        return int(kernels.float_signs(value.z, value.c, value.r, ENTRY_FLOOR, signs))


class Arranger:
    """Makes the decisions, and keeps the stages that the vertices of a mesh refer to; ``run`` may stop it."""

    run: Run = ENDLESS

    def __init__(self, oracle: Oracle, start: Stage) -> None:
        self.oracle = oracle
        self.twofold = TwofoldOracle.of(oracle)
        self.stages = [start]
        self.by_float = 0
        self.by_exact = 0

    def arrange(self, mesh: Polygons, found: Functionals, stage: Stage, first: int, known: Known) -> Arrangement:
        """Decide everything about the functionals ``found`` (numbered from ``first`` on) on a mesh.

        ``known`` may put in signs that need no decision, before the exact ones are asked for.
        """
        self.stages.append(stage)
        signs = self._signs(mesh, found, stage, first, known)
        crossings = self._cross_edges(mesh, found, signs, stage, first)
        at, piece, at_ptr = _positions(mesh, crossings.point_ptr)
        rough = Arrangement(first, signs, crossings, None, at, at_ptr, piece)
        rough.meetings = self._cross_chords(mesh, found.value, stage, rough)
        return rough

    def _signs(self, mesh: Polygons, found: Functionals, stage: Stage, first: int, known: Known) -> SignArray:
        V, n = found.value.z.shape
        signs = np.ones((V, -(-n // 8) * 8), dtype=np.int8)
        undecided = found.signs(None, signs)
        known(signs, undecided)
        self.by_float += V * n
        if undecided:
            vertices = np.flatnonzero((signs == 2).any(axis=1))
            if found.sharpen(vertices, stage):
                again = np.ones((len(vertices), signs.shape[1]), dtype=np.int8)
                undecided = found.signs(vertices, again)
                signs[vertices] = again
                known(signs, undecided)
        if undecided:
            self._decide_exactly(mesh, signs, stage, first)
        return signs

    def _decide_exactly(self, mesh: Polygons, signs: SignArray, stage: Stage, first: int) -> None:
        """Exact signs where the float bound left them open."""
        vertices, columns = np.nonzero(signs == 2)
        polygon = np.zeros(mesh.num_vertices, dtype=np.int64)
        polygon[mesh.loop_v] = mesh.owners
        for v, j in zip(vertices.tolist(), columns.tolist(), strict=True):
            self.run.check()
            signs[v, j] = self._sign(mesh, v, stage, int(polygon[v]), first + j)

    def _sign(self, mesh: Polygons, vertex: int, stage: Stage, polygon: int, number: int) -> int:
        """Sign of a functional at a vertex of a polygon."""
        chart = stage.chart(polygon)
        if self.twofold is not None:
            try:
                line = self.twofold.line(stage, polygon, number)
                found = self.twofold.sign_at(line, self._point(self.twofold, mesh, vertex, chart))
                stage.blurred += 1
                return found
            except Unclear:
                pass
        self._note(1)
        return sign(dot(self.oracle.line(stage, polygon, number), self._point(self.oracle, mesh, vertex, chart)))

    def _note(self, exact: int) -> None:
        self.by_exact += exact
        self.by_float -= exact

    def _point(self, oracle: Oracle, mesh: Polygons, vertex: int, chart: int) -> Triple:
        number, polygon, first, second = mesh.defined[vertex].tolist()
        stage = self.stages[number]
        return oracle.seen_from(chart, oracle.point(stage, polygon, first, second), stage.chart(polygon))

    # -- edges ---------------------------------------------------------------------------------------------------

    def _cross_edges(self, mesh: Polygons, found: Functionals, signs: SignArray, stage: Stage, first: int) -> Crossings:
        words = signs.view(np.uint64)
        counts, none = np.zeros(len(mesh.ends), dtype=np.int64), np.zeros(0, dtype=np.int64)
        kernels.list_crossings(mesh.ends, words, counts, none)
        ptr = pointers(counts)
        label, t, d = np.empty(ptr[-1], dtype=np.int64), np.empty(ptr[-1]), np.empty(ptr[-1])
        sure = np.ones(len(counts), dtype=bool)
        rank = np.arange(ptr[-1]) - np.repeat(ptr[:-1], counts)
        kernels.list_crossings(mesh.ends, words, ptr[:-1].copy(), label)
        for _ in range(2):
            value, every = found.value, np.arange(signs.shape[1])
            kernels.order_crossings(
                mesh.ends, ptr, label, every, rank.copy(), value.z, value.c, value.r, ENTRY_FLOOR,
                mesh.ends, none, t[:0], t[:0], t, d, sure,
            )  # fmt: skip
            if sure.all() or not found.sharpen(np.unique(mesh.ends[~sure]), stage):
                break
        self.by_float += int(ptr[-1])
        for e in np.flatnonzero(~sure).tolist():
            here = slice(int(ptr[e]), int(ptr[e + 1]))
            self._order(here, rank, (label, t, d), self._edge_ranks(mesh, e, label[here], stage, first), (t, d))
        edge = np.repeat(np.arange(len(counts)), counts)
        counts[counts > 0] = rank[ptr[1:][counts > 0] - 1] + 1
        point_ptr = pointers(counts)
        points = (edge, label, t, d)
        if len(edge) > point_ptr[-1]:  # of equal crossings the best known one speaks
            number = point_ptr[edge] + rank
            order = np.lexsort((d, number))
            best = order[np.searchsorted(number[order], np.arange(point_ptr[-1]))]
            points = (edge[best], label[best], t[best], d[best])
        return Crossings(ptr, label, rank, point_ptr, points)

    def _order(
        self,
        here: slice,
        rank: IntArray,
        arrays: Sequence[Any],
        found: Ranks,
        floats: tuple[FloatArray, FloatArray],
    ) -> None:
        """Put exact ranks and parameters in place and bring the arrays in their order."""
        ranks, where, errors = found
        t, d = floats
        t[here], d[here] = where, errors
        order = np.argsort(ranks, kind="stable")
        rank[here] = np.asarray(ranks)[order]
        for array in arrays:
            array[here] = array[here][order]

    def _ranks(
        self, stage: Stage, polygon: int, numbers: Sequence[int], ends: Callable[[Oracle], tuple[Triple, Triple]]
    ) -> Ranks:
        """Order of functionals of a polygon between two points, and where they vanish; see :func:`ranks_between`."""
        if self.twofold is not None:
            try:
                lines = [self.twofold.line(stage, polygon, j) for j in numbers]
                found = self.twofold.ranks(lines, *ends(self.twofold))
                stage.blurred += 1
                return found
            except Unclear:
                pass
        self.run.check()
        self._note(len(numbers))
        lines = [self.oracle.line(stage, polygon, j) for j in numbers]
        return *ranks_between(lines, *ends(self.oracle)), 2 * U

    def _edge_ranks(self, mesh: Polygons, edge: int, label: IntArray, stage: Stage, first: int) -> Ranks:
        polygon = int(mesh.polygon_of_edge[edge])
        a, b = mesh.ends[edge].tolist()
        chart = stage.chart(polygon)

        def ends(oracle: Oracle) -> tuple[Triple, Triple]:
            return self._point(oracle, mesh, a, chart), self._point(oracle, mesh, b, chart)

        return self._ranks(stage, polygon, [first + j for j in label.tolist()], ends)

    # -- polygons ------------------------------------------------------------------------------------------------

    def _cross_chords(self, mesh: Polygons, value: Tracked, stage: Stage, known: Arrangement) -> Meetings | None:
        crossings, signs = known.crossings, known.signs
        corner_ptr, corner_j = _corners(mesh, signs)
        counts = np.diff(crossings.ptr)[mesh.loop_e] + np.diff(corner_ptr)
        counts = np.add.reduceat(counts, mesh.indptr[:-1]) // 2
        slot_ptr = pointers(counts)
        N = int(slot_ptr[-1])
        if N == 0:
            return None
        fun, p, q = (np.zeros(N, dtype=np.int64) for _ in range(3))
        loops = (mesh.indptr, mesh.loop_v, mesh.loop_e, mesh.ends)
        edges = (crossings.ptr, crossings.label, crossings.rank, crossings.point_ptr)
        first = np.full(signs.shape[1], -1)
        assure(kernels.fill_chords(*loops, *edges, corner_ptr, corner_j, slot_ptr, fun, p, q, first))
        polygon = np.repeat(np.arange(mesh.num_polygons), counts)
        lo = np.arange(N)
        hi = lo + 1
        if ((p[1:] == p[:-1]) & (polygon[1:] == polygon[:-1])).any():
            kernels.group_chords(slot_ptr, fun, p, q, lo, hi, counts)
        meet, none = np.zeros(N, dtype=np.int64), np.zeros(0, dtype=np.int64)
        kernels.list_meetings(slot_ptr, counts, p, q, meet, none, none)
        ptr = pointers(meet)
        if ptr[-1] > MOST_MEETINGS:
            raise TooLargeError(
                f"{int(ptr[-1]) // 2:,} crossings of the neurons of one layer do not fit into memory; give limit=, a "
                "smaller domain, or count only",
                times=float(ptr[-1] / MOST_MEETINGS),
            )
        other, pair = np.empty(ptr[-1], dtype=np.int64), np.empty(ptr[-1], dtype=np.int64)
        kernels.list_meetings(slot_ptr, counts, p, q, ptr[:-1].copy(), other, pair)
        t, d, sure = np.empty(ptr[-1]), np.empty(ptr[-1]), np.ones(N, dtype=bool)
        edge, _, edge_t, edge_d = crossings.points
        corner = known.at_ptr[polygon]
        segments = np.stack([known.at[corner + p], known.at[corner + q]], axis=1)
        kernels.order_crossings(
            segments, ptr, other, fun[lo], pair, value.z, value.c, value.r, ENTRY_FLOOR,
            mesh.ends, edge, edge_t, edge_d, t, d, sure,
        )  # fmt: skip
        rank = np.arange(ptr[-1]) - np.repeat(ptr[:-1], meet)
        self.by_float += int(ptr[-1])
        # in general position every crossing is a point of its own
        total = ptr[slot_ptr[1:]] - ptr[slot_ptr[:-1]]
        chords = (fun, p, q, lo, hi, counts)
        found = Meetings(slot_ptr, chords, ptr, other, rank, t, d, pair, total // 2, counts + total)
        if self._order_chords(mesh, np.flatnonzero(~sure), polygon, stage, known, found):
            found.seen = np.empty_like(pair)
            sizes = (found.inside, found.segments)
            count_inside(slot_ptr, counts, ptr, rank, pair, found.seen, *sizes, np.empty_like(pair))
        return found

    def _order_chords(
        self, mesh: Polygons, slots: IntArray, polygon: IntArray, stage: Stage, known: Arrangement, found: Meetings
    ) -> bool:
        """Exact order of the crossings on those chords where the bounds left it open; whether some coincide."""
        fun, p, q, lo, _, _ = found.chords
        tied, last = False, -1
        for slot, f in zip(slots.tolist(), polygon[slots].tolist(), strict=True):
            if f != last:
                point, last = self._boundary_points(mesh, f, stage, known), f
            here = slice(int(found.ptr[slot]), int(found.ptr[slot + 1]))
            others = [known.first + j for j in fun[lo[found.other[here]]].tolist()]
            ranks = self._ranks(stage, f, others, partial(_both, point, int(p[slot]), int(q[slot])))
            arrays = (found.other, found.t, found.d, found.seen)
            self._order(here, found.rank, arrays, ranks, (found.t, found.d))
            tied |= len(set(ranks[0])) < len(ranks[0])
        return tied

    def _boundary_points(self, mesh: Polygons, f: int, stage: Stage, known: Arrangement) -> PointAt:
        """The point at every position of a polygon, as an oracle knows it."""
        places: list[tuple[int, int]] = []
        ptr = known.crossings.point_ptr
        for i in range(int(mesh.indptr[f]), int(mesh.indptr[f + 1])):
            v, e = int(mesh.loop_v[i]), int(mesh.loop_e[i])
            places.append((v, -1))
            on = range(int(ptr[e]), int(ptr[e + 1]))
            places += [(e, k) for k in (on if mesh.ends[e, 0] == v else reversed(on))]

        def point(oracle: Oracle, position: int) -> Triple:
            index, k = places[position]
            if k < 0:
                return self._point(oracle, mesh, index, stage.chart(f))
            line = known.first + int(known.crossings.points[1][k])
            return oracle.point(stage, f, int(mesh.line[index]), line)

        return point


PointAt = Callable[[Oracle, int], Triple]


def _both(point: PointAt, a: int, b: int, oracle: Oracle) -> tuple[Triple, Triple]:
    return point(oracle, a), point(oracle, b)


Known = Callable[[SignArray, int], None]


def sure_signs(node: Switch, source: Tracked, numbers: Callable[[], IntArray]) -> Known:
    """Signs of a switch's functionals that need no decision, from what is known of the value in front of it.

    ``numbers`` says which of its entries are one function (:mod:`fiberscope.network.equal_entries`); it is asked when
    comparisons of a pool stay open. The background of an image makes thousands of ties that hold on the whole domain.
    """

    def known(signs: SignArray, undecided: int) -> None:
        match node:
            case PiecewiseLinear():
                signs[:, np.flatnonzero(node.linear)] = 1
            case MaxPool():
                if undecided:
                    i, j = node.pairs.T
                    same = numbers()
                    signs[:, np.flatnonzero(same[i] == same[j])] = 0
                    if source.zeros is not None:  # two dead inputs tie exactly
                        signs[:, : len(i)][source.zeros[:, i] & source.zeros[:, j]] = 0
            case _:
                assert_never(node)

    return known


"""Called with the signs (2 where open) and how many are open; may replace some of them."""


def _positions(mesh: Polygons, point_ptr: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Vertex at every position of the polygons, the piece of an edge that begins there, where each polygon begins."""
    edge = mesh.loop_e
    forward = mesh.ends[edge, 0] == mesh.loop_v
    begin, end = point_ptr[edge], point_ptr[edge + 1]
    sizes = end - begin + 1
    start = pointers(sizes)
    step = np.where(forward, 1, -1)
    piece = np.repeat(np.where(forward, begin, end) - step * start[:-1], sizes)
    steps = np.repeat(step, sizes)
    piece += steps * np.arange(start[-1])
    at = piece + mesh.num_vertices
    at -= steps > 0
    at[start[:-1]] = mesh.loop_v
    piece += np.repeat(edge, sizes)
    return at, piece, start[mesh.indptr]


def _corners(mesh: Polygons, signs: SignArray) -> tuple[IntArray, IntArray]:
    """For every loop entry the functionals that vanish at its vertex and change their sign inside the polygon."""
    entries = len(mesh.loop_v)
    if np.count_nonzero(signs) == signs.size:  # in general position; much faster than to look for them
        return np.zeros(entries + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    words, counts, none = signs.view(np.uint64), np.zeros(entries, dtype=np.int64), np.zeros(0, dtype=np.int64)
    kernels.list_corners(mesh.indptr, mesh.loop_v, words, counts, none)
    ptr = pointers(counts)
    label = np.empty(ptr[-1], dtype=np.int64)
    if len(label):
        kernels.list_corners(mesh.indptr, mesh.loop_v, words, ptr[:-1].copy(), label)
    return ptr, label
