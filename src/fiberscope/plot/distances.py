"""Distances to region boundaries as a map of the plane, and gradients with their projections along a curve."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap

from fiberscope.errors import InputError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.distances.distance import BoundaryDistance
from fiberscope.geometry.distances.nearest_visible import VisibleDistance
from fiberscope.geometry.expectation.projection import ProjectedGradients
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray
from fiberscope.plot.style import ACCENT, INK, LAYERS, PAPER, house_style, new_axes

DEPTH = LinearSegmentedColormap.from_list("depth", ["#0b1d2a", "#22577a", "#38a3a5", "#c7e9b0", "#fbfaf7"])
"""Dark on the boundaries, light far from them."""

_GOLDEN = (5**0.5 - 1) / 2


def boundary_distance(
    found: BoundaryDistance | VisibleDistance,
    points: Any,
    *,
    complex: Complex | None = None,
    feet: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw distances of points in the plane as a map of colours.

    Parameters
    ----------
    found
        Distances of the points, from :func:`fiberscope.boundary_distance` or its visible companion.
    points
        The points, ``(points, 2)``: scattered, or all places of a grid.
    complex
        The regions of the same network; their edges are drawn on top.
    feet
        For so many points, spread over the list, the way to the foot point is drawn.
    """
    X = real_array(points, "points", ndim=2)
    if X.shape != (len(found), 2):
        raise InputError(f"points: expected ({len(found)}, 2), one for every distance, got {X.shape}")
    finite = np.isfinite(found.distance)
    if not finite.any():
        raise InputError("plot: expected a network with a boundary, got infinite distances only")
    ax = new_axes(ax, (7.0, 6.0))
    with house_style():
        grid = _grid(X, found.distance)
        if grid is not None:
            picture = ax.imshow(grid[0], origin="lower", extent=grid[1], cmap=DEPTH, interpolation="bilinear")
            ax.figure.colorbar(picture, ax=ax, label="distance to the boundary", shrink=0.8)
        else:
            dots = ax.scatter(X[finite, 0], X[finite, 1], c=found.distance[finite], cmap=DEPTH, s=9, linewidths=0)
            ax.figure.colorbar(dots, ax=ax, label="distance to the boundary", shrink=0.8)
        if complex is not None:
            ends = complex.structure.boundary[0].indices.reshape(-1, 2)[complex.facets.cell]
            ax.add_collection(LineCollection(list(complex.vertices[ends]), colors=PAPER, linewidths=0.6))
        if feet:
            count = int(finite.sum())
            places = (np.arange(min(feet, count)) * _GOLDEN) % 1.0  # well spread, and not along the rows of a grid
            chosen = np.flatnonzero(finite)[(places * count).astype(np.int64)]
            ways = np.stack([X[chosen], found.point[chosen]], axis=1)
            ax.add_collection(LineCollection(list(ways), colors=ACCENT, linewidths=1.0))
            ax.scatter(X[chosen, 0], X[chosen, 1], s=10, color=ACCENT, linewidths=0, zorder=3)
        ax.set_xlim(X[:, 0].min(), X[:, 0].max())
        ax.set_ylim(X[:, 1].min(), X[:, 1].max())
        ax.set_aspect("equal")
    return ax


def _grid(X: FloatArray, values: FloatArray) -> tuple[FloatArray, tuple[float, float, float, float]] | None:
    """The values as an image, if the points are the places of a grid."""
    x, column = np.unique(X[:, 0], return_inverse=True)
    y, row = np.unique(X[:, 1], return_inverse=True)
    if len(x) * len(y) != len(X) or len(x) < 2 or len(y) < 2:
        return None
    image = np.full((len(y), len(x)), np.nan)
    image[row, column] = np.where(np.isfinite(values), values, np.nan)
    return image, (float(x[0]), float(x[-1]), float(y[0]), float(y[-1]))


def projected_gradients(found: ProjectedGradients, *, neuron: int = 0, ax: Axes | None = None) -> Axes:
    """Draw the gradients of one neuron along a plane curve, and what is left of them along its tangents.

    ``neuron`` is a row of the result. Whole gradients are thin, projections thick.
    """
    if found.points.shape[1] != 2:
        raise InputError(f"plot: expected a curve in the plane, got one in R^{found.points.shape[1]}")
    if not 0 <= neuron < len(found.neurons):
        raise InputError(f"neuron: expected 0 to {len(found.neurons) - 1}, got {neuron}")
    gradient = found.gradients[neuron]
    shadow = found.projected[neuron][:, None] * found.tangents
    span = float(np.ptp(found.points, axis=0).max()) or 1.0
    unit = 0.15 * span / (float(np.linalg.norm(gradient, axis=1).max()) or 1.0)
    ax = new_axes(ax, (6.0, 6.0))
    with house_style():
        line = found.curve(np.linspace(*found.curve.interval, 600))
        ax.plot(*line.T, color=INK, linewidth=1.0, alpha=0.5)
        for vectors, shade, width, name in (
            (gradient, LAYERS[0], 0.7, "gradient"),
            (shadow, ACCENT, 2.0, "projection"),
        ):
            ways = np.stack([found.points, found.points + unit * vectors], axis=1)
            ax.add_collection(LineCollection(list(ways), colors=shade, linewidths=width, label=name))
        ax.autoscale_view()
        ax.set_aspect("equal")
        ax.legend(loc="upper left", bbox_to_anchor=(0.0, -0.08), ncols=2)
    return ax


def distance_histogram(found: BoundaryDistance, *, bins: int = 40, ax: Axes | None = None) -> Axes:
    """How the distances of points to the boundary of their region are spread, on a logarithmic scale."""
    finite = found.distance[np.isfinite(found.distance) & (found.distance > 0)]
    if not finite.size:
        raise InputError("plot: expected finite distances, got none")
    ax = new_axes(ax, (7.0, 3.6))
    with house_style():
        low, high = float(finite.min()), float(finite.max())
        edges = np.geomspace(low, high if high > low else 2 * low, bins + 1)
        ax.hist(finite, bins=list(edges), color=LAYERS[0], edgecolor=PAPER, linewidth=0.6)
        middle = float(np.median(finite))
        ax.axvline(middle, color=ACCENT, linewidth=1.6)
        ax.annotate(f" median {middle:.3g}", (middle, 0.96), xycoords=("data", "axes fraction"), color=ACCENT, va="top")
        ax.set_xscale("log")
        ax.set_xlabel("distance to the boundary of the region")
        ax.set_ylabel("points")
    return ax
