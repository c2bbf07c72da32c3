"""Compiled decisions of the planar engine: signs, order of crossings on edges, chords and their crossings.

Nothing here judges combinatorics by floats alone. Every float comes with a bound of its error; what a bound leaves
open is flagged, decided exactly by the caller and handed back as integer ranks, from which the structure is built.

Conventions. Polygons are convex loops in counter-clockwise order: edge ``i`` of a loop joins its vertices ``i`` and
``i + 1``. ``s`` holds signs of functionals at vertices, padded to a multiple of eight columns with ones, so that
eight of them are compared as one word. Points on edges follow the ``V`` vertices in number. A *position* is an
index into a polygon's loop after its edges were subdivided; a *chord* is the pair of positions ``p < q`` where a
functional vanishes on the boundary. A *slot* is a chord's place in the arrays over all polygons.

Arrays, for V vertices, E edges and w functionals of one switch: ``z (V, w)`` values with ``|z - true| <= c[v] r[j] +
floor``; ``s (V, w)`` signs, 2 for open; ``words`` the same bytes as machine words; ``ends (E, 2)``; polygon f is
``loop_v, loop_e[indptr[f]:indptr[f + 1]]``. Lists of varying length stand end to end, cut by an array named ``..ptr``,
``..place`` while it is filled: crossings of edges ``label``, ``rank``; chords ``fun``, ``p``, ``q`` by ``slot_ptr``,
of which polygon f uses the first ``num[f]``; meetings of chords ``other``, ``pair``. ``t``, ``d`` are a parameter on a
segment and the bound of its error. Invariant: an order that is not proven strict is never used, ``sure`` says so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.floats import FEW_ROUNDINGS, TINY, U

POOR = 2.0**-3
"""A point on a segment that is known no better than this is made anew from exact numbers."""

_ONES = np.uint64(0x0101010101010101)


@kernel
def float_signs(z: Any, c: Any, r: Any, floor: float, s: Any) -> int:
    """Signs of ``z`` where ``|z[v, j]| > c[v] r[j] + floor`` proves them, 2 elsewhere; how many 2 there are.

    A value that overflowed proves nothing, whatever its bound: a sum may leave the range of floats on the wrong side.
    """
    count = 0
    for v in range(z.shape[0]):
        exact, open_here = c[v] == 0.0, 0
        scale = c[v] * FEW_ROUNDINGS
        for j in range(z.shape[1]):
            bound = 0.0 if exact else scale * r[j] + floor  # zero times an infinite r would be NaN
            sign = (bound < z[v, j] < np.inf) - (-np.inf < z[v, j] < -bound)
            s[v, j] = sign
            open_here += sign == 0
        if open_here and not exact:
            for j in range(z.shape[1]):
                if s[v, j] == 0 and (r[j] != 0.0 or z[v, j] != 0.0):  # also where they are NaN
                    s[v, j] = 2
                    count += 1
    return count


@kernel
def list_crossings(ends: Any, words: Any, place: Any, label: Any) -> None:
    """The functionals with strictly opposite signs at the ends of edge ``e``, in ``label`` from ``place[e]`` on.

    ``place[e]`` is moved behind the last one. With an empty ``label`` they are only counted.
    """
    for e in range(ends.shape[0]):
        a, b, i = ends[e, 0], ends[e, 1], place[e]
        for k in range(words.shape[1]):
            # bytes 01 and ff differ by fe, the only difference with bit 1 and without bit 0
            w = words[a, k] ^ words[b, k]
            mark = (w >> np.uint64(1)) & ~w & _ONES
            if label.size == 0:
                i += np.int64((mark * _ONES) >> np.uint64(56))
                continue
            j = 8 * k
            while mark:
                if mark & np.uint64(1):
                    label[i] = j
                    i += 1
                mark >>= np.uint64(8)
                j += 1
        place[e] = i


@kernel
def list_corners(indptr: Any, loop_v: Any, words: Any, place: Any, label: Any) -> None:
    """The functionals that vanish at the vertex of loop entry ``i`` and have both signs around its polygon.

    They stand in ``label`` from ``place[i]`` on, which is moved behind the last one. With an empty ``label`` they are
    only counted.
    """
    for f in range(indptr.shape[0] - 1):
        for k in range(words.shape[1]):
            low, high, some = np.uint64(0), np.uint64(0), np.uint64(0)
            for i in range(indptr[f], indptr[f + 1]):
                w = words[loop_v[i], k]  # of the bytes 00, 01 and ff the lowest bit tells zeros, the highest the sign
                minus = w >> np.uint64(7)
                low |= minus
                high |= w & ~minus
                some |= ~w
            mixed = low & high & some & _ONES
            if mixed == np.uint64(0):
                continue
            for i in range(indptr[f], indptr[f + 1]):
                mark = mixed & ~words[loop_v[i], k]
                if label.size == 0:
                    place[i] += np.int64((mark * _ONES) >> np.uint64(56))
                    continue
                j = 8 * k
                while mark:
                    if mark & np.uint64(1):
                        label[place[i]] = j
                        place[i] += 1
                    mark >>= np.uint64(8)
                    j += 1


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
    room = total - (ea + eb) * FEW_ROUNDINGS
    if not 0.0 < room < np.inf:  # a sum that overflowed would make every quotient zero
        return 0.5, 1.0
    # t* - t = ((a* - a) b - a (b* - b)) / ((a + b) (a* + b*))
    error = (ea * (b / total) + eb * (a / total)) / room * FEW_ROUNDINGS + 8 * U
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
    corner_ptr: Any,
    corner_j: Any,
    slot_ptr: Any,
    fun: Any,
    p: Any,
    q: Any,
    first: Any,
) -> bool:
    """Chords of every polygon, sorted by where they begin, one per functional.

    ``corner_j[corner_ptr[i]:corner_ptr[i + 1]]`` vanish at the vertex of loop entry ``i`` and change their sign inside
    the polygon; ``first`` is -1 for every functional. False if some functional does not vanish at two positions.
    """
    for f in range(indptr.shape[0] - 1):
        n, stop, position = slot_ptr[f], slot_ptr[f + 1], np.int64(0)
        if n == stop:
            continue
        for i in range(indptr[f], indptr[f + 1]):
            for k in range(corner_ptr[i], corner_ptr[i + 1]):
                n = _meet(first, corner_j[k], position, fun, p, q, n, stop)
            # by increasing position, so that chords come out by increasing p
            e = loop_e[i]
            k, last, step, zero = ptr[e], ptr[e + 1], 1, position + 1
            position = zero + point_ptr[e + 1] - point_ptr[e]
            if ends[e, 0] != loop_v[i]:
                k, last, step, zero = last - 1, k - 1, -1, position - 1
            while k != last:
                n = _meet(first, label[k], zero + step * rank[k], fun, p, q, n, stop)
                k += step
        if n != stop:
            return False
    return True


@kernel
def group_chords(slot_ptr: Any, fun: Any, p: Any, q: Any, lo: Any, hi: Any, num: Any) -> None:
    """Sort the chords of a polygon that begin together by where they end, and join equal ones.

    Polygon ``f`` then uses ``num[f]`` slots from ``slot_ptr[f]`` on; the functionals of slot ``k`` are
    ``fun[lo[k]:hi[k]]``.
    """
    for f in range(num.shape[0]):
        start, stop = slot_ptr[f], slot_ptr[f + 1]
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
        num[f] = n - start


@kernel
def list_meetings(slot_ptr: Any, num: Any, p: Any, q: Any, place: Any, other: Any, pair: Any) -> None:
    """The chords of its polygon that cross chord ``a``, their ends strictly interleaving, from ``place[a]`` on.

    ``pair`` numbers the crossings of a polygon; both chords of a crossing carry the number. ``place[a]`` is moved
    behind the last one. With an empty ``other`` they are only counted.
    """
    for f in range(num.shape[0]):
        stop, n = slot_ptr[f] + num[f], 0
        for a in range(slot_ptr[f], stop):
            b = a + 1
            while b < stop and p[b] < q[a]:
                if p[b] > p[a] and q[b] > q[a]:
                    i, k = place[a], place[b]
                    place[a], place[b] = i + 1, k + 1
                    if other.size:
                        other[i], other[k] = b, a
                        pair[i], pair[k] = n, n
                        n += 1
                b += 1


@inner
def _value(v: int, j: int, z: Any, c: Any, r: Any, floor: float, ends: Any, edge: Any, t: Any, d: Any) -> Any:
    """Value and error of functional ``j`` at a vertex or at a point on an edge."""
    rj, k = r[j] * FEW_ROUNDINGS, v - z.shape[0]
    if k < 0:
        return z[v, j], c[v] * rj + floor
    a, b = ends[edge[k], 0], ends[edge[k], 1]
    za, zb, worst, cb = z[a, j], z[b, j], c[a], c[b]
    if worst < cb or math.isnan(cb):  # NaN, which decides nothing, stays
        worst = cb
    error = worst * rj + floor
    error += d[k] * (abs(zb - za) + 2 * error) + 4 * U * (abs(za) + abs(zb)) + 2 * TINY
    return za + t[k] * (zb - za), error * FEW_ROUNDINGS


@kernel
def order_crossings(
    segments: Any,
    ptr: Any,
    label: Any,
    target: Any,
    pair: Any,
    z: Any,
    c: Any,
    r: Any,
    floor: float,
    ends: Any,
    edge: Any,
    edge_t: Any,
    edge_d: Any,
    t: Any,
    d: Any,
    sure: Any,
) -> None:
    """Bring what crosses a segment, given by its ends, in order; ``sure`` if that is proven.

    ``label[ptr[k]:ptr[k + 1]]`` cross segment ``k``, and ``target`` says by which functional; they receive the
    parameter and a bound of its error. ``pair`` is moved about with them.
    """
    for k in range(segments.shape[0]):
        first, last = ptr[k], ptr[k + 1]
        if first == last:
            continue
        u, v = segments[k, 0], segments[k, 1]
        for i in range(first, last):
            j = target[label[i]]
            za, ea = _value(u, j, z, c, r, floor, ends, edge, edge_t, edge_d)
            zb, eb = _value(v, j, z, c, r, floor, ends, edge, edge_t, edge_d)
            t[i], d[i] = _ratio(za, zb, ea, eb)
        sure[k] = _sort(t, d, label, pair, first, last)
