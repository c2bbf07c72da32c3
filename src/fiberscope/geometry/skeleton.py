"""Vertices, edges and their sign vectors alone: edge subdivision, for when the faces above are too many to keep.

A neuron that crosses a polygon crosses two of its edges (in general position), and joins the two new vertices by a new
edge. A polygon need not be stored for that: it is known by its sign vector, and that of an edge on it differs in one
entry only, which is zero on the edge (A. Berzins, *Polyhedral complex extraction from ReLU networks using edge
subdivision*, 2023). Here sign vectors meet in a hash table of sums of random words, and what would not be safe is seen:
every polygon must be met exactly twice, and every vertex must lie on exactly n hyperplanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from fiberscope.errors import InputError, NotGenericError
from fiberscope.geometry import lattice_kernels as kernels
from fiberscope.geometry.domains import Domain, Plane
from fiberscope.geometry.lattice import LatticeBuilder, Progress, check_supported, deferred_interrupt, start_cells
from fiberscope.geometry.lattice_levels import Layer
from fiberscope.geometry.lattice_start import Start, on_slice
from fiberscope.network.network import Network
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray, gamma, round_up
from fiberscope.numerics.points import to_dyadic


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


def skeleton(net: Network, domain: Domain) -> Skeleton:
    """Vertices and edges of the complex of ``net`` on a bounded domain.

    Raises :class:`NotGenericError` where a vertex lies on more than n hyperplanes; :func:`fiberscope.regions` builds
    the whole complex there.

    >>> from fiberscope.geometry.domains import Box
    >>> skeleton(Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]]), Box.cube(2))
    Skeleton(9 vertices, 12 edges)
    """
    builder = _built(net, domain, None)
    edges = builder.levels[1]
    return Skeleton(
        points=builder.inputs.value,
        edges=edges.pool[: 2 * edges.count].reshape(-1, 2).copy(),
        vertex_signs=np.ascontiguousarray(builder.signs[: builder.num_vertices, builder.sides :]),
        exact_decisions=builder.exact_decisions,
    )


def count_by_skeleton(net: Network, domain: Domain, progress: Progress | None = None) -> tuple[int, bool]:
    """The number of regions on a bounded domain, from vertices and edges alone, and whether all neurons were reached.

    Every region has one lowest vertex in the direction of a linear function that is constant on no edge. At a vertex in
    general position a region is a choice of one edge along each of n curves; the vertex is its lowest if all of these
    edges rise. So the number of regions is the sum over the vertices of the products of the numbers of rising edges.

    >>> from fiberscope.geometry.domains import Box
    >>> count_by_skeleton(Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), np.zeros(1)]), Box.cube(3))
    (8, True)
    """
    builder = _built(net, domain, progress)
    edges = builder.levels[1]
    ends = edges.pool[: 2 * edges.count].reshape(-1, 2)
    rises = _rises(builder, ends)
    signs = builder.signs[: builder.num_vertices, : builder.reached]
    return int(_lowest_vertices(ends, rises, signs, builder.n)), builder.complete


def _built(net: Network, domain: Domain, progress: Progress | None) -> _SkeletonBuilder:
    if isinstance(domain, Plane):
        net, domain = on_slice(net, domain)
    check_supported(net, domain)
    start = start_cells(net, domain)
    if not start.bounded:
        raise InputError(f"skeleton: expected a bounded domain, got {domain}")
    builder = _SkeletonBuilder(net, start)
    with deferred_interrupt() as interrupted:
        builder.run(progress, None, interrupted)
    builder.check_simple()
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


class _SkeletonBuilder(LatticeBuilder):
    """A lattice of two levels; polygons are found by their signs."""

    def __init__(self, net: Network, start: Start) -> None:
        super().__init__(net, start)
        self.n = self.dimension
        self.levels = self.levels[:2]
        # Any words would do; these are fixed so that a run can be repeated.
        words = np.random.default_rng(20230501).integers(0, 2**63, (self.signs.shape[1], 3), dtype=np.int64)
        self.words = words.view(np.uint64)

    def status(self) -> str:
        """How far the work is, in words."""
        return f"{self.num_vertices} vertices"

    def split(self, bit: int, column: int, block: IntArray, layer: Layer) -> None:
        """Cut the edges that the neuron crosses, and join the new vertices that share a polygon."""
        edges, vertices = self.levels[1], self.levels[0]
        crossed = self.crossed(edges, bit)
        if not len(crossed):
            return
        first, count = vertices.count, len(crossed)
        ends = edges.pool.reshape(-1, 2)[crossed]
        vertices.reserve(count, 0)
        edges.reserve(count, 2 * count)
        self.cut(crossed, bit, column, block, layer)
        vertices.count += count
        edges.count += count
        kernels.forget(crossed, edges.masks)
        pairs = np.empty((count * (self.n - 1), 2), dtype=np.int32)
        size = 1 << int(4 * count * max(1, self.n - 1)).bit_length()
        found = _join(ends, self.signs, column, self.sides, self.words, first, self.n - 1, np.zeros(size, np.uint64),
                      np.zeros(size, np.int32), pairs)  # fmt: skip
        if found < 0:
            raise NotGenericError(
                "skeleton: expected edges and polygons in general position, got a vertex on too many hyperplanes"
            )
        self._add_edges(pairs[:found])

    def _add_edges(self, pairs: Any) -> None:
        edges, vertices = self.levels[1], self.levels[0]
        first, last = edges.count, edges.count + len(pairs)
        edges.reserve(len(pairs), 2 * len(pairs))
        self.grow_carrier()
        edges.pool[2 * first : 2 * last] = pairs.reshape(-1)
        edges.start[first:last], edges.length[first:last] = 2 * np.arange(first, last), 2
        self.carrier[first:last] = pairs
        _new_edges(first, last, edges.pool, vertices.masks, edges.masks, edges.head, edges.link)
        edges.count, edges.used = last, 2 * last

    def check_simple(self) -> None:
        """Raise unless every vertex lies on exactly n hyperplanes, sides of the domain included."""
        zeros = (self.signs[: self.num_vertices, : self.reached] == 0).sum(axis=1)
        if (zeros != self.n).any():
            v = int(np.flatnonzero(zeros != self.n)[0])
            where = np.flatnonzero(self.signs[v, self.sides :] == 0).tolist()
            raise NotGenericError(f"skeleton: expected {self.n} hyperplanes at every vertex, got {zeros[v]}: {where}")


@numba.njit(cache=True)
def _new_edges(first: int, last: int, ends: Any, vertex_mask: Any, masks: Any, head: Any, link: Any) -> None:
    for e in range(first, last):
        for k in range(3):
            masks[e, k] = vertex_mask[ends[2 * e], k] | vertex_mask[ends[2 * e + 1], k]
        masks[e, 3] = 0
        kernels.enlist(e, masks, head, link)


@numba.njit(cache=True)
def _join(
    ends: Any, signs: Any, upto: int, sides: int, words: Any, first: int, codimension: int, keys: Any,
    found: Any, pairs: Any,
) -> int:  # fmt: skip
    """Pairs of new vertices on one polygon each; -1 if some polygon is not met exactly twice.

    An edge lies on ``codimension`` hyperplanes, or else -1 is returned too, before the table can overflow.

    ``keys`` and ``found`` are a hash table: the polygon's key, and 1 + the vertex that met it first, or -1 when a
    second one came.
    """
    cover = len(keys) - 1
    count = met = 0
    zeros = np.empty(signs.shape[1], dtype=np.int64)
    for q in range(len(ends)):
        u, v = ends[q, 0], ends[q, 1]
        key = np.uint64(0)
        many = 0
        for j in range(upto):
            sign = signs[u, j] | signs[v, j]
            key += words[j, sign + 1]
            if sign == 0:
                zeros[many] = j
                many += 1
        if many != codimension:
            return -1
        for k in range(many):
            j = zeros[k]
            for side in (-1, 1):
                if side > 0 and j < sides:
                    continue
                face = key - words[j, 1] + words[j, side + 1]
                face = face if face else np.uint64(1)
                place = np.int64(face & np.uint64(cover))
                while keys[place] and keys[place] != face:
                    place = (place + 1) & cover
                met += 1
                if not keys[place]:
                    keys[place] = face
                    found[place] = first + q + 1
                elif found[place] < 0 or count == len(pairs):
                    return -1
                else:
                    pairs[count, 0], pairs[count, 1] = found[place] - 1, first + q
                    count += 1
                    found[place] = -1
    return count if met == 2 * count else -1


@numba.njit(cache=True)
def _lowest_vertices(ends: Any, rises: Any, signs: Any, n: int) -> int:
    """Sum over the vertices of the products, over the hyperplanes at each, of the edges that rise out of them."""
    count = len(signs)
    place = np.full((count, n), -1, dtype=np.int32)
    for v in range(count):
        k = 0
        for j in range(signs.shape[1]):
            if signs[v, j] == 0:
                place[v, k] = j
                k += 1
    rising = np.zeros((count, n), dtype=np.int32)
    for e in range(len(ends)):
        low, high = (ends[e, 0], ends[e, 1]) if rises[e] else (ends[e, 1], ends[e, 0])
        for k in range(n):
            if signs[high, place[low, k]] != 0:
                rising[low, k] += 1
                break
    total = 0
    for v in range(count):
        product = 1
        for k in range(n):
            product *= rising[v, k]
        total += product
    return total
