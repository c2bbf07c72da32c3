"""Regions of a network on a polygon of the plane, or on a planar slice of its input space, exactly and fast.

The complex is split switch by switch. On a polygon of the complex so far every preactivation is affine, so everything
about the next layer follows from three kinds of decisions: the signs at the vertices; the order in which lines cross
an edge; the order in which they cross each other's chords inside a polygon. Each decision is made by floats with a
rigorous error bound, and by integers where the bound does not suffice. Which chords cross, which faces there are and
which signs they have is then combinatorics of positions on the boundary. A max pooling is split by the differences of
its windows' inputs, and faces with equal winners are joined again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from fiberscope.errors import InputError, TooLargeError
from fiberscope.geometry.cells import Cells, Incidence, pool_layout
from fiberscope.geometry.domains import Box, Polytope
from fiberscope.geometry.engines.limits import MEMORY, MEMORY_OF_A_COUNT
from fiberscope.geometry.engines.planar import tracked as track
from fiberscope.geometry.engines.planar.arrange import Arranger, Functionals, sure_signs
from fiberscope.geometry.engines.planar.build import build
from fiberscope.geometry.engines.planar.exact import Oracle, Stage, pool_signs
from fiberscope.geometry.engines.planar.flips import LARGE, Flips
from fiberscope.geometry.engines.planar.mesh import (
    Arrangement,
    Polygons,
    corner_values,
    first_mesh,
    merged,
)
from fiberscope.geometry.engines.planar.sharpening import sharp_points, sharpened
from fiberscope.geometry.engines.planar.tracked import Tracked, TrackedAlgebra
from fiberscope.network.equal_entries import equal_entries
from fiberscope.network.layout import Layout
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool
from fiberscope.network.walk import cuts, switches
from fiberscope.numerics.cutoffs import PLACE
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.points import Triple, quotient
from fiberscope.results import Result
from fiberscope.run import ENDLESS, STOPPED, Run

PlanarDomain = Box | Polytope

_CHUNK_BYTES = 1 << 25
"""Counting goes on in pieces when the values of all vertices would need more than this."""

EARLY, DEEP = 2, 7
"""In front of this switch, and of more than so many behind it, values are made anew while there are few."""

MANY = 1 << 13
"""In front of more than ``DEEP`` switches products at up to so many vertices are almost exact."""

XY = -1
"""Key of the coordinates among the values of a mesh."""

POINTS = -2
"""Key of the same with the bounds of their errors, while values behind the first switch are made from them."""


@dataclass(frozen=True, slots=True)
class PlanarCount(Result):
    """How many regions there are, and how the decisions were made.

    Not ``complete`` when interrupted: then there are *at least* so many.
    """

    num_regions: int
    exact_decisions: int
    float_decisions: int
    complete: bool = True

    def __int__(self) -> int:
        return self.num_regions

    __index__ = __int__


def planar_cells(net: Network, domain: PlanarDomain, run: Run = ENDLESS) -> Cells:
    """The canonical complex of ``net`` on a two-dimensional domain: vertices, edges, polygons, certified signs.

    Parameters
    ----------
    net
        Any network of two inputs; on a slice of a larger space its program begins with the map of the slice.
    domain
        A box in two dimensions, or a bounded two-dimensional polytope.
    run
        Told after every switch how many are done. With a limit the work stops when there are more regions than that,
        or when memory would not hold the next layer, which is an error without. Then, or when interrupted or out of
        time, the result is not ``complete``: it is the complex of the switches that were reached, and the signs of the
        others are given as 0.

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
    engine = Engine.on(net, domain)
    return engine.cells(*engine.run(engine.start(), run))


def planar_count(net: Network, domain: PlanarDomain, run: Run = ENDLESS) -> PlanarCount:
    """The number of regions alone: the last layer is counted without being built.

    Large complexes are counted piece by piece, so memory stays bounded. When interrupted, what was not counted yet goes
    in as the polygons that were reached, each of which holds a region. One polygon that a layer cuts into too many is
    refused: the domain is to be cut then.

    >>> net = Network([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, 0.0], [0.0]])
    >>> int(planar_count(net, Box.cube(2)))  # three lines through one point
    6
    """
    engine = Engine.on(net, domain)
    found = engine.count(engine.start(), 0, 0, run)
    return PlanarCount(found, engine.arranger.by_exact, engine.arranger.by_float, not engine.interrupted)


class Engine:
    """One run: the program on the plane, evaluated at the vertices of meshes that its switches cut.

    ``sides`` are rows ``(a, b, c)`` with ``a x + b y + c <= 0`` on the domain.
    """

    def __init__(self, layout: Layout, sides: FloatArray) -> None:
        self.layout, self.sides = layout.up_to_last_switch, sides
        self.switches = [place.node for place in self.layout.places]
        self.offsets = np.cumsum([0, *(node.num_cuts for node in self.switches)]).astype(np.int64)
        self.interrupted = False
        self.flips: Flips | None = None
        self.inputs: FloatArray = np.eye(2)

    @cached_property
    def _numbers(self) -> list[IntArray]:
        """Equal numbers for entries that are one function on the whole domain."""
        return equal_entries(self.layout, self.inputs)

    @classmethod
    def on(cls, net: Network, domain: PlanarDomain) -> Engine:
        """The engine of a network on a domain."""
        if domain.dimension != 2 or net.in_size != 2:
            raise InputError(f"domain: expected two dimensions and two inputs, got {domain} and {net.in_size} inputs")
        A, b = domain.halfspaces()
        return cls(net.layout, np.column_stack([A, -b]))

    def start(self) -> Polygons:
        """The domain as one polygon, with values at its corners."""
        mesh, points = first_mesh(self.sides)
        mesh.values = {XY: Tracked.exact(points), 0: corner_values(mesh, points, self.sides)}
        self.flips = Flips.of(self.layout) if np.abs(points).max() <= LARGE else None
        if self.flips is not None:
            mesh.values[POINTS] = mesh.values[0]
        oracle = Oracle(self.layout, self.sides, self.offsets)
        self.arranger = Arranger(oracle, Stage(mesh.indptr, mesh.loop_v, [], []))
        return mesh

    def run(self, mesh: Polygons, run: Run) -> tuple[Polygons, int]:
        """The mesh cut by one switch after the other, and how many of them were reached.

        Raises :class:`TooLargeError` if the next mesh would not fit into memory, unless there is a limit.
        """
        node, total, reached = 0, len(self.switches), 0
        self.arranger.run = run
        try:
            while reached < total and (run.limit is None or mesh.num_polygons <= run.limit):
                with np.errstate(all="ignore"):  # what overflows is left to exact arithmetic
                    node = self.advance(mesh, node)
                    mesh = self.split(mesh, reached, node, MEMORY)
                node, reached = node + 1, reached + 1
                run.step(reached, total, f"{mesh.num_polygons} polygons")
        except STOPPED:
            pass  # what was found so far is the answer, marked as incomplete
        except TooLargeError:
            if run.limit is None:
                raise
        return mesh, reached

    # -- the program at the vertices -----------------------------------------------------------------------------

    @property
    def composed(self) -> tuple[Affine, Affine] | None:
        """The two first maps, if the first is one of the plane (a slice of a large space) that the second alone reads.

        Both are dense.
        """
        match self.layout.nodes[:2]:
            case (Affine() as plane, Affine() as layer) if self.layout.last_use[:2] == (0, 1):
                dense = all(node.operator.stored_matrix is not None for node in (plane, layer))
                return (plane, layer) if dense and plane.operator.in_size == 2 else None
        return None

    def advance(self, mesh: Polygons, node: int) -> int:
        """Evaluate the program up to the next switch; the index of that node."""
        values = mesh.values
        if node == 0 and (both := self.composed) is not None:
            values[2], node = track.lifted(*both, values.pop(0)), 2
        # spectral norms serve the layers behind the next switch
        ahead = sum(place.index > node for place in self.layout.places)
        few = MANY if ahead > DEEP else track.FEW
        if self.flips is not None and node == self.flips.index:
            values[node + 1] = self.flips.values(values.pop(POINTS), mesh.signs[0], ahead > 1)
            node += 1
        algebra = TrackedAlgebra(ahead > 1, few)
        return next(switches(self.layout, values, algebra, {}, first=node)).index

    def split(self, mesh: Polygons, switch: int, node: int, memory: int, in_pieces: bool = False) -> Polygons:
        """The mesh cut by one switch, with the switch's own value at its vertices; of at most ``memory`` bytes.

        ``in_pieces``: the next switch is evaluated on a few polygons at a time.
        """
        found = self.arrange(mesh, switch)
        self._check_memory(mesh, switch, found, memory, in_pieces)
        step, last = self.switches[switch], switch == len(self.switches) - 1
        flips = self.flips is not None and switch == 0
        live = {key: value for key, value in mesh.values.items() if key == XY or not last}
        if flips:
            live.pop(step.source)
        finer = build(mesh, found, len(self.arranger.stages) - 1, self.switches[:switch], live)
        if isinstance(step, MaxPool):
            finer.signs[-1] = pool_signs(step, finer.signs[-1])
            finer = merged(finer, mesh.num_vertices)
        if last or flips:
            return finer
        over = self.layout.last_use[step.source] == node
        own = over and found.meetings is not None  # an uncut mesh shares its arrays with the one before
        pools = bool(self.layout.pooled[self.layout.places[switch].stop :].any())
        finer.values[node + 1] = track.behind(step, finer.values[step.source], finer.signs[-1], own, pools)
        if over:
            del finer.values[step.source]
        return finer

    def _check_memory(self, mesh: Polygons, switch: int, found: Arrangement, memory: int, in_pieces: bool) -> None:
        """Refuse a mesh that would be too large: how many vertices and polygons it has is known before it is built."""
        if found.meetings is None:
            return
        inside, segments = int(found.meetings.inside.sum()), int(found.meetings.segments.sum())
        vertices = mesh.num_vertices + len(found.crossings.points[0]) + inside
        polygons = mesh.num_polygons + segments - inside
        sizes = np.diff(self.offsets)
        last = switch == len(self.switches) - 1
        # signs of all switches so far, values before and behind the next one, and some twenty integers
        values = 0 if last or (in_pieces and self.flips is not None and switch == 0) else int(sizes[switch])
        values += 0 if last or in_pieces else int(sizes[switch + 1])
        per_vertex = int(sizes[: switch + 1].sum()) + 8 * values + 160
        if vertices * per_vertex > memory:
            raise TooLargeError(
                f"layer {switch + 1} of {len(self.switches)} makes {polygons:,} polygons and needs about "
                f"{vertices * per_vertex / 2**30:.2g} GB, the limit of memory is {memory / 2**30:.2g} GB; "
                "give limit=, a smaller domain, or count only",
                times=vertices * per_vertex / memory,
            )

    def arrange(self, mesh: Polygons, switch: int) -> Arrangement:
        """All decisions about one switch."""
        step = self.switches[switch]
        stage = Stage(mesh.indptr, mesh.loop_v, mesh.signs, self.switches[:switch], mesh.root)
        sharp = self.arranger.twofold is not None
        early = switch == EARLY < len(self.switches) - DEEP
        if sharp and (early or self.arranger.stages[-1].is_blurred):
            self._sharpen(mesh, step.source, stage, np.arange(mesh.num_vertices))
        source = mesh.values[step.source]
        value = cuts(step, source, TrackedAlgebra(tight=False))
        known = sure_signs(step, source, lambda: self._numbers[step.source])
        anew = partial(self._sharpen, mesh, step.source, stage) if sharp else None
        return self.arranger.arrange(mesh, Functionals(value, anew), stage, int(self.offsets[switch]), known)

    def _sharpen(self, mesh: Polygons, key: int, stage: Stage, vertices: IntArray) -> Tracked:
        """Make the values in front of a switch anew at some vertices; later layers go on from these."""
        polygon = np.zeros(mesh.num_vertices, dtype=np.int64)
        polygon[mesh.loop_v] = mesh.owners
        arranger = self.arranger
        stages = arranger.stages if arranger.stages[-1] is stage else [*arranger.stages, stage]
        xy, value = (mesh.values[k].rows(vertices) for k in (XY, key))
        own = mesh.defined[vertices], polygon[vertices]
        found = sharpened(arranger.oracle, stages, *own, xy, value, arranger.run)
        for k, part in zip((XY, key), found, strict=True):
            mesh.values[k] = mesh.values[k].replaced(vertices, part)
        return mesh.values[key]

    # -- results -------------------------------------------------------------------------------------------------

    def count(self, mesh: Polygons, switch: int, node: int, run: Run) -> int:
        """Regions inside the polygons of a mesh, in pieces of bounded memory."""
        if switch == len(self.switches):
            return mesh.num_polygons
        width = int(np.diff(self.offsets)[switch:].max())
        pieces = min(mesh.num_polygons, -(-8 * width * mesh.num_vertices // _CHUNK_BYTES))
        if pieces <= 1:
            return self._count_piece(mesh, switch, node, run)
        cuts = pairwise(np.linspace(0, mesh.num_polygons, pieces + 1).astype(np.int64).tolist())
        total, done = 0, 0
        try:
            for lo, hi in cuts:
                total, done = total + self._count_piece(mesh.part(lo, hi), switch, node, run.quietly()), hi
                if self.interrupted:
                    break
                run.step(hi, mesh.num_polygons, f"{total} regions")
        except STOPPED:
            self.interrupted = True
        return total + mesh.num_polygons - done

    def _count_piece(self, mesh: Polygons, switch: int, node: int, run: Run) -> int:
        self.arranger.run = run
        try:
            run.check()
            with np.errstate(all="ignore"):  # what overflows is left to exact arithmetic
                node = self.advance(mesh, node)
                if switch < len(self.switches) - 1 or isinstance(self.switches[switch], MaxPool):
                    finer = self.split(mesh, switch, node, MEMORY_OF_A_COUNT, in_pieces=True)
                    run.step(switch + 1, len(self.switches), f"{finer.num_polygons} polygons")
                    found = self.count(finer, switch + 1, node + 1, run)
                else:
                    meetings = self.arrange(mesh, switch).meetings
                    # Euler: every segment of a chord adds a face, every point inside takes one back
                    found = 0 if meetings is None else int(meetings.segments.sum() - meetings.inside.sum())
                    found += mesh.num_polygons
        except STOPPED:
            self.interrupted = True
            return mesh.num_polygons
        self.arranger.stages.pop()
        return found

    def cells(self, mesh: Polygons, reached: int) -> Cells:
        """The mesh as cells; switches that were not reached have zeros for signs."""
        parts = [rows[:, : step.num_signs] for rows, step in zip(mesh.signs, self.switches, strict=False)][:reached]
        parts += [np.zeros((mesh.num_vertices, x.num_signs), dtype=np.int8) for x in self.switches[reached:]]
        signs = np.concatenate(parts, axis=1) if parts else np.zeros((mesh.num_vertices, 0), dtype=np.int8)
        edges = Incidence(np.arange(0, 2 * len(mesh.ends) + 1, 2), mesh.ends.reshape(-1))
        points, known = self._points(mesh)
        return Cells(
            points,
            signs,
            (edges, Incidence(mesh.indptr, mesh.loop_e)),
            exact_decisions=self.arranger.by_exact,
            float_decisions=self.arranger.by_float,
            domain_signs=mesh.sides,
            pools=pool_layout(self.layout),
            complete=known and reached == len(self.switches),
        )

    def _points(self, mesh: Polygons) -> tuple[FloatArray, bool]:
        """The vertices, and whether there was time for all of them.

        Where two lines run nearly side by side, a point that was found along one of them is vague: it is made anew from
        pairs of floats, and from exact numbers where these do not tell, since sizes of slivers depend on it.
        """
        value = mesh.values[XY]
        vague = np.flatnonzero(~(value.e2 <= PLACE * np.abs(value.z).max(initial=0.0)))
        points = value.z.copy() if len(vague) else value.z
        arranger = self.arranger
        sharp = sharp_points(arranger.oracle, arranger.stages, mesh.defined[vague], arranger.run)
        if sharp is not None:
            places, sure = sharp
            points[vague[sure]], vague = places[sure], vague[~sure]
        for vertex in vague.tolist():
            if self.arranger.run.is_over:
                return points, False
            number, polygon, first, second = mesh.defined[vertex].tolist()
            stage = self.arranger.stages[number]
            exact = self.arranger.oracle.point(stage, polygon, first, second)
            points[vertex] = self.placed(stage.chart(polygon), exact)
        return points, True

    def placed(self, chart: int, point: Triple) -> FloatArray:
        """A point of a chart among the coordinates, rounded."""
        x, y, w = map(int, point)
        return np.array([quotient(x, w), quotient(y, w)])
