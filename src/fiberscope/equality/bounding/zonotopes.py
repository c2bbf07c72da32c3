"""Affine forms of one program on a box: the centre, one row of coefficients for every generator, and a radius.

``rows`` holds the centre and then the generators, so that an operator is applied to all of them at once in one product
of matrices. Every result is rounded outward: what an operation may have lost goes into the radius.

A generator has one place among the rows in all forms of a walk: whoever makes new ones puts them behind all that were
made so far, in whichever branch of the program. Two branches would else take each other's generators for their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.operators import Dense
from fiberscope.network.walk import walk
from fiberscope.numerics.algebra.base import LinearMap
from fiberscope.numerics.algebra.bounded import SMALL
from fiberscope.numerics.floats import EPS, TINY, BoolArray, FloatArray, IntArray
from fiberscope.run import ENDLESS, Run

MOST_NUMBERS = 40_000_000
"""Numbers of one form up to which open neurons get generators; beyond, what they may do goes into the radius."""


class Form(NamedTuple):
    """``centre + generators``, ``(1 + generators, size)``, and a radius for what was rounded, ``(size,)``."""

    rows: FloatArray
    radius: FloatArray

    def reach(self) -> FloatArray:
        """Largest distance from the centre, rounded up."""
        return np.asarray((np.abs(self.rows[1:]).sum(axis=0) + self.radius) * (1 + (len(self.rows) + 8) * EPS))

    def size(self) -> FloatArray:
        """Largest absolute value, rounded up."""
        return np.asarray((np.abs(self.rows[0]) + self.reach()) * (1 + EPS))

    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends, rounded outward."""
        reach = self.reach()
        zero = (reach == 0) & (self.rows[0] == 0)
        slack = np.where(zero, 0.0, EPS * (np.abs(self.rows[0]) + reach) + TINY)
        return self.rows[0] - reach - slack, self.rows[0] + reach + slack


def started(low: FloatArray, high: FloatArray) -> Form:
    """The input: a generator for every coordinate that is not fixed."""
    centre = 0.5 * low + 0.5 * high
    radius = np.maximum(high - centre, centre - low)
    radius = np.where(radius > 0, radius * (1 + EPS) + TINY, 0.0)
    wide = np.flatnonzero(low < high)
    rows = np.zeros((1 + len(wide), low.size))
    rows[0] = centre
    rows[1 + np.arange(len(wide)), wide] = radius[wide]
    return Form(rows, np.where(low < high, 0.0, radius))


def padded(rows: FloatArray, count: int) -> FloatArray:
    """With zeros for generators that were made later."""
    more = count - len(rows)
    return rows if more == 0 else np.concatenate([rows, np.zeros((more, rows.shape[1]))])


def applied(stage: LinearMap, rows: FloatArray) -> FloatArray:
    """An operator on all rows; the many zeros of the inputs' own rows are skipped."""
    if isinstance(stage, Dense) and rows.shape[1] > 64:
        used = np.flatnonzero((rows != 0).any(axis=0))
        if 4 * len(used) < 3 * rows.shape[1]:
            return np.asarray(rows[:, used] @ stage.matrix[:, used].T)
    return np.asarray(stage.apply(rows))


def through(stage: LinearMap, form: Form) -> Form:
    """One linear map, with all that its products may have lost."""
    unit, size = (2 * stage.fan_in + 24) * EPS, form.size()
    # one so small that its rounding would underflow counts more: a large weight must not meet a lost term
    rounded = np.where(size == 0, 0.0, unit * np.maximum(size, SMALL))
    lost = stage.apply_abs((form.radius + rounded)[None])[0] * (1 + unit)
    touched = stage.apply_abs((size > 0).astype(np.float64)[None])[0] > 0
    return Form(applied(stage, form.rows), np.where(touched, lost + TINY, 0.0))


def shifted(form: Form, offset: FloatArray | None) -> Form:
    """With an offset, which rounds the centre once."""
    if offset is None or not offset.any():
        return form
    rows = form.rows.copy()
    rows[0] += offset
    exact = (form.rows == 0).all(axis=0) & (form.radius == 0)
    return Form(rows, np.where(exact, 0.0, form.radius + EPS * (np.abs(rows[0]) + np.abs(offset))))


def chords(low: FloatArray, high: FloatArray, slopes: FloatArray) -> FloatArray:
    """Slopes of the lines through the ends of the activation on intervals around 0; 0 where they cannot be had."""
    with np.errstate(all="ignore"):
        found = (high - slopes * low) / (high - low)
    return np.where(np.isfinite(found), found, 0.0)


def enclosed(low: FloatArray, high: FloatArray, slopes: FloatArray, factor: FloatArray) -> Sequence[FloatArray]:
    """Middle and half width of ``f(z) - factor z`` on intervals around 0, rounded outward."""
    left, right = (slopes - factor) * low, (1.0 - factor) * high
    slack = EPS * (np.abs(slopes) + np.abs(factor) + 1.0) * np.maximum(np.abs(low), np.abs(high)) + TINY
    down = np.minimum(0.0, np.minimum(left, right)) - slack
    up = np.maximum(0.0, np.maximum(left, right)) + slack
    return 0.5 * down + 0.5 * up, (0.5 * up - 0.5 * down) * (1 + EPS) + TINY


def widened(rows: FloatArray, radius: FloatArray, half: FloatArray, open_: BoolArray, count: int) -> Form:
    """With a new generator for every open entry behind the first ``count`` rows, which are those of all forms.

    In the radius, and one generator of zeros, where there is no room.
    """
    where = np.flatnonzero(open_)
    if (count + len(where)) * rows.shape[1] > MOST_NUMBERS:
        return Form(padded(rows, count + 1), radius + np.where(open_, half, 0.0))
    grown = padded(rows, count + len(where))
    grown[count + np.arange(len(where)), where] = half[where]
    return Form(grown, radius)


def bent(
    form: Form, slopes: FloatArray, count: int, low: FloatArray | None = None, high: FloatArray | None = None
) -> Bent:
    """Behind an activation, and what every neuron was found to do; for ``count`` see :func:`widened`."""
    if low is None or high is None:
        low, high = form.ends()
    on, off = (low >= 0) | (slopes == 1), high <= 0
    open_ = ~(on | off)
    factor = np.where(on, 1.0, np.where(off, slopes, chords(low, high, slopes)))
    middle, half = enclosed(low, high, slopes, factor)
    middle, half = np.where(open_, middle, 0.0), np.where(open_, half, 0.0)
    flat = factor == 0  # chosen and not multiplied: flat is flat whatever overflowed before
    rows = np.where(flat, 0.0, form.rows * factor)
    rows[0] += middle
    plain = on | (off & flat)
    size = np.maximum(np.abs(low), np.abs(high)) + form.size()
    radius = np.where(flat & ~open_, 0.0, np.abs(factor) * form.radius * (1 + EPS))
    radius = radius + np.where(plain, 0.0, EPS * (np.abs(factor) * size + np.abs(middle)) + TINY)
    return Bent(widened(rows, radius, half, open_, count), on, off, open_)


class Bent(NamedTuple):
    """A form behind an activation, with masks of the neurons that are on, off, open."""

    form: Form
    on: BoolArray
    off: BoolArray
    open: BoolArray


def pooled(form: Form, windows: IntArray, count: int) -> Form:
    """The largest of every window: a multiple of its likeliest entry, and what is left between two ends.

    For an entry ``x`` in ``[l, u]`` and the largest ``r`` of the others in ``[s, t]``, ``max(x, r) - c x`` is convex in
    ``x`` with ``r`` at its top, and smallest at the ``x`` next to ``s`` with ``r`` at its bottom. ``c`` is the slope of
    the line through the ends, as for a ReLU, where ``s = t = 0``.
    """
    low, high = form.ends()
    index, bottom, top = rivals(low, high, windows)
    l, u = low[index], high[index]
    sure = top <= l
    with np.errstate(all="ignore"):
        factor = np.where(sure, 1.0, np.clip(np.nan_to_num((u - top) / (u - l), nan=0.0), 0.0, 1.0))
        least = np.clip(bottom, l, u)
        down = np.maximum(least, bottom) - factor * least
        up = np.maximum(np.maximum(l, top) - factor * l, np.maximum(u, top) - factor * u)
        slack = 2 * EPS * (np.abs(l) + np.abs(u) + np.abs(down) + np.abs(up)) + TINY
        middle, half = 0.5 * down + 0.5 * up, (0.5 * up - 0.5 * down + slack) * (1 + EPS)
    middle, half = np.where(sure, 0.0, middle), np.where(sure, 0.0, np.where(half >= 0, half, np.inf))
    rows = np.where(factor == 0, 0.0, form.rows[:, index] * factor)
    rows[0] += middle
    radius = np.where(factor == 0, 0.0, form.radius[index] * factor * (1 + EPS))
    size = np.maximum(np.abs(l), np.abs(u)) + form.size()[index]
    radius = radius + np.where(sure, 0.0, EPS * (np.where(factor == 0, 0.0, factor * size) + np.abs(middle)) + TINY)
    return widened(rows, radius, half, ~sure, count)


def rivals(low: FloatArray, high: FloatArray, windows: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """For every window the entry that reaches highest, and the ends of the largest other one; -inf without others."""
    absent = windows < 0
    at = np.where(absent, -np.inf, high[windows])
    own = np.arange(len(windows)), at.argmax(axis=1)
    index = windows[own]
    at[own] = -np.inf
    bottom = np.where(absent | (windows == index[:, None]), -np.inf, low[windows]).max(axis=1, initial=-np.inf)
    return index, bottom, at.max(axis=1, initial=-np.inf)


def summed(forms: Sequence[Form]) -> Form:
    """The sum of forms."""
    count = max(len(form.rows) for form in forms)
    parts = [padded(form.rows, count) for form in forms]
    lost = len(parts) * EPS * np.sum([np.abs(p) for p in parts], axis=(0, 1))
    return Form(np.sum(parts, axis=0), np.sum([form.radius for form in forms], axis=0) * (1 + EPS) + lost)


def side_by_side(forms: Sequence[Form], order: IntArray | None) -> Form:
    """The entries of forms, then taken in this order."""
    count = max(len(form.rows) for form in forms)
    rows = np.concatenate([padded(form.rows, count) for form in forms], axis=1)
    radius = np.concatenate([form.radius for form in forms])
    return Form(rows, radius) if order is None else Form(rows[:, order], radius[order])


class Forms:
    """How a walk makes one step in forms; ``count`` are the rows of all of them so far."""

    def __init__(self, count: int) -> None:
        self.count = count

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: Form) -> Form:
        for stage in operator.stages():
            value = through(stage, value)
        return shifted(value, bias)

    def add(self, values: Sequence[Form]) -> Form:
        return summed(values)

    def concat(self, values: Sequence[Form], order: IntArray | None) -> Form:
        return side_by_side(values, order)

    def piecewise(self, value: Form, slopes: FloatArray) -> Form:
        return self._made(bent(value, slopes, self.count).form)

    def window_max(self, value: Form, windows: IntArray) -> Form:
        return self._made(pooled(value, windows, self.count))

    def _made(self, form: Form) -> Form:
        self.count = len(form.rows)
        return form


def alone(net: Network, start: Form, run: Run = ENDLESS) -> Form:
    """The output of one network."""
    values, algebra = {0: start}, Forms(len(start.rows))
    for _ in walk(net.layout, values, algebra):
        run.check()  # one node of a wide network may take a second
    return values[len(net.nodes)]
