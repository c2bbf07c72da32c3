"""Sharper parameters from the values that were asked anyway: Gauss-Newton on a chain of dense layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fiberscope.numerics.cutoffs import RIDGE
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import Run

STEPS = 8

Parameters = list[FloatArray]
"""``W_1, b_1, W_2, b_2, ...``"""


def forward(theta: Sequence[FloatArray], X: FloatArray, leak: float = 0.0) -> tuple[FloatArray, list[FloatArray]]:
    """The values, and the activations of all layers with the inputs first."""
    activations = [X]
    layers = len(theta) // 2
    for k in range(layers):
        z = activations[-1] @ theta[2 * k].T + theta[2 * k + 1]
        activations.append(z if k == layers - 1 else np.where(z > 0, z, leak * z))
    return activations[-1], activations


def backward(theta: Sequence[FloatArray], activations: Sequence[FloatArray], leak: float = 0.0) -> list[FloatArray]:
    """``(points, outputs, n_l)`` for every layer: the derivative of the outputs by the preactivations."""
    layers, (count, m) = len(theta) // 2, activations[-1].shape
    delta = np.broadcast_to(np.eye(m), (count, m, m))
    found = [delta]
    for k in range(layers - 1, 0, -1):
        delta = (delta @ theta[2 * k]) * np.where(activations[k] > 0, 1.0, leak)[:, None, :]
        found.append(delta)
    return found[::-1]


def polish(theta: Parameters, X: FloatArray, Y: FloatArray, run: Run, fixed: int = 0, leak: float = 0.0) -> Parameters:
    """Parameters near ``theta`` with smaller residuals on ``X``; the first ``fixed`` layers stay as they are."""
    best, now = list(theta), list(theta)
    least, worse = np.inf, 0
    for step in range(STEPS):
        run.step(step, STEPS, "polishing")
        values, activations = forward(now, X, leak)
        residual = Y - values
        size = float(np.sqrt((residual**2).mean()))
        worse += not size < 0.5 * least
        if size < least:
            least, best = size, list(now)
        if worse > 1:
            break
        J = _jacobian(activations[fixed:-1], backward(now, activations, leak)[fixed:])
        change = _solved(J, residual.ravel())
        if change is None or not np.isfinite(change).all():
            break
        cuts = np.cumsum([a.size for a in theta[2 * fixed :]])[:-1]
        moved = [a + part.reshape(a.shape) for a, part in zip(now[2 * fixed :], np.split(change, cuts), strict=True)]
        now = [*now[: 2 * fixed], *moved]
    return best


def _solved(J: FloatArray, residual: FloatArray) -> FloatArray | None:
    """Least squares by the normal equations, whose error the next step mends; None where they break down."""
    scale = np.linalg.norm(J, axis=0)
    scale[scale == 0] = 1.0
    J = J / scale
    gram = J.T @ J
    gram[np.diag_indices_from(gram)] += RIDGE * len(gram)
    try:
        return np.asarray(cho_solve(cho_factor(gram), J.T @ residual) / scale)
    except LinAlgError:
        return None


def _jacobian(activations: Sequence[FloatArray], deltas: Sequence[FloatArray]) -> FloatArray:
    parts = []
    for a, delta in zip(activations, deltas, strict=True):
        count, m, n = delta.shape
        parts.append(np.einsum("pmn,pk->pmnk", delta, a).reshape(count * m, n * a.shape[1]))
        parts.append(delta.reshape(count * m, n))
    return np.concatenate(parts, axis=1)
