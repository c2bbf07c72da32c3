"""How many regions there are when they are too many to enumerate: estimates with error bars, and what is certain.

*Populations in the tree of cells.* Add the neurons one by one. A cell is split by the next neuron or it is not; that
makes a tree whose leaves, all at the same depth, are the regions. Follow a population of at most B cells down: where c
cells have C children, multiply the estimate by C / c, and if C > B, go on with B of the children, drawn at random. The
expectation is the number of leaves, exactly (stochastic enumeration: R. Rubinstein, A. Ridder, R. Vaisman, *Fast
sequential Monte Carlo methods for counting and optimization*, 2014; with B = 1 it is the estimator of D. E. Knuth,
Math. Comp. 29, 1975). Independent runs give the error bar. Splits are decided with proof, so nothing depends on the
size or shape of regions, and unbounded domains are no exception. Volumes play no part: the mean of inverse volumes over
uniform points is unbiased as well, but most regions are tiny, and its variance is useless.

*Uniform points* see large regions. The number of distinct labels is a rigorous lower bound; Chao's estimator adds what
the labels seen once and twice tell, and is a lower bound in expectation (A. Chao, *Nonparametric estimation of the
number of classes in a population*, Scand. J. Stat. 11, 1984).

*Random chords*, through a uniform point in a uniform direction. The mean of crossings per length is robust, and by
Crofton's formula proportional to the measure of all region boundaries in the domain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from math import exp, gamma, log, pi, sqrt

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box, Domain, View, view_of
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.engines.traversal.estimate_kernels import split
from fiberscope.geometry.engines.traversal.exact import ExactCell, fraction, towards
from fiberscope.geometry.engines.traversal.kernels import ABSENT, FACET, OPEN
from fiberscope.geometry.engines.traversal.labels import Labels, pack
from fiberscope.geometry.engines.traversal.rows import (
    Sides,
    check,
    copies,
    exact_functionals,
    functionals,
    is_open,
    start,
)
from fiberscope.geometry.engines.watched import Workers
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network, Seed
from fiberscope.numerics.arrays import ranks_within
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Result
from fiberscope.run import Progress, Run

_NORMAL = 1.959964
"""Quantile of the normal distribution for 95 per cent."""

_SPREAD = 1.0
"""If single runs scatter by more than this part of their mean, the tail was not seen and the error bar means little."""

_SHORT = 1 << 20
"""Numbers in the rows of all cells up to which splitting them takes some milliseconds."""


@dataclass(frozen=True, slots=True)
class Richness(Result):
    """What uniform points say: ``distinct`` is certain, ``chao1`` a lower bound in expectation, ``interval`` 95 %."""

    points: int
    distinct: int
    singletons: int
    doubletons: int
    chao1: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class ChordDensity(Result):
    """Crossings of region boundaries per unit length along random chords, exactly counted along each.

    ``boundary`` is the measure of all region boundaries per volume of the domain that follows by Crofton's formula.
    """

    chords: int
    crossings: int
    density: float
    standard_error: float
    boundary: float


@dataclass(frozen=True, slots=True)
class RegionEstimate(Result):
    """An unbiased estimate of the number of regions, with its error bar and what is certain.

    ``runs`` are the estimates of the independent runs, ``value`` their mean. ``interval`` (95 %) takes their logarithm
    for normal, with Student's quantile, and is cut at ``at_least``, the distinct regions actually met. If no run ever
    had to drop a cell, all regions were met, and the number is ``exact``. ``undecided`` counts splits that could not be
    decided and were taken for none.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    at_least: int
    population: int
    runs: tuple[float, ...] = field(repr=False)
    exact: bool = False
    undecided: int = 0
    richness: Richness | None = None
    chords: ChordDensity | None = None

    told = ("reliable",)

    @property
    def reliable(self) -> bool:
        """Whether the error bar can be trusted: runs do not scatter by more than their mean, nothing was left open."""
        return self.standard_error * sqrt(len(self.runs)) <= _SPREAD * self.value and self.undecided == 0

    def __str__(self) -> str:
        if self.exact:
            return f"{self.at_least} regions"
        low, high = self.interval
        doubt = "" if self.reliable else "; heavy tail, not reliable"
        return f"about {self.value:.3g} regions (95 %: {low:.3g} to {high:.3g}{doubt}), at least {self.at_least}"

    def __repr__(self) -> str:
        return f"RegionEstimate({self})"


def estimate_regions(
    net: NetworkLike,
    domain: Domain,
    *,
    samples: int = 2000,
    runs: int = 20,
    points: int = 10_000,
    chords: int = 50,
    seed: Seed = 0,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> RegionEstimate:
    """Estimate the number of regions of ``net`` on ``domain``.

    Parameters
    ----------
    samples
        Cells followed through the network, in all runs together; a run has a population of ``samples // runs``.
    points, chords
        Uniform points and random chords, for boxes only; 0 leaves them out.
    progress, time_limit
        Called as ``progress(done, total, text)`` after every neuron. A run that is cut short is no estimate: after so
        many seconds :class:`~fiberscope.errors.OutOfTimeError` is raised, or ``KeyboardInterrupt`` on Ctrl-C.

    >>> from fiberscope.geometry.domains import Space
    >>> net = Network.random((3, 12, 1), seed=0)  # 1 + 12 + 66 + 220 = 299 regions
    >>> found = estimate_regions(net, Space(3), samples=800)
    >>> abs(found.value - 299) < 4 * found.standard_error, found.standard_error < 30, found.at_least > 200
    (True, True, True)
    """
    run = Run.begin(progress, time_limit)
    view = view_of(as_network(net), domain)
    return estimate(view, run, samples=samples, runs=runs, points=points, chords=chords, seed=seed)


def estimate(
    view: View, run: Run, *, samples: int, runs: int, points: int, chords: int, seed: Seed = 0
) -> RegionEstimate:
    """As :func:`estimate_regions`, within a run."""
    net, domain = view.net, view.domain
    check(net)
    if runs < 2 or samples < runs or points < 0 or chords < 0:
        got = f"{samples}, {runs}, {points}, {chords}"
        raise InputError(f"expected samples >= runs >= 2 and points, chords >= 0, got {got}")
    rng = np.random.default_rng(seed)
    labels = Labels(pack(np.zeros((1, net.num_signs), dtype=np.int8)).shape[1])
    tree = _Population(view, rng, runs, samples // runs)
    with Workers(run) as workers:
        logs = tree.follow(labels, workers)
    values = np.exp(logs)
    value, error = float(values.mean()), float(values.std(ddof=1)) / sqrt(runs)
    exact = not tree.dropped and not tree.undecided
    richness = density = None
    if isinstance(domain, Box):
        richness = _richness(net, domain, points, rng, labels, run) if points else None
        density = _chord_density(net, domain, chords, rng, run) if chords else None
    student = import_module("scipy.special").stdtrit(runs - 1, 0.975)  # dear to load
    factor = exp(float(student) * sqrt(log(1 + (error / value) ** 2)))
    least = float(len(labels))
    return RegionEstimate(
        least if exact else value,
        0.0 if exact else error,
        (max(value / factor, least), max(value * factor, least)),
        len(labels),
        samples // runs,
        tuple(values.tolist()),
        exact,
        tree.undecided,
        richness,
        density,
    )


# --- populations -------------------------------------------------------------------------------------------------


class _Population:
    """Cells of several independent runs, side by side; ``run_of[r]`` is the run of cell r."""

    def __init__(self, view: View, rng: np.random.Generator, runs: int, size: int) -> None:
        net, domain = view.net, view.domain
        self.net, self.rng, self.runs, self.size = net, rng, runs, size
        self.domain, self.sides = domain, Sides.of(domain)
        first = copies(net)
        self.copy = first != np.arange(len(first))
        self.undecided, self.dropped = 0, False
        point, _ = start(net, domain, rng)
        sides = len(self.sides.rows)
        self.H = np.zeros((runs, sides + 1, net.in_size + 1))
        self.H[:, :sides] = self.sides.rows
        self.E = np.zeros_like(self.H)
        self.X = np.tile(point, (runs, 1))
        self.count = np.full(runs, sides)
        self.signs = np.zeros((runs, net.num_signs), dtype=np.int8)
        self.run_of = np.arange(runs)

    def follow(self, labels: Labels, workers: Workers) -> FloatArray:
        """Logarithms of the runs' estimates; the regions they end in join the labels."""
        logs, k = np.zeros(self.runs), 0
        self.workers = workers
        for node in self.net.switches:
            found = functionals(self.net, self.signs)
            origin = np.arange(len(self.X))
            for _ in range(node.num_signs):
                workers.run.step(k, self.net.num_signs, f"{len(self.X)} cells")
                if self.net.linear_entries[k]:
                    self.signs[:, k] = 1
                else:
                    F, G = (np.ascontiguousarray(a[:, k]) for a in (found.value, found.error))
                    origin = origin[self._split(k, F, G, origin, logs)]
                k += 1
        good = (self.net.signs(self.X).signs == self.signs).all(axis=1) & is_open(self.net, self.signs)
        self.undecided += int((~good).sum())
        if good.any():
            labels.add(pack(self.signs[good]))
        return logs

    def _split(self, k: int, F: FloatArray, G: FloatArray, origin: IntArray, logs: FloatArray) -> IntArray:
        """Split all cells by neuron k and keep at most ``size`` of every run; gives the parents of those kept."""
        if self.count.max() + 1 >= self.H.shape[1]:
            more = np.zeros((len(self.H), 16, self.H.shape[2]))
            self.H, self.E = np.concatenate([self.H, more], axis=1), np.concatenate([self.E, more], axis=1)
        answer, sign, far = np.empty(len(self.X), np.int8), np.empty(len(self.X), np.int8), np.empty_like(self.X)
        cells = (self.H, self.E, self.X, self.count)
        box = (self.sides.low, self.sides.high)
        arguments = (F, G, origin, bool(self.copy[k]), box, self.sides.bounded, cells, answer, sign, far)
        self.workers.call(split, *arguments, short=self.H.size < _SHORT)
        self.signs[:, k] = sign
        for r in np.flatnonzero(answer == OPEN):
            answer[r] = self._exactly(int(r), k, far[r])
            self.H[r, self.count[r]] = self.signs[r, k] * F[origin[r]]
            self.E[r, self.count[r]] = G[origin[r]]
        both = np.flatnonzero(answer == FACET)
        self.count[both] += 1
        parents = np.concatenate([np.arange(len(self.X)), both])
        crossed = np.arange(len(parents)) >= len(self.X)
        before = np.bincount(self.run_of, minlength=self.runs)
        after = before + np.bincount(self.run_of[both], minlength=self.runs)
        logs += np.log(after) - np.log(before)
        keep = self._draw(self.run_of[parents], after)
        parents, crossed = parents[keep], crossed[keep]
        new = np.flatnonzero(crossed)
        self.H, self.E, self.X = self.H[parents], self.E[parents], self.X[parents]
        self.count, self.signs, self.run_of = self.count[parents], self.signs[parents], self.run_of[parents]
        self.X[new] = far[parents[new]]
        self.signs[new, k] *= -1
        self.H[new, self.count[new] - 1] *= -1
        return parents

    def _draw(self, runs: IntArray, after: IntArray) -> IntArray:
        """Indices of at most ``size`` children of every run, drawn uniformly without replacement."""
        if (after <= self.size).all():
            return np.arange(len(runs))
        self.dropped = True
        order = np.lexsort((self.rng.random(len(runs)), runs))
        return np.sort(order[ranks_within(after) < self.size])

    # -- exact fallback ----------------------------------------------------------------------------------------

    def _exactly(self, r: int, k: int, far: FloatArray) -> int:
        """Decide whether neuron k splits cell r in rational arithmetic; sets the sign at X and the far point."""
        signs, x = self.signs[r], self.X[r]
        functions = exact_functionals(self.net, signs)
        own, here = functions[k], [fraction(v) for v in x]
        value = sum((a * v for a, v in zip(own, here, strict=False)), own[-1])
        signs[k] = (value > 0) - (value < 0)
        if self.copy[k] or not any(own[:-1]):
            return ABSENT
        if value == 0:  # the point lies on the hyperplane, which then splits for certain
            return self._leave_hyperplane(r, k, far)
        usable = ~(self.copy[:k] | self.net.linear_entries[:k])
        before = [
            [int(s) * v for v in f] if use else [0] * len(f)
            for f, s, use in zip(functions[:k], signs[:k], usable, strict=True)
        ]
        sides = [[fraction(v) for v in row] for row in self.sides.rows]
        cell = ExactCell([*sides, *before, [int(signs[k]) * v for v in own]], x, self.workers.run)
        last = len(sides) + k
        if cell.classes[last][0] != last:
            return ABSENT
        behind = cell.beyond(last)
        if behind is None:
            return ABSENT
        targets = towards(own, cell.centre(), behind)
        return self._point(r, k, -int(signs[k]), targets, far)

    def _leave_hyperplane(self, r: int, k: int, far: FloatArray) -> int:
        x = self.X[r]
        shifts = self.rng.normal(size=(200, len(x))) * np.exp2(-self.rng.uniform(2, 50, (200, 1)))
        targets = x + max(1.0, float(np.abs(x).max())) * shifts
        answer = min(self._point(r, k, 1, targets, x), self._point(r, k, -1, targets, far))
        self.signs[r, k] = 1
        return answer

    def _point(self, r: int, k: int, sign: int, targets: FloatArray, out: FloatArray) -> int:
        """Find a target in cell r where neuron k has the given sign, and put it in ``out``."""
        targets = targets[np.isfinite(targets).all(axis=1)]  # kinks may lie beyond the floats
        found = self.net.signs(targets).signs if len(targets) else np.zeros((0, self.net.num_signs), dtype=np.int8)
        good = (
            self.domain.surely_inside(targets) & (found[:, :k] == self.signs[r, :k]).all(axis=1) & (found[:, k] == sign)
        )
        if not good.any():
            self.undecided += 1
            return ABSENT
        out[:] = targets[np.flatnonzero(good)[0]]
        return FACET


# --- uniform points ----------------------------------------------------------------------------------------------


def _richness(net: Network, box: Box, points: int, rng: np.random.Generator, labels: Labels, run: Run) -> Richness:
    found: dict[bytes, int] = {}
    for begin in range(0, points, 1 << 14):
        run.check()
        X = box.draw(rng, min(1 << 14, points - begin))
        signs = net.signs(X).signs
        packed = pack(signs[is_open(net, signs)])  # a point on a border has the label of no region
        if len(packed):
            labels.add(packed)
        for row in packed:
            key = row.tobytes()
            found[key] = found.get(key, 0) + 1
    counts = np.array(list(found.values()), dtype=np.int64)
    return chao1(counts, points)


def chao1(counts: IntArray, points: int | None = None) -> Richness:
    """Chao's lower bound for the number of classes, from how often each class was seen; bias-corrected.

    The interval is that of a log-normal law for the unseen part (A. Chao, Biometrics 43, 1987).

    >>> found = chao1(np.array([1, 1, 1, 1, 2, 5]))
    >>> found.distinct, found.chao1
    (6, 9.0)
    """
    distinct, once, twice = len(counts), int((counts == 1).sum()), int((counts == 2).sum())
    unseen = once * (once - 1) / (2 * (twice + 1))
    variance = unseen + once * (2 * once - 1) ** 2 / (4 * (twice + 1) ** 2)
    variance += once**2 * twice * (once - 1) ** 2 / (4 * (twice + 1) ** 4)
    interval = (float(distinct), float(distinct))
    if unseen > 0:
        factor = exp(_NORMAL * sqrt(log(1 + variance / unseen**2)))
        interval = (distinct + unseen / factor, distinct + unseen * factor)
    total = int(counts.sum()) if points is None else points
    return Richness(total, distinct, once, twice, distinct + unseen, interval)


# --- random chords -----------------------------------------------------------------------------------------------


def _chord_density(net: Network, box: Box, chords: int, rng: np.random.Generator, run: Run) -> ChordDensity:
    n = box.dimension
    crossings, densities = 0, []
    for _ in range(chords):
        run.check()
        x = box.draw(rng, 1)[0]
        direction = rng.normal(size=n)
        direction /= np.linalg.norm(direction)
        with np.errstate(divide="ignore"):
            ends = np.stack([(box.low - x) / direction, (box.high - x) / direction])
        begin, end = float(ends.min(axis=0).max()), float(ends.max(axis=0).min())
        line = View.through(net, Box([begin], [end]), direction[:, None], x)
        cells = lattice_cells(line.net, line.domain)
        crossings += cells.count(1) - 1
        densities.append((cells.count(1) - 1) / (end - begin))
    mean = float(np.mean(densities))
    error = float(np.std(densities, ddof=1)) / sqrt(chords) if chords > 1 else float("inf")
    kappa = gamma(n / 2) / (sqrt(pi) * gamma((n + 1) / 2))  # mean of |cos| over the sphere
    return ChordDensity(chords, crossings, mean, error, mean / kappa)
