"""Compiled parts of the planar engine: signs, order of crossings, chords of polygons, and tracing of faces.

Nothing here judges combinatorics by floats alone. Every float comes with a bound of its error; what a bound leaves
open is flagged, decided exactly by the caller and handed back as integer ranks, from which the structure is built.

Conventions. Polygons are convex loops in counter-clockwise order: edge ``i`` of a loop joins its vertices ``i`` and
``i + 1``. ``s`` holds signs of functionals at vertices, padded to a multiple of eight columns with ones, so that
eight of them are compared as one word. Points on edges follow the ``V`` vertices in number. A *position* is an
index into a polygon's loop after its edges were subdivided; a *chord* is the pair of positions ``p < q`` where a
functional vanishes on the boundary. A *slot* is a chord's place in the arrays over all polygons.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fiberscope.numerics.floats import TINY, U

_GROW = 1.0 + 64 * U
_ONES = np.uint64(0x0101010101010101)


@numba.njit(cache=True, nogil=True)
def float_signs(z: Any, c: Any, r: Any, floor: float, s: Any) -> int:
    """Signs of ``z`` where ``|z[v, j]| > c[v] r[j] + floor`` proves them, 2 elsewhere; how many 2 there are."""
    count = 0
    for v in range(z.shape[0]):
        if c[v] == 0.0:
            for j in range(z.shape[1]):
                s[v, j] = (z[v, j] > 0.0) - (z[v, j] < 0.0)
            continue
        scale, open_here = c[v] * _GROW, 0
        for j in range(z.shape[1]):
            bound = scale * r[j] + floor
            sign = (z[v, j] > bound) - (z[v, j] < -bound)
            s[v, j] = sign
            open_here += sign == 0
        if open_here:
            for j in range(z.shape[1]):
                if s[v, j] == 0 and (r[j] > 0.0 or z[v, j] != 0.0):
                    s[v, j] = 2
                    count += 1
    return count


@numba.njit(cache=True, nogil=True)
def count_zeros(words: Any, counts: Any) -> None:
    """For every vertex, how many functionals vanish there."""
    for v in range(words.shape[0]):
        total = 0
        for k in range(words.shape[1]):
            w = words[v, k]
            # a zero byte, and only such, borrows from its neighbour (the lowest one found is a true zero)
            if (w - _ONES) & ~w & (_ONES << np.uint64(7)):
                for _ in range(8):
                    total += (w & np.uint64(255)) == 0
                    w >>= np.uint64(8)
        counts[v] = total


@numba.njit(cache=True, nogil=True)
def fill_zeros(s: Any, ptr: Any, label: Any) -> None:
    """The functionals that vanish at every vertex."""
    for v in range(s.shape[0]):
        i = ptr[v]
        if i < ptr[v + 1]:
            for j in range(s.shape[1]):
                if s[v, j] == 0:
                    label[i] = j
                    i += 1


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
def count_crossings(ends: Any, words: Any, counts: Any) -> None:
    """For every edge, how many functionals have strictly opposite signs at its ends."""
    for e in range(ends.shape[0]):
        a, b = ends[e, 0], ends[e, 1]
        total = np.uint64(0)
        for k in range(words.shape[1]):
            # bytes 01 and ff differ by fe, the only difference with bit 1 and without bit 0
            w = words[a, k] ^ words[b, k]
            total += (((w >> np.uint64(1)) & ~w & _ONES) * _ONES) >> np.uint64(56)
        counts[e] = np.int64(total)


@numba.njit(cache=True, nogil=True)
def _ratio(za: float, zb: float, ea: float, eb: float) -> tuple[float, float]:
    """Where a functional vanishes between A (0) and B (1), and a bound of the error of that number.

    The true values have opposite signs and lie within ``ea`` of ``za``, ``eb`` of ``zb``.
    """
    if za > ea or zb < -eb:
        a, b = max(za, 0.0), max(-zb, 0.0)
    elif za < -ea or zb > eb:
        a, b = max(-za, 0.0), max(zb, 0.0)
    else:
        return 0.5, 1.0
    total = a + b
    room = total - (ea + eb) * _GROW
    if not room > 0.0:
        return 0.5, 1.0
    # t* - t = ((a* - a) b - a (b* - b)) / ((a + b) (a* + b*))
    return a / total, min(1.0, (ea * (b / total) + eb * (a / total)) / room * _GROW + 8 * U)


@numba.njit(cache=True, nogil=True)
def _sort(t: Any, d: Any, label: Any, pair: Any, lo: int, hi: int) -> bool:
    """Sort the stretch by ``t`` (shell sort); False if the error bounds do not prove the order strict."""
    gap = 1
    while gap < (hi - lo) // 9:
        gap = 3 * gap + 1
    while gap >= 1:
        for i in range(lo + gap, hi):
            x, y, l, m = t[i], d[i], label[i], pair[i]
            k = i
            while k >= lo + gap and t[k - gap] > x:
                t[k], d[k], label[k], pair[k] = t[k - gap], d[k - gap], label[k - gap], pair[k - gap]
                k -= gap
            t[k], d[k], label[k], pair[k] = x, y, l, m
        gap //= 3
    strict = True
    for i in range(lo + 1, hi):
        strict &= t[i - 1] + d[i - 1] < t[i] - d[i]
    return strict


@numba.njit(cache=True, nogil=True)
def fill_crossings(
    ends: Any, words: Any, z: Any, c: Any, r: Any, floor: float, ptr: Any, label: Any, t: Any, d: Any, sure: Any
) -> None:
    """Crossing functionals of every edge with their parameter and its error, in order; ``sure`` if that is proven."""
    pair = np.zeros(label.shape[0], dtype=np.int64)
    for e in range(ends.shape[0]):
        if ptr[e] == ptr[e + 1]:
            continue
        a, b = ends[e, 0], ends[e, 1]
        i = ptr[e]
        for k in range(words.shape[1]):
            w = words[a, k] ^ words[b, k]
            mark = (w >> np.uint64(1)) & ~w & _ONES
            j = 8 * k
            while mark:
                if mark & np.uint64(1):
                    label[i] = j
                    ea, eb = c[a] * r[j] * _GROW + floor, c[b] * r[j] * _GROW + floor
                    t[i], d[i] = _ratio(z[a, j], z[b, j], ea, eb)
                    i += 1
                mark >>= np.uint64(8)
                j += 1
        sure[e] = _sort(t, d, label, pair, ptr[e], ptr[e + 1])


@numba.njit(cache=True, nogil=True)
def edge_points(ptr: Any, rank: Any, t: Any, d: Any, label: Any, point_ptr: Any, out: Any) -> None:
    """One point for every distinct rank on an edge; of equal crossings the best known one speaks.

    ``out`` is ``(edge, functional, t, error)``.
    """
    edge, functional, best_t, best_d = out
    for e in range(ptr.shape[0] - 1):
        for i in range(ptr[e], ptr[e + 1]):
            k = point_ptr[e] + rank[i]
            if i == ptr[e] or rank[i] != rank[i - 1] or d[i] < best_d[k]:
                edge[k], functional[k], best_t[k], best_d[k] = e, label[i], t[i], d[i]


@numba.njit(cache=True, nogil=True)
def _mixed(s: Any, loop: Any, lo: int, hi: int, j: int) -> bool:
    low, high = 0, 0
    for i in range(lo, hi):
        low, high = min(low, s[loop[i], j]), max(high, s[loop[i], j])
    return low < 0 < high


@numba.njit(cache=True, nogil=True)
def count_chords(
    indptr: Any, loop_v: Any, loop_e: Any, ptr: Any, zero_ptr: Any, zero_j: Any, s: Any, counts: Any
) -> None:
    """For every polygon, how many functionals change their sign inside it."""
    for f in range(indptr.shape[0] - 1):
        total = 0
        for i in range(indptr[f], indptr[f + 1]):
            total += ptr[loop_e[i] + 1] - ptr[loop_e[i]]
            v = loop_v[i]
            for k in range(zero_ptr[v], zero_ptr[v + 1]):
                total += _mixed(s, loop_v, indptr[f], indptr[f + 1], zero_j[k])
        counts[f] = total // 2


@numba.njit(cache=True, nogil=True)
def _meet(first: Any, j: int, position: int, fun: Any, p: Any, q: Any, n: int) -> int:
    """Note that functional ``j`` vanishes at a position; the second time, its chord is complete."""
    if first[j] < 0:
        first[j] = position
        return n
    fun[n], p[n], q[n] = j, first[j], position
    first[j] = -1
    return n + 1


@numba.njit(cache=True, nogil=True)
def fill_chords(
    indptr: Any,
    loop_v: Any,
    loop_e: Any,
    ends: Any,
    ptr: Any,
    label: Any,
    rank: Any,
    point_ptr: Any,
    zero_ptr: Any,
    zero_j: Any,
    s: Any,
    slot_ptr: Any,
    out: Any,
) -> bool:
    """Chords of every polygon, sorted by their positions; equal chords are one with several functionals.

    ``out`` is ``(fun, p, q, lo, hi, num)``: the functionals of slot ``k`` are ``fun[lo[k]:hi[k]]``; polygon ``f`` uses
    ``num[f]`` slots from ``slot_ptr[f]`` on. False if some functional does not vanish at two positions exactly.
    """
    fun, p, q, lo, hi, num = out
    first = np.full(s.shape[1], -1, dtype=np.int64)
    for f in range(indptr.shape[0] - 1):
        n, start = slot_ptr[f], slot_ptr[f]
        if slot_ptr[f + 1] == start:
            num[f] = 0
            continue
        position = 0
        for i in range(indptr[f], indptr[f + 1]):
            v, e = loop_v[i], loop_e[i]
            for k in range(zero_ptr[v], zero_ptr[v + 1]):
                if _mixed(s, loop_v, indptr[f], indptr[f + 1], zero_j[k]):
                    n = _meet(first, zero_j[k], position, fun, p, q, n)
            points = point_ptr[e + 1] - point_ptr[e]
            forward = ends[e, 0] == v
            for k in range(ptr[e], ptr[e + 1]):
                here = position + (1 + rank[k] if forward else points - rank[k])
                n = _meet(first, label[k], here, fun, p, q, n)
            position += 1 + points
        if n != slot_ptr[f + 1]:
            return False
        num[f] = _group_chords(fun, p, q, lo, hi, start, n, position)
    return True


@numba.njit(cache=True, nogil=True)
def _group_chords(fun: Any, p: Any, q: Any, lo: Any, hi: Any, start: int, stop: int, size: int) -> int:
    for i in range(start, stop):
        if p[i] > q[i]:
            p[i], q[i] = q[i], p[i]
    gap = 1
    while gap < (stop - start) // 9:
        gap = 3 * gap + 1
    while gap >= 1:
        for i in range(start + gap, stop):
            a, b, j = p[i], q[i], fun[i]
            k = i
            while k >= start + gap and p[k - gap] * size + q[k - gap] > a * size + b:
                p[k], q[k], fun[k] = p[k - gap], q[k - gap], fun[k - gap]
                k -= gap
            p[k], q[k], fun[k] = a, b, j
        gap //= 3
    n = start
    for i in range(start, stop):
        if i == start or p[i] != p[n - 1] or q[i] != q[n - 1]:
            p[n], q[n], lo[n] = p[i], q[i], i
            n += 1
        hi[n - 1] = i + 1
    return n - start


@numba.njit(cache=True, nogil=True)
def count_meetings(slot_ptr: Any, num: Any, p: Any, q: Any, counts: Any) -> None:
    """For every slot, how many chords of its polygon cross it: those whose ends strictly interleave with its own."""
    counts[:] = 0
    for f in range(num.shape[0]):
        stop = slot_ptr[f] + num[f]
        for a in range(slot_ptr[f], stop):
            b = a + 1
            while b < stop and p[b] < q[a]:
                if p[b] > p[a] and q[b] > q[a]:
                    counts[a] += 1
                    counts[b] += 1
                b += 1


@numba.njit(cache=True, nogil=True)
def _positions(f: int, indptr: Any, loop_v: Any, loop_e: Any, ends: Any, point_ptr: Any, V: int, at: Any) -> int:
    """Vertex at every position of a polygon; the number of positions."""
    n = 0
    for i in range(indptr[f], indptr[f + 1]):
        e = loop_e[i]
        at[n] = loop_v[i]
        n += 1
        points = point_ptr[e + 1] - point_ptr[e]
        forward = ends[e, 0] == loop_v[i]
        for k in range(points):
            at[n] = V + point_ptr[e] + (k if forward else points - 1 - k)
            n += 1
    return n


@numba.njit(cache=True, nogil=True)
def _value(v: int, j: int, z: Any, c: Any, r: Any, floor: float, ends: Any, points: Any) -> tuple[float, float]:
    """Value and error of functional ``j`` at a vertex or at a point on an edge."""
    if v < z.shape[0]:
        return z[v, j], c[v] * r[j] * _GROW + floor
    edge, _, t, d = points
    k = v - z.shape[0]
    a, b = ends[edge[k], 0], ends[edge[k], 1]
    difference = z[b, j] - z[a, j]
    error = max(c[a], c[b]) * r[j] * _GROW + floor
    error += d[k] * (abs(difference) + 2 * error) + 4 * U * (abs(z[a, j]) + abs(z[b, j])) + 2 * TINY
    return z[a, j] + t[k] * difference, error * _GROW


@numba.njit(cache=True, nogil=True)
def fill_meetings(
    indptr: Any,
    loop_v: Any,
    loop_e: Any,
    ends: Any,
    point_ptr: Any,
    points: Any,
    slot_ptr: Any,
    chords: Any,
    z: Any,
    c: Any,
    r: Any,
    floor: float,
    meet_ptr: Any,
    other: Any,
    t: Any,
    d: Any,
    pair: Any,
    sure: Any,
    positions: int,
) -> None:
    """The chords that cross each chord in order along it, from ``p`` to ``q``; ``sure[f]`` if that is proven.

    ``pair`` numbers the crossings of a polygon; both chords of a crossing carry the number.
    """
    fun, p, q, lo, _, num = chords
    at = np.empty(positions, dtype=np.int64)
    cursor = meet_ptr[:-1].copy()
    for f in range(num.shape[0]):
        start, stop = slot_ptr[f], slot_ptr[f] + num[f]
        sure[f] = True
        if num[f] < 2 or meet_ptr[start] == meet_ptr[stop]:
            continue
        _positions(f, indptr, loop_v, loop_e, ends, point_ptr, z.shape[0], at)
        n = 0
        for a in range(start, stop):
            b = a + 1
            while b < stop and p[b] < q[a]:
                if p[b] > p[a] and q[b] > q[a]:
                    other[cursor[a]], pair[cursor[a]] = b, n
                    other[cursor[b]], pair[cursor[b]] = a, n
                    cursor[a] += 1
                    cursor[b] += 1
                    n += 1
                b += 1
        for a in range(start, stop):
            if meet_ptr[a + 1] - meet_ptr[a] < 1:
                continue
            for i in range(meet_ptr[a], meet_ptr[a + 1]):
                j = fun[lo[other[i]]]
                za, ea = _value(at[p[a]], j, z, c, r, floor, ends, points)
                zb, eb = _value(at[q[a]], j, z, c, r, floor, ends, points)
                t[i], d[i] = _ratio(za, zb, ea, eb)
            if not _sort(t, d, other, pair, meet_ptr[a], meet_ptr[a + 1]):
                sure[f] = False


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
        of_pair[: (meet_ptr[hi] - meet_ptr[lo]) // 2] = -1
        inside[f] = _points_inside(lo, hi, meet_ptr, rank, pair, of_pair, seen)
        total = num[f]
        for a in range(lo, hi):
            if meet_ptr[a] < meet_ptr[a + 1]:
                total += rank[meet_ptr[a + 1] - 1] + 1
        segments[f] = total


@numba.njit(cache=True, nogil=True)
def trace_faces(
    indptr: Any,
    loop_v: Any,
    loop_e: Any,
    ends: Any,
    point_ptr: Any,
    slot_ptr: Any,
    chords: Any,
    meetings: Any,
    bases: Any,
    V: int,
    sizes: Any,
    out: Any,
) -> bool:
    """Build the sub-polygons of every polygon from the order of positions and crossings alone.

    ``meetings`` is ``(meet_ptr, other, rank, t, d, seen)``; ``bases`` gives, per polygon, the first number of its new
    vertices, edges, faces and loop entries; ``sizes`` bounds the positions, slots, points and half-edges of a polygon.
    ``out`` is ``(ends, line, indptr, vertices, edges, point)`` with
    ``point`` as ``(slot, other, rank, t, d, A, B, f)``.
    Faces lie to the left of their half-edges: at a point reached along one ray, a face goes on along the next ray
    clockwise. Rays at a crossing are ordered as the positions of their chords' ends. False if a face does not close.
    """
    fun, p, q, lo, _, num = chords
    meet_ptr, other, rank, t, d, seen = meetings
    vertex_base, edge_base, face_base, loop_base = bases
    new_ends, new_line, new_indptr, new_v, new_e, point = out
    at = np.empty(sizes[0], dtype=np.int64)
    edge_at = np.empty(sizes[0], dtype=np.int64)
    rays_ptr = np.empty(sizes[0] + 1, dtype=np.int64)
    rays = np.empty(2 * sizes[1], dtype=np.int64)
    half_base = np.empty(sizes[1] + 1, dtype=np.int64)
    inc_ptr = np.empty(sizes[2] + 1, dtype=np.int64)
    inc = np.empty((2 * sizes[4] + 1, 3), dtype=np.int64)
    following = np.empty(sizes[3], dtype=np.int64)
    origin = np.empty(sizes[3], dtype=np.int64)
    edge_of = np.empty(sizes[3], dtype=np.int64)
    for f in range(num.shape[0]):
        start, K = slot_ptr[f], num[f]
        M = _positions(f, indptr, loop_v, loop_e, ends, point_ptr, V, at)
        n = 0
        for i in range(indptr[f], indptr[f + 1]):
            e = loop_e[i]
            points = point_ptr[e + 1] - point_ptr[e]
            forward = ends[e, 0] == loop_v[i]
            for k in range(points + 1):
                edge_at[n] = e + point_ptr[e] + (k if forward else points - k)
                n += 1
        face, entry = face_base[f], loop_base[f]
        if K == 0:
            for i in range(M):
                new_v[entry + i], new_e[entry + i] = at[i], edge_at[i]
            new_indptr[face + 1] = entry + M
            continue
        # half-edges: M along the boundary, then two per segment of a chord, forward (even) and backward
        half_base[0] = M
        for a in range(K):
            slot = start + a
            cuts = rank[meet_ptr[slot + 1] - 1] + 1 if meet_ptr[slot] < meet_ptr[slot + 1] else 0
            half_base[a + 1] = half_base[a] + 2 * (cuts + 1)
        H = half_base[K]
        for x in range(M):
            origin[x], edge_of[x] = at[x], edge_at[x]
        n_inside = vertex_base[f + 1] - vertex_base[f]
        inc_ptr[: n_inside + 1] = 0
        for a in range(K):
            slot = start + a
            previous = at[p[slot]]
            h = half_base[a]
            number = edge_base[f] + (h - M) // 2
            i = meet_ptr[slot]
            while True:
                last = i >= meet_ptr[slot + 1]
                target = at[q[slot]] if last else vertex_base[f] + seen[i]
                origin[h], origin[h + 1], edge_of[h], edge_of[h + 1] = previous, target, number, number
                new_ends[number, 0], new_ends[number, 1] = previous, target
                new_line[number] = fun[lo[slot]]
                if last:
                    break
                k = seen[i]
                g = vertex_base[f] + k - vertex_base[0]
                best = i
                while i < meet_ptr[slot + 1] and seen[i] == k:
                    if d[i] < d[best]:
                        best = i
                    i += 1
                if inc_ptr[k + 1] == 0 or d[best] < point[4][g]:
                    point[0][g], point[1][g], point[2][g] = slot, other[best], rank[best]
                    point[3][g], point[4][g] = t[best], d[best]
                    point[5][g], point[6][g], point[7][g] = at[p[slot]], at[q[slot]], f
                inc_ptr[k + 1] += 1
                previous = target
                h += 2
                number += 1
        # around every crossing point: its chords, each as a ray to p and a ray to q
        for k in range(n_inside):
            inc_ptr[k + 1] += inc_ptr[k]
        for a in range(K):
            slot = start + a
            i = meet_ptr[slot]
            h = half_base[a]
            while i < meet_ptr[slot + 1]:
                k = seen[i]
                while i < meet_ptr[slot + 1] and seen[i] == k:
                    i += 1
                m = 2 * inc_ptr[k]
                # (position of the end, half-edge that arrives from there, half-edge that leaves to there)
                inc[m, 0], inc[m, 1], inc[m, 2] = p[slot], h, h + 1
                inc[m + 1, 0], inc[m + 1, 1], inc[m + 1, 2] = q[slot], h + 3, h + 2
                inc_ptr[k] += 1
                h += 2
        low = 0
        for k in range(n_inside):
            high = 2 * inc_ptr[k]
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
        # around every position: the edge ahead, chords by their other end counter-clockwise, the edge behind
        rays_ptr[: M + 1] = 0
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
                if rays[i] % 2 == 0:
                    following[half_base[a] + 1] = leave
                    leave = half_base[a]
                else:
                    following[half_base[a + 1] - 2] = leave
                    leave = half_base[a + 1] - 1
            following[x - 1 if x > 0 else M - 1] = leave
            low = rays_ptr[x]
        for h0 in range(H):
            if following[h0] < 0:
                continue
            h = h0
            if face >= face_base[f + 1]:
                return False
            while following[h] >= 0:
                new_v[entry], new_e[entry] = origin[h], edge_of[h]
                entry += 1
                step = following[h]
                following[h] = -1
                h = step
            if h != h0:
                return False
            face += 1
            new_indptr[face] = entry
        if face != face_base[f + 1] or entry != loop_base[f + 1]:
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
        if r[j] > 0.0:
            inverse[j] = 1.0 / r[j]
    for k in range(A.shape[0]):
        a, b, v = A[k], B[k], first + k
        tk, dk = t[k], d[k] * (1.0 + 16 * U) + 4 * U
        worst, total = 0.0, 0.0
        for j in range(n):
            x, y = z[a, j], z[b, j]
            z[v, j] = x + tk * (y - x)
            # equal values are kept as they are: nothing is rounded
            spread = 0.0 if x == y else dk * abs(y - x) + 4 * U * (abs(x) + abs(y))
            worst = max(worst, spread * inverse[j])
            total += spread * spread
        grow = 1.0 + 2 * d[k]
        c[v] = (max(c[a], c[b]) * grow + worst) * (1.0 + 1e-9)
        e2[v] = (max(e2[a], e2[b]) * grow + np.sqrt(total)) * (1.0 + 1e-9) + n * TINY
