"""Distances within the built-in manifolds.

Curves: arc length. Sphere: the great circle. Meshes, and with them the torus: the length of a way on the mesh, straight
inside of the triangles of the two points and along edges in between. It is an upper bound of the geodesic distance on
the mesh, rounded up, as good as the triangles are small and well turned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve import Path
from fiberscope.geometry.surfaces.locate import Located, at_weights, locate, size_of
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.numerics.arrays import batch, ranks_within
from fiberscope.numerics.floats import FloatArray, IntArray, U, gamma
from fiberscope.results import Tabular

Shape = Path | Sphere | Torus | Mesh

_CHUNK = 1 << 22
"""Lengths of ways that are held at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class GeodesicDistance(Tabular):
    """Distances of pairs of points within a manifold.

    ``kind`` is ``"exact"`` (up to rounding) or ``"upper bound"``. ``moved`` ``(pairs, 2)`` is how far the points ``a``
    and ``b`` were from the manifold: the distance is that of the places to which they were moved.
    """

    distance: FloatArray
    kind: str
    moved: FloatArray = field(repr=False)

    frame = ("distance", "moved")

    def __repr__(self) -> str:
        far = float(self.moved.max(initial=0.0))
        moved = f", points moved by up to {far:.2g}" if far > 0 else ""
        return f"GeodesicDistance({len(self.distance)} pairs, {self.kind}{moved})"


def geodesic_distance(shape: Shape, a: Any, b: Any) -> GeodesicDistance:
    """Distances within a manifold between the points ``a`` and ``b``, pair by pair.

    Parameters
    ----------
    shape
        A curve, a :class:`Sphere`, a :class:`Torus` or a :class:`Mesh`.
    a, b
        On a curve, parameters; otherwise points ``(pairs, n)``. On a sphere they are moved to it along rays from its
        centre, on a mesh to the nearest point of the nearest triangle; ``moved`` says how far. Where several triangles
        are about as near, as where sheets of a surface meet or a point lies between two, the bound holds for all of
        them. On a mesh also ``(triangles, weights)``: numbers ``(pairs,)`` and barycentric weights ``(pairs, 3)``.

    Examples
    --------
    >>> from fiberscope.geometry.curves.curve import Circle
    >>> geodesic_distance(Circle(), [0.0], [3.0]).distance
    array([3.])
    >>> geodesic_distance(Sphere(), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]).distance.round(4)
    array([1.5708])

    A sheet of paper folded in half: through the gap it is .09, within the paper 1.8.

    >>> lines = [(0.0, 0.0), (1.0, 0.0), (0.0, 0.1)]
    >>> sheet = Mesh.grid([[[x, y, z] for y in (0.0, 1.0)] for x, z in lines])
    >>> bool(geodesic_distance(sheet, [[0.1, 0.5, 0.0]], [[0.1, 0.5, 0.09]]).distance[0] > 1.8)
    True
    """
    if isinstance(shape, Path):
        found = shape.geodesic(a, b)
        return GeodesicDistance(found, "exact", np.zeros((len(found), 2)))
    if not isinstance(shape, Mesh | Sphere | Torus):
        raise InputError(f"shape: expected a curve, Sphere, Torus or Mesh, got {type(shape).__name__}")
    if isinstance(shape, Sphere):
        one, two = (batch(points, shape.ambient, name) for points, name in ((a, "a"), (b, "b")))
        _same_count(len(one), len(two))
        return _great_circle(shape, one, two)
    first, last = (_located(shape.mesh, points, name) for points, name in ((a, "a"), (b, "b")))
    _same_count(len(first.off), len(last.off))
    moved = np.stack([first.off, last.off], axis=1)
    return GeodesicDistance(_along_edges(shape.mesh, first, last), "upper bound", moved)


def _same_count(one: int, two: int) -> None:
    if one != two:
        raise InputError(f"b: expected as many points as in a, {one}, got {two}")


def _located(mesh: Mesh, points: Any, name: str) -> Located:
    if isinstance(points, tuple):
        if len(points) != 2:
            raise InputError(f"{name}: expected points, or a pair (triangles, weights), got {len(points)} parts")
        return at_weights(mesh, *points, name)
    return locate(mesh, batch(points, mesh.ambient, name), name)


def _great_circle(sphere: Sphere, a: FloatArray, b: FloatArray) -> GeodesicDistance:
    u, v = ((x - sphere.center) @ sphere.frame.T for x in (a, b))
    lengths = [np.linalg.norm(x, axis=1, keepdims=True) for x in (u, v)]
    if not (np.concatenate(lengths) > 0).all():
        raise InputError("sphere: expected points away from its centre")
    u, v = u / lengths[0], v / lengths[1]
    # the half-angle form is accurate for near and for opposite points alike
    way = 2 * sphere.radius * np.arctan2(np.linalg.norm(u - v, axis=1), np.linalg.norm(u + v, axis=1))
    places = (sphere.center + sphere.radius * (x @ sphere.frame) for x in (u, v))
    moved = np.stack([np.linalg.norm(x - y, axis=1) for x, y in zip((a, b), places, strict=True)], axis=1)
    return GeodesicDistance(np.asarray(way), "exact", moved)


def _along_edges(mesh: Mesh, a: Located, b: Located) -> FloatArray:
    """For every pair the largest of the shortest ways between the places that its points may stand for."""
    i, j = mesh.edges.T
    length = np.linalg.norm(mesh.vertices[i] - mesh.vertices[j], axis=1)
    graph = coo_array((length, (i, j)), shape=(len(mesh.vertices),) * 2).tocsr()
    one, two = _pairs(a, b)
    found = np.zeros(len(one))
    order = np.argsort(a.triangle[one], kind="stable")
    for rows in np.array_split(order, 1 + 3 * len(order) * len(mesh.vertices) // _CHUNK):
        if len(rows):
            found[rows] = _ways(mesh, graph, a, b, one[rows], two[rows])
    # Every rounding of a length and of their sum, and of the places: the bound must not fall below the way.
    slack = 64 * U * max(size_of(mesh), *(float(np.abs(x.place).max()) for x in (a, b)))
    found = np.where(found > 0, found * (1 + gamma(len(mesh.vertices) + mesh.ambient + 16)) + slack, 0.0)
    spots, which = np.unique(np.stack([a.spot[one], b.spot[two]], axis=1), axis=0, return_inverse=True)
    shortest, owner = np.full(len(spots), np.inf), np.zeros(len(spots), dtype=np.int64)
    np.minimum.at(shortest, which.reshape(-1), found)
    owner[which.reshape(-1)] = a.owner[one]
    worst = np.zeros(len(a.off))
    np.maximum.at(worst, owner, shortest)
    return worst


def _pairs(a: Located, b: Located) -> tuple[IntArray, IntArray]:
    """Rows of both whose owners are the same pair."""
    counts = np.bincount(b.owner, minlength=len(b.off))
    start = np.cumsum(counts) - counts
    times = counts[a.owner]
    one = np.repeat(np.arange(len(a.owner)), times)
    step = ranks_within(times)
    return one, start[a.owner[one]] + step


def _ways(mesh: Mesh, graph: Any, a: Located, b: Located, one: IntArray, two: IntArray) -> FloatArray:
    """Straight inside of a triangle, across one edge, or over corners and edges to the corners of the other."""
    ends = [mesh.triangles[x.triangle[rows]] for x, rows in ((a, one), (b, two))]
    legs = [
        np.linalg.norm(mesh.vertices[corner] - x.place[rows][:, None], axis=2)
        for corner, x, rows in zip(ends, (a, b), (one, two), strict=True)
    ]
    starts, place = np.unique(ends[0], return_inverse=True)
    ways = dijkstra(graph, directed=False, indices=starts)[place.reshape(ends[0].shape)]
    between = np.take_along_axis(ways, ends[1][:, None, :], axis=2)
    way = (legs[0][:, :, None] + between + legs[1][:, None, :]).min(axis=(1, 2))
    p, q = a.place[one], b.place[two]
    way = np.minimum(way, _across_edge(mesh, ends[0], ends[1], p, q))
    return np.asarray(np.where(a.triangle[one] == b.triangle[two], np.linalg.norm(p - q, axis=1), way))


def _across_edge(mesh: Mesh, one: IntArray, two: IntArray, p: FloatArray, q: FloatArray) -> FloatArray:
    """Between points of two triangles with a common edge, over the point of it where the unfolded way crosses."""
    common = (one[:, :, None] == two[:, None, :]).any(axis=2)
    found = np.full(len(one), np.inf)
    rows = np.flatnonzero(common.sum(axis=1) == 2)
    if not len(rows):
        return found
    ends = mesh.vertices[one[rows][common[rows]].reshape(-1, 2)]
    p, q, way = p[rows], q[rows], ends[:, 1] - ends[:, 0]
    square = np.einsum("pn,pn->p", way, way)
    along = [np.einsum("pn,pn->p", x - ends[:, 0], way) / square for x in (p, q)]
    height = [np.linalg.norm(x - ends[:, 0] - s[:, None] * way, axis=1) for x, s in zip((p, q), along, strict=True)]
    total = height[0] + height[1]
    share = np.where(total > 0, height[0] / np.where(total > 0, total, 1.0), 0.5)
    where = np.clip(along[0] + share * (along[1] - along[0]), 0.0, 1.0)
    cross = ends[:, 0] + where[:, None] * way  # any point of the edge gives a way
    found[rows] = np.linalg.norm(p - cross, axis=1) + np.linalg.norm(q - cross, axis=1)
    return found
