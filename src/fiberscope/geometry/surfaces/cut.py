"""A mesh cut by a network, and coordinates that make positions in a large space cheap."""

from __future__ import annotations

import numpy as np

from fiberscope.geometry.surfaces.engine import SurfaceEngine
from fiberscope.geometry.surfaces.shapes import Surface
from fiberscope.geometry.surfaces.surface_regions import SurfaceRegions
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.rank import rank_cutoff
from fiberscope.run import Run


def cut_surface(net: Network, surface: Surface, run: Run) -> SurfaceRegions:
    """The regions on a surface that lies in the network's input space."""
    origin, basis = affine_span(surface.mesh.vertices)
    engine = SurfaceEngine(net, surface.mesh, (surface.mesh.vertices - origin) @ basis.T)
    mesh, reached = engine.run(engine.start(), run)
    assert mesh.root is not None
    return SurfaceRegions(net, surface, engine.cells(mesh, reached), mesh.root, origin, basis)


def affine_span(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """An origin and an orthonormal basis of the affine span of points ``(count, n)``.

    Positions serve for sizes and pictures; no decision depends on them.
    """
    count, n = points.shape
    if n <= 3:
        return np.zeros(n), np.eye(n)
    origin = points.mean(axis=0)
    values, rows = np.linalg.svd(points - origin, full_matrices=False)[1:]
    rank = int((values > rank_cutoff((count, n), float(values[0]), np.dtype(np.float64))).sum())
    return origin, np.asarray(rows[: max(rank, 2)])
