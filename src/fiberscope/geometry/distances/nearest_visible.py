"""Distance to the nearest *visible* boundary: where the function itself bends, and not only the sign vector.

The nearest boundary of a region may be invisible: nothing behind the neuron listens, or what it adds cancels. Then the
nearest kink lies beyond the region. Regions are searched best first, by the distance of the facet through which they
are entered. The straight way from ``x`` to the nearest visible point crosses invisible facets only, each of them nearer
than that point; so once no facet nearer than the best visible one is left to cross, that one is the nearest.

Projections onto facets are least-distance programs (C. Lawson and R. Hanson, *Solving least squares problems*, 1974,
chapter 23) on the few rows that matter, in floats; that a facet exists is certified by the signs of a point behind it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

import flint
import numpy as np
from scipy.optimize import nnls

from fiberscope.geometry.affine_forms import ExactRegion, jumps
from fiberscope.geometry.distances.distance import BoundaryDistance, boundary_distance
from fiberscope.geometry.distances.gradients import MEMORY, has_boundary, switch_rows
from fiberscope.geometry.distances.ties import are_proportional, is_affordable
from fiberscope.geometry.facets import bends_across
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.ball import EXACT
from fiberscope.numerics.arrays import batch, row_lengths
from fiberscope.numerics.cutoffs import NOT_ZERO, PROJECTION
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, IntArray, ObjectArray, SignArray
from fiberscope.results import Pictured, Tabular
from fiberscope.run import Progress, Run

_FAR = 1e300
"""Hyperplanes farther away than that are put here: no float point tells the difference."""

_DIGITS = 128
"""Bits of the square root and the quotient of exact numbers."""

_STEPS = 0.5 ** np.arange(4, 48, 4)
"""How far behind a facet a point of the neighbour is sought, relative to the size of the numbers there."""


@dataclass(frozen=True, slots=True, eq=False)
class VisibleDistance(Tabular, Pictured):
    """Distances to the nearest visible boundary, beside those to the nearest boundary at all; arrays over the points.

    Parameters
    ----------
    distance
        To the nearest visible facet found, ``(points,)``; infinite if none was.
    lower
        Proven: nothing visible is nearer. Where a search was needed this is ``nearest.lower``, below which there is no
        boundary at all, since which further facets a region has is judged by projections in floats.
    neuron, point
        The neuron that bends there, as an entry of the sign vector, and the point on its facet.
    complete
        Whether the nearest boundary is visible itself, or there is none: then the true distance is proven to lie
        between ``lower`` and ``upper``.
    ended
        Whether the search came to its end: neither at the limit of regions nor at a facet behind which no point with
        certain signs could be named. The facets that it met are certified, those that it passed over are not.
    searched
        The search found nothing visible nearer than that; equal to ``distance`` where it ``ended``.
    regions
        How many regions were searched; 0 where the nearest boundary is visible itself.
    nearest
        The nearest boundary, visible or not: see :class:`BoundaryDistance`.
    """

    distance: FloatArray
    lower: FloatArray = field(repr=False)
    neuron: IntArray
    point: FloatArray = field(repr=False)
    complete: BoolArray
    ended: BoolArray
    searched: FloatArray = field(repr=False)
    regions: IntArray = field(repr=False)
    nearest: BoundaryDistance = field(repr=False)

    told = ("upper",)
    frame = ("distance", "lower", "upper", "neuron", "point", "complete", "ended", "searched", "regions")
    picture = "boundary_distance"

    def __len__(self) -> int:
        return len(self.distance)

    @property
    def upper(self) -> FloatArray:
        """Proven: something visible is that near; infinite where a search was needed, or there is nothing."""
        return np.where(self.complete, self.nearest.upper, np.inf)

    def __repr__(self) -> str:
        beyond, left = int((self.regions > 0).sum()), int((~self.ended).sum())
        doubt = ", found by a search in floats" if beyond else ""
        doubt += f", of which {left} did not end" if left else ""
        return f"VisibleDistance({len(self)} points; {beyond} have a nearer boundary that is invisible{doubt})"


def visible_boundary_distance(
    net: NetworkLike,
    X: Any,
    *,
    limit: int = 1000,
    memory: int = MEMORY,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> VisibleDistance:
    """Distance of every point to the set where the gradient of the network is not continuous.

    Points whose nearest boundary is visible cost no search. For the others regions are searched beyond, at most
    ``limit`` per point and none after ``time_limit`` seconds; what is not finished says so.

    Parameters
    ----------
    net, X, memory
        As for :func:`boundary_distance`.
    progress
        Called as ``progress(done, total, text)`` over the points that need a search.

    Examples
    --------
    ``relu(x) - relu(-x) + relu(x - 3)``: the first two kinks cancel, the third shows.

    >>> net = Network([[[1.0], [-1.0], [1.0]], [[1.0, -1.0, 1.0]]], [[0.0, 0.0, -3.0], [0.0]])
    >>> found = visible_boundary_distance(net, [[-1.0]])
    >>> found.nearest.distance, found.distance, found.neuron, found.ended
    (array([1.]), array([4.]), array([2]), array([ True]))
    """
    net = as_network(net, points=X)
    run = Run.begin(progress, time_limit, limit)
    points = batch(X, net.in_size)
    nearest = boundary_distance(net, points, memory=memory)
    distance, lower = nearest.distance.copy(), nearest.lower.copy()
    neuron, point = nearest.neuron.copy(), nearest.point.copy()
    complete, count = np.ones(len(points), dtype=bool), np.zeros(len(points), dtype=np.int64)
    ended, searched = complete.copy(), nearest.distance.copy()
    hidden = np.flatnonzero((nearest.neuron >= 0) & ~(nearest.visible & nearest.decided))
    for done, row in enumerate(hidden):
        run.report(done, len(hidden), "points")
        found = _VisibleSearch(net, points[row], nearest.signs[row]).find(limit, run)
        distance[row], neuron[row], point[row] = found.distance, found.neuron, found.point
        complete[row], ended[row], searched[row], count[row] = False, found.ended, found.searched, found.regions
    return VisibleDistance(distance, lower, neuron, point, complete, ended, searched, count, nearest)


@dataclass(slots=True, eq=False)
class _Found:
    distance: float
    searched: float
    neuron: int
    point: FloatArray
    ended: bool
    regions: int


class _VisibleSearch:
    """Best-first search over the regions around one point."""

    def __init__(self, net: Network, x: FloatArray, signs: SignArray) -> None:
        self.net, self.x = net, x
        self.best = _Found(np.inf, np.inf, -1, np.full(len(x), np.nan), True, 0)
        self.open = np.inf  # distance of the nearest facet behind which no point could be named
        start = self._start(signs)
        self.seen = {start.tobytes()}
        self.heap: list[tuple[float, int, SignArray]] = [(0.0, 0, start)]

    def _start(self, signs: SignArray) -> SignArray:
        """The signs of a region around ``x``: those of ``x``, or of a point near it if it lies on boundaries."""
        zero = (signs == 0) & has_boundary(self.net, signs[None])[0]
        if not zero.any() or not switch_rows(self.net, signs)[zero, :-1].any():
            return signs
        rng = np.random.default_rng(0)
        size = max(1.0, float(np.abs(self.x).max()))
        near = self.x + 2.0**-40 * size * rng.normal(size=(1, len(self.x)))
        return np.asarray(self.net.signs(near).signs[0])

    def find(self, limit: int, run: Run) -> _Found:
        best = self.best
        while self.heap and self.heap[0][0] < best.distance and best.regions < limit and not run.is_over:
            _, _, signs = heapq.heappop(self.heap)
            best.regions += 1
            self._explore(signs)
        frontier = self.heap[0][0] if self.heap else np.inf
        best.searched = min(best.distance, frontier, self.open)
        best.ended = bool(best.searched == best.distance)
        return best

    def _explore(self, signs: SignArray) -> None:
        cell = AffineCell.of(self.net, signs)
        height = np.abs(cell.rows[:, :-1] @ self.x + cell.rows[:, -1])
        asked = np.unique(cell.rows, axis=0, return_index=True)[1]  # copies of one hyperplane are asked about once
        for k in asked[np.argsort(height[asked], kind="stable")]:  # no facet is nearer than its hyperplane
            if height[k] >= self.best.distance:
                break
            foot = cell.project(self.x, int(k))
            if foot is None:
                continue
            distance = float(np.linalg.norm(foot - self.x))
            if distance < self.best.distance:
                if cell.is_beside(int(k), foot):
                    self.open = min(self.open, float(height[k]))
                self._cross(cell, int(k), foot, distance)

    def _cross(self, cell: AffineCell, k: int, foot: FloatArray, distance: float) -> None:
        """Go through a facet: a kink, or the way to another region."""
        behind = cell.behind(self.net, k, foot)
        if isinstance(behind, bool):
            return  # the region does not reach this hyperplane with a facet
        if behind is None:
            self.open = min(self.open, distance)
            return
        other, normal = behind
        changed = np.flatnonzero((other != cell.signs) & (cell.signs != 0)).tolist()
        if not self._one_hyperplane(cell, k, changed):
            self.open = min(self.open, distance)  # a thin region may lie between
            return
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is decided exactly
            jump = jumps(self.net, cell.signs[None], other[None], normal[None])
        if bends_across(self.net, np.stack([cell.signs, other]), np.array([[0, 1]]), jump)[0][0]:
            self.best.distance, self.best.neuron, self.best.point = distance, int(cell.entries[k]), foot
        elif other.tobytes() not in self.seen:
            self.seen.add(other.tobytes())
            heapq.heappush(self.heap, (distance, len(self.seen), other))

    def _one_hyperplane(self, cell: AffineCell, k: int, changed: list[int]) -> bool:
        """Whether neurons that change together vanish on one hyperplane exactly, and not on two that are near."""
        if changed == [int(cell.entries[k])]:
            return True
        return is_affordable(self.net) and are_proportional(ExactRegion(self.net, cell.signs), changed)


def unit_row(form: ObjectArray) -> tuple[FloatArray, float]:
    """An exact affine function with a gradient of length 1, and that length; zeros if its gradient vanishes."""
    with flint.ctx.workprec(EXACT):
        square = sum((slope * slope for slope in form[:-1]), start=flint.arb(0))
    if square.is_zero():
        return np.zeros(len(form)), 0.0
    with flint.ctx.workprec(_DIGITS):
        length = square.sqrt()
        return np.clip([float((entry / length).mid()) for entry in form], -_FAR, _FAR), 1.0


@dataclass(frozen=True, slots=True, eq=False)
class AffineCell:
    """A region as ``rows (x, 1) >= 0``, with gradients of length 1, and which entries of the sign vector they are."""

    signs: SignArray
    rows: FloatArray
    entries: IntArray

    @classmethod
    def of(cls, net: Network, signs: SignArray) -> AffineCell:
        with np.errstate(over="ignore", invalid="ignore"):
            rows = switch_rows(net, signs)
            length = row_lengths(rows[:, :-1])
        here = has_boundary(net, signs[None])[0] & (signs != 0)
        # Rows that floats lost, by overflow or underflow, are no proof that there is no facet.
        lost = np.flatnonzero(here & ~((length > TINY) & np.isfinite(rows).all(axis=1)))
        if len(lost):
            region = ExactRegion(net, signs)
            for entry in lost.tolist():
                rows[entry], length[entry] = unit_row(region.margin(entry))
        keep = np.flatnonzero(here & (length > 0))
        turned = rows[keep] * np.where(signs[keep] > 0, 1.0, -1.0)[:, None]
        with np.errstate(over="ignore"):
            scaled = np.clip(turned / length[keep, None], -_FAR, _FAR)
        return cls(signs, scaled, keep)

    def _slack(self, point: FloatArray) -> FloatArray:
        return np.asarray(self.rows[:, :-1] @ point + self.rows[:, -1])

    def _slips(self, point: FloatArray) -> FloatArray:
        """What counts as zero of every row at a point, relative to its own terms."""
        return np.asarray(PROJECTION * (np.abs(self.rows[:, :-1]) @ np.abs(point) + np.abs(self.rows[:, -1])))

    def is_beside(self, k: int, foot: FloatArray) -> bool:
        """Whether a projection violates rows by more than their own rounding: it may belong to no facet."""
        short = self._slack(foot) < -self._slips(foot)
        short[self._same(k)] = False
        return bool(short.any())

    def project(self, x: FloatArray, k: int) -> FloatArray | None:
        """The point of the facet in row k that is nearest to ``x``, or None if the cell does not meet its hyperplane.

        Rows join the program as they are violated; most never do.
        """
        normal = self.rows[k, :-1]
        start = x - (normal @ x + self.rows[k, -1]) * normal
        flat = self.rows[:, :-1] - np.outer(self.rows[:, :-1] @ normal, normal)
        size = PROJECTION * (1.0 + float(np.abs(x).max()) + float(np.abs(self.rows[:, -1]).max()))
        level = self._slack(start)
        working: list[int] = []
        point = start
        while True:
            slack = self._slack(point)
            slack[[k, *working]] = np.inf
            if not slack.size or slack.min() >= -size:
                return np.asarray(point)
            working.append(int(slack.argmin()))
            step = least_distance(flat[working], -level[working])
            if step is None:
                return None
            point = start + step

    def behind(self, net: Network, k: int, foot: FloatArray) -> tuple[SignArray, FloatArray] | bool | None:
        """Signs behind the facet and its normal; False if row k is no facet, None if no certain point was found."""
        normal = -self.rows[k, :-1]
        size = max(1.0, float(np.abs(foot).max()))
        inner = foot
        slack = self._slack(foot)
        slack[self._same(k)] = np.inf  # copies of a neuron vanish together and do not count
        active = np.flatnonzero(slack < PROJECTION * size)
        if len(active):
            normals = self.rows[:, :-1] - np.outer(self.rows[:, :-1] @ normal, normal)
            inwards = least_distance(normals[active], np.ones(len(active)))
            if inwards is None:
                # The region touches the hyperplane, in less than a facet; unless some of the rows are only near.
                return None if (slack[active] > self._slips(foot)[active]).any() else False
            rate = normals @ inwards
            closing = (rate < 0) & np.isfinite(slack)
            room = float((slack[closing] / -rate[closing]).min(initial=size))
            inner = foot + 0.5 * room * inwards
        for step in _STEPS:
            near = net.signs((inner + step * size * normal)[None]).signs[0]
            changed = np.flatnonzero((near != self.signs) & (self.signs != 0))
            if self.entries[k] in changed and self._on_hyperplane(changed, k):
                return near, normal
        return None

    def _same(self, k: int) -> BoolArray:
        """Rows of the hyperplane of row k, up to rounding."""
        sign = np.sign(self.rows[:, :-1] @ self.rows[k, :-1])
        gap = np.abs(self.rows - sign[:, None] * self.rows[k])
        near = gap[:, -1] <= PROJECTION * (1.0 + abs(float(self.rows[k, -1])))
        return np.asarray(near & (gap[:, :-1] <= PROJECTION).all(axis=1))

    def _on_hyperplane(self, changed: IntArray, k: int) -> bool:
        same = set(self.entries[self._same(k)].tolist())
        return all(int(entry) in same for entry in changed)


def least_distance(G: FloatArray, h: FloatArray) -> FloatArray | None:
    """The shortest ``u`` with ``G u >= h``, or None if there is none, by non-negative least squares.

    >>> least_distance(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([3.0, -1.0]))
    array([3., 0.])
    >>> least_distance(np.array([[1.0], [-1.0]]), np.array([1.0, 1.0])) is None
    True
    """
    scale = max(float(np.abs(h).max(initial=0.0)), NOT_ZERO)
    E = np.concatenate([G.T, h[None] / scale])
    f = np.zeros(len(E))
    f[-1] = 1.0
    multipliers, residual = nnls(E, f, maxiter=30 * E.shape[1] + 100)
    r = E @ multipliers - f
    if residual <= PROJECTION or r[-1] == 0:
        return None
    return np.asarray(-r[:-1] / r[-1] * scale) + 0.0
