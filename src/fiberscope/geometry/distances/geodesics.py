"""Distances within the built-in manifolds.

Curves: arc length. Sphere: the great circle. Meshes, and with them the torus: the shortest way along edges, which is an
upper bound of the geodesic distance on the mesh, as good as its triangles are small and well turned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve import Path
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.numerics.arrays import batch
from fiberscope.numerics.floats import FloatArray

Shape = Path | Sphere | Torus | Mesh


@dataclass(frozen=True, slots=True, eq=False)
class GeodesicDistance:
    """Distances of pairs of points within a manifold; ``kind`` is ``"exact"`` (up to rounding) or ``"upper bound"``."""

    distance: FloatArray
    kind: str

    def __repr__(self) -> str:
        return f"GeodesicDistance({len(self.distance)} pairs, {self.kind})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"distance": self.distance.tolist(), "kind": self.kind}


def geodesic_distance(shape: Shape, a: Any, b: Any) -> GeodesicDistance:
    """Distances within a manifold between the points ``a`` and ``b``, pair by pair.

    Parameters
    ----------
    shape
        A curve, a :class:`Sphere`, a :class:`Torus` or a :class:`Mesh`.
    a, b
        On a curve, parameters; otherwise points ``(pairs, n)``. On a sphere they are moved to it along rays from its
        centre. On a mesh the way starts straight to the nearest vertex and goes on along edges.

    Examples
    --------
    >>> from fiberscope.geometry.curves.curve import Circle
    >>> geodesic_distance(Circle(), [0.0], [3.0]).distance
    array([3.])
    >>> geodesic_distance(Sphere(), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]).distance.round(4)
    array([1.5708])
    """
    if isinstance(shape, Path):
        return GeodesicDistance(shape.geodesic(a, b), "exact")
    if not isinstance(shape, Mesh | Sphere | Torus):
        raise InputError(f"shape: expected a curve, Sphere, Torus or Mesh, got {type(shape).__name__}")
    one, two = (batch(points, shape.ambient, name) for points, name in ((a, "a"), (b, "b")))
    if len(one) != len(two):
        raise InputError(f"b: expected as many points as in a, {len(one)}, got {len(two)}")
    if isinstance(shape, Sphere):
        return GeodesicDistance(_great_circle(shape, one, two), "exact")
    return GeodesicDistance(_along_edges(shape.mesh, one, two), "upper bound")


def _great_circle(sphere: Sphere, a: FloatArray, b: FloatArray) -> FloatArray:
    u, v = ((x - sphere.center) @ sphere.frame.T for x in (a, b))
    lengths = [np.linalg.norm(x, axis=1, keepdims=True) for x in (u, v)]
    if not (np.concatenate(lengths) > 0).all():
        raise InputError("sphere: expected points away from its centre")
    u, v = u / lengths[0], v / lengths[1]
    # the half-angle form is accurate for near and for opposite points alike
    return np.asarray(2 * sphere.radius * np.arctan2(np.linalg.norm(u - v, axis=1), np.linalg.norm(u + v, axis=1)))


def _along_edges(mesh: Mesh, a: FloatArray, b: FloatArray) -> FloatArray:
    i, j = mesh.edges.T
    length = np.linalg.norm(mesh.vertices[i] - mesh.vertices[j], axis=1)
    graph = coo_array((length, (i, j)), shape=(len(mesh.vertices),) * 2).tocsr()
    tree = cKDTree(mesh.vertices)
    (to_a, first), (to_b, last) = tree.query(a), tree.query(b)
    starts, place = np.unique(first, return_inverse=True)
    ways = dijkstra(graph, directed=False, indices=starts)
    return np.asarray(to_a + ways[place, last] + to_b)
