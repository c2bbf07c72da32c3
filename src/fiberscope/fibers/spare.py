"""A chain without the neurons that add nothing by their own numbers: dead, constant, unread and doubled ones."""

from __future__ import annotations

import numpy as np

from fiberscope.network.chains import slopes_of
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray


def without_spare(chain: Network, near: float) -> Network:
    """The same function, but for what rows that differ by less than ``near``, at largest entry 1, are taken for one.

    A neuron is *dead* where its row and bias are not positive and it reads activations, or its row is zero; *constant*
    where its row is zero and its bias is not; *unread* where all its outgoing weights are zero. Of neurons whose rows
    are positive multiples of each other the first one stands for all.

    >>> net = Network([[[1.0], [3.0], [0.0]], [[1.0, 2.0, 5.0]]], [[0.5, 1.5, 2.0], [0.0]])
    >>> [part.tolist() for part in without_spare(net, 1e-9).weights]
    [[[1.0]], [[7.0]]]
    """
    if any(slope.any() for slope in slopes_of(chain)):
        return chain
    weights, biases = [w.copy() for w in chain.weights], [b.copy() for b in chain.biases]
    for k in range(len(weights) - 1):
        W, b, V = weights[k], biases[k], weights[k + 1].copy()
        constant = ~W.any(axis=1)
        biases[k + 1] = biases[k + 1] + V[:, constant] @ np.maximum(b[constant], 0.0)
        dead = constant | ((W <= 0).all(axis=1) & (b <= 0) if k else constant)
        kept = _firsts(np.column_stack([W, b]), V, np.flatnonzero(~dead).tolist(), near)
        kept = [i for i in kept if V[:, i].any()]
        weights[k], biases[k], weights[k + 1] = W[kept], b[kept], V[:, kept]
    return Network(weights, biases) if all(len(w) for w in weights) else chain


def _firsts(rows: FloatArray, V: FloatArray, alive: list[int], near: float) -> list[int]:
    """The first of every group of multiples, which gets the outgoing weights of all."""
    sizes = np.abs(rows).max(axis=1)
    units, found = rows / np.where(sizes > 0, sizes, 1.0)[:, None], []
    for i in alive:
        same = next((j for j in found if np.abs(units[i] - units[j]).max() <= near), None)
        if same is None:
            found.append(i)
        else:
            V[:, same] += V[:, i] * (sizes[i] / sizes[same])
    return found
