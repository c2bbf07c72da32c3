"""Random points of a manifold with their tangent spaces: boxes, curves and surfaces in one form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve import Path
from fiberscope.geometry.domains import Box
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.numerics.floats import FloatArray

Manifold = Box | Path | Mesh | Sphere | Torus
"""What the theorems are asked about; a sphere or a torus is its mesh, as for :func:`fiberscope.regions_on`."""


@dataclass(frozen=True, slots=True, eq=False)
class TangentSample:
    """Points ``(S, n)``, orthonormal tangent vectors ``(S, m, n)``, and weights whose mean product with a function is
    its integral over the manifold."""

    points: FloatArray
    frames: FloatArray
    weights: FloatArray


def dimension_of(manifold: Manifold) -> int:
    """The dimension m of the manifold itself."""
    if isinstance(manifold, Path):
        return 1
    if isinstance(manifold, Box):
        return manifold.dimension
    if isinstance(manifold, Mesh | Sphere | Torus):
        return 2
    raise InputError(f"manifold: expected a Box, curve or surface, got {type(manifold).__name__}")


def ambient_of(manifold: Manifold) -> int:
    """The dimension n of the space around."""
    return manifold.ambient


def volume_of(manifold: Manifold) -> float:
    """Length, area or volume."""
    if isinstance(manifold, Path):
        return manifold.length
    return manifold.volume if isinstance(manifold, Box) else manifold.mesh.area


def tangent_sample(manifold: Manifold, rng: np.random.Generator, count: int) -> TangentSample:
    """Independent points; on a curve the parameter is uniform, and the weight is the speed.

    >>> from fiberscope.geometry.curves.curve import Segment
    >>> found = tangent_sample(Segment([0.0, 0.0], [3.0, 4.0]), np.random.default_rng(0), 2)
    >>> found.frames[0], found.weights
    (array([[0.6, 0.8]]), array([5., 5.]))
    """
    if isinstance(manifold, Box):
        frame = np.eye(manifold.ambient)[manifold.free]
        points = manifold.draw(rng, count)
        return TangentSample(points, np.broadcast_to(frame, (count, *frame.shape)), np.full(count, manifold.volume))
    if isinstance(manifold, Path):
        low, high = manifold.interval
        t = rng.uniform(low, high, count)
        velocity = manifold.derivative(t)
        speed = np.linalg.norm(velocity, axis=1)
        tangent = velocity / np.where(speed > 0, speed, 1.0)[:, None]
        return TangentSample(manifold(t), tangent[:, None, :], speed * (high - low))
    mesh = manifold.mesh
    triangle = rng.choice(len(mesh.triangles), count, p=mesh.areas / mesh.area)
    corners = mesh.vertices[mesh.triangles[triangle]]
    root, other = np.sqrt(rng.random(count)), rng.random(count)
    share = np.stack([1 - root, root * (1 - other), root * other], axis=1)
    points = np.einsum("sc,scn->sn", share, corners)
    return TangentSample(points, mesh.frames[triangle], np.full(count, mesh.area))
