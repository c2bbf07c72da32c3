"""The linear regions of a network with two inputs, or of a plane through many: polygons and the lines between them."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import TwoSlopeNorm
from matplotlib.lines import Line2D

from fiberscope.errors import InputError
from fiberscope.geometry.complex import Complex
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.plot.style import FUNCTION, LAYERS, PAPER, colour_bar, house_style, mosaic_colors, new_axes

COLOURS = ("mosaic", "value", "slope")


def regions(
    complex: Complex,
    *,
    color: str = "mosaic",
    output: int = 0,
    lines: bool = True,
    points: Any = None,
    ax: Axes | None = None,
    seed: int = 0,
    key: bool | None = None,
    reach: float | None = None,
) -> Axes:
    """Draw a two-dimensional complex.

    Parameters
    ----------
    complex
        From :func:`fiberscope.regions` on a two-dimensional box, polytope or plane.
    color
        ``"mosaic"``: a colour of its own for every region; ``"value"``: the network's output at the middle of the
        region; ``"slope"``: the length of its gradient there.
    output
        Which output is shown by ``"value"`` and ``"slope"``.
    lines
        Draw the boundaries, coloured by the layer of the neuron that makes them.
    points
        Data ``(points, 2)`` in the coordinates of the complex, drawn on top.
    key
        Say what colours mean: a bar for values and slopes, a legend for the layers of lines. None: on axes that are
        made here. The colours of a mosaic carry no meaning; they tell neighbours apart.
    reach
        With ``"value"``: the colours go from minus to plus this number, so that several pictures have one scale. None:
        nearly all values of this complex.
    """
    if complex.dimension != 2:
        raise InputError(f"plot: expected a complex in 2 dimensions, got {complex.dimension}")
    if color not in COLOURS:
        raise InputError(f"color: expected one of {', '.join(COLOURS)}, got {color!r}")
    if complex.rays.any():
        raise InputError("plot: expected a bounded domain, got one with regions that reach to infinity")
    if not 0 <= output < complex.net.out_size:
        raise InputError(f"output: expected 0 to {complex.net.out_size - 1}, got {output}")
    inside = complex.structure.vertices_of(2)
    polygons = [complex.vertices[inside[c]] for c in range(len(inside))]
    key = ax is None if key is None else key
    ax = new_axes(ax, (7.0, 7.0))
    thin = float(np.clip(18 / np.sqrt(len(polygons)), 0.08, 0.9))
    with house_style():
        faces = PolyCollection(polygons, closed=True, antialiased=True, linewidths=0.4)
        if color == "mosaic":
            colours = [tuple(c) for c in mosaic_colors(len(polygons), seed).tolist()]
            faces.set_facecolor(colours)
            faces.set_edgecolor(colours)
        else:
            values = _shade(complex, color, output)
            faces.set_array(values)
            faces.set_cmap(FUNCTION)
            if color == "value":
                reach = float(np.quantile(np.abs(values), 0.98)) or 1.0 if reach is None else reach
                faces.set_norm(TwoSlopeNorm(0.0, -reach, reach))
            faces.set_edgecolor("face")
            if key:
                colour_bar(ax, faces, {"value": f"output {output}", "slope": f"slope of output {output}"}[color])
        ax.add_collection(faces)
        if lines:
            ends, layer = _edges(complex)
            drawn = LineCollection(
                list(ends), colors=[LAYERS[k % len(LAYERS)] if color != "mosaic" else PAPER for k in layer]
            )
            # Later layers are finer: they bend at the lines of the earlier ones.
            drawn.set_linewidth([thin * (1.6 if k == 0 else 0.8) for k in layer])
            drawn.set_capstyle("round")
            ax.add_collection(drawn)
            if key and color != "mosaic" and len(layer):
                _name_layers(ax, np.unique(layer))
        if points is not None:
            data = real_array(points, "points", ndim=2)
            ax.scatter(data[:, 0], data[:, 1], s=5, color="#1f2430", linewidths=0, zorder=3)
        low, high = complex.vertices.min(axis=0), complex.vertices.max(axis=0)
        ax.set_xlim(low[0], high[0])
        ax.set_ylim(low[1], high[1])
        ax.set_aspect("equal")
    return ax


def _name_layers(ax: Axes, layers: IntArray) -> None:
    """Which colour of a line belongs to which layer, below the picture."""
    lines = [Line2D([], [], color=LAYERS[k % len(LAYERS)], label=f"layer {k + 1}") for k in layers.tolist()]
    ax.legend(handles=lines, loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=min(len(lines), 6))


def _shade(complex: Complex, color: str, output: int) -> FloatArray:
    matrices, offsets = complex.affine_maps
    if color == "slope":
        return np.asarray(np.linalg.norm(matrices[:, output], axis=1))
    return np.asarray(np.einsum("ri,ri->r", matrices[:, output], complex.points) + offsets[:, output])


def _edges(complex: Complex) -> tuple[FloatArray, IntArray]:
    """End points ``(edges, 2, 2)`` of the inner edges, and the activation layer, from 0, of the neuron of each."""
    layer_of = np.concatenate(
        [np.full(node.num_signs, k) for k, node in enumerate(complex.net.switches)] or [np.zeros(0, dtype=np.int64)]
    )
    facets = complex.facets
    inner = np.flatnonzero(facets.neuron >= 0)
    ends = complex.structure.boundary[0].indices.reshape(-1, 2)[facets.cell[inner]]
    return complex.vertices[ends], layer_of[facets.neuron[inner]]
