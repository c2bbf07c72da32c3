"""The result of asking where a network is linear on a surface: pieces of triangles, joined to regions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fiberscope.errors import InputError, NotGenericError
from fiberscope.geometry.affine_forms import jumps
from fiberscope.geometry.cells import Cells, Incidence
from fiberscope.geometry.facets import bends_across, sides_of, unit
from fiberscope.geometry.surfaces.locate import extent_of, locate
from fiberscope.geometry.surfaces.shapes import Mesh
from fiberscope.geometry.surfaces.sizes import polygon_areas
from fiberscope.geometry.surfaces.unfolding import Unfolding
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import batch, pointers, real_array, row_lengths
from fiberscope.numerics.cutoffs import ON_SURFACE
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, IntArray, SignArray
from fiberscope.results import Pictured, hidden
from fiberscope.run import ENDLESS, Run

_CHUNK = 1 << 22
"""Entries of the arrays that are made for some edges at a time."""

_THIN = 2.0**-26
"""Pieces that are thinner beside an edge, relative to its coordinates, do not say which way leads out of them."""


@dataclass(frozen=True, eq=False)
class SurfaceRegions(Pictured):
    """The regions of a network on a surface; made by :func:`fiberscope.regions_on`.

    A region is a maximal connected open set of the surface on which the sign of every neuron is constant, zero allowed.
    It consists of *pieces*, convex polygons, each inside of one triangle. Decisions are certified as in the plane;
    sizes are floats.

    Parameters
    ----------
    net
        The network.
    surface
        What was asked: a mesh, sphere or torus, or a surface through a generator.
    structure
        Vertices, edges and pieces with certified signs; its points are coordinates in the span of the surface.
    triangle
        In which triangle of the mesh every piece lies, ``(pieces,)``.
    origin, basis
        A point of the structure is ``origin + point @ basis`` in the input space.
    first_sign
        Where the network's own signs begin in the structure's: a generator's neurons stand before them.
    """

    net: Network = field(metadata=hidden())
    surface: Any
    structure: Cells = field(metadata=hidden())
    triangle: IntArray = field(metadata=hidden())
    origin: FloatArray = field(metadata=hidden())
    basis: FloatArray = field(metadata=hidden())
    first_sign: int = field(default=0, metadata=hidden())

    told = (
        "network=net.architecture",
        "complete",
        "num_regions",
        "num_patterns",
        "num_pieces",
        "area",
        "boundary_length",
        "visible_length=_known_visible_length",
        "exact_decisions=structure.exact_decisions",
        "float_decisions=structure.float_decisions",
    )
    picture = "surface"

    # -- counts ------------------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """False when the work was interrupted or limited: then there are *at least* so many regions."""
        return self.structure.complete

    @property
    def num_pieces(self) -> int:
        """Polygons inside of single triangles."""
        return self.structure.count(2)

    @property
    def num_regions(self) -> int:
        """How many regions there are on the surface."""
        return self._joined[0]

    @cached_property
    def num_patterns(self) -> int:
        """How many different sign vectors there are: a pattern can have several regions on a curved surface."""
        return len(np.unique(self.sign_vectors, axis=0)) if self.net.num_signs else 1

    @property
    def euler_characteristic(self) -> int:
        """Vertices minus edges plus pieces: that of the surface."""
        return sum((-1) ** k * self.structure.count(k) for k in range(3))

    # -- regions and pieces ------------------------------------------------------------------------------------

    @cached_property
    def _joined(self) -> tuple[int, IntArray]:
        """Union-find over the edges across which no sign changes."""
        one, two = self.sides[self.same].T
        links = coo_array((np.ones(len(one)), (one, two)), shape=(self.num_pieces,) * 2)
        count, label = connected_components(links, directed=False)
        return int(count), label.astype(np.int64)

    @property
    def region_of(self) -> IntArray:
        """The region of every piece, ``(pieces,)``."""
        return self._joined[1]

    @cached_property
    def pieces_of(self) -> Incidence:
        """For every region its pieces."""
        counts = np.bincount(self.region_of, minlength=self.num_regions)
        return Incidence(pointers(counts), np.argsort(self.region_of, kind="stable"))

    @property
    def piece_signs(self) -> SignArray:
        """Sign vectors of the pieces, ``(pieces, num_signs)``."""
        return self.structure.top_signs[:, self.first_sign :]

    @cached_property
    def sign_vectors(self) -> SignArray:
        """Sign vectors of the regions, ``(regions, num_signs)``."""
        return self.piece_signs[self.pieces_of.indices[self.pieces_of.indptr[:-1]]]

    @cached_property
    def triangles(self) -> tuple[IntArray, ...]:
        """For every region the triangles of the mesh that it meets, in order."""
        return tuple(np.unique(self.triangle[self.pieces_of[r]]) for r in range(self.num_regions))

    @property
    def polygons(self) -> Incidence:
        """For every piece its vertices in cyclic order."""
        return self.structure.vertices_of(2)

    @cached_property
    def vertices(self) -> FloatArray:
        """All vertices in the input space, ``(vertices, n)``."""
        return self.lifted(self.structure.points)

    def lifted(self, coordinates: FloatArray) -> FloatArray:
        """Coordinates of the structure as points of the input space."""
        return np.asarray(self.origin + coordinates @ self.basis)

    @cached_property
    def points(self) -> FloatArray:
        """A point inside of every region, ``(regions, n)``: the middle of its largest piece."""
        order = np.lexsort((-self.piece_areas, self.region_of))
        return self.lifted(self._middles[order[self.pieces_of.indptr[:-1]]])

    @cached_property
    def _middles(self) -> FloatArray:
        inside = self.polygons
        total = np.add.reduceat(self.structure.points[inside.indices], inside.indptr[:-1])
        return np.asarray(total / np.diff(inside.indptr)[:, None])

    # -- sizes -------------------------------------------------------------------------------------------------

    @cached_property
    def piece_areas(self) -> FloatArray:
        """Area of every piece, ``(pieces,)``."""
        return polygon_areas(self.polygons, self.structure.points)

    @cached_property
    def areas(self) -> FloatArray:
        """Area of every region, ``(regions,)``; they add up to the area of the surface."""
        return np.asarray(np.bincount(self.region_of, self.piece_areas, self.num_regions), dtype=np.float64)

    @property
    def area(self) -> float:
        """Area of the surface."""
        return float(self.piece_areas.sum())

    @cached_property
    def edge_lengths(self) -> FloatArray:
        """Length of every edge of the structure."""
        ends = self.structure.boundary[0].indices.reshape(-1, 2)
        return row_lengths(self.structure.points[ends[:, 0]] - self.structure.points[ends[:, 1]])

    @property
    def boundary_length(self) -> float:
        """Length of all boundaries between regions; the border of the surface is none."""
        return float(self.edge_lengths[self.boundary].sum())

    @property
    def visible_length(self) -> float:
        """Length of the boundaries where the function bends."""
        return float(self.edge_lengths[self.boundary[self.visible]].sum())

    def _known_visible_length(self) -> float | None:
        return self.visible_length if self.complete else None

    # -- edges -------------------------------------------------------------------------------------------------

    @cached_property
    def sides(self) -> IntArray:
        """The pieces on both sides of every edge, ``(edges, 2)``; -1 on the border of the surface."""
        return sides_of(self.structure.boundary[1], self.structure.count(1))

    @cached_property
    def same(self) -> IntArray:
        """The edges across which no sign changes, on which none does either."""
        inner = np.flatnonzero(self.sides[:, 1] >= 0)
        signs, edge_signs = self.piece_signs, self.structure.signs(1)
        found = []
        for rows in np.array_split(inner, 1 + inner.size * self.net.num_signs // _CHUNK):
            one, two = self.sides[rows].T
            own = edge_signs[rows, self.first_sign :]
            found.append(rows[((signs[one] == own) & (signs[two] == own)).all(axis=1)])
        return np.concatenate(found)

    @cached_property
    def boundary(self) -> IntArray:
        """The edges between regions; on those of the mesh a neuron may vanish that is positive on both sides."""
        inner = self.sides[:, 1] >= 0
        inner[self.same] = False
        return np.flatnonzero(inner)

    @cached_property
    def visible(self) -> BoolArray:
        """For every edge of :attr:`boundary`, whether the affine maps on its two sides differ; decided exactly."""
        if not self.complete:
            raise NotGenericError("visible: expected a complete result, got one that was interrupted")
        seen = np.zeros(len(self.boundary), dtype=bool)
        size = max(1, _CHUNK // max(self.net.in_size, self.net.num_signs, 1))
        for start in range(0, len(seen), size):
            rows = slice(start, start + size)
            seen[rows] = self._bends(self.boundary[rows], 0)
            # Where a neuron vanishes on a whole triangle, only the direction into the other one sees it.
            again = start + np.flatnonzero(~seen[rows])
            seen[again] = self._bends(self.boundary[again], 1)
        return seen

    def _bends(self, edges: IntArray, side: int) -> BoolArray:
        """Whether the maps beside the edges differ, first of all in the direction out of the piece on one side."""
        if not len(edges):
            return np.zeros(0, dtype=bool)
        pieces = self.sides[edges]
        a, b = (self.structure.points[self.structure.boundary[0].indices.reshape(-1, 2)[edges, k]] for k in range(2))
        away, along = (a + b) / 2 - self._middles[pieces[:, side]], unit(b - a)
        away = away - np.einsum("ei,ei->e", away, along)[:, None] * along
        thin = ~(row_lengths(away) > _THIN * np.maximum(np.abs(a), np.abs(b)).max(axis=1, initial=0.0))
        away = unit(away)
        signs = self.piece_signs
        with np.errstate(over="ignore", invalid="ignore"):
            jump = jumps(self.net, signs[pieces[:, 0]], signs[pieces[:, 1]], away @ self.basis)
        jump.error[thin] = np.maximum(jump.error[thin], TINY)  # the way out of a thin piece is lost: decide exactly
        return bends_across(self.net, signs, pieces, jump)[0]

    # -- distances within the surface --------------------------------------------------------------------------------

    @cached_property
    def unfolding(self) -> Unfolding:
        """The pieces in planes of their own: what shortest ways need."""
        outer = self.structure.boundary[1]
        following = np.arange(1, len(outer.indices) + 1)
        following[outer.indptr[1:] - 1] = outer.indptr[:-1]  # a vertex lies between two sides; the second begins there
        return Unfolding.of(self.structure.points, self.polygons, outer.indices[following])

    def distance(self, points: Any, *, visible: bool = False, time_limit: float | None = None) -> FloatArray:
        """Length of the shortest way within the surface from points to a boundary between regions, ``(points,)``.

        It is exact on the surface of flat pieces, up to rounding. Points are moved to the surface first. Infinite where
        no boundary can be reached; the border of the surface is none.

        Parameters
        ----------
        points
            ``(points, n)``, on the surface or near it.
        visible
            Take only boundaries where the function bends.

        >>> from fiberscope.geometry.surfaces.regions_on import regions_on
        >>> roof = Mesh.grid([[[x, y, -abs(x)] for y in (-1.0, 1.0)] for x in (-1.0, 0.0, 1.0)])
        >>> found = regions_on(Network([[[1.0, 0.0, 0.0]], [[1.0]]], [[0.5], [0.0]]), roof)
        >>> found.distance([[0.5, 0.0, -0.5]]).round(4)  # over the ridge, and down to x = -.5: twice the root of 1/2
        array([1.4142])
        """
        given = batch(points, self.net.in_size, "points")
        run = Run.begin(None, time_limit)
        return self.distance_from(*self._pieces_at(given, run), visible, run)

    def distance_from(self, pieces: IntArray, places: FloatArray, visible: bool, run: Run = ENDLESS) -> FloatArray:
        """The same from places on given pieces, in the coordinates of the structure."""
        goals = self.boundary[self.visible] if visible else self.boundary
        if not len(goals):
            return np.full(len(pieces), np.inf)
        return self.unfolding.to_edges((pieces, places), goals, run)

    def _pieces_at(self, given: FloatArray, run: Run) -> tuple[IntArray, FloatArray]:
        """For every point a piece and the place on it."""
        mesh = self._mesh
        if mesh is None:  # the exact image of a generator: the pieces with its signs, and the nearest of them
            signs = self.net.signs(given).signs
            places = (given - self.origin) @ self.basis.T
            return np.array([self._nearest_piece(s, x, run) for s, x in zip(signs, places, strict=True)]), places
        at = locate(mesh, given, "points")
        pieces, places = np.zeros(len(given), dtype=np.int64), np.zeros((len(given), self.basis.shape[0]))
        best = np.full(len(given), -np.inf)
        off = np.linalg.norm(at.place - given[at.owner], axis=1)
        near = off <= at.off[at.owner] + ON_SURFACE * extent_of(mesh)
        within = (at.place - self.origin) @ self.basis.T
        order = np.argsort(self.triangle, kind="stable")
        first = np.searchsorted(self.triangle[order], np.arange(len(mesh.triangles) + 1))
        for row in np.flatnonzero(near).tolist():
            run.check()
            own = order[first[at.triangle[row]] : first[at.triangle[row] + 1]]
            depth = self.unfolding.depth(own, within[row])
            if depth.max() > best[at.owner[row]]:
                best[at.owner[row]] = depth.max()
                pieces[at.owner[row]], places[at.owner[row]] = own[depth.argmax()], within[row]
        return pieces, places

    def _nearest_piece(self, signs: SignArray, place: FloatArray, run: Run) -> int:
        run.check()
        fits = np.flatnonzero((self.piece_signs == signs).all(axis=1))
        fits = fits if len(fits) else np.arange(self.num_pieces)
        depth = np.minimum(self.unfolding.depth(fits, place), 0.0)
        offset = place - self.unfolding.origin[fits]
        frames = self.unfolding.frames[fits]
        flat = np.einsum("pkn,pn->pk", frames, offset)
        beside = row_lengths(offset - np.einsum("pk,pkn->pn", flat, frames))
        return int(fits[(beside - depth).argmin()])

    @property
    def _mesh(self) -> Mesh | None:
        """The triangles that were cut, unless they are the exact image of a generator."""
        return getattr(self.surface, "mesh", None)

    # -- for people and machines -------------------------------------------------------------------------------

    def region(self, point: Any) -> int:
        """The region of a point of the surface, or of the place in the nearest triangle to which it is moved.

        >>> from fiberscope.geometry.surfaces.regions_on import regions_on
        >>> from fiberscope.geometry.surfaces.shapes import Sphere
        >>> net = Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
        >>> found = regions_on(net, Sphere(resolution=1))
        >>> found.sign_vectors[found.region([0.5, 0.6, -0.6])].tolist()
        [1, 1, -1]
        """
        given = batch(np.reshape(real_array(point, "point"), (1, -1)), self.net.in_size, "point")
        mesh: Mesh | None = getattr(self.surface, "mesh", None)
        if mesh is None:  # through a generator: the sign vector has to tell
            signs = self.net.signs(given).signs[0]
            fits = np.flatnonzero((self.piece_signs == signs).all(axis=1))
            if len(fits):
                middles = self.lifted(self._middles[fits])
                return int(self.region_of[fits[np.linalg.norm(middles - given, axis=1).argmin()]])
        else:
            at = locate(mesh, given, "point")
            signs = self.net.signs(at.place).signs
            for row in np.argsort(np.linalg.norm(at.place - given, axis=1), kind="stable"):
                fits = np.flatnonzero(
                    (self.triangle == at.triangle[row]) & (self.piece_signs == signs[row]).all(axis=1)
                )
                if len(fits):  # one, as a flat triangle meets every sign vector in a convex set
                    return int(self.region_of[fits[0]])
        raise InputError("point: expected one inside of a region, got a sign vector that does not occur there")

    def __repr__(self) -> str:
        least = "" if self.complete else "at least "
        sizes = f"area {self.area:.4g}, boundaries {self.boundary_length:.4g}"
        return f"SurfaceRegions({least}{self.num_regions} regions on {self.surface}; {sizes})"
