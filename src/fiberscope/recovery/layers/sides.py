"""The signs of a first layer from values beside its hyperplanes, before anything is known of the layers behind it.

Where its rows are linearly independent, those of their pseudo-inverse are dual to them: along one of these a single
preactivation changes. Where that is below zero the function is constant, and elsewhere it is not. If it changes on both
sides, a neuron is missing, or one that is none was taken for one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fiberscope.numerics.cutoffs import CHOSEN, NOT_ZERO, ONE_SIDED
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix

POINTS, STEPS = 8, (0.1, 1.0)
"""Points beside each hyperplane on either side, and how far from it two values are asked, in usual preactivations."""


def told_sides(pool: Pool, prefix: Prefix) -> Prefix | None:
    """A first layer with its signs; None where values do not tell them.

    >>> from fiberscope.network.network import Network
    >>> from fiberscope.recovery.oracle import Oracle
    >>> from fiberscope.recovery.place import place_of
    >>> from fiberscope.run import Run
    >>> weights = [[[1.0, 2.0], [0.0, 1.0]], [[1.0, 3.0], [2.0, -1.0]], [[1.0, 1.0]]]
    >>> net = Network(weights, [[0.0, 1.0], [0.5, 0.0], [0.0]])
    >>> pool = Pool.begin(Oracle(net, 2), place_of(None, 2), np.random.default_rng(0), Run())
    >>> told_sides(pool, Prefix((-net.weights[0],), (-net.biases[0],))).weights[0].tolist()
    [[1.0, 2.0], [0.0, 1.0]]
    """
    W, b = prefix.weights[0], prefix.biases[0]
    sizes = np.linalg.svd(W, compute_uv=False) if 0 < len(W) <= W.shape[1] else np.zeros(1)
    if not sizes[-1] > CHOSEN * sizes[0]:
        return None
    back, signs = np.linalg.pinv(W), np.ones(len(W))
    usual = usual_sizes(prefix.preactivations(pool.place.draw(pool.rng, 50 * POINTS))[0])
    for i in range(len(W)):
        z = pool.rng.normal(size=(POINTS, len(W))) * usual
        change = [_change(pool, lambda z: (z - b) @ back.T, z, i, side * usual[i]) for side in (1.0, -1.0)]
        if not min(change) <= ONE_SIDED * max(change) > 0:
            return None
        signs[i] = 1.0 if change[0] > change[1] else -1.0
    return prefix.signed(signs)


def _change(pool: Pool, inputs: Callable[[FloatArray], FloatArray], z: FloatArray, i: int, size: float) -> float:
    """By how much values change while preactivation ``i`` goes from one step to the other."""
    near, far = z.copy(), z.copy()
    near[:, i], far[:, i] = STEPS[0] * size, STEPS[1] * size
    return float(np.abs(pool.oracle.values(inputs(far)) - pool.oracle.values(inputs(near))).max())


def usual_sizes(z: FloatArray) -> FloatArray:
    """The size of each column, of which none is zero."""
    return np.asarray(np.maximum(z.std(axis=0), NOT_ZERO))
