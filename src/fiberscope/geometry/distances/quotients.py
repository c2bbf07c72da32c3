"""How far a point is from the hyperplane of every neuron: ``|z| / ||grad z||`` between bounds.

Values and lengths of gradients come as floats with bounds. Where these say little and the quotient could be the
smallest of its point, balls give the value; where a gradient cancels, exact numbers give the affine function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from fiberscope.geometry.affine_forms import ExactRegion
from fiberscope.geometry.distances.gradients import ball_margins, gradient_norms, has_boundary
from fiberscope.geometry.distances.ties import is_affordable
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.ball import EXACT
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.floats import TINY, FloatArray, ObjectArray, SignArray, gamma
from fiberscope.run import Run

_WIDE = 2.0**-20
"""A quotient known only to this relative accuracy is computed exactly, if it might be the smallest."""

_FINE = 2.0**-31
"""The same for networks so small that exact numbers cost little."""

_DIGITS = 128
"""Bits of the square root and the quotient of exact numbers."""

_LARGEST = float(np.finfo(np.float64).max)

_TAME = (2.0**-900, 2.0**900)
"""Balls between these become floats with a relative error, and their quotients are no smaller than normal floats."""


@dataclass(frozen=True, slots=True, eq=False)
class Quotients:
    """``|z| / ||grad z||`` of every entry between bounds, infinite where there is no boundary, and exact gradients."""

    lower: FloatArray
    middle: FloatArray
    upper: FloatArray
    exact: dict[tuple[int, int], FloatArray]


def quotients(net: Network, X: FloatArray, signs: SignArray, z: Bounded, memory: int, run: Run) -> Quotients:
    """Of all entries at all points, ``(points, num_signs)``; ``z`` are their values with bounds."""
    g = gradient_norms(net, signs, memory)
    size, zero = np.abs(z.value), signs == 0
    with np.errstate(all="ignore"):
        # What overflowed says nothing: it leaves the widest interval that there is.
        least, most = _known(size - z.error, 0.0), _known(size + z.error, np.inf)
        flat, steep = _known(g.value - g.error, 0.0), _known(g.value + g.error, np.inf)
        lower, upper = _between(least, most, flat, steep)
        middle = np.where(g.value > 0, size / g.value, np.inf)
    for bound in (lower, middle, upper):
        bound[zero] = np.where(flat[zero] > 0, 0.0, np.inf)  # on the boundary, if that is one at all
    lower[zero & (flat == 0) & (steep > 0)] = 0.0
    none = ~has_boundary(net, signs)
    for bound in (lower, middle, upper):
        bound[none] = np.inf
    exact = _settle(net, X, signs, g, (lower, middle, upper), run)
    middle = np.where(np.isfinite(middle), middle, np.where(np.isfinite(lower), np.minimum(upper, _LARGEST), np.inf))
    return Quotients(lower, middle, upper, exact)


def _known(bound: FloatArray, otherwise: float) -> FloatArray:
    """A bound from 0 on; where floats lost it, the one that says nothing."""
    return np.asarray(np.where(np.isnan(bound), otherwise, np.maximum(bound, 0.0)))


def _between(least: Any, most: Any, flat: Any, steep: Any) -> tuple[FloatArray, FloatArray]:
    """Bounds of a quotient whose numerator and denominator lie between bounds; infinite if the denominator is zero.

    Beside the relative error of a division stands what it may lose to underflow. A lower bound that overflows is the
    largest float: the quotient is a number all the same.
    """
    with np.errstate(all="ignore"):
        low = np.maximum(least / steep * (1 - gamma(8)) - TINY, 0.0)
        high = most / flat * (1 + gamma(8)) + TINY
    low = np.where(np.isnan(low), 0.0, np.minimum(low, _LARGEST))
    high = np.where(np.isnan(high), np.inf, high)
    return np.where(steep > 0, low, np.inf), np.where(flat > 0, high, np.inf)


def _settle(
    net: Network,
    X: FloatArray,
    signs: SignArray,
    g: Bounded,
    bounds: tuple[FloatArray, FloatArray, FloatArray],
    run: Run,
) -> dict[tuple[int, int], FloatArray]:
    """Improve the quotients that are known badly and could be the smallest; gives unit gradients that took fractions.

    Near a boundary it is the value that floats do not know well: balls do, at that point. Where a gradient cancels, its
    affine function is computed exactly.
    """
    lower, middle, upper = bounds
    found: dict[tuple[int, int], FloatArray] = {}
    contender = (lower <= upper.min(axis=1, keepdims=True)) & np.isfinite(lower)
    wide = _FINE if is_affordable(net) else _WIDE
    with np.errstate(invalid="ignore"):
        known = np.isfinite(upper) & (upper - lower <= wide * upper)
        bad = contender & ~known & ~((lower == 0) & (upper == 0))
        steady = (g.error <= wide / 2 * g.value) & np.isfinite(g.value)
    for row in np.flatnonzero(bad.any(axis=1)):
        run.check()
        values: Bounded | None = None
        region: ExactRegion | None = None
        # the most promising first: what it settles may rule out the others
        for entry in np.flatnonzero(bad[row])[np.argsort(lower[row, bad[row]], kind="stable")]:
            if lower[row, entry] > upper[row].min():
                continue
            at = (row, entry)
            if steady[at] and signs[at]:
                values = ball_margins(net, X[row], signs[row]) if values is None else values
                value, slip, slope = float(values.value[entry]), float(values.error[entry]), float(g.value[at])
                if _TAME[0] < value < _TAME[1] and _TAME[0] < slope < _TAME[1] and slip <= wide / 8 * value:
                    ends = (value - slip, value + slip, slope - g.error[at], slope + g.error[at])
                    lower[at], upper[at] = _between(*ends)
                    middle[at] = value / slope
                    continue
            region = ExactRegion(net, signs[row]) if region is None else region
            (lower[at], middle[at], upper[at]), found[int(row), int(entry)] = exact_quotient(
                region.margin(int(entry)), X[row]
            )
    return found


def exact_quotient(form: ObjectArray, x: FloatArray) -> tuple[tuple[float, float, float], FloatArray]:
    """``|z(x)| / ||grad z||`` between bounds, and the unit gradient, of an exact affine function."""
    with flint.ctx.workprec(EXACT):
        z = form[-1]
        for slope, value in zip(form[:-1], x.tolist(), strict=True):
            z = z + slope * flint.arb(value)
        square = sum((slope * slope for slope in form[:-1]), start=flint.arb(0))
    if square.is_zero():
        return (np.inf, np.inf, np.inf), np.zeros(len(x))
    with flint.ctx.workprec(_DIGITS):
        length = square.sqrt()
        ball = abs(z) / length
        value = min(float(ball.mid()), _LARGEST)
        unit = np.array([float((slope / length).mid()) for slope in form[:-1]])
    if z.is_zero():
        return (0.0, 0.0, 0.0), unit
    # Ends of a ball become the nearest floats, and then the ones beyond: no relative error below the normal floats.
    low, high = np.nextafter(float(ball.lower()), 0.0), np.nextafter(float(ball.upper()), np.inf)
    return (max(0.0, float(low)), value, float(high)), unit
