"""Areas of convex polygons that lie in a space of any dimension.

Polygon f has the vertices ``indices[indptr[f]:indptr[f + 1]]``, rows of ``points (vertices, n)``; ``room (3, n)`` is
an orthonormal basis of its plane in the first two rows, and a vector at work.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fiberscope.geometry.cells import Incidence
from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.floats import FloatArray

_LARGE = 200
"""Exponents of coordinates beyond which polygons are measured on another scale."""


def polygon_areas(polygons: Incidence, points: FloatArray) -> FloatArray:
    """Areas of flat convex polygons, given by their vertices in cyclic order; ``points`` is ``(vertices, n)``.

    >>> square = Incidence(np.array([0, 4]), np.arange(4))
    >>> polygon_areas(square, np.array([[0.0, 0, 0], [1, 0, 0], [1, 3, 4], [0, 3, 4]])).tolist()
    [5.0]
    """
    areas = np.zeros(len(polygons))
    n = points.shape[1]
    # Squares of the squares of coordinates must not leave the range of floats.
    exponent = int(np.frexp(np.abs(points).max(initial=0.0))[1])
    scaled = np.ascontiguousarray(np.ldexp(points, -exponent) if abs(exponent) > _LARGE else points)
    _areas(polygons.indptr, polygons.indices, scaled, np.empty((3, n)), areas)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(areas, 2 * exponent) if abs(exponent) > _LARGE else areas


@inner
def _off(points: Any, v: int, first: int, axis: Any, out: Any) -> float:
    """The vector from ``first`` to ``v`` without its part along the axis, and its squared length."""
    n = len(axis)
    for j in range(n):
        out[j] = points[v, j] - points[first, j]
    for _ in range(2):
        part = 0.0
        for j in range(n):
            part += out[j] * axis[j]
        for j in range(n):
            out[j] -= part * axis[j]
    square = 0.0
    for j in range(n):
        square += out[j] * out[j]
    return square


@inner
def _take(room: Any, k: int, square: float) -> None:
    """Row 2 of the room, normalised, becomes row ``k``."""
    for j in range(room.shape[1]):
        room[k, j] = room[2, j] / math.sqrt(square)


@kernel
def _areas(indptr: Any, indices: Any, points: Any, room: Any, areas: Any) -> None:
    """Shoelace formula in the plane of the longest way from the first vertex and the vertex farthest off it."""
    n = points.shape[1]
    for f in range(indptr.shape[0] - 1):
        lo, hi = indptr[f], indptr[f + 1]
        first = indices[lo]
        flat = False
        for k in range(2):
            for j in range(n):
                room[k, j] = 0.0
        for k in range(2):
            best, largest = lo, 0.0
            for i in range(lo + 1, hi):
                square = _off(points, indices[i], first, room[0], room[2])
                if square > largest:
                    best, largest = i, square
            if largest == 0.0:
                flat = True
                break
            _off(points, indices[best], first, room[0], room[2])
            _take(room, k, largest)
        if flat:
            continue
        total, x0, y0 = 0.0, 0.0, 0.0
        for i in range(lo + 1, hi):
            x, y = 0.0, 0.0
            for j in range(n):
                d = points[indices[i], j] - points[first, j]
                x += d * room[0, j]
                y += d * room[1, j]
            total += x0 * y - x * y0
            x0, y0 = x, y
        areas[f] = abs(total) / 2
