"""Breakpoints along any smooth curve, exactly for its piecewise Chebyshev interpolant.

On a panel every preactivation is a Chebyshev series. Its zeros are isolated by halving with a rigorous Taylor bound,
which proves how many there are; where that does not succeed (a zero at a breakpoint, two that nearly coincide, a neuron
that touches zero) the eigenvalues of the colleague matrix tell, and the decision is counted as undecided.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.geometry.curves.chebyshev import NODES, colleague_roots
from fiberscope.geometry.curves.curve import Curve
from fiberscope.geometry.curves.follower import Follower, Found, Touched
from fiberscope.geometry.curves.found import Breaks
from fiberscope.geometry.curves.root_kernels import OPEN
from fiberscope.geometry.curves.series_kernels import DEPTH, isolate_all
from fiberscope.network.network import Network
from fiberscope.numerics.arithmetic import Bounded
from fiberscope.numerics.floats import INFLATE, TINY, FloatArray, IntArray, U, gamma

WIDE = 2 * NODES
"""Curves in spaces of more dimensions are followed in coordinates of their own."""

_CHUNK = 1 << 21
"""Numbers in one batch of series."""


def smooth_breaks(net: Network, curve: Curve) -> Breaks:
    """All breakpoints of a network along a curve."""
    with np.errstate(all="ignore"):  # what overflows is reported as undecided
        return _SeriesFollower(net, curve).breaks()


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
        self.edges, self.residual = len(edges), curve.residual + self._lost(curve.panels.series)

    def _lost(self, series: FloatArray) -> float:
        """Distance of the curve from the one that its coordinates give."""
        given = self.series @ self.rows[:-1]
        given[:, 0] += self.rows[-1]
        return float(np.abs(given - series).sum(axis=1).max())

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
        parts, touched = [], []
        for start in range(0, pieces, step):
            some = np.arange(start, min(start + step, pieces))
            found, at = self._zeros_of(some, Bounded(forms.value[some], forms.error[some]), skip)
            parts.append(found)
            touched.append(at)
        joined = [np.concatenate([getattr(x, name) for x in parts]) for name in ("piece", "label", "t", "lo", "hi")]
        vanish = tuple(np.concatenate([x[k] for x in touched]) for k in (0, 1))
        found = Found(joined[0], joined[1], joined[2], joined[3], joined[4], [None] * len(joined[0]))
        return found, (vanish[0], vanish[1])

    def _zeros_of(self, pieces: IntArray, forms: Bounded, skip: Any) -> tuple[Found, Touched]:
        """Zeros on some of the pieces."""
        panel = self.root[pieces]
        own = self.series[panel]
        series = own @ forms.value[:, :-1]
        series[:, 0] += forms.value[:, -1]
        terms = np.abs(own).sum(axis=1)[:, None, :]
        rough = forms.error + gamma(own.shape[2] + 4) * np.abs(forms.value)
        error = ((terms @ rough[:, :-1])[:, 0] + rough[:, -1]) * INFLATE + 8 * TINY
        exact = ~forms.value.any(axis=1) & ~forms.error.any(axis=1)
        error[exact] = 0.0
        left, right = self.order[pieces], self.order[pieces + 1]
        bounds = (self.lo[left], self.hi[left], self.lo[right], self.hi[right])
        ends = np.stack([self.panels.within(panel, x) for x in bounds], axis=1)
        ends += np.array([-4, 4, -4, 4]) * U * (np.stack([left, left, right, right], axis=1) >= self.edges)
        out, counts = np.empty((*error.shape, NODES, 3)), np.empty(error.shape, dtype=np.int64)
        isolate_all(series, error, ends, np.empty((3, NODES)), np.empty((DEPTH, 2)), out, counts, skip)
        p, j = np.nonzero(counts > 0)
        sizes = counts[p, j]
        row = np.repeat(np.arange(len(p)), sizes)
        k = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        places = out[p[row], j[row], k]
        self.by_float += counts.size
        opened = np.argwhere(counts == OPEN)
        more, touched = self._by_eigenvalues(pieces, series, error, ends, opened)
        p, j = np.append(p[row], more[:, 0].astype(np.int64)), np.append(j[row], more[:, 1].astype(np.int64))
        places = np.concatenate([places, more[:, 2:]])
        a, b = self.panels.edges[panel[p]][:, None], self.panels.edges[panel[p] + 1][:, None]
        t = np.clip(a + (places + 1) * (b - a) / 2, a, b)
        room = 4 * U * (np.abs(t[:, 0]) + (b - a)[:, 0])
        low = np.clip(t[:, 1] - room, self.hi[left[p]], t[:, 0])
        high = np.clip(t[:, 2] + room, t[:, 0], self.lo[right[p]])
        return Found(pieces[p], j, t[:, 0], low, high, [None] * len(p)), touched

    def _by_eigenvalues(
        self, pieces: IntArray, series: FloatArray, error: FloatArray, ends: FloatArray, opened: IntArray
    ) -> tuple[FloatArray, Touched]:
        """Rows ``(piece, functional, place, low, high)`` of zeros that only eigenvalues tell, and zeros at points."""
        rows: list[tuple[float, ...]] = []
        touched: list[tuple[int, int]] = []
        self.undecided += len(opened)
        self.by_exact += len(opened)
        if not len(opened):
            return np.zeros((0, 5)), (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        wanted = series[opened[:, 0], :, opened[:, 1]]
        steep = np.abs(np.polynomial.chebyshev.chebder(wanted, axis=1)).sum(axis=1)
        for (p, j), own, roots, slope in zip(opened.tolist(), wanted, colleague_roots(wanted), steep, strict=True):
            room = error[p, j] + 64 * NODES * U * np.abs(own).sum()
            at = np.polynomial.chebyshev.chebval(np.array([ends[p, :2].mean(), ends[p, 2:].mean()]), own)
            near = np.abs(at) <= room + slope * np.array([np.ptp(ends[p, :2]), np.ptp(ends[p, 2:])])
            points = (int(self.order[pieces[p]]), int(self.order[pieces[p] + 1]))
            touched += [(v, j) for v, hit in zip(points, near, strict=True) if hit and 0 < v != self.edges - 1]
            margin = np.where(near, np.sqrt(U), 0.0)
            inside = roots[(roots > ends[p, 1] + margin[0]) & (roots < ends[p, 2] - margin[1])]
            rows += [(p, j, x, x - 8 * U, x + 8 * U) for x in inside.tolist()]
        at_points = np.array(touched, dtype=np.int64).reshape(-1, 2)
        return np.array(rows).reshape(-1, 5), (at_points[:, 0], at_points[:, 1])

    def ordered(self, found: Found) -> tuple[Found, IntArray]:
        """Zeros whose enclosures overlap are taken for one; unless they are close to rounding that is undecided."""
        found = found.rows(np.lexsort((found.t, found.piece)))
        near = (found.piece[1:] == found.piece[:-1]) & (found.lo[1:] <= found.hi[:-1])
        self.undecided += int((near & (found.t[1:] != found.t[:-1])).sum())
        return found, np.cumsum(np.append([True], ~near)[: len(found.t)]) - 1
