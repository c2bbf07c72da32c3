"""A weight that no surface tells: its input is off wherever the neuron that reads it switches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiberscope.numerics.cutoffs import SPAN
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.telling import climbed, draw_telling

DRAWN, ASKED = 20_000, 60
"""Points that are drawn, and those of them that are asked."""


def weight_from_values(pool: Pool, layers: Prefix, out: tuple[FloatArray, FloatArray], j: int, i: int,
                       others: Sequence[int]) -> tuple[float | None, bool]:  # fmt: skip
    """The weight of neuron ``i`` of the layer before in neuron ``j`` of the last one, and whether values tell it.

    Where ``i`` is on, ``j`` is either always on, and the weight follows, or always off, and it is only bounded: then it
    is one of those that give the function. Most is told where ``j`` would be on with a smaller weight than elsewhere,
    which costs no values to find. Nothing is known about the inputs ``others``, which are off there; the weight is None
    where that was not seen. ``out`` are the weights and biases of the outputs.
    """
    rng, W, b = pool.rng, layers.weights[-1], layers.biases[-1]
    before = Prefix(layers.weights[:-1], layers.biases[:-1], layers.leak)

    def least(X: FloatArray) -> FloatArray:
        """The weight at which neuron ``j`` would switch."""
        z = before.preactivations(X)[-1]
        a = before.activate(z)
        base = a @ W[j] + b[j] - W[j, i] * a[:, i]
        seen = (z[:, i] > 0) & (z[:, list(others)] <= 0).all(axis=1)
        return np.where(seen, -base / np.where(seen, a[:, i], 1.0), np.inf)

    X = climbed(pool.place, least, draw_telling(pool.place, layers, rng, DRAWN), ASKED, rng)
    X = X[np.isfinite(least(X))]
    if not len(X):
        return None, False
    a = before.activate(before.preactivations(X)[-1])
    z = a @ W.T + b
    v = out[0][:, j]
    rest = before.activate(z) @ out[0].T + out[1] - np.outer(before.activate(z[:, j]), v)
    own = (pool.oracle.values(X) - rest) @ v / (v @ v)
    base = z[:, j] - W[j, i] * a[:, i]
    on = own > SPAN * max(float(np.abs(z).max()), 1.0)
    if on.any():
        return float(np.median((own[on] - base[on]) / a[on, i])), True
    return float((-base / a[:, i]).min()) - 1.0, False
