"""Compiled decisions of the planar engine: signs, order of crossings on edges, chords and their crossings.

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

POOR = 2.0**-3
"""A point on a segment that is known no better than this is made anew from exact numbers."""

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
    """Sort the stretch by ``t`` (shell sort); False if the error bounds do not prove the order strict, or are bad."""
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
    strict = d[lo] < POOR
    for i in range(lo + 1, hi):
        strict &= d[i] < POOR
        strict &= t[i - 1] + d[i - 1] < t[i] - d[i]
    return bool(strict)


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
    first = np.empty(s.shape[1], dtype=np.int64)
    for j in range(s.shape[1]):
        first[j] = -1
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
    for a in range(counts.shape[0]):
        counts[a] = 0
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
def fill_positions(f: int, indptr: Any, loop_v: Any, loop_e: Any, ends: Any, point_ptr: Any, V: int, at: Any) -> int:
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
    cursor = np.empty(meet_ptr.shape[0], dtype=np.int64)
    for a in range(meet_ptr.shape[0]):
        cursor[a] = meet_ptr[a]
    for f in range(num.shape[0]):
        start, stop = slot_ptr[f], slot_ptr[f] + num[f]
        sure[f] = True
        if num[f] < 2 or meet_ptr[start] == meet_ptr[stop]:
            continue
        fill_positions(f, indptr, loop_v, loop_e, ends, point_ptr, z.shape[0], at)
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
