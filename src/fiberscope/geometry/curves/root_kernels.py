"""Compiled search for the zeros of ``A x(t) + B y(t) + C`` on pieces of the unit circle and the unit tractrix.

Between neighbouring critical points such a function is monotone, and the critical points are known in closed form: the
angle of ``(A, B)`` and its opposite on the circle, 0 and ``arsinh(B / A)`` on the tractrix. So the signs at the ends of
a piece and at the critical points inside tell how many zeros there are. Every sign must exceed a bound of all errors:
those of the coefficients, of the ends (known up to an enclosure) and of rounding. Otherwise the function is reported as
open on that piece, and exact numbers decide.

Arrays, for P pieces and w functionals: ``value``, ``error`` ``(P, 3, w)`` are A, B, C and bounds of their errors;
``ends (P, 4)`` enclosures of the left and the right end; ``at (P, 4)`` the coordinates x, y of the middles of these;
``skip (w,)`` functionals that are not asked. Zeros come out in the order of pieces as ``piece``, ``label``, ``t``,
``lo``, ``hi``, with ``lo <= zero <= hi`` and the function of certain sign at both; ``open_piece``, ``open_label`` are
left to others.
"""

from __future__ import annotations

import math
from typing import Any

from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.floats import INFLATE, TINY, U

CIRCLE, TRACTRIX = 0, 1

OPEN = -1
"""In place of a number of zeros: floats do not tell."""

_WORK = 24 * U
"""Rounding of one evaluation relative to the sum of absolute terms: libraries err by a few units."""


@inner
def x_of(model: int, t: float) -> float:
    """First coordinate of the unit curve."""
    return math.cos(t) if model == CIRCLE else t - math.tanh(t)


@inner
def y_of(model: int, t: float) -> float:
    """Second coordinate of the unit curve."""
    return math.sin(t) if model == CIRCLE else 1.0 / math.cosh(t)


@inner
def _slope(model: int, t: float, A: float, B: float) -> float:
    if model == CIRCLE:
        return B * math.cos(t) - A * math.sin(t)
    th = math.tanh(t)
    return th * (A * th - B / math.cosh(t))


@inner
def _value(model: int, t: float, A: float, B: float, C: float) -> Any:
    return A * x_of(model, t) + B * y_of(model, t) + C


@inner
def _root(model: int, a: float, b: float, fa: float, A: float, B: float, C: float) -> float:
    """The zero between ``a`` and ``b``, to rounding: Newton's steps, halving where they leave the bracket."""
    t = 0.5 * (a + b)
    for _ in range(200):
        f = _value(model, t, A, B, C)
        if f == 0.0:
            return t
        if (f > 0.0) == (fa > 0.0):
            a = t
        else:
            b = t
        slope = _slope(model, t, A, B)
        new = t - f / slope if slope != 0.0 else a  # a is no point inside: halving follows
        if not a < new < b:
            new = 0.5 * (a + b)
        if abs(new - t) <= 2 * U * (abs(t) + TINY):
            return new
        t = new
    return t


@inner
def _critical(model: int, k: int, A: float, B: float, eA: float, eB: float, low: float, out: Any) -> bool:
    """Critical point number ``k`` above about ``low`` and its error into ``out``; False if there is none."""
    size = math.hypot(A, B)
    if model == CIRCLE:
        phi = math.atan2(B, A)
        first = math.ceil((low - phi) / math.pi) - 1
        out[0] = phi + (first + k) * math.pi
        out[1] = 2 * (eA + eB) / size + 8 * U * (abs(out[0]) + 8.0)
        return True
    if A == 0.0:
        out[0], out[1] = 0.0, 0.0
        return k == 0
    bend = math.asinh(B / A)
    second = 2 * (eB + abs(B / A) * eA) / size + 8 * U * (abs(bend) + 1.0)
    if (k == 0) == (bend <= 0.0):
        out[0], out[1] = bend, second
    else:
        out[0], out[1] = 0.0, 0.0
    return k < 2


@inner
def zeros_inside(
    model: int,
    A: float,
    B: float,
    C: float,
    eA: float,
    eB: float,
    eC: float,
    left_lo: float,
    left_hi: float,
    right_lo: float,
    right_hi: float,
    xl: float,
    yl: float,
    xr: float,
    yr: float,
    t: Any,
    lo: Any,
    hi: Any,
    base: int,
    room: Any,
) -> int:
    """Zeros inside one piece into ``t[base:]`` with their enclosures, and how many there are, or :data:`OPEN`.

    The ends of the piece lie in ``[left_lo, left_hi]`` and ``[right_lo, right_hi]``; ``xl`` ... are the coordinates of
    the middles of these. Up to four zeros fit; ``room`` has two entries.
    """
    if A == 0.0 and B == 0.0 and C == 0.0 and eA == 0.0 and eB == 0.0 and eC == 0.0:
        return 0
    # E bounds, everywhere on the piece, what the coefficients' errors and one evaluation may change
    reach = 1.0 if model == CIRCLE else 1.0 + max(abs(left_lo), abs(right_hi))
    sA, sB = abs(A) + eA, abs(B) + eB
    E = (eA * reach + eB + eC + _WORK * (sA * reach + sB + abs(C))) * INFLATE + 8 * TINY
    if not math.isfinite(E):
        return OPEN
    # the constant outweighs the rest: no zero
    if abs(C) > (sA * reach + sB + E) * INFLATE:
        return 0
    steep = (sA + sB) * INFLATE  # |x'|, |y'| <= 1 on both curves
    before = A * xl + B * yl + C
    end = A * xr + B * yr + C
    if not abs(before) > E + steep * (left_hi - left_lo) or not abs(end) > E + steep * (right_hi - right_lo):
        return OPEN
    # the angle of (A, B), and with it the critical points, must be known
    if 4 * (eA + eB) >= math.hypot(A, B) or (model == TRACTRIX and eA > 0.0 and 4 * eA >= abs(A)):
        return OPEN
    count, at, k = 0, left_hi, 0
    while True:
        more = _critical(model, k, A, B, eA, eB, left_lo, room)
        k += 1
        c, error = room[0], room[1]
        if more and c + error < left_lo:
            continue
        last = not more or c - error > right_hi
        if last:
            c, here = right_lo, end
        else:
            # a critical point near an end is asked about at the end: the slip pays for the distance
            inside = min(max(c, left_hi), right_lo)
            slip = error + abs(inside - c)
            c = inside
            here = _value(model, c, A, B, C)
            if not abs(here) > E + steep * slip:
                return OPEN
        if (here > 0.0) != (before > 0.0):
            if not at < c:
                return OPEN
            r = _root(model, at, c, before, A, B, C)
            slope = abs(_slope(model, r, A, B))
            d = (2 * E / slope if slope > 0.0 else c - at) + 4 * U * abs(r)
            # an enclosure: the smallest of doubling steps whose two ends have proven, opposite signs
            low, high = at, c
            for _ in range(60):
                if r - d <= at or r + d >= c:
                    break
                f, g = _value(model, r - d, A, B, C), _value(model, r + d, A, B, C)
                if abs(f) > E and abs(g) > E and (f > 0.0) == (before > 0.0) and (g > 0.0) == (here > 0.0):
                    low, high = r - d, r + d
                    break
                d *= 2
            t[base + count], lo[base + count], hi[base + count] = min(max(r, low), high), low, high
            count += 1
        if last:
            return count
        at, before = c, here


@kernel
def find_zeros(
    model: int, value: Any, error: Any, ends: Any, at: Any, skip: Any, piece: Any, label: Any, t: Any, lo: Any, hi: Any,
    open_piece: Any, open_label: Any, room: Any, found: Any,
) -> None:  # fmt: skip
    """Zeros of all functionals ``value[p, :, j]`` (rows A, B, C) on all pieces.

    ``ends[p]`` is ``(left_lo, left_hi, right_lo, right_hi)`` and ``at[p]`` the coordinates of the middles of the ends.
    ``found`` gets the numbers of zeros and of open functionals, also beyond the room that there is: the first call may
    be made to count.
    """
    zeros, opened = 0, 0
    for p in range(value.shape[0]):
        for j in range(value.shape[2]):
            if skip[j]:
                continue
            n = zeros_inside(
                model, value[p, 0, j], value[p, 1, j], value[p, 2, j], error[p, 0, j], error[p, 1, j], error[p, 2, j],
                ends[p, 0], ends[p, 1], ends[p, 2], ends[p, 3], at[p, 0], at[p, 1], at[p, 2], at[p, 3],
                room[0], room[1], room[2], 0, room[3],
            )  # fmt: skip
            if n == OPEN:
                if opened < open_piece.shape[0]:
                    open_piece[opened], open_label[opened] = p, j
                opened += 1
                continue
            for k in range(n):
                if zeros < t.shape[0]:
                    piece[zeros], label[zeros] = p, j
                    t[zeros], lo[zeros], hi[zeros] = room[0, k], room[1, k], room[2, k]
                zeros += 1
    found[0], found[1] = zeros, opened
