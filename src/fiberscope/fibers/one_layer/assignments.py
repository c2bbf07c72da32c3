"""Which neuron realises what: the assignments of Definition 22 of the fiber paper, counted and listed.

A function with one hidden layer is an affine map and some visible hyperplanes with weights. Every neuron of a parameter
that realises it lies on a visible hyperplane, is one of a group on another hyperplane whose weights cancel, is linear,
or is dead. Nonlinear neurons look along or against the normal of their hyperplane. Up to the order of neurons an
assignment is therefore a list of numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from fiberscope.errors import TooLargeError
from fiberscope.fibers.one_layer.representation import Form, leads, opposite, primitive
from fiberscope.results import Result

LIMIT = 10_000
"""Assignments up to which they are listed unless more are asked for."""

Pair = tuple[int, int]
"""How many neurons look along the normal, and how many against it."""


@dataclass(frozen=True, slots=True)
class Assignment(Result):
    """Numbers of neurons on each visible hyperplane, in cancelling groups, linear and dead.

    ``visible`` has one pair for every hyperplane of the function, in the order of :meth:`Form.rows`; ``groups`` one
    for every cancelling group, the larger number first, since the normal of a group is free.

    >>> Assignment(((1, 0), (1, 1)), ((1, 1),), 2, 0).neurons
    7
    """

    visible: tuple[Pair, ...]
    groups: tuple[Pair, ...]
    linear: int
    dead: int

    @property
    def neurons(self) -> int:
        """How many there are."""
        return sum(map(sum, self.visible)) + sum(map(sum, self.groups)) + self.linear + self.dead


def assignment_of(form: Form, rows: Sequence[Sequence[Fraction]], orthant: bool) -> Assignment:
    """The assignment of a parameter with the first-layer rows ``(w | b)``; exact."""
    counts: dict[tuple[int, ...], list[int]] = {}
    linear = dead = 0
    for row in rows:
        seen = row if orthant else (*row[:-1], *(-v for v in row[:-1]), row[-1])
        if all(v <= 0 for v in seen):
            dead += 1
        elif all(v >= 0 for v in seen):
            linear += 1
        else:
            key, _ = primitive(row)
            forward = leads(key)
            counts.setdefault(key if forward else opposite(key), [0, 0])[0 if forward else 1] += 1
    visible = []
    for key in sorted(form.planes):
        along, against = counts.pop(key, [0, 0])
        visible.append((along, against))
    groups = sorted((max(p), min(p)) for p in counts.values())
    return Assignment(tuple(visible), tuple(groups), linear, dead)


def count_assignments(planes: int, neurons: int) -> int:
    """How many assignments there are of so many neurons to so many visible hyperplanes, up to the order of neurons.

    >>> count_assignments(1, 1), count_assignments(0, 1), count_assignments(0, 2)
    (2, 3, 8)
    """
    ways = [1] + [0] * neurons
    for _ in range(planes):  # one neuron at least on each
        ways = [sum(ways[n - k] * (k + 1) for k in range(1, n + 1)) for n in range(neurons + 1)]
    sizes = [1, 1]  # linear and dead
    sizes += [s for s in range(1, neurons + 1) for _ in range(s // 2 + 1)]  # kinds of groups, each any number of times
    for s in sizes:
        for n in range(s, neurons + 1):
            ways[n] += ways[n - s]
    return ways[neurons]


def list_assignments(planes: int, neurons: int, limit: int | None = LIMIT) -> Iterator[Assignment]:
    """All assignments, one after the other; raises :class:`TooLargeError` at once where they are more than ``limit``.

    >>> [(a.visible, a.linear, a.dead) for a in list_assignments(1, 1)]
    [(((0, 1),), 0, 0), (((1, 0),), 0, 0)]
    """
    count = count_assignments(planes, neurons)
    if limit is not None and count > limit:
        raise TooLargeError(
            f"assignments: {count} of {neurons} neurons to {planes} hyperplanes, more than the limit of {limit}; "
            "limit=None lists them all"
        )
    return _listed(planes, neurons)


def _listed(planes: int, neurons: int) -> Iterator[Assignment]:
    for on_planes in range(planes, neurons + 1):
        for sizes in _compositions(on_planes, planes):
            for visible in itertools.product(*([(k, s - k) for k in range(s + 1)] for s in sizes)):
                rest = neurons - on_planes
                for linear in range(rest + 1):
                    for dead in range(rest - linear + 1):
                        for groups in _groups(rest - linear - dead, (1, 0)):
                            yield Assignment(visible, groups, linear, dead)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Positive integers in order that add up to ``total``."""
    if parts == 0:
        if total == 0:
            yield ()
        return
    for cuts in itertools.combinations(range(1, total), parts - 1):
        ends = (0, *cuts, total)
        yield tuple(b - a for a, b in itertools.pairwise(ends))


def _groups(total: int, least: Pair) -> Iterator[tuple[Pair, ...]]:
    """Multisets of pairs ``(p, q)``, ``p >= q``, with so many neurons together; in increasing order."""
    if total == 0:
        yield ()
        return
    pairs = sorted((s - q, q) for s in range(1, total + 1) for q in range(s // 2 + 1))
    for pair in pairs:
        if pair >= least:
            for rest in _groups(total - sum(pair), pair):
                yield (pair, *rest)
