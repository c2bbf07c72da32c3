"""Plain references for regions along curves: NumPy layer by layer, and one local optimisation for every neuron."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import minimize

from fiberscope.numerics.floats import FloatArray


def count_on_segment(weights: Sequence[FloatArray], biases: Sequence[FloatArray], a: FloatArray, b: FloatArray) -> int:
    """Regions of a ReLU chain on a segment in floats: values at the breakpoints, one product for every layer."""
    values = np.stack([a, b])
    for W, bias in zip(weights[:-1], biases[:-1], strict=True):
        z = values @ W.T + bias
        piece, neuron = np.nonzero((z[1:] > 0) != (z[:-1] > 0))
        before, after = z[piece, neuron], z[piece + 1, neuron]
        t = before / (before - after)
        order = np.lexsort((t, piece))
        piece, neuron, t = piece[order], neuron[order], t[order]
        new = z[piece] + t[:, None] * (z[piece + 1] - z[piece])
        new[np.arange(len(t)), neuron] = 0.0
        values = np.maximum(np.insert(z, piece + 1, new, axis=0), 0.0)
    return len(values) - 1


def zeros_by_slsqp(
    preactivations: Callable[[FloatArray], FloatArray],
    curve: Callable[[FloatArray], FloatArray],
    interval: tuple[float, float],
    neurons: int,
    starts: int = 1,
) -> list[float]:
    """Zeros on a curve in the manner of *Effects of data geometry in early deep learning* (2022): for every neuron
    ``z(gamma(t))^2`` is minimised by SLSQP from ``starts`` places; minima at zero count."""
    found: list[float] = []
    # Off the middle: the speed of the tractrix vanishes there, and with it every gradient.
    places = interval[0] + (np.arange(starts) + 0.37) / starts * (interval[1] - interval[0])
    for j in range(neurons):
        own: list[float] = []
        for place in places:
            result = minimize(
                lambda t, j=j: float(preactivations(curve(np.clip(t, *interval)))[0, j] ** 2),
                [place], method="SLSQP", bounds=[interval], options={"ftol": 1e-14, "maxiter": 100},
            )  # fmt: skip
            t = float(result.x[0])
            if result.fun < 1e-10 and all(abs(t - s) > 1e-4 for s in own):
                own.append(t)
        found += own
    return sorted(found)
