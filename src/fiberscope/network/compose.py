"""Programs put together: consecutive affine maps multiplied out, two networks as their difference."""

from __future__ import annotations

from collections import Counter
from math import ceil, log2

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Concat, Node, moved, nameless
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.points import row_bits

_BITS = 53
"""What a float64 holds: sums of products of integers below ``2^53`` are exact."""


def composed(net: Network) -> Network:
    """The same real function with fewer nodes: dense maps in a row become one where the product is exact in float64.

    Products that would be rounded are left apart, so the result is always exactly the network. A merged map has no
    parameter names: its numbers are not the model's own.

    >>> maps = [Affine(0, Dense(np.array([[0.5]])), np.array([1.0])), Affine(1, Dense(np.array([[3.0]])))]
    >>> composed(Network.from_nodes(maps, (1,))).weights[0]
    array([[1.5]])
    """
    uses = Counter(s for node in net.nodes for s in node.sources)
    nodes: list[Node] = []
    place = {0: 0}
    for index, node in enumerate(net.nodes):
        node = moved(node, tuple(place[s] for s in node.sources))  # noqa: PLW2901  # the same node at its new place
        before = nodes[node.sources[0] - 1] if node.sources[0] == len(nodes) and nodes else None
        single = uses[net.nodes[index].sources[0]] == 1
        merged = _product(before, node) if single else None
        if merged is None:
            nodes.append(node)
        else:
            nodes[-1] = merged
        place[index + 1] = len(nodes)
    return Network.from_nodes(nodes, net.input_shape, net.source.derived)


def _product(before: Node | None, after: Node) -> Affine | None:
    """``after`` after ``before`` as one dense map, if both are dense and nothing is rounded."""
    if not isinstance(before, Affine) or not isinstance(after, Affine):
        return None
    if not isinstance(before.operator, Dense) or not isinstance(after.operator, Dense):
        return None
    outer, inner = after.operator.matrix, _with_bias(before)
    bits = _bits(outer) + _bits(inner) + ceil(log2(max(outer.shape[1], 2)))
    if bits > _BITS:
        return None
    rows = outer @ inner
    bias, own = rows[:, -1], np.zeros(len(rows)) if after.offset is None else after.offset
    total = bias + own
    if not np.array_equal(total - own, bias) or not np.array_equal(total - bias, own):
        return None
    if not np.isfinite(rows).all() or _smallest(outer) * _smallest(inner) == 0:
        return None
    return Affine(before.source, Dense(rows[:, :-1], before.operator.in_shape), total)


def _with_bias(node: Affine) -> FloatArray:
    matrix = node.operator.dense()
    bias = np.zeros(len(matrix)) if node.offset is None else node.offset
    return np.column_stack([matrix, bias])


def _bits(matrix: FloatArray) -> int:
    """Bits of the largest entry when all entries are integers times one power of two."""
    return int(row_bits(matrix.reshape(1, -1))[0])


def _smallest(matrix: FloatArray) -> float:
    """Least distance between two values of a sum: the lowest bit of any entry, so that an underflow is noticed."""
    entries = np.abs(matrix[matrix != 0])
    return float(entries.min() * 2.0**-_BITS) if entries.size else 1.0


def difference_network(a: Network, b: Network) -> Network:
    """``a - b`` as one program.

    >>> net = Network.random((2, 3, 1), seed=0)
    >>> float(difference_network(net, net)(np.ones((1, 2)))[0, 0])
    0.0
    """
    shift = len(a.nodes)
    rest = [moved(nameless(node), tuple(s + shift if s else 0 for s in node.sources)) for node in b.nodes]
    m = a.out_size
    ends: list[Node] = [
        Concat((shift, shift + len(rest)), ((m,), (m,))),
        Affine(shift + len(rest) + 1, Dense(np.hstack([np.eye(m), -np.eye(m)]))),
    ]
    return Network.from_nodes([*a.nodes, *rest, *ends], (a.in_size,))
