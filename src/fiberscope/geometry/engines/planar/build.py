"""The finer mesh that follows from the decisions about one switch: combinatorics, then values at the new vertices.

New numbers follow the old ones: vertices 0 to V - 1 stay, then the P points on edges, then the points inside polygons,
polygon by polygon; edges are the pieces of the old ones, in their order, then the segments of chords. ``bases (4,
polygons + 1)`` says where each polygon's new vertices, edges, faces and loop entries begin.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiberscope.geometry.cells import winner_signs
from fiberscope.geometry.engines.planar import faces as kernels
from fiberscope.geometry.engines.planar.mesh import (
    Arrangement,
    Crossings,
    Meetings,
    Polygons,
    assure,
)
from fiberscope.geometry.engines.planar.tracked import Tracked
from fiberscope.network.nodes import MaxPool, Switch
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray

Block = tuple[IntArray, IntArray, FloatArray, FloatArray]
"""New vertices ``A + t (B - A)``: the arrays A, B, t and the error of t."""


def build(
    mesh: Polygons, found: Arrangement, stage: int, switches: Sequence[Switch], values: dict[int, Tracked]
) -> Polygons:
    """The mesh cut along the chords, with ``values`` and all signs at the old and new vertices.

    ``stage`` numbers the stage of this switch, the one after ``switches``; the last of ``signs`` are its own.
    """
    crossings, meetings = found.crossings, found.meetings
    if meetings is None:
        finer = mesh.copy(values)
        finer.signs = [*mesh.signs, found.signs]
        return finer
    V, E, P = mesh.num_vertices, len(mesh.ends), int(crossings.point_ptr[-1])
    positions = np.diff(found.at_ptr)
    loops = positions + 2 * meetings.segments
    faces = 1 + meetings.segments - meetings.inside
    starts = ((V + P, meetings.inside), (E + P, meetings.segments), (0, faces), (0, loops))
    bases = np.stack([start + pointers(sizes) for start, sizes in starts])
    ends, line = mesh.refined_edges(crossings.point_ptr, crossings.points[0], int(bases[1][-1]))
    indptr = np.zeros(int(bases[2][-1]) + 1, dtype=np.int64)
    loop_v, loop_e = (np.empty(int(bases[3][-1]), dtype=np.int64) for _ in range(2))
    point, best = np.empty((int(bases[0][-1]) - V - P, 2), dtype=np.int64), np.empty(int(bases[0][-1]) - V - P)
    fun, p, q, lo, _, num = meetings.chords
    closed = kernels.trace_faces(
        found.at, found.at_ptr, found.piece, meetings.slot_ptr, num, fun[lo], p, q, meetings.ptr, meetings.d,
        meetings.seen, bases, *_room_of_one(meetings, positions, loops), ends, line, indptr, loop_v, loop_e,
        point, best,
    )  # fmt: skip
    assure(closed)
    line[E + P :] += found.first
    edge_ends = mesh.ends[crossings.points[0]]
    slot, meeting = point.T
    corner = found.at_ptr[_polygons(meetings.inside)]
    blocks = [
        (edge_ends[:, 0].copy(), edge_ends[:, 1].copy(), crossings.points[2], crossings.points[3]),
        (found.at[corner + p[slot]], found.at[corner + q[slot]], meetings.t[meeting], best),
    ]
    return Polygons(
        ends,
        line,
        indptr,
        loop_v,
        loop_e,
        _definitions(mesh, found, meetings, stage, slot, meeting),
        _extended_signs(mesh.sides, blocks),
        [
            *(_extended_signs(rows, blocks, node) for rows, node in zip(mesh.signs, switches, strict=True)),
            _crossed_signs(found.signs, blocks, crossings, meetings, slot, meeting),
        ],
        {key: value.extended(blocks) for key, value in values.items()},
        E + P,
        None if mesh.root is None else np.repeat(mesh.root, faces),
    )


def _room_of_one(meetings: Meetings, positions: IntArray, loops: IntArray) -> tuple[IntArray, ...]:
    """Room for the half-edges, rays and points of the largest polygon."""
    M, K, n, H = (int(x.max()) for x in (positions, meetings.chords[5], meetings.inside, loops))
    return tuple(np.empty(shape, dtype=np.int64) for shape in ((3, H), (2, max(M, K)), (2, n)))


def _polygons(inside: IntArray) -> IntArray:
    """The polygon of every new vertex inside one."""
    return np.repeat(np.arange(len(inside)), inside)


def _definitions(
    mesh: Polygons, found: Arrangement, meetings: Meetings, stage: int, slot: IntArray, meeting: IntArray
) -> IntArray:
    """By which two lines, on which polygon of which stage, every vertex is defined."""
    target = found.first + meetings.chords[0][meetings.chords[3]]
    edge, functional = found.crossings.points[:2]
    on_edges = (mesh.polygon_of_edge[edge], mesh.line[edge], found.first + functional)
    inside = (_polygons(meetings.inside), target[slot], target[meetings.other[meeting]])
    new = np.concatenate([np.stack(on_edges, axis=1), np.stack(inside, axis=1)])
    return np.concatenate([mesh.defined, np.column_stack([np.full(len(new), stage), new])])


def _room(rows: SignArray, blocks: Sequence[Block]) -> SignArray:
    result = np.empty((len(rows) + sum(len(A) for A, *_ in blocks), rows.shape[1]), dtype=np.int8)
    result[: len(rows)] = rows
    return result


def _extended_signs(rows: SignArray, blocks: Sequence[Block], node: Switch | None = None) -> SignArray:
    """Signs of functionals that do not change inside the old polygons, at old and new vertices."""
    result, first = _room(rows, blocks), len(rows)
    for A, B, _, _ in blocks:
        kernels.join_signs(result, A, B, first)
        if isinstance(node, MaxPool):
            result[first : first + len(A)] = winner_signs(np.minimum(result[A], result[B]) < 0, node.window_size)
        first += len(A)
    return result


def _crossed_signs(
    rows: SignArray,
    blocks: Sequence[Block],
    crossings: Crossings,
    meetings: Meetings,
    slot: IntArray,
    meeting: IntArray,
) -> SignArray:
    """Signs of the switch itself: functionals that change along an edge or chord change at their rank."""
    result, first = _room(rows, blocks), len(rows)
    (A, B, _, _), (C, D, _, _) = blocks
    kernels.join_signs(result, A, B, first)
    every = np.arange(len(crossings.label) + 1)
    edge = crossings.points[0]
    rank = np.arange(len(edge)) - crossings.point_ptr[edge]
    lists = (crossings.ptr, crossings.rank, every, every, every[1:], crossings.label)
    kernels.cross_signs(result, A, B, first, rank, edge, *lists)
    first += len(A)
    kernels.join_signs(result, C, D, first)
    fun, _, _, lo, hi, _ = meetings.chords
    chords = (meetings.ptr, meetings.rank, meetings.other, lo, hi, fun)
    kernels.cross_signs(result, C, D, first, meetings.rank[meeting], slot.copy(), *chords)
    return result
