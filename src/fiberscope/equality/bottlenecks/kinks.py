"""Inputs at which a bottleneck may differ from another one: in threes, across each of its kinks.

A function that is affine along a segment agrees with the mean at its middle; one with a kink there does not. So if two
networks have different kinks, they differ at one of three such inputs, in exact arithmetic, however close they are.
"""

from __future__ import annotations

import numpy as np

from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray

_PATTERNS = 4
"""Places on every hyperplane, each with other signs of the other neurons."""

_STEPS = (1.0, 2.0**-6, 2.0**-20)
"""Lengths of the segments, in units of the preactivation."""


def kink_points(net: Network, rng: np.random.Generator) -> FloatArray:
    """Inputs on both sides of every first- and second-layer hyperplane of a bottleneck, and on them, ``(count, n_0)``.

    Preactivations of the first layer are chosen, and pulled back through its weights, which have full rank.

    >>> net = Network([[[1.0, 0.0]], [[1.0]], [[1.0]]], [[0.0], [-1.0], [0.0]])
    >>> kink_points(net, np.random.default_rng(0)).shape[1]
    2
    """
    z, along = (np.concatenate(parts) for parts in zip(_first(net, rng), _second(net, rng), strict=True))
    blind = rng.normal(size=(len(z), net.in_size))
    with np.errstate(over="ignore", invalid="ignore"):  # points that are no floats are left out
        back = np.linalg.pinv(net.weights[0])
        base = (z - net.biases[0]) @ back.T + blind - blind @ net.weights[0].T @ back.T
        direction = along @ back.T
        moves = [base, *(base + s * step * direction for step in _STEPS for s in (1.0, -1.0))]
    points = np.concatenate(moves)
    return np.asarray(points[np.isfinite(points).all(axis=1)])


def _spread(rng: np.random.Generator, count: int, n: int) -> FloatArray:
    return np.asarray(rng.normal(size=(count, n)) * 2.0 ** rng.integers(-2, 3, (count, n)))


def _first(net: Network, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Preactivations with one zero each, and the direction across."""
    n = net.widths[1]
    z = _spread(rng, n * _PATTERNS, n)
    which = np.repeat(np.arange(n), _PATTERNS)
    others = np.where(
        (np.arange(len(z)) % _PATTERNS < 2)[:, None], np.abs(z), z
    )  # where all others are active, most is seen
    others[np.arange(len(z)), which] = 0.0
    return others, np.eye(n)[which]


def _second(net: Network, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Preactivations at which a second-layer neuron vanishes, moved into one coordinate that is active."""
    W, b, n = net.weights[1], net.biases[1], net.widths[1]
    found, along = [], []
    for row, bias in zip(W, b, strict=True):
        for k in np.flatnonzero(row)[:_PATTERNS]:
            z = _spread(rng, _PATTERNS, n)
            z[: _PATTERNS // 2] = np.abs(z[: _PATTERNS // 2])
            z[:, k] = 0.0
            with np.errstate(over="ignore"):
                z[:, k] = -(np.maximum(z, 0.0) @ row + bias) / row[k]
            z = z[z[:, k] > 0]
            found.append(z)
            along.append(np.tile(np.eye(n)[k], (len(z), 1)))
    empty = np.zeros((0, n))
    return np.concatenate([empty, *found]), np.concatenate([empty, *along])
