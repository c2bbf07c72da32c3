"""Points at which rare neurons show themselves: few neurons of a known layer are active there, at any depth.

A neuron of the next layer reads the activations ``a`` of the last known one. Where it is off nearly everywhere it is on
where those of its inputs that favour it are large and all others are off, and random inputs seldom make that happen. So
a pattern of activations is chosen first, and the inputs that bring it about are computed backwards, layer by layer: the
activations ``a >= 0`` before a layer with ``W a + b`` as wanted where it is on, and at most so where it is off, are a
least squares problem with signs (Lawson and Hanson 1974). What cannot be reached is approached.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import nnls

from fiberscope.numerics.cutoffs import NOT_ZERO
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.place import Place
from fiberscope.recovery.prefix import Prefix

SAMPLE = 200
"""Points that tell how large preactivations are."""

SIZES = (1.0, 2.0, 4.0, 8.0)
"""How large activations are drawn, in parts of usual preactivations."""

ALONE = 0.7
"""Share of patterns with very few active neurons; one in two of these has a single one."""

BELOW = 0.3
"""How far below zero neurons are asked to be that are off, in the same measure."""

SMALL = 1e-3
"""Weight of the norm of activations beside what they should bring about."""


def draw_telling(place: Place, prefix: Prefix, rng: np.random.Generator, count: int) -> FloatArray:
    """Points of the domain; half of them where few neurons are active, of the first layer or of later ones."""
    half = count // 2
    deep = half // 2 if prefix.signed_layers else 0
    few = draw_few_first(place, prefix, rng, half - deep)
    parts = [place.draw(rng, count - half), few]
    if deep:
        parts.append(draw_few(place, prefix, rng, deep))
    return np.concatenate(parts)


def draw_few_first(place: Place, prefix: Prefix, rng: np.random.Generator, count: int) -> FloatArray:
    """Points where few neurons of the first layer are active, or few are not."""
    W, b = prefix.weights[0], prefix.biases[0]
    few = rng.random((count, len(W))) < rng.uniform(0.05, 0.5, (count, 1))
    target = np.where(few, 1.0, -1.0) * rng.choice([-1.0, 1.0], (count, 1)) * rng.exponential(2.0, (count, len(W)))
    X = (target * np.linalg.norm(W, axis=1) - b) @ np.linalg.pinv(W).T
    return place.pulled(place.clip(X))


def draw_few(place: Place, prefix: Prefix, rng: np.random.Generator, count: int) -> FloatArray:
    """Points where few neurons are active in a layer whose signs are known, drawn anew for each point."""
    usual = [z.std(axis=0).mean() for z in prefix.preactivations(place.draw(rng, SAMPLE))]
    W, b = prefix.weights[0], prefix.biases[0]
    both, back = np.column_stack([W, -W]), np.linalg.pinv(W)
    points = np.zeros((count, prefix.widths[0]))
    for k in range(count):
        layer = int(rng.integers(prefix.signed_layers))
        n = len(prefix.weights[layer])
        on = np.zeros(n, dtype=bool)
        on[rng.permutation(n)[: rng.geometric(0.5) if rng.random() < ALONE else rng.integers(1, n + 1)]] = True
        z = np.where(on, rng.exponential(1.0, n), -rng.exponential(BELOW, n)) * usual[layer] * rng.choice(SIZES)
        for j in range(layer, 0, -1):
            a = activations_for(prefix.weights[j], prefix.biases[j], z)
            z = np.where(a > 0, a, -rng.exponential(BELOW, len(a)) * usual[j - 1])
        if len(W) > W.shape[1]:  # not every pattern can be had
            ahead, against = np.split(activations_for(both, b, z), 2)
            points[k] = ahead - against
        else:
            points[k] = back @ (z - b)
    return place.held(points)


CLIMBS, BESIDE = 20, (0.001, 0.01, 0.05)
"""How often points near the best ones are looked at, and how near, in parts of the place."""


def climbed(place: Place, score: Callable[[FloatArray], FloatArray], X: FloatArray, count: int,
            rng: np.random.Generator) -> FloatArray:  # fmt: skip
    """At most ``count`` points of small ``score``, from the best of ``X`` and points near them; nothing is asked."""
    X = X[np.argsort(score(X))[:count]]
    for _ in range(CLIMBS):
        steps = rng.normal(size=(10 * count, X.shape[1])) * rng.choice(BESIDE, (10 * count, 1))
        near = place.held(X[rng.integers(len(X), size=10 * count)] + steps * (place.high - place.low))
        X = np.concatenate([X, near])
        X = X[np.argsort(score(X))[:count]]
    return X


def activations_for(W: FloatArray, b: FloatArray, z: FloatArray) -> FloatArray:
    """Activations ``a >= 0`` with ``W a + b`` near ``z`` where that is positive, and at most ``z`` elsewhere.

    >>> activations_for(np.array([[1.0, 1.0], [1.0, -1.0]]), np.zeros(2), np.array([2.0, -2.0])).round(2)
    array([0., 2.])
    """
    off = np.flatnonzero(z <= 0)
    n, m = W.shape
    size = np.maximum(np.linalg.norm(W, axis=1), NOT_ZERO)
    slack = np.zeros((n, len(off)))
    slack[off, np.arange(len(off))] = 1.0
    A = np.concatenate([np.column_stack([W, slack]) / size[:, None], SMALL * np.eye(m, m + len(off))])
    found, _ = nnls(A, np.concatenate([(z - b) / size, np.zeros(m)]))
    return np.asarray(found[:m])
