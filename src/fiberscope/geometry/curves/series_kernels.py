"""Compiled isolation of the zeros of Chebyshev series: halving until a Taylor bound tells."""

from __future__ import annotations

import math
from typing import Any

from fiberscope.geometry.compiled import inner, kernel
from fiberscope.geometry.curves.root_kernels import OPEN
from fiberscope.numerics.cutoffs import SHORTEST
from fiberscope.numerics.floats import INFLATE, TINY, U

_SPLITS = 5
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
def _enclose(c: Any, d1: Any, n: int, a: float, b: float, fa: float, E: float, out: Any) -> None:
    """The one zero between ``a`` and ``b``, where the series is monotone and has certain signs: place and enclosure."""
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
    low, high = a, b
    for _ in range(60):
        if t - d <= a or t + d >= b:
            break
        f, g = _clenshaw(c, n, t - d), _clenshaw(c, n, t + d)
        if abs(f) > E and abs(g) > E and (f > 0.0) == (fa > 0.0) and (g > 0.0) != (fa > 0.0):
            low, high = t - d, t + d
            break
        d *= 2
    out[0], out[1], out[2] = t, low, high


@inner
def _isolate(c: Any, n: int, E: float, a: float, b: float, d1: Any, d2: Any, stack: Any, out: Any, base: int) -> int:
    """Zeros of a series between two places with certain signs into ``out[base:]``; how many, or :data:`OPEN`."""
    _differentiate(c, n, d1)
    _differentiate(d1, n - 1, d2)
    bend, size = 0.0, 0.0
    for k in range(n - 2):
        bend += abs(d2[k])
    for k in range(n - 1):
        size += _lost(k) * abs(d1[k])
    bend, E1 = bend * INFLATE, size * INFLATE
    count, top = 0, 1
    stack[0, 0], stack[0, 1] = a, b
    while top > 0:
        top -= 1
        l, r = stack[top, 0], stack[top, 1]
        m, h = 0.5 * (l + r), 0.5 * (r - l) * INFLATE
        f, g = _clenshaw(c, n, m), abs(_clenshaw(d1, n - 1, m)) + E1
        if abs(f) > (g * h + 0.5 * bend * h * h + E) * INFLATE:
            continue
        if g - 2 * E1 > bend * h * INFLATE:
            fl = _clenshaw(c, n, l)
            if (fl > 0.0) != (_clenshaw(c, n, r) > 0.0):
                if base + count >= out.shape[0]:
                    return OPEN
                _enclose(c, d1, n, l, r, fl, E, out[base + count])
                count += 1
            continue
        found = False
        for k in range(_SPLITS):
            m = l + (r - l) * (0.5 + 0.07 * (k if k % 2 else -k))
            if l < m < r and abs(_clenshaw(c, n, m)) > E:
                found = True
                break
        if not found or h < SHORTEST or top + 2 > stack.shape[0]:
            return OPEN
        stack[top, 0], stack[top, 1] = m, r
        stack[top + 1, 0], stack[top + 1, 1] = l, m
        top += 2
    return count


@kernel
def isolate_all(series: Any, error: Any, ends: Any, work: Any, stack: Any, out: Any, counts: Any, skip: Any) -> None:
    """Zeros of ``series[p, :, j]`` between the places ``ends[p]`` ``(left_lo, left_hi, right_lo, right_hi)``.

    ``out`` is ``(pieces, functionals, room, 3)``: place and enclosure of each; ``counts`` how many, or :data:`OPEN`.
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
            if 2 * abs(work[0, 0]) > (total + E) * INFLATE:
                continue
            _differentiate(work[0], n, work[1])
            steep = 0.0
            for k in range(n - 1):
                steep += abs(work[1, k])
            left, right = 0.5 * (ends[p, 0] + ends[p, 1]), 0.5 * (ends[p, 2] + ends[p, 3])
            fl, fr = _clenshaw(work[0], n, left), _clenshaw(work[0], n, right)
            sure = abs(fl) > E + steep * (ends[p, 1] - ends[p, 0]) and abs(fr) > E + steep * (ends[p, 3] - ends[p, 2])
            if not (sure and math.isfinite(E) and ends[p, 1] < ends[p, 2]):
                counts[p, j] = OPEN
                continue
            counts[p, j] = _isolate(work[0], n, E, ends[p, 1], ends[p, 2], work[1], work[2], stack, out[p, j], 0)
