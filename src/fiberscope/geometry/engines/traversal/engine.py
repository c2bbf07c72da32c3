"""Regions in higher dimension by traversal: from one region to the next across facets, as a stream.

Why nothing is missed. Let s be the sign vector of a region and i one of its neurons with ``s_i != 0``. If i makes a
facet, the region behind it is the same all along the facet, and it differs from s only in neurons that vanish on the
facet's hyperplane: their functionals there are multiples of ``f_i``, whose signs follow one after the other. Hence *if*
there is a region that differs from s in i and otherwise only where s is zero, it is the neighbour, and row i of s needs
no further thought. So for every row either such a region is known, each with a point whose certified signs are its
label; or the row is proven not to be a facet, with the errors of its coefficients accounted for; or rational arithmetic
decides, and finds the neurons that vanish together. Regions of a convex domain are connected across facets.

The search is the classical one (D. Avis and K. Fukuda, *Reverse search for enumeration*, 1996, for arrangements);
deciding all rows of a cell from one dictionary follows K. Clarkson, *More output-sensitive geometric algorithms*, 1994.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isinf
from typing import Any

import numpy as np

from fiberscope.errors import OutOfTimeError, TooLargeError
from fiberscope.geometry.domains import Domain, Solid, View, view_of
from fiberscope.geometry.engines.limits import ADVICE, FEW_NEURONS, MOST_VISITED
from fiberscope.geometry.engines.traversal import kernels
from fiberscope.geometry.engines.traversal.exact import ExactCell, fraction, towards
from fiberscope.geometry.engines.traversal.facet_tests import Batch, points_behind, row_states
from fiberscope.geometry.engines.traversal.labels import Labels, Words, distinct, known_neighbours, pack, unpack
from fiberscope.geometry.engines.traversal.rows import Sides, check, copies, exact_functionals, functionals, start
from fiberscope.geometry.engines.watched import Workers
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import AffineMap, Network, Seed
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.results import Result, hidden
from fiberscope.run import STOPPED, Progress, Run

_CHUNK = 1024
"""Regions explored at once: enough to make the overhead of a call small."""

_CHUNK_BYTES = 1 << 26

_SHRINK = 0.5 ** np.array([0.0, 3.0, 7.0, 12.0, 20.0, 30.0])
"""How far behind a facet a point of the neighbour is sought; the first that works is taken."""


@dataclass(frozen=True, slots=True)
class Facet(Result):
    """One facet of a region: the neurons that vanish on it, or the side of the domain (row of its half-spaces)."""

    neurons: tuple[int, ...] = ()
    side: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class VisitedRegion(Result):
    """A linear region, proven to exist by its ``witness``: the certified signs at this point are ``signs``.

    ``facets`` are proven as well. The label is kept in two bits per neuron.
    """

    net: Network = field(repr=False, metadata=hidden())
    words: Words = field(repr=False, metadata=hidden())
    witness: FloatArray
    facets: tuple[Facet, ...]

    told = ("signs",)

    @property
    def signs(self) -> SignArray:
        """The sign vector, ``(num_signs,)``."""
        return np.asarray(unpack(self.words[None], self.net.num_signs)[0])

    @property
    def affine_map(self) -> AffineMap:
        """The network on this region."""
        return self.net.affine_at(self.witness)

    def __repr__(self) -> str:
        text = "".join("-0+"[s + 1] for s in self.signs)
        text = text if len(text) <= 40 else f"{text[:37]}..."
        return f"VisitedRegion({text}, {len(self.facets)} facets)"


@dataclass(frozen=True, slots=True)
class RegionCount(Result):
    """How many regions were found, and whether that is all of them.

    ``complete`` is True only if nothing is left to explore and every decision was proven. ``undecided`` counts facets
    behind which no point could be named, ``exact`` the decisions that took rational arithmetic. ``stopped`` says why
    the search ended early: ``"limit"``, ``"interrupted"``, ``"out of time"`` or None.
    """

    count: int
    complete: bool
    undecided: int = 0
    exact: int = 0
    explored: int = 0
    stopped: str | None = None

    @property
    def at_least(self) -> int:
        """A rigorous lower bound: every region counted has a witness."""
        return self.count

    def __str__(self) -> str:
        if self.complete:
            return f"{self.count} regions"
        why = self.stopped or f"{self.undecided} undecided"
        return f"at least {self.count} regions ({why})"

    def __repr__(self) -> str:
        return f"RegionCount({self})"


def traverse(
    net: NetworkLike,
    domain: Domain,
    *,
    limit: int | None = None,
    seed: Seed = 0,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Traversal:
    """All linear regions of ``net`` on ``domain`` as a stream, breadth first from a random one.

    Meant for input dimensions from about 6 to 20, where the complex with all its faces is too large. Memory is that of
    the labels seen (two bits per neuron and region, in a hash table at most 60 % full, compared in full) and of the
    frontier (a label and a point each).

    Parameters
    ----------
    domain
        A box, a polytope (bounded or not), an orthant, the whole space, or a plane; on a plane, and on a box that is
        flat in some coordinates, witnesses are given in the coordinates of the slice.
    limit, time_limit
        Stop after so many regions, or seconds; then the ``summary`` is not complete.
    seed
        Chooses the region to begin with.
    progress
        Called as ``progress(explored, found, text)`` now and then.

    >>> from fiberscope.geometry.domains import Box
    >>> net = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> stream = traverse(net, Box([-1, -1], [1, 1]))
    >>> sorted(region.signs.tolist() for region in stream)
    [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    >>> stream.summary
    RegionCount(4 regions)
    """
    return Traversal(view_of(as_network(net), domain), seed, Run.begin(progress, time_limit, limit))


def count_by_traversal(
    net: NetworkLike,
    domain: Domain,
    *,
    limit: int | None = None,
    seed: Seed = 0,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> RegionCount:
    """The number of regions of ``net`` on ``domain``; see :func:`traverse`.

    Interrupted, out of time, or at the limit, it returns what was found, marked as incomplete. Without a limit of
    either kind, more than thirty dimensions are refused unless the neurons are few.

    >>> from fiberscope.geometry.domains import Space
    >>> count_by_traversal(Network.random((3, 6, 1), seed=0), Space(3))  # 1 + 6 + 15 + 20
    RegionCount(42 regions)
    """
    return visit(view_of(as_network(net), domain), seed, Run.begin(progress, time_limit, limit))


def visit(view: View, seed: Seed, run: Run) -> RegionCount:
    """As :func:`count_by_traversal`, within a run."""
    if run.limit is None and isinf(run.deadline):
        _check_visits(view.net, view.domain)
    search = _Search(view, seed, run, facets=False)
    try:
        for _ in search.chunks():
            run.step(search.explored, len(search.seen), f"{len(search.seen)} regions")
    except STOPPED as reason:
        search.stopped = _why(reason)
    return search.summary()


def _check_visits(net: Network, domain: Solid) -> None:
    """Refuse what nobody waits for: many dimensions and many neurons."""
    check(net)
    neurons = int((~net.linear_entries).sum())
    if domain.dimension > MOST_VISITED and neurons > FEW_NEURONS:
        raise TooLargeError(
            f"regions one by one: expected at most {MOST_VISITED} dimensions or {FEW_NEURONS} neurons, got "
            f"{domain.dimension} dimensions and {neurons} neurons; {ADVICE}, or give limit= or time_limit= for a lower "
            "bound"
        )


def _why(reason: BaseException) -> str:
    return "out of time" if isinstance(reason, OutOfTimeError) else "interrupted"


class Traversal:
    """An iterator over regions that knows how far it is; see :func:`traverse`."""

    def __init__(self, view: View, seed: Seed, run: Run) -> None:
        self._search = _Search(view, seed, run, facets=True)
        self._regions = self._stream()
        self._given = 0

    def __iter__(self) -> Iterator[VisitedRegion]:
        return self

    def __next__(self) -> VisitedRegion:
        return next(self._regions)

    def _stream(self) -> Iterator[VisitedRegion]:
        search = self._search
        try:
            for words, X, facets in search.chunks():
                for label, x, own in zip(words, X, facets, strict=True):
                    if search.limit is not None and self._given == search.limit:
                        return
                    self._given += 1
                    yield VisitedRegion(search.net, label.copy(), x.copy(), own)
                search.run.step(search.explored, len(search.seen), f"{len(search.seen)} regions")
        except OutOfTimeError as reason:  # the stream ends here; an interruption is the caller's
            search.stopped = _why(reason)

    @property
    def summary(self) -> RegionCount:
        """What is known so far: all regions found, also those not yet given out."""
        return self._search.summary()


class _Search:
    """Breadth-first search over labels; every label that is seen has been proven by a point."""

    def __init__(self, view: View, seed: Seed, run: Run, facets: bool) -> None:
        net, domain = view.net, view.domain
        check(net)
        self.net, self.run, self.limit, self.facets = net, run, run.limit, facets
        self.stopped: str | None = None
        self.domain, self.sides = domain, Sides.of(domain)
        self.first = copies(net)
        self.classes = [np.flatnonzero(self.first == k) for k in range(net.num_signs)]
        rows = net.num_signs + len(self.sides.rows)
        flips = np.zeros((rows, net.num_signs), dtype=np.int8)
        for k, members in enumerate(self.classes):
            flips[k, members] = 1
        self.flips = pack(flips) ^ pack(np.zeros_like(flips) - 1)  # the bits of positive signs alone
        point, signs = start(net, domain, seed)
        self.seen = Labels(self.flips.shape[1])
        self.queue: deque[tuple[Words, FloatArray]] = deque()
        self._add(signs[None], point[None])
        self.explored = self.exact = 0
        self.nameless: list[tuple[SignArray, tuple[int, ...]]] = []  # facets behind which no point was found
        size = max(1, rows * (net.in_size + 1) * 40)
        self.chunk = max(1, min(_CHUNK, _CHUNK_BYTES // size))

    # -- the search --------------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[tuple[Words, FloatArray, list[tuple[Facet, ...]]]]:
        """Explore chunk after chunk; gives labels, witnesses and (if wanted) facets."""
        with Workers(self.run) as workers:
            while self.queue and not self._full():
                words, X = self._next()
                found = self._explore(words, X, workers)
                self.explored += len(X)
                yield words, X, found

    def _full(self) -> bool:
        if self.limit is None:
            return False
        return (self.explored if self.facets else len(self.seen)) >= self.limit

    def summary(self) -> RegionCount:
        found, stopped = len(self.seen), self.stopped
        rest = bool(self.queue)
        if self.limit is not None and (found > self.limit or (rest and found == self.limit)):
            stopped, found = stopped or "limit", min(found, self.limit)
        undecided = sum(not self._known(*facet) for facet in self.nameless)  # some were met from another side
        complete = not rest and not undecided and stopped is None and found == self.explored
        return RegionCount(found, complete, undecided, self.exact, self.explored, stopped)

    def _next(self) -> tuple[Words, FloatArray]:
        parts, size, chunk = [], 0, self.chunk
        if self.limit is not None and not self.facets:
            chunk = min(chunk, max(8, (self.limit - len(self.seen)) // 8))  # a region has some ten neighbours
        while self.queue and size < chunk:
            parts.append(self.queue.popleft())
            size += len(parts[-1][1])
        words, X = (np.concatenate(p) for p in zip(*parts, strict=True))
        if size > chunk:
            self.queue.appendleft((words[chunk:], X[chunk:]))
        return words[:chunk], X[:chunk]

    def _add(self, signs: SignArray, X: FloatArray) -> None:
        words = pack(signs)
        fresh = self.seen.add(words)
        if fresh.any():
            self.queue.append((words[fresh], X[fresh]))

    def _explore(self, words: Words, X: FloatArray, workers: Workers) -> list[tuple[Facet, ...]]:
        signs = unpack(words, self.net.num_signs)
        H, E, kinds = self._rows(signs)
        if not self.facets:
            known_neighbours(words, self.flips[: self.net.num_signs], kinds, *self.seen.arrays)
        batch = Batch(self.net, self.sides, signs, H, E, kinds, X)
        state, beyond = row_states(batch, workers)
        left = self._cross(signs, np.argwhere(state[:, : self.net.num_signs] == kernels.FACET), beyond)
        if len(left):
            beyond[left[:, 0], left[:, 1]] = points_behind(H, kinds, X, left, self.run)
            left = self._cross(signs, left, beyond)
        exact = self._settle_exactly(signs, X, state, left)
        return self._facets(state, exact) if self.facets else [()] * len(X)

    def _rows(self, signs: SignArray) -> tuple[FloatArray, FloatArray, SignArray]:
        """Oriented rows of neurons and sides with their errors, and what is asked of each."""
        found = functionals(self.net, signs)
        cells, count, width = found.value.shape
        total = count + len(self.sides.rows)
        H, E = np.empty((cells, total, width)), np.zeros((cells, total, width))
        np.multiply(found.value, signs[:, :, None], out=H[:, :count])
        E[:, :count] = found.error
        H[:, count:] = self.sides.rows
        kinds = np.full((cells, total), kernels.WANTED, dtype=np.int8)
        flat = ((found.value[:, :, :-1] == 0) & (found.error[:, :, :-1] == 0)).all(axis=2)
        extra = self.net.linear_entries | (self.first != np.arange(count))
        kinds[:, :count][flat | (signs == 0) | extra] = kernels.OFF
        kinds[:, count:] = kernels.WANTED if self.facets else kernels.SKIP
        return H, E, kinds

    # -- crossing ----------------------------------------------------------------------------------------------

    def _cross(self, signs: SignArray, pairs: IntArray, beyond: FloatArray) -> IntArray:
        """Find a point behind facets ``(cell, neuron)``; gives the pairs that are left."""
        n = beyond.shape[2] // 2
        for shrink in _SHRINK:
            if not len(pairs):
                break
            expected = signs[pairs[:, 0]]
            self._flip(expected, pairs[:, 1])
            words = pack(expected)
            vague = (expected == 0).any(axis=1)
            open_ = ~self.seen.contain(words)
            pairs, expected, words, vague = pairs[open_], expected[open_], words[open_], vague[open_]
            # two cells may lead to one neighbour: one point will do, unless zeros may change on the way
            tries = np.concatenate([np.flatnonzero(vague), np.flatnonzero(~vague)[distinct(words[~vague])]])
            if not len(tries):
                continue
            near = beyond[pairs[tries, 0], pairs[tries, 1]]
            points = near[:, n:] + shrink * (near[:, :n] - near[:, n:])
            good, found = self._behind(points, expected[tries], expected[tries] == 0)
            self._add(found[good], points[good])
            pairs = np.delete(pairs, tries[good], axis=0)
        return pairs

    def _flip(self, signs: SignArray, neurons: IntArray) -> None:
        """Flip neurons and their copies, one per row, in place."""
        if (self.first == np.arange(len(self.first))).all():
            signs[np.arange(len(signs)), neurons] *= -1
            return
        for row, k in zip(signs, neurons, strict=True):
            row[self.classes[k]] *= -1

    def _behind(self, points: FloatArray, expected: SignArray, loose: BoolArray) -> tuple[BoolArray, SignArray]:
        """Which points are inside the domain and have the expected signs, where ``loose`` any sign; and their signs."""
        finite = np.asarray(np.isfinite(points).all(axis=1))  # kinks may lie beyond the floats
        found = self.net.signs(np.where(finite[:, None], points, 0.0)).signs
        return finite & self.domain.surely_inside(points) & ((found == expected) | loose).all(axis=1), found

    # -- exact fallback ----------------------------------------------------------------------------------------

    def _settle_exactly(
        self, signs: SignArray, X: FloatArray, state: SignArray, left: IntArray
    ) -> dict[int, dict[int, tuple[int, ...]]]:
        """Decide in rational arithmetic what floats left open; gives, by cell, the classes of facets found so."""
        open_pairs = np.concatenate([np.argwhere(state == kernels.OPEN), left])
        found: dict[int, dict[int, tuple[int, ...]]] = {}
        for cell in np.unique(open_pairs[:, 0]):
            rows = sorted(set(open_pairs[open_pairs[:, 0] == cell, 1].tolist()))
            found[int(cell)] = self._exact_cell(signs[cell], X[cell], rows, state[cell])
        return found

    def _exact_cell(
        self, signs: SignArray, x: FloatArray, rows: list[int], state: SignArray
    ) -> dict[int, tuple[int, ...]]:
        neurons = self.net.num_signs
        functions = exact_functionals(self.net, signs)
        oriented = [
            [0] * len(f) if linear else [int(s) * v for v in f]
            for f, s, linear in zip(functions, signs, self.net.linear_entries, strict=True)
        ]
        sides = [[fraction(v) for v in row] for row in self.sides.rows]
        cell = ExactCell([*oriented, *sides], x, self.run)
        found: dict[int, tuple[int, ...]] = {}
        for first in sorted({cell.classes[i][0] for i in rows if cell.classes[i]}):
            group = cell.classes[first]
            far = cell.beyond(first)
            self.exact += 1
            state[list(group)] = kernels.ABSENT
            if far is None:
                continue
            found[first] = group
            if group[-1] >= neurons or self._known(signs, group):
                continue
            if not self._step_exactly(signs, cell.centre(), far, oriented[first], group):
                self.nameless.append((signs.copy(), group))
        state[[i for i in rows if not cell.classes[i]]] = kernels.ABSENT
        return found

    def _known(self, signs: SignArray, group: tuple[int, ...]) -> bool:
        """Whether a region was seen that differs in the first of the group, and may differ in the others."""
        flipped = np.stack([signs, signs])
        flipped[0, group[0]] *= -1
        flipped[1, list(group)] *= -1
        return bool(self.seen.contain(pack(flipped)).any())

    def _step_exactly(
        self, signs: SignArray, inner: list[Any], far: list[Any], row: list[Any], group: tuple[int, ...]
    ) -> bool:
        """Find the neighbour on the segment from an inner point to one behind the facet of ``group``."""
        points = towards(row, inner, far)
        loose = signs == 0
        loose[list(group)] = True
        good, found = self._behind(points, np.broadcast_to(signs, (len(points), len(signs))), loose)
        good &= found[:, group[0]] == -signs[group[0]]
        best = np.flatnonzero(good)[:1]
        self._add(found[best], points[best])
        return bool(len(best))

    # -- facets ------------------------------------------------------------------------------------------------

    def _facets(self, state: SignArray, exact: dict[int, dict[int, tuple[int, ...]]]) -> list[tuple[Facet, ...]]:
        neurons = self.net.num_signs
        result = []
        for cell, row in enumerate(state):
            proven = [int(i) for i in np.flatnonzero(row == kernels.FACET)]
            groups = {i: tuple(self.classes[i].tolist()) if i < neurons else (i,) for i in proven}
            groups.update(exact.get(cell, {}))
            result.append(tuple(_facet(groups[i], neurons) for i in sorted(groups)))
        return result


def _facet(group: tuple[int, ...], neurons: int) -> Facet:
    sides = [i - neurons for i in group if i >= neurons]
    return Facet(tuple(int(i) for i in group if i < neurons), sides[0] if sides else None)
