"""The best move of a group together with all that is inside it, whatever the gains are made of.

A *family* is a group that sits in no other, and the groups inside it: heads, and the dimensions of each head. What a
pair of heads is worth depends on the orders inside, so they are found together. All pairs are compared by turning one
side round: with the heads of ``b`` moved on by one place, then by two, the pairs stand face to face, and the orders
inside are found for all heads at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from fiberscope.connectivity.methods.assignment import assign
from fiberscope.modules.action import Group
from fiberscope.network.action.element import Element, Monomial
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.run import ENDLESS, Run

Orders = dict[str, IntArray]
"""For each group of a family its orders, ``(copies, size)``."""

PASSES = 4
"""Rounds over groups beside each other inside one member, at most; in grouped-query attention two share a tensor."""


class Problem(Protocol):
    """Something whose value is the sum over pairs of neurons that stand face to face."""

    def gains(self, group: Group) -> FloatArray:
        """What neuron ``i`` of ``a`` and neuron ``j`` of ``b`` add to the value as partners, ``(copies, n, n)``."""

    def scores(self, group: Group) -> FloatArray:
        """What the partners add as they stand: the diagonals of the gains, ``(copies, n)``."""

    def moved(self, element: Element) -> Self:
        """The same with the neurons of ``b`` in another order."""


@dataclass(frozen=True)
class Family:
    """A group, and what is inside it: it moves as one."""

    group: Group
    inside: tuple[Family, ...] = ()

    @property
    def groups(self) -> Iterator[Group]:
        """Its groups, outermost first."""
        yield self.group
        for one in self.inside:
            yield from one.groups


def families(groups: Sequence[Group]) -> tuple[Family, ...]:
    """The groups as trees.

    >>> found = families([Group("heads", 2, ()), Group("dims", 3, (), copies=2, parents=("heads",))])
    >>> [[group.name for group in one.groups] for one in found]
    [['heads', 'dims']]
    """
    names = {group.name for group in groups}

    def grown(group: Group) -> Family:
        inner = [one for one in groups if [name for name in one.parents if name in names][-1:] == [group.name]]
        return Family(group, tuple(grown(one) for one in inner))

    return tuple(grown(group) for group in groups if not names.intersection(group.parents))


def element_of(family: Family, orders: Orders) -> Element:
    return Element({one.name: Monomial(orders[one.name], None, one.parents) for one in family.groups})


def best(family: Family, problem: Problem, run: Run = ENDLESS) -> Orders:
    """The orders of a family that give a problem its largest value, with all other groups where they are.

    Without groups inside, and with those whose gains do not depend on each other, it is the best one; else the best
    that going round them finds.
    """
    group = family.group
    if not family.inside:
        return {group.name: assign(problem.gains(group), run, group.name)}
    copies, n = group.copies, group.size
    values = np.empty((copies, n, n))
    held: list[Orders] = []
    rows = np.arange(n)
    for shift in range(n):
        run.check()
        partners = (rows + shift) % n
        turned = problem.moved(Element({group.name: Monomial([partners] * copies, None, group.parents)}))
        orders, turned = _inside(family, turned, run)
        held.append(orders)
        values[:, rows, partners] = turned.scores(group)
    order = assign(values, run, group.name)
    found: Orders = {group.name: order}
    shifts = (order - rows) % n  # (copies, n): on which turn each member met its partner
    for name in held[0]:
        by_shift = np.stack([one[name].reshape(copies, n, -1) for one in held])
        picked = by_shift[shifts, np.arange(copies)[:, None], rows]
        found[name] = picked.reshape(held[0][name].shape)
    return found


def _inside(family: Family, problem: Problem, run: Run) -> tuple[Orders, Problem]:
    """Orders of what is inside the members as they stand, and the problem with them."""
    found = {one.name: _still(one) for part in family.inside for one in part.groups}
    for _ in range(PASSES if len(family.inside) > 1 else 1):
        changed = False
        for part in family.inside:
            orders = best(part, problem, run)
            element = element_of(part, orders)
            if not element.is_identity:
                changed = True
                before = element_of(part, found)
                found |= {name: one.orders for name, one in (element @ before).items()}
                problem = problem.moved(element)
        if not changed:
            break
    return found, problem


def _still(group: Group) -> IntArray:
    return np.tile(np.arange(group.size), (group.copies, 1))
