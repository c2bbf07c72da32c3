"""Compiled building of the planar engine: faces traced from positions and ranks, signs and values at new vertices.

See :mod:`fiberscope.geometry.planar_kernels` for the terms. Only integers decide here.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fiberscope.geometry.planar_kernels import fill_positions
from fiberscope.numerics.floats import U


@numba.njit(cache=True, nogil=True)
def _points_inside(slot_lo: int, slot_hi: int, meet_ptr: Any, rank: Any, pair: Any, of_pair: Any, seen: Any) -> int:
    """Number the crossing points of one polygon: ``seen[i]`` is the point of meeting ``i``; how many there are."""
    n = 0
    for a in range(slot_lo, slot_hi):
        i = meet_ptr[a]
        while i < meet_ptr[a + 1]:
            k = i
            point = -1
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


@numba.njit(cache=True, nogil=True)
def count_inside(
    slot_ptr: Any, num: Any, meet_ptr: Any, rank: Any, pair: Any, seen: Any, inside: Any, segments: Any
) -> None:
    """Per polygon: distinct crossing points, numbered in ``seen``, and segments into which they cut the chords."""
    of_pair = np.empty(meet_ptr[-1] + 1, dtype=np.int64)
    for f in range(num.shape[0]):
        lo, hi = slot_ptr[f], slot_ptr[f] + num[f]
        for k in range((meet_ptr[hi] - meet_ptr[lo]) // 2):
            of_pair[k] = -1
        inside[f] = _points_inside(lo, hi, meet_ptr, rank, pair, of_pair, seen)
        total = num[f]
        for a in range(lo, hi):
            if meet_ptr[a] < meet_ptr[a + 1]:
                total += rank[meet_ptr[a + 1] - 1] + 1
        segments[f] = total


@numba.njit(cache=True, nogil=True)
def _cut_chord(
    h: int, number: int, slot: int, ends: Any, fun: int, base: int, f: int, meetings: Any, half: Any, out: Any
) -> None:
    """Half-edges of one chord from ``h`` on, two per segment, and its segments as edges from ``number`` on.

    ``half`` is ``(origin, edge_of, count)``, where ``count[k + 1]`` counts the chords through point ``k``.
    """
    meet_ptr, other, rank, t, d, seen = meetings
    origin, edge_of, count = half
    new_ends, new_line, point, first_point = out
    previous, i, stop = ends[0], meet_ptr[slot], meet_ptr[slot + 1]
    while True:
        target = ends[1] if i >= stop else base + seen[i]
        origin[h], origin[h + 1], edge_of[h], edge_of[h + 1] = previous, target, number, number
        new_ends[number, 0], new_ends[number, 1], new_line[number] = previous, target, fun
        if i >= stop:
            return
        k, best = seen[i], i
        while i < stop and seen[i] == k:
            if d[i] < d[best]:
                best = i
            i += 1
        g = base + k - first_point
        if count[k + 1] == 0 or d[best] < point[4][g]:
            point[0][g], point[1][g], point[2][g], point[3][g] = slot, other[best], rank[best], t[best]
            point[4][g], point[5][g], point[6][g], point[7][g] = d[best], ends[0], ends[1], f
        count[k + 1] += 1
        previous = target
        h += 2
        number += 1


@numba.njit(cache=True, nogil=True)
def _around_points(
    start: int,
    K: int,
    n: int,
    p: Any,
    q: Any,
    meet_ptr: Any,
    seen: Any,
    half_base: Any,
    count: Any,
    inc: Any,
    following: Any,
) -> None:
    """What follows a half-edge that arrives at a crossing point: the ray next to its own, clockwise.

    The rays at a point are ordered as the positions of their chords' ends. ``count`` holds the number of chords
    through each point, one place further, and is turned into where the point's rays begin in ``inc``.
    """
    for k in range(n):
        count[k + 1] += count[k]
    for a in range(K):
        i, h = meet_ptr[start + a], half_base[a]
        while i < meet_ptr[start + a + 1]:
            k = seen[i]
            while i < meet_ptr[start + a + 1] and seen[i] == k:
                i += 1
            m = 2 * count[k]
            # (position of the end, half-edge that arrives from there, half-edge that leaves to there)
            inc[m, 0], inc[m, 1], inc[m, 2] = p[start + a], h, h + 1
            inc[m + 1, 0], inc[m + 1, 1], inc[m + 1, 2] = q[start + a], h + 3, h + 2
            count[k] += 1
            h += 2
    low = 0
    for k in range(n):
        high = 2 * count[k]
        for i in range(low + 1, high):
            x, y, w = inc[i, 0], inc[i, 1], inc[i, 2]
            m = i
            while m > low and inc[m - 1, 0] > x:
                inc[m, 0], inc[m, 1], inc[m, 2] = inc[m - 1, 0], inc[m - 1, 1], inc[m - 1, 2]
                m -= 1
            inc[m, 0], inc[m, 1], inc[m, 2] = x, y, w
        for i in range(low, high):
            following[inc[i, 1]] = inc[i - 1 if i > low else high - 1, 2]
        low = high


@numba.njit(cache=True, nogil=True)
def _around_positions(
    start: int, K: int, M: int, p: Any, q: Any, half_base: Any, rays_ptr: Any, rays: Any, following: Any
) -> None:
    """What follows a half-edge that arrives at the boundary.

    Rays at a position, counter-clockwise: the edge ahead, the chords by their other end, the edge behind. Chords are
    sorted by ``(p, q)``, so those that begin here come first, then those that end here, both in their order.
    """
    for x in range(M + 1):
        rays_ptr[x] = 0
    for a in range(start, start + K):
        rays_ptr[p[a] + 1] += 1
        rays_ptr[q[a] + 1] += 1
    for x in range(M):
        rays_ptr[x + 1] += rays_ptr[x]
    for a in range(K):
        rays[rays_ptr[p[start + a]]] = 2 * a
        rays_ptr[p[start + a]] += 1
    for a in range(K):
        rays[rays_ptr[q[start + a]]] = 2 * a + 1
        rays_ptr[q[start + a]] += 1
    low = 0
    for x in range(M):
        leave = x
        for i in range(low, rays_ptr[x]):
            a = rays[i] // 2
            if rays[i] == 2 * a:
                following[half_base[a] + 1] = leave
                leave = half_base[a]
            else:
                following[half_base[a + 1] - 2] = leave
                leave = half_base[a + 1] - 1
        following[x - 1 if x > 0 else M - 1] = leave
        low = rays_ptr[x]


@numba.njit(cache=True, nogil=True)
def _walk(H: int, face: int, last_face: int, entry: int, following: Any, origin: Any, edge_of: Any, out: Any) -> int:
    """Write down the loops of half-edges; where the last one ends, or -1 if there are not as many as there must be."""
    indptr, loop_v, loop_e = out
    for start in range(H):
        if following[start] < 0:
            continue
        if face >= last_face:
            return -1
        h = start
        while following[h] >= 0:
            loop_v[entry], loop_e[entry] = origin[h], edge_of[h]
            entry += 1
            step = following[h]
            following[h] = -1
            h = step
        if h != start:
            return -1
        face += 1
        indptr[face] = entry
    return entry if face == last_face else -1


@numba.njit(cache=True, nogil=True)
def trace_faces(
    loops: Any, point_ptr: Any, slot_ptr: Any, chords: Any, meetings: Any, bases: Any, V: int, sizes: Any, out: Any
) -> bool:
    """Build the sub-polygons of every polygon from the order of positions and crossings alone.

    ``loops`` is ``(indptr, loop_v, loop_e, ends)`` and ``meetings`` is ``(meet_ptr, other, rank, t, d, seen)``;
    ``bases`` gives, per polygon, the first number of its new vertices, edges, faces and loop entries; ``sizes`` bounds
    the positions, slots, points, half-edges and meetings of one polygon. ``out`` is ``(ends, line, indptr, loop_v,
    loop_e, point)`` with ``point`` as ``(slot, other, rank, t, d, A, B, f)``. Faces lie to the left of their
    half-edges: at a point reached along one ray, a face goes on along the next ray clockwise. False if a face does
    not close.
    """
    indptr, loop_v, loop_e, ends = loops
    fun, p, q, lo, _, num = chords
    meet_ptr, rank, seen = meetings[0], meetings[2], meetings[5]
    vertex_base, edge_base, face_base, loop_base = bases
    new_ends, new_line, new_indptr, new_v, new_e, point = out
    at, rays_ptr = np.empty(sizes[0], dtype=np.int64), np.empty(sizes[0] + 1, dtype=np.int64)
    rays, half_base = np.empty(2 * sizes[1], dtype=np.int64), np.empty(sizes[1] + 1, dtype=np.int64)
    count, inc = np.empty(sizes[2] + 1, dtype=np.int64), np.empty((2 * sizes[4] + 1, 3), dtype=np.int64)
    following, origin = np.empty(sizes[3], dtype=np.int64), np.empty(sizes[3], dtype=np.int64)
    edge_of = np.empty(sizes[3], dtype=np.int64)
    for f in range(num.shape[0]):
        start, K = slot_ptr[f], num[f]
        M = fill_positions(f, indptr, loop_v, loop_e, ends, point_ptr, V, at)
        n = 0
        for i in range(indptr[f], indptr[f + 1]):
            e = loop_e[i]
            points = point_ptr[e + 1] - point_ptr[e]
            forward = ends[e, 0] == loop_v[i]
            for k in range(points + 1):
                origin[n], edge_of[n] = at[n], e + point_ptr[e] + (k if forward else points - k)
                following[n] = n + 1 if n + 1 < M else 0
                n += 1
        H = M
        if K > 0:
            inside = vertex_base[f + 1] - vertex_base[f]
            for k in range(inside + 1):
                count[k] = 0
            for a in range(K):
                slot = start + a
                half_base[a] = H
                cuts = rank[meet_ptr[slot + 1] - 1] + 1 if meet_ptr[slot] < meet_ptr[slot + 1] else 0
                number = edge_base[f] + (H - M) // 2
                _cut_chord(
                    H, number, slot, (at[p[slot]], at[q[slot]]), fun[lo[slot]], vertex_base[f], f, meetings,
                    (origin, edge_of, count), (new_ends, new_line, point, vertex_base[0]),
                )  # fmt: skip
                H += 2 * (cuts + 1)
            half_base[K] = H
            _around_points(start, K, inside, p, q, meet_ptr, seen, half_base, count, inc, following)
            _around_positions(start, K, M, p, q, half_base, rays_ptr, rays, following)
        loop = (new_indptr, new_v, new_e)
        entry = _walk(H, face_base[f], face_base[f + 1], loop_base[f], following, origin, edge_of, loop)
        if entry != loop_base[f + 1]:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def join_signs(rows: Any, A: Any, B: Any, first: int) -> None:
    """Signs at points between two rows: the non-zero one, and zero where they are opposite (corrected later)."""
    for k in range(A.shape[0]):
        a, b = A[k], B[k]
        for j in range(rows.shape[1]):
            x, y = rows[a, j], rows[b, j]
            rows[first + k, j] = x if x == y else x + y


@numba.njit(cache=True, nogil=True)
def cross_signs(rows: Any, A: Any, B: Any, first: int, rank: Any, segment: Any, lists: Any) -> None:
    """Signs of the functionals that change along a segment, at the points of the segment, by their order.

    Point ``k`` has rank ``rank[k]`` on ``segment[k]``; ``lists`` is ``(ptr, rank, item, lo, hi, fun)``: crossing ``i``
    of a segment is the item ``item[i]``, which stands for the functionals ``fun[lo:hi]`` of that item.
    """
    ptr, ranks, item, lo, hi, fun = lists
    for k in range(A.shape[0]):
        e = segment[k]
        for i in range(ptr[e], ptr[e + 1]):
            for m in range(lo[item[i]], hi[item[i]]):
                j = fun[m]
                if ranks[i] == rank[k]:
                    rows[first + k, j] = 0
                else:
                    rows[first + k, j] = rows[A[k] if ranks[i] > rank[k] else B[k], j]


@numba.njit(cache=True, nogil=True)
def join_values(z: Any, c: Any, e2: Any, r: Any, A: Any, B: Any, t: Any, d: Any, first: int) -> None:
    """Values at points ``A + t (B - A)``, with the error of ``t``, and new bounds ``c`` (entrywise) and ``e2``."""
    n = z.shape[1]
    inverse = np.zeros(n)
    for j in range(n):
        if r[j] > 2.0**-1000:  # below, all values are under the floor of the sign test
            inverse[j] = 1.0 / r[j]
    for k in range(A.shape[0]):
        a, b, v = A[k], B[k], first + k
        tk, dk = t[k], d[k] * (1.0 + 16 * U) + 4 * U
        worst, total, moved = 0.0, 0.0, False
        for j in range(n):
            x, y = z[a, j], z[b, j]
            z[v, j] = x + tk * (y - x)
            # equal values are kept as they are: nothing is rounded
            spread = 0.0 if x == y else dk * abs(y - x) + 4 * U * (abs(x) + abs(y))
            moved |= x != y
            worst = max(worst, spread * inverse[j])
            total += spread * spread
        c[v] = (max(c[a], c[b]) + worst) * (1.0 + 1e-9)
        e2[v] = (max(e2[a], e2[b]) + np.sqrt(total)) * (1.0 + 1e-9) + (2.0**-400 if moved else 0.0)


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
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


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def lowest_signs(indptr: Any, loop_v: Any, signs: Any, out: Any) -> None:
    """The least sign of every entry among the vertices of each polygon."""
    for f in range(indptr.shape[0] - 1):
        for j in range(signs.shape[1]):
            out[f, j] = 1
        for i in range(indptr[f], indptr[f + 1]):
            v = loop_v[i]
            for j in range(signs.shape[1]):
                out[f, j] = min(out[f, j], signs[v, j])


@numba.njit(cache=True, nogil=True)
def same_losers(beside: Any, low: Any, out: Any) -> None:
    """Whether the two polygons beside an edge have the same entries that lose."""
    for e in range(beside.shape[0]):
        a, b = beside[e, 0], beside[e, 1]
        same = True
        for j in range(low.shape[1]):
            same &= (low[a, j] < 0) == (low[b, j] < 0)
        out[e] = same
