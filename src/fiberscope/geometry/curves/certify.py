"""Zeros of ``A x(t) + B y(t) + C`` with integer coefficients on the circle and the tractrix, as exact numbers.

A zero is known by its coefficients and its number, and enclosed by Arb balls of any precision. What balls can never
tell, that two zeros are the same, is decided by algebra.

*Circle.* Two lines that are not parallel meet in one rational point; two zeros are the same number only if it lies on
the circle. At the multiples of pi / 2 that may end an arc the coordinates are known; any other float but 0 is never a
zero, nor is one plus a full turn, because cosine and sine of an algebraic number are transcendental.

*Tractrix.* If two different lines meet the curve at ``t``, then ``sech t`` and ``t - tanh t`` are rational. So
``exp t`` and therefore ``t`` would be algebraic, which by the theorem of Lindemann and Weierstrass happens at ``t = 0``
only. For the same reason no other float is a zero, and a line touches the curve at no other point than the cusp.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from fiberscope.numerics.points import sign

Row = tuple[Any, Any, Any]

LADDER = (96, 256, 1024, 4096, 16384, 65536)
"""Bits of the balls tried one after the other."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A parameter given as a float; on the circle ``quarters`` stand for a multiple of pi / 2, and ``turn_from`` for a
    float other than 0 plus 2 pi."""

    value: float
    quarters: int | None = None
    turn_from: float | None = None

    @property
    def is_float(self) -> bool:
        """Whether ``value`` is the number itself."""
        return self.quarters is None and self.turn_from is None

    def ball(self) -> Any:
        """At the working precision."""
        if self.quarters is not None:
            return flint.arb.pi() * self.quarters / 2
        return flint.arb(self.value) if self.turn_from is None else flint.arb(self.turn_from) + 2 * flint.arb.pi()


@dataclass(frozen=True, slots=True)
class Zero:
    """Zero number ``index`` of a function on a curve."""

    form: CurveForm
    index: int

    def ball(self) -> Any:
        """At the working precision."""
        return self.form.ball(self.index)


Number = Mark | Zero


class CurveForm(ABC):
    """``A x(t) + B y(t) + C`` with integers on a curve; not all of them zero."""

    def __init__(self, row: Row) -> None:
        self.row = row

    @property
    @abstractmethod
    def count(self) -> int:
        """How many zeros there are on the whole curve, and a little beyond its ends."""

    @abstractmethod
    def ball(self, index: int) -> Any:
        """Zero number ``index`` at the working precision."""

    @abstractmethod
    def value(self, t: Any) -> Any:
        """The function at an Arb number."""

    @abstractmethod
    def vanishes(self, other: Number) -> bool:
        """Whether the function is zero at another number, decided by algebra."""

    def zeros(self) -> list[Zero]:
        return [Zero(self, k) for k in range(self.count)]

    def sign_between(self, left: Number, right: Number) -> int:
        """Sign between two numbers that have no zero between them."""
        for _ in rising():
            a, b = left.ball(), right.ball()
            if a < b:
                found = self.value((a.upper() + b.lower()) / 2)
                if found > 0 or found < 0:
                    return 1 if found > 0 else -1
        raise ArithmeticError(
            "no sign was found between two breakpoints"
        )  # pragma: no cover - they differ, as is known before


class CircleForm(CurveForm):
    """On the unit circle; zeros are listed once for every turn that touches ``[-5 pi, 5 pi]``."""

    TURNS = (-2, -1, 0, 1, 2)

    @property
    def discriminant(self) -> Any:
        A, B, C = self.row
        return A * A + B * B - C * C

    @property
    def count(self) -> int:
        if self.discriminant < 0 or (self.row[0] == 0 and self.row[1] == 0):
            return 0
        return len(self.TURNS) * (2 if self.discriminant > 0 else 1)

    def ball(self, index: int) -> Any:
        A, B, C = (flint.arb(x) for x in self.row)
        turn, side = divmod(index, 2) if self.discriminant > 0 else (index, 0)
        half = flint.arb.atan2(flint.arb(self.discriminant).sqrt(), -C)
        middle = flint.arb.atan2(B, A)
        return middle + (half if side else -half) + 2 * flint.arb.pi() * self.TURNS[turn]

    def value(self, t: Any) -> Any:
        sin, cos = t.sin_cos()
        return flint.arb(self.row[0]) * cos + flint.arb(self.row[1]) * sin + flint.arb(self.row[2])

    def vanishes(self, other: Number) -> bool:
        A, B, C = self.row
        if isinstance(other, Mark):
            if other.quarters is None:
                return bool(other.is_float and other.value == 0 and A + C == 0)
            x, y = ((1, 0), (0, 1), (-1, 0), (0, -1))[other.quarters % 4]
            return bool(A * x + B * y + C == 0)
        a, b, c = other.form.row
        w = A * b - B * a
        if w == 0:
            return bool(A * c == C * a and B * c == C * b)
        x, y = B * c - C * b, C * a - A * c
        # The lines meet at (x, y) / w; where that is on the circle, only one of the other form's zeros is there.
        if x * x + y * y != w * w:
            return False
        meeting = Angle(x, y, w)
        assert isinstance(other.form, CircleForm)
        return other.form.is_at(other.index, meeting.overlaps)

    def is_at(self, index: int, near: Callable[[Any], bool]) -> bool:
        """Whether zero ``index`` is the one at a place where the form is known to vanish."""
        for _ in rising():
            hits = {k % 2 if self.discriminant > 0 else 0 for k in range(self.count) if near(self.ball(k))}
            if len(hits) <= 1:
                return near(self.ball(index))
        raise ArithmeticError(
            "zeros of one function do not separate"
        )  # pragma: no cover - they differ, as is known before


@dataclass(frozen=True, slots=True)
class Angle:
    """The angle of the rational point ``(x, y) / w`` of the unit circle, up to full turns."""

    x: Any
    y: Any
    w: Any

    def overlaps(self, t: Any) -> bool:
        """Whether a ball may hold this angle, at the working precision."""
        sin, cos = t.sin_cos()
        return bool((cos * self.w).overlaps(flint.arb(self.x)) and (sin * self.w).overlaps(flint.arb(self.y)))


class TractrixForm(CurveForm):
    """On the unit tractrix between two floats; zeros are found between the critical points."""

    def __init__(self, row: Row, interval: tuple[float, float]) -> None:
        super().__init__(row)
        self.interval = interval
        self._brackets = self._isolate()

    @property
    def count(self) -> int:
        return len(self._brackets)

    def value(self, t: Any) -> Any:
        A, B, C = (flint.arb(x) for x in self.row)
        return A * (t - t.tanh()) + B * t.sech() + C

    def _bend(self) -> Any:
        return (flint.arb(self.row[1]) / flint.arb(self.row[0])).asinh()

    def _sign(self, point: Callable[[], Any]) -> int:
        """Sign at a point where the function is known not to vanish."""
        for _ in rising():
            found = self.value(point())
            if found > 0 or found < 0:
                return 1 if found > 0 else -1
        raise ArithmeticError(
            "no sign was found at a critical point"
        )  # pragma: no cover - they differ, as is known before

    def _isolate(self) -> list[tuple[Callable[[], Any], Callable[[], Any], int] | None]:
        """Brackets of the simple zeros with the sign before each, in order; None stands for the zero at 0."""
        _, B, C = self.row
        ends = [float(np.nextafter(e, d)) for e, d in zip(self.interval, (-np.inf, np.inf), strict=True)]
        points: list[tuple[Callable[[], Any], int]] = [_fixed(ends[0]), *self._inner(ends), _fixed(ends[1])]
        signs = [sign(B + C) if kind == 0 else self._sign(point) for point, kind in points]
        brackets: list[tuple[Callable[[], Any], Callable[[], Any], int] | None] = []
        for k, (point, kind) in enumerate(points):
            if kind == 0 and signs[k] == 0:
                brackets.append(None)
            if k + 1 < len(points) and signs[k] * signs[k + 1] < 0:
                brackets.append((point, points[k + 1][0], signs[k]))
        return brackets

    def _inner(self, ends: list[float]) -> list[tuple[Callable[[], Any], int]]:
        """Critical points between the ends in order: the cusp has kind 0."""
        A, B, _ = self.row
        found: list[tuple[Callable[[], Any], int]] = []
        if ends[0] < 0 < ends[1]:
            found.append((_fixed(0.0)[0], 0))
        if A != 0 and B != 0:
            for _ in rising():
                bend = self._bend()
                if not bend.overlaps(flint.arb(ends[0])) and not bend.overlaps(flint.arb(ends[1])):
                    break
            if ends[0] < bend < ends[1]:
                found.insert(0 if bend < 0 else len(found), (self._bend, 1))
        return found

    def ball(self, index: int) -> Any:
        bracket = self._brackets[index]
        if bracket is None:
            return flint.arb(0)
        low, high = bracket[0]().upper(), bracket[1]().lower()
        before = bracket[2]
        # Balls cannot be split below their own precision: half of the working bits is what the result has.
        aim = flint.arb(2) ** (-flint.ctx.prec // 2)
        while high - low > aim:
            middle = (low + high).mid() / 2
            f = self.value(middle)
            step = f / (
                middle.tanh() * (flint.arb(self.row[0]) * middle.tanh() - flint.arb(self.row[1]) * middle.sech())
            )
            if not (f > 0 or f < 0):
                break
            if (f > 0) == (before > 0):
                low = middle
            else:
                high = middle
            low, high = self._newton(middle - step.mid(), low, high, before)
        return low.union(high)

    def _newton(self, guess: Any, low: Any, high: Any, before: int) -> tuple[Any, Any]:
        """The bracket made smaller around a guess, on both sides of it, as far as signs allow."""
        guess = guess.mid()
        if not (guess.is_finite() and low < guess < high):
            return low, high
        width = high - low
        for share in (flint.arb(2) ** -40, flint.arb(2) ** -8):
            a, b = (guess - width * share).mid(), (guess + width * share).mid()
            for point in (a, b):
                f = self.value(point)
                if low < point < high and (f > 0 or f < 0):
                    if (f > 0) == (before > 0):
                        low = low.max(point)
                    else:
                        high = high.min(point)
        return low, high

    def vanishes(self, other: Number) -> bool:
        A, B, C = self.row
        if isinstance(other, Mark):
            return bool(other.value == 0 and B + C == 0)
        a, b, c = other.form.row
        if A * b == B * a and A * c == C * a and B * c == C * b:
            return True
        assert isinstance(other.form, TractrixForm)
        at_cusp = other.form._brackets[other.index] is None
        return bool(at_cusp and B + C == 0)


def _fixed(value: float) -> tuple[Callable[[], Any], int]:
    return lambda: flint.arb(value), 1


def rising() -> Any:
    """Work at one precision of the ladder after the other."""
    for bits in LADDER:
        with flint.ctx.workprec(bits):
            yield bits


def compare(a: Number, b: Number) -> int:
    """-1, 0 or 1 as ``a`` is smaller, the same or larger."""
    for bits in rising():
        x, y = a.ball(), b.ball()
        if x < y:
            return -1
        if x > y:
            return 1
        if bits == LADDER[0] and same(a, b):
            return 0
    raise ArithmeticError("two zeros do not separate")  # pragma: no cover - they differ, as is known before


def same(a: Number, b: Number) -> bool:
    """Whether two numbers whose balls overlap are one, by algebra; both lie on the same turn of a circle."""
    if isinstance(a, Mark) and isinstance(b, Mark):
        return a == b
    if isinstance(a, Mark):
        return same(b, a)
    # The form of a must vanish at b, and no other zero of it may be meant.
    return a.form.vanishes(b) and _picks(a, b)


def _picks(a: Zero, b: Number) -> bool:
    """Given that the form of ``a`` vanishes at ``b``: whether ``a`` is that zero."""
    for _ in rising():
        ball = b.ball()
        hits = [zero for zero in a.form.zeros() if zero.ball().overlaps(ball)]
        if len(hits) <= 1:
            return hits == [a]
    raise ArithmeticError("zeros of one function do not separate")  # pragma: no cover - they differ, as is known before
