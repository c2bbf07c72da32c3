"""Directions of affine maps in a row that change no value behind them: normalisations, and layers without a bend.

In evaluation a batch normalisation is ``y = gamma (s z + o) + beta`` with constants ``s`` and ``o``, channel by
channel, where ``z = W x + b`` comes from a convolution or a dense layer that nobody else reads. Then ``b`` can move and
``beta`` moves back by ``gamma s``; and ``W, b`` can be multiplied while ``gamma`` is divided, with ``beta`` moved so
that the constant stays. Neither is a rescaling of values: the value in front of the activation stays as it is.

Between two dense layers in a row, such as the factors of an adapter of low rank, neurons can be mixed (``GL``) and
translated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fiberscope.dimension.jacobian import offsets
from fiberscope.network.convolutions import Convolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Dense, Scale
from fiberscope.numerics.algebra.base import Ring
from fiberscope.numerics.floats import FloatArray


class _Block(NamedTuple):
    """A layer, the constants behind it per channel ``(channels,)``, and the affine map that is learned."""

    layer: Affine
    factors: FloatArray
    constants: FloatArray
    learned: Affine


def normalisations(net: Network, ring: Ring) -> Any:
    """Directions along which the function stays the same on all inputs, as rows ``(count, num_parameters)`` in a ring.

    >>> from fiberscope.numerics.algebra.floating import FLOAT
    >>> layer = Affine(0, Dense(np.array([[3.0]])), np.array([5.0]), "w", "b")
    >>> standard = Affine(1, Scale(np.array([0.5]), (1,)), np.array([-1.0]))
    >>> learned = Affine(2, Scale(np.array([2.0]), (1,)), np.array([0.0]), "gamma", "beta")
    >>> normalisations(Network.from_nodes([layer, standard, learned], (1,)), FLOAT)
    array([[ 0.,  1.,  0., -1.],
           [ 3.,  5., -2., -2.]])
    """
    starts = offsets(net)
    rows = [ring.take(np.zeros((0, net.num_parameters)))]
    for block in _blocks(net):
        rows += [_shifts(block, net, starts, ring), _scales(block, net, starts, ring)]
    return np.concatenate(rows)


def directions_in_a_row(net: Network) -> int:
    """How many rows :func:`normalisations`, :func:`mixtures` and :func:`translations_in_a_row` have at most."""
    widths = [first.operator.out_size for first, _ in _in_a_row(net)]
    return sum(2 * len(block.factors) for block in _blocks(net)) + sum(n * n + n for n in widths)


def _shifts(block: _Block, net: Network, starts: dict[str, int], ring: Ring) -> Any:
    layer, learned = block.layer, block.learned
    channels = len(block.factors) if layer.bias_name is not None and layer.bias is not None else 0
    result = ring.take(np.zeros((channels, net.num_parameters)))
    if channels and layer.bias_name is not None and learned.bias_name is not None:
        k = np.arange(channels)
        result[k, starts[layer.bias_name] + k] = ring.take(np.ones(1))[0]
        back = ring.multiply(ring.take(learned.operator.coefficients.reshape(-1)), ring.take(-block.factors))
        result[k, starts[learned.bias_name] + k] = back
    return result


def _scales(block: _Block, net: Network, starts: dict[str, int], ring: Ring) -> Any:
    layer, learned = block.layer, block.learned
    weight = layer.operator.coefficients.reshape(len(block.factors), -1)
    channels, fan_in = weight.shape
    result = ring.take(np.zeros((channels, net.num_parameters)))
    assert layer.weight_name and learned.weight_name and learned.bias_name  # _blocks
    k = np.arange(channels)
    places = starts[layer.weight_name] + k[:, None] * fan_in + np.arange(fan_in)
    result[k[:, None], places] = ring.take(weight)
    constant = ring.take(block.constants)
    if layer.bias is not None:
        bias = ring.take(layer.bias.reshape(-1))
        if layer.bias_name is not None:
            result[k, starts[layer.bias_name] + k] = bias
        else:  # a constant does not move, and adds to what the standardisation has
            constant = ring.add([constant, ring.multiply(ring.take(block.factors), bias)])
    gamma = learned.operator.coefficients.reshape(-1)
    result[k, starts[learned.weight_name] + k] = ring.take(-gamma)
    result[k, starts[learned.bias_name] + k] = ring.multiply(ring.take(gamma), constant)
    return result


def mixtures(net: Network, ring: Ring) -> Any:
    """Mixtures of the neurons between two dense layers in a row, as rows ``(count, num_parameters)`` in a ring.

    ``E_ij`` moves ``A[i] += A[j]``, with the bias, and ``B[:, j] -= B[:, i]``.

    >>> from fiberscope.numerics.algebra.floating import FLOAT
    >>> nodes = [Affine(0, Dense(np.array([[3.0]])), None, "a"), Affine(1, Dense(np.array([[5.0]])), None, "b")]
    >>> mixtures(Network.from_nodes(nodes, (1,)), FLOAT)
    array([[ 3., -5.]])
    """
    starts = offsets(net)
    result = [ring.take(np.zeros((0, net.num_parameters)))]
    for first, second in _in_a_row(net):
        A, B = first.operator.coefficients, second.operator.coefficients
        i, j = (index.ravel() for index in np.indices((len(A), len(A))))
        rows = ring.take(np.zeros((len(i), net.num_parameters)))
        k = np.arange(len(i))
        assert first.weight_name and second.weight_name  # _in_a_row
        incoming = starts[first.weight_name] + np.arange(A.size).reshape(A.shape)
        outgoing = starts[second.weight_name] + np.arange(B.size).reshape(B.shape)
        rows[k[:, None], incoming[i]] = ring.take(A)[j]
        rows[k[:, None], outgoing.T[j]] = ring.take(-B.T)[i]
        if first.bias is not None and first.bias_name is not None:
            rows[k, starts[first.bias_name] + i] = ring.take(first.bias.reshape(-1))[j]
        result.append(rows)
    return np.concatenate(result)


def translations_in_a_row(net: Network, ring: Ring) -> Any:
    """Translations of the neurons between two dense layers in a row with biases: ``a += e_i``, ``b -= B[:, i]``."""
    starts = offsets(net)
    result = [ring.take(np.zeros((0, net.num_parameters)))]
    for first, second in _in_a_row(net):
        if first.bias_name is None or first.bias is None or second.bias_name is None or second.bias is None:
            continue
        B = second.operator.coefficients
        k = np.arange(B.shape[1])
        rows = ring.take(np.zeros((len(k), net.num_parameters)))
        rows[k, starts[first.bias_name] + k] = ring.take(np.ones(1))[0]
        rows[k[:, None], starts[second.bias_name] + np.arange(len(B))] = ring.take(-B.T)
        result.append(rows)
    return np.concatenate(result)


def _in_a_row(net: Network) -> Iterator[tuple[Affine, Affine]]:
    """Pairs of dense layers whose parameters are their own, where the second alone reads the first."""
    readers = Counter(source for node in net.nodes for source in node.sources)
    uses = Counter(name for node in net.layout.affine for name in (node.weight_name, node.bias_name) if name)
    for second in net.nodes:
        if not isinstance(second, Affine) or second.source == 0 or readers[second.source] != 1:
            continue
        first = net.nodes[second.source - 1]
        if not isinstance(first, Affine) or not all(_plain_layer(node, uses) for node in (first, second)):
            continue
        # A constant bias in between cannot be mixed. With far more mixtures than parameters most do nothing.
        mixed = first.bias is None or first.bias_name is not None or not first.bias.any()
        if mixed and first.operator.out_size**2 <= 4 * net.num_parameters:
            yield first, second


def _plain_layer(node: Affine, uses: Counter[str]) -> bool:
    own = [name for name in (node.weight_name, node.bias_name) if name is not None]
    whole = node.bias is None or node.bias.size == node.operator.out_size
    return (
        isinstance(node.operator, Dense)
        and node.weight_name is not None
        and whole
        and all(uses[name] == 1 for name in own)
    )


def _blocks(net: Network) -> Iterator[_Block]:
    """Every layer that is read by a constant scaling, or by none, and then by a learned one, and by nobody else."""
    readers = Counter(source for node in net.nodes for source in node.sources)
    uses = Counter(name for node in net.layout.affine for name in (node.weight_name, node.bias_name) if name)
    following = {node.source: index for index, node in enumerate(net.nodes) if isinstance(node, Affine)}

    def alone(node: Affine, value: int, last: bool) -> bool:
        own = [name for name in (node.weight_name, node.bias_name) if name is not None]
        return all(uses[name] == 1 for name in own) and (last or (readers[value] == 1 and value in following))

    for index, layer in enumerate(net.nodes):
        if not isinstance(layer, Affine) or not isinstance(layer.operator, Convolution | Dense):
            continue
        channels = layer.operator.coefficients.shape[0]
        if layer.weight_name is None or not alone(layer, index + 1, False) or not _fits(layer.bias, channels):
            continue
        factors, constants, place = np.ones(channels), np.zeros(channels), following[index + 1]
        node = net.nodes[place]
        if isinstance(node, Affine) and node.weight_name is None and node.bias_name is None:
            if not _per_channel(node, layer) or not alone(node, place + 1, False):
                continue
            factors = np.broadcast_to(node.operator.coefficients.reshape(-1), (channels,))
            constants = constants if node.bias is None else np.broadcast_to(node.bias.reshape(-1), (channels,))
            place = following[place + 1]
            node = net.nodes[place]
        if not isinstance(node, Affine) or node.weight_name is None or node.bias_name is None or node.bias is None:
            continue
        whole = node.operator.coefficients.size == node.bias.size == channels
        if whole and _per_channel(node, layer) and alone(node, place + 1, True):
            yield _Block(layer, factors, constants, node)


def _per_channel(node: Affine, layer: Affine) -> bool:
    """Whether a node multiplies and shifts every channel of a layer's result by numbers of its own, or of all."""
    shape = layer.operator.out_shape
    column = (shape[0], *(1 for _ in shape[1:]))
    arrays = [node.operator.coefficients, *([] if node.bias is None else [node.bias])]
    return (
        isinstance(node.operator, Scale)
        and node.operator.out_shape == shape
        and all(array.size == 1 or array.shape == column for array in arrays)
    )


def _fits(bias: FloatArray | None, channels: int) -> bool:
    return bias is None or bias.size == channels
