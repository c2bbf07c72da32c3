"""Distances within the built-in manifolds.

Curves: arc length. Sphere: the great circle. Cylinder: the straight way when it is unrolled. Ellipsoid: geodesics in
all directions (:mod:`fiberscope.geometry.surfaces.ways.ellipsoid_ways`). Meshes, and with them the torus: the shortest
way on the mesh, by windows (:mod:`fiberscope.geometry.surfaces.window_kernels`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve import Path
from fiberscope.geometry.surfaces.locate import Located, at_weights, locate
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.geometry.surfaces.unfolding import Unfolding
from fiberscope.geometry.surfaces.ways.round_ways import between
from fiberscope.numerics.arrays import batch, ranks_within
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Tabular
from fiberscope.run import Progress, Run

Shape = Path | Sphere | Ellipsoid | Cylinder | Torus | Mesh


@dataclass(frozen=True, slots=True, eq=False)
class GeodesicDistance(Tabular):
    """Distances of pairs of points within a manifold.

    ``kind`` is ``"exact"`` (up to rounding), ``"exact on the mesh"`` where that stands for a round surface, or
    ``"geodesics"`` on an ellipsoid: ``distance`` is then the length of a way, and no way is shorter than ``lower``, up
    to rounding. Elsewhere both are the same. ``moved`` ``(pairs, 2)`` is how far the points ``a`` and ``b`` were from
    the manifold: the distance is that of the places to which they were moved.
    """

    distance: FloatArray
    kind: str
    moved: FloatArray = field(repr=False)
    lower: FloatArray = field(repr=False)

    frame = ("distance", "moved", "lower")

    def __repr__(self) -> str:
        far = float(self.moved.max(initial=0.0))
        moved = f", points moved by up to {far:.2g}" if far > 0 else ""
        return f"GeodesicDistance({len(self.distance)} pairs, {self.kind}{moved})"


def geodesic_distance(
    shape: Shape, a: Any, b: Any, *, progress: Progress | None = None, time_limit: float | None = None
) -> GeodesicDistance:
    """Distances within a manifold between the points ``a`` and ``b``, pair by pair.

    Parameters
    ----------
    shape
        A curve, a :class:`Sphere`, an :class:`Ellipsoid`, a :class:`Cylinder` whose ends are at right angles to its
        lines, a :class:`Torus` or a :class:`Mesh`.
    a, b
        On a curve, parameters; otherwise points ``(pairs, n)``. On a sphere or ellipsoid they are moved to it along
        rays from its centre, on a cylinder in its axes' coordinates, on a mesh to the nearest point of the nearest
        triangle; ``moved`` says how far. Where several triangles are about as near, as where sheets of a surface meet
        or a point lies between two, it is the largest of their distances. On a mesh also ``(triangles, weights)``:
        numbers ``(pairs,)`` and barycentric weights ``(pairs, 3)``.
    progress, time_limit
        Called as ``progress(done, total, text)`` before every pair; after so many seconds an ``OutOfTimeError``.

    Examples
    --------
    >>> from fiberscope.geometry.curves.curve import Circle
    >>> geodesic_distance(Circle(), [0.0], [3.0]).distance
    array([3.])
    >>> geodesic_distance(Sphere(), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]).distance.round(4)
    array([1.5708])

    From the end of the longest axis of an ellipsoid to that of the shortest one it is a quarter of an ellipse:

    >>> from scipy.special import ellipe
    >>> found = geodesic_distance(Ellipsoid([3.0, 2.0, 1.0]), [[3.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]])
    >>> found, bool(np.isclose(found.distance[0], 3 * ellipe(1 - 1 / 9), rtol=1e-13))
    (GeodesicDistance(1 pairs, geodesics), True)

    A sheet of paper folded in half: through the gap it is .09, within the paper 1.8.

    >>> lines = [(0.0, 0.0), (1.0, 0.0), (0.0, 0.1)]
    >>> sheet = Mesh.grid([[[x, y, z] for y in (0.0, 1.0)] for x, z in lines])
    >>> geodesic_distance(sheet, [[0.1, 0.5, 0.0]], [[0.1, 0.5, 0.09]]).distance.round(4)
    array([1.8045])
    """
    if isinstance(shape, Path):
        found = shape.geodesic(a, b)
        return GeodesicDistance(found, "exact", np.zeros((len(found), 2)), found)
    if not isinstance(shape, Mesh | Sphere | Ellipsoid | Cylinder | Torus):
        raise InputError(
            f"shape: expected a curve, Sphere, Ellipsoid, Cylinder, Torus or Mesh, got {type(shape).__name__}"
        )
    if isinstance(shape, Sphere | Ellipsoid | Cylinder):
        one, two = (batch(points, shape.ambient, name) for points, name in ((a, "a"), (b, "b")))
        _same_count(len(one), len(two))
        if isinstance(shape, Sphere):
            return _great_circle(shape, one, two)
        (low, high), off = between(shape, one, two, Run.begin(progress, time_limit))
        name = "geodesics" if isinstance(shape, Ellipsoid) else "exact"
        return GeodesicDistance(high, name, np.stack(off, axis=1), low)
    first, last = (_located(shape.mesh, points, name) for points, name in ((a, "a"), (b, "b")))
    _same_count(len(first.off), len(last.off))
    moved = np.stack([first.off, last.off], axis=1)
    kind = "exact on the mesh" if isinstance(shape, Torus) else "exact"
    run = Run.begin(progress, time_limit)
    found = _on_mesh(shape.mesh, first, last, run)
    return GeodesicDistance(found, kind, moved, found)


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
    return GeodesicDistance(np.asarray(way), "exact", moved, np.asarray(way))


def _on_mesh(mesh: Mesh, a: Located, b: Located, run: Run) -> FloatArray:
    """For every pair the largest of the shortest ways between the places that its points may stand for."""
    one, two = _pairs(a, b)
    # rows of one place on an edge or corner have the same distances: the first of them is enough
    _, kept = np.unique(np.stack([a.spot[one], b.spot[two]], axis=1), axis=0, return_index=True)
    one, two = one[kept], two[kept]
    begin, end = ((x.triangle[rows], x.place[rows]) for x, rows in ((a, one), (b, two)))
    found = Unfolding.of_mesh(mesh).to_places(begin, end, run)
    worst = np.zeros(len(a.off))
    np.maximum.at(worst, a.owner[one], found)
    return worst


def _pairs(a: Located, b: Located) -> tuple[IntArray, IntArray]:
    """Rows of both whose owners are the same pair."""
    counts = np.bincount(b.owner, minlength=len(b.off))
    start = np.cumsum(counts) - counts
    times = counts[a.owner]
    one = np.repeat(np.arange(len(a.owner)), times)
    step = ranks_within(times)
    return one, start[a.owner[one]] + step
