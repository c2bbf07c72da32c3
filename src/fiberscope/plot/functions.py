"""The graph of a network with two inputs, as colours on a box."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.numerics.arrays import real_array
from fiberscope.plot.style import FUNCTION, INK, colour_bar, house_style, new_axes


def function(
    net: NetworkLike,
    box: Box,
    points: Any = None,
    labels: Any = None,
    *,
    output: int = 0,
    resolution: int = 400,
    ax: Axes | None = None,
    key: bool | None = None,
) -> Axes:
    """Colours of one output of a network with two inputs on a box, with its zero line, and data points on top.

    Parameters
    ----------
    points, labels
        Data ``(points, 2)`` and one number per point that colours it (for two classes, minus and plus one).
    key
        A bar that says which value a colour means; None for one on axes that are made here.
    """
    net = as_network(net)
    if net.in_size != 2 or box.dimension != 2:
        raise InputError(f"plot: expected a network with 2 inputs and a 2-D box, got {net.in_size} and {box.dimension}")
    if not 0 <= output < net.out_size:
        raise InputError(f"output: expected 0 to {net.out_size - 1}, got {output}")
    axes_xy = [np.linspace(a, b, resolution) for a, b in zip(box.low, box.high, strict=True)]
    grid = np.stack(np.meshgrid(*axes_xy), axis=-1).reshape(-1, 2)
    values = net(grid)[:, output].reshape(resolution, resolution)
    reach = float(np.quantile(np.abs(values), 0.98)) or 1.0
    key = ax is None if key is None else key
    ax = new_axes(ax, (6.8, 6.0))
    with house_style():
        extent = (box.low[0], box.high[0], box.low[1], box.high[1])
        shown = ax.imshow(
            values,
            origin="lower",
            extent=extent,
            cmap=FUNCTION,
            norm=TwoSlopeNorm(0.0, -reach, reach),
            interpolation="bilinear",
            aspect="equal",
        )
        if key:
            colour_bar(ax, shown, f"output {output}")
        if values.min() < 0 < values.max():
            ax.contour(*axes_xy, values, levels=[0.0], colors=INK, linewidths=1.6)
        if points is not None:
            data = real_array(points, "points", ndim=2)
            colour = np.zeros(len(data)) if labels is None else np.asarray(labels, dtype=float).reshape(-1)
            ax.scatter(
                data[:, 0], data[:, 1], c=colour, cmap=FUNCTION, vmin=-1.4, vmax=1.4, s=14, edgecolors="white", lw=0.5
            )
        ax.set_xlim(extent[0], extent[1])
        ax.set_ylim(extent[2], extent[3])
    return ax
