"""Regions of a network on a round sphere, an ellipsoid or a cylinder, without a mesh.

Pulled back by the affine map that takes the unit sphere to the surface, the network has a complex of convex cells in
three dimensions, and the sphere meets its faces in arcs of circles. All counts follow from which vertices, edges and
faces meet the ball (:mod:`fiberscope.geometry.surfaces.ball_cut`), twice: by Euler's formula for the graph of arcs, and
cell by cell. A cell's part of the ball is convex, so its boundary is a topological sphere on which ``b`` loops of arcs
part ``a`` pieces of the round sphere from ``c`` pieces of the cell's own faces, and the pieces form a tree:
``a = b + 1 - c``. Areas come from the theorem of Gauss and Bonnet on a sphere, and from integrals along boundaries
elsewhere (:mod:`fiberscope.geometry.surfaces.area_bounds`). The same holds for a cylinder with two discs at its ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import pi
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fiberscope.errors import InputError, TooLargeError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box
from fiberscope.geometry.regions import regions_within
from fiberscope.geometry.surfaces.area_bounds import cylinder_area_bounds, ellipsoid_area_bounds
from fiberscope.geometry.surfaces.ball_cut import REACH, BallCut, corners_of, cut_ball, cut_cylinder
from fiberscope.geometry.surfaces.loops import loops_of
from fiberscope.geometry.surfaces.proven_arcs import ProvenArc, cylinder_arc, proven_arcs, sphere_arc
from fiberscope.geometry.surfaces.quadric_sizes import Ellipses, cylinder_ellipses, sphere_areas
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.round_bounds import arc_length, length_bounds, sphere_area_bounds
from fiberscope.geometry.surfaces.shapes import Sphere
from fiberscope.geometry.surfaces.ways.cylinder_ways import to_arcs
from fiberscope.geometry.surfaces.ways.round_ways import on_cylinder, to_boundaries
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, moved
from fiberscope.network.operators import Dense
from fiberscope.numerics.arrays import batch
from fiberscope.numerics.cutoffs import KNOWN
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.results import Pictured, hidden
from fiberscope.run import Progress, Run


@dataclass(frozen=True, eq=False)
class RoundRegions(Pictured):
    """The regions of a network on a sphere, an ellipsoid or a cylinder; made by :func:`fiberscope.round_regions`.

    A region is a maximal connected open set of the surface on which the sign of every neuron is constant, zero
    allowed. Counts are exact. Sizes are floats; :meth:`length_bounds` and :meth:`area_bounds` have proven ones.

    Parameters
    ----------
    net
        The network.
    surface
        What was asked.
    num_regions
        How many regions there are.
    patterns
        The sign vectors that occur, ``(patterns, num_signs)``.
    counts
        How many regions every pattern has, ``(patterns,)``: a pattern is one convex cell of the space around, and the
        surface may meet it in several places.
    num_vertices, num_arcs, num_circles
        The graph that the boundaries form: places where boundaries meet or bend, arcs between them, whole circles (of
        an ellipsoid or cylinder, ellipses). On a cylinder its two ends belong to it.
    exact_decisions
        How many decisions took fractions.
    """

    net: Network = field(metadata=hidden())
    surface: Sphere | Ellipsoid | Cylinder
    num_regions: int
    patterns: SignArray = field(metadata=hidden())
    counts: IntArray = field(metadata=hidden())
    num_vertices: int
    num_arcs: int
    num_circles: int
    exact_decisions: int
    space: Complex = field(metadata=hidden())
    cut: BallCut = field(metadata=hidden())
    cell: IntArray = field(metadata=hidden())
    loops: IntArray = field(metadata=hidden())

    told = ("network=net.architecture", "num_patterns", "boundary_length")
    picture = "round_regions"

    @property
    def num_patterns(self) -> int:
        """How many different sign vectors there are."""
        return len(self.patterns)

    # -- the arcs, on the unit sphere ------------------------------------------------------------------------------

    @cached_property
    def _rows(self) -> IntArray:
        """The row of the space's facets for every face."""
        row = np.full(self.space.structure.count(2), -1)
        row[self.space.facets.cell] = np.arange(len(self.space.facets))
        return row

    @cached_property
    def unit_vertices(self) -> FloatArray:
        """Ends of arcs on the unit sphere or cylinder, ``(vertices, 3)``."""
        ends = self._ends
        p, q = (self.space.structure.points[ends[:, k]] for k in range(2))
        d = q - p
        upright = isinstance(self.surface, Cylinder)
        counts = np.array([1.0, 1.0, 0.0 if upright else 1.0])
        a, b, c = (d * d) @ counts, (p * d) @ counts, (p * p) @ counts - 1
        root = np.sqrt(np.maximum(b * b - a * c, 0.0))
        t = np.where(self._leaves, -b + root, -b - root) / a
        found = p + t[:, None] * d
        size = np.sqrt((found * found) @ counts)[:, None]
        return np.asarray(found / np.where(counts > 0, size, 1.0))

    @property
    def _ends(self) -> IntArray:
        """Both ends of the edge of every vertex."""
        return np.asarray(self.space.structure.boundary[0].indices.reshape(-1, 2)[self.cut.edge])

    @property
    def _leaves(self) -> BoolArray:
        """The walk along an edge that starts inside meets the sphere from within: the larger root."""
        return np.asarray(self.cut.inside[self._ends[:, 0]] | self.cut.second)

    @cached_property
    def vertices(self) -> FloatArray:
        """Ends of arcs in the input space, ``(vertices, n)``."""
        return np.asarray(self.surface.center + self.unit_vertices @ self.surface.axes)

    @cached_property
    def arcs(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Arcs and then circles on the unit sphere: unit normals, heights, start points and angles.

        An arc turns about ``height * normal`` by its angle, from its start point, counter-clockwise seen from the tip
        of the normal. Normals lead from the first to the second of :attr:`sides`. Of spheres and ellipsoids;
        :attr:`ellipses` are those of cylinders, too.
        """
        if isinstance(self.surface, Cylinder):
            raise InputError("arcs: expected a Sphere or an Ellipsoid, got a Cylinder, which has ellipses")
        normal, height = self._planes
        count = len(self.cut.arcs)
        start, angle = np.zeros_like(normal), np.full(len(normal), 2 * pi)
        if count:
            begin, end = (self.unit_vertices[self._oriented[:, k]] for k in range(2))
            n, h = normal[:count], height[:count, None]
            u, v = begin - h * n, end - h * n
            angle[:count] = np.arctan2((n * np.cross(u, v)).sum(axis=1), (u * v).sum(axis=1)) % (2 * pi)
            start[:count] = begin
        for k in range(count, len(normal)):
            side = np.cross(normal[k], np.eye(3)[np.abs(normal[k]).argmin()])
            start[k] = height[k] * normal[k] + (1 - height[k] ** 2) ** 0.5 * side / np.linalg.norm(side)
        return normal, height, start, angle

    @cached_property
    def _planes(self) -> tuple[FloatArray, FloatArray]:
        """Unit normals and heights of the planes of all arcs and circles."""
        facets, rows = self.space.facets, self._rows[self._faces]
        return facets.normal[rows], facets.offset[rows]

    @property
    def _faces(self) -> IntArray:
        return np.concatenate([self.cut.arc_face, self.cut.circle_face])

    @cached_property
    def _oriented(self) -> IntArray:
        """Start and end of every arc, counter-clockwise seen from the tip of the normal, ``(arcs, 2)``."""
        turned = np.array([self._turn(int(face)) for face in self.cut.arc_face], dtype=float) < 0
        return np.where(turned[:, None], self.cut.arcs[:, ::-1], self.cut.arcs)

    @cached_property
    def ellipses(self) -> Ellipses:
        """All arcs and then circles, in the coordinates of the unit sphere or cylinder."""
        if isinstance(self.surface, Cylinder):
            ends = self.unit_vertices[self._oriented] if len(self.cut.arcs) else np.zeros((0, 2, 3))
            return cylinder_ellipses(*self._planes, ends)
        normal, height, start, angle = self.arcs
        middle = height[:, None] * normal
        one = start - middle
        return Ellipses(middle, one, np.cross(normal, one), np.zeros(len(angle)), angle, np.zeros_like(one))

    def _turn(self, face: int) -> float:
        """Positive if the cycle of a face runs counter-clockwise, seen from the tip of its normal."""
        corners = self.space.structure.points[self.cut.cycles[face]]
        around = np.cross(corners, np.roll(corners, -1, axis=0)).sum(axis=0)
        return float(around @ self.space.facets.normal[self._rows[face]])

    @cached_property
    def sides(self) -> IntArray:
        """The patterns on both sides of every arc and circle, ``(arcs, 2)``; -1 beyond the ends of a cylinder."""
        regions = self.space.facets.regions[self._rows[self._faces]]
        return np.asarray(np.where(regions < 0, -1, np.searchsorted(self.cell, regions)))

    @property
    def visible(self) -> BoolArray:
        """For every arc and circle, whether the function of the space around bends there; decided exactly."""
        return np.asarray(self.space.facets.visible[self._rows[self._faces]])

    @property
    def inner(self) -> BoolArray:
        """Which arcs and circles are boundaries between regions: all but those at the ends of a cylinder."""
        return np.asarray((self.sides >= 0).all(axis=1))

    # -- sizes -----------------------------------------------------------------------------------------------------

    @cached_property
    def lengths(self) -> FloatArray:
        """Length of every arc and circle, ``(arcs,)``: elliptic integrals, in floats."""
        if isinstance(self.surface, Sphere):
            _, height, _, angle = self.arcs
            return np.asarray(self.surface.radius * np.sqrt(1 - height**2) * angle)
        if isinstance(self.surface, Cylinder):  # planes along its axis, or almost, need more than floats
            return np.array([np.mean(arc_length(arc, self.surface.axes, True)) for arc in self._proven_arcs()])
        return self.ellipses.lengths(self.surface.axes)

    @property
    def boundary_length(self) -> float:
        """Length of all boundaries between regions."""
        return float(self.lengths[self.inner].sum())

    @property
    def visible_length(self) -> float:
        """Length of the boundaries where the function bends."""
        return float(self.lengths[self.visible & self.inner].sum())

    def length_bounds(self) -> tuple[float, float]:
        """Proven bounds of the length of all boundaries; the axes are taken as exact.

        Planes and corners of the complex are known with bounds of their errors; from there on, balls.

        >>> cap = Network([[[0.0, 0.0, 1.0]], [[1.0]]], [[-0.5], [0.0]])
        >>> low, high = round_regions(cap, Sphere()).length_bounds()
        >>> low <= np.pi * 3**0.5 <= high, high - low < 1e-9
        (True, True)
        """
        arcs = (arc for arc, inner in zip(self._proven_arcs(), self.inner, strict=True) if inner)
        return length_bounds(arcs, self.surface.axes, isinstance(self.surface, Cylinder))

    def area_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Proven lower and upper bounds of the area of every pattern, ``(patterns,)`` each.

        In balls, from the error bounds of planes and corners on; radius and axes are taken as exact. On a sphere by
        Gauss and Bonnet, elsewhere by integrals along the boundaries
        (:mod:`fiberscope.geometry.surfaces.area_bounds`).

        >>> cap = Network([[[0.0, 0.0, 1.0]], [[1.0]]], [[-0.5], [0.0]])
        >>> low, high = round_regions(cap, Sphere()).area_bounds()
        >>> bool(low.min() <= np.pi <= high.min()), bool((high - low).max() < 1e-9)
        (True, True)
        """
        surface, arcs = self.surface, self._proven_arcs()
        if isinstance(surface, Cylinder):
            return cylinder_area_bounds(arcs, self.sides, surface.axes, len(self.patterns))
        if isinstance(surface, Ellipsoid):
            return ellipsoid_area_bounds(arcs, self._oriented, self.sides, surface.axes, len(self.patterns))
        return sphere_area_bounds(arcs, self._oriented, self.sides, 2 * self.counts - self.loops, surface.radius)

    def _proven_arcs(self) -> Iterator[ProvenArc]:
        make = cylinder_arc if isinstance(self.surface, Cylinder) else sphere_arc
        ends = [[(*self._ends[v].tolist(), bool(self._leaves[v])) for v in pair] for pair in self._oriented.tolist()]
        return proven_arcs(make, self.space, corners_of(self.space), self._faces, ends)

    @cached_property
    def areas(self) -> FloatArray:
        """Area of every pattern, all of its regions together, ``(patterns,)``; floats.

        On a sphere by Gauss and Bonnet: ``2 pi`` times the Euler characteristic, minus the turning of the boundary. On
        the side ``n x < h`` a circle turns by ``-h`` per angle, and at a corner by the angle between its two normals.
        Elsewhere the middles of :meth:`area_bounds`.
        """
        if isinstance(self.surface, Sphere):
            if not len(self.cut.arc_face) and not len(self.cut.circle_face):
                return np.array([4 * pi * self.surface.radius**2])
            ends = self.unit_vertices[self.cut.arcs] if len(self.cut.arcs) else np.zeros((0, 2, 3))
            flat = 2 * self.counts - self.loops
            return self.surface.radius**2 * sphere_areas(self.arcs, self.cut.arcs, ends, self.sides, flat)
        low, high = self.area_bounds()
        return np.asarray(low + (high - low) / 2)

    def distance(self, points: Any, *, visible: bool = False, time_limit: float | None = None) -> FloatArray:
        """Length of the shortest way on the surface from its points to a boundary, ``(points,)``; floats.

        On a sphere ways are great circles, and points are moved to it along the radius first. On a cylinder ways are
        straight when it is unrolled; points are moved to its axes' coordinates, the angle and the height. On an
        ellipsoid, to which points are moved along rays from its centre, they are geodesics; where the shortest one is
        not known to one part in a hundred, :class:`~fiberscope.errors.TooLargeError` says between which lengths it
        lies. Infinite if there is no boundary; with ``visible`` only those where the function bends.

        >>> net = Network([[[0.0, 0.0, 1.0]], [[1.0]]], [[0.0], [0.0]])
        >>> found = round_regions(net, Sphere())
        >>> bool(np.isclose(found.distance([[0.0, 0.0, 1.0]])[0], np.pi / 2))
        True
        >>> upright = Network([[[1.0, 0.0, 0.0]], [[1.0]]], [[0.0], [0.0]])
        >>> round_regions(upright, Cylinder([2.0, 2.0, 1.0])).distance([[2.0, 0.0, 0.3]]).round(4)  # a quarter turn
        array([3.1416])
        >>> round_regions(upright, Ellipsoid([1.0, 2.0, 2.0])).distance([[0.8, 1.2, 0.0]]).round(4)
        array([1.1993])
        """
        least, ways = self.distance_range(points, visible=visible, time_limit=time_limit)
        open_to = np.flatnonzero(least < ways * KNOWN)
        if len(open_to):
            row = int(open_to[0])
            raise TooLargeError(
                f"distance: the way of point {row} is known between {least[row]:.6g} and {ways[row]:.6g} only, since "
                "too many directions lead there; distance_range has both"
            )
        return ways

    def distance_range(
        self, points: Any, *, visible: bool = False, time_limit: float | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Two lengths for every point, ``(points,)`` each: no way to a boundary is shorter than the first, up to
        rounding; the second is that of a way. They are the same but for ellipsoids; there the first is usually
        one or two parts in ten thousand below (:mod:`fiberscope.geometry.surfaces.ways.ellipsoid_ways`).

        >>> net = Network([[[0.0, 0.0, 1.0]], [[1.0]]], [[0.0], [0.0]])
        >>> low, high = round_regions(net, Ellipsoid([1.0, 1.0, 1.0])).distance_range([[0.6, 0.0, 0.8]])
        >>> angle = np.arcsin(0.8)
        >>> bool(low[0] <= angle), bool(low[0] > angle * (1 - 1e-3)), bool(np.isclose(high[0], angle, rtol=1e-12))
        (True, True, True)
        """
        given = batch(points, self.net.in_size, "points")
        asked = self.inner & self.visible if visible else self.inner
        run = Run.begin(None, time_limit)
        if isinstance(self.surface, Cylinder):
            places = on_cylinder(self.surface, given, "points")
            ways = to_arcs(self.surface.axes, self.ellipses, asked, places, run)
            return ways, ways
        return to_boundaries(self.surface, given, self.arcs, asked, run)

    def __repr__(self) -> str:
        regions, patterns, arcs, circles = (
            f"{count} {word}{'' if count == 1 else 's'}"
            for count, word in (
                (self.num_regions, "region"),
                (self.num_patterns, "pattern"),
                (self.num_arcs, "arc"),
                (self.num_circles, "circle"),
            )
        )
        where = repr(self.surface)
        if isinstance(self.surface, Sphere):
            where = f"the sphere of radius {self.surface.radius:g} in R^{self.surface.ambient}"
        return f"RoundRegions({regions} of {patterns} on {where}; {arcs}, {circles}, certified)"


def round_regions(
    net: NetworkLike,
    surface: Sphere | Ellipsoid | Cylinder,
    *,
    progress: Progress | None = None,
    limit: int | None = None,
    time_limit: float | None = None,
) -> RoundRegions:
    """The regions of a network on a sphere, an ellipsoid or a cylinder itself, not on a mesh: exact counts, and arcs.

    The complex of the space around the surface is built (three dimensions, whatever the network's inputs are), and
    which of its faces meet the ball is certified. A face of it that ends exactly on the sphere is no answer:
    :class:`~fiberscope.errors.NotGenericError` says where.

    Parameters
    ----------
    net
        Any network with ``surface.ambient`` inputs.
    surface
        A :class:`Sphere`, whose ``resolution`` does not matter here, an :class:`Ellipsoid` or a :class:`Cylinder`. It
        is the image of the unit sphere or cylinder under ``u -> center + u @ axes``, with the floats taken as exact.
    progress, limit, time_limit
        As for :func:`fiberscope.regions`; a limit that is reached is raised.

    Examples
    --------
    Three planes through the centre make eight regions; a plane near the pole cuts off a small cap:

    >>> net = Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
    >>> found = round_regions(net, Sphere())
    >>> found
    RoundRegions(8 regions of 8 patterns on the sphere of radius 1 in R^3; 12 arcs, 0 circles, certified)
    >>> bool(np.allclose(found.areas, np.pi / 2))
    True
    >>> cap = round_regions(Network([[[0.0, 0.0, 1.0]], [[1.0]]], [[-0.999], [0.0]]), Sphere())
    >>> cap.num_regions, round(cap.boundary_length, 3)
    (2, 0.281)
    """
    net = as_network(net)
    if not isinstance(surface, Sphere | Ellipsoid | Cylinder):
        raise InputError(f"surface: expected a Sphere, an Ellipsoid or a Cylinder, got {type(surface).__name__}")
    if surface.ambient != net.in_size:
        raise InputError(f"surface: expected one in R^{net.in_size} for this network, got R^{surface.ambient}")
    run = Run.begin(progress, time_limit, limit)
    run.step(0, 2, "the space around")
    upright = isinstance(surface, Cylinder)
    box = Box([-REACH, -REACH, 0.0 if upright else -REACH], [REACH, REACH, 1.0 if upright else REACH])
    space = regions_within(_pulled_back(net, surface), box, run)
    if not space.complete:
        raise TooLargeError(
            f"more than {limit} regions in the space around the surface, or more than fits; give a larger limit="
        )
    run.step(1, 2, "arcs")
    return _count(net, surface, space, cut_cylinder(space, run) if upright else cut_ball(space, run))


def _pulled_back(net: Network, surface: Sphere | Ellipsoid | Cylinder) -> Network:
    """The network behind the map from the unit ball."""
    first = Affine(0, Dense(np.ascontiguousarray(surface.axes.T)), np.asarray(surface.center))
    return Network.from_nodes([first, *(moved(node, tuple(s + 1 for s in node.sources)) for node in net.nodes)], (3,))


def _count(net: Network, surface: Sphere | Ellipsoid | Cylinder, space: Complex, cut: BallCut) -> RoundRegions:
    sides = space.sides
    cell = np.unique(np.concatenate([sides[cut.arc_face], sides[cut.circle_face]]))
    cell = cell[cell >= 0]
    loops, walls = loops_of(cut, space, cell)
    counts = loops + 1 - walls
    if not len(cell):  # no boundary at all: one region, in the cell of any point
        cell, counts, loops = np.array([_cell_of(space)]), np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    total = int(counts.sum())
    links = coo_array((np.ones(len(cut.arcs)), cut.arcs.T), shape=(len(cut.edge),) * 2)
    parts = int(connected_components(links, directed=False)[0]) if len(cut.edge) else 0
    euler = 1 + parts + len(cut.circle_face) + len(cut.arcs) - len(cut.edge)
    if isinstance(surface, Cylinder):
        euler -= 2  # the discs at its ends
    if euler != total:  # pragma: no cover - two countings of one thing
        raise ArithmeticError(f"{total} regions cell by cell, {euler} by Euler's formula")
    return RoundRegions(
        net,
        surface,
        total,
        space.sign_vectors[cell],
        counts,
        len(cut.edge),
        len(cut.arcs),
        len(cut.circle_face),
        cut.exact + space.structure.exact_decisions,
        space,
        cut,
        cell,
        loops,
    )


def _cell_of(space: Complex) -> int:
    """The only cell that the sphere meets, but for points where planes touch it."""
    for point in np.concatenate([np.eye(3), -np.eye(3), [[0.6, 0.48, 0.64]]]):
        signs = space.view.net.signs(point[None]).signs[0]
        found = np.flatnonzero((space.sign_vectors == signs).all(axis=1))
        if len(found):
            return int(found[0])
    raise ArithmeticError("no cell around the sphere")  # pragma: no cover - seven planes that touch it there
