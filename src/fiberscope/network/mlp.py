"""The dense view: any program as one chain of dense layers with the same function up to rounding.

Convolutions are unrolled, consecutive affine maps multiplied out, ``max(a, b) = b + relu(a - b)`` replaces pooling, and
values that skip a layer are carried through it by linear neurons. Products are rounded to float64, so the view has the
network's function up to that rounding; a layer whose numbers are still those of the model keeps its parameter names,
and every other layer has none: questions about parameters are not to be asked of it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.errors import TooLargeError
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, Node, PiecewiseLinear, Switch, moved
from fiberscope.network.operators import Dense, Sparse
from fiberscope.network.walk import smooth
from fiberscope.numerics.algebra.floating import FLOAT_ROWS
from fiberscope.numerics.floats import FloatArray


def as_mlp(net: Network, memory: int = 1 << 31) -> Network:
    """The dense chain with the function of ``net``, up to the rounding of products of weights.

    Raises :class:`TooLargeError` with an estimate where its matrices would need more than ``memory`` bytes.

    >>> from fiberscope.network.network import Network
    >>> chain = Network.random((2, 3, 1), seed=0)
    >>> as_mlp(chain) is chain
    True
    """
    if net.is_chain:
        return net
    flat = without_pooling(net)
    plan = _Plan.of(flat)
    need = plan.bytes(flat)
    if need > memory:
        raise TooLargeError(
            f"the dense chain of this network has widths {'-'.join(map(str, plan.widths(flat)))} and needs "
            f"{need / 2**30:.2f} GiB, the limit is {memory / 2**30:.2f} GiB"
        )
    return _Builder(flat, plan).build()


def without_pooling(net: Network) -> Network:
    """The same function with every max pool written as activations: a tournament of ``b + relu(a - b)``."""
    nodes: list[Node] = []
    place = {0: 0}
    for index, node in enumerate(net.nodes):
        sources = tuple(place[s] for s in node.sources)
        if isinstance(node, MaxPool):
            nodes.extend(_tournament(node, sources[0], len(nodes)))
        else:
            nodes.append(moved(node, sources))
        place[index + 1] = len(nodes)
    return Network.from_nodes(nodes, net.input_shape, net.source.derived)


def _tournament(node: MaxPool, source: int, made: int) -> list[Node]:
    """Nodes that halve the windows again and again; ``made`` nodes exist already."""
    players = [window[window >= 0].tolist() for window in node.windows]
    size = int(np.prod(node.in_shape))
    nodes: list[Node] = []
    while True:
        # Rows of the next round: a difference (then ReLU) for every pair, and a carried value for every survivor.
        pairs = [(w, a, b) for w, row in enumerate(players) for a, b in zip(row[::2], row[1::2], strict=False)]
        byes = [(w, row[-1]) for w, row in enumerate(players) if len(row) % 2]
        if not pairs:
            break
        count = len(pairs)
        kept = [b for _, _, b in pairs] + [a for _, a in byes]
        select = scipy.sparse.lil_array((count + len(kept), size))
        for row, (_, a, b) in enumerate(pairs):
            select[row, a], select[row, b] = 1.0, -1.0
        for row, value in enumerate(kept):
            select[count + row, value] = 1.0
        slopes = np.concatenate([np.zeros(count), np.ones(len(kept))])
        join = scipy.sparse.lil_array((len(kept), count + len(kept)))
        for row in range(len(kept)):
            join[row, count + row] = 1.0
            if row < count:
                join[row, row] = 1.0
        nodes += [
            Affine(source if not nodes else made + len(nodes), Sparse(select)),
            PiecewiseLinear(made + len(nodes) + 1, slopes, slopes.shape),
            Affine(made + len(nodes) + 2, Sparse(join)),
        ]
        owners = [w for w, _, _ in pairs] + [w for w, _ in byes]
        players = [[] for _ in players]
        for position, owner in enumerate(owners):
            players[owner].append(position)
        size = len(kept)
    final = scipy.sparse.lil_array((len(players), size))
    for row, (winner,) in enumerate(players):
        final[row, winner] = 1.0
    value = source if not nodes else made + len(nodes)
    return [*nodes, Affine(value, Sparse(final, out_shape=node.shape))]


@dataclass(frozen=True)
class _Plan:
    """Which activations share a dense layer, and which values each layer has to carry to the next."""

    layers: tuple[tuple[int, ...], ...]
    carried: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, net: Network) -> _Plan:
        level = [0]
        for node in net.nodes:
            deepest = max(level[s] for s in node.sources)
            level.append(deepest + isinstance(node, PiecewiseLinear))
        depth = max(level)
        layers: list[tuple[int, ...]] = []
        carried: list[tuple[int, ...]] = []
        for step in range(1, depth + 1):
            switching = [
                i for i, node in enumerate(net.nodes) if isinstance(node, PiecewiseLinear) and level[i + 1] == step
            ]
            # A value of an earlier level is carried if something of this level or later, other than these
            # activations, still reads it, or if it is the output.
            alive = {
                s
                for i, node in enumerate(net.nodes)
                for s in node.sources
                if level[i + 1] >= step and i not in switching and level[s] < step
            }
            if level[-1] < step:
                alive.add(len(net.nodes))
            layers.append(tuple(switching))
            carried.append(tuple(sorted(alive)))
        return cls(tuple(layers), tuple(carried))

    def widths(self, net: Network) -> list[int]:
        sizes = [int(np.prod(shape)) for shape in net.shapes]
        hidden = [
            sum(sizes[i + 1] for i in layer) + sum(sizes[v] for v in kept)
            for layer, kept in zip(self.layers, self.carried, strict=True)
        ]
        return [net.in_size, *hidden, net.out_size]

    def bytes(self, net: Network) -> int:
        widths = self.widths(net)
        return 8 * sum(m * n for m, n in itertools.pairwise(widths))


class _Builder:
    """Holds every live value as an affine function of the current dense layer, rows as in ``affine_values``."""

    def __init__(self, net: Network, plan: _Plan) -> None:
        self.net, self.plan = net, plan
        self.rows: dict[int, FloatArray] = {0: np.eye(net.in_size + 1, net.in_size)}
        self.nodes: list[Node] = []

    def build(self) -> Network:
        for layer, kept in zip(self.plan.layers, self.plan.carried, strict=True):
            self._advance()
            self._switch(layer, kept)
        self._advance()
        self._affine(self.rows[len(self.net.nodes)], self.net.nodes[-1])
        return Network.from_nodes(self.nodes, (self.net.in_size,), self.net.source.derived)

    def _advance(self) -> None:
        """Evaluate everything affine that can be reached."""
        for index, node in enumerate(self.net.nodes):
            known = all(s in self.rows for s in node.sources)
            if known and index + 1 not in self.rows and not isinstance(node, Switch):
                self.rows[index + 1] = smooth(node, self.rows, FLOAT_ROWS)

    def _switch(self, layer: tuple[int, ...], kept: tuple[int, ...]) -> None:
        activations = [self.net.nodes[i] for i in layer]
        parts = [self.rows[node.sources[0]] for node in activations] + [self.rows[v] for v in kept]
        slopes = [node.slopes for node in activations if isinstance(node, PiecewiseLinear)]
        slopes += [np.ones(self.rows[v].shape[1]) for v in kept]
        origin = self.net.nodes[activations[0].sources[0] - 1] if len(parts) == 1 else None
        self._affine(np.concatenate(parts, axis=1), origin)
        width = sum(part.shape[1] for part in parts)
        self.nodes.append(PiecewiseLinear(len(self.nodes), np.concatenate(slopes), (width,)))
        self.rows = {}
        start = 0
        for value, size in zip([i + 1 for i in layer] + list(kept), [p.shape[1] for p in parts], strict=True):
            block = np.zeros((width + 1, size))
            block[start : start + size] = np.eye(size)
            self.rows[value] = block
            start += size

    def _affine(self, rows: FloatArray, origin: Node | None) -> None:
        matrix, bias = rows[:-1].T, rows[-1]
        weight_name = bias_name = None
        if isinstance(origin, Affine) and isinstance(origin.operator, Dense):
            offset = np.zeros(len(bias)) if origin.offset is None else origin.offset
            if np.array_equal(origin.operator.matrix, matrix) and np.array_equal(offset, bias):
                weight_name, bias_name = origin.weight_name, origin.bias_name
        self.nodes.append(Affine(len(self.nodes), Dense(matrix), bias, weight_name, bias_name))
