"""Hidden hyperplanes of a network moved and reflected: other parameters of the same function."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from fiberscope.errors import InputError
from fiberscope.fibers import hidden_hyperplanes as arrays
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.chains import Split, slopes_of, split
from fiberscope.network.network import Network


def translate(net: NetworkLike, layer: int, neuron: int, t: float) -> Network:
    """Move the hyperplane of a neuron that is not seen: ``b[neuron] += t``, and the next layer takes it back.

    ``layer`` counts hidden layers from 0; the next one is hidden, too. The function stays the same up to the rounding
    of the biases. A hyperplane that can be seen, or one that would be after the move, is refused.

    >>> import fiberscope as fs
    >>> net = fs.Network([[[1.0, 0.5], [-0.5, 1.0]], [[1.5, -1.0]], [[2.0]]], [[0.25, 0.125], [-0.5], [-0.75]])
    >>> moved = fs.translate(net, 0, 0, 0.5)
    >>> moved.biases[0].tolist(), moved.biases[1].tolist(), fs.equivalent(net, moved).equal
    ([0.75, 0.125], [-1.25], True)
    >>> fs.translate(net, 0, 1, 0.5)
    Traceback (most recent call last):
    ...
    fiberscope.errors.InputError: neuron: expected one of [0] whose hyperplane in hidden layer 0 is not seen, got 1
    """
    parts = _checked(net, layer)
    weights, biases = parts.tail.weights, parts.tail.biases
    unseen = arrays.cancelled_hyperplanes(weights[layer + 1], biases[layer + 1], weights[layer + 2])
    free = {i: (low, high) for i, low, high in unseen}
    _check_neuron(neuron, free, layer)
    low, high = free[neuron]
    if not low < t < high:
        raise InputError(f"t: expected a number between {low:g} and {high:g}, got {t:g}")
    return parts.joined(Network(*arrays.translate(weights, biases, layer, neuron, float(t))))


def flip(net: NetworkLike, layer: int, neuron: int, flipped: Sequence[int]) -> Network:
    """Reverse the neurons ``flipped`` of a hidden layer, where the next one has a single living neuron that hides one.

    ``neuron`` is the one whose hyperplane is hidden; it makes up for what the others change. The function stays the
    same up to the rounding of the layer.

    >>> import fiberscope as fs
    >>> net = fs.Network([[[1.0, 0.5], [-0.5, 1.0]], [[1.5, -1.0]], [[2.0]]], [[0.25, 0.125], [-0.5], [-0.75]])
    >>> turned = fs.flip(net, 0, 0, [1])
    >>> turned.weights[0][1].tolist(), fs.equivalent(net, turned).equal
    ([0.5, -1.0], True)
    """
    parts = _checked(net, layer)
    weights, biases = parts.tail.weights, parts.tail.biases
    W, b = weights[layer + 1], biases[layer + 1]
    alive = np.flatnonzero(~((W <= 0).all(axis=1) & (b <= 0)))
    if len(alive) != 1:
        raise InputError(f"net: expected one living neuron in hidden layer {layer + 1}, got {len(alive)}")
    hidden = arrays.hidden_hyperplane(W[alive], b[alive])
    _check_neuron(neuron, [] if hidden is None else [hidden], layer)
    return parts.joined(Network(*arrays.flip(weights, biases, layer, neuron, flipped, int(alive[0]))))


def _checked(net: NetworkLike, layer: int) -> Split:
    """The chain of a network of ReLUs, if the hidden layer has another one behind it."""
    parts = split(as_network(net))
    if any((s != 0).any() for s in slopes_of(parts.tail)):
        raise InputError("net: expected ReLUs, got activations of other slopes")
    hidden = len(parts.tail.widths) - 2
    if not 0 <= layer < hidden - 1:
        raise InputError(f"layer: expected a hidden layer with another one behind it, of {hidden} from 0, got {layer}")
    return parts


def _check_neuron(neuron: int, free: Collection[int], layer: int) -> None:
    if neuron not in free:
        known = f"one of {sorted(free)}" if free else "one, and there is none"
        raise InputError(f"neuron: expected {known} whose hyperplane in hidden layer {layer} is not seen, got {neuron}")
