"""Hands on a chain: a number set, a neuron's line moved through a point, the line of a first layer turned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.chains import with_arrays
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray

Point = tuple[float, float]


def set_number(net: Network, layer: int, row: int, column: int, value: float) -> Network:
    """The chain with one weight of a layer set, or with ``column`` -1 a bias.

    >>> set_number(Network([[[1.0, 0.0]], [[1.0]]], [[0.0], [0.0]]), 0, 0, 1, 5.0).weights[0].tolist()
    [[1.0, 5.0]]
    """
    weights, biases = _arrays(net)
    if column < 0:
        biases[layer][row] = value
    else:
        weights[layer][row, column] = value
    return with_arrays(net, weights, biases)


def move_line(net: Network, neuron: int, to: Point) -> Network:
    """The chain whose neuron, an entry of the sign vector, vanishes at a point: only its bias moves.

    >>> net = Network.random((2, 3, 3, 1), seed=0)
    >>> bool(abs(move_line(net, 4, (0.5, 0.25)).preactivations([[0.5, 0.25]])[1][0, 1]) < 1e-12)
    True
    """
    layer, row = _place(net, neuron)
    weights, biases = _arrays(net)
    biases[layer][row] -= float(net.preactivations(np.array([to]))[layer][0, row])
    return with_arrays(net, weights, biases)


@dataclass(frozen=True)
class LineTurn:
    """A line of the first layer that is being turned: which, where the hand began, and the point that stays."""

    neuron: int
    start: Point
    anchor: Point

    @classmethod
    def of(cls, before: LineTurn | None, net: Network, neuron: int, start: Point) -> LineTurn:
        """The turn that goes on, or a new one: around the point of the line at distance one half from the hand."""
        if before is not None and (before.neuron, before.start) == (neuron, start):
            return before
        layer, row = _place(net, neuron)
        if layer:
            raise InputError("only lines of the first layer can be turned: later ones are bent")
        w, b = net.weights[0][row], float(net.biases[0][row])
        size = float(np.hypot(*w))
        if not size > 0:
            raise InputError("a neuron without weights has no line")
        foot = np.array(start) - (float(w @ np.array(start)) + b) / size**2 * w
        along = np.array([-w[1], w[0]]) / size
        anchor = min((foot + along / 2, foot - along / 2), key=lambda p: float(np.hypot(*p)))
        return cls(neuron, start, (float(anchor[0]), float(anchor[1])))


def turn_line(net: Network, turn: LineTurn, to: Point) -> Network:
    """The chain whose line goes through the anchor and a point; the weights keep their length and their side.

    >>> net = Network([[[1.0, 0.0]], [[1.0]]], [[0.0], [0.0]])
    >>> turned = turn_line(net, LineTurn(0, (0.0, 0.0), (0.0, 1.0)), (1.0, 0.0))
    >>> np.abs(turned.preactivations([[0.0, 1.0], [1.0, 0.0]])[0]).max().round(12)
    np.float64(0.0)
    """
    _, row = _place(net, turn.neuron)
    weights, biases = _arrays(net)
    away = np.array(to) - np.array(turn.anchor)
    far = float(np.hypot(*away))
    if not far > 0:
        return net
    old = weights[0][row]
    new = np.hypot(*old) / far * np.array([-away[1], away[0]])
    new = new if float(new @ old) >= 0 else -new
    weights[0][row] = new
    biases[0][row] = -float(new @ np.array(turn.anchor))
    return with_arrays(net, weights, biases)


def _arrays(net: Network) -> tuple[list[FloatArray], list[FloatArray]]:
    return [np.array(w) for w in net.weights], [np.array(b) for b in net.biases]


def _place(net: Network, neuron: int) -> tuple[int, int]:
    layer = int(net.layout.switch[neuron])
    return layer, neuron - net.layout.places[layer].start
