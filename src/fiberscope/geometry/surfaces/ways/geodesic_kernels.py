"""Geodesics of an ellipsoid until they meet something, compiled: Taylor series of their equation.

Points ``x_i = s_i y_i`` of the ellipsoid are held as points ``y`` of the unit sphere. At unit speed

    y_i'' = -q y_i / s_i^2    with    q = |y'|^2 / sum_j (y_j / s_j)^2,

so the coefficients of ``y`` and ``q`` follow from each other by products of series. A step goes as far as the last
coefficients are below rounding.

Goals, a row ``(n, h, e, g)`` each. An arc is where ``n y = h`` and ``e y >= g``; both forms change by 1 at most per
length on the ellipsoid, so that the larger of ``|n y - h|`` and ``g - e y`` is no more than the way to the arc. Along a
geodesic their second derivatives are at most its curvature, which the series bounds within a step: so a way goes on as
far as one of the two forms cannot vanish before it is looked at again, and no arc is passed unseen.

Work: ``y, v (3, K)`` are the series of place and velocity, ``w, p, q (K,)`` those of the
denominator, the numerator and their quotient.
"""

from __future__ import annotations

import math
from typing import Any

from fiberscope.numerics.compiling.kernels import adding, inner, kernel

TERMS = 24
"""Of the series."""

_SAFE = 2.0 ** (-54 / TERMS)
"""Steps in radii of convergence: the last term of a series is then below rounding (Jorba and Zou 2005)."""


@adding
def _product(one: Any, two: Any, k: int) -> float:
    """Coefficient ``k`` of a product of series."""
    total = 0.0
    for j in range(k + 1):
        total += one[j] * two[k - j]
    return float(total)


@adding
def _square(one: Any, k: int) -> float:
    total = 0.0
    if k % 2 == 0:
        total += 0.5 * one[k // 2] * one[k // 2]
    for j in range((k + 1) // 2):
        total += one[j] * one[k - j]
    return float(2.0 * total)


@inner
def _expand(inverse: Any, y: Any, v: Any, w: Any, p: Any, q: Any) -> float:
    """The series behind ``y[:, 0]`` and ``v[:, 0]``; returns how far they reach."""
    order = len(w)
    for k in range(order - 1):
        p[k], w[k], q[k] = 0.0, 0.0, 0.0
        for i in range(3):
            w[k] += inverse[i] * _square(y[i], k)
            p[k] += _square(v[i], k)
        q[k] = (p[k] - _product(w, q, k)) / w[0]  # the last term is none yet
        for i in range(3):
            v[i, k + 1] = -inverse[i] * _product(q, y[i], k) / (k + 1)
            y[i, k + 1] = v[i, k] / (k + 1)
    last, before = 0.0, 0.0
    for i in range(3):
        last = max(last, abs(y[i, order - 1]))
        before = max(before, abs(y[i, order - 2]))
    reach = math.inf
    if last > 0.0:
        reach = last ** (-1.0 / (order - 1))
    if before > 0.0:
        reach = min(reach, before ** (-1.0 / (order - 2)))
    return float(_SAFE * reach)


@inner
def _place(series: Any, t: float, i: int) -> float:
    value = 0.0
    for k in range(series.shape[1] - 1, -1, -1):
        value = value * t + series[i, k]
    return value


@inner
def _bend(size: Any, y: Any, reach: float) -> float:
    """No less than the curvature of the geodesic within a step."""
    square = 0.0
    for i in range(3):
        most = 0.0
        for k in range(y.shape[1] - 1, 1, -1):
            most = most * reach + k * (k - 1) * abs(y[i, k])
        square += (size[i] * most) ** 2
    return math.sqrt(square)


@inner
def _until(gap: float, rate: float, bend: float) -> float:
    """How far a positive form is positive, whose second derivative is at most ``bend``."""
    if gap <= 0.0:
        return 0.0
    root = math.sqrt(rate * rate + 2.0 * bend * gap)
    if rate < 0.0:
        return 2.0 * gap / (root - rate)
    return (rate + root) / bend if bend > 0.0 else math.inf


@inner
def _advance(
    a: float, b: float, c: float, da: float, db: float, dc: float, bend: float, slack: float, slope: float,
    touch: float, goals: Any,
) -> float:  # fmt: skip
    """How far a way keeps more than the slack, which grows by the slope, from all goals; below zero if it does not."""
    least = math.inf
    for row in range(len(goals)):
        form = goals[row, 0] * a + goals[row, 1] * b + goals[row, 2] * c - goals[row, 3]
        rate = goals[row, 0] * da + goals[row, 1] * db + goals[row, 2] * dc
        side = goals[row, 7] - goals[row, 4] * a - goals[row, 5] * b - goals[row, 6] * c - slack
        off = abs(form) - slack
        if off <= touch and side <= touch:
            return -1.0
        far = _until(off, (rate if form > 0.0 else -rate) - slope, bend)
        if side > 0.0 and far < least:
            rate = -goals[row, 4] * da - goals[row, 5] * db - goals[row, 6] * dc
            far = max(far, _until(side, rate - slope, bend))
        least = min(least, far)
    return least


@inner
def _chord(a: float, b: float, c: float, size: Any, target: Any) -> float:
    """The straight way to the target, if there is one."""
    one, two, three = size[0] * (a - target[0]), size[1] * (b - target[1]), size[2] * (c - target[2])
    return math.sqrt(one * one + two * two + three * three)


@inner
def _detour(a: float, b: float, c: float, size: Any, target: Any) -> float:
    """No less than the way to the target: along the image of a great circle, which turns by the angle between them."""
    flat = math.sqrt((a - target[0]) ** 2 + (b - target[1]) ** 2 + (c - target[2]) ** 2)
    if flat == 0.0:
        return 0.0
    angle = 2.0 * math.asin(min(1.0, flat / 2.0))
    longest = max(size[0], size[1], size[2])
    part = _chord(a, b, c, size, target) / flat + longest * angle / 2.0
    return float(angle * min(longest, part))


@kernel
def follow(
    start: Any, ways: Any, slopes: Any, size: Any, inverse: Any, goals: Any, target: Any, horizon: float, touch: float,
    y: Any, v: Any, w: Any, p: Any, q: Any, found: Any,
) -> None:  # fmt: skip
    """Follow geodesics from ``start`` with velocities ``ways (D, 3)``; write two lengths into ``found (D, 2)``.

    The first: where the goals are at most ``slope`` times the length away, so that a way whose direction differs by as
    much (in radians) does not meet them before. The second: that of a way to the goals along this direction. Infinite
    beyond the horizon. With a ``target (3,)`` that is the goal, and ``goals`` are empty.
    """
    for row in range(len(ways)):
        found[row, 0], found[row, 1] = math.inf, math.inf
        slope, done, so_far = slopes[row], False, 0.0
        for i in range(3):
            y[i, 0], v[i, 0] = start[i], ways[row, i]
        while so_far <= horizon and not done:
            reach = _expand(inverse, y, v, w, p, q)
            bend = _bend(size, y, reach)
            t = 0.0
            while t <= reach and so_far + t <= horizon:
                a, b, c = _place(y, t, 0), _place(y, t, 1), _place(y, t, 2)
                if len(target):
                    free = _chord(a, b, c, size, target) - slope * (so_far + t)
                    if free <= touch:
                        found[row, 0] = so_far + t
                        found[row, 1] = so_far + t + _detour(a, b, c, size, target)
                        done = True
                        break
                    t += free / (1.0 + slope)
                    continue
                da, db, dc = _place(v, t, 0), _place(v, t, 1), _place(v, t, 2)
                free = _advance(a, b, c, da, db, dc, bend, slope * (so_far + t), slope, touch, goals)
                if free >= 0.0:
                    t += free
                elif found[row, 0] == math.inf:
                    found[row, 0] = so_far + t
                    slope = 0.0
                else:
                    found[row, 1] = so_far + t
                    done = True
                    break
            if done or not reach > 0.0:
                break
            so_far += reach
            speed, along, square = 0.0, 0.0, 0.0
            for i in range(3):
                p[i] = _place(y, reach, i)
                q[i] = _place(v, reach, i)
                square += p[i] * p[i]
            square = math.sqrt(square)
            for i in range(3):  # back to the sphere, to its tangent plane and to unit speed
                y[i, 0] = p[i] / square
                along += y[i, 0] * q[i]
            for i in range(3):
                v[i, 0] = q[i] - along * y[i, 0]
                speed += (size[i] * v[i, 0]) ** 2
            speed = math.sqrt(speed)
            for i in range(3):
                v[i, 0] /= speed
