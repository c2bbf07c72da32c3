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

import math
from typing import Any

import numpy as np

from fiberscope.geometry.compiled import inner, kernel
from fiberscope.numerics.floats import TINY, U

POOR = 2.0**-3
"""A point on a segment that is known no better than this is made anew from exact numbers."""

_GROW = 1.0 + 64 * U
_ONES = np.uint64(0x0101010101010101)


@inner
def larger(x: float, y: float) -> float:
    """The larger of two bounds; NaN, which decides nothing, if one of them is."""
    return x if x >= y or math.isnan(x) else y


@kernel
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


@kernel
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


@inner
def _ratio(za: float, zb: float, ea: float, eb: float) -> tuple[float, float]:
    """Where a functional vanishes between A (0) and B (1), and a bound of the error of that number.

    The true values have opposite signs and lie within ``ea`` of ``za``, ``eb`` of ``zb``.
    """
    if za > ea or zb < -eb:
        a, b = za, -zb
    elif za < -ea or zb > eb:
        a, b = -za, zb
    else:
        return 0.5, 1.0
    a = 0.0 if a < 0.0 else a
    b = 0.0 if b < 0.0 else b
    total = a + b
    room = total - (ea + eb) * _GROW
    if not room > 0.0:
        return 0.5, 1.0
    # t* - t = ((a* - a) b - a (b* - b)) / ((a + b) (a* + b*))
    error = (ea * (b / total) + eb * (a / total)) / room * _GROW + 8 * U
    return a / total, error if error < 1.0 else 1.0


@inner
def _sort(t: Any, d: Any, label: Any, pair: Any, lo: int, hi: int) -> bool:
    """Sort the stretch by ``t`` (shell sort); False if the error bounds do not prove the order strict, or are bad."""
    gap = 1
    while gap < (hi - lo) // 9:
        gap = 3 * gap + 1
    while gap >= 1:
        for i in range(lo + gap, hi):
            x, y = t[i], d[i]
            l, m = label[i], pair[i]
            k, before = i, i - gap
            while before >= lo and t[before] > x:
                t[k], d[k] = t[before], d[before]
                label[k], pair[k] = label[before], pair[before]
                k = before
                before -= gap
            t[k], d[k] = x, y
            label[k], pair[k] = l, m
        gap //= 3
    strict = d[lo] < POOR
    for i in range(lo + 1, hi):
        strict &= d[i] < POOR
        strict &= t[i - 1] + d[i - 1] < t[i] - d[i]
    return bool(strict)


@kernel
def fill_crossings(
    ends: Any,
    words: Any,
    z: Any,
    c: Any,
    r: Any,
    floor: float,
    ptr: Any,
    label: Any,
    t: Any,
    d: Any,
    sure: Any,
    room: Any,
) -> None:
    """Crossing functionals of every edge with their parameter and its error, in order; ``sure`` if that is proven.

    ``room`` has the size of ``label`` and is only moved about.
    """
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
        sure[e] = _sort(t, d, label, room, ptr[e], ptr[e + 1])


@inner
def _mixed(s: Any, loop: Any, lo: int, hi: int, j: int) -> bool:
    low, high = False, False
    for i in range(lo, hi):
        sign = s[loop[i], j]
        low |= sign < 0
        high |= sign > 0
    return low and high


@kernel
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


@inner
def _meet(first: Any, j: int, position: int, fun: Any, p: Any, q: Any, n: int, stop: int) -> int:
    """Functional ``j`` vanishes at a position: a chord begins, as number ``n``, or ends; the number of the next one."""
    k = first[j]
    if k >= 0:
        q[k] = position
        first[j] = -1
        return n
    if n < stop:
        first[j] = n
        fun[n], p[n] = j, position
    return n + 1


@kernel
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
    fun: Any,
    p: Any,
    q: Any,
    lo: Any,
    hi: Any,
    num: Any,
    first: Any,
) -> bool:
    """Chords of every polygon, sorted by their positions; equal chords are one with several functionals.

    The functionals of slot ``k`` are ``fun[lo[k]:hi[k]]``; polygon ``f`` uses ``num[f]`` slots from ``slot_ptr[f]``
    on; ``first`` is -1 for every functional. False if some functional does not vanish at two positions exactly.
    """
    for f in range(indptr.shape[0] - 1):
        start, stop = slot_ptr[f], slot_ptr[f + 1]
        n, position = start, np.int64(0)
        if start == stop:
            num[f] = 0
            continue
        for i in range(indptr[f], indptr[f + 1]):
            v, e = loop_v[i], loop_e[i]
            for k in range(zero_ptr[v], zero_ptr[v + 1]):
                if _mixed(s, loop_v, indptr[f], indptr[f + 1], zero_j[k]):
                    n = _meet(first, zero_j[k], position, fun, p, q, n, stop)
            # by increasing position, so that chords come out by increasing p
            forward = ends[e, 0] == v
            k, step, zero, points = ptr[e], 1, position + 1, point_ptr[e + 1] - point_ptr[e]
            if not forward:
                k, step, zero = ptr[e + 1] - 1, -1, position + points
            for _ in range(ptr[e], ptr[e + 1]):
                n = _meet(first, label[k], zero + step * rank[k], fun, p, q, n, stop)
                k += step
            position += 1 + points
        if n != stop:
            return False
        num[f] = _group_chords(fun, p, q, lo, hi, start, stop)
    return True


@inner
def _group_chords(fun: Any, p: Any, q: Any, lo: Any, hi: Any, start: int, stop: int) -> int:
    """Sort chords with the same ``p`` by ``q`` and join equal ones; how many are left."""
    for i in range(start + 1, stop):
        b, j, k = q[i], fun[i], i
        while k > start and p[k - 1] == p[i] and q[k - 1] > b:
            q[k], fun[k] = q[k - 1], fun[k - 1]
            k -= 1
        q[k], fun[k] = b, j
    n = start
    for i in range(start, stop):
        if i == start or p[i] != p[n - 1] or q[i] != q[n - 1]:
            p[n], q[n], lo[n] = p[i], q[i], i
            n += 1
        hi[n - 1] = i + 1
    return n - start


@kernel
def count_meetings(slot_ptr: Any, num: Any, p: Any, q: Any, counts: Any) -> None:
    """Count for every slot (from zero) the chords of its polygon that cross it: their ends strictly interleave."""
    for f in range(num.shape[0]):
        stop = slot_ptr[f] + num[f]
        for a in range(slot_ptr[f], stop):
            b = a + 1
            while b < stop and p[b] < q[a]:
                if p[b] > p[a] and q[b] > q[a]:
                    counts[a] += 1
                    counts[b] += 1
                b += 1


@kernel
def fill_positions(
    indptr: Any, loop_v: Any, loop_e: Any, ends: Any, point_ptr: Any, V: int, at: Any, piece: Any, ptr: Any
) -> None:
    """Vertex at every position of a polygon, from ``ptr[f]`` on, and the piece of an edge that begins there."""
    n = 0
    for f in range(indptr.shape[0] - 1):
        ptr[f] = n
        for i in range(indptr[f], indptr[f + 1]):
            e, v = loop_e[i], loop_v[i]
            first, points = point_ptr[e], point_ptr[e + 1] - point_ptr[e]
            step = 1 if ends[e, 0] == v else -1
            k = first if step > 0 else first + points
            at[n], piece[n] = v, e + k
            for _ in range(points):
                n += 1
                at[n] = V + k if step > 0 else V + k - 1
                k += step
                piece[n] = e + k
            n += 1
    ptr[indptr.shape[0] - 1] = n


@inner
def _value(v: int, j: int, z: Any, c: Any, r: Any, floor: float, ends: Any, edge: Any, t: Any, d: Any) -> Any:
    """Value and error of functional ``j`` at a vertex or at a point on an edge."""
    rj, k = r[j] * _GROW, v - z.shape[0]
    if k < 0:
        return z[v, j], c[v] * rj + floor
    a, b = ends[edge[k], 0], ends[edge[k], 1]
    za, zb = z[a, j], z[b, j]
    worst = larger(c[a], c[b])
    error = worst * rj + floor
    error += d[k] * (abs(zb - za) + 2 * error) + 4 * U * (abs(za) + abs(zb)) + 2 * TINY
    return za + t[k] * (zb - za), error * _GROW


@kernel
def list_meetings(slot_ptr: Any, num: Any, p: Any, q: Any, meet_ptr: Any, cursor: Any, other: Any, pair: Any) -> None:
    """The chords that cross each chord; ``cursor`` begins as ``meet_ptr``.

    ``pair`` numbers the crossings of a polygon; both chords of a crossing carry the number.
    """
    for f in range(num.shape[0]):
        stop, n = slot_ptr[f] + num[f], 0
        for a in range(slot_ptr[f], stop):
            b = a + 1
            while b < stop and p[b] < q[a]:
                if p[b] > p[a] and q[b] > q[a]:
                    i, k = cursor[a], cursor[b]
                    other[i], other[k] = b, a
                    pair[i], pair[k] = n, n
                    cursor[a], cursor[b] = i + 1, k + 1
                    n += 1
                b += 1


@kernel
def order_meetings(
    at: Any,
    at_ptr: Any,
    ends: Any,
    edge: Any,
    edge_t: Any,
    edge_d: Any,
    slot_ptr: Any,
    num: Any,
    target: Any,
    p: Any,
    q: Any,
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
) -> None:
    """Bring the meetings in order along each chord, from ``p`` to ``q``; ``sure[f]`` if that is proven.

    ``target[k]`` is one functional of slot ``k``.
    """
    for f in range(num.shape[0]):
        good = True
        for a in range(slot_ptr[f], slot_ptr[f] + num[f]):
            first, last = meet_ptr[a], meet_ptr[a + 1]
            if first == last:
                continue
            u, v = at[at_ptr[f] + p[a]], at[at_ptr[f] + q[a]]
            for i in range(first, last):
                j = target[other[i]]
                za, ea = _value(u, j, z, c, r, floor, ends, edge, edge_t, edge_d)
                zb, eb = _value(v, j, z, c, r, floor, ends, edge, edge_t, edge_d)
                t[i], d[i] = _ratio(za, zb, ea, eb)
            good &= _sort(t, d, other, pair, first, last)
        sure[f] = good
