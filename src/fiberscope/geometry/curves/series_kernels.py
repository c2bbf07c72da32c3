"""Compiled isolation of the zeros of Chebyshev series that are known up to an error: halving until a bound tells.

Where a series is above its error it has a certain sign. The rest of an interval are *bands*: whatever the function
within the error, its zeros lie there. A band on which the series is monotone, and that is left with the other sign,
holds just one zero of the series.

Arrays: ``series (pieces, n, functionals)`` are coefficients of ``T_0, ..., T_{n-1}`` on [-1, 1]; ``error (pieces,
functionals)`` bounds the distance of the true function; ``ends (pieces, 2)`` are the ends that are asked about. ``work
(3, n)`` takes a series and its two derivatives, ``stack (DEPTH, 2)`` the intervals that wait, ``room (3,)`` one band.
A band is ``(place, low, high, proven)``; bands of a functional are disjoint and in order, and outside of them the
function has the sign of the series. A place of 2.0, outside of [-1, 1], stands for none yet.
"""

from __future__ import annotations

import math
from typing import Any

from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.cutoffs import SHORTEST
from fiberscope.numerics.floats import INFLATE, TINY, U

DEPTH = 60
"""Room for intervals that wait: each halving leaves one behind."""


@inner
def _lost(k: int) -> float:
    """Rounding of Clenshaw's recurrence per unit of coefficient ``k``: it grows like ``k^2`` towards the ends."""
    return (2.0 * (k + 1) * (k + 1) + 16.0) * U


@inner
def _clenshaw(c: Any, n: int, s: float) -> Any:
    b1, b2 = 0.0, 0.0
    for k in range(n - 1, 0, -1):
        b1, b2 = 2.0 * s * b1 - b2 + c[k], b1
    return s * b1 - b2 + c[0]


@inner
def _differentiate(c: Any, n: int, out: Any) -> None:
    """Coefficients of the derivative: ``n - 1`` of them, the rest zero."""
    out[n - 1] = 0.0
    if n > 1:
        out[n - 2] = 2.0 * (n - 1) * c[n - 1]
    for k in range(n - 3, -1, -1):
        out[k] = out[k + 2] + 2.0 * (k + 1) * c[k + 1]
    out[0] *= 0.5


@inner
def _certain(c: Any, n: int, a: float, b: float, E: float, turn: float) -> float:
    """Between ``a``, where ``turn`` times the series is above ``E``, and ``b``: a place near ``b`` where it is."""
    inside, outside = a, b
    for _ in range(60):
        m = 0.5 * (inside + outside)
        if turn * _clenshaw(c, n, m) > E:
            inside = m
        else:
            outside = m
        if abs(inside - outside) <= 2 * U:
            break
    return inside


@inner
def _zero_between(c: Any, n: int, a: float, b: float) -> float:
    """A place between ``a`` and ``b`` where a series changes its sign; the middle if it does not."""
    up = _clenshaw(c, n, b) > 0.0
    if (_clenshaw(c, n, a) > 0.0) == up:
        return 0.5 * (a + b)
    for _ in range(60):
        m = 0.5 * (a + b)
        if (_clenshaw(c, n, m) > 0.0) == up:
            b = m
        else:
            a = m
    return 0.5 * (a + b)


@inner
def _simple(c: Any, d1: Any, n: int, a: float, b: float, fa: float, E: float, out: Any) -> None:
    """The one zero between ``a`` and ``b``, where the series is monotone and has certain signs, into ``out``: its
    place, and places around it beyond which the series is above ``E``."""
    low, high, t = a, b, 0.5 * (a + b)
    for _ in range(200):
        f = _clenshaw(c, n, t)
        if f == 0.0:
            break
        if (f > 0.0) == (fa > 0.0):
            low = t
        else:
            high = t
        slope = _clenshaw(d1, n - 1, t)
        new = t - f / slope if slope != 0.0 else low
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - t) <= 2 * U:
            t = new
            break
        t = new
    slope = abs(_clenshaw(d1, n - 1, t))
    d = (2 * E / slope if slope > 0.0 else b - a) + 4 * U
    turn = 1.0 if fa > 0.0 else -1.0
    low, high = t - d, t + d
    if not (low > a and turn * _clenshaw(c, n, low) > E):
        low = _certain(c, n, a, t, E, turn)
    if not (high < b and turn * _clenshaw(c, n, high) < -E):
        high = _certain(c, n, b, t, E, -turn)
    out[0], out[1], out[2] = t, low, high


@inner
def _finish(c: Any, d1: Any, n: int, E: float, turn: float, band: Any) -> None:
    """Place of a band, and whether it is proven to hold one zero: the series is monotone there, with certain ends."""
    fl, fr = _clenshaw(c, n, band[1]), _clenshaw(c, n, band[2])
    crosses = (fl > 0.0) != (fr > 0.0)
    band[3] = 1.0 if turn != 0.0 and crosses and abs(fl) > E and abs(fr) > E else 0.0
    if not band[1] <= band[0] <= band[2]:
        band[0] = _zero_between(c, n, band[1], band[2]) if crosses else _zero_between(d1, n - 1, band[1], band[2])


@inner
def _bands(c: Any, n: int, E: float, a: float, b: float, d1: Any, d2: Any, stack: Any, room: Any, out: Any) -> int:
    """Stretches of ``[a, b]`` outside of which the series is proven to be above ``E``, in order, into ``out``.

    An interval is halved until it is proven to have no value below ``E``, to be monotone, or to have none above
    ``2 E``; what is left touches its neighbours and is joined with them.
    """
    _differentiate(c, n, d1)
    _differentiate(d1, n - 1, d2)
    # |T_k| <= 1, so sums of absolute coefficients bound the second derivative and the rounding of the first
    bend, size = 0.0, 0.0
    for k in range(n - 2):
        bend += abs(d2[k])
    for k in range(n - 1):
        size += _lost(k) * abs(d1[k])
    bend, E1 = bend * INFLATE, size * INFLATE
    count, top, turn = 0, 1, 0.0
    stack[0, 0], stack[0, 1] = a, b
    while top > 0:
        top -= 1
        l, r = stack[top, 0], stack[top, 1]
        m, h = 0.5 * (l + r), 0.5 * (r - l) * INFLATE
        f, slope = _clenshaw(c, n, m), _clenshaw(d1, n - 1, m)
        vary = ((abs(slope) + E1) * h + 0.5 * bend * h * h) * INFLATE
        if abs(f) > (vary + E) * INFLATE:  # Taylor around the middle: no value below E in this interval
            continue
        way = 0.0
        room[0], room[1], room[2] = 2.0, l, r  # no place yet
        if abs(slope) - E1 > bend * h * INFLATE:
            way = 1.0 if slope > 0.0 else -1.0
            fl, fr = way * _clenshaw(c, n, l), way * _clenshaw(c, n, r)
            if fl > E or fr < -E:
                continue
            if fl < -E and fr > E:
                _simple(c, d1, n, l, r, way * fl, E, room)
            elif fl < -E:
                room[1] = _certain(c, n, l, r, E, -way)
            elif fr > E:
                room[2] = _certain(c, n, r, l, E, way)
        elif not abs(f) + vary <= 2 * E and h >= SHORTEST and top + 2 <= stack.shape[0]:
            # the left half comes off first: bands are found in order
            stack[top, 0], stack[top, 1] = m, r
            stack[top + 1, 0], stack[top + 1, 1] = l, m
            top += 2
            continue
        # a stretch that touches the one before, or finds no room, is joined with it: its place is to be found anew
        if count > 0 and (room[1] <= out[count - 1, 2] or count == out.shape[0]):
            out[count - 1, 0], out[count - 1, 2] = 2.0, room[2]
            turn = turn if turn == way else 0.0
            continue
        if count > 0:
            _finish(c, d1, n, E, turn, out[count - 1])
        out[count, 0], out[count, 1], out[count, 2] = room[0], room[1], room[2]
        count, turn = count + 1, way
    if count > 0:
        _finish(c, d1, n, E, turn, out[count - 1])
    return count


@kernel
def find_bands(
    series: Any, error: Any, ends: Any, work: Any, stack: Any, room: Any, out: Any, counts: Any, skip: Any
) -> None:
    """Where ``series[p, :, j]``, known up to ``error[p, j]``, may vanish between the places ``ends[p]``.

    ``out`` is ``(pieces, functionals, bands, 4)``: place, low, high, and 1 where one zero is proven; ``counts`` says
    how many.
    """
    n = series.shape[1]
    for p in range(series.shape[0]):
        for j in range(series.shape[2]):
            counts[p, j] = 0
            if skip[j]:
                continue
            total, lost = 0.0, 0.0
            for k in range(n):
                work[0, k] = series[p, k, j]
                total += abs(series[p, k, j])
                lost += _lost(k) * abs(series[p, k, j])
            E = (error[p, j] + lost) * INFLATE + 8 * TINY
            if total == 0.0 and error[p, j] == 0.0:
                continue
            if 2 * abs(work[0, 0]) > (total + E) * INFLATE:  # the constant outweighs all other terms
                continue
            if not (math.isfinite(E) and math.isfinite(total)):
                counts[p, j] = 1
                out[p, j, 0, 0], out[p, j, 0, 1] = 0.5 * (ends[p, 0] + ends[p, 1]), ends[p, 0]
                out[p, j, 0, 2], out[p, j, 0, 3] = ends[p, 1], 0.0
                continue
            counts[p, j] = _bands(work[0], n, E, ends[p, 0], ends[p, 1], work[1], work[2], stack, room, out[p, j])
