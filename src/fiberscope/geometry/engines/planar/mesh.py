"""The mesh of the planar engine: shared vertices, edges and convex polygons, and how pooled faces are joined.

:class:`Polygons` is what a switch cuts; :class:`Arrangement`, with :class:`Crossings` and :class:`Meetings`, is what
was decided about it: integers, and parameters with bounds for the values at new vertices. Polygons are convex loops,
counter-clockwise; every edge has one or two polygons beside it, which run along it in opposite directions.

The one kernel, ``_outlines``, follows half-edges: entry i of ``loop_e`` is the half-edge of its polygon along edge
``edge[i]``, ``following[i]`` the next one of the same polygon and ``twin[i]`` the one on the other side. Out come the
entries that stay, loop by loop, cut by ``indptr``. Invariant: ``following`` is a permutation, and a spurious edge has
polygons on both sides, so every outline closes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cmp_to_key
from typing import Any

import flint
import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.errors import InputError
from fiberscope.geometry.engines.planar.faces import lowest_signs, same_losers
from fiberscope.geometry.engines.planar.tracked import Tracked
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.compiling.kernels import strict
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray, U
from fiberscope.numerics.points import Triple, cross, dot, integer_rows, quotient, sign


@dataclass(slots=True, eq=False)
class Polygons:
    """Convex polygons with shared edges and vertices.

    Edge ``loop_e[i]`` of a polygon joins ``loop_v[i]`` with the next vertex of its loop, counter-clockwise. ``line``
    says on which line an edge lies and ``defined`` by which lines a vertex is defined, see
    :class:`~.exact.Oracle`. ``sides`` are the signs of the domain's sides at the vertices,
    ``signs`` those of every switch so far; ``values`` are the values of the program that are still needed. Edges from
    ``num_refined`` on are new. ``root`` says in which polygon of the first mesh each one lies, None if that was one.
    """

    ends: IntArray
    line: IntArray
    indptr: IntArray
    loop_v: IntArray
    loop_e: IntArray
    defined: IntArray
    sides: SignArray
    signs: list[SignArray] = field(default_factory=list)
    values: dict[int, Tracked] = field(default_factory=dict)
    num_refined: int = 0
    root: IntArray | None = None
    _polygon_of_edge: IntArray | None = None

    @property
    def num_vertices(self) -> int:
        return len(self.defined)

    @property
    def num_polygons(self) -> int:
        return len(self.indptr) - 1

    @property
    def owners(self) -> IntArray:
        """Polygon of every loop entry."""
        return np.repeat(np.arange(self.num_polygons), np.diff(self.indptr))

    @property
    def polygon_of_edge(self) -> IntArray:
        """One of the polygons beside every edge."""
        if self._polygon_of_edge is None:
            found = np.empty(len(self.ends), dtype=np.int64)
            found[self.loop_e] = self.owners
            self._polygon_of_edge = found
        return self._polygon_of_edge

    def copy(self, values: dict[int, Tracked]) -> Polygons:
        """The same mesh with other values."""
        return replace(self, values=values, num_refined=len(self.ends))

    def part(self, lo: int, hi: int) -> Polygons:
        """The mesh of the polygons ``lo`` to ``hi - 1`` alone."""
        here = slice(int(self.indptr[lo]), int(self.indptr[hi]))
        vertices, loop_v = np.unique(self.loop_v[here], return_inverse=True)
        edges, loop_e = np.unique(self.loop_e[here], return_inverse=True)
        number = np.empty(self.num_vertices, dtype=np.int64)
        number[vertices] = np.arange(len(vertices))
        return Polygons(
            number[self.ends[edges]],
            self.line[edges],
            self.indptr[lo : hi + 1] - self.indptr[lo],
            loop_v,
            loop_e,
            self.defined[vertices],
            self.sides[vertices],
            [rows[vertices] for rows in self.signs],
            {key: value.rows(vertices) for key, value in self.values.items()},
            root=None if self.root is None else self.root[lo:hi],
        )

    def refined_edges(self, point_ptr: IntArray, edge: IntArray, total: int) -> tuple[IntArray, IntArray]:
        """Ends and lines of the edges cut at their points, with room for ``total`` edges.

        Piece ``k`` of edge ``e`` is number ``e + point_ptr[e] + k``; point ``m`` is vertex ``num_vertices + m``.
        """
        ends, line = np.empty((total, 2), dtype=np.int64), np.empty(total, dtype=np.int64)
        first = np.arange(len(self.ends)) + point_ptr[:-1]
        last = first + np.diff(point_ptr)
        m = np.arange(len(edge))
        ends[first, 0], ends[last, 1] = self.ends[:, 0], self.ends[:, 1]
        ends[edge + m, 1] = ends[edge + m + 1, 0] = self.num_vertices + m
        line[: len(first) + len(edge)] = np.repeat(self.line, 1 + np.diff(point_ptr))
        return ends, line


# --- the first polygon ------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Crossings:
    """Points on the edges: those of edge ``e`` are numbered from ``point_ptr[e]`` on, in order from end to end.

    ``label[ptr[e]:ptr[e + 1]]`` are the functionals that cross the edge and ``rank`` which of its points each one
    passes. ``points`` is ``(edge, functional, t, error of t)``, one entry for every point.
    """

    ptr: IntArray
    label: IntArray
    rank: IntArray
    point_ptr: IntArray
    points: tuple[IntArray, IntArray, FloatArray, FloatArray]


@dataclass(slots=True, eq=False)
class Meetings:
    """Chords of the polygons, and the crossings on every chord in order; see :mod:`.kernels` for the terms.

    ``chords`` is ``(fun, p, q, lo, hi, num)``; chord ``k`` is met by the chords ``other[ptr[k]:ptr[k + 1]]``, at its
    point ``rank``, which is number ``seen`` of the ``inside`` points of the polygon.
    """

    slot_ptr: IntArray
    chords: tuple[IntArray, ...]
    ptr: IntArray
    other: IntArray
    rank: IntArray
    t: FloatArray
    d: FloatArray
    seen: IntArray
    inside: IntArray
    segments: IntArray


@dataclass(slots=True, eq=False)
class Arrangement:
    """The decisions for one switch; ``meetings`` is None if no polygon is cut.

    The vertices at the positions of polygon ``f`` are ``at[at_ptr[f]:at_ptr[f + 1]]``; ``piece`` are the pieces of
    edges that begin there.
    """

    first: int
    signs: SignArray
    crossings: Crossings
    meetings: Meetings | None
    at: IntArray
    at_ptr: IntArray
    piece: IntArray


def assure(closed: bool) -> None:
    """All decisions are certified, so the combinatorics closes; if it does not, there is a bug, not a bad input."""
    if not closed:  # pragma: no cover - a bug by definition
        raise ArithmeticError("planar complex: certified decisions contradict each other; please report this network")


def first_mesh(sides: FloatArray) -> tuple[Polygons, FloatArray]:
    """The polygon ``a x + b y + c <= 0`` for rows ``(a, b, c)``, and its corners rounded to floats.

    Raises :class:`InputError` if it is empty, flat or unbounded. Redundant sides are left out.
    """
    rows: list[Triple] = [(flint.fmpz(a), flint.fmpz(b), flint.fmpz(c)) for a, b, c in integer_rows(sides)]
    lines = [k for k, row in enumerate(rows) if row[0] != 0 or row[1] != 0]
    if any(row[2] > 0 for row in rows if row[0] == 0 and row[1] == 0):
        raise InputError("polytope: expected a polygon, got an empty set")
    if _unbounded([rows[k] for k in lines]):
        raise InputError("polytope: expected a bounded polygon, got an unbounded or empty set")
    corners = _corners(rows, lines)
    count = len(corners)
    if count < 3:
        raise InputError(f"polytope: expected a polygon with an interior, got {count} corner(s)")
    edge_lines = []
    for k in range(count):
        a, b = corners[k], corners[(k + 1) % count]
        edge_lines.append(next(i for i in lines if dot(rows[i], a) == 0 and dot(rows[i], b) == 0))
    defined = [[0, 0, -1 - edge_lines[k - 1], -1 - edge_lines[k]] for k in range(count)]
    order = np.arange(count)
    mesh = Polygons(
        np.stack([order, (order + 1) % count], axis=1),
        -1 - np.array(edge_lines, dtype=np.int64),
        np.array([0, count]),
        order.copy(),
        order.copy(),
        np.array(defined, dtype=np.int64),
        np.array([[sign(dot(row, corner)) for row in rows] for corner in corners], dtype=np.int8),
    )
    points = np.array([[quotient(int(x), int(w)), quotient(int(y), int(w))] for x, y, w in corners])
    if not np.isfinite(points).all():
        raise InputError("polytope: expected corners within the range of floats, got one beyond")
    return mesh, points


def _unbounded(rows: list[Triple]) -> bool:
    """Whether some direction keeps all sides; if any does, one along a side does."""
    for a, b, _ in rows:
        for x, y in ((b, -a), (-b, a)):
            if all(row[0] * x + row[1] * y <= 0 for row in rows):
                return True
    return not rows


def _corners(rows: list[Triple], lines: list[int]) -> list[Triple]:
    found: dict[tuple[Any, Any], Triple] = {}
    for n, i in enumerate(lines):
        for j in lines[n + 1 :]:
            point = cross(rows[i], rows[j])
            if point[2] > 0 and all(dot(row, point) <= 0 for row in rows):
                key = (flint.fmpq(point[0], point[2]), flint.fmpq(point[1], point[2]))
                found.setdefault(key, point)
    if len(found) < 3:
        return list(found.values())
    (x0, y0), *rest = sorted(found)  # the lowest of the leftmost: all others are seen within a half-turn
    return [found[x0, y0], *(found[k] for k in sorted(rest, key=cmp_to_key(_clockwise(x0, y0))))]


def _clockwise(x0: Any, y0: Any) -> Any:
    def compare(a: Any, b: Any) -> int:
        return -sign((a[0] - x0) * (b[1] - y0) - (a[1] - y0) * (b[0] - x0))

    return compare


def corner_values(mesh: Polygons, points: FloatArray, sides: FloatArray) -> Tracked:
    """The corners as values of the program: exact where they are floats, else rounded once."""
    rows = integer_rows(sides)
    exact = []
    places = integer_rows(np.column_stack([points, np.ones(len(points))]))
    for where, (_, _, first, second) in zip(places, mesh.defined.tolist(), strict=True):
        x, y, w = cross(tuple(rows[-1 - first]), tuple(rows[-1 - second]))
        exact.append(x * where[2] == w * where[0] and y * where[2] == w * where[1])
    error = np.where(exact, 0.0, 2 * U)
    r = np.maximum(np.abs(points).max(axis=0), np.abs(points).max() * 2.0**-40)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.where(exact, 0.0, error * float(np.linalg.norm(r)) * 1.01)
    return Tracked(points, error, spread, r)


# --- max pooling --------------------------------------------------------------------------------------------------


def merged(mesh: Polygons, old_vertices: int) -> Polygons:
    """Join faces across new edges on whose two sides every window has the same winners.

    ``mesh.signs[-1]`` are the signs of the window entries at the vertices. The set where a window's winners are given
    is convex, so are the joined faces, and a new vertex that keeps two edges only lies on a straight line.
    """
    if len(mesh.ends) == mesh.num_refined:
        return mesh
    low = np.empty((mesh.num_polygons, mesh.signs[-1].shape[1]), dtype=np.int8)
    lowest_signs(mesh.indptr, mesh.loop_v, mesh.signs[-1], low)
    twin, beside = _twins(mesh)
    spurious = np.zeros(len(mesh.ends), dtype=bool)
    same_losers(beside[mesh.num_refined :], low, spurious[mesh.num_refined :])
    following = np.arange(1, len(mesh.loop_v) + 1)
    following[mesh.indptr[1:] - 1] = mesh.indptr[:-1]
    entries, indptr = _outlines(mesh.loop_e, following, twin, spurious)
    degree = np.bincount(mesh.ends[~spurious].ravel(), minlength=mesh.num_vertices)
    straight = (np.arange(mesh.num_vertices) >= old_vertices) & (degree == 2)
    return _compressed(mesh, entries, indptr, spurious, straight, degree > 0)


def _twins(mesh: Polygons) -> tuple[IntArray, IntArray]:
    """The other loop entry of the same edge (or -1), and the polygons on the two sides of every edge."""
    order = np.argsort(mesh.loop_e, kind="stable")
    sorted_edges = mesh.loop_e[order]
    twin = np.full(len(order), -1)
    pair = np.flatnonzero(sorted_edges[1:] == sorted_edges[:-1])
    twin[order[pair]], twin[order[pair + 1]] = order[pair + 1], order[pair]
    beside = np.full((len(mesh.ends), 2), -1)
    owners = mesh.owners
    beside[sorted_edges[pair], 0], beside[sorted_edges[pair], 1] = owners[order[pair]], owners[order[pair + 1]]
    return twin, beside


@strict
def _outlines(edge: Any, following: Any, twin: Any, spurious: Any) -> tuple[Any, Any]:
    """Loops of the entries that stay, going round the spurious edges.

    An entry is a half-edge of a loop: ``edge (entries,)`` its edge, ``following`` the next entry of its polygon,
    ``twin`` the entry on the other side of the same edge; ``spurious (edges,)`` are edges to be taken away.
    """
    entries, indptr = [np.int64(0) for _ in range(0)], [np.int64(0)]
    done = np.zeros(edge.shape[0], dtype=np.bool_)
    for i in range(edge.shape[0]):
        if done[i] or spurious[edge[i]]:
            continue
        k = np.int64(i)
        while not done[k]:
            done[k] = True
            entries.append(k)
            k = following[k]
            while spurious[edge[k]]:  # across it the outline goes on in the polygon on the other side
                k = following[twin[k]]
        indptr.append(np.int64(len(entries)))
    return np.array(entries), np.array(indptr)


def _compressed(
    mesh: Polygons, entries: IntArray, indptr: IntArray, spurious: BoolArray, straight: BoolArray, used: BoolArray
) -> Polygons:
    """The mesh of the given loops without straight vertices; pieces of a line that they joined become one edge."""
    pieces = np.flatnonzero(~spurious)
    at = np.concatenate([mesh.ends[pieces, 0], mesh.ends[pieces, 1]])
    both = np.concatenate([pieces, pieces])[straight[at]]
    order = np.argsort(at[straight[at]], kind="stable")
    first, second = both[order][0::2], both[order][1::2]
    links = scipy.sparse.coo_array((np.ones(len(first)), (first, second)), shape=(len(mesh.ends),) * 2)
    group = scipy.sparse.csgraph.connected_components(links, directed=False)[1]
    keep = ~straight[mesh.loop_v[entries]]
    owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))[keep]
    loop_v = mesh.loop_v[entries[keep]]
    _, representative, loop_e = np.unique(group[mesh.loop_e[entries[keep]]], return_index=True, return_inverse=True)
    new_indptr = pointers(np.bincount(owner, minlength=len(indptr) - 1))
    after = np.arange(1, len(loop_v) + 1)
    after[new_indptr[1:] - 1] = new_indptr[:-1]
    vertices = np.flatnonzero(used & ~straight)
    number = np.full(mesh.num_vertices, -1)
    number[vertices] = np.arange(len(vertices))
    ends = number[np.stack([loop_v[representative], loop_v[after[representative]]], axis=1)]
    return Polygons(
        ends,
        mesh.line[mesh.loop_e[entries[keep]][representative]],
        new_indptr,
        number[loop_v],
        loop_e,
        mesh.defined[vertices],
        mesh.sides[vertices],
        [rows[vertices] for rows in mesh.signs],
        {key: value.rows(vertices) for key, value in mesh.values.items()},
        root=None if mesh.root is None else mesh.root[mesh.owners[entries[indptr[:-1]]]],
    )
