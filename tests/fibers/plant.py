"""Networks with a planted equality: other parameters, other widths, exactly the same real function."""

from __future__ import annotations

import numpy as np

from fiberscope.network.chains import slopes_of
from fiberscope.network.network import Network


def arrays(net):
    return [w.copy() for w in net.weights], [b.copy() for b in net.biases], [s.copy() for s in slopes_of(net)]


def build(weights, biases, slopes):
    net = Network(weights, biases, linear=[np.zeros(len(s), dtype=bool) for s in slopes] or None)
    nodes = list(net.nodes)
    for layer, s in enumerate(slopes):
        node = nodes[2 * layer + 1]
        nodes[2 * layer + 1] = type(node)(node.source, s, node.shape)
    return Network.from_nodes(nodes, net.input_shape)


def add_dead(net, layer, rng):
    """One more neuron that is never positive (or, if leaky, that nobody reads)."""
    weights, biases, slopes = arrays(net)
    n = weights[layer].shape[1]
    weights[layer] = np.vstack([weights[layer], np.zeros((1, n))])
    biases[layer] = np.append(biases[layer], -1.0)
    out = rng.integers(-3, 4, (weights[layer + 1].shape[0], 1)).astype(float)
    if slopes[layer].any():
        out[:] = 0.0
    weights[layer + 1] = np.hstack([weights[layer + 1], out])
    slopes[layer] = np.append(slopes[layer], slopes[layer][0])
    return build(weights, biases, slopes)


def duplicate(net, layer, rng):
    """A neuron twice, at different scales, its outgoing weights split between the two."""
    weights, biases, slopes = arrays(net)
    i = int(rng.integers(len(biases[layer])))
    scale = 2.0 ** int(rng.integers(-3, 4))
    weights[layer] = np.vstack([weights[layer], scale * weights[layer][i]])
    biases[layer] = np.append(biases[layer], scale * biases[layer][i])
    column = weights[layer + 1][:, i].copy()
    weights[layer + 1][:, i] = column / 2
    weights[layer + 1] = np.hstack([weights[layer + 1], column[:, None] / 2 / scale])
    slopes[layer] = np.append(slopes[layer], slopes[layer][i])
    return build(weights, biases, slopes)


def identity_layer(net, layer):
    """One more layer behind a ReLU, whose neurons repeat it."""
    weights, biases, slopes = arrays(net)
    n = len(biases[layer])
    weights.insert(layer + 1, np.eye(n))
    biases.insert(layer + 1, np.zeros(n))
    slopes.insert(layer + 1, np.zeros(n))
    return build(weights, biases, slopes)


def flip(net, i):
    """In a network with one hidden layer of ReLUs, ``relu(z) = z + relu(-z)``, the line as two more neurons."""
    weights, biases, slopes = arrays(net)
    row, b, column = weights[0][i].copy(), biases[0][i], weights[1][:, i].copy()
    weights[0][i], biases[0][i] = -row, -b
    weights[0] = np.vstack([weights[0], row, -row])
    biases[0] = np.append(biases[0], [b, -b])
    weights[1] = np.hstack([weights[1], column[:, None], -column[:, None]])
    slopes[0] = np.append(slopes[0], [0.0, 0.0])
    return build(weights, biases, slopes)
