"""Vertices, edges and their sign vectors alone: edge subdivision, for when the faces above are too many to keep.

A neuron that crosses a polygon crosses two of its edges (in general position), and joins the two new vertices by a new
edge. A polygon need not be stored for that: it is known by its sign vector, and that of an edge on it differs in one
entry only, which is zero on the edge (A. Berzins, *Polyhedral complex extraction from ReLU networks using edge
subdivision*, 2023). Here sign vectors meet in a hash table of sums of random words, and what would not be safe is seen:
every polygon must be met exactly twice, and every vertex must lie on exactly n hyperplanes.

Arrays, for V vertices, E edges and s columns of signs, sides of the domain first: ``ends``, ``carrier (E, 2)`` are the
vertices of an edge, and those of the edge that it was cut from in this layer; ``signs (V, s)``, of which the first
``upto`` are decided; ``vertex_masks (V, 4)``, ``masks (E, 4)`` and ``heads (2, 32)`` as in
:mod:`fiberscope.geometry.engines.lattice.kernels`: bits of the neurons of a block, and the next edge in the list of the
first neuron across it. ``words (s, 3)`` are random, one for each sign of each column; their sum over the columns names
a polygon, made odd, since 0 is an empty slot. ``keys``, ``found`` are the table of the polygons, at most half
full: its length is a power of two, and the slot after the last is the first. Invariants: the sign of an edge is that of
its ends joined by bits, -1 and 1 never meet; new vertices ``first, ...`` stand in the order of the edges they cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fiberscope.errors import InputError, NotGenericError, TooLargeError
from fiberscope.geometry.engines.lattice import kernels
from fiberscope.geometry.engines.lattice.exact import Start
from fiberscope.geometry.engines.lattice.layers import LayerStep, LayerWalk, deferred_interrupt
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import grown
from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray, gamma, round_up
from fiberscope.numerics.points import to_dyadic
from fiberscope.run import ENDLESS, Run

_MOST_EDGES = (1 << 31) - 8

_BLOCK = 32
"""Neurons that are done together: each is one bit of the masks."""

_END = np.uint32(0xFFFFFFFF)
"""Behind the last edge of a list."""

_LOWEST = np.zeros(32, dtype=np.uint8)
_LOWEST[[((1 << b) * 0x077CB531 & 0xFFFFFFFF) >> 27 for b in range(32)]] = range(32)


@dataclass(frozen=True, slots=True, eq=False)
class Skeleton:
    """Vertices ``(V, n)``, edges ``(E, 2)`` by their ends, and certified signs ``(V, num_signs)`` at the vertices."""

    points: FloatArray
    edges: Any
    vertex_signs: SignArray
    exact_decisions: int = 0

    @property
    def edge_signs(self) -> SignArray:
        """Sign vectors of the edges: of both ends, where one is zero that of the other."""
        a, b = self.edges.T
        return np.asarray(self.vertex_signs[a] | self.vertex_signs[b])

    def __repr__(self) -> str:
        return f"Skeleton({len(self.points)} vertices, {len(self.edges)} edges)"


def skeleton(net: Network, start: Start) -> Skeleton:
    """Vertices and edges of the complex of ``net`` on the bounded domain that it starts with.

    Raises :class:`NotGenericError` where a vertex lies on more than n hyperplanes, and where inputs are pooled;
    :func:`fiberscope.regions` builds the whole complex there.

    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.engines.lattice.start import box_start
    >>> skeleton(Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]]), box_start(Box.cube(2)))
    Skeleton(9 vertices, 12 edges)
    """
    builder = _built(net, start, ENDLESS)
    builder.check_simple()
    return Skeleton(
        points=builder.inputs.value,
        edges=builder.ends.copy(),
        vertex_signs=np.ascontiguousarray(builder.signs[: builder.num_vertices, builder.sides :]),
        exact_decisions=builder.exact_decisions,
    )


def count_by_skeleton(net: Network, start: Start, run: Run = ENDLESS) -> tuple[int, bool]:
    """The number of regions on a bounded domain, from vertices and edges alone, and whether all neurons were reached.

    Every region has one lowest vertex in the direction of a linear function that is constant on no edge. At a vertex in
    general position a region is a choice of one edge along each of n curves; the vertex is its lowest if all of these
    edges rise. So the number of regions is the sum over the vertices of the products of the numbers of rising edges.

    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.engines.lattice.start import box_start
    >>> count_by_skeleton(Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), np.zeros(1)]), box_start(Box.cube(3)))
    (8, True)
    """
    builder = _built(net, start, run)
    # Every vertex lies on n hyperplanes, and an edge leaves exactly one of them.
    place = builder.check_simple() % builder.reached
    ends = builder.ends
    rises = _rises(builder, ends)
    signs = builder.signs[: builder.num_vertices, : builder.reached]
    rising = np.zeros_like(place)
    _rising(ends, rises, signs, place, rising)
    return int(rising.prod(axis=1).sum()), builder.complete


def _built(net: Network, start: Start, run: Run) -> _SkeletonBuilder:
    if net.layout.pooled.any():
        raise NotGenericError("skeleton: expected activations only, got max pooling, whose walls end on each other")
    if not start.bounded:
        raise InputError("skeleton: expected a bounded domain, got one with directions at infinity")
    builder = _SkeletonBuilder(net, start)
    with deferred_interrupt() as interrupted:
        builder.walk(replace(run, limit=None), interrupted)
    return builder


def _rises(builder: _SkeletonBuilder, ends: Any) -> BoolArray:
    """Whether a linear function in a general direction grows along every edge, proven."""
    weights = np.sqrt(2.0 + np.arange(builder.n))  # floats, and as good as independent
    value, error = builder.inputs.value, builder.inputs.error
    height = value @ weights
    slip = round_up((error + gamma(builder.n + 1) * np.abs(value)) @ weights, builder.n + 3)
    a, b = ends.T
    step = height[b] - height[a]
    rises = step > 0
    room = round_up(slip[a] + slip[b] + gamma(1) * np.abs(step), 3)
    scale, exponent = to_dyadic(weights)
    del exponent
    for e in np.flatnonzero(~(np.abs(step) > room)):
        low, high = (builder.exact.point(int(v)) for v in ends[e])
        there = sum(int(w) * x for w, x in zip(scale, high, strict=False)) * low[-1]
        here = sum(int(w) * x for w, x in zip(scale, low, strict=False)) * high[-1]
        if there == here:
            raise NotGenericError("count: a direction that was meant to be general is not")
        rises[e] = there > here
    return np.asarray(rises)


class _SkeletonBuilder(LayerWalk):
    """Vertices and edges, split neuron by neuron; polygons are found by their signs."""

    def __init__(self, net: Network, start: Start) -> None:
        super().__init__(net, start)
        self.n = len(start.boundary)
        self.edges = np.array(start.boundary[0], dtype=np.int32)
        self.num_edges = len(self.edges)
        self.carrier = self.edges.copy()
        self.masks = np.zeros((self.num_edges, 4), dtype=np.uint32)
        self.vertex_masks = np.zeros((self.num_vertices, 4), dtype=np.uint32)
        # Any words would do; these are fixed so that a run can be repeated.
        words = np.random.default_rng(20230501).integers(0, 2**63, (self.signs.shape[1], 3), dtype=np.int64)
        self.words = words.view(np.uint64)

    @property
    def status(self) -> str:
        return f"{self.num_vertices} vertices"

    @property
    def size(self) -> int:
        return self.num_vertices

    @property
    def ends(self) -> Any:
        """The vertices of every edge, ``(edges, 2)``."""
        return self.edges[: self.num_edges]

    def reset_carriers(self) -> None:
        self.carrier[: self.num_edges] = self.ends

    def split_layer(self, layer: LayerStep) -> Iterator[int]:
        """Split by one neuron after the other, 32 of them at work at a time."""
        signs = self.signs[: self.num_vertices, layer.begin : layer.end]
        both = np.flatnonzero((signs > 0).any(axis=0) & (signs < 0).any(axis=0)) + layer.begin
        for first in range(0, len(both), _BLOCK):
            block = both[first : first + _BLOCK]
            layer = self.without_done(layer, int(block[0]) - layer.begin)
            heads = np.full((2, _BLOCK), _END, dtype=np.uint32)
            self._enlist(0, np.arange(self.num_edges, dtype=np.int32), block, heads)
            for bit, column in enumerate(block.tolist()):
                self._split(bit, column, block, heads, layer)
                yield column

    def _split(self, bit: int, column: int, block: IntArray, heads: Any, layer: LayerStep) -> None:
        """Cut the edges that the neuron crosses, and join the new vertices that share a polygon."""
        crossed = np.empty(self.num_edges, dtype=np.int32)
        crossed = crossed[: _listed(heads[1, bit], self.masks, crossed)]
        if not len(crossed):
            return
        first, count = self.num_vertices, len(crossed)
        ends = self.edges[crossed]
        self._reserve(first + count, self.num_edges + count)
        self.num_vertices += count
        self.float_decisions += count
        if _cut_edges(ends, self.carrier[crossed], first, column, layer.columns, *self.vertices):
            unsure = (self.signs[first : first + count, : layer.end] == kernels.UNKNOWN).any(axis=1)
            self.exact_decisions += self.decide_signs(first + np.flatnonzero(unsure), layer)
        made = self.num_edges
        self._halve(crossed, ends, column)
        self._join(ends, column)
        self._enlist(first, np.concatenate([crossed, np.arange(made, self.num_edges, dtype=np.int32)]), block, heads)

    def _halve(self, crossed: Any, ends: Any, column: int) -> None:
        """Cut edges at the last vertices; an edge keeps its positive part, a new one gets the other."""
        count = len(crossed)
        points = np.arange(self.num_vertices - count, self.num_vertices)
        ahead = self.signs[ends[:, 0], column] > 0
        part = slice(self.num_edges, self.num_edges + count)
        self.edges[crossed, 0], self.edges[crossed, 1] = np.where(ahead, ends[:, 0], ends[:, 1]), points
        self.edges[part, 0], self.edges[part, 1] = points, np.where(ahead, ends[:, 1], ends[:, 0])
        self.carrier[part] = self.carrier[crossed]
        self.num_edges += count

    def _join(self, ends: Any, column: int) -> None:
        """New edges between the last vertices, where two of them lie on one polygon."""
        count = len(ends)
        pairs = np.empty((count * (self.n - 1), 2), dtype=np.int32)
        size = 1 << int(4 * count * max(1, self.n - 1)).bit_length()
        found = _join(ends, self.signs, column, self.sides, self.words, self.num_vertices - count,
                      np.empty(self.n, np.int64), np.zeros(size, np.uint64), np.zeros(size, np.int32),
                      pairs)  # fmt: skip
        if found < 0:
            raise NotGenericError(
                "skeleton: expected edges and polygons in general position, got a vertex on too many hyperplanes"
            )
        part = slice(self.num_edges, self.num_edges + found)
        self._reserve(self.num_vertices, part.stop)
        self.edges[part] = self.carrier[part] = pairs[:found]
        self.num_edges += found

    def _enlist(self, first: int, edges: Any, block: IntArray, heads: Any) -> None:
        """Masks of vertices ``first, ...`` and of these edges, each put on the list of the first neuron across it."""
        _mask(first, self.num_vertices, edges, self.signs, block, self.edges, self.vertex_masks, self.masks, heads)

    def _reserve(self, vertices: int, edges: int) -> None:
        if edges > _MOST_EDGES:
            raise TooLargeError(f"a skeleton of more than {_MOST_EDGES} edges")
        self.reserve_rows(vertices)
        if vertices > len(self.vertex_masks):
            self.vertex_masks = grown(self.vertex_masks, vertices)
        if edges > min(len(self.edges), len(self.carrier), len(self.masks)):
            for name in ("edges", "carrier", "masks"):
                setattr(self, name, grown(getattr(self, name)[: self.num_edges], edges))

    def check_simple(self) -> IntArray:
        """Where the signs are zero, ``(V, n)``, counted through the rows of the table of those that were reached.

        Raises unless every vertex lies on exactly n hyperplanes, sides of the domain included.
        """
        signs = self.signs[: self.num_vertices, : self.reached]
        places = np.flatnonzero(signs == 0)  # in one dimension: in two NumPy takes ten times as long
        rows = places // self.reached
        if len(places) != self.n * len(signs) or (rows.reshape(-1, self.n) != np.arange(len(signs))[:, None]).any():
            zeros = np.bincount(rows, minlength=len(signs))
            v = int(np.flatnonzero(zeros != self.n)[0])
            where = np.flatnonzero(self.signs[v, self.sides :] == 0).tolist()
            raise NotGenericError(f"skeleton: expected {self.n} hyperplanes at every vertex, got {zeros[v]}: {where}")
        return places.reshape(-1, self.n)


@inner
def _enlist(cell: int, dimension: int, masks: Any, heads: Any) -> None:
    """Put the cell on the list of the first neuron that crosses it, if any."""
    crossed = masks[cell, 0] & masks[cell, 1]
    masks[cell, 3] = 0
    if crossed:
        lowest = np.uint32(crossed & (~crossed + np.uint32(1)))
        bit = _LOWEST[np.uint32(lowest * np.uint32(0x077CB531)) >> np.uint32(27)]
        masks[cell, 3] = heads[dimension, bit]
        heads[dimension, bit] = cell


@inner
def _row_masks(row: int, signs: Any, columns: Any, node: int, masks: Any) -> None:
    """Masks of the vertex in this row: bit b is the sign in column ``columns[b]``."""
    masks[node, 0] = masks[node, 1] = masks[node, 2] = masks[node, 3] = 0
    for b in range(len(columns)):
        sign = signs[row, columns[b]]
        masks[node, 0 if sign > 0 else 1 if sign < 0 else 2] |= np.uint32(1) << np.uint32(b)


@kernel
def _mask(
    first: int, last: int, edges: Any, signs: Any, columns: Any, ends: Any, vertex_masks: Any, masks: Any, heads: Any
) -> None:
    for v in range(first, last):
        _row_masks(v, signs, columns, v, vertex_masks)
    for q in range(len(edges)):
        e = np.int64(edges[q])
        for k in range(2):
            masks[e, k] = vertex_masks[ends[e, 0], k] | vertex_masks[ends[e, 1], k]
        _enlist(e, 1, masks, heads)


@kernel
def _listed(edge: Any, masks: Any, out: Any) -> int:
    """Write the list that begins with this edge to ``out``; returns its length."""
    count = 0
    while edge != _END:
        out[count] = edge
        count += 1
        edge = masks[edge, 3]
    return count


@kernel
def _cut_edges(
    ends: Any, carrier: Any, first: int, column: int, layer: Any, table: Any, error: Any, signs: Any, parents: Any
) -> bool:
    """New vertices ``first, ...``, one on each of the edges; returns whether a sign is open."""
    is_open = False
    for q in range(len(ends)):
        u, v, cu, cv = np.int64(ends[q, 0]), np.int64(ends[q, 1]), np.int64(carrier[q, 0]), np.int64(carrier[q, 1])
        is_open |= kernels.new_vertex(u, v, cu, cv, first + q, column, layer, table, error, signs, parents)
    return is_open


@kernel
def _join(
    ends: Any, signs: Any, upto: int, sides: int, words: Any, first: int, zeros: Any, keys: Any, found: Any,
    pairs: Any,
) -> int:  # fmt: skip
    """Pairs of new vertices on one polygon each; -1 if some polygon is not met exactly twice.

    An edge lies on n - 1 hyperplanes, or else -1 is returned too, before the table can overflow; ``zeros`` is room
    for n of them.

    ``keys`` and ``found`` are a hash table: the polygon's key, which is odd, and the vertex that met it first, or -1
    when a second one came.
    """
    cover = np.uint64(len(keys) - 1)
    count = lonely = 0
    for q in range(len(ends)):
        u, v = ends[q, 0], ends[q, 1]
        key = np.uint64(0)
        many = 0
        for j in range(upto):
            sign = signs[u, j] | signs[v, j]
            key += words[j, sign + 1]
            if sign == 0 and many < len(zeros):
                zeros[many] = j
                many += 1
        if many != len(zeros) - 1:
            return -1
        for k in range(2 * many):
            j, side = zeros[k >> 1], k & 1
            if side and j < sides:
                continue
            face = key - words[j, 1] + words[j, 2 * side] | np.uint64(1)
            place = face >> np.uint64(1) & cover
            while keys[place] and keys[place] != face:
                place = place + np.uint64(1) & cover
            if not keys[place]:
                keys[place] = face
                found[place] = first + q
                lonely += 1
            elif found[place] < 0:
                return -1
            else:
                pairs[count, 0] = found[place]
                pairs[count, 1] = first + q
                found[place] = -1
                count += 1
    return count if lonely == count else -1


@kernel
def _rising(ends: Any, rises: Any, signs: Any, place: Any, rising: Any) -> None:
    """Count the edges that rise out of every hyperplane at every vertex; ``place`` are its columns of the signs."""
    for e in range(len(ends)):
        low = ends[e, 0] if rises[e] else ends[e, 1]
        high = ends[e, 1] if rises[e] else ends[e, 0]
        for k in range(place.shape[1]):
            if signs[high, place[low, k]] != 0:
                rising[low, k] += 1
                break
