"""Windows of shortest ways on surfaces of flat convex polygons, compiled (Mitchell, Mount, Papadimitriou 1987).

All shortest ways from a point run straight through the unfolded polygons, between vertices at which the surface has
too much angle. A *window* is a bundle of such ways on one edge: where their source is when it is unfolded into the
plane of the polygon that they are about to enter, and between which two points of the edge they pass. Windows come out
of a heap in the order of their least lengths; each is handed on to the other edges of its polygon. A window is left out
if all of its ways are longer than ways through an end of its edge (Xin and Wang 2009). Every length that is written
down is that of a way on the surface: where rounding puts a ray beside its window, the way is bent at the window's end.

Arrays. Position p is a corner of a polygon and the side that begins there: ``face_of (P,)``, ``first (F + 1,)`` the
positions of every polygon, ``corner (P,)`` its vertex, ``xy (P, 2)`` where that is in the plane of the polygon,
counter-clockwise, ``mate (P,)`` the position of the same edge in the next polygon or -1, ``turned (P,)`` whether both
run the same way. ``around, around_first`` are the positions of every vertex; ``bent (V,)`` says which vertices shortest
ways may pass. ``goal_side (P,)`` and ``goal_vertex (V,)`` are what is looked for, or ``goal_face`` with ``gx, gy``.

Room: ``window (N, 5)`` has source x, source y, from, to, length so far; ``side (N,)`` its position; ``key (H,)`` and
``item (H,)`` the heap (an item from 0 is a window, one below zero the vertex ``-1 - item``); ``far (V,)`` the lengths
to vertices, infinite at first; ``touched`` lists vertices that are not. ``state (3,)`` counts windows, heap and
touched.
"""

from __future__ import annotations

import math
from typing import Any

from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.cutoffs import NEARER, SLIM


@inner
def _push(key: Any, item: Any, state: Any, value: float, which: int) -> None:
    k = state[1]
    state[1] = k + 1
    while k > 0:
        up = (k - 1) // 2
        if key[up] <= value:
            break
        key[k], item[k] = key[up], item[up]
        k = up
    key[k], item[k] = value, which


@inner
def _pop(key: Any, item: Any, state: Any) -> int:
    """The item with the least key; the rest is in order again."""
    top = item[0]
    last = state[1] - 1
    state[1] = last
    value, which = key[last], item[last]
    k = 0
    while True:
        child = 2 * k + 1
        if child >= last:
            break
        if child + 1 < last and key[child + 1] < key[child]:
            child += 1
        if key[child] >= value:
            break
        key[k], item[k] = key[child], item[child]
        k = child
    key[k], item[k] = value, which
    return int(top)


@inner
def _reach(v: int, way: float, far: Any, touched: Any, key: Any, item: Any, state: Any, goal: Any, best: Any) -> None:
    """A way to a vertex: it may be the shortest so far, or reach the goal."""
    if way < far[v]:
        if far[v] == math.inf:
            touched[state[2]] = v
            state[2] += 1
        far[v] = way
        if goal[v] and way < best[0]:
            best[0] = way
        _push(key, item, state, way, -1 - v)


@inner
def _spread(
    p: int, sx: float, sy: float, lo: float, hi: float, so_far: float,
    first: Any, face_of: Any, corner: Any, xy: Any, mate: Any, turned: Any, goal_side: Any, goal_vertex: Any,
    window: Any, side: Any, key: Any, item: Any, far: Any, touched: Any, state: Any, best: Any,
) -> None:  # fmt: skip
    """Hand the ways from a source to side ``p`` on, as far as they pass it between ``lo`` and ``hi``."""
    begin, end = first[face_of[p]], first[face_of[p] + 1]
    q = p + 1 if p + 1 < end else begin
    ax, ay = xy[p, 0], xy[p, 1]
    bx, by = xy[q, 0] - ax, xy[q, 1] - ay
    size = math.sqrt(bx * bx + by * by)
    one = math.hypot(ax + lo * bx - sx, ay + lo * by - sy)
    two = math.hypot(ax + hi * bx - sx, ay + hi * by - sy)
    _reach(corner[p], so_far + one + lo * size, far, touched, key, item, state, goal_vertex, best)
    _reach(corner[q], so_far + two + (1 - hi) * size, far, touched, key, item, state, goal_vertex, best)
    square = bx * bx + by * by
    foot = ((sx - ax) * bx + (sy - ay) * by) / square if square > 0.0 else 0.0
    near = min(max(foot, lo), hi)
    least = so_far + math.hypot(ax + near * bx - sx, ay + near * by - sy)
    if goal_side[p]:
        best[0] = min(best[0], least)
        return
    if mate[p] < 0 or least >= best[0] or size == 0.0:
        return
    if far[corner[p]] + hi * size < (so_far + two) * NEARER:
        return
    if far[corner[q]] + (1 - lo) * size < (so_far + one) * NEARER:
        return
    # the same source in the plane of the next polygon, on the other side of the edge
    height = (bx * (sy - ay) - by * (sx - ax)) / size
    along = foot * size
    m = mate[p]
    begin, end = first[face_of[m]], first[face_of[m] + 1]
    r = m + 1 if m + 1 < end else begin
    ex, ey = xy[r, 0] - xy[m, 0], xy[r, 1] - xy[m, 1]
    own = math.sqrt(ex * ex + ey * ey)
    ex, ey = ex / own, ey / own
    if not turned[p]:
        along, lo, hi = size - along, 1 - hi, 1 - lo
    n = state[0]
    state[0] = n + 1
    window[n, 0] = xy[m, 0] + along * ex + abs(height) * ey
    window[n, 1] = xy[m, 1] + along * ey - abs(height) * ex
    window[n, 2], window[n, 3], window[n, 4] = lo, hi, so_far
    side[n] = m
    _push(key, item, state, least, n)


@inner
def _cross(
    p: int, which: int, goal_face: int, gx: float, gy: float,
    first: Any, face_of: Any, corner: Any, xy: Any, mate: Any, turned: Any, goal_side: Any, goal_vertex: Any,
    window: Any, side: Any, key: Any, item: Any, far: Any, touched: Any, state: Any, best: Any,
) -> None:  # fmt: skip
    """Ways that enter a polygon: to the goal in it, and to its other sides."""
    f = face_of[p]
    begin, end = first[f], first[f + 1]
    q = p + 1 if p + 1 < end else begin
    sx, sy, lo, hi, so_far = window[which, 0], window[which, 1], window[which, 2], window[which, 3], window[which, 4]
    ax, ay = xy[p, 0], xy[p, 1]
    bx, by = xy[q, 0] - ax, xy[q, 1] - ay
    size = math.hypot(bx, by)
    x0, y0 = ax + lo * bx - sx, ay + lo * by - sy
    x1, y1 = ax + hi * bx - sx, ay + hi * by - sy
    # what was shortest when the window was made need not be any more
    if far[corner[p]] + hi * size < (so_far + math.hypot(x1, y1)) * NEARER:
        return
    if far[corner[q]] + (1 - lo) * size < (so_far + math.hypot(x0, y0)) * NEARER:
        return
    if f == goal_face:
        dx, dy = gx - sx, gy - sy
        cut = bx * dy - by * dx
        t = ((sx - ax) * dy - (sy - ay) * dx) / cut if cut != 0.0 else lo
        t = min(max(t, lo), hi)
        cx, cy = ax + t * bx, ay + t * by
        best[0] = min(best[0], so_far + math.hypot(cx - sx, cy - sy) + math.hypot(gx - cx, gy - cy))
    for j in range(begin, end):
        if j == p:
            continue
        k = j + 1 if j + 1 < end else begin
        ux, uy = xy[j, 0] - sx, xy[j, 1] - sy
        vx, vy = xy[k, 0] - sx, xy[k, 1] - sy
        # right of the first ray and left of the second: both are linear along the side
        a0, b0 = y0 * ux - x0 * uy, y0 * vx - x0 * vy
        a1, b1 = x1 * uy - y1 * ux, x1 * vy - y1 * vx
        low, high = 0.0, 1.0
        if (a0 < 0.0 and b0 < 0.0) or (a1 < 0.0 and b1 < 0.0):
            continue
        if a0 < 0.0:
            low = max(low, a0 / (a0 - b0))
        if b0 < 0.0:
            high = min(high, a0 / (a0 - b0))
        if a1 < 0.0:
            low = max(low, a1 / (a1 - b1))
        if b1 < 0.0:
            high = min(high, a1 / (a1 - b1))
        if high - low > SLIM:
            _spread(j, sx, sy, low, high, so_far, first, face_of, corner, xy, mate, turned, goal_side, goal_vertex,
                    window, side, key, item, far, touched, state, best)  # fmt: skip


@inner
def _start_vertex(face: int, x: float, y: float, first: Any, corner: Any, xy: Any) -> int:
    """The vertex at a point, or -1: from there ways run in all directions, and none of them around the vertex."""
    begin, end = first[face], first[face + 1]
    size = 0.0
    for p in range(begin, end):
        size = max(size, abs(xy[p, 0] - xy[begin, 0]) + abs(xy[p, 1] - xy[begin, 1]))
    for p in range(begin, end):
        if math.hypot(xy[p, 0] - x, xy[p, 1] - y) <= SLIM * size:
            return int(corner[p])
    return -1


@kernel
def shortest(
    start_face: int, px: float, py: float, goal_face: int, gx: float, gy: float,
    first: Any, face_of: Any, corner: Any, xy: Any, mate: Any, turned: Any, around_first: Any, around: Any, bent: Any,
    goal_side: Any, goal_vertex: Any,
    window: Any, side: Any, key: Any, item: Any, far: Any, touched: Any, state: Any, best: Any,
) -> bool:  # fmt: skip
    """The length of the shortest way from a point of a polygon to the goal in ``best[0]``; False if there is no room.

    ``far`` is infinite again at the end.
    """
    state[0], state[1], state[2] = 0, 0, 0
    best[0] = math.inf
    enough = True
    origin = _start_vertex(start_face, px, py, first, corner, xy)
    if origin >= 0:
        _reach(origin, 0.0, far, touched, key, item, state, goal_vertex, best)
    for p in range(first[start_face], first[start_face + 1]):
        if origin < 0:
            _spread(p, px, py, 0.0, 1.0, 0.0, first, face_of, corner, xy, mate, turned, goal_side, goal_vertex,
                    window, side, key, item, far, touched, state, best)  # fmt: skip
    if start_face == goal_face:
        best[0] = min(best[0], math.hypot(gx - px, gy - py))
    while state[1] > 0 and key[0] < best[0]:
        length = key[0]
        which = _pop(key, item, state)
        if which < 0:
            v = -1 - which
            if far[v] < length:
                continue
            for k in range(around_first[v], around_first[v + 1]):
                p = around[k]
                f = face_of[p]
                if f == goal_face:
                    best[0] = min(best[0], length + math.hypot(gx - xy[p, 0], gy - xy[p, 1]))
                if not bent[v] and v != origin:
                    continue
                sides = first[f + 1] - first[f]
                if state[0] + sides > len(side) or state[1] + 4 * sides > len(key):
                    enough = False
                    break
                before = p - 1 if p > first[f] else first[f + 1] - 1
                for j in range(first[f], first[f + 1]):
                    if j not in (p, before):
                        _spread(j, xy[p, 0], xy[p, 1], 0.0, 1.0, length, first, face_of, corner, xy, mate, turned,
                                goal_side, goal_vertex, window, side, key, item, far, touched, state, best)  # fmt: skip
        else:
            p = side[which]
            f = face_of[p]
            begin, end = first[f], first[f + 1]
            if state[0] + end - begin > len(side) or state[1] + 4 * (end - begin) > len(key):
                enough = False
            else:
                _cross(p, which, goal_face, gx, gy, first, face_of, corner, xy, mate, turned, goal_side, goal_vertex,
                       window, side, key, item, far, touched, state, best)  # fmt: skip
        if not enough:
            break
    for k in range(state[2]):
        far[touched[k]] = math.inf
    return enough
