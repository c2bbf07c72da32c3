"""Objectives of matchings side by side: where the identity is as good as the best permutation, neurons are known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from fiberscope.connectivity.matching import Matching
from fiberscope.errors import InputError
from fiberscope.plot.style import house_style, new_axes

KINDS = ("identity", "optimal", "random")


def matching_objectives(results: Mapping[str, Matching], *, kind: str = "identity", ax: Axes | None = None) -> Axes:
    """A heatmap of mean correlations, a row for every matching and a column for every group of neurons.

    Parameters
    ----------
    results
        Matchings by name, such as those of several scales of the fixed weights; all of one architecture.
    kind
        At which permutation: ``"identity"``, ``"optimal"`` or ``"random"``. Beside the identity's number stands the
        optimal one.
    """
    if kind not in KINDS:
        raise InputError(f"kind: expected one of {', '.join(KINDS)}, got {kind!r}")
    groups = {tuple(part.group for part in found.objectives) for found in results.values()}
    if len(groups) != 1:
        raise InputError(f"results: expected matchings of one architecture, at least one, got {len(groups)} kinds")
    (columns,) = groups
    ax = new_axes(ax, (1.8 + 1.5 * len(columns), 1.4 + 0.5 * len(results)))
    values = np.array([[getattr(part, kind) for part in found.objectives] for found in results.values()])
    with house_style():
        image = ax.imshow(values, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
        for i, found in enumerate(results.values()):
            for j, part in enumerate(found.objectives):
                beside = f" of {part.optimal:.2f}" if kind == "identity" else ""
                color = "black" if values[i, j] > 0.6 else "white"
                ax.text(j, i, f"{values[i, j]:.2f}{beside}", ha="center", va="center", color=color, fontsize="small")
        figure = ax.get_figure(root=True)
        if figure is not None:
            figure.colorbar(image, ax=ax, label="mean correlation of matched neurons", shrink=0.85)
        ax.set_xticks(range(len(columns)), columns)
        ax.set_yticks(range(len(results)), list(results))
        ax.set_xlabel("group of neurons")
        ax.grid(False)
        ax.set_title("identity, of optimal" if kind == "identity" else kind)
    return ax
