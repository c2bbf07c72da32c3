r"""Proven bounds of areas on ellipsoids and cylinders: integrals along boundaries, in balls.

**Ellipsoids.** Under ``u -> u @ axes`` the area element of the unit sphere is multiplied by
:math:`\sqrt{\det G}\,\sqrt{u^\top S u}`, with the Gram matrix :math:`G` of the axes and :math:`S = G^{-1}`. In the
principal frame, in which :math:`S` is diagonal (but for a rest that is bounded, and changes areas by a factor near one)
with entries in the ratio :math:`a : b : 1`, none above 1, a meridian from the height :math:`z` to the north pole has

.. math:: F(z) = \int_z^1 \sqrt{x^2 + (1 - x^2) \alpha/\rho^2}\,dx, \qquad \alpha = a X^2 + b Y^2, \quad
    \rho^2 = X^2 + Y^2,

and :math:`\omega_N = -F\,d\varphi = -(F/\rho^2)(X\,dY - Y\,dX)` is a primitive of the area element that is smooth at
the north pole: with :math:`s = \sqrt{z^2 + \alpha}` and :math:`\sigma = (1 + s)(1 + z)`

.. math:: \frac F{\rho^2} = \frac{1 + z^2}{2(1 + zs)} + \alpha\Bigl(\frac{2 + 2z + z^2 + sz(2 + z)}
    {2(1 + z)\sigma(1 + zs)} + \frac{\rho^2 - \alpha}{3\sigma^3}\,{}_2F_1\bigl(1, \tfrac32; \tfrac52;
    (\rho^2 - \alpha)\rho^2/\sigma^2\bigr)\Bigr).

Another one, :math:`\omega_S`, is smooth at the south pole. They differ by :math:`dT`, where :math:`T(\varphi)` is the
area between two meridians. So boundaries are followed with the one above the equator and with the other below it, and
where one gives way to the other, :math:`T` is added: the sum is the area of a pattern, but for whole ellipsoids. Which
primitive is taken where is free, so no decision has to be exact, and boundaries may run through the poles.

**Cylinders.** The area below an arc is the integral of its height times the width of the lines, along the angle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import inf, nan

import flint
import numpy as np

from fiberscope.geometry.surfaces.proven_arcs import (
    BITS,
    Arb,
    ProvenArc,
    Vector,
    angle_of,
    cross_of,
    dot_of,
    ends_of,
    off_of,
    root_of,
)
from fiberscope.numerics.floats import FloatArray, IntArray

Acb = flint.acb
Integrand = Callable[[flint.acb, bool], flint.acb]
Matrix = list[Vector]

_GOAL = Arb(2) ** -50
"""What integrals aim at, relative and absolute; what they reach is in their balls."""

_EVALUATIONS = 4000
"""No integral asks more often; what it has then is a bound."""

_SWEEPS = 8
"""Of Jacobi's rotations: their rest shrinks by squares."""


def cylinder_area_bounds(
    arcs: Iterable[ProvenArc], sides: IntArray, axes: FloatArray, count: int
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of the areas of ``count`` patterns on a cylinder."""
    with flint.ctx.workprec(BITS):
        rows = [[Arb(float(v)) for v in axis] for axis in axes]
        size = dot_of(rows[2], rows[2]).sqrt()
        upright = [x / size for x in rows[2]]
        flat = [off_of(row, upright) for row in rows[:2]]
        gram = [[dot_of(a, b) for b in flat] for a in flat]
        total = [Arb(0)] * (count + 1)  # the last one is what lies beyond the ends
        whole = size * _integral(_below(gram, [Arb(1), Arb(0)], Arb(1), [Arb(0), Arb(0)]), Arb(0), 2 * Arb.pi())
        for arc, (left, right) in zip(arcs, sides.tolist(), strict=True):
            if arc.straight:
                continue
            part = size * _under(gram, arc)
            above, below = (left, right) if arc.back else (right, left)
            total[below] += part
            total[above] -= part
        found = np.array([ends_of(part) for part in total[:count]]).reshape(-1, 2)
        most = ends_of(whole)[1]
    return np.clip(found[:, 0], 0.0, most), np.minimum(found[:, 1], most)


def _under(gram: Matrix, arc: ProvenArc) -> flint.arb:
    """Part of the unrolled cylinder below an arc, whose heights are between 0 and 1, and reach as far as known."""
    n, level = arc.normal, arc.normal[2]
    if not arc.steep:
        slope = [-n[0] / level, -n[1] / level]
        return _integral(_below(gram, arc.begin, arc.height / level, slope), Arb(0), arc.turn)
    most = (arc.turn * root_of(gram[0][0] + gram[1][1])).upper()
    return (Arb(-1) if level.contains(Arb(0)) else Arb(0)).union(Arb(1)) * most


def _below(gram: Matrix, begin: Vector, middle: flint.arb, slope: Vector) -> Integrand:
    """Height of an arc times the width of the cylinder's lines, at angles from ``begin`` on."""
    (a, b), (_, d) = gram

    def value(t: flint.acb, analytic: bool) -> flint.acb:
        c, s = t.cos(), t.sin()
        x, y = c * begin[0] - s * begin[1], c * begin[1] + s * begin[0]
        square = y * y * a - 2 * b * x * y + x * x * d
        return (middle + x * slope[0] + y * slope[1]) * square.sqrt(analytic=analytic)

    return value


def _integral(f: Integrand, begin: flint.arb, end: flint.arb) -> flint.arb:
    """The integral of a real function: between the middles of the ends, and what may be missing there."""
    found = Acb.integral(f, begin.mid(), end.mid(), rel_tol=_GOAL, abs_tol=_GOAL, eval_limit=_EVALUATIONS).real
    for ball, sign in ((begin, -1), (end, 1)):
        if not ball.is_exact():
            found += sign * f(Acb(ball), False).real * (ball - ball.mid())
    return found


# --- ellipsoids ------------------------------------------------------------------------------------------------------


def ellipsoid_area_bounds(
    arcs: Iterable[ProvenArc], corners: IntArray, sides: IntArray, axes: FloatArray, count: int
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of the areas of ``count`` patterns on an ellipsoid.

    ``corners (arcs, 2)`` numbers the ends of the arcs, ``sides (all, 2)`` has the patterns beside arcs and circles.
    """
    with flint.ctx.workprec(BITS):
        scale, frame, shape, rest = principal(axes)
        sheet = Meridians(shape)
        total, room = [Arb(0)] * count, [Arb(inf)] * count
        north: dict[int, bool] = {}
        for k, arc in enumerate(arcs):
            path = _Path(arc, frame)
            first, last = path.is_north(0.0), None
            if arc.ends is not None:
                names = corners[k].tolist()
                seen = [bool(dot_of(end, frame[2]).mid() >= 0) for end in arc.ends]
                first, last = (north.setdefault(name, side) for name, side in zip(names, seen, strict=True))
            part = sheet.along(path, first, first if last is None else last)
            for side, sign in zip(sides[k].tolist(), (1, -1), strict=True):
                total[side] += sign * part
                # beyond the plane there is that much of the round sphere, which is not of this pattern
                beyond = 2 * Arb.pi() * (1 - sign * arc.height)
                room[side] = room[side].min(sheet.whole - beyond * min(shape, key=float).sqrt())
        found = [_settle(part, sheet.whole, most) for part, most in zip(total, room, strict=True)]
        parts = _completed(found, sheet.whole)
        factor = scale * (1 + Arb(0, rest)).sqrt() if rest < 1 else Arb(nan)
        bounds = np.array([ends_of(part * factor) for part in parts]).reshape(-1, 2)
        most = ends_of(sheet.whole * factor)[1]
    return np.clip(bounds[:, 0], 0.0, most), np.minimum(bounds[:, 1], most)


def _settle(part: flint.arb, whole: flint.arb, most: flint.arb) -> flint.arb | None:
    """The area that is known but for whole ellipsoids; None where it may be nothing or all."""
    if not part.is_finite():
        return Arb(0).union(whole)
    part -= int(float((part / whole).mid().floor())) * whole
    if part > 0 and part < whole:
        return part
    if part > whole / 2:  # its middle is below the whole ellipsoid, its ball is not
        part -= whole
    if most < whole + part.lower():  # not all, so next to nothing
        return Arb(0).union(part.upper().max(Arb(0)))
    return None


def _completed(found: list[flint.arb | None], whole: flint.arb) -> Vector:
    """With what is left for the patterns of which nothing is known."""
    left = whole - sum((part for part in found if part is not None), Arb(0))
    left = Arb(0).union(left.upper().max(Arb(0))) if sum(part is None for part in found) > 1 else left
    return [left if part is None else part for part in found]


def principal(axes: FloatArray) -> tuple[flint.arb, Matrix, Vector, flint.arb]:
    """For the area element: its scale, an orthonormal frame, the form's entries there, and a bound of the rest.

    The last one is what is not on the diagonal, in units of the smallest entry; the largest entry comes last and is 1.
    """
    with flint.ctx.workprec(4 * BITS):
        rows = [[Arb(float(v)) for v in row] for row in axes]
        gram = flint.arb_mat([[dot_of(a, b) for b in rows] for a in rows])
        scale, form = gram.det().sqrt(), gram.inv()
        turned = flint.arb_mat([[int(i == j) for j in range(3)] for i in range(3)])
        for i, j in [(0, 1), (0, 2), (1, 2)] * _SWEEPS:
            angle = (Arb.atan2(2 * form[i, j].mid(), (form[i, i] - form[j, j]).mid()) / 2).mid()
            if not angle.is_finite():
                continue
            step = flint.arb_mat([[int(p == q) for q in range(3)] for p in range(3)])
            step[i, i] = step[j, j] = angle.cos()
            step[i, j], step[j, i] = angle.sin(), -angle.sin()
            form, turned = step * form * step.transpose(), step * turned
        order = sorted(range(3), key=lambda i: float(form[i, i].mid()))
        shape = [form[i, i] for i in order]
        rest = sum((form[i, j].abs_upper() for i in range(3) for j in range(3) if i != j), Arb(0))
        bound = (rest / shape[0]).abs_upper() if shape[0] > 0 else Arb(inf)
        frame = [[turned[i, j] for j in range(3)] for i in order]
        if order in ([0, 2, 1], [1, 0, 2], [2, 1, 0]):  # right-handed, as the rotations are
            frame[0] = [-x for x in frame[0]]
        return scale * shape[2].sqrt(), frame, [shape[0] / shape[2], shape[1] / shape[2], Arb(1)], bound


class _Path:
    """An arc of the unit sphere in a frame: ``middle + cos t one + sin t two``."""

    def __init__(self, arc: ProvenArc, frame: Matrix) -> None:
        radius = root_of(1 - arc.height * arc.height)
        aside = cross_of(arc.normal, arc.begin)
        self.middle = [arc.height * dot_of(arc.normal, row) for row in frame]
        self.one, self.two = ([radius * dot_of(side, row) for row in frame] for side in (arc.begin, aside))
        self.turn = arc.turn

    def at(self, t: flint.acb | flint.arb) -> tuple[list[flint.acb], list[flint.acb]]:
        """Place and velocity."""
        c, s = t.cos(), t.sin()
        place = [m + c * a + s * b for m, a, b in zip(self.middle, self.one, self.two, strict=True)]
        return place, [c * b - s * a for a, b in zip(self.one, self.two, strict=True)]

    def is_north(self, t: float) -> bool:
        m, a, b = (float(part[2].mid()) for part in (self.middle, self.one, self.two))
        return bool(m + np.cos(t) * a + np.sin(t) * b >= 0)

    def crossings(self) -> list[float]:
        """Angles inside of the arc near which it meets the equator; floats."""
        m, a, b = (float(part[2].mid()) for part in (self.middle, self.one, self.two))
        size = float(np.hypot(a, b))
        if not abs(m) < size:
            return []
        found = np.arctan2(b, a) + np.array([-1.0, 1.0]) * np.arccos(-m / size)
        return sorted(t for t in (found % (2 * np.pi)).tolist() if 0 < t < float(self.turn.mid()))


def _mean(w: flint.acb, power: int) -> flint.acb:
    """The mean of ``1 / (1 - w x^2)`` for ``x`` from 0 to 1 with the weight ``x^power``.

    For ``w`` left of 1. A hypergeometric function, evaluated in the middle of the ball; the distance ``d`` of
    ``w x^2`` from 1 bounds it by ``1 / d`` and its derivative by ``1 / d^2``.
    """
    d = Arb(1).min((1 - w.real).lower())
    if not d > 0:
        return Acb(nan)
    middle = Acb(w.real.mid(), w.imag.mid())
    slip = (w - middle).abs_upper() / (d * d)
    found = middle.hypgeom_2f1(1, (power + 1) / 2, (power + 3) / 2)
    return found + Acb(Arb(0, slip), Arb(0, slip))


class Meridians:
    """Areas of the unit sphere weighted with the root of a form with two entries of ``shape``, and 1 at the poles."""

    def __init__(self, shape: Vector) -> None:
        self.a, self.b = (Acb(entry) for entry in shape[:2])
        self.whole = self.between(2 * Arb.pi())

    def between(self, angle: flint.arb) -> flint.arb:
        """The area between the meridians of longitude 0 and of an angle."""

        def width(t: flint.acb, analytic: bool) -> flint.acb:
            s = t.sin()
            a = self.a + (self.b - self.a) * s * s
            if analytic and not a.real > 0:
                return Acb(nan)
            return 1 + a * _mean(1 - a, 0)

        return _integral(width, Arb(0), angle)

    def along(self, path: _Path, first: bool, last: bool) -> flint.arb:
        """The primitive along an arc: the northern one at its ends if ``first`` and ``last``, else the southern one."""
        marks = [Arb(0), *(Arb(t) for t in path.crossings()), path.turn]
        total = Arb(0)
        for k, (begin, end) in enumerate(pairwise(marks)):
            north = path.is_north(float((begin + end).mid() / 2))
            total += _integral(self._primitive(path, north), begin, end)
            # what changes from one primitive to the other: within an arc parts meet in the southern one
            at_begin, at_end = k == 0 and first, k == len(marks) - 2 and last
            total += (int(north) - int(at_end)) * self._turned(path, end) if north != at_end else 0
            total -= (int(north) - int(at_begin)) * self._turned(path, begin) if north != at_begin else 0
        return total

    def _turned(self, path: _Path, t: flint.arb) -> flint.arb:
        (x, y, _), _ = path.at(t)
        return self.between(angle_of(x, y))

    def _primitive(self, path: _Path, north: bool) -> Integrand:
        side = 1 if north else -1

        def value(t: flint.acb, analytic: bool) -> flint.acb:
            (x, y, z), (dx, dy, _) = path.at(t)
            z = side * z
            flat = (1 - z) * (1 + z)
            alpha = self.a * flat + (self.b - self.a) * y * y
            square = z * z + alpha
            s = square.sqrt()
            if analytic and not square.real > 0:
                return Acb(nan)
            both, sigma = 1 + z * s, (1 + s) * (1 + z)
            series = _mean((flat - alpha) * (1 - z) / ((1 + s) * sigma), 2)
            more = (2 + 2 * z + z * z + s * z * (2 + z)) / (2 * (1 + z) * sigma * both)
            swept = (1 + z * z) / (2 * both) + alpha * (more + (flat - alpha) / (3 * sigma * sigma * sigma) * series)
            return -side * swept * (x * dy - y * dx)

        return value
