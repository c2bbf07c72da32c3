"""What was recovered of a function: the folds that were found, on a plane through the input space."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fiberscope.errors import InputError
from fiberscope.numerics.floats import FloatArray
from fiberscope.plot.style import LAYERS, house_style, new_axes


def recovered(
    result: Any, *, plane: Any = None, reach: float = 3.0, resolution: int = 240, ax: Axes | None = None
) -> Axes:
    """The folds of all neurons that were found, coloured by layer, also where the recovery stopped half-way.

    Parameters
    ----------
    result
        What :func:`fiberscope.recover` gives.
    plane
        A triple ``origin, u, v`` of vectors; a fixed pair of orthonormal directions through zero if None, and the
        plane itself for two inputs.
    reach
        How far the picture goes along ``u`` and ``v``.
    """
    if not result.hyperplanes:
        raise InputError("plot: expected a recovery that found a layer, got one that found none")
    origin, u, v = _plane(result, plane)
    axis = np.linspace(-reach, reach, resolution)
    s, t = np.meshgrid(axis, axis)
    a = origin + s.ravel()[:, None] * u + t.ravel()[:, None] * v
    hidden = result.hyperplanes if result.network is None else result.hyperplanes[:-1]
    ax = new_axes(ax)
    shown = []
    with house_style():
        for layer, (W, b) in enumerate(hidden):
            z = a @ W.T + b
            color = LAYERS[layer % len(LAYERS)]
            for column in z.T:
                if column.min() < 0 < column.max():
                    ax.contour(s, t, column.reshape(s.shape), levels=[0.0], colors=[color], linewidths=1.1)
            shown.append(
                Line2D([], [], color=color, label=f"layer {layer + 1}: {len(W)} of {result.widths[layer + 1]}")
            )
            a = np.where(z > 0, z, result.slope * z)
        ax.legend(handles=shown, loc="upper right", frameon=True)
        state = "recovered" if result.recovered else "not recovered as a whole"
        ax.set_title(f"{'-'.join(map(str, result.widths))}: {state}, {result.queries:,} queries")
        ax.set_aspect("equal")
    return ax


def _plane(result: Any, plane: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    n = result.widths[0]
    if plane is not None:
        origin, u, v = (np.asarray(part, dtype=np.float64).ravel() for part in plane)
        if not origin.size == u.size == v.size == n:
            raise InputError(f"plane: expected three vectors of {n} numbers, got {origin.size}, {u.size}, {v.size}")
        return origin, u, v
    if n == 1:
        raise InputError("plot: expected two inputs or more, got 1")
    frame, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(n, 2)))
    return np.zeros(n), *(np.eye(2) if n == 2 else frame.T)
