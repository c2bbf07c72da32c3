"""How far a network is from a fiber: the nearest known member, up to order and scale of neurons.

A network that was measured, or recovered from values, is never a member to the last digit. Along the translations of a
hidden hyperplane ``b_1[i] + max_j b_2[j] / W_2[j, i]``, where the first reader switches, does not change; both networks
are moved to where ``max_j b_2[j] / W_2[j, i]`` is minus the largest weight of the hidden neuron, and compared there.
One hidden layer is ``sum_i u_i |n_i x + c_i|`` and an affine map, whoever shares which hyperplane: the difference of
two has small sums of ``u`` on every hyperplane, and a small affine map.
"""

from __future__ import annotations

import numpy as np

from fiberscope.fibers.canonical.form import normalised
from fiberscope.fibers.canonical.matching import match_chains
from fiberscope.fibers.hidden_hyperplanes import lower_bound, translate
from fiberscope.fibers.theorems import Setting, setting_of
from fiberscope.network.chains import slopes_of, with_arrays
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray


def distance(setting: Setting, other: Network, near: float) -> float:
    """The largest difference of entries of rows with largest entry 1, after the best known member; infinite if none.

    For one hidden layer rows that differ by less than ``near`` are one hyperplane, and weights are compared relatively.

    >>> net = Network([[[1.0, 0.5], [0.0, 1.0]], [[1.0, -2.0]], [[1.0]]], [[0.0, 0.0], [-0.5], [0.0]])
    >>> moved = Network([[[0.0, 2.0], [1.0, 0.5]], [[-1.0, 1.0]], [[1.0]]], [[0.0, 0.25], [-0.75], [0.0]])
    >>> distance(setting_of(net), moved, 1e-9)
    0.0
    """
    there = setting_of(other)
    if setting.chain.widths != there.chain.widths or (setting.hidden is None) != (there.hidden is None):
        return float(np.inf)
    if setting.kind == there.kind == "one layer":
        return _unlike(setting.chain, there.chain, near)
    a, b = _moved(setting), _moved(there)
    match = match_chains(a, b, loose=True)
    if match.symmetry is None:
        return float(np.inf)
    mine, theirs = normalised(match.symmetry(a)).rows, normalised(b).rows
    last = max(float(np.abs(theirs[-1]).max(initial=0.0)), np.finfo(float).tiny)
    gaps = [float(np.abs(one - two).max(initial=0.0)) for one, two in zip(mine, theirs, strict=True)]
    return max(*gaps[:-1], gaps[-1] / last)


def _moved(setting: Setting) -> Network:
    """The chain with its hidden hyperplane, if there is one, where it can be compared."""
    chain, i = setting.chain, setting.hidden
    if i is None:
        return chain
    bound = lower_bound(setting.layer.W[setting.alive], setting.layer.b[setting.alive], i)
    size = float(np.abs(chain.weights[0][i]).max())
    return with_arrays(chain, *translate(chain.weights, chain.biases, 0, i, bound + size))


def _unlike(a: Network, b: Network, near: float) -> float:
    """How far the sums over hyperplanes and the affine maps of two one-hidden-layer networks are apart."""
    (rows, weights, affine), (others, minus, far) = (_folds(net) for net in (a, b))
    rows, weights, gap = np.concatenate([rows, others]), np.concatenate([weights, -minus]), affine - far
    size = max(float(np.abs(weights).max(initial=0.0)), float(np.abs(affine).max()), np.finfo(float).tiny)
    worst = float(np.abs(gap).max())
    left = np.ones(len(rows), dtype=bool)
    for k in range(len(rows)):
        if left[k]:
            same = left & (np.abs(rows - rows[k]).max(axis=1) <= near)
            worst, left = max(worst, float(np.abs(weights[same].sum(axis=0)).max())), left & ~same
    return worst / size


def _folds(net: Network) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows of largest weight 1, what ``|row|`` is multiplied by, ``(neurons, outputs)``, and the affine rest."""
    (W, V), (b, c) = net.weights, net.biases
    table = np.column_stack([W, b])
    bent = np.abs(W).max(axis=1) > 0
    shown = np.zeros((len(V), W.shape[1] + 1))
    shown[:, -1] = c + V[:, ~bent] @ np.maximum(b[~bent], 0.0)
    shown += V[:, bent] @ table[bent] / 2
    lead = W[np.arange(len(W)), np.abs(W).argmax(axis=1)][bent]
    return table[bent] / lead[:, None], (V[:, bent] * np.abs(lead) / 2).T, shown


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
    units = rows / np.where(sizes > 0, sizes, 1.0)[:, None]
    found: list[int] = []
    for i in alive:
        same = next((j for j in found if np.abs(units[i] - units[j]).max() <= near), None)
        if same is None:
            found.append(i)
        else:
            V[:, same] += V[:, i] * (sizes[i] / sizes[same])
    return found
