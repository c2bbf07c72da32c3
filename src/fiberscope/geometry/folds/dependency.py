"""The dependency graph of a fold-set: which piece bends at which (Phuong & Lampert, ICLR 2020).

Its vertices are the pieces of the canonical representation. An edge leads from a piece H to a piece G of higher order
if H, which is open in its hyperplane, meets the closure of G.

The paper's Lemma 3 says that in a general network a piece with a chain of m descendants belongs to a unit at least m
layers before the last hidden one. With that definition of an edge it is not true: two units of one layer that cross,
one of them a full line in the domain, the other bent elsewhere, have an edge between them, because the full line cuts
the other into two pieces of one line. (The proof says that no two pieces lie in one hyperplane.) It is true for chains
of edges at which the later piece *bends*, that is, does not go straight on behind the earlier one. The paper means
edges so, and those of its construction are such. Every edge says whether it bends; chains here are made of such edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

from fiberscope.geometry.stars import Level, levels
from fiberscope.numerics.floats import IntArray
from fiberscope.results import Result

if TYPE_CHECKING:
    from fiberscope.geometry.folds.fold_set import FoldSet, Piece


def dependency_graph(fold_set: FoldSet) -> nx.DiGraph[int]:
    """The dependency graph; vertices are the indices of ``fold_set.pieces``.

    A vertex carries ``order``, ``neurons``, ``layers`` (from 1) and ``size``. An edge carries ``cells``, the number of
    cells of the complex in which the two meet, and ``bends``: whether the later piece ends at one of them, of
    codimension 2, with nothing of the fold-set going straight on behind it.

    Examples
    --------
    Two units of the second layer bend at two lines of the first. On the line ``x = 0`` two pieces end from each side:

    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.folds.fold_set import fold_set
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
        straight = _straight(fold_set, level)
        for a, b, cell in _meetings(pieces, order, level):
            if not graph.has_edge(a, b):
                graph.add_edge(a, b, cells=0, bends=False)
            graph[a][b]["cells"] += 1
            graph[a][b]["bends"] |= straight is not None and (cell, fold_set.pieces[b].hyperplane) not in straight
    return graph


def _straight(fold_set: FoldSet, level: Level) -> set[tuple[int, int]] | None:
    """Pairs of a ridge and a hyperplane of which two facets of the set meet there; None for other cells than ridges."""
    if level.dimension != fold_set.complex.dimension - 2:
        return None
    owner, ridge = level.facets[fold_set.facets].nonzero()
    pairs = np.stack([ridge.astype(np.int64), fold_set.facet_hyperplane[owner]], axis=1)
    found, count = np.unique(pairs, axis=0, return_counts=True)
    return {(int(cell), int(hyperplane)) for cell, hyperplane in found[count > 1]}


def _meetings(pieces: csr_array, order: IntArray, level: Level) -> list[tuple[int, int, int]]:
    """Pairs of pieces that meet in cells of one dimension, the lower order first, with the cell.

    A cell inside of the domain belongs to the open pieces of the lowest order that touch it and to no others: the
    rest end there, because the partition for their order has a wall there.
    """
    touch = csr_array(pieces @ level.facets).tocsc()
    found = []
    for cell in np.flatnonzero((np.diff(touch.indptr) > 1) & ~level.outer).tolist():
        around = np.unique(touch.indices[touch.indptr[cell] : touch.indptr[cell + 1]])
        lowest = order[around].min()
        below, above = around[order[around] == lowest], around[order[around] > lowest]
        found += [(int(a), int(b), cell) for a in below for b in above]
    return found


def longest_chains(graph: nx.DiGraph[int]) -> dict[int, int]:
    """For every vertex the length of the longest directed path of bending edges that starts there.

    An edge without the attribute ``bends`` counts as bending.

    >>> graph = nx.DiGraph([(0, 1), (1, 2), (3, 2)])
    >>> longest_chains(graph)
    {0: 2, 1: 1, 2: 0, 3: 1}
    >>> graph[1][2]["bends"] = False
    >>> longest_chains(graph)
    {0: 1, 1: 0, 2: 0, 3: 1}
    """
    chain: dict[int, int] = {}
    for vertex in reversed(list(nx.topological_sort(graph))):
        ends = [after for after in graph.successors(vertex) if graph[vertex][after].get("bends", True)]
        chain[vertex] = max((1 + chain[after] for after in ends), default=0)
    return dict(sorted(chain.items()))


@dataclass(frozen=True, slots=True)
class FirstLayer(Result):
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

    told = ("well_connected",)

    @property
    def well_connected(self) -> bool:
        """Whether exactly the first layer is found, all of it."""
        return len(self.identified) == self.width == len(self.pieces)


def first_layer(fold_set: FoldSet, graph: nx.DiGraph[int] | None = None) -> FirstLayer:
    """Which pieces a chain of descendants proves to be of the first layer.

    With ``k`` hidden layers a piece with a chain of ``k - 1`` descendants must come from layer 1. A full hyperplane
    alone proves nothing: the last layer can make one too.

    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.folds.fold_set import fold_set
    >>> from fiberscope.network.network import Network
    >>> weights = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [-1.0, -1.0]], [[1.0, 2.0]]]
    >>> found = first_layer(fold_set(Network(weights, [[0.0, 0.0], [-0.5, 1.5], [0.0]]), Box.cube(2)))
    >>> found.identified, found.width
    ((0, 1), 2)
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


def layers_of(fold_set: FoldSet, piece: Piece) -> tuple[int, ...]:
    """The layers, from 1, of the neurons that make the whole piece; of all its neurons if none makes the whole."""
    switch = fold_set.complex.net.layout.switch
    return tuple(sorted({int(switch[n]) + 1 for n in (piece.whole or piece.neurons)}))
