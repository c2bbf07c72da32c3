"""Points that decide the functional dimension of a parameter: enough of them in every region.

On a region the rows of the Jacobian are affine functions of the point, so ``n_0 + 1`` affinely independent points in
it say all that the region has to say. A point on the boundary of a region at which the Jacobian exists has the row that
the region gives it there. With few inputs the regions are listed, and the set is complete; with many they are sampled,
which proves a lower bound only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fiberscope.dimension.exact_rank import residue_rows
from fiberscope.dimension.kinks import kinks
from fiberscope.errors import NotGenericError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Space
from fiberscope.geometry.regions import regions_within
from fiberscope.network.network import Network
from fiberscope.numerics.floats import BoolArray, FloatArray, SignArray
from fiberscope.numerics.modular import pivots_mod, random_primes
from fiberscope.run import ENDLESS, Run

LISTED_INPUTS = 3
"""Largest number of inputs for which all regions are listed."""

LISTED_REGIONS = 4000
"""Largest number of regions of which all rows are ranked."""

MET_REGIONS = 20_000
"""Regions that are listed beyond that as a source of samples: random points miss the small ones."""

PATIENCE = 3
"""Rounds of samples without growth of the rank after which sampling ends."""

ROUND_WORK = 10**9
"""Products that the elimination of one round should cost."""

WORK = 2 * 10**10
"""Products that all eliminations of the sampling may cost; the round that exceeds it is the last one."""


@dataclass(frozen=True, slots=True, eq=False)
class PointSet:
    """Points ``(count, in_size)``; ``complete`` if they are decisive, and a sentence that says what they are.

    ``rank`` is that of their rows modulo ``prime`` where sampling has found it on the way: a proven lower bound.
    """

    X: FloatArray
    complete: bool
    text: str
    rank: int | None = None
    prime: int | None = None


def decisive_set(net: Network, seed: int = 0, run: Run = ENDLESS) -> PointSet:
    """A decisive set of a network, or the best that sampling finds.

    >>> decisive_set(Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])).text
    '2 points in each of the 2 regions of R^1'
    """
    rng = np.random.default_rng(seed)
    if net.in_size > LISTED_INPUTS:
        return _sampled(net, rng, run)
    try:
        found = regions_within(net, Space(net.in_size), replace(run, limit=LISTED_REGIONS))
        if not found.complete and net.in_size < LISTED_INPUTS:  # cheap in the plane
            found = regions_within(net, Space(net.in_size), replace(run, limit=MET_REGIONS))
    except NotGenericError:  # regions without a vertex, as of a network without hidden neurons
        return _sampled(net, rng, run)
    listed = _listed(net, found, run)
    near = found.points[np.isfinite(found.points).all(axis=1)]
    return _sampled(net, rng, run, rng.permutation(near)) if listed is None else listed


def _listed(net: Network, found: Complex, run: Run) -> PointSet | None:
    """Points in every region, or None where there are too many or floats have no point inside of one."""
    n = net.in_size
    if not found.complete or found.num_regions > LISTED_REGIONS:
        return None
    if not np.isfinite(found.points).all():  # hyperplanes too far away for floats
        return None
    if (net.signs(found.points).signs != found.sign_vectors).any():
        return None
    X, whole = surround(net, found.points, found.sign_vectors)
    # A region all of whose points are kinks has no rows here, but may have some at special points.
    if not whole.all() or kinks(net, X, net.signs(X).signs, run).any():
        return None
    return PointSet(X, True, f"{n + 1} points in each of the {found.num_regions} regions of R^{n}")


def surround(net: Network, points: FloatArray, signs: SignArray) -> tuple[FloatArray, BoolArray]:
    """Every point and ``n`` more beside it along the axes, in the same region, and for which points that worked."""
    count, n = points.shape
    steps = np.full(count, 0.25) * np.maximum(1.0, np.abs(points).max(axis=1))
    beside = np.repeat(points[:, None, :], n, axis=1)
    open_ = np.arange(count)
    for _ in range(18):  # down to 2^-53 of the point's size: what floats can tell apart
        moved = points[open_][:, None, :] + steps[open_][:, None, None] * np.eye(n)
        # A step that rounding has swallowed leaves the point where it was: no new one.
        apart = np.isfinite(moved).all(axis=(1, 2)) & (np.diagonal(moved, axis1=1, axis2=2) != points[open_]).all(
            axis=1
        )
        moved = np.where(apart[:, None, None], moved, points[open_][:, None, :])
        flat = moved.reshape(-1, n)
        same = (net.signs(flat).signs == np.repeat(signs[open_], n, axis=0)).all(axis=1).reshape(-1, n).all(axis=1)
        same &= apart
        beside[open_[same]] = moved[same]
        open_ = open_[~same]
        if len(open_) == 0:
            break
        steps[open_] /= 8
    whole = np.ones(count, dtype=bool)
    whole[open_] = False
    return np.concatenate([points, beside[whole].reshape(-1, n)]), whole


def _sampled(net: Network, rng: np.random.Generator, run: Run, near: FloatArray | None = None) -> PointSet:
    """Samples, points ``near`` that are known to lie in many regions first."""
    prime = random_primes(1, rng)[0]
    kept_points = np.zeros((0, net.in_size))
    kept_rows = np.zeros((0, net.num_parameters), np.uint64)
    seen: set[bytes] = set()
    quiet = rounds = work = 0
    while quiet < PATIENCE and len(kept_rows) < net.num_parameters and work < WORK:
        run.step(len(kept_rows), net.num_parameters, f"round {rounds} of samples")
        rounds += 1
        count = _count(net, len(kept_rows))
        more, near = (near[:count], near[count:]) if near is not None else (np.zeros((0, net.in_size)), None)
        X, signs = _fresh(net, more if len(more) else _spread(net, rng, count), seen, run)
        before = len(kept_rows)
        if len(X):
            rows = np.concatenate([kept_rows, residue_rows(net, X, signs, prime, run)])
            owners = np.concatenate([kept_points, np.repeat(X, net.out_size, axis=0)])
            pivots = list(pivots_mod(np.ascontiguousarray(rows.T), prime, run))
            work += len(rows) * len(pivots) * net.num_parameters // 2
            kept_rows, kept_points = rows[pivots], owners[pivots]
        quiet = quiet + 1 if len(kept_rows) == before else 0
    points = np.unique(kept_points, axis=0)
    ended = f"the rank did not grow in the last {quiet} of {rounds} rounds"
    if quiet < PATIENCE and len(kept_rows) < net.num_parameters:
        ended = f"ended after {rounds} rounds, while the rank was growing" if not quiet else f"{ended}, ended for time"
    text = f"sampled: {ended} ({len(seen):,} regions met); a lower bound"
    if len(points) == 0:
        points = np.zeros((1, net.in_size))
    return PointSet(points, False, text, len(kept_rows), prime)


def _count(net: Network, known: int) -> int:
    """Points of one round; every one of them brings ``n_0`` others.

    Every round eliminates the ``known`` rows anew, so rounds are few: as many rows as could be independent in the
    first, half as many as are known later, and in small networks as many as :data:`ROUND_WORK` allows.
    """
    D = net.num_parameters
    rows = max(known // 2 if known else D, min(ROUND_WORK // D**2, 16 * D))
    return max(8, rows // ((net.in_size + 1) * net.out_size))


def _spread(net: Network, rng: np.random.Generator, count: int) -> FloatArray:
    """Points on all scales, from inside the first layer's arrangement to far outside of it."""
    scales = 2.0 ** rng.uniform(-3, 6, size=(count, 1))
    return rng.normal(size=(count, net.in_size)) * scales


def _fresh(net: Network, X: FloatArray, seen: set[bytes], run: Run) -> tuple[FloatArray, SignArray]:
    """Points around the first one of every sign vector not met before, those on kinks left out, and their signs."""
    signs = net.signs(X).signs
    first: list[int] = []
    for index, row in enumerate(signs):
        key = row.tobytes()
        if key not in seen:
            seen.add(key)
            first.append(index)
    if not first:
        return X[:0], signs[:0]
    around, _ = surround(net, X[first], signs[first])
    found = net.signs(around).signs
    good = ~kinks(net, around, found, run).any(axis=1)
    return around[good], found[good]
