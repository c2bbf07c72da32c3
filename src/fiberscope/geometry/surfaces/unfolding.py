"""Shortest ways on surfaces of flat convex polygons: to points, and to sets of edges.

The polygons may be the triangles of a mesh, or the pieces of a network's regions on one. Only lengths within polygons
enter, so that the space around may have any dimension, and the surface need not be orientable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.geometry.cells import Incidence
from fiberscope.geometry.surfaces.shapes import Mesh
from fiberscope.geometry.surfaces.window_kernels import shortest
from fiberscope.numerics.arrays import pointers, ranks_within, row_lengths
from fiberscope.numerics.cutoffs import TOO_MUCH_ANGLE
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray
from fiberscope.run import ENDLESS, Run

_WINDOWS = 1 << 12
"""Windows that have room at first; there is more where it does not suffice."""


@dataclass(frozen=True, slots=True, eq=False)
class Unfolding:
    """Polygons in planes of their own, and which sides they share; see :mod:`.window_kernels` for the arrays."""

    points: FloatArray
    first: IntArray
    face_of: IntArray
    corner: IntArray
    edge: IntArray
    origin: FloatArray
    frames: FloatArray
    xy: FloatArray
    mate: IntArray
    turned: BoolArray
    around_first: IntArray
    around: IntArray
    bent: BoolArray
    exponent: int

    @classmethod
    def of_mesh(cls, mesh: Mesh) -> Unfolding:
        """The triangles of a mesh."""
        count = len(mesh.triangles)
        polygons = Incidence(np.arange(0, 3 * count + 1, 3), mesh.triangles.reshape(-1))
        return cls.of(mesh.vertices, polygons, mesh.triangle_edges.reshape(-1))

    @classmethod
    def of(cls, points: FloatArray, polygons: Incidence, edge: IntArray) -> Unfolding:
        """Polygons with vertices in cyclic order; ``edge`` is the number of the side behind every corner."""
        first, corner = polygons.indptr, polygons.indices
        face_of = np.repeat(np.arange(len(polygons)), np.diff(first))
        origin = points[corner[first[:-1]]]
        offset = points[corner] - origin[face_of]
        exponent = int(np.frexp(np.abs(offset).max(initial=0.0))[1])  # so that products stay in the range of floats
        frames, xy = _planes(np.ldexp(offset, -exponent), first, face_of)
        mate = _mates(edge)
        turned = (mate >= 0) & (corner[mate] == corner)
        around = np.argsort(corner, kind="stable")
        around_first = pointers(np.bincount(corner, minlength=len(points)))
        parts = (points, first, face_of, corner, edge, origin, frames, xy, mate, turned, around_first, around)
        return cls(*parts, _bent(xy, first, corner, mate, len(points)), exponent)

    def flat(self, face: IntArray, places: FloatArray) -> FloatArray:
        """Places on polygons in the coordinates of these, ``(count, 2)``, divided by two to the exponent."""
        offset = np.ldexp(places - self.origin[face], -self.exponent)
        return np.asarray(np.einsum("pkn,pn->pk", self.frames[face], offset))

    def to_places(
        self, a: tuple[IntArray, FloatArray], b: tuple[IntArray, FloatArray], run: Run = ENDLESS
    ) -> FloatArray:
        """Lengths of the shortest ways between pairs of places ``(faces, points)``."""
        none = (np.zeros(len(self.corner), dtype=bool), np.zeros(len(self.points), dtype=bool))
        start, end = self.flat(*a), self.flat(*b)
        goals = zip(b[0].tolist(), end.tolist(), strict=True)
        return self._search(a[0], start, ((g, *xy) for g, xy in goals), none, run)

    def to_edges(self, at: tuple[IntArray, FloatArray], edges: IntArray, run: Run = ENDLESS) -> FloatArray:
        """Lengths of the shortest ways from places to a set of edges; infinite where none leads there."""
        side = np.isin(self.edge, edges)
        ends = np.zeros(len(self.points), dtype=bool)
        ends[self.corner[side]] = ends[self.corner[self._next[side]]] = True
        start = self.flat(*at)
        return self._search(at[0], start, ((-1, 0.0, 0.0) for _ in start), (side, ends), run)

    def depth(self, faces: IntArray, place: FloatArray) -> FloatArray:
        """How deep one place lies inside of some polygons, by the nearest side; below zero outside of them."""
        at = self.flat(faces, np.broadcast_to(place, (len(faces), len(place))))
        counts = np.diff(self.first)[faces]
        side = np.repeat(self.first[faces], counts) + ranks_within(counts)
        begin, end = self.xy[side], self.xy[self._next[side]]
        way = _unit(end - begin)
        rest = np.repeat(at, counts, axis=0) - begin
        gap = way[:, 0] * rest[:, 1] - way[:, 1] * rest[:, 0]
        return np.ldexp(np.minimum.reduceat(gap, pointers(counts)[:-1]), self.exponent)

    @property
    def _next(self) -> IntArray:
        """The position behind each one in its polygon."""
        after = np.arange(1, len(self.corner) + 1)
        after[self.first[1:] - 1] = self.first[:-1]
        return after

    def _search(
        self, faces: IntArray, start: FloatArray, goals: Any, marked: tuple[BoolArray, BoolArray], run: Run
    ) -> FloatArray:
        polygons = (self.first, self.face_of, self.corner, self.xy, self.mate, self.turned)
        arrays = (*polygons, self.around_first, self.around, self.bent, *marked)
        room = _room(_WINDOWS + 8 * int(np.diff(self.first).max()))
        far, touched = np.full(len(self.points), np.inf), np.zeros(len(self.points), dtype=np.int64)
        state, best, found = np.zeros(3, dtype=np.int64), np.zeros(1), np.zeros(len(faces))
        for row, (face, (x, y), goal) in enumerate(zip(faces.tolist(), start.tolist(), goals, strict=True)):
            run.step(row, len(faces), "ways")
            while not shortest(face, x, y, *goal, *arrays, *room, far, touched, state, best):
                run.check()
                room = _room(2 * len(room[1]))
            found[row] = best[0]
        return np.ldexp(found, self.exponent)


def _room(windows: int) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    heap = 4 * windows
    return np.empty((windows, 5)), np.empty(windows, np.int64), np.empty(heap), np.empty(heap, np.int64)


def _planes(offset: FloatArray, first: IntArray, face_of: IntArray) -> tuple[FloatArray, FloatArray]:
    """An orthonormal frame for every polygon and the corners in it, counter-clockwise; ``offset`` from the first."""
    axes: list[FloatArray] = []
    rest = offset
    for _ in range(2):
        axis = _unit(rest[_farthest(row_lengths(rest), first)])
        for other in axes:  # once more, so that the frame is orthonormal up to rounding
            axis = _unit(axis - np.einsum("fn,fn->f", axis, other)[:, None] * other)
        axes.append(axis)
        rest = rest - np.einsum("pn,pn->p", rest, axis[face_of])[:, None] * axis[face_of]
    frames = np.stack(axes, axis=1)
    xy = np.einsum("pkn,pn->pk", frames[face_of], offset)
    after = np.arange(1, len(xy) + 1)
    after[first[1:] - 1] = first[:-1]
    area = np.add.reduceat(xy[:, 0] * xy[after, 1] - xy[:, 1] * xy[after, 0], first[:-1])
    turn = np.where(area < 0, -1.0, 1.0)
    frames[:, 1] *= turn[:, None]
    xy[:, 1] *= turn[face_of]
    return frames, np.ascontiguousarray(xy)


def _farthest(size: FloatArray, first: IntArray) -> IntArray:
    """In every polygon the position with the largest size."""
    order = np.lexsort((size, np.repeat(np.arange(len(first) - 1), np.diff(first))))
    return np.asarray(order[first[1:] - 1])


def _unit(vectors: FloatArray) -> FloatArray:
    size = row_lengths(vectors)[:, None]
    return np.asarray(vectors / np.where(size > 0, size, 1.0))


def _mates(edge: IntArray) -> IntArray:
    """The other position of the same edge, or -1."""
    order = np.argsort(edge, kind="stable")
    pairs = np.flatnonzero(edge[order][1:] == edge[order][:-1])
    mate = np.full(len(edge), -1)
    mate[order[pairs]], mate[order[pairs + 1]] = order[pairs + 1], order[pairs]
    return mate


def _bent(xy: FloatArray, first: IntArray, corner: IntArray, mate: IntArray, count: int) -> BoolArray:
    """Vertices with more angle than a plane has, on the border than a half-plane, or where sheets only touch."""
    after = np.arange(1, len(corner) + 1)
    after[first[1:] - 1] = first[:-1]
    before = np.empty_like(after)
    before[after] = np.arange(len(corner))
    u, v = xy[after] - xy, xy[before] - xy
    angle = np.arctan2(np.abs(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]), np.einsum("pk,pk->p", u, v))
    total = np.bincount(corner, angle, count)
    ends = np.zeros(count, dtype=np.int64)
    for at in (corner[mate < 0], corner[after][mate < 0]):
        ends += np.bincount(at, minlength=count)
    flat = np.where(ends > 0, np.pi, 2 * np.pi)
    return np.asarray((total > flat + TOO_MUCH_ANGLE) | (ends > 2))
