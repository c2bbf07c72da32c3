"""How the unit sphere or cylinder meets the faces of a complex in three dimensions: decisions only, each certified.

A vertex lies inside of the ball or outside. An edge meets the sphere once if its ends differ, twice if both are
outside and its inner part comes near enough, and not at all if both are inside. A face, a convex polygon, meets it in
arcs of one circle: walking around the polygon, every place where the walk leaves the ball is joined by an arc to the
next place where it comes back. A circle lies within a face if the whole polygon is outside and its plane's point
nearest to the centre is inside of both. Floats with the complex's own error bounds decide nearly all of it, fractions
the rest. Vertices on the sphere and edges that touch it are refused: there the picture is not that of arcs.

The cylinder ``x^2 + y^2 = 1`` is the same without the third coordinate, which no decision then looks at. Faces meet it
in arcs of ellipses or, where they are upright, in straight lines; a face holds a whole ellipse if the axis meets it and
all of its edges are outside. The ends of the cylinder are walls of the complex, and their circles the border.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from fiberscope.errors import NotGenericError
from fiberscope.geometry.affine_forms import ExactRegion
from fiberscope.geometry.complex import Complex
from fiberscope.numerics.algebra.ball import exact_fraction
from fiberscope.numerics.cutoffs import VAGUE_VERTEX
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray, gamma
from fiberscope.run import ENDLESS, Run

REACH = 1.25
"""The complex is that of the box ``[-REACH, REACH]^3``; the bounds below are for points of it."""

_ADVICE = "the regions of this surface are undecided; a slightly different radius or centre has an answer"

Point = tuple[Fraction, Fraction, Fraction]
Plane = tuple[Fraction, Fraction, Fraction, Fraction]


@dataclass(frozen=True, slots=True, eq=False)
class BallCut:
    """The sphere in a complex.

    Parameters
    ----------
    inside
        Which vertices of the complex lie in the open ball, ``(V,)``.
    edge
        The edge of every point where an edge meets the sphere, ``(P,)``; points of one edge follow each other in the
        direction of the edge.
    second
        Which of them is the second of two on its edge, ``(P,)``.
    arcs
        Points from which and to which arcs lead, ``(A, 2)``; the face lies around them as its cycle runs.
    arc_face
        The face of every arc, ``(A,)``.
    cycles
        For every face with arcs its vertices in the order in which the arcs were made.
    circle_face
        The faces that hold a whole circle.
    meets_edge, meets_face
        Which edges and faces meet the open ball.
    exact
        How many decisions took fractions.
    """

    inside: BoolArray
    edge: IntArray
    second: BoolArray
    arcs: IntArray
    arc_face: IntArray
    cycles: dict[int, list[int]]
    circle_face: IntArray
    meets_edge: BoolArray
    meets_face: BoolArray
    exact: int


def cut_ball(complex: Complex, run: Run = ENDLESS) -> BallCut:
    """Where the unit sphere meets the edges and faces of a complex on the box of :data:`REACH`."""
    return _Cutter(complex, run).cut()


def cut_cylinder(complex: Complex, run: Run = ENDLESS) -> BallCut:
    """Where the cylinder meets the edges and faces of a complex with ``x`` and ``y`` up to :data:`REACH`."""
    return _CylinderCutter(complex, run).cut()


def corners_of(complex: Complex, run: Run = ENDLESS) -> Callable[[int], Point]:
    """The vertices of a complex in fractions, each made once when it is asked for."""
    return _Cutter(complex, run)._point


class _Cutter:
    name = "sphere"

    def __init__(self, complex: Complex, run: Run) -> None:
        self.complex, self.cells, self.run = complex, complex.structure, run
        self.points = self._round(self.cells.points)
        errors = self.cells.point_errors
        self.errors = np.full(len(self.points), np.inf) if errors is None else errors
        self.errors = np.where(self.errors < VAGUE_VERTEX, self.errors, np.inf)
        self.ends = self.cells.boundary[0].indices.reshape(-1, 2)
        self.exact = 0
        self._known: dict[int, Point] = {}
        self._home: dict[int, int] | None = None

    def _round(self, points: FloatArray) -> FloatArray:
        """The coordinates that decide what is inside."""
        return points

    def _round_point(self, vertex: int) -> Point:
        return self._point(vertex)

    def cut(self) -> BallCut:
        inside = self._inside()
        roots = self._roots(inside)
        edge = np.repeat(np.arange(len(roots)), roots)
        first = np.cumsum(roots) - roots
        meets_edge = inside[self.ends].any(axis=1) | (roots > 0)
        arcs: list[tuple[int, int]] = []
        arc_face: list[int] = []
        cycles: dict[int, list[int]] = {}
        faces = self.cells.boundary[1]
        touched = np.logical_or.reduceat(meets_edge[faces.indices], faces.indptr[:-1])
        crossed = np.logical_or.reduceat((roots > 0)[faces.indices], faces.indptr[:-1])
        for face in np.flatnonzero(crossed).tolist():
            self.run.check()
            cycles[face] = self._cycle(face)
            for pair in self._arcs(cycles[face], faces[face], inside, roots, first):
                arcs.append(pair)
                arc_face.append(face)
        circles = self._circles(np.flatnonzero(~touched))
        meets_face = touched.copy()
        meets_face[circles] = True
        second = np.arange(len(edge)) > first[edge]
        found = np.array(arcs, dtype=np.int64).reshape(-1, 2)
        kept = np.array(arc_face, dtype=np.int64)
        return BallCut(inside, edge, second, found, kept, cycles, circles, meets_edge, meets_face, self.exact)

    # -- vertices and edges ------------------------------------------------------------------------------------

    def _inside(self) -> BoolArray:
        p, e = self.points, self.errors
        value = (p * p).sum(axis=1) - 1
        bound = 8 * REACH * e + gamma(8) * 8
        inside = value < -bound
        for v in np.flatnonzero(~(np.abs(value) > bound)).tolist():
            x = self._round_point(v)
            side = sum((c * c for c in x), Fraction(-1))
            if side == 0:
                where = _told(self._point(v))
                raise NotGenericError(f"a vertex of the complex lies on the {self.name}, at {where}: {_ADVICE}")
            inside[v] = side < 0
        return np.asarray(inside)

    def _roots(self, inside: BoolArray) -> IntArray:
        """How often every edge meets the sphere."""
        a, b = self.ends.T
        roots = (inside[a] != inside[b]).astype(np.int64)
        far = np.flatnonzero(~inside[a] & ~inside[b])
        p, q = self.points[a[far]], self.points[b[far]]
        slip = self.errors[a[far]] + self.errors[b[far]]
        d = q - p
        with np.errstate(invalid="ignore"):
            before, behind = (p * d).sum(axis=1), (q * d).sum(axis=1)
            near = (np.cross(p, q) ** 2).sum(axis=1) - (d * d).sum(axis=1)  # |d|^2 (distance of the line^2 - 1)
            # of products of coordinates up to REACH: 3 sums of 2 terms, and squares of such of size up to 2 REACH^2
            flat, square = 24 * slip + gamma(12) * 24, 96 * slip + gamma(24) * 96
            none = (before > flat) | (behind < -flat) | (near > square)
            two = (before < -flat) & (behind > flat) & (near < -square)
        roots[far[two]] = 2
        for k in np.flatnonzero(~(none | two)).tolist():
            roots[far[k]] = 2 * self._meets(int(a[far[k]]), int(b[far[k]]))
        return np.asarray(roots)

    def _meets(self, a: int, b: int) -> bool:
        p, q = self._round_point(a), self._round_point(b)
        d = _minus(q, p)
        if _dot(p, d) >= 0 or _dot(q, d) <= 0:
            return False
        c = _cross(p, q)
        near = _dot(c, c) - _dot(d, d)
        if near == 0:
            between = f"{_told(self._point(a))} and {_told(self._point(b))}"
            raise NotGenericError(f"an edge of the complex touches the {self.name}, between {between}: {_ADVICE}")
        return near < 0

    # -- faces -------------------------------------------------------------------------------------------------

    def _cycle(self, face: int) -> list[int]:
        """The vertices of a face, one after the other."""
        neighbours: dict[int, list[int]] = {}
        for a, b in self.ends[self.cells.boundary[1][face]].tolist():
            neighbours.setdefault(a, []).append(b)
            neighbours.setdefault(b, []).append(a)
        start = next(iter(neighbours))
        cycle, last = [start], neighbours[start][1]
        current = neighbours[start][0]
        while current != start:
            cycle.append(current)
            before = cycle[-2]
            one, two = neighbours[current]
            current = two if one == before else one
        assert cycle[-1] == last
        return cycle

    def _arcs(
        self, cycle: list[int], edges: IntArray, inside: BoolArray, roots: IntArray, first: IntArray
    ) -> Iterator[tuple[int, int]]:
        """From every place where the walk around a face leaves the ball to the next where it comes back."""
        of_ends = {frozenset(self.ends[e].tolist()): int(e) for e in edges}
        walk: list[tuple[int, bool]] = []  # points of the sphere, and whether the walk leaves the ball there
        for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            e = of_ends[frozenset((a, b))]
            if roots[e] == 1:
                walk.append((int(first[e]), bool(inside[a])))
            elif roots[e] == 2:
                order = (0, 1) if self.ends[e, 0] == a else (1, 0)
                walk += [(int(first[e]) + order[0], False), (int(first[e]) + order[1], True)]
        for (one, leaves), (two, back) in zip(walk, walk[1:] + walk[:1], strict=True):
            if leaves:
                assert not back
                yield one, two

    def _circles(self, faces: IntArray) -> IntArray:
        """Which of the faces with all of their edges outside of the ball hold a circle."""
        facets = self.complex.facets
        row = np.full(self.cells.count(2), -1)
        row[facets.cell] = np.arange(len(facets))
        faces = faces[facets.regions[row[faces], 1] >= 0]  # the sides of the box are outside
        k = row[faces]
        slip = facets.normal_error[k] + facets.offset_error[k]
        foot = facets.offset[k, None] * facets.normal[k]
        # what passes the ball, or has its foot outside of the face's own box, holds no circle
        corners = self.cells.vertices_of(2)
        low, high = (
            bound.reduceat(self.points[corners.indices], corners.indptr[:-1])[faces]
            for bound in (np.minimum, np.maximum)
        )
        wide = np.maximum.reduceat(self.errors[corners.indices], corners.indptr[:-1])[faces]
        off = (4 * (slip + wide) + gamma(16) * 8)[:, None]
        maybe = ~(np.abs(facets.offset[k]) - slip > 1) & ~((foot < low - off) | (foot > high + off)).any(axis=1)
        found = [
            int(faces[i])
            for i in np.flatnonzero(maybe)
            if self._holds_foot(int(faces[i]), facets.normal[k[i]], float(facets.offset[k[i]]), float(slip[i]))
        ]
        return np.array(found, dtype=np.int64)

    def _holds_foot(self, face: int, normal: FloatArray, offset: float, slip: float) -> bool:
        """Whether a circle exists and its centre is in the polygon: by a margin of its radius, or not at all."""
        cycle = self._cycle(face)
        corners = self.points[cycle]
        off = 8 * (slip + float(self.errors[cycle].max()) + gamma(16) * 8)
        radius = (1 - (abs(offset) + slip) ** 2) ** 0.5 if abs(offset) + slip < 1 else 0.0
        sides = np.roll(corners, -1, axis=0) - corners
        length = np.linalg.norm(sides, axis=1)
        if off < 1e-2 * radius * length.min():
            turned = np.cross(np.broadcast_to(normal, sides.shape), sides) / length[:, None]
            depth = np.einsum("en,en->e", turned, offset * normal - corners)
            return bool((depth > radius / 2).all() or (depth < -radius / 2).all())
        return self._holds_foot_exactly(face, cycle)

    def _holds_foot_exactly(self, face: int, cycle: list[int]) -> bool:
        self.exact += 1
        corners = [self._point(v) for v in cycle]
        normal = next(n for a, b, c in combinations(corners, 3) if any(n := _cross(_minus(b, a), _minus(c, a))))
        square, height = _dot(normal, normal), _dot(normal, corners[0])
        if height * height >= square:
            return False  # the plane passes the ball, or touches it: a point does not part anything
        foot = tuple(height * c / square for c in normal)
        turns = [
            _dot(normal, _cross(_minus(b, a), _minus(foot, a)))
            for a, b in zip(corners, corners[1:] + corners[:1], strict=True)
        ]
        return all(t > 0 for t in turns) or all(t < 0 for t in turns)

    # -- exact points ------------------------------------------------------------------------------------------

    def _point(self, vertex: int) -> Point:
        """The vertex as fractions: three planes that meet there."""
        if vertex not in self._known:
            self.run.check()
            self.exact += 1
            self._known[vertex] = self._solve(vertex)
        return self._known[vertex]

    def _solve(self, vertex: int) -> Point:
        planes = list(self._planes(vertex))
        for one, two, three in combinations(planes, 3):
            n = [plane[:3] for plane in (one, two, three)]
            det = _dot(n[0], _cross(n[1], n[2]))
            if det:
                parts = [_cross(n[1], n[2]), _cross(n[2], n[0]), _cross(n[0], n[1])]
                terms = [(plane[3], part) for plane, part in zip((one, two, three), parts, strict=True)]
                x, y, z = (-sum((h * part[i] for h, part in terms), Fraction(0)) / det for i in range(3))
                return x, y, z
        raise NotGenericError(f"no three planes meet at vertex {vertex}: {_ADVICE}")  # pragma: no cover

    def _planes(self, vertex: int) -> Iterator[Plane]:
        """Planes ``n x + h = 0`` through a vertex: sides of the box, and neurons of one region beside it."""
        A, b = self.complex.view.domain.halfspaces()
        signs: SignArray | None = self.cells.domain_signs
        if signs is not None:
            for side in np.flatnonzero(signs[vertex] == 0):
                yield (*(Fraction(float(v)) for v in A[side]), -Fraction(float(b[side])))  # type: ignore[misc]
        region = ExactRegion(self.complex.view.net, self.cells.top_signs[self._region_beside(vertex)])
        for entry in np.flatnonzero(self.cells.vertex_signs[vertex] == 0).tolist():
            form = [exact_fraction(v) for v in region.margin(entry)]
            if any(form[:3]):
                yield (form[0], form[1], form[2], form[3])

    def _region_beside(self, vertex: int) -> int:
        if self._home is None:
            inside = self.cells.vertices_of(3)
            owner = np.repeat(np.arange(len(inside)), np.diff(inside.indptr))
            self._home = dict(zip(inside.indices.tolist(), owner.tolist(), strict=True))
        return self._home[vertex]


class _CylinderCutter(_Cutter):
    name = "cylinder"

    def _round(self, points: FloatArray) -> FloatArray:
        return np.asarray(points * np.array([1.0, 1.0, 0.0]))

    def _round_point(self, vertex: int) -> Point:
        x, y, _ = self._point(vertex)
        return x, y, Fraction(0)

    def _circles(self, faces: IntArray) -> IntArray:
        """Which of the faces with all of their edges outside meet the axis, and so hold a whole ellipse."""
        corners = self.cells.vertices_of(2)
        at = self.points[corners.indices]
        low, high = (bound.reduceat(at, corners.indptr[:-1])[faces] for bound in (np.minimum, np.maximum))
        wide = np.maximum.reduceat(self.errors[corners.indices], corners.indptr[:-1])[faces][:, None]
        maybe = ((low <= wide) & (high >= -wide)).all(axis=1)
        return np.array([face for face in faces[maybe].tolist() if self._meets_axis(face)], dtype=np.int64)

    def _meets_axis(self, face: int) -> bool:
        cycle = self._cycle(face)
        following = cycle[1:] + cycle[:1]
        p, q = self.points[cycle], self.points[following]
        turn = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
        bound = 4 * REACH * (self.errors[cycle] + self.errors[following]) + gamma(4) * 4
        if not (np.abs(turn) > bound).all():
            self.exact += 1
            exact = [self._round_point(v) for v in cycle]
            sides = [_cross(a, b)[2] for a, b in zip(exact, exact[1:] + exact[:1], strict=True)]
            return all(v > 0 for v in sides) or all(v < 0 for v in sides)
        return bool((turn > 0).all() or (turn < 0).all())


def _dot(a: tuple[Fraction, ...], b: tuple[Fraction, ...]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def _minus(a: tuple[Fraction, ...], b: tuple[Fraction, ...]) -> Point:
    x, y, z = (x - y for x, y in zip(a, b, strict=True))
    return x, y, z


def _cross(a: tuple[Fraction, ...], b: tuple[Fraction, ...]) -> Point:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def _told(x: Point) -> str:
    return "(" + ", ".join(f"{float(v):.6g}" for v in x) + ")"
