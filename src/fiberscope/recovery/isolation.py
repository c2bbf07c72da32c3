"""The first layer again, each neuron where it is best seen: alone, or far from the folds of all others."""

from __future__ import annotations

import numpy as np

from fiberscope.numerics.cutoffs import ORACLE_CLEAR, PROBED, SAME_NORMAL
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.oracle import Oracle
from fiberscope.recovery.place import Place
from fiberscope.recovery.polish import forward
from fiberscope.recovery.probes import locate, normal_of

DISTANCE = 1.0
"""Preactivations of rows of norm one at the points that are looked at."""


def isolated(oracle: Oracle, place: Place, theta: list[FloatArray]) -> list[FloatArray] | None:
    """The parameters again, each neuron from the one gradient where it is alone; None where there is no such point.

    With all other neurons off the values are small and the ball is large, so little is lost to rounding.
    """
    W, b, V, _ = theta
    n, d = W.shape
    if n > d:
        return None
    sizes = np.linalg.norm(W, axis=1)
    Z = sizes[:, None] * (2 * np.eye(n) - 1) * DISTANCE
    try:
        gram = np.linalg.inv(W @ W.T)
    except np.linalg.LinAlgError:
        return None
    X = ((Z.T - b) @ gram) @ W  # row i: neuron i on, the others off
    off = ((-DISTANCE * sizes - b) @ gram) @ W
    radius = DISTANCE / 2
    far = radius * np.array([-1.0, 1.0])[:, None, None] + np.concatenate([X, off[None]])
    if not oracle.allowed(far.reshape(-1, d)):
        return None
    base = oracle.values(off[None], keep=False)[0]
    rows, offsets, out = np.empty_like(W), np.empty_like(b), np.empty_like(V)
    for i, x in enumerate(X):
        Y = oracle.values(x + np.concatenate([np.zeros((1, d)), np.eye(d) * radius]), keep=False)
        slopes = (Y[1:] - Y[0]) / radius  # (d, outputs), v_i w_i
        left, _s, _right = np.linalg.svd(slopes, full_matrices=False)
        row = left[:, 0] * np.sign(left[:, 0] @ W[i])
        v = (slopes.T @ row) / (row @ row)
        height = float((Y[0] - base) @ v / (v @ v))
        rows[i], offsets[i], out[:, i] = row, height - row @ x, v
    return [rows, offsets, out, base]


CANDIDATES, CLIMBS, TRIED = 300, 12, 5
"""Random points of a hyperplane, how often points near the clearest of them are looked at, and how many are asked."""


def looked_at_again(
    oracle: Oracle, place: Place, theta: list[FloatArray], rng: np.random.Generator, slope: float
) -> list[FloatArray]:
    """The same with sharper rows of the first layer: gradients on both sides, far from all other known folds."""
    W, b = theta[0].copy(), theta[1].copy()
    for i in range(len(W)):
        for x, room in _clear_points(place, theta, i, rng, slope):
            found = _seen_from(oracle, x, room, W[i])
            if found is not None:
                W[i], b[i] = found
                break
    return [W, b, *theta[2:]]


def _seen_from(oracle: Oracle, x: FloatArray, room: float, row: FloatArray) -> tuple[FloatArray, float] | None:
    """A row of the first layer and its offset from the gradients beside a point of its hyperplane."""
    size = float(np.linalg.norm(row))
    n = row / size
    met = locate(oracle, x, n, 0.5 * room)
    if met is None:
        return None
    x = x + met[0] * n
    sides = [_gradient(oracle, x + sign * 0.5 * room * n, 0.45 * room) for sign in (-1.0, 1.0)]
    if sides[0] is None or sides[1] is None:
        return None
    sharp = normal_of(sides[0], sides[1])[0]
    if not abs(sharp @ n) > 1 - SAME_NORMAL:
        return None
    sharp = sharp * np.sign(sharp @ n) * size
    return sharp, -float(sharp @ x)


def _gradient(oracle: Oracle, x: FloatArray, radius: float) -> FloatArray | None:
    """Along coordinates, with one value more that must fit."""
    n = len(x)
    spread = np.full(n, 1 / np.sqrt(n))
    points = x + np.concatenate([np.zeros((1, n)), np.eye(n), spread[None]]) * radius
    if not oracle.allowed(points):
        return None
    Y = oracle.values(points, keep=n < 200)
    slopes = (Y[1:-1] - Y[0]) / radius
    error = ORACLE_CLEAR * oracle.noise * max(oracle.scale, float(np.abs(Y).max()))
    if np.abs(Y[-1] - Y[0] - radius * (spread @ slopes)).max() > error * (1 + np.sqrt(n)):
        return None
    return np.asarray(slopes.T)


def _clear_points(place: Place, theta: list[FloatArray], i: int, rng: np.random.Generator, slope: float) -> (
    list[tuple[FloatArray, float]]
):  # fmt: skip
    """Points of hyperplane ``i`` with the most room, times how well the neuron is seen there, the best one first."""
    W, size = theta[0], float(np.linalg.norm(theta[0][i]))
    n, b = W[i] / size, float(theta[1][i]) / size
    basis = np.linalg.svd(W, full_matrices=False)[2]
    best, room, score = np.zeros((0, W.shape[1])), np.zeros(0), np.zeros(0)
    for turn in range(1 + CLIMBS):
        if not turn:
            X = place.draw(rng, CANDIDATES)
        elif len(best):
            pick = rng.integers(len(best), size=CANDIDATES)
            steps = rng.normal(size=(CANDIDATES, len(basis))) * rng.choice([0.3, 1.0, 3.0], (CANDIDATES, 1))
            X = best[pick] + steps * room[pick, None] @ basis
        X = X - (X @ n + b)[:, None] * n
        X = X[place.inside(X)]
        more, seen = _room(place, theta, i, X, slope)
        X, more, seen = np.concatenate([best, X]), np.concatenate([room, more]), np.concatenate([score, seen])
        order = np.argsort(-seen)[:TRIED]
        best, room, score = X[order], more[order], seen[order]
    return [(x, float(r)) for x, r, s in zip(best, room, score, strict=True) if s > 0]


def _room(place: Place, theta: list[FloatArray], i: int, X: FloatArray, slope: float) -> tuple[FloatArray, FloatArray]:
    """How far the nearest other fold or wall is from points of hyperplane ``i``, and that times how well it is seen."""
    W = theta[0]
    n, gram = W[i] / np.linalg.norm(W[i]), W @ W.T
    room = np.minimum(X - place.low, place.high - X).min(axis=1)
    _, activations = forward(theta, X, slope)
    slopes = np.broadcast_to(np.eye(len(W)), (len(X), len(W), len(W)))  # in multiples of the first rows
    for k in range(len(theta) // 2 - 1):
        z = activations[k] @ theta[2 * k].T + theta[2 * k + 1]
        slopes = slopes if k == 0 else theta[2 * k] @ slopes
        far = np.abs(z) / np.maximum(np.sqrt(np.einsum("pij,jk,pik->pi", slopes, gram, slopes)), np.finfo(float).tiny)
        if k == 0:
            far[:, i] = np.inf
        room = np.minimum(room, far.min(axis=1))
        slopes = slopes * np.where(z > 0, 1.0, slope)[:, :, None]
    step = PROBED * place.size
    here, before, after = (forward(theta, X + s * step * n, slope)[0] for s in (0, -1, 1))
    ahead = after + before - 2 * here
    # values are rounded to a part of what they are made of, and a tilt moves what is far away
    size = (1 + sum(np.abs(a).max(axis=1) for a in activations[1:])) * (1 + np.linalg.norm(X - place.centre, axis=1))
    return room, room * np.abs(ahead).max(axis=1) / size
