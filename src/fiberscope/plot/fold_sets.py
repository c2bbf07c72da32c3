"""Fold-sets in the plane, coloured by order or by layer, and dependency graphs drawn in rows."""

from __future__ import annotations

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from fiberscope.errors import InputError
from fiberscope.geometry.folds.fold_set import FoldSet
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.plot.style import ACCENT, INK, LAYERS, house_style, new_axes

COLOURS = ("order", "layer")


def fold_set(found: FoldSet, *, color: str = "order", ax: Axes | None = None) -> Axes:
    """Draw a fold-set in two dimensions.

    Parameters
    ----------
    found
        From :func:`fiberscope.fold_set` on a bounded domain in two dimensions.
    color
        ``"order"``: by the order of the piece, dotted where a facet belongs to none; ``"layer"``: by the layer of the
        first neuron that makes the facet.
    """
    complex = found.complex
    if complex.dimension != 2:
        raise InputError(f"plot: expected a fold-set in 2 dimensions, got {complex.dimension}")
    if color not in COLOURS:
        raise InputError(f"color: expected one of {', '.join(COLOURS)}, got {color!r}")
    if complex.rays.any():
        raise InputError("plot: expected a bounded domain, got one with regions that reach to infinity")
    segments = _segments(found)
    number = found.facet_order if color == "order" else _layers(found)
    ax = new_axes(ax, (7.0, 7.0))
    with house_style():
        handles = []
        for k in np.unique(number).tolist():
            shade, style = (LAYERS[(k - 1) % len(LAYERS)], "solid") if k else (ACCENT, "dotted")
            width = max(0.7, 2.4 - 0.5 * k) if k else 1.2
            ax.add_collection(
                LineCollection(list(segments[number == k]), colors=shade, linestyles=style, linewidths=width)
            )
            name = f"{color} {k}" if k else "in no piece"
            handles.append(
                Line2D([], [], color=shade, linestyle="solid" if k else "dotted", linewidth=width, label=name)
            )
        low, high = complex.vertices.min(axis=0), complex.vertices.max(axis=0)
        ax.set_xlim(low[0], high[0])
        ax.set_ylim(low[1], high[1])
        ax.set_aspect("equal")
        if handles:
            ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def _segments(found: FoldSet) -> FloatArray:
    ends = found.complex.structure.boundary[0].indices.reshape(-1, 2)[found.complex.facets.cell[found.facets]]
    return np.asarray(found.complex.vertices[ends])


def _layers(found: FoldSet) -> IntArray:
    """The layer, from 1, of the first neuron of every facet."""
    sizes = [node.num_signs for node in found.complex.net.switches]
    layer = np.repeat(np.arange(1, len(sizes) + 1), sizes)
    return np.asarray(layer[found.complex.facets.neuron[found.facets]], dtype=np.int64)


def dependency_graph(graph: nx.DiGraph[int], *, ax: Axes | None = None) -> Axes:
    """Draw a dependency graph: one row per order, the first on top; edges that do not bend are dotted.

    Within a row a piece stands below the middle of those on which it depends, so that few edges cross.
    """
    ax = new_axes(ax, (8.0, 4.5))
    place = _places(graph)
    with house_style():
        for bends, style, shade in ((True, "solid", INK), (False, "dotted", ACCENT)):
            lines = [[place[a], place[b]] for a, b, bent in graph.edges(data="bends", default=True) if bent is bends]
            ax.add_collection(LineCollection(lines, colors=shade, linestyles=style, linewidths=0.6, alpha=0.45))
        for vertex, data in graph.nodes(data=True):
            shade = LAYERS[(min(data["layers"], default=1) - 1) % len(LAYERS)]
            ax.scatter(*place[vertex], s=22, color=shade, linewidths=0, zorder=3)
        orders = sorted({data["order"] for _, data in graph.nodes(data=True)})
        ax.set_yticks([-k for k in orders], [f"order {k}" for k in orders])
        ax.set_xticks([])
        ax.spines["bottom"].set_visible(False)
        ax.spines["left"].set_visible(False)
        ax.set_xlim(-0.03, 1.03)
        ax.set_ylim(-max(orders, default=1) - 0.4, -min(orders, default=1) + 0.4)
    return ax


def _places(graph: nx.DiGraph[int]) -> dict[int, tuple[float, float]]:
    place: dict[int, tuple[float, float]] = {}
    for order in sorted({data["order"] for _, data in graph.nodes(data=True)}):
        row = [vertex for vertex, data in graph.nodes(data=True) if data["order"] == order]
        middle = {v: np.mean([place[u][0] for u in graph.predecessors(v)] or [0.5]) for v in row}
        row.sort(key=lambda v: (middle[v], v))
        for index, vertex in enumerate(row):
            place[vertex] = ((index + 0.5) / len(row), -float(order))
    return place
