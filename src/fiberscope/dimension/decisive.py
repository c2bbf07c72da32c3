"""Points that decide the functional dimension of a parameter: enough of them in every region.

On a region the rows of the Jacobian are affine functions of the point, so ``n_0 + 1`` affinely independent points in
it say all that the region has to say. A point on the boundary of a region at which the Jacobian exists has the row that
the region gives it there. With few inputs the regions are listed, and the set is complete. With many they are explored:
from a region whose rows were new one goes on to its neighbours, and a region is kept only if its rows leave the span of
what is known; this proves a lower bound, and the dimension where it meets an upper one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fiberscope.dimension.exact_rank import residue_rows
from fiberscope.dimension.jacobian import check_memory, with_own_parameters
from fiberscope.dimension.kinks import kinks
from fiberscope.dimension.row_space import RowSpace
from fiberscope.dimension.symmetries import acts_freely_on, rescaling_rank
from fiberscope.errors import InputError, NotGenericError
from fiberscope.geometry.affine_forms import neuron_forms
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Domain, Space, domain_of
from fiberscope.geometry.regions import regions_within
from fiberscope.network.border import as_network
from fiberscope.network.network import Network
from fiberscope.numerics.floats import BoolArray, FloatArray, SignArray
from fiberscope.numerics.modular import SMALL, random_primes
from fiberscope.results import Result
from fiberscope.run import ENDLESS, Progress, Run

MEMORY = 1 << 31
"""Bytes that the regions, their points and signs may take unless the caller says otherwise."""

LISTED_INPUTS = 3
"""Largest number of inputs for which all regions are listed."""

PATIENCE = 3
"""Rounds without growth of the rank after which exploring ends."""

ROUND_ROWS = 4096
"""Rows that one round looks at, at least."""

WORK = 2 * 10**11
"""Products that all rounds may cost; the round that exceeds it is the last one."""

_PER_REGION = 4000
"""Bytes that an engine takes for a region of a small network, beside signs and points."""

_OVER = 1 / 64
"""How far behind a hyperplane its neighbour is looked for, relative to the distance."""


@dataclass(frozen=True, slots=True, eq=False)
class DecisiveSet(Result):
    """Points ``(count, in_size)`` and whether they decide the functional dimension of a parameter.

    ``complete`` is True if there are ``n_0 + 1`` affinely independent ones in every region of the domain; ``text`` says
    what they are. Without that they are those that exploring has found, and ``rank``, that of their rows modulo
    ``prime``, is a proven lower bound.
    """

    X: FloatArray = field(repr=False)
    complete: bool
    text: str
    rank: int | None = None
    prime: int | None = field(default=None, repr=False)


def decisive_set(
    net: Any,
    domain: Domain | None = None,
    *,
    seed: int = 0,
    memory: int = MEMORY,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> DecisiveSet:
    r"""Points on which the rank of the Jacobian is the functional dimension: no finite batch has a larger one.

    For up to three inputs all regions are listed, as far as the memory goes, and the set is complete: ``n_0 + 1``
    affinely independent points in each. Else regions are explored, and the set is the best that was found.

    Parameters
    ----------
    net
        A :class:`Network`, or what :func:`fiberscope.load` takes, with its own parameters.
    domain
        Batches inside of it only; all of the input space by default. A point of the answer may lie outside, in a
        region that reaches into it: its rows are combinations of rows inside.
    seed
        Seed of primes and samples.
    memory
        Bytes for regions, points and signs; where they do not fit, regions are explored instead.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

    References
    ----------
    J. E. Grigsby, K. Lindsey, R. Meyerhoff, C. Wu: Functional dimension of feedforward ReLU neural networks. 2022.

    Examples
    --------
    >>> found = decisive_set(Network([[[1.0]], [[1.0]]], [[0.0], [0.0]]))
    >>> found
    DecisiveSet(complete=True, text='2 points in each of the 2 regions of R^1', rank=None)
    >>> found.X.shape
    (4, 1)
    """
    net = as_network(net)
    net = with_own_parameters(net)
    check_memory(memory)
    if domain is not None:
        domain = domain_of(net, domain)
        if domain.dimension < net.in_size:
            raise InputError(f"domain: expected one of all {net.in_size} dimensions of the inputs, got {domain!r}")
    return decide(net, domain, seed, memory, Run.begin(progress, time_limit))


def decide(
    net: Network, domain: Domain | None = None, seed: int = 0, memory: float = MEMORY, run: Run = ENDLESS
) -> DecisiveSet:
    """As :func:`decisive_set`, as a part of a longer run, for arguments that were checked."""
    rng = np.random.default_rng(seed)
    where = Space(net.in_size) if domain is None else domain
    if net.in_size > LISTED_INPUTS:
        return _explored(net, where, rng, memory, run)
    per_region = (net.in_size + 1) * (net.num_signs + 8 * net.in_size) + _PER_REGION
    try:
        found = regions_within(net, where, replace(run, limit=max(1, int(memory // per_region))))
    except NotGenericError:  # regions without a vertex, as of a network without hidden neurons
        return _explored(net, where, rng, memory, run)
    listed = _listed(net, found, where, run)
    near = found.points[np.isfinite(found.points).all(axis=1)]
    return _explored(net, where, rng, memory, run, rng.permutation(near)) if listed is None else listed


def _listed(net: Network, found: Complex, where: Domain, run: Run) -> DecisiveSet | None:
    """Points in every region, or None where there are too many or floats have no point inside of one."""
    n = net.in_size
    if not found.complete:
        return None
    if not np.isfinite(found.points).all():  # hyperplanes too far away for floats
        return None
    run.step(0, found.num_regions, "points in every region")
    if (net.signs(found.points).signs != found.sign_vectors).any():
        return None
    X, whole = surround(net, found.points, found.sign_vectors)
    # A region all of whose points are kinks has no rows here, but may have some at special points.
    if not whole.all() or kinks(net, X, net.signs(X).signs, run).any():
        return None
    place = f"R^{n}" if isinstance(where, Space) else str(where)
    return DecisiveSet(X, True, f"{n + 1} points in each of the {found.num_regions} regions of {place}")


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


def _explored(
    net: Network,
    where: Domain,
    rng: np.random.Generator,
    memory: float,
    run: Run,
    near: FloatArray | None = None,
) -> DecisiveSet:
    """What exploring finds, beginning with points ``near`` that are known to lie in many regions."""
    D = net.num_parameters
    if not memory >= 8 * 5 * D * D:
        return _sampled(net, where, rng, memory, near)
    upper = _known_bound(net)
    prime = random_primes(1, rng, SMALL)[0]
    search = _Search(net, where, RowSpace(D, prime, rng), rng, run)
    quiet = rounds = work = 0
    while quiet < PATIENCE and search.space.rank < upper and work < WORK:
        run.step(search.space.rank, upper, f"round {rounds} of regions")
        before = search.space.rank
        rounds += 1
        if near is not None and len(near):
            count = search.count
            candidates, near = near[:count], near[count:]
        else:
            candidates = search.candidates()
        work += search.look(candidates)
        quiet = quiet + 1 if search.space.rank == before else 0
    rank = search.space.rank
    ended = f"the rank did not grow in the last {quiet} of {rounds} rounds"
    if rank == upper:
        ended = "until the bound of the rescalings was met" if upper < D else "until the rank was full"
    elif quiet < PATIENCE:
        ended = f"ended after {rounds} rounds, while the rank was growing" if not quiet else f"{ended}, ended for time"
    text = f"sampled: {ended} ({len(search.seen):,} regions met); a lower bound"
    X = np.concatenate(search.kept) if search.kept else np.zeros((1, net.in_size))
    return DecisiveSet(np.unique(X, axis=0), False, text, rank, prime)


def _known_bound(net: Network) -> int:
    """An upper bound of every rank that needs no signs: the rescalings of neurons lie in the kernel."""
    return net.num_parameters - (rescaling_rank(net) if acts_freely_on(net) else 0)


def _sampled(
    net: Network, where: Domain, rng: np.random.Generator, memory: float, near: FloatArray | None
) -> DecisiveSet:
    """Samples of a network with too many parameters to hold a kernel: as many as the memory has rows for."""
    most = int((memory / 40) ** 0.5) // net.out_size
    X = _spread(where, net.in_size, rng, max(1, most // 2)) if near is None or not len(near) else near[:most]
    return DecisiveSet(X, False, f"sampled: {len(X)} points, too many parameters to explore; a lower bound")


class _Search:
    """Regions that were met, those whose rows were new, and the row space so far."""

    def __init__(self, net: Network, where: Domain, space: RowSpace, rng: np.random.Generator, run: Run) -> None:
        self.net, self.where, self.space, self.rng, self.run = net, where, space, rng, run
        self.seen: set[bytes] = set()
        self.kept: list[FloatArray] = []
        self._frontier: tuple[FloatArray, SignArray] | None = None

    @property
    def count(self) -> int:
        """Regions of one round: as many rows as may still be new, and enough for one product to be worth its while."""
        rows = max(self.net.num_parameters - self.space.rank, ROUND_ROWS)
        return max(8, rows // ((self.net.in_size + 1) * self.net.out_size))

    def candidates(self) -> FloatArray:
        """Neighbours of regions whose rows were new in the last round, and as many points on all scales."""
        spread = _spread(self.where, self.net.in_size, self.rng, self.count)
        if self._frontier is None or not len(self._frontier[0]) or not self.net.num_signs:
            return spread
        X, signs = self._frontier
        pick = self.rng.integers(0, len(X), self.count)
        beyond = neighbours(self.net, X[pick], signs[pick], self.rng)
        return np.concatenate([beyond[self.where.contains(beyond)], spread]) if len(beyond) else spread

    def look(self, X: FloatArray) -> int:
        """Take the regions of points that were not met before, and keep those whose rows leave the space."""
        net, prime = self.net, self.space.prime
        points, signs = self._fresh(X)
        work = 0
        if len(points) == 0:
            self._frontier = None
            return 1
        step = max(1, (1 << 22) // (net.num_parameters * net.out_size))
        fresh: list[tuple[FloatArray, SignArray]] = []
        for start in range(0, len(points), step):
            part = slice(start, start + step)
            rows = residue_rows(net, points[part], signs[part], prime, self.run.quietly())
            new = self.space.leaves(rows).reshape(-1, net.out_size).any(axis=1)
            fresh.append((points[part][new], signs[part][new]))
            work += rows.size
        before = self.space.rank
        tips, tip_signs = (np.concatenate(arrays) for arrays in zip(*fresh, strict=True))
        if len(tips):
            around, _ = surround(net, tips, tip_signs)
            found = net.signs(around).signs
            self.kept.append(around)
            for start in range(0, len(around), step):
                part = slice(start, start + step)
                rows = residue_rows(net, around[part], found[part], prime, self.run.quietly())
                self.space.extend(rows, self.run)
                work += rows.size + len(rows) * net.num_parameters * (net.num_parameters - before)
        self._frontier = (tips, tip_signs) if len(tips) else None
        return work

    def _fresh(self, X: FloatArray) -> tuple[FloatArray, SignArray]:
        """The first point of every sign vector not met before, those on kinks left out, and their signs."""
        signs = self.net.signs(X).signs
        first: list[int] = []
        for index, row in enumerate(signs):
            key = row.tobytes()
            if key not in self.seen:
                self.seen.add(key)
                first.append(index)
        if not first:
            return X[:0], signs[:0]
        X, signs = X[first], signs[first]
        good = ~kinks(self.net, X, signs, self.run).any(axis=1)
        return X[good], signs[good]


def neighbours(net: Network, X: FloatArray, signs: SignArray, rng: np.random.Generator) -> FloatArray:
    """For every point one a little behind the hyperplane of a random neuron, along its normal in the point's region."""
    entries = rng.integers(0, net.num_signs, len(X))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        forms = neuron_forms(net, signs, entries).value
        normals = forms[:, :-1]
        values = (normals * X).sum(axis=1) + forms[:, -1]
        moved = X - (1 + _OVER) * (values / (normals**2).sum(axis=1))[:, None] * normals
    good: FloatArray = moved[np.isfinite(moved).all(axis=1)]
    return good


def _spread(where: Domain, size: int, rng: np.random.Generator, count: int) -> FloatArray:
    """Points of a domain; of the whole space on all scales, from inside the first layer's arrangement to far out."""
    if not isinstance(where, Space):
        inside: FloatArray = where.sample(count, rng)
        return inside
    scales = 2.0 ** rng.uniform(-3, 6, size=(count, 1))
    return rng.normal(size=(count, size)) * scales
