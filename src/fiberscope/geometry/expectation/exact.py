"""What one network has of boundaries inside a manifold: volumes, corners and mean distances, exactly."""

from __future__ import annotations

from math import inf

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Path
from fiberscope.geometry.distances.along_curve import distance_along
from fiberscope.geometry.distances.nearest_visible import visible_boundary_distance
from fiberscope.geometry.domains import Box
from fiberscope.geometry.expectation.manifolds import Manifold, tangent_sample
from fiberscope.geometry.regions import regions
from fiberscope.geometry.surfaces.generated import GeneratorSurfaceRegions
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.regions_on import regions_on
from fiberscope.geometry.surfaces.round_regions import RoundRegions, round_regions
from fiberscope.geometry.surfaces.shapes import Sphere
from fiberscope.geometry.surfaces.surface_regions import SurfaceRegions
from fiberscope.geometry.surfaces.ways.cylinder_ways import is_upright
from fiberscope.network.network import Network
from fiberscope.numerics.floats import BoolArray, IntArray, SignArray

_PLACES = 500
"""Points of a curve at which distances are averaged, for every network."""

_POINTS = 30
"""Points of other manifolds, where each is a search."""


def boundary_volume(net: Network, manifold: Manifold, k: int = 1) -> float:
    """The ``(m - k)``-volume of the visible codimension-k boundary of one network inside a manifold.

    Along a curve the number of kinks; on a surface and in a box of any dimension, for k = 1, the measure of the visible
    facets; on a surface and in a two-dimensional box, for k = 2, the corners of the boundary.

    >>> net = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> boundary_volume(net, Box.cube(2)), boundary_volume(net, Box.cube(2), k=2)
    (4.0, 1.0)
    >>> three = Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
    >>> boundary_volume(three, Sphere(), k=2)
    6.0
    """
    return _measured(net, manifold, k, None)[0]


def boundary_and_distance(
    net: Network, manifold: Manifold, k: int, rng: np.random.Generator
) -> tuple[float, float | None]:
    """The same, and the mean distance within the manifold to a visible boundary.

    Infinite without any, None where no shortest ways are known: on cylinders with oblique ends, and where a
    generator flattens a part of its surface. In a box it is the distance to boundaries anywhere in its span.
    """
    return _measured(net, manifold, k, rng)


def _measured(net: Network, manifold: Manifold, k: int, rng: np.random.Generator | None) -> tuple[float, float | None]:
    if k > 2 or (k == 2 and (isinstance(manifold, Path) or (isinstance(manifold, Box) and manifold.dimension != 2))):
        raise InputError(f"k: exact volumes are computed for k = 1, and k = 2 on surfaces and squares, got {k}")
    if isinstance(manifold, Path):
        return _on_curve(net, manifold, rng)
    if isinstance(manifold, Box):
        return _in_box(net, manifold, k, rng)
    found: RoundRegions | SurfaceRegions
    if isinstance(manifold, Sphere | Ellipsoid | Cylinder):
        found = round_regions(net, manifold)
        size = found.visible_length if k == 1 else float(_round_corners(found))
    else:
        found = regions_on(net, manifold)
        size = found.visible_length if k == 1 else float(_surface_corners(found))
    if rng is None or _has_no_ways(found):
        return size, None
    at = tangent_sample(manifold, rng, _POINTS)
    if isinstance(found, RoundRegions):
        near = found.distance_range(at.points, visible=True)[1]
    else:
        near = found.distance(at.points, visible=True)
    return size, float(np.average(near, weights=at.weights)) if np.isfinite(near).all() else inf


def _has_no_ways(found: RoundRegions | SurfaceRegions) -> bool:
    """On cylinders with oblique ends, and where a generator flattens a piece."""
    if isinstance(found, SurfaceRegions):
        return isinstance(found, GeneratorSurfaceRegions) and found.collapsed
    return isinstance(found.surface, Cylinder) and not is_upright(found.surface.axes)


def _on_curve(net: Network, curve: Path, rng: np.random.Generator | None) -> tuple[float, float | None]:
    found = regions_along(net, curve)
    if rng is None:
        return float(found.visible.sum()), None
    t = np.linspace(*curve.interval, _PLACES + 2)[1:-1]
    near = distance_along(found, t, visible=True).nearest
    mean = float(np.average(near, weights=curve.speed(t))) if np.isfinite(near).all() else inf
    return float(found.visible.sum()), mean


def _in_box(net: Network, box: Box, k: int, rng: np.random.Generator | None) -> tuple[float, float | None]:
    found = regions(net, box)
    size = float(found.wall_sizes[found.facets.cell[found.facets.visible]].sum()) if k == 1 else float(_corners(found))
    if rng is None:
        return size, None
    view = box.view(net)
    near = visible_boundary_distance(view.net, box.draw(rng, _POINTS)[:, box.free]).distance
    return size, float(near.mean())


# --- corners ------------------------------------------------------------------------------------------------------


def _corners(found: Complex) -> int:
    """Vertices inside of the box where the folds of at least two neurons are seen."""
    facets = found.facets
    seen = np.flatnonzero(facets.visible)
    ends = found.structure.boundary[0].indices.reshape(-1, 2)[facets.cell[seen]]
    box = found.view.domain
    assert isinstance(box, Box)
    inside = np.asarray(((found.vertices > box.low) & (found.vertices < box.high)).all(axis=1))
    return _meeting(ends.reshape(-1), np.repeat(facets.neuron[seen], 2), inside)


def _surface_corners(found: SurfaceRegions) -> int:
    """Vertices of a surface, off its border, where the folds of at least two neurons are seen."""
    ends = found.structure.boundary[0].indices.reshape(-1, 2)
    inside = np.ones(len(found.structure.points), dtype=bool)
    inside[ends[found.sides[:, 1] < 0]] = False
    seen = found.boundary[found.visible]
    edge, neuron = _changes(found.piece_signs, found.sides[seen])
    return _meeting(ends[seen[edge]].reshape(-1), np.repeat(neuron, 2), inside)


def _round_corners(found: RoundRegions) -> int:
    """The same on a round surface; the ends of a cylinder are its border."""
    arcs = found.cut.arcs
    inside = np.ones(found.num_vertices, dtype=bool)
    inside[arcs[~found.inner[: len(arcs)]]] = False
    seen = np.flatnonzero((found.visible & found.inner)[: len(arcs)])
    arc, neuron = _changes(found.patterns, found.sides[seen])
    return _meeting(arcs[seen[arc]].reshape(-1), np.repeat(neuron, 2), inside)


def _changes(signs: SignArray, sides: IntArray) -> tuple[IntArray, IntArray]:
    """Which edges change the signs of which neurons."""
    edge, neuron = np.nonzero(signs[sides[:, 0]] != signs[sides[:, 1]])
    return edge, neuron


def _meeting(vertex: IntArray, neuron: IntArray, inside: BoolArray) -> int:
    """How many vertices inside meet folds of two neurons."""
    pairs = np.unique(np.stack([vertex, neuron], axis=1), axis=0)
    return int((inside & (np.bincount(pairs[:, 0], minlength=len(inside)) >= 2)).sum())
