"""Surfaces through the latent space of a generator, and the regions of a network on them; see :mod:`..generators`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fiberscope.errors import InputError, NotGenericError
from fiberscope.geometry.domains import Box, Plane
from fiberscope.geometry.engines.choose import cells_on
from fiberscope.geometry.generators import (
    Refinement,
    as_generator,
    checked_points,
    composition,
    counts_of,
    has_settled,
    latent_points,
)
from fiberscope.geometry.surfaces.mesh_engine import affine_span, cut_surface
from fiberscope.geometry.surfaces.shapes import Mesh
from fiberscope.geometry.surfaces.sizes import polygon_areas
from fiberscope.geometry.surfaces.surface_regions import SurfaceRegions
from fiberscope.network.network import Network
from fiberscope.numerics.cutoffs import COLLAPSED
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import hidden
from fiberscope.run import ENDLESS, Run

MOST_SURFACE_POINTS = 129
"""Grids of a surface are not refined beyond this on a side, unless told otherwise."""


class GeneratorSurface:
    """The image of the latent parallelogram ``z0 + s (z1 - z0) + t (z2 - z0)``, ``s`` and ``t`` from 0 to 1.

    Parameters
    ----------
    module
        A torch module, a :class:`Network`, or a function of batches.
    z0, z1, z2
        Latent points of one shape, without the batch axis, not on one line.
    points
        How many points each side of the first grid has, if the generator is not piecewise linear.
    most
        How many the last one may have.
    """

    def __init__(self, module: Any, z0: Any, z1: Any, z2: Any, points: int = 9, most: int | None = None) -> None:
        shape, (a, b, c) = latent_points("surface", [z0, z1, z2])
        if a.size < 2:
            raise InputError("surface: expected a latent space of at least 2 dimensions, got 1")
        Mesh(np.stack([a, b, c]), [[0, 1, 2]])  # refuses three points on one line
        self.plane = Plane(a, b - a, c - a, Box([0.0, 0.0], [1.0, 1.0]))
        self.points = int(points)
        self.most = checked_points(points, most, 2, MOST_SURFACE_POINTS)
        self.module = module
        self.generator = as_generator(module, shape)

    @property
    def exact(self) -> bool:
        """Whether the generator is piecewise linear."""
        return self.generator.network is not None

    @cached_property
    def ambient(self) -> int:
        """The dimension n of the generator's outputs."""
        return int(self.generator(self.plane.origin[None]).shape[1])

    def __call__(self, st: Any) -> FloatArray:
        """Points ``(count, n)`` at parameters ``(count, 2)``."""
        return self.generator(self.plane.lift(st))

    def grid(self, points: int) -> Mesh:
        """The mesh through a grid of ``points`` on a side."""
        t = np.linspace(0, 1, points)
        st = np.stack(np.meshgrid(t, t, indexing="ij"), axis=2)
        return Mesh.grid(self(st.reshape(-1, 2)).reshape(points, points, -1))

    def __repr__(self) -> str:
        kind = "piecewise linear" if self.exact else f"from {self.points} x {self.points} points"
        return f"GeneratorSurface({kind}, R^{self.plane.ambient} to R^{self.ambient})"


@dataclass(frozen=True, eq=False, repr=False)
class GeneratorSurfaceRegions(SurfaceRegions):
    """The regions of a network on the image of a latent parallelogram; see :class:`GeneratorCurveRegions`.

    Areas and lengths are those of the image. ``latent`` are the vertices in the coordinates ``(s, t)`` if the generator
    is piecewise linear, and the pieces are then the latent regions.
    """

    latent_regions: int | None = None
    refinement: tuple[Refinement, ...] = ()
    settled: bool = True
    latent: FloatArray | None = field(default=None, metadata=hidden())

    @cached_property
    def collapsed(self) -> bool:
        """Whether the generator flattens some piece to a line or a point, where the surface is none; by floats."""
        if self.latent is None:
            return False
        before = polygon_areas(self.polygons, self.latent)
        stretch = self.piece_areas / np.where(before > 0, before, 1.0)
        return bool((stretch <= COLLAPSED * stretch.max(initial=0.0)).any())

    def distance_from(self, pieces: IntArray, places: FloatArray, visible: bool, run: Run = ENDLESS) -> FloatArray:
        if self.collapsed:
            raise NotGenericError("distance: the generator flattens a part of this surface to a line or a point")
        return super().distance_from(pieces, places, visible, run)

    @property
    def _mesh(self) -> Mesh | None:
        return None if self.latent is not None else self.surface.grid(self.refinement[-1].points)

    def __repr__(self) -> str:
        told = f"GeneratorSurfaceRegions({self.num_regions} regions of the network on {self.surface}; {counts_of(self)}"
        reason = self.surface.generator.reason
        return f"{told}; not exact: {reason})" if reason else f"{told})"


def regions_over(net: Network, surface: GeneratorSurface, run: Run = ENDLESS) -> GeneratorSurfaceRegions:
    """The regions of a network on the image of a latent parallelogram."""
    if surface.ambient != net.in_size:
        raise InputError(f"surface: expected one in R^{net.in_size} for this network, got R^{surface.ambient}")
    inner = surface.generator.network
    if inner is not None:
        cells = cells_on(surface.plane.view(composition(net, inner)), run)
        image = surface(cells.points)
        origin, basis = affine_span(image)
        placed = replace(cells, points=(image - origin) @ basis.T)
        count = cells.count(2)
        return GeneratorSurfaceRegions(
            net, surface, placed, np.arange(count), origin, basis, inner.num_signs, count, latent=cells.points
        )
    table: list[Refinement] = []
    points = surface.points
    while True:
        found = cut_surface(net, surface.grid(points), run)
        table.append(Refinement(points, found.num_regions))
        settled = has_settled(table)
        if settled or not found.complete or 2 * points - 1 > surface.most:
            parts = (found.structure, found.triangle, found.origin, found.basis)
            return GeneratorSurfaceRegions(net, surface, *parts, refinement=tuple(table), settled=settled)
        points = 2 * points - 1
