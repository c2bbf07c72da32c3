"""Proven counts along the image of a latent curve under a smooth generator, by enclosures.

On an interval of the parameter with midpoint ``m`` and radius ``r`` two things are carried through generator and
network: the value at ``m`` with a bound of its rounding, and an enclosure of the derivative over all of the interval.
Then every value on the interval lies within ``r`` times the largest derivative of the one at ``m``. A neuron of the
network whose value does not reach zero is done with. One whose derivative does not reach zero crosses zero once or not
at all, and the signs at both ends say which. Intervals with two crossings, or with anything open, are cut in two. When
none is left, the crossings are proven to be all, each in an interval of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from fiberscope.geometry.curves.latent import LatentEnclosure
from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool, PiecewiseLinear
from fiberscope.network.walk import smooth
from fiberscope.numerics.algebra.base import Constant
from fiberscope.numerics.algebra.bounded import BOUNDED, Bounded, BoundedAlgebra
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, gamma, round_up
from fiberscope.numerics.smooth_functions import Bend, product
from fiberscope.results import Result
from fiberscope.run import ENDLESS, Run

_SLOPES = BoundedAlgebra(Constant.NOWHERE)

_FIRST = 61
"""Intervals at the beginning; a prime, so that ends do not meet the round numbers at which curves like to cross."""

_CUT = 0.4871
"""Where an interval is cut, for the same reason."""

_DEEPEST = 2.0**-40
"""Intervals are not cut below this length: two crossings closer than that are left open."""

_NOTHING = 2.0**1000
"""Less than any number in a window: where padding stands, or no other input."""

_ROWS = 1 << 21
"""Numbers in the widest value of one batch."""

_WORK = 1 << 36
"""Products of weights and values in all, before it is given up."""


@dataclass(frozen=True, slots=True)
class Proven(Result):
    """How many regions there are along a curve, proven: the crossings lie one each in ``intervals``, ``(count, 2)``.

    ``neurons`` are the entries of the sign vector that cross there.
    """

    num_regions: int
    intervals: FloatArray
    neurons: Any


@dataclass(frozen=True, slots=True, eq=False)
class _Carried:
    """The value at the midpoints, and the derivative over the intervals; rows are intervals."""

    value: Bounded
    slope: Bounded

    def reach(self, radius: FloatArray) -> FloatArray:
        """How far values on the interval can be from the one at the midpoint as it was computed."""
        steepest = np.abs(self.slope.value) + self.slope.error
        found = round_up(self.value.error + radius[:, None] * steepest, 4)
        return np.asarray(np.where((self.value.error == 0) & (steepest == 0), 0.0, found))


def prove_count(
    stages: Sequence[Network | Bend], net: Network, latent: LatentEnclosure, run: Run = ENDLESS
) -> Proven | str:
    """The regions of ``net`` along the image of a latent curve under the stages; or why not."""
    networks = [part for part in (*stages, net) if isinstance(part, Network)]
    products = sum(stage.fan_in * stage.out_size for part in networks for stage in part.layout.stages)
    batch = max(1, _ROWS // max(prod(shape) for part in networks for shape in part.shapes))
    work = 0
    queue, deepest = _begin(latent), _DEEPEST * float(np.diff(latent.edges).max())
    found: list[tuple[float, float, int]] = []
    while len(queue):
        run.step(len(found), None, "enclosures")
        rows, queue = queue[:batch], queue[batch:]
        work += 8 * len(rows) * products
        if work > _WORK:
            return f"{len(rows) + len(queue)} intervals are open after {len(found)} crossings, and the work was limited"
        with np.errstate(over="ignore", invalid="ignore"):
            settled, crossing = _look(stages, net, latent, rows)
        found += [(float(a), float(b), int(j)) for (a, b, _), j in zip(rows, crossing, strict=True) if j >= 0]
        left = rows[~settled]
        if len(left) and (left[:, 1] - left[:, 0]).min() < deepest:
            a, b, _ = left[(left[:, 1] - left[:, 0]).argmin()]
            return f"crossings near t = {(a + b) / 2:.6g} cannot be told apart"
        middle = left[:, 0] + _CUT * (left[:, 1] - left[:, 0])
        ends = ((left[:, 0], middle), (middle, left[:, 1]))
        halves = [np.stack([*pair, left[:, 2]], axis=1) for pair in ends]
        queue = np.concatenate([*halves, queue])
    found.sort()
    table = np.array([row[:2] for row in found]).reshape(-1, 2)
    return Proven(len(found) + 1, table, np.array([row[2] for row in found], dtype=np.int64))


def _begin(latent: LatentEnclosure) -> FloatArray:
    """The first intervals, and the pieces on which they lie: ``(intervals, 3)``."""
    each = max(7, _FIRST // (len(latent.edges) - 1))
    parts = []
    for piece, (low, high) in enumerate(pairwise(latent.edges.tolist())):
        marks = np.linspace(low, high, each + 1)
        parts.append(np.stack([marks[:-1], marks[1:], np.full(each, float(piece))], axis=1))
    return np.concatenate(parts)


def _look(stages: Sequence[Network | Bend], net: Network, latent: LatentEnclosure, rows: FloatArray) -> tuple[Any, Any]:
    """Which intervals are settled, and the neuron that crosses there; -1 for none.

    What is said of an interval holds for the slack beyond its ends, too: so a closed curve closes without a gap, and
    no crossing is counted twice.
    """
    middle, piece = rows[:, :2].mean(axis=1), rows[:, 2].astype(np.int64)
    off = gamma(4) * (1 + np.abs(rows[:, :2]).max(axis=1)) + latent.slack
    radius = np.asarray(round_up((rows[:, 1] - rows[:, 0]) / 2 + off, 4))
    inside = _neurons(stages, net, latent.at(piece, middle, radius), radius)
    value, slope = (np.concatenate([getattr(x, k).value for x in inside], axis=1) for k in ("value", "slope"))
    bound = np.concatenate([x.reach(radius) for x in inside], axis=1)
    slip = np.concatenate([x.slope.error for x in inside], axis=1)
    still = net.layout.linear | (np.abs(value) > bound) | ((bound == 0) & (value == 0))
    monotone = np.abs(slope) > slip
    settled = (still | monotone).all(axis=1)
    crossing = np.full(len(rows), -1)
    hard = np.flatnonzero(settled & ~still.all(axis=1))
    if len(hard):
        none = np.zeros(len(hard))
        ends = [_neurons(stages, net, latent.at(piece[hard], rows[hard, k], none), none) for k in range(2)]
        signs = []
        for end in ends:
            at = np.concatenate([x.value.value for x in end], axis=1)
            off = np.concatenate([x.value.error for x in end], axis=1)
            signs.append(np.where(np.abs(at) > off, np.sign(at), 0.0))
        open_ones = ~still[hard]
        known = ((signs[0] != 0) & (signs[1] != 0)) | ~open_ones
        crosses = open_ones & (signs[0] * signs[1] < 0)
        good = known.all(axis=1) & (_events(net, crosses) <= 1)
        settled[hard[~good]] = False
        crossing[hard[good]] = np.where(crosses[good].any(axis=1), crosses[good].argmax(axis=1), -1)
    return settled, crossing


def _neurons(
    stages: Sequence[Network | Bend], net: Network, start: tuple[Bounded, Bounded], radius: FloatArray
) -> list[_Carried]:
    """What the switches of the network compare with zero, one after the other."""
    carried = _Carried(*start)
    for stage in stages:
        if isinstance(stage, Network):
            carried = _through(stage, carried, radius)[1]
        else:
            slopes = stage.slopes(carried.value.value, carried.reach(radius), carried.slope)
            carried = _Carried(stage.at(carried.value), slopes)
    return _through(net, carried, radius)[0]


def _through(net: Network, start: _Carried, radius: FloatArray) -> tuple[list[_Carried], _Carried]:
    """What the switches of a network compare with zero, and its output."""
    values, slopes, compared = {0: start.value}, {0: start.slope}, []
    for index, node in enumerate(net.layout.nodes):
        match node:
            case PiecewiseLinear():
                before = _Carried(values[node.source], slopes[node.source])
                compared.append(before)
                values[index + 1] = _activated(before.value, node.slopes)
                slopes[index + 1] = _gated(before, node.slopes, radius)
            case MaxPool():
                margins, largest = _pooled(node, _Carried(values[node.source], slopes[node.source]), radius)
                compared.append(margins)
                values[index + 1], slopes[index + 1] = largest.value, largest.slope
            case _:
                values[index + 1] = smooth(node, values, BOUNDED)
                slopes[index + 1] = smooth(node, slopes, _SLOPES)
    count = len(net.layout.nodes)
    return compared, _Carried(values[count], slopes[count])


def _events(net: Network, crosses: BoolArray) -> IntArray:
    """How many crossings the entries of a sign vector make, ``(rows,)``.

    Where two inputs of a pooling window change places and no other one comes to the top, the margins of both vanish at
    the same place: that is one crossing. More than two at a time are told apart by cutting.
    """
    total = crosses.sum(axis=1)
    for place in net.layout.places:
        if isinstance(place.node, MaxPool):
            own = crosses[:, place.start : place.start + place.node.num_signs]
            pairs = own.reshape(len(own), -1, place.node.window_size).sum(axis=2)
            total = total - (pairs == 2).sum(axis=1)
    return np.asarray(total)


def _pooled(node: MaxPool, before: _Carried, radius: FloatArray) -> tuple[_Carried, _Carried]:
    """The margins ``x_j - max of the others`` of all windows, and the maxima.

    A maximum is off by no more than the largest error of its inputs, and its derivative lies among those of the inputs
    that may be the largest somewhere on the interval.
    """
    windows = node.windows
    inside = windows >= 0

    def taken(x: Any, empty: float) -> Any:
        return np.where(inside, x[:, np.maximum(windows, 0)], empty)

    value, error = taken(before.value.value, -_NOTHING), taken(before.value.error, 0.0)
    slope, slip = taken(before.slope.value, 0.0), taken(before.slope.error, 0.0)
    reach = taken(before.reach(radius), 0.0)
    margins = []
    for j in range(windows.shape[1]):
        rest = np.arange(windows.shape[1]) != j
        if rest.any():
            most = _largest(*(x[:, :, rest] for x in (value, error, slope, slip, reach)))
        else:
            most = _Carried(
                Bounded(value[:, :, 0] * 0 - _NOTHING, error[:, :, 0] * 0),
                Bounded(slope[:, :, 0] * 0, slip[:, :, 0] * 0),
            )
        margins.append(
            _minus(value[:, :, j], error[:, :, j], most.value) + _minus(slope[:, :, j], slip[:, :, j], most.slope)
        )
    parts = [np.stack(x, axis=2).reshape(len(value), -1) for x in zip(*margins, strict=True)]
    return _Carried(Bounded(*parts[:2]), Bounded(*parts[2:])), _largest(value, error, slope, slip, reach)


def _minus(value: FloatArray, error: FloatArray, other: Bounded) -> tuple[FloatArray, FloatArray]:
    """A difference with a bound of its error; what is the same float without any has none."""
    found = value - other.value
    rounding = np.where(found == 0, 0.0, gamma(2) * (np.abs(value) + np.abs(other.value)))
    none = (error == 0) & (other.error == 0) & (found == 0)
    return found, np.asarray(np.where(none, 0.0, round_up(error + other.error + rounding, 4)))


def _largest(value: FloatArray, error: FloatArray, slope: FloatArray, slip: FloatArray, reach: FloatArray) -> _Carried:
    """The maximum over the last axis."""
    with np.errstate(invalid="ignore"):
        may = ~(value + reach < (value - reach).max(axis=2, keepdims=True))
    low = np.where(may, slope - slip, np.inf).min(axis=2)
    high = np.where(may, slope + slip, -np.inf).max(axis=2)
    middle = low / 2 + high / 2
    one = may.sum(axis=2) == 1  # then the derivative is that input's, without the rounding of ends
    only = np.take_along_axis(slope, may.argmax(axis=2)[..., None], axis=2)[..., 0]
    spread = np.take_along_axis(slip, may.argmax(axis=2)[..., None], axis=2)[..., 0]
    wide = round_up((high - low) / 2 + gamma(4) * (np.abs(low) + np.abs(high)), 4)
    wide = np.where((low == 0) & (high == 0), 0.0, wide)
    derivative = Bounded(np.where(one, only, middle), np.where(one, spread, wide))
    return _Carried(Bounded(value.max(axis=2), error.max(axis=2)), derivative)


def _activated(x: Bounded, below: FloatArray) -> Bounded:
    """The values behind an activation; a zero that is proven has no error, so that zeros in a window are equal."""
    found = BOUNDED.piecewise(x, below)
    dead = (below == 0) & (x.value < -x.error)
    return Bounded(np.where(dead, 0.0, found.value), np.where(dead, 0.0, found.error))


def _gated(before: _Carried, below: FloatArray, radius: FloatArray) -> Bounded:
    """The derivative behind an activation with slope 1 above zero and ``below`` under it."""
    x, reach = before.value.value, before.reach(radius)
    # halves of 1 + s and 1 - s: where the sign is open, the slope lies between both
    middle = np.where(x > reach, 1.0, np.where(x < -reach, below, (1 + below) / 2))
    spread = np.where(np.abs(x) > reach, 0.0, np.abs(1 - below) / 2)
    spread = spread + np.where(below == 0, 0.0, gamma(2) * (1 + np.abs(below)))
    found = product(Bounded(middle, spread), before.slope)
    dead = (middle == 0) & (spread == 0)
    return Bounded(np.where(dead, 0.0, found.value), np.where(dead, 0.0, found.error))
