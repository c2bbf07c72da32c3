"""Nodes that may change places without changing the function."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool, Node, PiecewiseLinear
from fiberscope.numerics.algebra.base import gather


def pools_first(net: Network) -> Network:
    """The same real function with every pool in front of the activation that it alone reads, where that is possible.

    ``max(f(x), f(y)) = f(max(x, y))`` for an ``f`` that never falls, as activations with slopes of at least 0.

    >>> nodes = [PiecewiseLinear(0, 0.0, (1, 2, 2)), MaxPool(1, (1, 2, 2), (2, 2), (2, 2))]
    >>> [type(node).__name__ for node in pools_first(Network.from_nodes(nodes, (1, 2, 2))).nodes]
    ['MaxPool', 'PiecewiseLinear']
    """
    nodes = list(net.nodes)
    uses = Counter(s for node in nodes for s in node.sources)
    changed = False
    for _ in nodes:
        pairs = [
            (node.source - 1, j)
            for j, node in enumerate(nodes)
            if isinstance(node, MaxPool) and node.source and uses[node.source] == 1
        ]
        swaps = [(i, j, new) for i, j in pairs if (new := _swapped(nodes[i], nodes[j], i)) is not None]
        if not swaps:
            break
        i, j, (nodes[i], nodes[j]) = swaps[0]
        changed = True
    return Network.from_nodes(nodes, net.input_shape, net.source.derived) if changed else net


def _swapped(bend: Node, pool: Node, place: int) -> tuple[MaxPool, PiecewiseLinear] | None:
    if not isinstance(bend, PiecewiseLinear) or not isinstance(pool, MaxPool) or not (bend.slopes >= 0).all():
        return None
    low, high = (gather(bend.slopes[None], pool.windows, end)[0] for end in (np.inf, -np.inf))
    slopes = high.max(axis=1)
    if not np.array_equal(low.min(axis=1), slopes):
        return None
    own = bend.slope_shape
    kept = own is not None and (prod(own) == 1 or own == (*pool.shape[:1], 1, 1))  # else it is another parameter
    name, own = (bend.slope_name, own) if kept else (None, None)
    return replace(pool, source=bend.source), PiecewiseLinear(place + 1, slopes, pool.shape, name, own)
