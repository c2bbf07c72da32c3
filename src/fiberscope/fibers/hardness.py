"""Hard instances of equality: networks that are zero if and only if a Boolean formula has no solution.

Beyond generic bottlenecks, deciding whether two networks are one function is coNP-hard (the fiber paper, Appendix G.4).
There a two-layer network whose maximum tells a yes- from a no-instance is followed by one ReLU that cuts it off at the
middle of the gap: the result is the zero function in the no-case only. The construction here does the same with a
formula in conjunctive normal form. With ``dist(x) = min(|x|, |x - 1|)`` and ``K`` the largest number of clauses in
which a variable occurs,

    ``g(x) = 1/2 - sum_clauses relu(1 - sum_literals value) - K sum_i dist(x_i)``,   value ``x_i`` or ``1 - x_i``,

is 1/2 at a solution. Without one it is at most -1/2: at a point with values 0 and 1 some clause is missed by 1, and
moving away from it by ``dist`` gains at most ``K dist`` and costs as much. So ``relu(g)`` is zero everywhere if and
only if there is no solution. All numbers are small integers and halves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.network import Network, Seed

Clause = tuple[int, ...]
"""Literals: ``i`` is variable ``i`` (from 1), ``-i`` its negation, as in the DIMACS format."""


@dataclass(frozen=True, slots=True, eq=False)
class HardInstance:
    """A network, the zero network of the same shape, and the formula: they are equal iff it has no solution."""

    network: Network
    zero: Network = field(repr=False)
    clauses: tuple[Clause, ...]
    variables: int

    def solutions(self) -> list[tuple[bool, ...]]:
        """All solutions by brute force, ``2^variables`` of them tried; the oracle for small instances."""
        every = itertools.product((False, True), repeat=self.variables)
        return [x for x in every if all(any(x[abs(k) - 1] == (k > 0) for k in clause) for clause in self.clauses)]


def satisfiability_network(clauses: Iterable[Sequence[int]], variables: int, inputs: int | None = None) -> HardInstance:
    """The network ``relu(g)`` of a formula, with widths ``(inputs, clauses + 4 variables, 1, 1)``.

    Parameters
    ----------
    clauses
        Each a list of literals, ``i`` or ``-i`` for variable ``i`` from 1; all must have a true one.
    variables
        How many there are.
    inputs
        Dimension of the input; only the first ``variables`` coordinates are read. From ``clauses + 4 variables`` on
        the widths are those of a bottleneck, whose parameter is then not generic: its first layer has not full rank.

    Examples
    --------
    >>> both = satisfiability_network([[1], [-1]], 1)  # x and not x
    >>> both.solutions(), bool((both.network(np.linspace(-2, 3, 101)[:, None]) == 0).all())
    ([], True)
    >>> one = satisfiability_network([[1, 2], [-1, -2]], 2)  # exactly one of two
    >>> one.network(np.array([[1.0, 0.0], [1.0, 1.0]])).ravel().tolist()
    [0.5, 0.0]
    """
    found = tuple(tuple(int(k) for k in clause) for clause in clauses)
    if variables < 1 or any(not clause or any(k == 0 or abs(k) > variables for k in clause) for clause in found):
        raise InputError(
            f"clauses: expected non-empty lists of literals from 1 to {variables}, or negative, got {found}"
        )
    if any(len({abs(k) for k in clause}) < len(clause) for clause in found):
        raise InputError(f"clauses: expected every variable once in a clause, got {found}")
    size = variables if inputs is None else inputs
    if size < variables:
        raise InputError(f"inputs: expected at least {variables}, one for each variable, got {size}")
    counts = [sum(abs(k) == i for clause in found for k in clause) for i in range(1, variables + 1)]
    weight = float(max(counts, default=0) or 1)
    rows = len(found) + 4 * variables
    W, b, out = np.zeros((rows, size)), np.zeros(rows), np.full(rows, -1.0)
    for row, clause in enumerate(found):
        for k in clause:
            W[row, abs(k) - 1] = -1.0 if k > 0 else 1.0
        b[row] = 1.0 - sum(k < 0 for k in clause)
    # dist(x) = relu(-x) + relu(x) - 2 relu(x - 1/2) + 2 relu(x - 1)
    parts = ((-1.0, 0.0, 1.0), (1.0, 0.0, 1.0), (1.0, -0.5, -2.0), (1.0, -1.0, 2.0))
    for i, (row, (slope, shift, share)) in itertools.product(range(variables), enumerate(parts)):
        place = len(found) + 4 * i + row
        W[place, i], b[place], out[place] = slope, shift, -weight * share
    net = Network([W, out[None], [[1.0]]], [b, [0.5], [0.0]])
    zero = Network([np.zeros_like(W), np.zeros((1, rows)), [[0.0]]], [np.zeros(rows), [0.0], [0.0]])
    return HardInstance(net, zero, found, variables)


def random_clauses(variables: int, count: int, seed: Seed, length: int = 3) -> list[Clause]:
    """Random clauses of different variables with random signs; about ``4.27 * variables`` of length 3 are hardest.

    >>> random_clauses(3, 2, 0)
    [(-3, -1, -2), (1, 2, 3)]
    """
    rng = np.random.default_rng(seed)
    width = min(length, variables)
    chosen = (rng.permutation(variables)[:width] + 1 for _ in range(count))
    return [tuple(int(k) for k in names * rng.choice([-1, 1], width)) for names in chosen]
