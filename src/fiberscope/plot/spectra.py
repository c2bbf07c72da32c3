"""Singular values of a Jacobian with the cut-offs that turn them into ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from fiberscope.dimension.functional import FunctionalDimension
from fiberscope.errors import InputError
from fiberscope.plot.style import ACCENT, INK, LAYERS, house_style, new_axes

if TYPE_CHECKING:
    from fiberscope.dimension.kernels.eigenfunctions import KernelEigenfunctions
    from fiberscope.dimension.reasons.explain import KernelDecomposition


def spectrum(result: FunctionalDimension, *, ax: Axes | None = None) -> Axes:
    """Singular values in float64 and float32 on a logarithmic scale, both cut-offs, the gap and the exact rank.

    A reader sees whether the numerical rank means something: where the values fall steadily through the cut-off,
    another convention gives another rank.
    """
    ax = new_axes(ax, (7.0, 4.2))
    values, narrow = result.singular_values, result.paper_singular_values
    with house_style():
        floor = _floor(result)
        for some, cutoff, color, size, label in (
            (values, result.cutoff, LAYERS[0], 5, "float64"),
            (narrow, result.paper_cutoff, LAYERS[1], 3, "float32"),
        ):
            if len(some):  # else the Jacobian exceeds the range of these floats
                ax.semilogy(
                    np.arange(1, len(some) + 1), np.maximum(some, floor), ".", color=color, ms=size, label=label
                )
                ax.axhline(cutoff, color=color, lw=1, ls="--")
        if result.exact is not None:
            ax.axvline(result.exact + 0.5, color=ACCENT, lw=1.2, label=f"exact rank {result.exact}")
        kept = result.numerical or 0
        if 0 < kept < len(values) and values[kept] > 0:
            ax.annotate(
                f"gap {result.gap:.1e}",
                (kept + 0.5, float(np.sqrt(values[kept - 1] * max(values[kept], floor)))),
                xytext=(8, 0),
                textcoords="offset points",
                color=INK,
                va="center",
            )
        ax.set_xlabel("index")
        ax.set_ylabel("singular value")
        ax.set_title(f"numerical {result.numerical}, float32 rule {result.paper}, at most {result.upper}")
        ax.legend(loc="upper right")
    return ax


_REASONS = ("dead", "rescaling", "normalisation", "linear", "translation", "equal patterns", "one layer")
"""Reasons with a colour of their own, the same in every picture."""


def kernel_parts(result: KernelDecomposition, *, ax: Axes | None = None) -> Axes:
    """What the directions of the parameters are: those that change outputs, and every reason why others do not.

    Full bars are directions along which one can go on, hatched ones are known to first order only.
    """
    ax = new_axes(ax, (7.0, 3.6))
    parts = [part for part in result.parts if part.dimension]
    names = ["change the outputs", *(part.kind for part in parts)]
    sizes = [result.rank, *(part.dimension for part in parts)]
    with house_style():
        shades = {kind: LAYERS[k % len(LAYERS)] for k, kind in enumerate(_REASONS)}
        colors = [INK, *(shades.get(part.kind, INK) if part.integrates else ACCENT for part in parts)]
        bars = ax.barh(names, sizes, color=colors)
        for bar, part in zip(bars[1:], parts, strict=True):
            if not part.integrates:
                bar.set_hatch("//")
        ax.bar_label(bars, padding=4)
        ax.invert_yaxis()
        ax.set_xlim(0, 1.12 * max(sizes))
        ax.set_xlabel(f"dimensions of {result.num_parameters} parameters")
        ax.set_title(f"kernel of the Jacobian on {result.num_points} points: {result.nullity}")
    return ax


def eigenfunctions(result: KernelEigenfunctions, *, which: int = 0, ax: Axes | None = None) -> Axes:
    """Eigenfunctions of a tangent kernel of one output: of one input all as lines, of two inputs one as colours.

    ``which`` is the one that is drawn for two inputs.
    """
    X, values = np.asarray(result.X, dtype=np.float64), result.values
    if X.ndim != 2 or X.shape[1] > 2 or values.shape[2] != 1:
        got = f"{X.reshape(len(X), -1).shape[1]} inputs and {values.shape[2]} outputs"
        raise InputError(f"result: expected eigenfunctions of one or two inputs and one output, got {got}")
    if not 0 <= which < len(values):
        raise InputError(f"which: expected 0 to {len(values) - 1}, got {which}")
    ax = new_axes(ax, (7.0, 4.2))
    shares = result.eigenvalues / result.trace if result.trace else np.zeros(len(values))
    with house_style():
        if X.shape[1] == 1:
            order = np.argsort(X[:, 0])
            for k, line in enumerate(values[:, :, 0]):
                label = f"{k + 1}: {shares[k]:.1%}"
                ax.plot(X[order, 0], line[order], color=LAYERS[k % len(LAYERS)], lw=1.5, label=label)
            ax.set_xlabel("input")
            ax.set_ylabel("eigenfunction")
            ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), title="part of the trace")
        else:
            most = float(np.abs(values[which]).max())
            dots = ax.scatter(X[:, 0], X[:, 1], c=values[which, :, 0], cmap="RdBu", vmin=-most, vmax=most, s=14)
            ax.figure.colorbar(dots, ax=ax)
            ax.set_title(f"eigenfunction {which + 1}: {shares[which]:.1%} of the trace")
    return ax


def _floor(result: FunctionalDimension) -> float:
    """Where zeros are drawn: nothing below 1e-20 of the largest singular value says anything."""
    return 1e-20 * float(result.singular_values.max(initial=0.0)) or 1.0
