"""Breakpoints along any smooth curve, through its piecewise Chebyshev interpolant.

On a panel every preactivation is a Chebyshev series, and the curve itself is within ``off`` of the interpolant. So a
preactivation is known up to an error, and has a certain sign where the series exceeds it. The rest are bands around its
zeros: these are the enclosures. A band on which the series is proven to be monotone holds one zero of the interpolant;
of others (a neuron that touches zero, a zero at a known point, two whose bands overlap) one breakpoint is made, and the
decision is counted as undecided.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.geometry.curves.breakpoints import Breaks
from fiberscope.geometry.curves.chebyshev import NODES
from fiberscope.geometry.curves.curve import Curve
from fiberscope.geometry.curves.follower import Follower, Found, Touched
from fiberscope.geometry.curves.series_kernels import DEPTH, find_bands
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.arrays import ranks_within
from fiberscope.numerics.floats import INFLATE, TINY, BoolArray, FloatArray, IntArray, U, gamma
from fiberscope.run import ENDLESS, Run

WIDE = 2 * NODES
"""Curves in spaces of more dimensions are followed in coordinates of their own."""

_CHUNK = 1 << 21
"""Numbers in one batch of series."""


def smooth_breaks(net: Network, curve: Curve, run: Run = ENDLESS) -> Breaks:
    """All breakpoints of a network along a curve."""
    with np.errstate(all="ignore"):  # what overflows is reported as undecided
        return _SeriesFollower(net, curve).breaks(run)


def _frame(series: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Directions ``(m + 1, n)``, the origin last, and the series of the coordinates ``(panels, NODES, m)``."""
    n = series.shape[2]
    if n <= WIDE:
        return np.eye(n + 1, n), series
    origin = series[:, 0].mean(axis=0)
    moved = series.copy()
    moved[:, 0] -= origin
    _, size, directions = np.linalg.svd(moved.reshape(-1, n), full_matrices=False)
    rank = max(1, int((size > size[0] * U).sum()))
    return np.concatenate([directions[:rank], origin[None]]), moved @ directions[:rank].T


class _SeriesFollower(Follower):
    """Along an interpolant; the first points are the edges of its panels."""

    def __init__(self, net: Network, curve: Curve) -> None:
        self.panels = curve.panels
        rows, self.series = _frame(curve.panels.series)
        edges = self.panels.edges
        super().__init__(net, rows, edges, np.zeros(len(edges)), curve.closed)
        self.edges, self.wide = len(edges), len(rows) <= curve.ambient
        self.off = curve.panels.off + self._lost(curve.panels.series)
        self.residual = float(self.off.max())

    def _lost(self, series: FloatArray) -> float:
        """Distance of the curve from the one that its coordinates give."""
        given = self.series @ self.rows[:-1]
        given[:, 0] += self.rows[-1]
        return float(np.abs(given - series).sum(axis=1).max())

    def start_error(self) -> FloatArray:
        # Off the span of its coordinates the curve is known up to `off`; within it `spread` says more.
        error = super().start_error()
        if self.wide:
            error[:, -1] = self.off[self.root][:, None]
        return error

    def spread(self, value: FloatArray, pieces: IntArray) -> FloatArray:
        if self.wide:
            return np.zeros((len(value), value.shape[2]))
        return np.asarray(np.abs(value[:, :-1]).sum(axis=1) * self.off[self.root[pieces]][:, None])

    def coordinates(self, t: FloatArray, pieces: IntArray) -> tuple[FloatArray, FloatArray]:
        panel = self.root[pieces]
        basis = np.polynomial.chebyshev.chebvander(self.panels.within(panel, t), NODES - 1)
        return (
            np.einsum("pk,pkm->pm", basis, self.series[panel]),
            np.einsum("pk,pkm->pm", np.abs(basis), np.abs(self.series[panel])) * 8,
        )

    def settle(self, piece: int, label: int, left: int, right: int, value: float) -> int:
        self.undecided += 1
        return (value > 0) - (value < 0)

    def zeros(self, forms: Bounded, skip: Any) -> tuple[Found, Touched]:
        pieces, _, count = forms.value.shape
        step = max(1, _CHUNK // (NODES * count))
        chunks = [np.arange(start, min(start + step, pieces)) for start in range(0, pieces, step)]
        found = [self._bands(some, Bounded(forms.value[some], forms.error[some]), skip) for some in chunks]
        piece, label, t, low, high, sure = (np.concatenate(parts) for parts in zip(*found, strict=True))
        self.by_float += pieces * count
        self.undecided += int((~sure).sum())
        return self._apart(Found(piece, label, t, low, high, [None] * len(t)))

    def _bands(self, pieces: IntArray, forms: Bounded, skip: Any) -> tuple[IntArray | FloatArray | BoolArray, ...]:
        """Bands on some of the pieces: piece, functional, place, low, high, and whether one zero is proven."""
        panel = self.root[pieces]
        own = self.series[panel]
        series = own @ forms.value[:, :-1]
        series[:, 0] += forms.value[:, -1]
        terms = np.abs(own).sum(axis=1)[:, None, :]
        rough = forms.error + gamma(own.shape[2] + 4) * np.abs(forms.value)
        error = ((terms @ rough[:, :-1])[:, 0] + rough[:, -1] + self.spread(forms.value, pieces)) * INFLATE + 8 * TINY
        exact = ~forms.value.any(axis=1) & ~forms.error.any(axis=1)
        error[exact] = 0.0
        left, right = self.order[pieces], self.order[pieces + 1]
        ends = np.stack([self.panels.within(panel, x) for x in (self.lo[left], self.hi[right])], axis=1)
        ends += np.array([-4, 4]) * U * (np.stack([left, right], axis=1) >= self.edges)
        ends = np.clip(ends, -1.0, 1.0)
        out, counts = np.empty((*error.shape, NODES, 4)), np.empty(error.shape, dtype=np.int64)
        find_bands(series, error, ends, np.empty((3, NODES)), np.empty((DEPTH, 2)), np.empty(4), out, counts, skip)
        p, j = np.nonzero(counts > 0)
        sizes = counts[p, j]
        row = np.repeat(np.arange(len(p)), sizes)
        k = ranks_within(sizes)
        p, j = p[row], j[row]
        places, sure = out[p, j, k, :3], out[p, j, k, 3] > 0
        a, b = self.panels.edges[panel[p]][:, None], self.panels.edges[panel[p] + 1][:, None]
        t = np.clip(a + (places + 1) * (b - a) / 2, a, b)
        room = 4 * U * (np.abs(t[:, 0]) + (b - a)[:, 0])
        # At an edge of a panel the place itself is known.
        low = np.where(places[:, 1] <= -1, a[:, 0], t[:, 1] - room)
        high = np.where(places[:, 2] >= 1, b[:, 0], t[:, 2] + room)
        return pieces[p], j, t[:, 0], low, high, sure

    def _apart(self, found: Found) -> tuple[Found, Touched]:
        """Take bands that reach points known before to these, whose enclosures grow; the rest lie between them."""
        left, right = self.order[found.piece], self.order[found.piece + 1]
        at_left, at_right = np.zeros(len(left), dtype=bool), np.zeros(len(left), dtype=bool)
        while True:
            new_left = ~at_left & (found.lo <= self.hi[left])
            new_right = ~at_right & (found.hi >= self.lo[right])
            if not (new_left.any() or new_right.any()):
                break
            at_left, at_right = at_left | new_left, at_right | new_right
            both = at_left & at_right  # zero up to the error on a whole piece: no enclosure of one point
            grow_left, grow_right = at_left & ~both, at_right & ~both
            np.maximum.at(self.hi, left[grow_left], found.hi[grow_left])
            np.minimum.at(self.lo, right[grow_right], found.lo[grow_right])
        points = np.concatenate([left[at_left], right[at_right]])
        labels = np.concatenate([found.label[at_left], found.label[at_right]])
        return found.rows(np.flatnonzero(~at_left & ~at_right)), (points, labels)

    def ordered(self, found: Found) -> tuple[Found, IntArray]:
        """Zeros whose bands overlap are taken for one, in the hull of the bands; unless equal that is undecided."""
        found = found.rows(np.lexsort((found.t, found.lo, found.piece)))
        rank = np.zeros(len(found.t), dtype=np.int64)
        first = 0
        for i in range(1, len(found.t)):
            if found.piece[i] == found.piece[first] and found.lo[i] <= found.hi[first]:
                self.undecided += int(found.t[i] != found.t[first])
                found.hi[first] = max(found.hi[first], found.hi[i])
                rank[i] = rank[first]
            else:
                rank[i], first = rank[i - 1] + 1, i
        return found, rank
