"""Known layers again, through the kinks of all lines: the place of a kink is sharper than any normal.

A neuron that was followed over folds is known worse than the layers before it by a factor of ten or more, and after a
few layers nothing can be followed any more. Its preactivation is linear in the activations before it and vanishes at
its kinks. So layers are fitted to these, one after the other, each over those that are sharp already.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fiberscope.numerics.cutoffs import NOT_ZERO, ORACLE_NOISE, SAME
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.lines import scan
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.tilts import refitted

LINES = 60
"""Lines on which known neurons are met again; their other kinks are not followed."""


def met_again(pool: Pool) -> tuple[FloatArray, FloatArray]:
    """Kinks as points, and how far each may be off along its line, of all lines and of some that are only for it."""
    if not pool.beside:
        pool.beside += scan(pool.oracle, *pool.place.lines(pool.rng, LINES), pool.run)
    lines = [line for line in (*pool.lines, *pool.beside) if len(line.kinks)]
    X = np.concatenate([line.points for line in lines])
    jumps = np.concatenate([np.abs(line.jumps) / line.length for line in lines])
    # points are rounded, and so are activations there
    return X, np.maximum(pool.oracle.noise * pool.oracle.scale / jumps, ORACLE_NOISE * pool.place.size)


def refit_layers(pool: Pool, prefix: Prefix) -> Prefix:
    """The same layers, as far as kinks tell them better; the signs stay."""
    X, blurs = met_again(pool)
    now = prefix
    for k in range(len(prefix.weights)):
        W, b = now.weights[k].copy(), now.biases[k].copy()
        if k:
            before = Prefix(now.weights[:k], now.biases[:k], prefix.leak, True)
            features = before.features(X)
            slopes = np.array([before.cell(before.pattern(x)).slopes for x in X])
        else:
            features = np.column_stack([X, np.ones(len(X))])
            slopes = np.broadcast_to(np.eye(X.shape[1] + 1, X.shape[1]), (len(X), X.shape[1] + 1, X.shape[1]))
        for i in range(len(W)):
            row = np.append(W[i], b[i])
            sizes = np.maximum(np.linalg.norm(row @ slopes, axis=1), NOT_ZERO)
            found = refitted(features, row, sizes, blurs, pool.tolerance * pool.place.size)
            if found is not None and np.linalg.norm(found - row) <= SAME * np.linalg.norm(row):  # not another one
                W[i], b[i] = found[:-1], found[-1]
        now = replace(
            now, weights=(*now.weights[:k], W, *now.weights[k + 1 :]), biases=(*now.biases[:k], b, *now.biases[k + 1 :])
        )
    return now
