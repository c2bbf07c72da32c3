"""Breakpoints along circles and tractrices in any plane, certified.

On every piece of the curve a preactivation is ``A x(t) + B y(t) + C`` with the coordinates of the unit curve. The
coefficients come from one batched product per layer, with error bounds; :mod:`root_kernels` finds the zeros in floats
and says where that is no proof, and there the coefficients are taken as integers and :mod:`certify` decides. A
breakpoint is kept as an enclosure that holds one zero of one neuron; deeper layers see the enclosures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, cmp_to_key
from typing import Any

import flint
import numpy as np

from fiberscope.geometry.curves.breakpoints import Breaks
from fiberscope.geometry.curves.certify import CircleForm, CurveForm, Mark, Number, TractrixForm, Zero, compare
from fiberscope.geometry.curves.curve import Circle, Planar
from fiberscope.geometry.curves.follower import Follower, Found, Touched
from fiberscope.geometry.curves.root_kernels import CIRCLE, TRACTRIX, find_zeros
from fiberscope.geometry.engines.planar.exact import FixedProgram, exact_program
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.algebra.dyadic import Dyadic
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray, U
from fiberscope.run import ENDLESS, Run


def planar_breaks(net: Network, curve: Planar, run: Run = ENDLESS) -> Breaks:
    """All breakpoints of a network along a circle or tractrix."""
    with np.errstate(all="ignore"):  # what overflows is left to exact arithmetic
        return _PlanarFollower(net, curve).breaks(run)


def curve_ends(curve: Planar) -> tuple[FloatArray, FloatArray]:
    """The ends of the interval, and how far the numbers that they stand for may be away."""
    wide = [
        0.0 if isinstance(mark, Mark) and mark.is_float else 4 * U * (abs(mark.value) + 8) for mark in _marks(curve)
    ]
    return np.array(curve.interval), np.array(wide)


def _marks(curve: Planar) -> tuple[Mark, Mark]:
    """The ends of the interval as exact numbers.

    On the circle the floats next to multiples of pi / 2 stand for these, and the end of a full turn for its start plus
    2 pi: so it closes without a gap.
    """
    low, high = curve.interval
    if not isinstance(curve, Circle):
        return Mark(low), Mark(high)
    start = _quarter_mark(low)
    if not curve.closed:
        return start, _quarter_mark(high)
    if start.quarters is None:
        return start, Mark(high, turn_from=low)
    return start, Mark(high, start.quarters + 4)


def _quarter_mark(value: float) -> Mark:
    quarters = round(value / (np.pi / 2))
    return Mark(value, quarters) if value == quarters * (np.pi / 2) else Mark(value)


class _PlanarFollower(Follower):
    """Along a circle or tractrix; the first two points are its ends."""

    def __init__(self, net: Network, curve: Planar) -> None:
        self.curve = curve
        self.model = CIRCLE if isinstance(curve, Circle) else TRACTRIX
        rows = np.concatenate([curve.axes, curve.center[None]])
        super().__init__(net, rows, *curve_ends(curve), curve.closed)
        self.numbers = list(_marks(curve))

    @cached_property
    def program(self) -> FixedProgram[Dyadic]:
        """The network on the plane of the curve, as rows of the coordinates x, y and 1."""
        return exact_program(self.layout, lambda chart: Dyadic.of(self.rows))

    def coordinates(self, t: FloatArray, pieces: IntArray) -> tuple[FloatArray, FloatArray]:
        xy = self.curve.flat(t)
        return xy, np.abs(xy) + np.abs(t)[:, None] * (self.model == TRACTRIX)

    def settle(self, piece: int, label: int, left: int, right: int, value: float) -> int:
        self.by_exact += 1
        form = self._form(len(self.cuts), piece, label)
        return 0 if form is None else form.sign_between(self._number(left), self._number(right))

    def zeros(self, forms: Bounded, skip: Any) -> tuple[Found, Touched]:
        """Zeros inside the pieces, and ``(points, functionals)`` that vanish at points known before."""
        left, right = self.order[:-1], self.order[1:]
        ends = np.stack([self.lo[left], self.hi[left], self.lo[right], self.hi[right]], axis=1)
        at = np.concatenate([self._ends(left), self._ends(right)], axis=1)
        zeros, opened = 4 * (len(left) + forms.value.shape[2]), 64
        room, sizes = np.empty((4, 5)), np.zeros(2, dtype=np.int64)
        while True:
            integers = [np.empty(n, dtype=np.int64) for n in (zeros, zeros, opened, opened)]
            floats = [np.empty(zeros) for _ in range(3)]
            find_zeros(
                self.model, forms.value, forms.error, ends, at, skip, *integers[:2], *floats, *integers[2:], room, sizes
            )
            if sizes[0] <= zeros and sizes[1] <= opened:
                break
            zeros, opened = max(zeros, int(sizes[0])), max(opened, int(sizes[1]))
        n, m = sizes.tolist()
        self.by_float += forms.value.shape[0] * forms.value.shape[2] - m
        self.by_exact += m
        known = Found(integers[0][:n], integers[1][:n], floats[0][:n], floats[1][:n], floats[2][:n], _nothing(n))
        return self._decided(known, integers[2][:m], integers[3][:m])

    def _ends(self, points: IntArray) -> FloatArray:
        return self.curve.flat(0.5 * (self.lo[points] + self.hi[points]))

    def _decided(self, known: Found, pieces: IntArray, labels: IntArray) -> tuple[Found, Touched]:
        """Join what integers tell about the functionals that floats left open."""
        rows: list[tuple[int, int, Zero]] = []
        touched: list[tuple[int, int]] = []
        for p, j in zip(pieces.tolist(), labels.tolist(), strict=True):
            self.run.check()
            form = self._form(len(self.cuts), p, j)
            if form is None:
                continue
            a, b = int(self.order[p]), int(self.order[p + 1])
            for zero in form.zeros():
                low, high = compare(zero, self._number(a)), compare(zero, self._number(b))
                if low > 0 > high:
                    rows.append((p, j, zero))
                touched += [(v, j) for v, side in ((a, low), (b, high)) if side == 0 and (v > 1 or self.closed)]
        if rows:
            boxes = np.array([_enclosure(zero) for *_, zero in rows])
            p, j = (np.array([r[k] for r in rows], dtype=np.int64) for k in (0, 1))
            more = Found(p, j, boxes[:, 0], boxes[:, 1], boxes[:, 2], [zero for *_, zero in rows])
            parts = [np.concatenate([getattr(x, name) for x in (known, more)]) for name in _FIELDS]
            numbers = [*known.number, *more.number]
            known = Found(parts[0], parts[1], parts[2], parts[3], parts[4], numbers)
        at = np.array(touched, dtype=np.int64).reshape(-1, 2)
        return known, (at[:, 0], at[:, 1])

    def ordered(self, found: Found) -> tuple[Found, IntArray]:
        order = np.lexsort((found.t, found.piece))
        found = found.rows(order)
        near = (found.piece[1:] == found.piece[:-1]) & (found.lo[1:] <= found.hi[:-1])
        new = np.ones(len(order), dtype=bool)
        for start, stop in _runs(near):
            self.by_exact += stop - start
            numbers = [self._exact_zero(found, i) for i in range(start, stop)]
            turn = sorted(range(stop - start), key=cmp_to_key(_by(numbers)))
            part = found.rows(np.array(turn) + start)
            for k, i in enumerate(range(start, stop)):
                for name in _FIELDS:
                    getattr(found, name)[i] = getattr(part, name)[k]
                found.number[i] = numbers[turn[k]]
                found.t[i], found.lo[i], found.hi[i] = _enclosure(numbers[turn[k]])
                new[i] = k == 0 or compare(numbers[turn[k - 1]], numbers[turn[k]]) != 0
        rank = np.cumsum(new) - 1
        return found, rank

    def _exact_zero(self, found: Found, i: int) -> Number:
        number = found.number[i]
        if number is None:
            where = (float(found.lo[i]), float(found.hi[i]))
            number = self._located(len(self.cuts), int(found.piece[i]), int(found.label[i]), *where)
        return number

    # -- exact numbers ---------------------------------------------------------------------------

    def _prefix(self, stage: int, piece: int) -> list[SignArray]:
        """Signs of the switches before a stage on one of its pieces."""
        parts = []
        for cut in reversed(self.cuts[:stage]):
            parts.append(cut.signs[piece])
            piece = int(cut.parent[piece])
        return parts[::-1]

    def _form(self, stage: int, piece: int, label: int) -> CurveForm | None:
        """A functional in integers; None if it is zero."""
        column = self.program.functionals(self._prefix(stage, piece))[stage].integers[:, label]
        row = (column[0], column[1], column[2])
        if not any(row):
            return None
        return CircleForm(row) if self.model == CIRCLE else TractrixForm(row, self.curve.interval)

    def _located(self, stage: int, piece: int, label: int, lo: float, hi: float) -> Zero:
        """The zero of a functional in an enclosure that is known to hold just one."""
        form = self._form(stage, piece, label)
        assert form is not None
        low, high = Mark(lo), Mark(hi)
        inside = [zero for zero in form.zeros() if compare(zero, low) >= 0 >= compare(zero, high)]
        if len(inside) != 1:  # pragma: no cover - the enclosure was proven
            raise ArithmeticError(f"an enclosure holds {len(inside)} zeros; please report this network")
        return inside[0]

    def _number(self, point: int) -> Number:
        known = self.numbers[point]
        if known is None:
            known = self._located(*self.made[point], float(self.lo[point]), float(self.hi[point]))
            self.numbers[point] = known
        return known


_FIELDS = ("piece", "label", "t", "lo", "hi")


def _by(numbers: Sequence[Number]) -> Callable[[int, int], int]:
    return lambda a, b: compare(numbers[a], numbers[b])


def _nothing(count: int) -> list[Number | None]:
    return [None] * count


def _runs(near: Any) -> list[tuple[int, int]]:
    """Stretches ``[start, stop)`` of entries that are near their neighbours."""
    runs: list[tuple[int, int]] = []
    for i in np.flatnonzero(near).tolist():
        if runs and runs[-1][1] == i + 1:
            runs[-1] = (runs[-1][0], i + 2)
        else:
            runs.append((i, i + 2))
    return runs


def _enclosure(number: Number) -> tuple[float, float, float]:
    """The number rounded, and floats below and above it."""
    with flint.ctx.workprec(192):
        ball = number.ball()
        middle = float(ball.mid())
        low, high = float(ball.lower()), float(ball.upper())
    return middle, float(np.nextafter(low, -np.inf)), float(np.nextafter(high, np.inf))
