"""Regions along curves: bars of the unrolled curve, and the curve on the regions of the plane that it runs through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from fiberscope.errors import InputError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.curves.curve_regions import CurveRegions
from fiberscope.numerics.floats import IntArray
from fiberscope.plot.complexes import regions
from fiberscope.plot.style import INK, LAYERS, PAPER, house_style, mosaic_colors, new_axes


def curve_bars(
    found: CurveRegions | Sequence[CurveRegions],
    *,
    labels: Sequence[Any] | None = None,
    ax: Axes | None = None,
    seed: int = 0,
) -> Axes:
    """Draw curves unrolled, one bar for each: regions by colour, breakpoints by the layer of their neuron.

    Parameters
    ----------
    found
        One result of :func:`fiberscope.regions_along`, or several, as of the epochs of a training; the first is at the
        top.
    labels
        A label for every bar; their numbers of regions by default.

    Breakpoints at which the function does not bend are thin.
    """
    bars = [found] if isinstance(found, CurveRegions) else list(found)
    if not bars:
        raise InputError("found: expected at least one result, got none")
    if labels is not None and len(labels) != len(bars):
        raise InputError(f"labels: expected {len(bars)}, one for each bar, got {len(labels)}")
    names = [f"{bar.num_regions} regions" for bar in bars] if labels is None else [str(x) for x in labels]
    ax = new_axes(ax, (9.0, 1.1 + 0.42 * min(len(bars), 24)))
    with house_style():
        for row, bar in enumerate(bars):
            _draw_bar(ax, bar, row, seed, thick=len(bars) <= 24)
        ax.set_ylim(len(bars) - 0.4, -0.6)
        ax.set_xlim(0.0, max(bar.curve.length for bar in bars))
        step = -(-len(bars) // 24)
        ax.set_yticks(range(0, len(bars), step), names[::step])
        ax.set_xlabel("arc length")
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        _name_breakpoints(ax, bars, thick=len(bars) <= 24)
    return ax


def _name_breakpoints(ax: Axes, bars: Sequence[CurveRegions], thick: bool) -> None:
    """Whose breakpoints the lines are; the colours of the pieces carry no meaning."""
    layers = sorted({k for bar in bars for k in _layers(bar).tolist()}) if thick else []
    lines = [Line2D([], [], color=LAYERS[k % len(LAYERS)], label=f"a neuron of layer {k + 1}") for k in layers]
    if lines:
        below = (0.5, -0.9 / (0.6 + 0.42 * len(bars)))
        ax.legend(handles=lines, loc="upper center", bbox_to_anchor=below, ncols=len(lines), fontsize="small")


def _draw_bar(ax: Axes, bar: CurveRegions, row: int, seed: int, thick: bool) -> None:
    low, high = row - 0.4, row + (0.4 if thick else 0.6)
    starts = np.concatenate([[0.0], bar.arc_lengths])[: bar.num_regions]
    colours = [tuple(c) for c in mosaic_colors(bar.num_regions, seed).tolist()]
    ax.broken_barh(list(zip(starts.tolist(), bar.lengths.tolist(), strict=True)), (low, high - low), facecolors=colours)
    if thick and len(bar.breakpoints):
        lines = [[(x, low), (x, high)] for x in bar.arc_lengths.tolist()]
        colour = [LAYERS[k % len(LAYERS)] for k in _layers(bar).tolist()]
        widths = np.where(bar.visible, 1.6, 0.5).tolist()
        ax.add_collection(LineCollection(lines, colors=colour, linewidths=widths))


def _layers(bar: CurveRegions) -> IntArray:
    """The activation layer, from 0, of the first neuron of every breakpoint."""
    return bar.net.layout.switch[bar.neuron]


def under_curve(complex: Complex, found: CurveRegions, *, ax: Axes | None = None, **settings: Any) -> Axes:
    """Draw the regions of a network with two inputs, and on top a curve with its breakpoints.

    Parameters
    ----------
    complex
        From :func:`fiberscope.regions` on a part of the plane that holds the curve.
    found
        From :func:`fiberscope.regions_along` for the same network.
    settings
        For :func:`fiberscope.plot.regions`.

    Breakpoints are dots, bright where the function bends.
    """
    if found.curve.ambient != 2:
        raise InputError(f"found: expected a curve in the plane, got one in R^{found.curve.ambient}")
    drawn = regions(complex, ax=new_axes(ax, (7.0, 7.0)), **settings)
    path = found.curve(np.linspace(*found.curve.interval, 1000))
    with house_style():
        drawn.plot(path[:, 0], path[:, 1], color=INK, linewidth=2.2, zorder=3)
        points, visible = found.points, found.visible
        face = [PAPER if bends else INK for bends in visible.tolist()]
        drawn.scatter(points[:, 0], points[:, 1], s=22, facecolors=face, edgecolors=INK, linewidths=1.2, zorder=4)
    return drawn
