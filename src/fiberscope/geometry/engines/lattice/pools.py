"""Max pooling in the lattice engine: compare all inputs of a window, then join what losers have cut.

Before a pool its inputs are compared in pairs, by activations whose values nobody reads. They split the cells also
where both inputs lose, which is no wall of the complex. Cells are told apart by their sign vectors: the points of the
domain with one sign vector, sides of the domain included, form a convex set, because layer after layer adds linear
conditions. So fine cells with one sign vector of the network make up one cell of its complex, of the dimension of the
largest of them; its facets are the cells of one dimension less that theirs belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.geometry.cells import Cells, Incidence, pool_layout
from fiberscope.geometry.engines.lattice import kernels
from fiberscope.geometry.engines.planar.exact import pool_signs
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, Node, PiecewiseLinear, moved
from fiberscope.network.operators import Sparse
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.floats import IntArray, SignArray


class Pooling(NamedTuple):
    """A pool and the columns of its comparisons and of its own entries among the signs of :func:`compared`."""

    node: MaxPool
    pairs: slice
    entries: slice


def compared(net: Network) -> tuple[Network, tuple[Pooling, ...]]:
    """The same function, with all pairs of inputs of each window compared before the pool."""
    nodes: list[Node] = []
    place = {0: 0}
    for index, node in enumerate(net.nodes):
        sources = tuple(place[s] for s in node.sources)
        if isinstance(node, MaxPool):
            count = node.num_cuts
            if count:
                nodes.append(Affine(sources[0], Sparse(_differences(node.pairs, int(np.prod(node.in_shape))))))
                nodes.append(PiecewiseLinear(len(nodes), np.zeros(count), (count,)))
        nodes.append(moved(node, sources))
        place[index + 1] = len(nodes)
    found = Network.from_nodes(nodes, net.input_shape)
    pools = [(at, at.node) for at in found.layout.places if isinstance(at.node, MaxPool)]
    return found, tuple(Pooling(node, slice(at.start - node.num_cuts, at.start), at.columns) for at, node in pools)


def _differences(pairs: IntArray, size: int) -> scipy.sparse.csr_array:
    count = len(pairs)
    values = np.tile([1.0, -1.0], count)
    return scipy.sparse.csr_array((values, (np.repeat(np.arange(count), 2), pairs.ravel())), shape=(count, size))


def coarsened(cells: Cells, net: Network, pools: Sequence[Pooling], reached: int) -> Cells:
    """The complex of ``net`` from that of its :func:`compared`, of which ``reached`` signs are known."""
    assert cells.domain_signs is not None
    sides = cells.domain_signs.shape[1]
    joint = replace(cells, vertex_signs=np.hstack([cells.domain_signs, cells.vertex_signs]))
    dimensions = range(cells.dimension + 1)
    rows = [np.hstack([(s := joint.signs(k))[:, :sides], _entries(s[:, sides:], pools, reached)]) for k in dimensions]
    owner, dim = _owners(rows)
    number = np.full(len(dim), -1)
    for k in dimensions:  # in the order in which their fine cells come
        found, first = np.unique(owner[k][dim[owner[k]] == k], return_index=True)
        number[found[np.argsort(first)]] = np.arange(len(found))
    boundary = tuple(_facets(cells.boundary[k - 1], k, owner, dim, number) for k in dimensions[1:])
    if cells.dimension == 2:
        kernels.around_polygons(boundary[1].indptr, boundary[1].indices, boundary[0].indices)
    kept = np.flatnonzero(dim[owner[0]] == 0)
    return replace(
        cells,
        points=cells.points[kept],
        vertex_signs=np.ascontiguousarray(rows[0][kept, sides:]),
        boundary=boundary,
        rays=None,
        domain_signs=cells.domain_signs[kept],
        point_errors=None if cells.point_errors is None else cells.point_errors[kept],
        pools=pool_layout(net.layout),
    )


def _entries(signs: SignArray, pools: Sequence[Pooling], reached: int) -> SignArray:
    """Signs of the network from those with comparisons; 0 for pools whose inputs are not all compared."""
    signs, keep = signs.copy(), np.ones(signs.shape[1], dtype=bool)
    for pool in pools:
        pairs = np.ascontiguousarray(signs[:, pool.pairs])
        signs[:, pool.entries] = pool_signs(pool.node, pairs) if pool.pairs.stop <= reached else 0
        keep[pool.pairs] = False
    return np.asarray(signs[:, keep])


def _owners(rows: Sequence[SignArray]) -> tuple[list[IntArray], IntArray]:
    """For the cells of every dimension which sign vector they have, and for each of these its largest dimension."""
    table = np.concatenate(rows)
    words = np.ascontiguousarray(table).view(np.dtype((np.void, table.shape[1]))).ravel()
    _, inverse = np.unique(words, return_inverse=True)
    owner = np.split(inverse.ravel(), np.cumsum([len(part) for part in rows])[:-1])
    dim = np.zeros(int(inverse.max()) + 1, dtype=np.int64)
    for k, part in enumerate(owner):
        dim[part] = k
    return owner, dim


def _facets(fine: Incidence, k: int, owner: Sequence[IntArray], dim: IntArray, number: IntArray) -> Incidence:
    """The facets of the ``k``-cells: what facets of fine cells belong to, unless it is a ``k``-cell itself."""
    cell = np.repeat(owner[k], np.diff(fine.indptr))
    facet = owner[k - 1][fine.indices]
    used = (dim[cell] == k) & (dim[facet] == k - 1)
    size = int((dim == k - 1).sum())
    pairs = np.unique(number[cell[used]] * size + number[facet[used]])
    counts = np.bincount(pairs // size, minlength=int((dim == k).sum()))
    return Incidence(pointers(counts).astype(fine.indptr.dtype), (pairs % size).astype(fine.indices.dtype))
