"""The planar engine on a triangle mesh: all triangles at once, with shared vertices and edges.

Nothing in the engine's decisions needs a plane: signs are taken at vertices, orders along edges and chords, and both
are shared by the triangles around them. Only exact answers need coordinates. A triangle with corners ``a, b, c`` is a
chart: ``(X, Y, W)`` is the point ``(X a + Y b + (W - X - Y) c) / W``. A point on a common edge has the same weights in
both charts, at the corners that they share.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fiberscope.geometry.engines.planar.arrange import Arranger
from fiberscope.geometry.engines.planar.engine import XY, Engine
from fiberscope.geometry.engines.planar.exact import Oracle, Stage
from fiberscope.geometry.engines.planar.mesh import Polygons
from fiberscope.geometry.engines.planar.tracked import Tracked
from fiberscope.geometry.surfaces.shapes import Mesh, Surface
from fiberscope.geometry.surfaces.surface_regions import SurfaceRegions
from fiberscope.network.layout import Layout
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.dyadic import Dyadic
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.points import Triple, quotient
from fiberscope.numerics.rank import rank_cutoff
from fiberscope.run import Run

_SIDES: tuple[Triple, ...] = ((-1, -1, 1), (1, 0, 0), (0, 1, 0))
"""Edge ``i`` of a triangle as a line of its chart: where the weight of the opposite corner vanishes."""


def _chart(surface: Mesh, chart: int) -> Dyadic:
    """A triangle as an affine map of its chart: two sides and a corner."""
    corners = Dyadic.of(surface.vertices[surface.triangles[chart]])
    a, b, c = corners.integers
    return Dyadic(np.stack([a - c, b - c, c]), corners.exponent)


class ChartOracle(Oracle):
    """Exact answers in charts; line ``-1 - e`` is edge ``e`` of the surface."""

    def __init__(self, layout: Layout, surface: Mesh, offsets: IntArray) -> None:
        super().__init__(layout, np.zeros((0, 3)), offsets, partial(_chart, surface))
        self.surface = surface

    def side(self, chart: int, number: int) -> Triple:
        return _SIDES[self.surface.triangle_edges[chart].tolist().index(number)]

    def seen_from(self, chart: int, point: Triple, own: int) -> Triple:
        if chart == own:
            return point
        x, y, w = point
        weights = dict(zip(self.surface.triangles[own].tolist(), (x, y, w - x - y), strict=True))
        first, second, _ = self.surface.triangles[chart].tolist()
        return weights.get(first, 0), weights.get(second, 0), w


class SurfaceEngine(Engine):
    """The engine that begins with the triangles of a surface; ``coordinates`` of its vertices are carried along."""

    def __init__(self, net: Network, surface: Mesh, coordinates: FloatArray) -> None:
        super().__init__(net.layout, np.zeros((0, 3)))
        self.surface, self.coordinates = surface, coordinates
        self.inputs = surface.vertices.T

    def start(self) -> Polygons:
        """The triangles with values at their corners; vertices that no triangle uses are left out."""
        surface, count = self.surface, len(self.surface.triangles)
        used, loop_v = np.unique(surface.triangles.reshape(-1), return_inverse=True)
        number = np.full(len(surface.vertices), -1)
        number[used] = np.arange(len(used))
        loop_e = surface.triangle_edges.reshape(-1)
        # A corner is defined in one of its triangles by the edge before it and the edge after it.
        defined = np.zeros((len(used), 4), dtype=np.int64)
        before = np.roll(surface.triangle_edges, 1, axis=1).reshape(-1)
        at = np.zeros(len(used), dtype=np.int64)
        at[loop_v] = np.arange(3 * count)
        defined[:, 1], defined[:, 2], defined[:, 3] = at // 3, -1 - before[at], -1 - loop_e[at]
        mesh = Polygons(
            number[surface.edges],
            -1 - np.arange(len(surface.edges)),
            np.arange(0, 3 * count + 1, 3),
            loop_v.astype(np.int64),
            loop_e.copy(),
            defined,
            np.zeros((len(used), 0), dtype=np.int8),
            values={XY: Tracked.exact(self.coordinates[used]), 0: Tracked.exact(surface.vertices[used])},
            root=np.arange(count),
        )
        oracle = ChartOracle(self.layout, surface, self.offsets)
        self.arranger = Arranger(oracle, Stage(mesh.indptr, mesh.loop_v, [], [], mesh.root))
        return mesh

    def placed(self, chart: int, point: Triple) -> FloatArray:
        x, y, w = map(int, point)
        weights = np.array([quotient(x, w), quotient(y, w), quotient(w - x - y, w)])
        return np.asarray(weights @ self.coordinates[self.surface.triangles[chart]])


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
