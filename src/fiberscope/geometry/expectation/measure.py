"""What a given network really has: the exact volume of its visible boundary inside a manifold."""

from __future__ import annotations

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Path
from fiberscope.geometry.domains import Box
from fiberscope.geometry.expectation.manifolds import Manifold
from fiberscope.geometry.regions import regions
from fiberscope.geometry.surfaces.regions_on import regions_on
from fiberscope.network.network import Network


def boundary_volume(net: Network, manifold: Manifold, k: int = 1) -> float:
    """The ``(m - k)``-volume of the visible codimension-k boundary of one network inside a manifold.

    Along a curve the number of kinks; on a surface and in a box of any dimension, for k = 1, the measure of the visible
    facets; in a two-dimensional box, for k = 2, the corners of the boundary.

    >>> net = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> boundary_volume(net, Box.cube(2)), boundary_volume(net, Box.cube(2), k=2)
    (4.0, 1.0)
    """
    if isinstance(manifold, Path) and k == 1:
        return float(regions_along(net, manifold).visible.sum())
    if isinstance(manifold, Box) and k == 1:
        found = regions(net, manifold)
        return float(found.wall_sizes[found.facets.cell[found.facets.visible]].sum())
    if isinstance(manifold, Box) and manifold.dimension == 2 and k == 2:
        return float(_corners(regions(net, manifold)))
    if not isinstance(manifold, Box | Path) and k == 1:
        return float(regions_on(net, manifold).visible_length)
    raise InputError(f"k: exact volumes are computed for k = 1, and k = 2 in a two-dimensional box, got {k}")


def _corners(found: Complex) -> int:
    """Vertices inside of the box where the folds of at least two neurons are seen."""
    facets = found.facets
    seen = np.flatnonzero(facets.visible)
    ends = found.structure.boundary[0].indices.reshape(-1, 2)[facets.cell[seen]]
    vertex, neuron = ends.reshape(-1), np.repeat(facets.neuron[seen], 2)
    pairs = np.unique(np.stack([vertex, neuron], axis=1), axis=0)
    number = np.bincount(pairs[:, 0], minlength=len(found.vertices))
    box = found.view.domain
    assert isinstance(box, Box)
    inside = ((found.vertices > box.low) & (found.vertices < box.high)).all(axis=1)
    return int((inside & (number >= 2)).sum())
