"""Following a curve through the layers: pieces, affine forms on them, and the points where a switch cuts them.

Whatever the curve, on every piece a preactivation is an affine function of some coordinates of the curve. How zeros are
found, ordered and proven depends on the coordinates: that is left to the engines for the kinds of curves.

Points are numbered as they are found, with ``t``, ``lo``, ``hi`` ``(points,)``; ``order`` lists them along the curve,
so piece ``p`` lies between ``order[p]`` and ``order[p + 1]``. Values of the program are ``(pieces, coordinates + 1,
features)``; a switch makes more pieces, ``parent (new pieces,)`` says of which, and all live values follow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from fiberscope.geometry.curves.breakpoints import Breaks, changing, marked
from fiberscope.geometry.curves.certify import Number
from fiberscope.geometry.engines.planar.exact import pool_signs
from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool, PiecewiseLinear, Switch
from fiberscope.network.walk import cuts, switches
from fiberscope.numerics.algebra.bounded import BOUNDED_ROWS, Bounded
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.floats import INFLATE, TINY, FloatArray, IntArray, SignArray, gamma
from fiberscope.run import ENDLESS, Run

if TYPE_CHECKING:
    from fiberscope.network.layout import Place

Touched = tuple[IntArray, IntArray]
"""Points known before, and functionals that vanish there."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """What one switch did: for every new piece the old one, its signs, and the points that the switch made."""

    node: Switch
    parent: IntArray
    signs: SignArray


@dataclass(slots=True, eq=False)
class Found:
    """Zeros inside of pieces, one row each: piece, functional, position and enclosure; and an exact number or None."""

    piece: IntArray
    label: IntArray
    t: FloatArray
    lo: FloatArray
    hi: FloatArray
    number: list[Number | None]

    def rows(self, index: Any) -> Found:
        picked = [self.number[i] for i in index.tolist()]
        return Found(self.piece[index], self.label[index], self.t[index], self.lo[index], self.hi[index], picked)


class Follower(ABC):
    """One run along one curve. Points are numbered as they are found; the first ones are the joints of the curve.

    ``rows`` are the coordinates' directions in the input space, and last the origin. A joint is no breakpoint by
    itself; ``root`` says between which joints a piece lies. On a ``closed`` curve the first and the last joint are one.
    """

    def __init__(self, net: Network, rows: FloatArray, t: FloatArray, wide: FloatArray, closed: bool) -> None:
        self.net, self.rows, self.layout = net, rows, net.layout.up_to_last_switch
        self.t, self.lo, self.hi, self.closed = t, t - wide, t + wide, closed
        self.order = np.arange(len(t))
        self.root = np.arange(len(t) - 1)
        self.made: list[tuple[int, int, int]] = [(-1, 0, 0)] * len(t)
        self.numbers: list[Number | None] = [None] * len(t)
        self.cuts: list[Cut] = []
        self.makers: list[tuple[IntArray, IntArray]] = []
        self.by_float = self.by_exact = self.undecided = 0
        self.residual = 0.0
        self.run = ENDLESS

    # -- what depends on the curve ---------------------------------------------------------------

    @abstractmethod
    def zeros(self, forms: Bounded, skip: Any) -> tuple[Found, Touched]:
        """Zeros inside the pieces of all functionals but those to skip, and what vanishes at points."""

    @abstractmethod
    def ordered(self, found: Found) -> tuple[Found, IntArray]:
        """Zeros in order within their pieces, and ranks: equal ones have the same."""

    @abstractmethod
    def coordinates(self, t: FloatArray, pieces: IntArray) -> tuple[FloatArray, FloatArray]:
        """Coordinates of the curve on given pieces, and bounds of the terms that they were computed from."""

    @abstractmethod
    def settle(self, piece: int, label: int, left: int, right: int, value: float) -> int:
        """Sign of a functional between two points, which the float ``value`` leaves open."""

    def start_error(self) -> FloatArray:
        """How far the curve is from its coordinates' rows, ``(pieces, rows, n)``."""
        return np.zeros((len(self.root), *self.rows.shape))

    def spread(self, value: FloatArray, pieces: IntArray) -> FloatArray | float:
        """How much functionals ``(pieces, rows, functionals)`` may differ along the curve and what stands for it."""
        return 0.0

    # -- the common way -------------------------------------------------------------------------

    def breaks(self, run: Run = ENDLESS) -> Breaks:
        """Cut by every switch, then read off the breakpoints."""
        self.run = run
        values = {0: Bounded(np.repeat(self.rows[None], len(self.root), axis=0), self.start_error())}
        choices: dict[int, Any] = {}
        for place in switches(self.layout, values, BOUNDED_ROWS, choices):
            run.step(place.start, self.layout.size, "neurons")
            signs = self._split(place, values)
            choices[place.index] = place.node.chosen(signs)
        return self._result()

    def _split(self, place: Place, values: dict[int, Bounded]) -> SignArray:
        """Cut the pieces by one switch, and all values with them; its signs on the new pieces."""
        node = place.node
        forms = cuts(node, values[node.source], BOUNDED_ROWS)
        match node:
            case MaxPool():
                skip = np.zeros(node.num_cuts, dtype=bool)
            case PiecewiseLinear():
                skip = node.linear
            case _:
                assert_never(node)
        found, touched = self.zeros(forms, skip)
        found, rank = self.ordered(found)
        pieces = len(self.order) - 1
        point_of = self._insert(found, rank, pieces)
        counts = np.bincount(found.piece[firsts(rank)], minlength=pieces)
        parent = np.repeat(np.arange(pieces), counts + 1)
        signs = self._piece_signs(forms, parent, skip)
        at = (np.concatenate([point_of, touched[0]]), np.concatenate([found.label, touched[1]]))
        match node:
            case MaxPool():
                signs, entries = self._pooled(node, signs, at)
            case PiecewiseLinear():
                entries = self._not_on_both_sides(at, signs)
            case _:
                assert_never(node)
        self.makers.append((entries[0], place.start + entries[1]))
        self.cuts.append(Cut(node, parent, signs))
        self.root = self.root[parent]
        values.update({key: value[parent] for key, value in values.items()})
        return signs

    def _not_on_both_sides(self, at: tuple[IntArray, IntArray], signs: SignArray) -> tuple[IntArray, IntArray]:
        """Without what vanishes at a point and on both of its sides."""
        place = np.empty(len(self.t), dtype=np.int64)
        place[self.order] = np.arange(len(self.order))
        where, last = place[at[0]], len(signs) - 1
        before, behind = np.maximum(where - 1, 0), np.minimum(where, last)
        keep = (signs[before, at[1]] != 0) | (signs[behind, at[1]] != 0)
        return at[0][keep], at[1][keep]

    def _insert(self, found: Found, rank: IntArray, pieces: int) -> IntArray:
        """Number the new points, put them in their places; the point of every zero."""
        old = len(self.t)
        first = firsts(rank)
        one = found.rows(first)
        self.t, self.lo, self.hi = (
            np.concatenate([mine, new]) for mine, new in ((self.t, one.t), (self.lo, one.lo), (self.hi, one.hi))
        )
        stage = len(self.cuts)
        self.made += [(stage, p, j) for p, j in zip(one.piece.tolist(), one.label.tolist(), strict=True)]
        self.numbers += one.number
        order = np.empty(len(self.order) + len(first), dtype=np.int64)
        before = pointers(np.bincount(one.piece, minlength=pieces))
        order[np.arange(pieces + 1) + before] = self.order
        order[one.piece + 1 + np.arange(len(first))] = old + np.arange(len(first))
        self.order = order
        return np.asarray(old + rank)

    def _piece_signs(self, forms: Bounded, parent: IntArray, skip: Any) -> SignArray:
        """Signs of all functionals on the new pieces, from their values in the middle of each."""
        left, right = self.order[:-1], self.order[1:]
        a, b = self.hi[left], self.lo[right]
        at, terms = self.coordinates(0.5 * (a + b), parent)
        one = np.ones((len(at), 1))
        weights, size = np.concatenate([at, one], axis=1), np.concatenate([terms, one], axis=1)
        value, error = forms.value[parent], forms.error[parent]
        total = np.einsum("pk,pkj->pj", weights, value)
        rough = error + gamma(24 + weights.shape[1]) * np.abs(value)
        bound = (np.einsum("pk,pkj->pj", size, rough) + self.spread(value, parent)) * INFLATE + 8 * TINY
        zero = ~value.any(axis=1) & ~error.any(axis=1)
        signs: SignArray = np.sign(total).astype(np.int8)
        signs[:, skip] = 1
        signs[zero & ~skip] = 0
        open_signs = (~(np.abs(total) > bound) | ~(a < b)[:, None]) & ~zero & ~skip
        for p, j in np.argwhere(open_signs).tolist():
            signs[p, j] = self.settle(int(parent[p]), j, int(left[p]), int(right[p]), float(total[p, j]))
        return signs

    def _pooled(
        self, node: MaxPool, signs: SignArray, at: tuple[IntArray, IntArray]
    ) -> tuple[SignArray, tuple[IntArray, IntArray]]:
        """Signs of the window entries on the pieces, and the entries that change at points."""
        inside = pool_signs(node, signs)
        place = np.empty(len(self.t), dtype=np.int64)
        place[self.order] = np.arange(len(self.order))
        # Row k stands for the point behind piece k; the last one closes the curve, and the first point is the same.
        here = signs.copy()
        here[place[at[0]] - 1, at[1]] = 0
        changed = changing((inside, np.roll(inside, -1, axis=0)), pool_signs(node, here))
        which, entry = np.nonzero(changed if self.closed else changed[:-1])
        return inside, (self.order[1:][which], entry)

    def _result(self) -> Breaks:
        empty = [np.zeros(0, dtype=np.int64)]
        point, entry = (np.concatenate([*empty, *(m[k] for m in self.makers)]) for k in (0, 1))
        mine, incidence, pieces, closes = marked(point, entry, self.order, self.closed)
        low, high = self.lo[mine], self.hi[mine]
        first, last = int(self.order[0]), int(self.order[-1])
        if closes:  # the closing point is known from both of its sides
            low[-1] = min(low[-1], self.t[last] - (self.t[first] - self.lo[first]))
            high[-1] = max(high[-1], self.t[last] + (self.hi[first] - self.t[first]))

        def signs() -> SignArray:
            parts, own = [], pieces
            for cut in reversed(self.cuts):
                parts.append(cut.signs[own])
                own = cut.parent[own]
            return np.concatenate(parts[::-1], axis=1) if parts else np.zeros((len(pieces), 0), dtype=np.int8)

        return Breaks(
            np.clip(self.t[mine], self.t[first], self.t[last]),  # an end may stand for a number beside it
            low,
            high,
            incidence,
            signs,
            self.by_float,
            self.by_exact,
            self.undecided,
            self.residual,
            closes=closes,
        )


def firsts(rank: IntArray) -> IntArray:
    """Where each new rank begins."""
    return np.flatnonzero(np.diff(rank, prepend=-1))
