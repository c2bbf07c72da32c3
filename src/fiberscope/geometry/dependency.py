"""The dependency graph of a fold-set: which piece bends at which (Phuong & Lampert, ICLR 2020).

Its vertices are the pieces of the canonical representation. An edge leads from a piece H to a piece G of higher order
if H, which is open in its hyperplane, meets the closure of G. In a general network a piece with a chain of m
descendants belongs to a unit at least m layers before the last hidden one (Lemma 3, on the union of all units' kinks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

from fiberscope.geometry.fold_set import FoldSet, layers_of
from fiberscope.geometry.stars import Level, levels
from fiberscope.numerics.floats import IntArray


def dependency_graph(fold_set: FoldSet) -> nx.DiGraph[int]:
    """The dependency graph; vertices are the indices of ``fold_set.pieces``.

    A vertex carries ``order``, ``neurons``, ``layers`` (from 1) and ``size``; an edge carries ``cells``, the number of
    cells of the complex in which the two meet.

    Examples
    --------
    Two units of the second layer bend at two lines of the first. On the line ``x = 0`` two pieces end from each side:

    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.fold_set import fold_set
    >>> from fiberscope.network.network import Network
    >>> weights = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [-1.0, -1.0]], [[1.0, 2.0]]]
    >>> net = Network(weights, [[0.0, 0.0], [-0.5, 0.75], [0.0]])
    >>> graph = dependency_graph(fold_set(net, Box.cube(2)))
    >>> sorted(graph.successors(0)), longest_chains(graph)[0]
    ([4, 5, 6, 7], 1)
    """
    graph: nx.DiGraph[int] = nx.DiGraph()
    for piece in fold_set.pieces:
        layers = layers_of(fold_set, piece)
        graph.add_node(piece.index, order=piece.order, neurons=piece.neurons, layers=layers, size=piece.size)
    if not fold_set.pieces:
        return graph
    members = np.concatenate([piece.facets for piece in fold_set.pieces])
    owner = np.repeat(np.arange(len(fold_set.pieces)), [len(piece.facets) for piece in fold_set.pieces])
    shape = (len(fold_set.pieces), len(fold_set.complex.facets))
    pieces = csr_array((np.ones(len(members), np.int64), (owner, members)), shape=shape)
    order = np.array([piece.order for piece in fold_set.pieces])
    for level in levels(fold_set.complex, fold_set.inside):
        for a, b in _meetings(pieces, order, level):
            if graph.has_edge(a, b):
                graph[a][b]["cells"] += 1
            else:
                graph.add_edge(a, b, cells=1)
    return graph


def _meetings(pieces: csr_array, order: IntArray, level: Level) -> list[tuple[int, int]]:
    """Pairs of pieces that meet in the cells of one dimension, the lower order first.

    A cell inside of the domain belongs to the open pieces of the lowest order that touch it and to no others: the
    rest end there, because the partition for their order has a wall there.
    """
    touch = csr_array(pieces @ level.facets).tocsc()
    found = []
    for cell in np.flatnonzero((np.diff(touch.indptr) > 1) & ~level.outer).tolist():
        around = np.unique(touch.indices[touch.indptr[cell] : touch.indptr[cell + 1]])
        lowest = order[around].min()
        below, above = around[order[around] == lowest], around[order[around] > lowest]
        found += [(int(a), int(b)) for a in below for b in above]
    return found


def longest_chains(graph: nx.DiGraph[int]) -> dict[int, int]:
    """For every vertex the number of edges of the longest directed path that starts there.

    >>> longest_chains(nx.DiGraph([(0, 1), (1, 2), (3, 2)]))
    {2: 0, 1: 1, 3: 1, 0: 2}
    """
    chain: dict[int, int] = {}
    for vertex in reversed(list(nx.topological_sort(graph))):
        chain[vertex] = max((1 + chain[after] for after in graph.successors(vertex)), default=0)
    return dict(sorted(chain.items(), key=lambda item: item[1]))


@dataclass(frozen=True, slots=True)
class FirstLayer:
    """The pieces that a fold-set shows to be of the first layer, against the network's own first layer.

    Parameters
    ----------
    pieces
        Indices of the pieces of order 1 that have chains of as many descendants as there are later hidden layers.
    identified
        First-layer neurons whose whole trace in the domain is such a piece.
    straight
        First-layer neurons whose whole trace in the domain is a piece of order 1, with whatever chain.
    wrong
        Pieces among ``pieces`` that no first-layer neuron makes: impossible for a general network if the surface is
        that of its units, possible where some facets are not visible.
    width
        Number of first-layer neurons.
    """

    pieces: tuple[int, ...]
    identified: tuple[int, ...]
    straight: tuple[int, ...]
    wrong: tuple[int, ...]
    width: int

    @property
    def well_connected(self) -> bool:
        """Whether exactly the first layer is found, all of it."""
        return len(self.identified) == self.width == len(self.pieces)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "pieces": list(self.pieces),
            "identified": list(self.identified),
            "straight": list(self.straight),
            "wrong": list(self.wrong),
            "width": self.width,
            "well_connected": self.well_connected,
        }


def first_layer(fold_set: FoldSet, graph: nx.DiGraph[int] | None = None) -> FirstLayer:
    """Which pieces a chain of descendants proves to be of the first layer.

    With ``k`` hidden layers a piece with a chain of ``k - 1`` descendants must come from layer 1. A full hyperplane
    alone proves nothing: the last layer can make one too.
    """
    graph = dependency_graph(fold_set) if graph is None else graph
    net, chain = fold_set.complex.net, longest_chains(graph)
    depth, width = len(net.switches), net.switches[0].num_signs if net.switches else 0
    straight: set[int] = set()
    identified: set[int] = set()
    deep, wrong = [], []
    for piece in fold_set.of_order(1):
        own = [neuron for neuron in piece.whole if neuron < width]
        straight.update(own)
        if depth and chain[piece.index] >= depth - 1:
            deep.append(piece.index)
            identified.update(own)
            if not own:
                wrong.append(piece.index)
    return FirstLayer(tuple(deep), tuple(sorted(identified)), tuple(sorted(straight)), tuple(wrong), width)
