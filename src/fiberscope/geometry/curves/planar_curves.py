"""Breakpoints along circles and tractrices in any plane, certified.

On every piece of the curve a preactivation is ``A x(t) + B y(t) + C`` with the coordinates of the unit curve. The
coefficients come from one batched product per layer, with error bounds; :mod:`root_kernels` finds the zeros in floats
and says where that is no proof, and there the coefficients are taken as integers and :mod:`certify` decides. A
breakpoint is kept as an enclosure that holds one zero of one neuron; deeper layers see the enclosures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, cmp_to_key
from typing import Any

import flint
import numpy as np

from fiberscope.geometry.curves.certify import CircleForm, Form, Mark, Number, TractrixForm, Zero, compare
from fiberscope.geometry.curves.curve import Circle, Planar
from fiberscope.geometry.curves.found import Breaks, changing, chosen, grouped
from fiberscope.geometry.curves.root_kernels import CIRCLE, TRACTRIX, find_zeros
from fiberscope.geometry.forms import form_step
from fiberscope.geometry.planar_exact import Dyadic, ExactProgram, pool_signs, window_pairs
from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool, Node, PiecewiseLinear, Switch
from fiberscope.numerics.arithmetic import Bounded
from fiberscope.numerics.floats import INFLATE, TINY, FloatArray, IntArray, SignArray, U, gamma


def planar_breaks(net: Network, curve: Planar) -> Breaks:
    """All breakpoints of a network along a circle or tractrix."""
    with np.errstate(all="ignore"):  # what overflows is left to exact arithmetic
        return _Follower(net, curve).breaks()


class PlaneProgram(ExactProgram):
    """The program on the plane of a curve, as rows of the coordinates x, y and 1."""

    def __init__(self, nodes: Sequence[Node], rows: FloatArray) -> None:
        super().__init__(nodes)
        self.rows = rows

    def start(self, chart: int) -> Dyadic:
        return Dyadic.of(self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """What one switch did: for every new piece the old one, its signs, and the points that the switch made."""

    node: Switch
    parent: IntArray
    signs: SignArray


@dataclass(slots=True, eq=False)
class _Found:
    """Zeros inside of pieces, one row each: piece, functional, position and enclosure; and an exact number or None."""

    piece: IntArray
    label: IntArray
    t: FloatArray
    lo: FloatArray
    hi: FloatArray
    number: list[Number | None]

    def rows(self, index: Any) -> _Found:
        picked = [self.number[i] for i in index.tolist()]
        return _Found(self.piece[index], self.label[index], self.t[index], self.lo[index], self.hi[index], picked)


class _Follower:
    """One run along one curve. Points are numbered as they are found; the first two are the ends of the curve."""

    def __init__(self, net: Network, curve: Planar) -> None:
        last = max((k for k, x in enumerate(net.nodes) if isinstance(x, PiecewiseLinear | MaxPool)), default=-1)
        self.net, self.curve, self.nodes = net, curve, net.nodes[: last + 1]
        self.model = CIRCLE if isinstance(curve, Circle) else TRACTRIX
        self.last_use = {source: k for k, node in enumerate(self.nodes) for source in node.sources}
        self.rows = np.concatenate([curve.axes, curve.center[None]])
        marks = [self._mark(e) for e in curve.interval]
        self.numbers: list[Number | None] = [*marks]
        self.made: list[tuple[int, int, int]] = [(-1, 0, 0)] * 2
        self.order = np.array([0, 1])
        self.t = np.array(curve.interval)
        wide = [4 * U * abs(m.value) if m.quarters else 0.0 for m in marks]
        self.lo, self.hi = self.t - wide, self.t + wide
        self.cuts: list[_Cut] = []
        self.makers: list[tuple[IntArray, IntArray]] = []
        self.by_float = self.by_exact = 0
        self.first = 0

    def _mark(self, value: float) -> Mark:
        if self.model == CIRCLE:
            quarters = round(value / (np.pi / 2))
            if value == quarters * (np.pi / 2):
                return Mark(value, quarters)
        return Mark(value)

    @cached_property
    def program(self) -> PlaneProgram:
        return PlaneProgram(self.nodes, self.rows)

    def breaks(self) -> Breaks:
        """Cut by every switch, then read off the breakpoints."""
        start = self.rows[None]
        values = {0: Bounded(start, np.zeros_like(start))}
        for index, node in enumerate(self.nodes):
            if isinstance(node, PiecewiseLinear | MaxPool):
                values = self._split(node, values, index)
            else:
                values[index + 1] = form_step(node, values, None)
            for source in set(node.sources):
                if self.last_use[source] == index:
                    values.pop(source, None)
        return self._result()

    # -- one switch --------------------------------------------------------------------------------------------------

    def _split(self, node: Switch, values: dict[int, Bounded], index: int) -> dict[int, Bounded]:
        pairs = window_pairs(node) if isinstance(node, MaxPool) else None
        forms = values[node.source] if pairs is None else _differences(values[node.source], pairs)
        skip = node.linear if isinstance(node, PiecewiseLinear) else np.zeros(forms.value.shape[2], dtype=bool)
        found, touched = self._zeros(forms, skip)
        found, rank = self._sorted(found)
        pieces = len(self.order) - 1
        point_of = self._insert(found, rank, pieces)
        counts = np.bincount(found.piece[_firsts(found.piece, rank)], minlength=pieces)
        parent = np.repeat(np.arange(pieces), counts + 1)
        signs = self._piece_signs(forms, parent, skip)
        at = (np.concatenate([point_of, touched[0]]), np.concatenate([found.label, touched[1]]))
        if pairs is None:
            entries = at
        else:
            assert isinstance(node, MaxPool)
            signs, entries = self._pooled(node, signs, at)
        self.makers.append((entries[0], self.first + entries[1]))
        self.first += node.num_signs
        self.cuts.append(_Cut(node, parent, signs))
        live = {key: x for key, x in values.items() if self.last_use[key] > index or key == node.source}
        values = {key: Bounded(x.value[parent], x.error[parent]) for key, x in live.items()}
        values[index + 1] = form_step(node, values, signs)
        return values

    def _zeros(self, forms: Bounded, skip: Any) -> tuple[_Found, tuple[IntArray, IntArray]]:
        """Zeros inside the pieces, and ``(points, functionals)`` that vanish at points known before."""
        left, right = self.order[:-1], self.order[1:]
        ends = np.stack([self.lo[left], self.hi[left], self.lo[right], self.hi[right]], axis=1)
        at = np.concatenate([self._xy(left), self._xy(right)], axis=1)
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
        known = _Found(integers[0][:n], integers[1][:n], floats[0][:n], floats[1][:n], floats[2][:n], _nothing(n))
        return self._decided(known, integers[2][:m], integers[3][:m])

    def _xy(self, points: IntArray) -> FloatArray:
        return self.curve.flat(0.5 * (self.lo[points] + self.hi[points]))

    def _decided(self, known: _Found, pieces: IntArray, labels: IntArray) -> tuple[_Found, tuple[IntArray, IntArray]]:
        """Join what integers tell about the functionals that floats left open."""
        rows: list[tuple[int, int, Zero]] = []
        touched: list[tuple[int, int]] = []
        for p, j in zip(pieces.tolist(), labels.tolist(), strict=True):
            form = self._form(len(self.cuts), p, j)
            if form is None:
                continue
            a, b = int(self.order[p]), int(self.order[p + 1])
            for zero in form.zeros():
                low, high = compare(zero, self._number(a)), compare(zero, self._number(b))
                if low > 0 > high:
                    rows.append((p, j, zero))
                touched += [(v, j) for v, side in ((a, low), (b, high)) if side == 0 and v > 1]
        if rows:
            boxes = np.array([_enclosure(zero) for *_, zero in rows])
            p, j = (np.array([r[k] for r in rows], dtype=np.int64) for k in (0, 1))
            more = _Found(p, j, boxes[:, 0], boxes[:, 1], boxes[:, 2], [zero for *_, zero in rows])
            parts = [np.concatenate([getattr(x, name) for x in (known, more)]) for name in _FIELDS]
            numbers = [*known.number, *more.number]
            known = _Found(parts[0], parts[1], parts[2], parts[3], parts[4], numbers)
        at = np.array(touched, dtype=np.int64).reshape(-1, 2)
        return known, (at[:, 0], at[:, 1])

    def _sorted(self, found: _Found) -> tuple[_Found, IntArray]:
        """Zeros in order within their pieces, and ranks: equal ones have the same."""
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

    def _exact_zero(self, found: _Found, i: int) -> Number:
        number = found.number[i]
        if number is None:
            where = (float(found.lo[i]), float(found.hi[i]))
            number = self._located(len(self.cuts), int(found.piece[i]), int(found.label[i]), *where)
        return number

    def _insert(self, found: _Found, rank: IntArray, pieces: int) -> IntArray:
        """Number the new points, put them in their places; the point of every zero."""
        old = len(self.t)
        first = _firsts(found.piece, rank)
        one = found.rows(first)
        self.t, self.lo, self.hi = (
            np.concatenate([mine, new]) for mine, new in ((self.t, one.t), (self.lo, one.lo), (self.hi, one.hi))
        )
        stage = len(self.cuts)
        self.made += [(stage, p, j) for p, j in zip(one.piece.tolist(), one.label.tolist(), strict=True)]
        self.numbers += one.number
        order = np.empty(len(self.order) + len(first), dtype=np.int64)
        before = np.concatenate([[0], np.cumsum(np.bincount(one.piece, minlength=pieces))])
        order[np.arange(pieces + 1) + before] = self.order
        order[one.piece + 1 + np.arange(len(first))] = old + np.arange(len(first))
        self.order = order
        return np.asarray(old + rank)

    def _piece_signs(self, forms: Bounded, parent: IntArray, skip: Any) -> SignArray:
        """Signs of all functionals on the new pieces, from their values in the middle of each."""
        left, right = self.order[:-1], self.order[1:]
        a, b = self.hi[left], self.lo[right]
        middle = 0.5 * (a + b)
        xy = self.curve.flat(middle)
        weights = np.concatenate([xy, np.ones((len(xy), 1))], axis=1)[:, :, None]
        size = np.concatenate([np.abs(xy) + np.abs(middle)[:, None] * (self.model == TRACTRIX), weights[:, 2:, 0]], 1)
        value, error = forms.value[parent], forms.error[parent]
        total = (value * weights).sum(axis=1)
        bound = ((error + gamma(24) * np.abs(value)) * size[:, :, None]).sum(axis=1) * INFLATE + 8 * TINY
        zero = (~value.any(axis=1)) & (~error.any(axis=1))
        signs: SignArray = np.sign(total).astype(np.int8)
        open_signs = (~(np.abs(total) > bound) | ~(a < b)[:, None]) & ~zero & ~skip
        signs[:, skip] = 1
        signs[zero & ~skip] = 0
        for p, j in np.argwhere(open_signs).tolist():
            self.by_exact += 1
            form = self._form(len(self.cuts), int(parent[p]), j)
            ends = self._number(int(left[p])), self._number(int(right[p]))
            signs[p, j] = 0 if form is None else form.sign_between(*ends)
        return signs

    def _pooled(
        self, node: MaxPool, signs: SignArray, at: tuple[IntArray, IntArray]
    ) -> tuple[SignArray, tuple[IntArray, IntArray]]:
        """Signs of the window entries on the pieces, and the entries that change at points."""
        inside = pool_signs(node, signs)
        place = np.empty(len(self.t), dtype=np.int64)
        place[self.order] = np.arange(len(self.order))
        inner = self.order[1:-1]
        here = signs[:-1].copy()
        here[place[at[0]] - 1, at[1]] = 0
        which, entry = np.nonzero(changing((inside[:-1], inside[1:]), pool_signs(node, here)))
        return inside, (inner[which], entry)

    # -- exact numbers -------------------------------------------------------------------------------------------------

    def _prefix(self, stage: int, piece: int) -> list[SignArray]:
        """Signs of the switches before a stage on one of its pieces."""
        parts = []
        for cut in reversed(self.cuts[:stage]):
            parts.append(cut.signs[piece])
            piece = int(cut.parent[piece])
        return parts[::-1]

    def _form(self, stage: int, piece: int, label: int) -> Form | None:
        """A functional in integers; None if it is zero."""
        column = self.program.functionals(self._prefix(stage, piece))[stage][:, label]
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

    # -- the result ----------------------------------------------------------------------------------------------------

    def _result(self) -> Breaks:
        empty = [np.zeros(0, dtype=np.int64)]
        point, entry = (np.concatenate([*empty, *(m[k] for m in self.makers)]) for k in (0, 1))
        makers = grouped(point, entry, len(self.t))
        place = 1 + np.flatnonzero(np.diff(makers.indptr)[self.order[1:-1]] > 0)
        mine = self.order[place]
        pieces = np.concatenate([[0], place])

        def signs() -> SignArray:
            parts, own = [], pieces
            for cut in reversed(self.cuts):
                parts.append(cut.signs[own])
                own = cut.parent[own]
            return np.concatenate(parts[::-1], axis=1) if parts else np.zeros((len(pieces), 0), dtype=np.int8)

        return Breaks(
            self.t[mine], self.lo[mine], self.hi[mine], chosen(makers, mine), signs, self.by_float, self.by_exact
        )


_FIELDS = ("piece", "label", "t", "lo", "hi")


def _differences(value: Bounded, pairs: IntArray) -> Bounded:
    i, j = pairs.T
    total = value.value[:, :, i] - value.value[:, :, j]
    error = value.error[:, :, i] + value.error[:, :, j]
    exact = (error == 0) & ((value.value[:, :, i] == 0) | (value.value[:, :, j] == 0))
    return Bounded(total, np.where(exact, 0.0, (error + gamma(1) * np.abs(total)) * INFLATE + TINY))


def _firsts(piece: IntArray, rank: IntArray) -> IntArray:
    """Where each new rank begins."""
    return np.flatnonzero(np.diff(rank, prepend=-1))


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
