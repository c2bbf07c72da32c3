"""Bottleneck networks with given signs in the second layer, and checks that look at the function only."""

from __future__ import annotations

import numpy as np

from fiberscope.dimension.functional import functional_dimension
from fiberscope.network.network import Network


def with_signs(inputs, signs, outputs, seed):
    """Random numbers with the given signs of the rows ``(W_2 | b_2)``."""
    rng = np.random.default_rng(seed)
    rows = np.asarray(signs, dtype=float) * rng.uniform(0.5, 2.0, np.shape(signs))
    n1, n2 = rows.shape[1] - 1, len(rows)
    weights = [rng.normal(size=(n1, inputs)), rows[:, :-1], rng.normal(size=(outputs, n2))]
    return Network(weights, [rng.normal(size=n1), rows[:, -1], rng.normal(size=outputs)])


def tail(W, b, V, c):
    """A one-hidden-layer network on the orthant, as a bottleneck whose first layer is the identity."""
    d = np.shape(W)[1]
    return Network([np.eye(d), W, V], [np.zeros(d), b, c])


def magnitude(net, X):
    """What the outputs are added up from: the scale of their rounding errors."""
    value = np.abs(X)
    for w, b in zip(net.weights, net.biases, strict=True):
        value = value @ np.abs(w).T + np.abs(b)
    return value


def points_for(net, count, seed=0):
    """Inputs that meet the regions of a bottleneck: the first preactivations are spread evenly."""
    rng = np.random.default_rng(seed)
    n0, n1 = net.widths[:2]
    z = rng.normal(size=(count, n1)) * 2.0 ** rng.integers(-4, 4, (count, n1))
    back = np.linalg.pinv(net.weights[0])
    blind = rng.normal(size=(count, n0))  # directions that the first layer does not see
    x = (z - net.biases[0]) @ back.T + blind - blind @ net.weights[0].T @ back.T
    return np.concatenate([x, rng.normal(size=(count, n0)) * 2.0 ** rng.integers(-2, 4, (count, 1))])


def worst_difference(a, b, count=500, seed=0):
    """Largest difference of outputs relative to what they are added up from."""
    X = points_for(a, count, seed)
    return float((np.abs(a(X) - b(X)) / (magnitude(a, X) + magnitude(b, X) + 1e-300)).max())


def free_directions(net):
    """``D - N - functional dimension``: by ranks alone, without any theorem."""
    found = functional_dimension(net, points_for(net, 400))
    return net.num_parameters - net.num_hidden - found.exact
