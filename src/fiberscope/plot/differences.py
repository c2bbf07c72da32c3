"""What changed between two models: a bar for every layer, and in words what happened to its neurons."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from fiberscope.equality.diff.changes import ADDED, CHANGED, REMOVED, ROUNDED, SAME, Difference
from fiberscope.plot.style import ACCENT, INK, LAYERS, house_style, new_axes

COLOURS = {SAME: LAYERS[2], ROUNDED: LAYERS[0], CHANGED: ACCENT, ADDED: LAYERS[1], REMOVED: LAYERS[3]}
"""Of the statuses of layers."""

FLOOR = 1e-9
"""Where a bar begins: the change of layers that are the same is zero, which a logarithm does not show."""


def difference(found: Difference, *, ax: Axes | None = None) -> Axes:
    """The relative change of every layer on a logarithmic axis, coloured by its status, with remarks beside it."""
    layers = found.layers
    ax = new_axes(ax, (9.0, 1.2 + 0.34 * max(len(layers), 2)))
    with house_style():
        ends = [1.0 if layer.change is None else float(np.clip(layer.change, FLOOR, 1e3)) for layer in layers]
        for k, (layer, end) in enumerate(zip(layers, ends, strict=True)):
            gone = layer.change is None
            ax.barh(k, end - FLOOR, left=FLOOR, height=0.62, color=COLOURS[layer.status], alpha=0.25 if gone else 0.95)
            if end <= FLOOR:
                ax.plot([FLOOR], [k], "o", color=COLOURS[layer.status], markersize=4, clip_on=False)
            said = layer.remarks or ("" if layer.status == SAME else layer.status)
            ax.text(1.02, k, said, transform=ax.get_yaxis_transform(), va="center", fontsize="small", color=INK)
        ax.set_xscale("log")
        ax.set_xlim(FLOOR, max(2.0, 2 * max(ends, default=1.0)))
        ax.set_yticks(range(len(layers)), [layer.name for layer in layers])
        ax.set_ylim(len(layers) - 0.4, -0.6)
        ax.set_xlabel("relative change after matching")
        used = [status for status in COLOURS if any(layer.status == status for layer in layers)]
        handles = [ax.barh(-9, 0, color=COLOURS[status], label=status) for status in used]
        ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(used), fontsize="small")
        what = "nothing changed" if found.same else "what changed"
        ax.set_title(f"{what}, by {found.by}, {found.precision}", pad=26)
    return ax
