"""Random points of a manifold with their tangent spaces: boxes, curves and surfaces in one form."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import assert_never

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.affine_forms import output_forms
from fiberscope.geometry.curves.curve import Path
from fiberscope.geometry.domains import Box
from fiberscope.geometry.surfaces.generated import GeneratorSurface, regions_over
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import FloatArray

Manifold = Box | Path | Mesh | Sphere | Torus | Ellipsoid | Cylinder | GeneratorSurface
"""What the theorems are asked about. A torus is its mesh, as for :func:`fiberscope.regions_on`; spheres, ellipsoids and
cylinders are round. The generator of a surface has to be piecewise linear."""


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
    if isinstance(manifold, GeneratorSurface) and not manifold.exact:
        raise InputError(
            "manifold: expected a piecewise linear generator, got another; surface.grid(points) is a mesh through it"
        )
    if isinstance(manifold, Mesh | Sphere | Torus | Ellipsoid | Cylinder | GeneratorSurface):
        return 2
    raise InputError(f"manifold: expected a Box, curve or surface, got {type(manifold).__name__}")


def ambient_of(manifold: Manifold) -> int:
    """The dimension n of the space around."""
    return manifold.ambient


_NODES = 200
"""Nodes on every side of a grid on which areas of ellipsoids and cylinders are integrated."""


def volume_of(manifold: Manifold) -> float:
    """Length, area or volume; floats."""
    match manifold:
        case Path():
            return manifold.length
        case Box():
            return manifold.volume
        case Sphere():
            return manifold.round_area
        case Mesh() | Torus():
            return manifold.mesh.area
        case GeneratorSurface():
            n = manifold.ambient
            flat = Network.from_nodes([Affine(0, Dense(np.zeros((1, n))), np.zeros(1))], (n,))
            return regions_over(flat, manifold).area
        case Ellipsoid() | Cylinder():
            x, w = np.polynomial.legendre.leggauss(_NODES)
            s, t = np.meshgrid((x + 1) / 2, (np.arange(2 * _NODES) + 0.5) * (pi / _NODES), indexing="ij")
            parts = _round_tangents(manifold, s.ravel(), t.ravel())[1]
            return float(volume_of_rows(parts).reshape(s.shape).mean(axis=1) @ w / 2)
        case _:
            assert_never(manifold)


def tangent_sample(manifold: Manifold, rng: np.random.Generator, count: int) -> TangentSample:
    """Independent points; on a curve the parameter is uniform, and the weight is the speed.

    >>> from fiberscope.geometry.curves.curve import Segment
    >>> found = tangent_sample(Segment([0.0, 0.0], [3.0, 4.0]), np.random.default_rng(0), 2)
    >>> found.frames[0], found.weights
    (array([[0.6, 0.8]]), array([5., 5.]))
    """
    match manifold:
        case Box():
            frame = np.eye(manifold.ambient)[manifold.free]
            points = manifold.draw(rng, count)
            return TangentSample(points, np.broadcast_to(frame, (count, *frame.shape)), np.full(count, manifold.volume))
        case Path():
            low, high = manifold.interval
            t = rng.uniform(low, high, count)
            return _framed(manifold(t), (high - low) * manifold.derivative(t)[:, None, :])
        case Mesh() | Torus():
            return _on_triangles(manifold.mesh, rng, count)
        case Sphere() | Ellipsoid() | Cylinder():
            return _framed(*_round_tangents(manifold, rng.random(count), rng.uniform(0, 2 * pi, count)))
        case GeneratorSurface():
            st = rng.random((count, 2))
            net = manifold.generator.network
            assert net is not None
            at = manifold.plane.lift(st)
            slopes = output_forms(net, net.signs(at).signs).value[..., :-1]
            sides = manifold.plane.lift(np.eye(2)) - manifold.plane.origin
            return _framed(manifold(st), np.einsum("son,in->sio", slopes, sides))
        case _:
            assert_never(manifold)


def _on_triangles(mesh: Mesh, rng: np.random.Generator, count: int) -> TangentSample:
    triangle = rng.choice(len(mesh.triangles), count, p=mesh.areas / mesh.area)
    corners = mesh.vertices[mesh.triangles[triangle]]
    root, other = np.sqrt(rng.random(count)), rng.random(count)
    share = np.stack([1 - root, root * (1 - other), root * other], axis=1)
    points = np.einsum("sc,scn->sn", share, corners)
    return TangentSample(points, mesh.frames[triangle], np.full(count, mesh.area))


def _round_tangents(
    surface: Sphere | Ellipsoid | Cylinder, s: FloatArray, t: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Points at heights ``s`` from 0 to 1 and angles ``t``, and two tangents whose area is that of all the surface.

    On the unit sphere areas between heights are those of the cylinder around it (Archimedes).
    """
    c, d, zero = np.cos(t), np.sin(t), np.zeros_like(t)
    if isinstance(surface, Cylinder):
        u, around, up = (np.stack(x, axis=1) for x in ((c, d, s), (-d, c, zero), (zero, zero, zero + 1)))
        tangents = np.stack([2 * pi * around, up], axis=1)
    else:
        z = 2 * s - 1
        r = np.sqrt(np.maximum(1 - z * z, 0.0))
        u, around, up = (np.stack(x, axis=1) for x in ((r * c, r * d, z), (-d, c, zero), (-z * c, -z * d, r)))
        tangents = np.stack([4 * pi * around, up], axis=1)
    return surface.center + u @ surface.axes, tangents @ surface.axes


def _framed(points: FloatArray, tangents: FloatArray) -> TangentSample:
    """Tangents ``(S, m, n)`` made orthonormal; their volume is the weight."""
    Q, R = np.linalg.qr(tangents.swapaxes(1, 2))
    sizes = np.abs(np.diagonal(R, axis1=1, axis2=2)).prod(axis=1)
    turn = np.sign(np.diagonal(R, axis1=1, axis2=2))[:, :, None]
    return TangentSample(points, np.where(turn < 0, -1.0, 1.0) * Q.swapaxes(1, 2), sizes)


def volume_of_rows(tangents: FloatArray) -> FloatArray:
    """The volumes that the rows of ``(..., m, n)`` span."""
    R = np.linalg.qr(tangents.swapaxes(-1, -2), mode="r")
    return np.asarray(np.abs(np.diagonal(R, axis1=-2, axis2=-1)).prod(axis=-1))
