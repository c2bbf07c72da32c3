"""Metric, Ricci tensor and scalar curvature of manifolds: built-in surfaces, and the images of decoders.

A manifold is given by a chart ``phi: R^m -> R^n``. Its metric is ``g_ij = phi_i . phi_j``. Curvature needs second
derivatives of the metric, and so third ones of the chart, but for a submanifold of a flat space they cancel (the
equation of Gauss): with ``h_ij`` the part of ``phi_ij`` that is normal to the manifold,

``R_ijkl = h_ik . h_jl - h_il . h_jk``, ``Ricci_jl = g^ik R_ijkl``, ``scalar = g^jl Ricci_jl``.

Reference: M. do Carmo, *Riemannian Geometry*, 1992, chapter 6; Appendix B of the paper on data geometry.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.extras import import_module
from fiberscope.geometry.affine_forms import output_forms
from fiberscope.geometry.generators import as_generator
from fiberscope.geometry.surfaces.generated import GeneratorSurface
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.shapes import Sphere, Torus
from fiberscope.network.border import NetworkLike, library_of
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import batch, real_array
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Pictured
from fiberscope.run import ENDLESS, Progress, Run

Round = Sphere | Ellipsoid | Cylinder | Torus


@dataclass(frozen=True, slots=True, eq=False)
class Curvature(Pictured):
    """Curvature of an m-dimensional manifold at points; made by :func:`fiberscope.curvature`. All numbers are floats.

    Parameters
    ----------
    points
        Where, ``(points, n)``: in the space of the manifold, or latent points of a decoder.
    metric
        ``(points, m, m)``; of a built-in surface in a chart of its own at every point.
    ricci
        The Ricci tensor in the same chart, ``(points, m, m)``.
    scalar
        Its trace, ``(points,)``: twice Gauss's curvature on a surface, zero on a curve. NaN where the chart has no
        derivative of full rank.
    """

    points: FloatArray = field(repr=False)
    metric: FloatArray = field(repr=False)
    ricci: FloatArray = field(repr=False)
    scalar: FloatArray

    told = ("dimension", "ball_deficit")
    picture = "curvature"

    @property
    def dimension(self) -> int:
        """The dimension m of the manifold."""
        return int(self.metric.shape[1])

    @property
    def ball_deficit(self) -> FloatArray:
        """``scalar / (6 (m + 2))``: a small geodesic ball of radius e has that part, times ``e^2``, less volume.

        This is what figure 10 of the paper shows; its appendix has the formula without the 6 (A. Gray, 1974).
        """
        return np.asarray(self.scalar / (6 * (self.dimension + 2)))

    def __repr__(self) -> str:
        known = self.scalar[np.isfinite(self.scalar)]
        told = f"scalar from {known.min():.4g} to {known.max():.4g}" if len(known) else "no derivatives of full rank"
        return f"Curvature({len(self.scalar)} points, m = {self.dimension}, {told})"


def curvature(
    manifold: Round | GeneratorSurface | NetworkLike,
    points: Any,
    *,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Curvature:
    """Metric, Ricci tensor and scalar curvature of a manifold at points.

    Parameters
    ----------
    manifold
        A :class:`Sphere`, :class:`Ellipsoid`, :class:`Cylinder` or :class:`Torus` (the round ones, not their meshes), a
        :class:`GeneratorSurface`, or a decoder: a torch module or a :class:`Network`. A piecewise linear decoder is
        flat on every piece, and its curvature stands in the folds between them, where points are not asked.
    points
        On a built-in surface points near it ``(points, n)``, which are moved to it; on a generator surface ``(s, t)``
        from 0 to 1, of a decoder latent points ``(points, m)``.
    progress, time_limit
        Called as ``progress(done, total, text)`` before every point; after so many seconds an ``OutOfTimeError``.

    Examples
    --------
    >>> curvature(Sphere(radius=2.0), [[0.0, 0.0, 2.0]]).scalar  # 2 / R^2
    array([0.5])
    >>> curvature(Torus(radius=1.0, tube=0.5), [[1.5, 0.0, 0.0], [0.5, 0.0, 0.0]]).scalar.round(4)
    array([ 2.6667, -8.    ])
    """
    run = Run.begin(progress, time_limit)
    if isinstance(manifold, Round):
        given = batch(points, manifold.ambient, "points")
        first, second = _built_in(manifold, given)
    elif isinstance(manifold, GeneratorSurface):
        given = batch(points, 2, "points")
        sides = manifold.plane.lift(np.eye(2)) - manifold.plane.origin
        inner = _decoder(manifold.module, manifold.plane.lift(given), run)
        first = np.einsum("pan,ia->pin", inner[0], sides)
        second = np.einsum("pabn,ia,jb->pijn", inner[1], sides, sides)
    else:
        given = real_array(points, "points")
        given = batch(given, int(np.prod(given.shape[1:])), "points")
        first, second = _decoder(manifold, given, run)
    run.step(len(given), len(given), "points")
    metric, ricci, scalar = from_derivatives(first, second)
    return Curvature(given, metric, ricci, scalar)


def from_derivatives(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Metric, Ricci tensor and scalar from derivatives of a chart, ``(points, m, n)`` and ``(points, m, m, n)``."""
    metric = first @ first.swapaxes(1, 2)
    m = first.shape[1]
    rank = np.linalg.matrix_rank(first) if len(first) else np.zeros(0)
    inverse = np.full_like(metric, np.nan)
    full = (rank == m) & np.isfinite(metric).all(axis=(1, 2))
    Q = np.zeros((len(first), first.shape[2], m))
    Q[full] = np.linalg.qr(first[full].swapaxes(1, 2))[0]
    pseudo = np.linalg.pinv(first[full])  # of the chart and not of the metric, whose condition is the square
    inverse[full] = pseudo.swapaxes(1, 2) @ pseudo
    flat = np.einsum("pnk,pijn->pijk", Q, second)
    h = second - np.einsum("pnk,pijk->pijn", Q, flat)
    ricci = np.einsum("pik,pikn,pjln->pjl", inverse, h, h) - np.einsum("pik,piln,pjkn->pjl", inverse, h, h)
    return metric, ricci, np.asarray(np.einsum("pjl,pjl->p", inverse, ricci))


# --- charts -------------------------------------------------------------------------------------------------------


def _built_in(surface: Round, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    axes = surface.frame if isinstance(surface, Torus) else surface.axes
    x = (points - surface.center) @ np.linalg.pinv(axes)
    off = x[:, :2] if isinstance(surface, Cylinder | Torus) else x
    if not (np.linalg.norm(off, axis=1) > 0).all():
        raise InputError(f"points: expected points off the axis or centre of {surface!r}, got one on it")
    if isinstance(surface, Torus):
        first, second = _torus(surface, x)
    elif isinstance(surface, Cylinder):
        first, second = _cylinder(np.arctan2(x[:, 1], x[:, 0]))
    else:
        first, second = _sphere(x / np.linalg.norm(x, axis=1, keepdims=True))
    return first @ axes, second @ axes


def _sphere(u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The chart ``(u + a e1 + b e2) / sqrt(1 + a^2 + b^2)`` at its origin."""
    frames = np.linalg.svd(u[:, None, :])[2][:, 1:]
    return frames, -np.eye(2)[None, :, :, None] * u[:, None, None, :]


def _cylinder(t: FloatArray) -> tuple[FloatArray, FloatArray]:
    c, s, zero = np.cos(t), np.sin(t), np.zeros_like(t)
    first = np.stack([np.stack([-s, c, zero], axis=1), np.stack([zero, zero, zero + 1], axis=1)], axis=1)
    second = np.zeros((len(t), 2, 2, 3))
    second[:, 0, 0] = np.stack([-c, -s, zero], axis=1)
    return first, second


def _torus(torus: Torus, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    u = np.arctan2(x[:, 1], x[:, 0])
    v = np.arctan2(x[:, 2], np.hypot(x[:, 0], x[:, 1]) - torus.radius)
    out, up = torus.radius + torus.tube * np.cos(v), torus.tube * np.sin(v)
    c, s, zero = np.cos(u), np.sin(u), np.zeros_like(u)
    radial, around = np.stack([c, s, zero], axis=1), np.stack([-s, c, zero], axis=1)
    top = np.stack([zero, zero, zero + 1], axis=1)
    turn = torus.tube * np.cos(v)
    first = np.stack([out[:, None] * around, -up[:, None] * radial + turn[:, None] * top], axis=1)
    second = np.zeros((len(u), 2, 2, 3))
    second[:, 0, 0] = -out[:, None] * radial
    second[:, 0, 1] = second[:, 1, 0] = -up[:, None] * around
    second[:, 1, 1] = -turn[:, None] * radial - up[:, None] * top
    return first, second


def _decoder(module: Any, Z: FloatArray, run: Run = ENDLESS) -> tuple[FloatArray, FloatArray]:
    """First and second derivatives of a decoder at latent points ``(points, m)``."""
    inner = as_generator(module, (Z.shape[1],)).network
    if inner is not None:
        return _pieces(inner, Z)
    if library_of(module) != "torch":
        kinds = "a Network, a torch module, a scikit-learn MLP or a round surface"
        raise InputError(f"manifold: expected {kinds}, got {type(module).__name__}")
    torch = import_module("torch")
    copy = deepcopy(module).double().eval()

    def chart(z: Any) -> Any:
        return copy(z[None]).reshape(-1)

    jet = torch.func.jacfwd(torch.func.jacfwd(chart))
    first, second = [], []
    for row, z in enumerate(Z):
        run.step(row, len(Z), "derivatives")
        at = torch.from_numpy(np.array(z))
        first.append(torch.func.jacfwd(chart)(at).detach().numpy().T)
        second.append(jet(at).detach().numpy().transpose(1, 2, 0))
    return np.stack(first), np.stack(second)


def _pieces(net: Network, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of a piecewise linear decoder: the affine maps, and no second derivatives."""
    first = output_forms(net, net.signs(batch(Z, net.in_size, "points")).signs).value[..., :-1].swapaxes(1, 2)
    m = first.shape[1]
    return np.asarray(first), np.zeros((len(first), m, m, first.shape[2]))
