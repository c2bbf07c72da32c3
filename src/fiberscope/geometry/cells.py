"""A polyhedral complex as arrays: vertices, boundaries of cells of every dimension, and signs at the vertices.

All combinatorics of a complex is in two things: which cells bound which, and the certified sign of every neuron at
every vertex. The sign of a neuron is constant on the relative interior of a cell and affine on its closure, so it is
the one non-zero sign among the cell's vertices, or zero if all of them are zero. An input of a max pooling window
loses inside a cell if it loses at some vertex; of those that do not lose, a single one has sign +1, several have 0.

Arrays of the kernels: an incidence is ``indptr (cells + 1,)``, ``indices``, the members of cell c from ``indptr[c]`` to
``indptr[c + 1]``. ``_gather`` joins that of cells and facets (``outer``) with that of facets and vertices (``inner``);
``seen (vertices,)`` is the last cell that met a vertex, so each is listed once, and it runs twice: with empty
``indices`` it fills ``indptr``, then ``indices``, sorted within a cell. ``_join_signs`` has ``facet_signs (facets,
num_signs)`` and ``signs (cells, num_signs)``, zero at first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from fiberscope.network.nodes import MaxPool, PiecewiseLinear, Switch
from fiberscope.numerics.arrays import pointers, ranks_within
from fiberscope.numerics.compiling.kernels import strict
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray

if TYPE_CHECKING:
    from fiberscope.network.layout import Layout

Pools = tuple[tuple[int, int, int], ...]
"""Where the pooling windows stand in a sign vector: ``(first entry, windows, inputs per window)``."""


def pool_layout(layout: Layout) -> Pools:
    """The pooling windows among the switches of a network."""
    pools = [(place.start, place.node) for place in layout.places]
    return tuple((start, *node.windows.shape) for start, node in pools if isinstance(node, MaxPool))


def winner_signs(lost: BoolArray, size: int) -> SignArray:
    """Signs of the entries of pooling windows, ``(cells, windows * size)``, from which of them lose on a cell.

    One winner has +1, several have 0. There may be no cells at all.

    >>> winner_signs(np.array([[True, False], [False, False]]), 2).tolist()
    [[-1, 1], [0, 0]]
    >>> winner_signs(np.zeros((0, 2), dtype=bool), 2).shape
    (0, 2)
    """
    shaped = lost.reshape(len(lost), lost.shape[1] // size, size)
    single = (~shaped).sum(axis=2, keepdims=True) == 1
    return np.where(shaped, -1, single).astype(np.int8).reshape(lost.shape)


def cell_signs(node: Switch, low: SignArray, high: SignArray) -> SignArray:
    """Signs of a switch on cells, ``(cells, num_signs)``, from the least and the largest ones at their vertices."""
    match node:
        case PiecewiseLinear():
            return np.asarray(np.clip(low + high, -1, 1)[:, : node.num_signs])
        case MaxPool():
            return winner_signs(low < 0, node.window_size)
        case _:
            assert_never(node)


@dataclass(frozen=True, slots=True, eq=False)
class Incidence:
    """For every cell its facets: those of cell ``i`` are ``indices[indptr[i]:indptr[i + 1]]``."""

    indptr: IntArray
    indices: IntArray

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, cell: int) -> IntArray:
        return self.indices[self.indptr[cell] : self.indptr[cell + 1]]


_MANY = 1 << 18
"""Pairs of cells and vertices of their facets above which they are not all listed."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a complex in dimension ``d``.

    Parameters
    ----------
    points
        Float coordinates of the vertices, ``(V, d)``; for pictures and volumes, never for combinatorics.
    vertex_signs
        Certified signs at the vertices, ``(V, num_signs)``.
    boundary
        ``boundary[k - 1]`` gives the ``(k-1)``-cells that bound each ``k``-cell, for ``k = 1, ..., d``. In dimension
        two the edges of a polygon are listed in cyclic order.
    rays
        Mask over the vertices that stand for directions at infinity; their ``points`` are directions.
    exact_decisions, float_decisions
        How many signs and comparisons were decided exactly, and by the float filter alone.
    domain_signs
        Certified signs of ``A x - b`` at the vertices for the domain's sides ``A x <= b``, ``(V, sides)``: 0 on a side.
    complete
        False when the work was interrupted: then only some neurons have split the cells.
    point_errors
        Bounds of the errors of the vertices' coordinates, ``(V,)``, where they are known.
    pools
        Where max pooling windows stand in a sign vector, see :func:`pool_layout`.
    """

    points: FloatArray
    vertex_signs: SignArray
    boundary: tuple[Incidence, ...]
    rays: BoolArray | None = None
    exact_decisions: int = 0
    float_decisions: int = 0
    domain_signs: SignArray | None = None
    complete: bool = True
    point_errors: FloatArray | None = None
    pools: Pools = ()
    _vertex_cache: dict[int, Incidence] = field(default_factory=dict, init=False, repr=False)
    _sign_cache: dict[int, SignArray] = field(default_factory=dict, init=False, repr=False)

    @property
    def dimension(self) -> int:
        return len(self.boundary)

    def count(self, k: int) -> int:
        """Number of ``k``-cells."""
        return len(self.points) if k == 0 else len(self.boundary[k - 1])

    @property
    def nbytes(self) -> int:
        """Memory of points, signs and boundaries."""
        lists = sum(inside.indptr.nbytes + inside.indices.nbytes for inside in self.boundary)
        return self.points.nbytes + self.vertex_signs.nbytes + lists

    def at_infinity(self, k: int) -> BoolArray:
        """Mask of the ``k``-cells all of whose vertices are directions; they close the complex at infinity."""
        if self.rays is None:
            return np.zeros(self.count(k), dtype=bool)
        inside = self.vertices_of(k)
        return np.asarray(np.logical_and.reduceat(self.rays[inside.indices], inside.indptr[:-1]))

    def vertices_of(self, k: int) -> Incidence:
        """Vertices of every ``k``-cell, each listed once; in cyclic order for polygons of a planar complex."""
        if k not in self._vertex_cache:
            self._vertex_cache[k] = self._collect(k)
        return self._vertex_cache[k]

    def _collect(self, k: int) -> Incidence:
        if k == 0:
            n = len(self.points)
            return Incidence(np.arange(n + 1), np.arange(n))
        if k == 1:
            return self.boundary[0]
        outer, inner = self.boundary[k - 1], self.vertices_of(k - 1)
        sizes = np.diff(inner.indptr)[outer.indices]
        if k > 2 and int(sizes.sum()) > _MANY:
            return _vertices(outer, inner, len(self.points))
        owner = np.repeat(np.repeat(np.arange(len(outer)), np.diff(outer.indptr)), sizes)
        starts = np.repeat(inner.indptr[outer.indices], sizes)
        within = ranks_within(sizes)
        vertices = inner.indices[starts + within]
        if k == 2 and self.dimension == 2:
            return self._cycles(outer, vertices)
        pairs = np.unique(owner * len(self.points) + vertices)
        counts = np.bincount(pairs // len(self.points), minlength=len(outer))
        return Incidence(pointers(counts), pairs % len(self.points))

    def _cycles(self, outer: Incidence, ends: IntArray) -> Incidence:
        """Vertices of polygons from their edges in cyclic order: the one that an edge shares with the next."""
        ends = ends.reshape(-1, 2)
        following = np.arange(1, len(ends) + 1)
        following[outer.indptr[1:] - 1] = outer.indptr[:-1]
        after = ends[following]
        shared = (ends[:, 1] == after[:, 0]) | (ends[:, 1] == after[:, 1])
        return Incidence(outer.indptr, np.where(shared, ends[:, 1], ends[:, 0]))

    @cached_property
    def top_signs(self) -> SignArray:
        """Sign vectors of the top cells, ``(regions, num_signs)``."""
        return self.signs(self.dimension)

    def signs(self, k: int) -> SignArray:
        """Sign vectors of the ``k``-cells, ``(cells, num_signs)``."""
        if k == 0:
            return self.vertex_signs
        if k not in self._sign_cache:
            inside = self.boundary[k - 1]
            signs = np.zeros((len(inside), self.vertex_signs.shape[1]), dtype=np.int8)
            _join_signs(inside.indptr, inside.indices, self.signs(k - 1), signs)
            for start, windows, size in self.pools:
                entries = slice(start, start + windows * size)
                signs[:, entries] = winner_signs(signs[:, entries] < 0, size)
            # What lies deep inside is only a step on the way; regions and their facets are asked for again.
            for deep in [j for j in self._sign_cache if j < self.dimension - 1]:
                del self._sign_cache[deep]
            self._sign_cache[k] = signs
        return self._sign_cache[k]


def _vertices(outer: Incidence, inner: Incidence, count: int) -> Incidence:
    """Vertices of cells from those of their facets, in order, without a list of all pairs."""
    indptr = np.zeros(len(outer) + 1, dtype=np.int64)
    seen = np.full(count, -1, dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int64)
    _gather(outer.indptr, outer.indices, inner.indptr, inner.indices, seen, indptr, nothing)
    seen[:], indices = -1, np.empty(int(indptr[-1]), dtype=np.int64)
    _gather(outer.indptr, outer.indices, inner.indptr, inner.indices, seen, indptr, indices)
    return Incidence(indptr, indices)


@strict
def _gather(
    outer_ptr: Any, outer: Any, inner_ptr: Any, inner: Any, seen: Any, indptr: Any, indices: Any
) -> None:  # fmt: skip
    """Count the vertices of every cell, or write them where there is room; ``seen`` has the last cell of a vertex."""
    for c in range(len(outer_ptr) - 1):
        end = indptr[c]
        for i in range(outer_ptr[c], outer_ptr[c + 1]):
            for j in range(inner_ptr[outer[i]], inner_ptr[outer[i] + 1]):
                v = inner[j]
                if seen[v] != c:
                    seen[v] = c
                    if len(indices):
                        indices[end] = v
                    end += 1
        if len(indices):
            indices[indptr[c] : end].sort()
        else:
            indptr[c + 1] = end


@strict
def _join_signs(indptr: Any, indices: Any, facet_signs: Any, signs: Any) -> None:
    """The one non-zero sign among the facets of every cell; -1 and 1 never meet, so their bits can be joined."""
    for c in range(len(indptr) - 1):
        own = signs[c]
        for k in range(indptr[c], indptr[c + 1]):
            other = facet_signs[indices[k]]
            for j in range(len(own)):
                own[j] |= other[j]
