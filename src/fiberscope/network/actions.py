"""The symmetries every ReLU chain has: hidden neurons may be permuted, and rescaled by positive factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.io import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import TINY, FloatArray, IntArray


def permute(net: NetworkLike, permutations: Sequence[Any]) -> Network:
    """Reorder the hidden neurons of a chain: new neuron ``i`` of layer ``l`` is old neuron ``permutations[l][i]``.

    One permutation per hidden layer, None for none. The function does not change; only the order of its sums does.

    >>> net = Network([[[1.0], [2.0]], [[3.0, 4.0]]], [[0.0, 5.0], [0.0]])
    >>> permute(net, [[1, 0]]).weights[0].tolist()
    [[2.0], [1.0]]
    """
    net = as_network(net)
    widths = net.widths[1:-1]
    _count(permutations, widths, "permutations")
    orders = [
        np.arange(n) if p is None else _permutation(p, n, layer)
        for layer, (p, n) in enumerate(zip(permutations, widths, strict=True), start=1)
    ]
    return _act(net, orders, [np.ones(n) for n in widths])


def rescale(net: NetworkLike, scales: Sequence[Any]) -> Network:
    """Multiply row ``i`` of ``(W_l, b_l)`` by ``scales[l][i] > 0`` and divide column ``i`` of ``W_{l+1}`` by it.

    One vector per hidden layer, None for none. Powers of two change no bit of the function; other factors round every
    product once. A product beyond the normal floats would lose its digits, and is refused.

    >>> net = Network([[[1.0]], [[3.0]]], [[0.5], [0.0]])
    >>> rescale(net, [[2.0]]).weights
    (array([[2.]]), array([[1.5]]))
    """
    net = as_network(net)
    widths = net.widths[1:-1]
    _count(scales, widths, "scales")
    factors = [
        np.ones(n) if s is None else _scales(s, n, layer)
        for layer, (s, n) in enumerate(zip(scales, widths, strict=True), start=1)
    ]
    return _act(net, [np.arange(n) for n in widths], factors)


def _act(net: Network, orders: Sequence[IntArray], scales: Sequence[FloatArray]) -> Network:
    """New neuron ``i`` is old neuron ``orders[i]``, scaled by ``scales[i]``."""
    nodes: list[Node] = []
    for index, node in enumerate(net.nodes):
        layer = index // 2
        if isinstance(node, PiecewiseLinear):
            nodes.append(PiecewiseLinear(node.source, node.slopes[orders[layer]], node.shape))
        elif isinstance(node, Affine):
            matrix, bias = node.operator.dense(), node.offset
            if layer > 0:
                matrix = _times(matrix[:, orders[layer - 1]], scales[layer - 1], False, node)
            if layer < len(orders):
                matrix = _times(matrix[orders[layer]], scales[layer][:, None], True, node)
                bias = None if bias is None else _times(bias[orders[layer]], scales[layer], True, node)
            nodes.append(
                Affine(node.source, Dense(matrix, node.operator.in_shape), bias, node.weight_name, node.bias_name)
            )
    return Network.from_nodes(nodes, net.input_shape, net.source.derived)


def _times(array: FloatArray, scales: FloatArray, up: bool, node: Affine) -> FloatArray:
    """The product, or the quotient, where it loses no more than one rounding; refused where it leaves the floats."""
    with np.errstate(over="ignore", under="ignore"):
        found = array * scales if up else array / scales
        back = found / scales if up else found * scales
    # between the normal floats every product is off by one rounding; below, digits are gone unless they come back
    lost = ~np.isfinite(found) | ((np.abs(found) < TINY) & (back != array))
    if lost.any():
        value, scale = float(array[lost][0]), float(np.broadcast_to(scales, array.shape)[lost][0])
        word, name = "times" if up else "over", node.weight_name or "a weight"
        raise InputError(f"scales: expected products within the floats, got {value:g} {word} {scale:g} in {name}")
    return np.asarray(found)


def _count(given: Sequence[Any], widths: tuple[int, ...], name: str) -> None:
    if len(given) != len(widths):
        raise InputError(f"{name}: expected {len(widths)}, one per hidden layer, got {len(given)}")


def _permutation(p: Any, n: int, layer: int) -> IntArray:
    order = np.asarray(p)
    if order.shape != (n,) or order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(n)):
        raise InputError(f"permutations: expected a permutation of 0 to {n - 1} for hidden layer {layer}")
    return order.astype(np.int64)


def _scales(s: Any, n: int, layer: int) -> FloatArray:
    factors = real_array(s, f"scales of hidden layer {layer}")
    if factors.shape != (n,) or not (factors > 0).all():
        raise InputError(f"scales: expected {n} positive numbers for hidden layer {layer}, got {factors.tolist()}")
    return factors
