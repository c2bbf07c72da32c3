"""The finer mesh that follows from the decisions about one switch: combinatorics, then values at the new vertices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiberscope.geometry import planar_faces as kernels
from fiberscope.geometry.planar_arrange import Arrangement, Crossings, Meetings, assure, pointers
from fiberscope.geometry.planar_mesh import Mesh, winner_signs
from fiberscope.geometry.planar_values import Tracked
from fiberscope.network.nodes import MaxPool, Switch
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray

Block = tuple[IntArray, IntArray, FloatArray, FloatArray]
"""New vertices ``A + t (B - A)``: the arrays A, B, t and the error of t."""


def build(mesh: Mesh, found: Arrangement, stage: int, switches: Sequence[Switch], values: dict[int, Tracked]) -> Mesh:
    """The mesh cut along the chords, with ``values`` and all signs at the old and new vertices.

    ``stage`` numbers the stage of this switch, the one after ``switches``; the last of ``signs`` are its own.
    """
    crossings, meetings = found.crossings, found.meetings
    if meetings is None:
        finer = mesh.copy(values)
        finer.signs = [*mesh.signs, found.signs]
        return finer
    V, E, P = mesh.num_vertices, len(mesh.ends), int(crossings.point_ptr[-1])
    loops = found.positions + 2 * meetings.segments
    faces = 1 + meetings.segments - meetings.inside
    starts = ((V + P, meetings.inside), (E + P, meetings.segments), (0, faces), (0, loops))
    bases = tuple(start + pointers(sizes) for start, sizes in starts)
    ends, line = mesh.refined_edges(crossings.point_ptr, crossings.points[0], int(bases[1][-1]))
    indptr = np.zeros(int(bases[2][-1]) + 1, dtype=np.int64)
    loop_v, loop_e = (np.empty(int(bases[3][-1]), dtype=np.int64) for _ in range(2))
    point = _new_points(int(bases[0][-1]) - V - P)
    fine = (meetings.ptr, meetings.other, meetings.rank, meetings.t, meetings.d, meetings.seen)
    closed = kernels.trace_faces(
        (mesh.indptr, mesh.loop_v, mesh.loop_e, mesh.ends), crossings.point_ptr, meetings.slot_ptr, meetings.chords,
        fine, bases, V, _sizes(meetings, found.positions, loops), (ends, line, indptr, loop_v, loop_e, point),
    )  # fmt: skip
    assure(closed)
    line[E + P :] += found.first
    edge_ends = mesh.ends[crossings.points[0]]
    blocks = [
        (edge_ends[:, 0].copy(), edge_ends[:, 1].copy(), crossings.points[2], crossings.points[3]),
        (point[5], point[6], point[3], point[4]),
    ]
    return Mesh(
        ends,
        line,
        indptr,
        loop_v,
        loop_e,
        _definitions(mesh, found, meetings, stage, point),
        _extended_signs(mesh.sides, blocks),
        [
            *(_extended_signs(rows, blocks, node) for rows, node in zip(mesh.signs, switches, strict=True)),
            _crossed_signs(found.signs, blocks, crossings, meetings, point),
        ],
        {key: value.extended(blocks) for key, value in values.items()},
        E + P,
    )


def _new_points(count: int) -> tuple[Any, ...]:
    """Room for ``(slot, other, rank, t, d, A, B, f)`` of the new vertices inside polygons."""
    return tuple(np.empty(count, dtype=np.float64 if k in {3, 4} else np.int64) for k in range(8))


def _sizes(meetings: Meetings, positions: IntArray, loops: IntArray) -> IntArray:
    start = meetings.slot_ptr[:-1]
    records = meetings.ptr[start + meetings.chords[5]] - meetings.ptr[start]
    largest = [x.max() for x in (positions, meetings.chords[5], meetings.inside, loops, records)]
    return np.array(largest, dtype=np.int64)


def _definitions(mesh: Mesh, found: Arrangement, meetings: Meetings, stage: int, point: Any) -> IntArray:
    """By which two lines, on which polygon of which stage, every vertex is defined."""
    fun, lo = meetings.chords[0], meetings.chords[3]
    edge, functional = found.crossings.points[:2]
    on_edges = (mesh.polygon_of_edge[edge], mesh.line[edge], found.first + functional)
    inside = (point[7], found.first + fun[lo[point[0]]], found.first + fun[lo[point[1]]])
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
            result[first : first + len(A)] = winner_signs(node, np.minimum(result[A], result[B]) < 0)
        first += len(A)
    return result


def _crossed_signs(
    rows: SignArray, blocks: Sequence[Block], crossings: Crossings, meetings: Meetings, point: Any
) -> SignArray:
    """Signs of the switch itself: functionals that change along an edge or chord change at their rank."""
    result, first = _room(rows, blocks), len(rows)
    (A, B, _, _), (C, D, _, _) = blocks
    every = np.arange(len(crossings.label))
    edge = crossings.points[0]
    rank = np.arange(len(edge)) - crossings.point_ptr[edge]
    kernels.join_signs(result, A, B, first)
    lists = (crossings.ptr, crossings.rank, every, every, every + 1, crossings.label)
    kernels.cross_signs(result, A, B, first, rank, edge, lists)
    first += len(A)
    fun, _, _, lo, hi, _ = meetings.chords
    kernels.join_signs(result, C, D, first)
    kernels.cross_signs(
        result, C, D, first, point[2], point[0], (meetings.ptr, meetings.rank, meetings.other, lo, hi, fun)
    )
    return result
