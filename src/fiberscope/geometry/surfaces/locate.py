"""Points of a mesh: in which triangle they lie, and where.

A point of space belongs to the triangles that are nearest to it, by the distance from point to triangle (C. Ericson,
*Real-time collision detection*, 2005, section 5.1): the nearest vertex may lie on another sheet of the surface.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from fiberscope.errors import InputError
from fiberscope.geometry.surfaces.shapes import Mesh
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray, IntArray, U

_CHUNK = 1 << 22
"""Numbers in the arrays for some pairs of a point and a triangle."""

_ROUNDING = 256 * U
"""Relative to the size of a mesh: how far rounding may move a point."""


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """For each of ``count`` points the places on the mesh that it may stand for, one row for every triangle.

    ``owner`` is the point of a row, in order; ``triangle`` and ``place`` ``(rows, n)`` say where it is. A place on an
    edge has a row for both triangles; rows of one place of the mesh have one number in ``spot``. ``off`` ``(count,)``
    is how far the points were from the mesh.
    """

    owner: IntArray
    triangle: IntArray
    place: FloatArray
    spot: IntArray
    off: FloatArray


def size_of(mesh: Mesh) -> float:
    """The largest coordinate."""
    return float(np.abs(mesh.vertices).max())


def extent_of(mesh: Mesh) -> float:
    """The longest side of the box around the mesh."""
    return float(np.ptp(mesh.vertices[np.unique(mesh.triangles)], axis=0).max())


def at_weights(mesh: Mesh, triangles: Any, weights: Any, name: str) -> Located:
    """Points given by triangles ``(count,)`` and barycentric weights ``(count, 3)``."""
    index, shares = np.asarray(triangles), real_array(weights, f"{name}: weights", ndim=2)
    if index.dtype.kind not in "iu" or index.shape != (len(shares),) or shares.shape[1] != 3 or not len(shares):
        raise InputError(
            f"{name}: expected numbers of triangles (count,) and weights (count, 3), got {index.shape}, {shares.shape}"
        )
    bad = np.flatnonzero((index < 0) | (index >= len(mesh.triangles)))
    if len(bad):
        raise InputError(f"{name}: expected triangles 0 to {len(mesh.triangles) - 1}, got {index[bad[0]]}")
    total = shares.sum(axis=1)
    if not ((shares >= 0).all() and (np.abs(total - 1) <= _ROUNDING).all()):
        raise InputError(f"{name}: expected weights from 0 on that add up to 1, got {shares[0].tolist()}")
    place = np.einsum("pc,pcn->pn", shares / total[:, None], mesh.vertices[mesh.triangles[index]])
    every = np.arange(len(shares))
    return Located(every, index.astype(np.int64), place, every, np.zeros(len(shares)))


def locate(mesh: Mesh, points: FloatArray, name: str = "points") -> Located:
    """The places of a mesh nearest to points ``(count, n)``, and all that are no more than twice as far.

    >>> square = Mesh([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], [[0, 1, 2], [0, 2, 3]])
    >>> locate(square, np.array([[0.75, 0.25], [0.5, 0.5]])).triangle
    array([0, 0, 1])
    """
    corners = mesh.vertices[mesh.triangles]
    middle = corners.mean(axis=1)
    reach = float(np.linalg.norm(corners - middle[:, None], axis=2).max())
    rounding = _ROUNDING * max(size_of(mesh), float(np.abs(points).max()))
    # No triangle is farther than its corners, and its middle is at most `reach` farther than it.
    near = cKDTree(mesh.vertices[np.unique(mesh.triangles)]).query(points)[0]
    lists: Any = cKDTree(middle).query_ball_point(points, 2 * near + reach + 4 * rounding)
    counts = np.array([len(x) for x in lists])
    owner = np.repeat(np.arange(len(points)), counts)
    triangle = np.concatenate([np.sort(x) for x in lists]).astype(np.int64)
    place = np.empty((len(owner), mesh.ambient))
    step = max(1, _CHUNK // (4 * mesh.ambient))
    for start in range(0, len(owner), step):
        rows = slice(start, start + step)
        place[rows] = _nearest(mesh, triangle[rows], points[owner[rows]])
    distance = np.linalg.norm(place - points[owner], axis=1)
    off = np.minimum.reduceat(distance, np.concatenate([[0], np.cumsum(counts)[:-1]]))
    far = np.flatnonzero(~(off <= 0.1 * extent_of(mesh)))
    if len(far):
        i = int(far[0])
        raise InputError(f"{name}: expected points on or near the mesh, got point {i} at the distance {off[i]:.4g}")
    keep = distance <= 2 * off[owner] + rounding
    owner, triangle, place = owner[keep], triangle[keep], place[keep]
    return Located(owner, triangle, place, _spots(mesh, owner, triangle, place, rounding), off)


def _spots(mesh: Mesh, owner: IntArray, triangle: IntArray, place: FloatArray, rounding: float) -> IntArray:
    """Numbers of places: two rows are one if they lie on the edge or corner that their triangles share."""
    counts = np.bincount(owner)
    pairs = [
        (i, j)
        for start, n in zip((np.cumsum(counts) - counts).tolist(), counts.tolist(), strict=True)
        for i in range(start, start + n)
        for j in range(i + 1, start + n)
        if _one_place(mesh, triangle[i], triangle[j], place[i], place[j], rounding)
    ]
    one, two = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    links = coo_array((np.ones(len(one)), (one, two)), shape=(len(owner),) * 2)
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


def _one_place(mesh: Mesh, s: Any, t: Any, x: FloatArray, y: FloatArray, rounding: float) -> bool:
    shared = np.intersect1d(mesh.triangles[s], mesh.triangles[t])
    if not len(shared) or not np.linalg.norm(x - y) <= 4 * rounding:
        return False
    a, b = mesh.vertices[shared[0]], mesh.vertices[shared[-1]]
    way = b - a
    square = float(way @ way)
    share = min(max(float((x - a) @ way) / square, 0.0), 1.0) if square > 0 else 0.0
    return bool(np.linalg.norm(a + share * way - x) <= 4 * rounding)


def _nearest(mesh: Mesh, triangle: IntArray, points: FloatArray) -> FloatArray:
    """The point of a given triangle that is nearest to each point."""
    a, b, c = (mesh.vertices[mesh.triangles[triangle, k]] for k in range(3))
    frames = mesh.frames[triangle]
    flat = a + np.einsum("pk,pkn->pn", np.einsum("pkn,pn->pk", frames, points - a), frames)
    inside = np.ones(len(points), dtype=bool)
    best, least = flat, np.full(len(points), np.inf)
    for one, two, other in ((a, b, c), (b, c, a), (c, a, b)):
        way = two - one
        square = np.einsum("pn,pn->p", way, way)
        share = np.clip(np.einsum("pn,pn->p", points - one, way) / square, 0.0, 1.0)
        foot = one + share[:, None] * way
        gap = np.linalg.norm(foot - points, axis=1)
        nearer = gap < least
        best, least = np.where(nearer[:, None], foot, best), np.where(nearer, gap, least)
        inwards = other - one - (np.einsum("pn,pn->p", other - one, way) / square)[:, None] * way
        inside &= np.einsum("pn,pn->p", flat - one, inwards) >= 0
    return np.asarray(np.where(inside[:, None], flat, best))
