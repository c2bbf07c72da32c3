"""Shortest ways on spheres, ellipsoids and cylinders: between points, and from points to boundaries."""

from __future__ import annotations

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.surfaces.quadric_sizes import to_arc
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.shapes import Sphere
from fiberscope.geometry.surfaces.ways import cylinder_ways, ellipsoid_ways
from fiberscope.geometry.surfaces.ways.ellipsoid_ways import HalfAxes
from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.run import Run

Bounds = tuple[FloatArray, FloatArray]
Arcs = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Unit normals, heights, start points and angles on the unit sphere."""


def to_boundaries(surface: Sphere | Ellipsoid, points: FloatArray, arcs: Arcs, which: BoolArray, run: Run) -> Bounds:
    """No way from a point to some of the arcs is shorter than the first length; the second is that of one."""
    x = on_unit_sphere(surface, points, "points")
    parts = [part[which] for part in arcs]
    if isinstance(surface, Ellipsoid):
        frame = HalfAxes.of(surface.axes)
        goals, places = frame.arcs(*parts), parts[2] @ frame.turn
        low, high = np.empty(len(x)), np.empty(len(x))
        for row, start in enumerate(x @ frame.turn):
            run.step(row, len(x), "distances")
            low[row], high[row] = ellipsoid_ways.to_boundaries(frame, goals, places, start, run)
        return low, high
    best = np.full(len(x), np.inf)
    for n, h, begin, turn in zip(*parts, strict=True):
        best = np.minimum(best, to_arc(x, n, float(h), begin, float(turn)))
    best *= surface.radius
    return best, best


def between(surface: Ellipsoid | Cylinder, a: FloatArray, b: FloatArray, run: Run) -> tuple[Bounds, Bounds]:
    """Bounds of the shortest ways between points as above, and how far both were from the surface."""
    places: list[FloatArray] = []
    if isinstance(surface, Cylinder):
        one, two = (on_cylinder(surface, points, name) for points, name in ((a, "a"), (b, "b")))
        ways = cylinder_ways.between(surface.axes, one, two)
        low, high = ways, ways
        places = [np.stack([np.cos(x[:, 0]), np.sin(x[:, 0]), x[:, 1]], axis=1) for x in (one, two)]
    else:
        frame = HalfAxes.of(surface.axes)
        places = [on_unit_sphere(surface, points, name) for points, name in ((a, "a"), (b, "b"))]
        low, high = np.empty(len(a)), np.empty(len(a))
        starts, ends = (x @ frame.turn for x in places)
        for row in range(len(a)):
            run.step(row, len(a), "ways")
            low[row], high[row] = ellipsoid_ways.to_point(frame, starts[row], ends[row], run)
    off = [np.linalg.norm(surface.center + x @ surface.axes - y, axis=1) for x, y in zip(places, (a, b), strict=True)]
    return (low, high), (off[0], off[1])


def on_unit_sphere(surface: Sphere | Ellipsoid, points: FloatArray, name: str) -> FloatArray:
    """Places on the unit sphere behind the surface, along rays from the centre."""
    x = (points - surface.center) @ np.linalg.pinv(surface.axes)
    size = np.linalg.norm(x, axis=1, keepdims=True)
    if not (size > 0).all():
        kind = "sphere" if isinstance(surface, Sphere) else "ellipsoid"
        raise InputError(f"{name}: expected points other than the centre of the {kind}, got the centre")
    return np.asarray(x / size)


def on_cylinder(surface: Cylinder, points: FloatArray, name: str) -> FloatArray:
    """Angles and heights from 0 to 1, ``(points, 2)``."""
    x = (points - surface.center) @ np.linalg.pinv(surface.axes)
    if not x[:, :2].any(axis=1).all():
        raise InputError(f"{name}: expected points off the axis of the cylinder, got one on it")
    return np.stack([np.arctan2(x[:, 1], x[:, 0]), np.clip(x[:, 2], 0.0, 1.0)], axis=1)
