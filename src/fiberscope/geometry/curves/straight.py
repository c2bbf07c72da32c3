"""Breakpoints along polygonal chains, exactly, for every network.

The chain is cut switch by switch. Between two neighbouring points every value of the program is affine in the
parameter, so the values at the points are all there is: one product per layer for all points at once. Two kinds of
decisions are made, by floats with a rigorous error bound and by integers where the bound does not suffice: the sign
of a preactivation at a point, and the order in which preactivations vanish between two points. Exactly, a point is
``(X, Y, W)``, the parameter ``Y / W`` of its segment with ``X = W - Y``, and a preactivation the integer row
``(A, B, C)`` of ``A (1 - t) + B t + C``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, assert_never

import flint
import numpy as np

from fiberscope.geometry.cells import cell_signs
from fiberscope.geometry.curves.breakpoints import Breaks, changing, marked
from fiberscope.geometry.curves.curve import Polyline
from fiberscope.geometry.engines.planar import faces as kernels
from fiberscope.geometry.engines.planar import tracked as track
from fiberscope.geometry.engines.planar.arrange import Arranger, Functionals, sure_signs
from fiberscope.geometry.engines.planar.chain_bends import Bends, is_worth
from fiberscope.geometry.engines.planar.chain_rows import PieceRows, pair_of
from fiberscope.geometry.engines.planar.exact import (
    BITS,
    FixedProgram,
    TwofoldOracle,
    Unclear,
    balls,
    entry_signs,
    exact_program,
    ranks_between,
)
from fiberscope.geometry.engines.planar.mesh import Crossings
from fiberscope.geometry.engines.planar.tracked import Tracked, TrackedAlgebra
from fiberscope.network.equal_entries import equal_entries
from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool, PiecewiseLinear, Switch
from fiberscope.network.walk import cuts, switches
from fiberscope.numerics.algebra.dyadic import Dyadic
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.compensated import Twofold
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray, U, length, spectral_bound
from fiberscope.numerics.points import Triple, dot, sign
from fiberscope.run import Run

if TYPE_CHECKING:
    from fiberscope.network.layout import Place

MANY = 64
"""So many open signs in one layer are worth tighter bounds, which cost a factorisation of every matrix."""


DEEP, SQUARE = 5, 1024
"""From so many layers on spectral norms are asked for, of matrices with so many rows and columns at most."""


class Loose(Exception):
    """The cheap error bounds leave too much open."""


@dataclass(slots=True, eq=False)
class Stage:
    """The chain when a switch cut it: its pieces, the switch's signs at the points, and what was found.

    ``crossings`` number the new points from ``len(signs)`` on; ``parent`` is the old piece of every new one.
    """

    node: Switch
    ends: IntArray
    signs: SignArray
    crossings: Crossings
    parent: IntArray
    new_ends: IntArray
    after: SignArray | None = None

    def point_signs(self) -> SignArray:
        """Signs of the switch's functionals at the old and new points."""
        found = self.crossings
        edge = found.points[0]
        count = len(self.signs)
        result = np.empty((count + len(edge), self.signs.shape[1]), dtype=np.int8)
        result[:count] = self.signs
        A, B = self.ends[edge, 0].copy(), self.ends[edge, 1].copy()
        kernels.join_signs(result, A, B, count)
        every = np.arange(len(found.label) + 1)
        rank = np.arange(len(edge)) - found.point_ptr[edge]
        lists = (found.ptr, found.rank, every, every, every[1:], found.label)
        kernels.cross_signs(result, A, B, count, rank, edge, *lists)
        return entry_signs(self.node, result)

    def piece_signs(self, pieces: IntArray) -> SignArray:
        """Signs of the switch on some of the new pieces, ``(pieces, num_signs)``."""
        if self.after is None:
            self.after = self.point_signs()
        a, b = self.after[self.new_ends[pieces, 0]], self.after[self.new_ends[pieces, 1]]
        return cell_signs(self.node, np.minimum(a, b), np.maximum(a, b))


class Cutter(Arranger):
    """One run along one chain; signs and orders are decided as on the edges of a planar mesh."""

    def __init__(self, net: Network, chain: Polyline, tight: bool) -> None:
        self.by_float = self.by_exact = 0
        self.tight = tight
        self.net, self.chain, self.layout = net, chain, net.layout.up_to_last_switch
        self.algebra = TrackedAlgebra(tight)
        count = len(chain.points)
        self.t, self.error = np.arange(count, dtype=np.float64), np.zeros(count)
        self.order = np.arange(count)
        self.cuts: list[Stage] = []
        self.known_points: dict[tuple[int, int, bool], Triple] = {}
        self.near = NearLines(net, chain.points) if net.is_chain and not net.layout.slopes.any() else None
        self.all_near = PieceRows(self.layout.affine, chain.points) if self.near is not None else None

    @property
    def ends(self) -> IntArray:
        """The points at both ends of every piece."""
        return np.stack([self.order[:-1], self.order[1:]], axis=1)

    def breaks(self, run: Run) -> Breaks:
        """Cut by every switch, then read off the breakpoints."""
        self.run = run
        values = {0: self._start()}
        for place in switches(self.layout, values, self.algebra, {}):
            run.step(place.start, self.layout.size, "neurons")
            self._split(place, values)
        return self._result()

    def _start(self) -> Tracked:
        """The input at the first points."""
        return Tracked.exact(self.chain.points)

    # -- one switch ----------------------------------------------------------------------------------------------

    def _split(self, place: Place, values: dict[int, Tracked]) -> None:
        """The chain cut by one switch; the values at old and new points, those behind the switch among them."""
        stage, node = len(self.cuts), place.node
        source = values[node.source]
        value = Functionals(cuts(node, source, self.algebra))
        mesh: Any = Edges(self.ends)

        known = sure_signs(node, source, lambda: self._numbers[node.source])
        signs = self._signs(mesh, value, stage, 0, known)  # type: ignore[arg-type]  # a stage is a number here
        found = self._cross_edges(mesh, value, signs, stage, 0)  # type: ignore[arg-type]  # as above
        edge, _, t, d = found.points
        A, B = self._keep(node, mesh.ends, signs, found)
        if place is self.layout.places[-1]:
            return
        if len(edge):
            values.update({key: x.extended([(A, B, t, d)]) for key, x in values.items()})
        after = self.cuts[-1].after = self.cuts[-1].point_signs()
        reuse = self.layout.last_use[node.source] == place.index and len(edge) > 0
        pools = bool(self.layout.pooled[place.stop :].any())
        bends = self._bends(self.cuts[-1], A, B, source.z)
        values[place.index + 1] = replace(track.behind(node, values[node.source], after, reuse, pools), bends=bends)

    def _keep(self, node: Switch, ends: IntArray, signs: SignArray, found: Crossings) -> tuple[IntArray, IntArray]:
        """Insert the new points and note how they came; the old points before and behind each of them."""
        edge = found.points[0]
        A, B = ends[edge, 0].copy(), ends[edge, 1].copy()
        parent = np.repeat(np.arange(len(ends)), 1 + np.diff(found.point_ptr))
        self._insert(found, A, B)
        self.cuts.append(Stage(node, ends, signs, found, parent, self.ends))
        return A, B

    def _bends(self, cut: Stage, A: IntArray, B: IntArray, z: FloatArray) -> Bends | None:
        """What bends at the new points of a ReLU; none next to old points where floats do not have the right signs."""
        node, found, old = cut.node, cut.crossings, len(cut.signs)
        if not is_worth(len(A), z.shape[1]) or isinstance(node, MaxPool) or node.slopes.any():
            return None
        signs = cut.signs[:, : z.shape[1]]
        told = ((signs != 0) & ((z > 0) == (signs > 0)) & ((z < 0) == (signs < 0))).all(axis=1)
        good = told[cut.ends].all(axis=1)
        edge = np.repeat(np.arange(len(cut.ends)), np.diff(found.ptr))
        order = np.lexsort((found.rank, edge))[good[edge]]
        edge, label, rank = edge[order], found.label[order], found.rank[order]
        points, neurons = (pointers(np.where(good, np.diff(ptr), 0)) for ptr in (found.point_ptr, found.ptr))
        own = good[found.points[0]]
        new = old + np.arange(len(A))
        x, y = z[cut.ends[edge, 0], label], z[cut.ends[edge, 1], label]
        full = np.concatenate([np.arange(old), new[~own]])
        return Bends(full, new[own], A[own], B[own], found.points[2][own], points, neurons, label, rank, x, y)

    def _insert(self, found: Crossings, A: IntArray, B: IntArray) -> None:
        """Number the new points and put them in their places."""
        edge, _, t, d = found.points
        old, new = len(self.t), len(edge)
        way = self.t[B] - self.t[A]
        moved = np.maximum(self.error[A], self.error[B]) + d * way + 4 * U * (np.abs(self.t[B]) + 1)
        self.t = np.concatenate([self.t, self.t[A] + t * way])
        self.error = np.concatenate([self.error, moved * (1 + 8 * U)])
        order = np.empty(old + new, dtype=np.int64)
        order[np.arange(old) + found.point_ptr] = self.order
        order[edge + 1 + np.arange(new)] = old + np.arange(new)
        self.order = order

    # -- exact decisions, in place of those on a planar mesh --------------------------------------------------------

    @cached_property
    def _numbers(self) -> list[IntArray]:
        """Equal numbers for entries that are one function along the whole chain."""
        return equal_entries(self.layout, self.chain.points.T)

    @cached_property
    def program(self) -> FixedProgram[Dyadic]:
        """The network on the segments of the chain: chart ``i`` has the rows of ``1 - t``, ``t`` and 1 on segment i."""
        points = self.chain.points
        last = np.zeros((1, points.shape[1]))
        return exact_program(self.layout, lambda i: Dyadic.of(np.concatenate([points[i : i + 2], last])))

    def _tie_corners(self, node: MaxPool, signs: SignArray) -> None:
        """Comparisons of entries that are equal at a corner, though not along the chain: an image's own background."""
        i, j = node.pairs.T
        for v in np.flatnonzero((signs[: len(self.chain.points)] == 2).any(axis=1)):
            same = equal_entries(self.layout, self.chain.points[v][:, None])[node.source]
            signs[v, np.flatnonzero((same[i] == same[j]) & (signs[v, : len(i)] == 2))] = 0

    def _decide_exactly(self, mesh: Any, signs: SignArray, stage: Any, first: int) -> None:
        node = self.layout.places[stage].node
        if isinstance(node, MaxPool):
            self._tie_corners(node, signs)
        points, columns = np.nonzero(signs == 2)
        if not self.tight and len(points) > MANY:
            raise Loose
        self._note(len(points))
        rows = self.all_near
        if rows is not None and rows.is_worth(self.cuts, len(points)):
            for k in range(stage + 1):
                self.run.check()
                rows.rows(k, self.cuts)
        place = np.empty(len(signs), dtype=np.int64)
        place[self.order] = np.arange(len(signs))
        pieces = np.minimum(place[points], len(mesh.ends) - 1)
        if rows is not None and rows.has(stage) and len(self.chain.points) == 2:
            which, inverse = np.unique(points, return_inverse=True)
            known = rows.signs(stage, self.cuts, (pieces, columns), self._near_points(which), inverse)
            signs[points, columns] = np.where(known == 0, 2, known)
            points, columns, pieces = (x[known == 0] for x in (points, columns, pieces))
        for v, j, piece in zip(points.tolist(), columns.tolist(), pieces.tolist(), strict=True):
            self.run.check()
            signs[v, j] = self._sign_at(stage, piece, j, v)

    def _near_points(self, points: IntArray) -> FloatArray:
        """Points of a segment in pairs of floats, ``(high, low, error)`` of ``(X, Y, W)``; unknown ones have NaN."""
        found = np.full((len(points), 3, 3), np.nan)
        for k, v in enumerate(points.tolist()):
            with suppress(Unclear):
                found[k] = [pair_of(x) for x in self._exact(v, 0, True)]
        return found.transpose(2, 1, 0)

    def _sign_at(self, stage: int, piece: int, j: int, point: int) -> int:
        """The sign of a functional at a point: in about 106 bits where these tell, otherwise in integers."""
        chart = self._chart(stage, piece)
        if self.near is not None:
            with suppress(Unclear):
                return TwofoldOracle.sign_at(self._line(stage, piece, j, True), self._exact(point, chart, True))
        return sign(dot(self._line(stage, piece, j), self._exact(point, chart)))

    def _edge_ranks(self, mesh: Any, edge: int, label: IntArray, stage: Any, first: int) -> Any:
        self.run.check()
        chart = self._chart(stage, edge)
        ends = mesh.ends[edge].tolist()
        if self.near is not None:
            with suppress(Unclear):
                lines = [self._line(stage, edge, j, True) for j in label.tolist()]
                return TwofoldOracle.ranks(lines, *(self._exact(v, chart, True) for v in ends))
        lines = [self._line(stage, edge, j) for j in label.tolist()]
        return *ranks_between(lines, *(self._exact(v, chart) for v in ends)), 2 * U

    def _ancestors(self, stage: int, pieces: IntArray) -> list[IntArray]:
        """The pieces behind each of the switches before a stage that hold the given pieces, the first switch first."""
        found = []
        for cut in reversed(self.cuts[:stage]):
            found.append(pieces)
            pieces = cut.parent[pieces]
        return [*found, pieces][::-1]

    def _chart(self, stage: int, piece: int) -> int:
        """The segment on which a piece lies."""
        return int(self._ancestors(stage, np.array([piece]))[0][0])

    def _line(self, stage: int, piece: int, j: int, near: bool = False) -> Triple:
        """Functional ``j`` of a switch on a piece that it cuts; ``near``: in balls."""
        if near and self.all_near is not None and self.all_near.has(stage):
            return self.all_near.line(stage, self.cuts, piece, j)
        chart, *pieces = self._ancestors(stage, np.array([piece]))
        prefix = [cut.piece_signs(own)[0] for cut, own in zip(self.cuts, pieces, strict=False)]
        if near:
            assert self.near is not None
            return balls(self.near.functional(prefix, int(chart[0]), j), 0)
        column = self.program.functionals(prefix, int(chart[0]))[stage].integers[:, j]
        return column[0], column[1], column[2]

    def _exact(self, point: int, chart: int, near: bool = False) -> Triple:
        """A point in the coordinates of a segment that it lies on; ``near``: in balls."""
        if point < len(self.chain.points):
            return (1, 0, 1) if point == chart else (0, 1, 1)
        if (point, chart, near) not in self.known_points:
            stage = next(s for s in reversed(range(len(self.cuts))) if point >= len(self.cuts[s].signs))
            found = self.cuts[stage].crossings
            edge, label = (int(x[point - len(self.cuts[stage].signs)]) for x in found.points[:2])
            A, B, C = self._line(stage, edge, label, near)
            with flint.ctx.workprec(BITS):  # of balls; integers do not round
                low, high = A + C, B + C
                turn = sign(high - low)
                if not turn:
                    raise Unclear
                self.known_points[point, chart, near] = (turn * high, -turn * low, turn * (high - low))
        return self.known_points[point, chart, near]

    # -- the result ------------------------------------------------------------------------------------------------

    def _makers(self) -> tuple[IntArray, IntArray]:
        """Points and the entries of the sign vector that make them breakpoints."""
        points, entries = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for cut, switch in zip(self.cuts, self.layout.places, strict=True):
            found = cut.crossings
            match cut.node:
                case MaxPool():
                    at, entry = _pool_makers(cut, self.chain.closed)
                case PiecewiseLinear():
                    edge = np.repeat(np.arange(len(cut.ends)), np.diff(found.ptr))
                    at, entry = len(cut.signs) + found.point_ptr[edge] + found.rank, found.label
                    if np.count_nonzero(cut.signs) < cut.signs.size:
                        more = _zero_makers(cut.ends, cut.signs)
                        at, entry = (np.concatenate(x) for x in ((at, more[0]), (entry, more[1])))
                case _:
                    assert_never(cut.node)
            points.append(at)
            entries.append(switch.start + entry)
        return np.concatenate(points), np.concatenate(entries)

    def _result(self) -> Breaks:
        self.near = self.all_near = None  # what may be asked later is in integers; rows are large
        marks = marked(*self._makers(), self.order, self.chain.closed)
        t, error = self.t[marks.points], self.error[marks.points]

        def signs() -> SignArray:
            _, *pieces = self._ancestors(len(self.cuts), marks.pieces)
            parts = [cut.piece_signs(own) for cut, own in zip(self.cuts, pieces, strict=True)]
            joined = np.concatenate(parts, axis=1) if parts else np.zeros((len(marks.pieces), 0), dtype=np.int8)
            joined[:, self.net.linear_entries] = 1
            return joined

        def exact(i: int) -> Fraction:
            v = int(marks.points[i])
            if v < len(self.chain.points):
                return Fraction(v)
            stage = next(s for s in reversed(range(len(self.cuts))) if v >= len(self.cuts[s].signs))
            edge = int(self.cuts[stage].crossings.points[0][v - len(self.cuts[stage].signs)])
            chart = self._chart(stage, edge)
            _, y, w = self._exact(v, chart)
            return chart + Fraction(int(y), int(w))

        low, high = (np.clip(x, *self.chain.interval) for x in (t - error, t + error))
        counts = (self.by_float, self.by_exact)
        return Breaks(t, low, high, marks.neurons, signs, *counts, exact=exact, closes=marks.closes)


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    ends: IntArray


def _zero_makers(ends: IntArray, signs: SignArray) -> tuple[IntArray, IntArray]:
    """Old points at which functionals vanish, but not on both sides, and these functionals."""
    point, entry = np.nonzero(signs == 0)
    before, after = np.arange(len(signs)), np.arange(len(signs))
    after[ends[:, 0]] = ends[:, 1]
    before[ends[:, 1]] = ends[:, 0]
    keep = (signs[before[point], entry] != 0) | (signs[after[point], entry] != 0)
    return point[keep], entry[keep]


def _pool_makers(cut: Stage, closed: bool) -> tuple[IntArray, IntArray]:
    """Points at which inputs of a pooling window begin or cease to win, and these inputs; the last one closes."""
    if cut.after is None:
        cut.after = cut.point_signs()
    inside = cut.piece_signs(np.arange(len(cut.new_ends)))
    before, behind, point = inside[:-1], inside[1:], cut.new_ends[1:, 0]
    if closed:
        before, behind, point = inside, np.roll(inside, -1, axis=0), cut.new_ends[:, 1]
    which, entry = np.nonzero(changing((before, behind), cut.after[point]))
    return point[which], entry


class NearLines:
    """Single functionals of a ReLU chain, in pairs of floats: rows of ``1 - t``, ``t`` and 1 on the segments.

    What a float with its bound leaves open is seldom close to zero in 106 bits. One functional on one piece reads the
    active neurons of the layers before it and nothing else: products with parts of matrices, and no matrix in integers.
    Those of layers are kept.

    >>> near = NearLines(Network([[[1.0]], [[1.0]]], [[-1.0], [0.0]]), np.array([[0.0], [4.0]]))
    >>> near.functional([], 0, 0).high.ravel()
    array([ 0.,  4., -1.])
    """

    def __init__(self, net: Network, points: FloatArray) -> None:
        self.layers = net.layout.affine
        self.points = points
        self._known: dict[bytes, tuple[IntArray, Twofold]] = {}
        self._spectral: dict[int, float] = {}

    def functional(self, signs: Sequence[SignArray], segment: int, j: int) -> Twofold:
        """Entry ``j`` behind as many activations as signs are given, ``(3, 1)``."""
        active, value = self._behind(signs, segment)
        return self._times(len(signs), np.array([j]), active, value)

    def _behind(self, signs: Sequence[SignArray], segment: int) -> tuple[IntArray, Twofold]:
        """The active neurons behind the activations, and their rows."""
        if not signs:
            rows = np.concatenate([self.points[segment : segment + 2], np.zeros((1, self.points.shape[1]))])
            return np.arange(rows.shape[1]), Twofold.exact(rows)
        key = segment.to_bytes(8, "little") + b"".join(part.tobytes() for part in signs)
        if key not in self._known:
            active = np.flatnonzero(signs[-1][: self.layers[len(signs) - 1].operator.out_size] > 0)
            found = self._times(len(signs) - 1, active, *self._behind(signs[:-1], segment))
            self._known = {k: v for k, v in self._known.items() if key.startswith(k)} | {key: (active, found)}
        return self._known[key]

    def _times(self, layer: int, rows: IntArray, columns: IntArray, value: Twofold) -> Twofold:
        """Some rows of a layer applied to the neurons that are not zero."""
        node = self.layers[layer]
        matrix = node.operator.dense()
        start = np.zeros((3, len(rows)))
        if node.offset is not None:
            start[2] = node.offset[rows]
        part = np.ascontiguousarray(matrix[np.ix_(rows, columns)].T)
        return value.times(part, start, self._norm(layer, matrix) if len(rows) > 1 else length(np.abs(part)))

    def _norm(self, layer: int, matrix: FloatArray) -> float:
        """Not below the spectral norm, once for a layer; infinite where absolute values do and it takes longer."""
        if len(self.layers) <= DEEP or max(matrix.shape) > SQUARE:
            return math.inf
        if layer not in self._spectral:
            self._spectral[layer] = spectral_bound(matrix)
        return self._spectral[layer]
