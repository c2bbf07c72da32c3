"""Members of a fiber side by side: the parameters move, the function does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box
from fiberscope.network.border import NetworkLike, as_networks
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.plot.functions import function
from fiberscope.plot.style import INK, LAYERS, colour_bar, house_style, save_movie


def fiber(members: Sequence[NetworkLike], box: Box, *, output: int = 0, resolution: int = 200) -> list[list[Axes]]:
    """Small multiples of members of a fiber: above the function with the first-layer hyperplanes, below the parameters.

    Parameters
    ----------
    members
        Chains of one architecture with two inputs, for instance ``fs.fiber(net).sample(5, 0)`` or
        ``fs.fiber(net).path(other).networks(5)``.
    box
        Where the function is drawn.

    Returns
    -------
    The axes, one list per row; all of one figure, which :func:`fiberscope.plot.save_figure` writes.
    """
    nets, reach = _checked(members)
    with house_style():
        figure = Figure(figsize=(2.6 * len(nets) + 1.4, 4.6), layout="constrained")
        grid = figure.subplots(2, len(nets), squeeze=False, height_ratios=[2.0, 1.0])
        for column, net in enumerate(nets):
            above, below = grid[0, column], grid[1, column]
            _member(net, box, reach, above, below, output, resolution)
            if column:
                below.set_yticks([])
        grid[0, 0].set_ylabel("function")
        grid[1, 0].set_ylabel("parameters")
        colour_bar(grid[0, -1], grid[0, -1].images[0], f"output {output}")
        layers = range(len(nets[0].weights))
        keys: list[Artist] = [Line2D([], [], color=LAYERS[0], linestyle="dashed", label="lines of the first layer")]
        keys += [Patch(color=LAYERS[k % len(LAYERS)], label=f"weights and biases of layer {k + 1}") for k in layers]
        figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), fontsize="small")
    return [list(grid[0]), list(grid[1])]


def fiber_movie(
    members: Sequence[NetworkLike],
    box: Box,
    path: Path | str,
    *,
    output: int = 0,
    resolution: int = 160,
    frames_per_second: int = 12,
) -> None:
    """An animated GIF of members of a fiber, there and back again: the parameters move, the function does not.

    Parameters
    ----------
    members
        As in :func:`fiber`, in the order in which they are shown: ``fs.fiber(net).path(other).networks(30)``.
    path
        The file to write, whole or not at all; its name ends in ``.gif``.
    """
    nets, reach = _checked(members)
    round_trip = [*nets, *nets[-2:0:-1]]
    with house_style():
        figure = Figure(figsize=(4.0, 5.4), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=[2.4, 1.0])

    def draw(frame: int) -> None:
        _member(round_trip[frame], box, reach, above, below, output, resolution)
        above.set_title("the function stays")
        below.set_title("the parameters move")

    save_movie(figure, draw, len(round_trip), path, frames_per_second=frames_per_second)


def _checked(members: Sequence[NetworkLike]) -> tuple[list[Network], float]:
    """The members, and the largest size of a parameter among them."""
    nets = as_networks(members, "members")
    if not nets or not all(n.is_chain and n.in_size == 2 and n.widths == nets[0].widths for n in nets):
        raise InputError("plot: expected one or more chains of one architecture with 2 inputs")
    return nets, max(float(np.abs(_parameters(n)[0]).max(initial=0.0)) for n in nets) or 1.0


def _member(net: Network, box: Box, reach: float, above: Axes, below: Axes, output: int, resolution: int) -> None:
    """The function with the first-layer hyperplanes, and the parameters as bars."""
    function(net, box, output=output, resolution=resolution, ax=above)
    _hyperplanes(net, box, above)
    values, layer = _parameters(net)
    below.bar(np.arange(len(values)), values, color=[LAYERS[k % len(LAYERS)] for k in layer], width=0.85)
    below.axhline(0.0, color=INK, linewidth=0.6)
    below.set_ylim(-1.05 * reach, 1.05 * reach)
    below.set_xticks([])
    above.set_xticks([])
    above.set_yticks([])


def _parameters(net: Network) -> tuple[FloatArray, list[int]]:
    """All numbers of a chain, and the layer of each."""
    parts = [np.column_stack([w, b]).ravel() for w, b in zip(net.weights, net.biases, strict=True)]
    return np.concatenate(parts), [k for k, part in enumerate(parts) for _ in part]


def _hyperplanes(net: Network, box: Box, ax: Axes) -> None:
    """The lines of the first layer, where they meet the box."""
    size = float(np.abs(np.concatenate([box.low, box.high])).max()) * 4
    for w, b in zip(net.weights[0], net.biases[0], strict=True):
        norm = float(w @ w)
        if norm == 0:
            continue
        foot, along = -b * w / norm, np.array([-w[1], w[0]]) / np.sqrt(norm)
        ends = np.stack([foot - size * along, foot + size * along])
        ax.plot(ends[:, 0], ends[:, 1], color=LAYERS[0], linewidth=1.2, linestyle="dashed")
    ax.set_xlim(box.low[0], box.high[0])
    ax.set_ylim(box.low[1], box.high[1])
