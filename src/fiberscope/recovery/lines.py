"""Kinks of a piecewise linear function on segments, from values alone.

An interval is known by the values and slopes at its two ends. Where the two tangents meet there is a kink, if there is
just one: that is believed only if the value there and one value on either side agree (a check at the meeting point
alone accepts two kinks of opposite sign). Otherwise the interval is cut. About six values are asked for a kink.
Two kinks nearer to each other than these checks may still be taken for one: what is built on kinks is checked against
values of its own.

Arrays of :class:`_Intervals` have one entry per interval: ``line``, the ends ``a < b`` as shares of the segment, the
values ``fa, fb``, the slopes ``sa, sb`` (of the value in the share) and bounds ``ea, eb`` of their errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.cutoffs import ORACLE_CLEAR, SHORTEST_PIECE
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray
from fiberscope.recovery.oracle import Oracle
from fiberscope.run import Run

PROBE = 2.0**-7
"""Part of an interval that is stepped to learn the slope at its end."""

BESIDE = 2.0**-6
"""Part of the way from a kink to the end of the interval at which the two sides are checked."""

MOST_KINKS = 20_000
"""Kinks on one line beyond which a function is called not piecewise linear, or too large."""


@dataclass(frozen=True)
class Line:
    """A segment from ``start`` to ``end`` with its kinks: shares of the segment in order, slope changes there.

    ``flat`` marks kinks beside which the function does not change along the line, on one side.
    """

    start: FloatArray
    end: FloatArray
    kinks: FloatArray
    jumps: FloatArray
    flat: BoolArray

    @property
    def length(self) -> float:
        return float(np.linalg.norm(self.end - self.start))

    def at(self, t: FloatArray | float) -> FloatArray:
        """Points of the segment, ``(len(t), n)``, or one."""
        return np.asarray(self.start + np.multiply.outer(t, self.end - self.start))

    @property
    def points(self) -> FloatArray:
        """The kinks as points."""
        return self.at(self.kinks)


@dataclass
class _Intervals:
    line: IntArray
    a: FloatArray
    b: FloatArray
    fa: FloatArray
    fb: FloatArray
    sa: FloatArray
    sb: FloatArray
    ea: FloatArray
    eb: FloatArray

    def __getitem__(self, which: object) -> _Intervals:
        return _Intervals(*(getattr(self, f.name)[which] for f in fields(self)))

    @staticmethod
    def join(parts: Sequence[_Intervals]) -> _Intervals:
        return _Intervals(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(_Intervals)))


class _Scan:
    """One search over several segments; ``found`` gathers lines, shares, jumps and flatness."""

    def __init__(self, oracle: Oracle, starts: FloatArray, ends: FloatArray) -> None:
        self.oracle, self.starts, self.steps = oracle, starts, ends - starts
        self.size = np.full(len(starts), oracle.scale)
        self.found: list[tuple[IntArray, FloatArray, FloatArray, BoolArray]] = []
        self.lost = 0

    def ask(self, line: IntArray, t: FloatArray) -> FloatArray:
        values = self.oracle.along(self.starts[line] + t[:, None] * self.steps[line])
        np.maximum.at(self.size, line, np.abs(values))
        return values

    def error(self, line: IntArray) -> FloatArray:
        """Of one value."""
        return np.asarray(ORACLE_CLEAR * self.oracle.noise * self.size[line])

    def slope(self, line: IntArray, t: FloatArray, f: FloatArray, step: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The slope at ``t`` from one more value, and a bound of its error."""
        return (self.ask(line, t + step) - f) / step, 2 * self.error(line) / np.abs(step)

    def whole(self) -> _Intervals:
        line = np.arange(len(self.starts))
        a, b = np.zeros(len(line)), np.ones(len(line))
        fa, fb = self.ask(line, a), self.ask(line, b)
        sa, ea = self.slope(line, a, fa, np.full(len(line), PROBE))
        sb, eb = self.slope(line, b, fb, np.full(len(line), -PROBE))
        return _Intervals(line, a, b, fa, fb, sa, sb, ea, eb)

    def step(self, now: _Intervals) -> _Intervals:
        """One round over all open intervals; gives those that remain open."""
        short = now.b - now.a < SHORTEST_PIECE
        self.lost += int(short.sum())
        now = now[~short]
        length, error = now.b - now.a, self.error(now.line)
        turn, blur = now.sb - now.sa, now.ea + now.eb
        straight = np.abs(now.fb - now.fa - now.sa * length) <= 2 * error + now.ea * length
        flat = (np.abs(turn) <= blur) & straight
        with np.errstate(divide="ignore", invalid="ignore"):
            meet = now.a + (now.fb - now.fa - now.sb * length) / (now.sa - now.sb)
        inner = ~flat & (meet > now.a + PROBE * length) & (meet < now.b - PROBE * length)
        return _Intervals.join(
            [self._flat(now[flat]), self._met(now[inner], meet[inner]), self._halved(now[~flat & ~inner])]
        )

    def _halved(self, now: _Intervals) -> _Intervals:
        cut = now.a + (now.b - now.a) * 0.47
        return self._cut(now, cut, self.ask(now.line, cut))

    def _flat(self, now: _Intervals) -> _Intervals:
        """Intervals without a turn: one value inside must agree, else they are cut there."""
        if not len(now.a):
            return now
        t = now.a + (now.b - now.a) * 0.382
        f = self.ask(now.line, t)
        bad = np.abs(f - now.fa - now.sa * (t - now.a)) > 2 * self.error(now.line) + now.ea * (t - now.a)
        return self._cut(now[bad], t[bad], f[bad])

    def _cut(self, now: _Intervals, t: FloatArray, f: FloatArray) -> _Intervals:
        """Both parts, with the slope at the cut from one more value."""
        if not len(t):
            return now
        s, e = self.slope(now.line, t, f, PROBE * np.minimum(t - now.a, now.b - t))
        left = _Intervals(now.line, now.a, t, now.fa, f, now.sa, s, now.ea, e)
        return _Intervals.join([left, _Intervals(now.line, t, now.b, f, now.fb, s, now.sb, e, now.eb)])

    def _met(self, now: _Intervals, meet: FloatArray) -> _Intervals:
        """Intervals whose tangents meet inside: a kink if the value there and close by on both sides agree."""
        if not len(now.a):
            return now
        error, f = self.error(now.line), self.ask(now.line, meet)
        left, right = now.ea * (meet - now.a), now.eb * (now.b - meet)
        good = np.abs(f - now.fa - now.sa * (meet - now.a)) <= 4 * error + left + right
        cut = self._cut(now[~good], meet[~good], f[~good])
        return _Intervals.join([cut, self._confirmed(now[good], meet[good])])

    def _confirmed(self, now: _Intervals, meet: FloatArray) -> _Intervals:
        """Note the kinks whose two sides are straight up to close by; cut the other intervals beside the kink."""
        if not len(now.a):
            return now
        error = self.error(now.line)
        one, two = meet - BESIDE * (meet - now.a), meet + BESIDE * (now.b - meet)
        f = self.ask(np.tile(now.line, 2), np.concatenate([one, two])).reshape(2, len(meet))
        fits_one = np.abs(f[0] - now.fa - now.sa * (one - now.a)) <= 2 * error + now.ea * (one - now.a)
        fits_two = np.abs(f[1] - now.fb + now.sb * (now.b - two)) <= 2 * error + now.eb * (now.b - two)
        # over nearly the whole interval slopes are sharper than at its end
        sa, ea = (f[0] - now.fa) / (one - now.a), 2 * error / (one - now.a)
        sb, eb = (now.fb - f[1]) / (now.b - two), 2 * error / (now.b - two)
        fits = fits_one & fits_two
        sure = fits & (np.abs(sb - sa) > ea + eb)
        sharp = now.a[sure] + ((now.fb - now.fa - sb * (now.b - now.a)) / (sa - sb))[sure]
        flat = np.minimum(np.abs(sa) - ea, np.abs(sb) - eb) <= 0
        self.found.append((now.line[sure], sharp, (sb - sa)[sure], flat[sure]))
        again = ~fits
        at = np.where(fits_one, two, one)[again]
        return self._cut(now[again], at, np.where(fits_one, f[1], f[0])[again])


def scan(oracle: Oracle, starts: FloatArray, ends: FloatArray, run: Run) -> list[Line]:
    """The kinks on the segments from ``starts`` to ``ends``, both ``(lines, n)``.

    Kinks closer together than the error of the values allows to tell apart are left out. Raises
    :class:`InputError` where the slopes keep changing on ever smaller intervals: the function is not piecewise linear.

    >>> oracle = Oracle(lambda X: np.abs(X[:, 0] - 0.25) + np.maximum(X[:, 0], 0.5), inputs=1)
    >>> oracle.values(np.zeros((1, 1))).shape
    (1, 1)
    >>> scan(oracle, np.array([[0.0]]), np.array([[1.0]]), Run())[0].kinks.round(9).tolist()
    [0.25, 0.5]
    """
    search = _Scan(oracle, starts, ends)
    open_ = search.whole()
    rounds = 0
    while len(open_.a):
        open_ = search.step(open_)
        rounds += 1
        found = sum(len(t) for _, t, _, _ in search.found)
        run.step(oracle.spent, oracle.limit, f"lines: {found} kinks")
        if search.lost > max(50, found) or found > MOST_KINKS * len(starts):
            oracle.same_as_before()
            raise InputError(
                "function: expected a piecewise linear one, but its slope keeps changing on ever smaller intervals: "
                f"{search.lost} intervals of length {SHORTEST_PIECE:.0e} of a line are not straight"
            )
    none = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool)
    lines, shares, jumps, flat = (np.concatenate(part) for part in zip(none, *search.found, strict=True))
    result = []
    for k in range(len(starts)):
        own = np.flatnonzero(lines == k)
        order = own[np.argsort(shares[own])]
        result.append(Line(starts[k], ends[k], shares[order], jumps[order], flat[order]))
    return result
