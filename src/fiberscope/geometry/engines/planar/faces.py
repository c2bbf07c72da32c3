"""Compiled building of the planar engine: faces traced from positions and ranks, signs and values at new vertices.

See :mod:`fiberscope.geometry.engines.planar.kernels` for the terms. Only integers decide here.

Arrays of :func:`trace_faces`: ``at`` are the vertices at the positions of a polygon and ``piece`` the pieces of edges
that begin there, both cut by ``at_ptr``; chords ``p``, ``q``, ``target`` (the line) by ``slot_ptr`` and ``num``;
meetings ``d``, ``seen`` by ``meet_ptr``, sorted along each chord. A half-edge h is ``half[:, h]``: the half-edge that
follows in its face, the vertex it leaves, its edge. Half-edges 0 to M - 1 run along the boundary; those of a chord
follow in pairs, h towards ``q`` and h + 1 back. Out come ``new_ends``, ``new_line`` of edges and ``new_indptr``,
``new_v``, ``new_e`` of faces. Invariants: every half-edge has one follower and lies in one face; their number is known
beforehand by Euler's formula, so a face too many or too few is noticed.

The other kernels have one row for every vertex: ``rows`` of signs, values ``z`` with bounds ``c``, ``e2``; a new
vertex is ``A + t (B - A)`` with rows A and B already there, so new rows only read older ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fiberscope.numerics.compiling.kernels import inner, kernel, sums
from fiberscope.numerics.floats import INFLATE, SQUARES_FLOOR, FloatArray, IntArray, SignArray, U


@inner
def _points_inside(slot_lo: int, slot_hi: int, meet_ptr: Any, rank: Any, pair: Any, of_pair: Any, seen: Any) -> int:
    """Number the crossing points of one polygon: ``seen[i]`` is the point of meeting ``i``; how many there are."""
    n = 0
    for a in range(slot_lo, slot_hi):
        i = meet_ptr[a]
        while i < meet_ptr[a + 1]:
            k = i
            point = -1
            # meetings of one rank are one point of this chord; a pair of chords stands in the lists of both, so the
            # second list finds the number that the first one gave
            while k < meet_ptr[a + 1] and rank[k] == rank[i]:
                if of_pair[pair[k]] >= 0:
                    point = of_pair[pair[k]]
                k += 1
            if point < 0:
                point = n
                n += 1
            for m in range(i, k):
                of_pair[pair[m]] = point
                seen[m] = point
            i = k
    return n


@kernel
def count_inside(
    slot_ptr: Any, num: Any, meet_ptr: Any, rank: Any, pair: Any, seen: Any, inside: Any, segments: Any, of_pair: Any
) -> None:
    """Per polygon: distinct crossing points, numbered in ``seen``, and segments into which they cut the chords.

    Only needed if more than two chords may meet at a point.

    ``of_pair`` is room for as many numbers as there are meetings.
    """
    for f in range(num.shape[0]):
        lo, hi = slot_ptr[f], slot_ptr[f] + num[f]
        for k in range((meet_ptr[hi] - meet_ptr[lo]) // 2):
            of_pair[k] = -1
        inside[f] = _points_inside(lo, hi, meet_ptr, rank, pair, of_pair, seen)
        total = num[f]
        for a in range(lo, hi):
            if meet_ptr[a] < meet_ptr[a + 1]:  # ranks count from 0: the last one tells how many points cut the chord
                total += rank[meet_ptr[a + 1] - 1] + 1
        segments[f] = total


@inner
def _cut_chord(
    h: int,
    number: int,
    slot: int,
    i: int,
    stop: int,
    previous: int,
    end: int,
    fun: int,
    base: int,
    skip: int,
    d: Any,
    seen: Any,
    half: Any,
    turns: Any,
    new_ends: Any,
    new_line: Any,
    point: Any,
    best_d: Any,
) -> int:
    """Half-edges of one chord from ``h`` on, two per segment, and its segments as edges from ``number`` on.

    What follows a half-edge that arrives at a crossing point is the ray next to its own, clockwise. Chords through a
    point come by increasing ``p``, and their ends interleave: the rays to ``p`` come first, in this order, then the
    rays to ``q``. So every chord only has to be linked to the one before. ``turns[:, k]`` are the half-edges by which
    the first and the last chord so far arrived at point ``k``. Returns the half-edge after the last one.
    """
    while True:
        target = end if i >= stop else base + seen[i]
        half[1, h], half[1, h + 1] = previous, target
        half[2, h], half[2, h + 1] = number, number
        new_ends[number, 0], new_ends[number, 1] = previous, target
        new_line[number] = fun
        if i >= stop:
            return h + 2
        # all meetings with this point; the best known of them will give its coordinates
        k, best = seen[i], i
        while i < stop and seen[i] == k:
            if d[i] < d[best]:
                best = i
            i += 1
        g, before = target - skip, turns[1, k]
        if before < 0 or d[best] < best_d[g]:
            point[g, 0], point[g, 1] = slot, best
            best_d[g] = d[best]
        if before < 0:
            turns[0, k] = h
        else:
            # whoever arrives from p turns into the way back to p of the chord before, from q into its way on to q
            half[0, h], half[0, h + 3] = before + 1, before + 2
        turns[1, k] = h
        h += 2
        previous = target
        number += 1


@inner
def _walk(H: int, face: int, last_face: int, entry: int, half: Any, indptr: Any, loop_v: Any, loop_e: Any) -> int:
    """Write down the loops of half-edges; where the last one ends, or -1 if there are not as many as there must be."""
    for start in range(H):
        if half[0, start] < 0:
            continue
        if face >= last_face:
            return -1
        h = start
        while half[0, h] >= 0:
            loop_v[entry], loop_e[entry] = half[1, h], half[2, h]
            entry += 1
            step = half[0, h]
            half[0, h] = -1  # written down: every half-edge lies in one face
            h = step
        if h != start:
            return -1
        face += 1
        indptr[face] = entry
    return entry if face == last_face else -1


@kernel
def trace_faces(
    at: Any,
    at_ptr: Any,
    piece: Any,
    slot_ptr: Any,
    num: Any,
    target: Any,
    p: Any,
    q: Any,
    meet_ptr: Any,
    d: Any,
    seen: Any,
    bases: Any,
    half: Any,
    rays: Any,
    turns: Any,
    new_ends: Any,
    new_line: Any,
    new_indptr: Any,
    new_v: Any,
    new_e: Any,
    point: Any,
    best_d: Any,
) -> bool:
    """Build the sub-polygons of every polygon from the order of positions and crossings alone.

    ``bases`` gives, per polygon, the first number of its new vertices, edges, faces and loop entries. ``half`` (what
    follows, origin, edge), ``rays`` (last ray at a position, last half-edge of a chord) and ``turns`` are room for one
    polygon. ``point`` gets the slot and the meeting by which every new vertex inside a polygon is known best, and
    ``best_d`` its error. Faces lie to the left of their half-edges: at a point reached along one ray, a face goes on
    along the next ray clockwise. False if a face does not close.

    Rays at a position, counter-clockwise: the edge ahead, the chords by their other end, the edge behind. Chords are
    sorted by ``(p, q)``, so those that begin here come first, then those that end here, both in their order.
    """
    for f in range(num.shape[0]):
        start, K, first, base = slot_ptr[f], num[f], at_ptr[f], bases[0, f]
        M, inside = at_ptr[f + 1] - first, bases[0, f + 1] - base
        for n in range(M):
            half[1, n], half[2, n], rays[0, n] = at[first + n], piece[first + n], n
        for k in range(inside):
            turns[1, k] = -1
        H = M
        for a in range(K):
            slot, h = start + a, H
            H = _cut_chord(
                h, bases[1, f] + (h - M) // 2, slot, meet_ptr[slot], meet_ptr[slot + 1], at[first + p[slot]],
                at[first + q[slot]], target[slot], base, bases[0, 0], d, seen, half, turns, new_ends, new_line,
                point, best_d,
            )  # fmt: skip
            # h + 1 arrives at p and goes on along the ray that was the last there; now h is
            half[0, h + 1], rays[0, p[slot]], rays[1, a] = rays[0, p[slot]], h, H - 1
        for a in range(K):
            n, h = q[start + a], rays[1, a]  # h leaves q, h - 1 arrives there
            half[0, h - 1], rays[0, n] = rays[0, n], h
        for k in range(inside):
            # the circle of rays closes: the first chord turns to the last, to q where it came from p
            i, h = turns[0, k], turns[1, k]
            half[0, i], half[0, i + 3] = h + 2, h + 1
        for n in range(M):  # the edge that ends at a position goes on along the last ray there
            half[0, n - 1 if n > 0 else M - 1] = rays[0, n]
        last = _walk(H, bases[2, f], bases[2, f + 1], bases[3, f], half, new_indptr, new_v, new_e)
        if last != bases[3, f + 1]:
            return False
    return True


def join_signs(rows: SignArray, A: IntArray, B: IntArray, first: int) -> None:
    """Signs at points between two rows: the non-zero one, and zero where they are opposite (corrected later)."""
    total = rows[A]
    total += rows[B]
    np.clip(total, -1, 1, out=rows[first : first + len(A)])


@kernel
def cross_signs(
    rows: Any,
    A: Any,
    B: Any,
    first: int,
    rank: Any,
    segment: Any,
    ptr: Any,
    ranks: Any,
    item: Any,
    lo: Any,
    hi: Any,
    fun: Any,
) -> None:
    """Signs of the functionals that change along a segment, at the points of the segment, by their order.

    Point ``k`` has rank ``rank[k]`` on ``segment[k]``; crossing ``i`` of a segment, of rank ``ranks[i]``, is the item
    ``item[i]``, which stands for the functionals ``fun[lo:hi]`` of that item.
    """
    for k in range(A.shape[0]):
        e, here = segment[k], rank[k]
        for i in range(ptr[e], ptr[e + 1]):
            behind, thing = ranks[i] - here, item[i]
            v = A[k] if behind > 0 else B[k]
            for m in range(lo[thing], hi[thing]):
                j = fun[m]
                rows[first + k, j] = 0 if behind == 0 else rows[v, j]


def join_values(
    z: FloatArray,
    c: FloatArray,
    e2: FloatArray,
    inverse: FloatArray,
    A: IntArray,
    B: IntArray,
    t: FloatArray,
    d: FloatArray,
    first: int,
) -> None:
    """Values at points ``A + t (B - A)``, with the error of ``t``, and new bounds ``c`` (entrywise) and ``e2``."""
    _join_values(z, c, e2, inverse, A, B, t, d, first)
    for bound in (c, e2):
        new = bound[first : first + len(A)]
        new += np.maximum(bound[A], bound[B])  # NaN, which decides nothing, if one of them is
        new *= INFLATE


@kernel
def _join_values(z: Any, c: Any, e2: Any, inverse: Any, A: Any, B: Any, t: Any, d: Any, first: int) -> None:
    """The values, and in ``c`` and ``e2`` what the step from the ends to the point adds to the bounds."""
    for k in range(A.shape[0]):
        a, b, v = A[k], B[k], first + k
        tk, dk = t[k], d[k] * (1.0 + 16 * U) + 4 * U
        worst, total, least = 0.0, 0.0, 0.0
        for j in range(z.shape[1]):
            x, y = z[a, j], z[b, j]
            z[v, j] = x + tk * (y - x)
            if x != y:  # equal values are kept as they are: nothing is rounded
                least = SQUARES_FLOOR
                spread = dk * abs(y - x) + 4 * U * (abs(x) + abs(y))
                total += spread * spread
                spread *= inverse[j]
                if spread > worst or math.isnan(spread):
                    worst = spread
        c[v], e2[v] = worst, math.sqrt(total) + least


@sums
def rectify(z: Any, s: Any, r2: Any, out: Any, size: Any, live: Any) -> None:
    """``z`` where the certified sign is positive, else exactly 0; the squared norms of that and of ``r`` there."""
    for v in range(z.shape[0]):
        total, spread = 0.0, 0.0
        for j in range(z.shape[1]):
            on = s[v, j] > 0
            x = z[v, j] if on else 0.0
            out[v, j] = x
            total += x * x
            spread += r2[j] if on else 0.0
        size[v], live[v] = total, spread


@kernel
def compare_windows(pair_signs: Any, windows: Any, column: Any, out: Any) -> None:
    """Sign of every window entry against the best of the others: the least of its signs against each.

    ``column[w, j, i]`` is the column of the pair of entries ``j`` and ``i``, -1 where one of them is absent.
    """
    size = windows.shape[1]
    for v in range(pair_signs.shape[0]):
        for w in range(windows.shape[0]):
            for j in range(size):
                least = 1
                for i in range(size):
                    if column[w, j, i] >= 0:
                        x = pair_signs[v, column[w, j, i]]
                        least = min(least, x if windows[w, j] < windows[w, i] else -x)
                out[v, w * size + j] = least if windows[w, j] >= 0 else -1


@kernel
def lowest_signs(indptr: Any, loop_v: Any, signs: Any, out: Any) -> None:
    """The least sign of every entry among the vertices of each polygon."""
    for f in range(indptr.shape[0] - 1):
        for j in range(signs.shape[1]):
            out[f, j] = 1
        for i in range(indptr[f], indptr[f + 1]):
            v = loop_v[i]
            for j in range(signs.shape[1]):
                out[f, j] = min(out[f, j], signs[v, j])


@kernel
def same_losers(beside: Any, low: Any, out: Any) -> None:
    """Whether the two polygons beside an edge have the same entries that lose."""
    for e in range(beside.shape[0]):
        a, b = beside[e, 0], beside[e, 1]
        same = True
        for j in range(low.shape[1]):
            same &= (low[a, j] < 0) == (low[b, j] < 0)
        out[e] = same
