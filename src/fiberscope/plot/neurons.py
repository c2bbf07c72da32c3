"""Swap costs of neurons: which pairs could exchange their functions, and what keeps the others apart."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import SymLogNorm

from fiberscope.neurons.classes import NeuronClasses
from fiberscope.numerics.floats import FloatArray
from fiberscope.plot.style import ACCENT, FUNCTION, INK, LAYERS, house_style, new_axes


def swap_costs(result: NeuronClasses | FloatArray, *, ax: Axes | None = None, most: int = 64) -> Axes:
    """A heatmap of the swap costs of the first neurons: negative ones would pay, those near zero are symmetries.

    Parameters
    ----------
    result
        Neuron classes, or a matrix ``(m, m)`` of swap costs. Infinite costs, which no weights can pay, are left blank.
    most
        How many neurons are shown.
    """
    ax = new_axes(ax, (6.4, 5.4))
    costs = np.array(result.swap_costs() if isinstance(result, NeuronClasses) else result)[:most, :most]
    np.fill_diagonal(costs, np.nan)
    finite = costs[np.isfinite(costs)]
    size = float(np.abs(finite).max(initial=0.0)) or 1.0
    small = max(float(np.median(np.abs(finite))) if finite.size else size, 1e-6 * size)
    with house_style():
        shown = np.where(np.isfinite(costs), costs, np.nan)
        norm = SymLogNorm(small, vmin=-size, vmax=size)
        image = ax.imshow(shown, cmap=FUNCTION, norm=norm, interpolation="nearest")
        figure = ax.get_figure(root=True)
        if figure is not None:
            figure.colorbar(image, ax=ax, label="swap cost", shrink=0.85)
        ax.set_xlabel("neuron")
        ax.set_ylabel("neuron")
        pairs = max(finite.size // 2, 1)
        name = f"{result.name}: " if isinstance(result, NeuronClasses) else ""
        least = f"least {float(finite.min()):.3g}" if finite.size else "none finite"
        ax.set_title(f"{name}swap costs, {least}, {int((finite < 0).sum()) // 2} of {pairs} negative")
    return ax


def swap_terms(result: NeuronClasses, *, ax: Axes | None = None) -> Axes:
    """The distribution of the swap costs of all pairs and of their three terms, on a scale that keeps the sign."""
    ax = new_axes(ax, (7.0, 4.2))
    terms = result.swap_terms()
    upper = np.triu_indices(result.num_neurons, 1)
    parts = {"total": terms.total, "centre": terms.center, "cross": terms.cross, "mismatch": terms.metric}
    values = [found[np.isfinite(found)] for found in (np.asarray(part[upper]) for part in parts.values())]
    with house_style():
        drawn = ax.boxplot([np.sign(v) * np.sqrt(np.abs(v)) for v in values], tick_labels=list(parts), showfliers=False)
        for line, color in zip(drawn["medians"], (ACCENT, *LAYERS), strict=False):
            line.set_color(color)
        ax.axhline(0.0, color=INK, lw=0.6)
        ax.set_ylabel("signed root of the cost")
        ax.set_title(f"{result.name}: swap costs of {len(upper[0])} pairs and their terms")
    return ax
