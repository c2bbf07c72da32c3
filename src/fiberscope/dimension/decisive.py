"""Points that decide the functional dimension of a parameter: enough of them in every region.

On a region the rows of the Jacobian are affine functions of the point, so ``n_0 + 1`` affinely independent points in
it say all that the region has to say. With few inputs the regions are listed; with many they are sampled until the
rank no longer grows, which proves a lower bound only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fiberscope.dimension.exact import residue_rows
from fiberscope.dimension.kinks import kinks
from fiberscope.errors import NotGenericError
from fiberscope.geometry.domains import Space
from fiberscope.geometry.regions import regions
from fiberscope.network.network import Network
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.numerics.modular import pivots_mod, random_primes

LISTED_INPUTS = 3
"""Largest number of inputs for which all regions are listed."""

LISTED_REGIONS = 4000
"""Largest number of regions that are listed."""

PATIENCE = 3
"""Rounds of samples without growth of the rank after which sampling ends."""

_ROUND = 256


@dataclass(frozen=True, slots=True, eq=False)
class PointSet:
    """Points ``(count, in_size)``; ``complete`` if they are decisive, and a sentence that says what they are."""

    X: FloatArray
    complete: bool
    text: str


def decisive_set(net: Network, seed: int = 0) -> PointSet:
    """A decisive set of a network, or the best that sampling finds.

    >>> decisive_set(Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])).text
    '2 points in each of the 2 regions of R^1'
    """
    listed = _listed(net) if net.in_size <= LISTED_INPUTS else None
    return _sampled(net, np.random.default_rng(seed)) if listed is None else listed


def _listed(net: Network) -> PointSet | None:
    """Points in every region, or None where there are too many or floats have no point inside of one."""
    n = net.in_size
    try:
        found = regions(net, Space(n), limit=LISTED_REGIONS)
    except NotGenericError:  # regions without a vertex, as of a network without hidden neurons
        return None
    if not found.complete or not np.isfinite(found.points).all():  # hyperplanes too far away for floats
        return None
    if (net.signs(found.points).signs != found.sign_vectors).any():
        return None
    X, whole = surround(net, found.points, found.sign_vectors)
    text = f"{n + 1} points in each of the {found.num_regions} regions of R^{n}"
    return PointSet(X, True, text) if whole.all() else None


def surround(net: Network, points: FloatArray, signs: SignArray) -> tuple[FloatArray, BoolArray]:
    """Every point and ``n`` more beside it along the axes, in the same region, and for which points that worked."""
    count, n = points.shape
    steps = np.full(count, 0.25) * np.maximum(1.0, np.abs(points).max(axis=1))
    beside = np.repeat(points[:, None, :], n, axis=1)
    open_ = np.arange(count)
    for _ in range(18):  # down to 2^-56 of the point's size: what floats can tell apart
        moved = points[open_][:, None, :] + steps[open_][:, None, None] * np.eye(n)
        flat = moved.reshape(-1, n)
        same = (net.signs(flat).signs == np.repeat(signs[open_], n, axis=0)).all(axis=1).reshape(-1, n).all(axis=1)
        beside[open_[same]] = moved[same]
        open_ = open_[~same]
        if len(open_) == 0:
            break
        steps[open_] /= 8
    whole = np.ones(count, dtype=bool)
    whole[open_] = False
    return np.concatenate([points, beside[whole].reshape(-1, n)]), whole


def _sampled(net: Network, rng: np.random.Generator) -> PointSet:
    prime = random_primes(1, rng)[0]
    kept_points = np.zeros((0, net.in_size))
    kept_rows = np.zeros((0, net.num_parameters), np.uint64)
    seen: set[bytes] = set()
    quiet = rounds = 0
    while quiet < PATIENCE and len(kept_rows) < net.num_parameters:
        rounds += 1
        X = _spread(net, rng, len(kept_rows))
        signs = net.signs(X).signs
        fresh = _fresh(signs, kinks(net, X, signs), seen)
        before = len(kept_rows)
        if len(fresh):
            more, _ = surround(net, X[fresh], signs[fresh])
            more_signs = net.signs(more).signs
            rows = residue_rows(net, more, more_signs, prime)
            rows = np.concatenate([kept_rows, rows])
            owners = np.concatenate([kept_points, np.repeat(more, net.out_size, axis=0)])
            pivots = list(pivots_mod(np.ascontiguousarray(rows.T), prime))
            kept_rows, kept_points = rows[pivots], owners[pivots]
        quiet = quiet + 1 if len(kept_rows) == before else 0
    points = np.unique(kept_points, axis=0)
    text = f"sampled: the rank did not grow in {quiet} of {rounds} rounds ({len(seen)} regions met); a lower bound"
    if len(points) == 0:
        points = np.zeros((1, net.in_size))
    return PointSet(points, False, text)


def _spread(net: Network, rng: np.random.Generator, known: int) -> FloatArray:
    """Points on all scales, from inside the first layer's arrangement to far outside of it.

    Their rows are about as many as are ``known``: every round eliminates those anew, so rounds must be few.
    """
    count = max(8, min(_ROUND, 4096 // (net.in_size + 1)), known // (net.in_size + 1))
    scales = 2.0 ** rng.uniform(-3, 6, size=(count, 1))
    return rng.normal(size=(count, net.in_size)) * scales


def _fresh(signs: SignArray, on_kink: BoolArray, seen: set[bytes]) -> IntArray:
    """First points of sign vectors not met before, those on kinks left out."""
    found = []
    for index in np.flatnonzero(~on_kink.any(axis=1)):
        key = signs[index].tobytes()
        if key not in seen:
            seen.add(key)
            found.append(index)
    return np.array(found, dtype=np.int64)
