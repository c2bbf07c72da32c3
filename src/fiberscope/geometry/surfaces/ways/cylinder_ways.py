"""Distances on cylinders: unrolled, their ways are straight, and boundaries are graphs over the angle.

On an upright cylinder, whose ends are at right angles to its lines, the sheet is a strip, and the shortest way between
two points is the straight one between copies of them a whole turn apart. The distance to an arc is the least value of a
smooth function of the angle. All of its minima are found: parts of the arc are halved as long as a bound by the second
derivative leaves room for less than what is known, and the last ones are polished by Newton's method.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, pi

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.measures import ellipse_arcs
from fiberscope.geometry.surfaces.quadric_sizes import Ellipses
from fiberscope.numerics.arrays import ranks_within
from fiberscope.numerics.cutoffs import UPRIGHT
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray
from fiberscope.run import ENDLESS, Run

_WIDEST, _NARROWEST = 0.25, 1e-5
"""Parts of arcs in radians: at first, and where Newton's method begins."""

_STEPS = 4
"""Steps of Newton's method, each of which doubles the digits."""


def is_upright(axes: FloatArray) -> bool:
    """Whether the ends of a cylinder are at right angles to its lines."""
    size = np.linalg.norm(axes, axis=1)
    return bool((np.abs(axes[:2] @ axes[2]) <= UPRIGHT * size[2] * size[:2]).all())


@dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """The unrolled cylinder: arc length of its section as a function of the angle, and heights."""

    flat: FloatArray
    height: float
    around: float

    @classmethod
    def of(cls, axes: FloatArray) -> Sheet:
        size = float(np.linalg.norm(axes[2]))
        if not is_upright(axes):
            raise InputError("distance: expected a cylinder whose ends are at right angles to its lines, got another")
        gram = np.asarray(axes[:2] @ axes[:2].T)
        around = float(ellipse_arcs(gram[None], np.zeros(1), np.full(1, 2 * pi))[0])
        return cls(gram, size, around)

    def along(self, t: FloatArray) -> FloatArray:
        """Arc length of the section from the angle 0 on."""
        turns = np.floor(t / (2 * pi))
        rest = t - 2 * pi * turns
        gram = np.broadcast_to(self.flat, (rest.size, 2, 2))
        part = ellipse_arcs(gram, np.zeros(rest.size), rest.reshape(-1)).reshape(t.shape)
        return np.asarray(self.around * turns + part)

    def speed(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Derivatives of :meth:`along`, the first and the second."""
        c, s = np.cos(t), np.sin(t)
        (a, b), d = self.flat[0], self.flat[1, 1]
        square = a * s * s - 2 * b * s * c + d * c * c
        turn = (a - d) * s * c - b * (c * c - s * s)
        size = np.sqrt(square)
        return size, turn / size


def to_arcs(axes: FloatArray, arcs: Ellipses, which: BoolArray, at: FloatArray, run: Run = ENDLESS) -> FloatArray:
    """Distances of places ``(count, 2)``, angle and height from 0 to 1, to some of the arcs."""
    sheet = Sheet.of(axes)
    curved, lines = np.flatnonzero(which & ~arcs.straight), np.flatnonzero(which & arcs.straight)
    u0 = sheet.along(at[:, 0])
    found = np.full(len(at), np.inf)
    begin = arcs.middle[lines]
    end = begin + arcs.way[lines]
    angle = np.arctan2(begin[:, 1], begin[:, 0])
    low, high = np.sort(np.stack([begin[:, 2], end[:, 2]]), axis=0) * sheet.height
    parts = _parts(arcs, curved)
    for row in range(len(at)):
        run.step(row, len(at), "distances")
        height = float(at[row, 1]) * sheet.height
        if len(lines):
            aside = (sheet.along(angle) - u0[row] + sheet.around / 2) % sheet.around - sheet.around / 2
            beyond = np.maximum(np.maximum(low - height, height - high), 0.0)
            found[row] = np.hypot(aside, beyond).min()
        if len(curved):
            turns = 2 * pi * np.round((at[row, 0] - parts[:, 0]) / (2 * pi))
            found[row] = min(found[row], _nearest(sheet, arcs, parts, turns, float(u0[row]), height))
    return found


def between(axes: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Distances between places ``(count, 2)``, angle and height from 0 to 1, pair by pair."""
    sheet = Sheet.of(axes)
    aside = np.abs(sheet.along(a[:, 0]) - sheet.along(b[:, 0]))
    return np.asarray(np.hypot(np.minimum(aside, sheet.around - aside), (a[:, 1] - b[:, 1]) * sheet.height))


def _parts(arcs: Ellipses, which: IntArray) -> FloatArray:
    """Middles, half widths and numbers of short parts of the arcs, ``(parts, 3)``."""
    low, high = np.minimum(arcs.begin, arcs.end)[which], np.maximum(arcs.begin, arcs.end)[which]
    counts = np.array([max(1, ceil(w / _WIDEST)) for w in high - low], dtype=np.int64)
    step = np.repeat((high - low) / counts, counts)
    middle = np.repeat(low, counts) + step * (ranks_within(counts) + 0.5)
    return np.stack([middle, step / 2, np.repeat(which, counts)], axis=1)


def _nearest(sheet: Sheet, arcs: Ellipses, parts: FloatArray, turns: FloatArray, u0: float, h0: float) -> float:
    """The least distance of a place to parts of arcs, each moved by whole turns to the copy beside it."""
    t, half, number = parts[:, 0] + turns, parts[:, 1], parts[:, 2].astype(np.int64)
    # a part that lies half a turn away is near in both directions
    half, number = np.tile(half, 3), np.tile(number, 3)
    t = np.tile(t, 3) + np.repeat([-2 * pi, 0.0, 2 * pi], len(parts))
    best = np.inf
    while True:
        f, first, second = _square(sheet, arcs, number, t, u0, h0)
        best = min(best, float(f.min()))
        reach = _steepest(sheet, arcs, number)
        # the second derivative of the square on the part, from the largest values that it may have there
        bound = 2 * (reach**2 + (np.sqrt(f) + reach * half) * reach)
        keep = f - np.abs(first) * half - bound * half**2 / 2 <= best
        t, half, number = t[keep], half[keep], number[keep]
        if not len(t) or half.max() < _NARROWEST:
            break
        t = np.concatenate([t - half / 2, t + half / 2])
        half, number = np.tile(half / 2, 2), np.tile(number, 2)
    low, high = t - half, t + half
    for _ in range(_STEPS):
        f, first, second = _square(sheet, arcs, number, t, u0, h0)
        t = np.clip(t - np.where(second > 0, first / np.where(second > 0, second, 1.0), 0.0), low, high)
    ends = np.concatenate([t, low, high])
    f, _, _ = _square(sheet, arcs, np.tile(number, 3), ends, u0, h0)
    return float(np.sqrt(min(best, float(f.min()))))


def _steepest(sheet: Sheet, arcs: Ellipses, number: IntArray) -> FloatArray:
    """No derivative of place or height by the angle is larger, of the first or the second order."""
    rise = np.hypot(arcs.one[number, 2], arcs.two[number, 2]) * sheet.height
    return np.asarray(np.sqrt(float(np.trace(sheet.flat)) + rise**2))


def _square(
    sheet: Sheet, arcs: Ellipses, number: IntArray, t: FloatArray, u0: float, h0: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The squared distance to points of arcs at the angle t, with two derivatives."""
    c, s = np.cos(t), np.sin(t)
    one, two = arcs.one[number, 2] * sheet.height, arcs.two[number, 2] * sheet.height
    up = arcs.middle[number, 2] * sheet.height + c * one + s * two - h0
    rise, bend = c * two - s * one, -c * one - s * two
    aside = sheet.along(t) - u0
    speed, more = sheet.speed(t)
    value = aside**2 + up**2
    return value, 2 * (aside * speed + up * rise), 2 * (speed**2 + aside * more + rise**2 + up * bend)
