"""Sharper parameters from the values that were asked anyway: Gauss-Newton on a chain of dense layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular

from fiberscope.numerics.cutoffs import RIDGE
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.run import Run

STEPS, AGAIN = 12, 3
"""Steps with a Jacobian, and how often a further one is taken where residuals stay large."""

STEPS_DAMPED, TRIES, STALLED, HARDLY = 150, 8, 20, 0.97
"""Steps of a fit from afar, how often one is shortened, and by how much residuals must shrink within how many."""

DAMPING = 1e-3, 4.0, 5.0
"""The first damping, and the factors by which it grows after a failure and shrinks after a step."""

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


def polish(theta: Parameters, X: FloatArray, Y: FloatArray, run: Run, fixed: int = 0, leak: float = 0.0,
           goal: float = 0.0) -> Parameters:  # fmt: skip
    """Parameters near ``theta`` with smaller residuals on ``X``; the first ``fixed`` layers stay as they are.

    Normal equations are fast, but lose half of the digits where parameters are hard to tell apart. So where the
    residuals stay above ``goal`` the last steps solve the equations themselves.
    """
    best, now = list(theta), list(theta)
    least, worse, sharp = np.inf, 0, False
    for step in range(STEPS):
        run.step(step, STEPS, "polishing")
        values, activations = forward(now, X, leak)
        residual = Y - values
        size = float(np.sqrt((residual**2).mean()))
        worse += not size < 0.5 * least
        if size < least:
            least, best = size, list(now)
        if worse > 1 and (sharp or least <= goal):
            break
        if worse > 1:
            now, worse, sharp = list(best), 0, True
            values, activations = forward(now, X, leak)
            residual = Y - values
        J = _jacobian(activations[fixed:-1], backward(now, activations, leak)[fixed:])
        change = _solved_sharply(J, residual.ravel()) if sharp else _solved(J, residual.ravel())
        if change is None or not np.isfinite(change).all():
            break
        cuts = np.cumsum([a.size for a in theta[2 * fixed :]])[:-1]
        moved = [a + part.reshape(a.shape) for a, part in zip(now[2 * fixed :], np.split(change, cuts), strict=True)]
        now = [*now[: 2 * fixed], *moved]
    return best


def damped(theta: Parameters, X: FloatArray, Y: FloatArray, run: Run, fixed: int = 0, leak: float = 0.0,
           goal: float = 0.0, sizes: FloatArray | None = None) -> tuple[Parameters, float]:  # fmt: skip
    """As :func:`polish` from parameters that may be far away (Levenberg and Marquardt); and the size of the residuals.

    Residuals are counted in parts of the ``sizes`` of their points. It ends at ``goal``, or where they hardly shrink.
    """
    weights = np.ones(len(X)) if sizes is None else 1 / sizes
    spread = np.repeat(weights, Y.shape[1])[:, None]

    def left(now: Parameters) -> tuple[FloatArray, list[FloatArray], float]:
        values, activations = forward(now, X, leak)
        residual = (Y - values) * weights[:, None]
        return residual, activations, float(np.sqrt((residual**2).mean()))

    cuts, damping = np.cumsum([a.size for a in theta[2 * fixed :]])[:-1], DAMPING[0]
    told: list[float] = []
    residual, activations, size = left(theta)
    while size > goal and not (len(told) > STALLED and size > HARDLY * told[-STALLED]) and len(told) < STEPS_DAMPED:
        run.step(len(told), STEPS_DAMPED, "fitting")
        J = _jacobian(activations[fixed:-1], backward(theta, activations, leak)[fixed:]) * spread
        told.append(size)
        for _ in range(TRIES):
            change = _solved(J, residual.ravel(), damping)
            if change is not None and np.isfinite(change).all():
                parts = zip(theta[2 * fixed :], np.split(change, cuts), strict=True)
                ahead = [*theta[: 2 * fixed], *(a + part.reshape(a.shape) for a, part in parts)]
                further = left(ahead)
                if further[2] < size:
                    break
            damping *= DAMPING[1]
        else:
            break
        theta, (residual, activations, size), damping = ahead, further, damping / DAMPING[2]
    return list(theta), size


def polish_at_once(theta: Parameters, X: FloatArray, Y: FloatArray, run: Run, leak: float = 0.0,
                   goal: float = 0.0) -> Parameters:  # fmt: skip
    """As :func:`polish` for thousands of parameters that are nearly right: one Jacobian serves many steps.

    Its normal equations are factorised once. Every step takes the true residuals, so that what the factorisation loses
    is mended by the next one. What parameters miss that are hard to tell apart it mends slowly, since the Jacobian
    depends on them: while the residuals stay above ``goal`` and shrink, it is taken anew.
    """
    best, least = _with_one_jacobian(theta, X, Y, run, leak)
    for _ in range(AGAIN):
        if least <= goal:
            break
        before = least
        best, least = _with_one_jacobian(best, X, Y, run, leak)
        if not least < 0.5 * before:
            break
    return best


def _with_one_jacobian(theta: Parameters, X: FloatArray, Y: FloatArray, run: Run, leak: float) -> (
    tuple[Parameters, float]
):  # fmt: skip
    """The best parameters, and the size of their residuals."""
    best, now, least, worse = list(theta), list(theta), np.inf, 0
    values, activations = forward(now, X, leak)
    J = _jacobian(activations[:-1], backward(now, activations, leak))
    scale = np.linalg.norm(J, axis=0)
    scale[scale == 0] = 1.0
    J /= scale
    gram = J.T @ J
    gram[np.diag_indices_from(gram)] += RIDGE * len(gram)
    run.step(0, STEPS, "polishing")
    try:
        factor = cho_factor(gram, overwrite_a=True)
    except LinAlgError:
        return best, least
    cuts = np.cumsum([a.size for a in theta])[:-1]
    for step in range(STEPS):
        run.step(step, STEPS, "polishing")
        residual = (Y - values).ravel()
        size = float(np.sqrt((residual**2).mean()))
        worse += not size < 0.5 * least
        if size < least:
            least, best = size, list(now)
        if worse > 1:
            break
        change = cho_solve(factor, J.T @ residual) / scale
        if not np.isfinite(change).all():
            break
        now = [a + part.reshape(a.shape) for a, part in zip(now, np.split(change, cuts), strict=True)]
        values, _ = forward(now, X, leak)
    return best, least


def unit_rows(theta: Parameters) -> Parameters:
    """The same function with hidden rows ``(W | b)`` of norm one; scales are handed on to the next layer."""
    found, before = [a.copy() for a in theta], np.ones(theta[0].shape[1])
    for k in range(0, len(found), 2):
        W = found[k] * before
        size = np.ones(len(W))
        if k + 2 < len(found):
            size = np.linalg.norm(np.column_stack([W, found[k + 1]]), axis=1)
            size[size == 0] = 1.0
        found[k], found[k + 1], before = W / size[:, None], found[k + 1] / size, size
    return found


def standard_error(theta: Parameters, X: FloatArray, Y: FloatArray, leak: float, noise: float) -> float:
    """The largest standard error of a parameter, where hidden rows have norm one: from residuals at points of a fit.

    Least squares give ``s^2 (J^T J)^-1`` for independent errors of size ``s``, which is that of the residuals, and at
    least ``noise``; ``J`` is by the directions in which hidden rows turn, since their norms are fixed. It is used by
    its triangular factor: columns differ by many orders of magnitude, and squares of them would drown the small ones.
    Roundings are not independent, and what a fit does not see it does not count: this is an estimate.
    """
    theta = unit_rows(theta)
    values, activations = forward(theta, X, leak)
    turns = _turning(theta)
    J = _jacobian(activations[:-1], backward(theta, activations, leak)) @ turns
    scale = np.linalg.norm(J, axis=0)
    if not (scale > 0).all() or len(J) < J.shape[1]:
        return np.inf
    size = max(float(np.sqrt(((Y - values) ** 2).sum() / max(len(J) - J.shape[1], 1))), noise)
    try:
        inverse = solve_triangular(np.linalg.qr(J / scale, mode="r"), np.eye(J.shape[1]))
    except LinAlgError:
        return np.inf
    worst = float(np.linalg.norm((turns / scale) @ inverse, axis=1).max())
    return size * worst if np.isfinite(worst) else np.inf


def _turning(theta: Parameters) -> FloatArray:
    """Orthonormal directions of all parameters, as columns, in which hidden rows ``(W | b)`` keep their norms."""
    units = [np.zeros(a.shape) for a in theta]
    columns = []
    for k in range(0, len(theta), 2):
        for j, row in enumerate(np.column_stack(theta[k : k + 2])):
            free = np.linalg.svd(row[None])[2][1:] if k + 2 < len(theta) else np.eye(len(row))
            for direction in free:
                units[k][j], units[k + 1][j] = direction[:-1], direction[-1]
                columns.append(np.concatenate([a.ravel() for a in units]))
            units[k][j], units[k + 1][j] = 0.0, 0.0
    return np.array(columns).T


def weighty(theta: Parameters, X: FloatArray, more: FloatArray, count: int, leak: float = 0.0) -> IntArray:
    """Those of the points ``more`` whose values tell most about parameters beside those at ``X``; nothing is asked.

    Half of them by their leverage, ``max_k j_k G^-1 j_k`` for the gradients ``j_k`` of the outputs by the parameters
    and the Gram matrix ``G`` of those at ``X``, and half of them after those are counted in.
    """
    have, ahead = (_jacobian(a[:-1], backward(theta, a, leak)) for a in (forward(theta, Z, leak)[1] for Z in (X, more)))
    scale = np.linalg.norm(have, axis=0) + np.linalg.norm(ahead, axis=0)
    scale[scale == 0] = 1.0
    have, ahead = have / scale, ahead / scale
    outputs, chosen = len(ahead) // len(more), np.zeros(len(more), dtype=bool)
    gram = have.T @ have
    gram[np.diag_indices_from(gram)] += RIDGE * len(gram)
    for part in (count // 2, count - count // 2):
        try:
            factor = cho_factor(gram, lower=True)
        except LinAlgError:
            break
        share = (ahead * cho_solve(factor, ahead.T).T).sum(axis=1).reshape(-1, outputs).max(axis=1)
        best = np.argsort(np.where(chosen, -np.inf, share))[-part:] if part else np.zeros(0, dtype=np.int64)
        chosen[best] = True
        rows = ahead.reshape(len(more), outputs, -1)[best].reshape(-1, ahead.shape[1])
        gram = gram + rows.T @ rows
    return np.flatnonzero(chosen)


def _solved(J: FloatArray, residual: FloatArray, damping: float = 0.0) -> FloatArray | None:
    """Least squares by the normal equations, whose error the next step mends; None where they break down."""
    scale = np.linalg.norm(J, axis=0)
    scale[scale == 0] = 1.0
    J = J / scale
    gram = J.T @ J
    gram[np.diag_indices_from(gram)] += RIDGE * len(gram) + damping
    try:
        return np.asarray(cho_solve(cho_factor(gram), J.T @ residual) / scale)
    except LinAlgError:
        return None


def _solved_sharply(J: FloatArray, residual: FloatArray) -> FloatArray | None:
    """The same by an orthogonal decomposition."""
    scale = np.linalg.norm(J, axis=0)
    scale[scale == 0] = 1.0
    try:
        return np.asarray(np.linalg.lstsq(J / scale, residual, rcond=RIDGE)[0] / scale)
    except LinAlgError:
        return None


def _jacobian(activations: Sequence[FloatArray], deltas: Sequence[FloatArray]) -> FloatArray:
    parts = []
    for a, delta in zip(activations, deltas, strict=True):
        count, m, n = delta.shape
        parts.append(np.einsum("pmn,pk->pmnk", delta, a).reshape(count * m, n * a.shape[1]))
        parts.append(delta.reshape(count * m, n))
    return np.concatenate(parts, axis=1)
