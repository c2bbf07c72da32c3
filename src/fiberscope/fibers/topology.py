"""How the sets of Definition 22 hang together: connected components of a fiber, and the graph of strata that meet.

One hidden layer of ``n`` neurons on all of space, ``f = L + sum_h omega_h relu(p_h)``. With rows fixed, the outgoing
weights that realise ``f`` are an affine space, and the row of a neuron without outgoing weight is free. Three
consequences, each a path inside the fiber:

- constants, and groups that cancel and are not needed, hand over what they have: their weights go to zero, then their
  rows, and they are *dead*. Two neurons at one place (hyperplane and side) share its weight, and one of them is spare.
- So every point is joined to one where each hyperplane has a neuron along its normal (+), against it (-) or both, all
  others are dead, and at most one group is left that is needed: with one output, two neurons on another hyperplane
  that make up for a linear part outside the span of the hyperplanes with both.
- A dead neuron can be put at any place, and one without weight can be taken away. A group whose normal can be that of
  a visible hyperplane can be moved there.

In a limit a neuron keeps its place or its row goes to zero, where what it adds goes to zero as well; rows of groups may
become those of visible hyperplanes. So no other two strata meet, the sets above are connected, and the components of
their graph are those of the fiber. A component with a dead neuron somewhere can exchange it with every other neuron, so
all orders of neurons are in it; one without consists of ``n!`` copies, one for each order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import comb, factorial

import networkx as nx
import numpy as np

from fiberscope.fibers.one_layer.assignments import Assignment
from fiberscope.fibers.one_layer.layer import OneLayer, rational_rank
from fiberscope.fibers.one_layer.realisations import Cell
from fiberscope.fibers.one_layer.representation import Form, form_of
from fiberscope.numerics.exact_linear import matrix_of
from fiberscope.results import Result, hidden

STRATA = 20_000
"""Strata up to which the graph is built."""

SIDES = {(1, 0): "+", (0, 1): "-", (1, 1): "±"}
"""How neurons look at a hyperplane: along its normal, against it, both."""


@dataclass(frozen=True, slots=True)
class Stratum(Result):
    """Parameters with the same neurons on every visible hyperplane: ``+``, ``-`` or ``±`` for each; the rest is dead.

    ``group`` says that two more neurons make up for a linear part.
    """

    sides: tuple[str, ...]
    group: bool
    dead: int

    def __str__(self) -> str:
        return "".join(self.sides) + (" and a group" if self.group else "") + f", {self.dead} dead"


@dataclass(frozen=True, slots=True, eq=False)
class Topology(Result):
    """Connected components of a fiber.

    ``components`` counts them up to the order of neurons, ``labelled`` with neurons that have names; None where that is
    not proven, and ``reason`` says why. ``strata`` and ``meets`` (pairs of their numbers) are the graph, up to
    order, where it was built; ``component`` numbers the component of each stratum. ``among`` says of which parameters.
    """

    components: int | None
    labelled: int | None
    among: str
    reason: str = ""
    strata: tuple[Stratum, ...] = field(default=(), metadata=hidden())
    meets: tuple[tuple[int, int], ...] = field(default=(), metadata=hidden())
    component: tuple[int, ...] = field(default=(), metadata=hidden())

    @property
    def graph(self) -> nx.Graph[int]:
        """The strata as a graph; the attribute ``stratum`` of a node is its set."""
        found: nx.Graph[int] = nx.Graph(self.meets)
        found.add_nodes_from((k, {"stratum": s}) for k, s in enumerate(self.strata))
        return found

    def __repr__(self) -> str:
        if self.components is None:
            return f"Topology(undecided: {self.reason})"
        word = "component" if self.components == 1 else "components"
        return f"Topology({self.components} {word} up to order, {self.labelled} with names, among {self.among})"


def topology_of_layer(layer: OneLayer) -> Topology:
    """Components of the fiber of one hidden layer on all of space, among all parameters.

    >>> ramp = OneLayer([[1.0], [1.0]], [0.0, -1.0], [[1.0, -1.0]], [0.0], False)
    >>> topology_of_layer(ramp)
    Topology(2 components up to order, 4 with names, among all parameters)
    """
    form, among = form_of(layer.W, layer.b, layer.V, layer.c, False), "all parameters"
    count, spare = len(form.planes), layer.n - len(form.planes)
    size = sum(comb(count, both) * 2 ** (count - both) for both in range(min(spare, count) + 1))
    if size > STRATA:
        return Topology(None, None, among, f"{size} choices of sides for {count} hyperplanes, more than {STRATA}")
    needs = {sides: _need(form, sides) for sides in _sides(count, spare)}
    several = len(form.affine) > 1
    if several and any(0 < need <= (layer.n - _used(sides)) // 2 for sides, need in needs.items()):
        return Topology(None, None, among, "groups of neurons may make up for a linear part of several outputs")
    strata = [Stratum(sides, False, layer.n - _used(sides)) for sides, need in needs.items() if not need]
    if not several:
        dead = {sides: layer.n - _used(sides) - 2 for sides, need in needs.items() if need}
        strata += [Stratum(sides, True, left) for sides, left in dead.items() if left >= 0]
    number = {(s.sides, s.group): k for k, s in enumerate(strata)}
    meets = tuple(sorted({(min(a, b), max(a, b)) for a, b in _meetings(form, strata, number)}))
    graph: nx.Graph[int] = nx.Graph(meets)
    graph.add_nodes_from(range(len(strata)))
    parts = [sorted(part) for part in nx.connected_components(graph)]
    loose = sum(any(strata[k].dead for k in part) for part in parts)
    labelled = loose + (len(parts) - loose) * factorial(layer.n)
    own = tuple(next(i for i, part in enumerate(parts) if k in part) for k in range(len(strata)))
    return Topology(len(parts), labelled, among, "", tuple(strata), meets, own)


def _sides(count: int, spare: int) -> Iterator[tuple[str, ...]]:
    """All choices of sides with at most so many hyperplanes of both."""
    for both in range(min(spare, count) + 1):
        for where in itertools.combinations(range(count), both):
            for signs in itertools.product("+-", repeat=count - both):
                rest = iter(signs)
                yield tuple("±" if h in where else next(rest) for h in range(count))


def _used(sides: tuple[str, ...]) -> int:
    return len(sides) + sides.count("±")


def cell_of(form: Form, sides: tuple[str, ...]) -> Cell:
    """The set of Definition 22 with these sides and nothing else."""
    pairs = {side: pair for pair, side in SIDES.items()}
    return Cell(form, Assignment(tuple(pairs[s] for s in sides), (), 0, 0), False)


def _need(form: Form, sides: tuple[str, ...]) -> int:
    """Rank of the linear part that the neurons on visible hyperplanes leave over."""
    return cell_of(form, sides).need


def _meetings(form: Form, strata: list[Stratum], number: dict[tuple[tuple[str, ...], bool], int]) -> (
    Iterator[tuple[int, int]]
):  # fmt: skip
    for k, stratum in enumerate(strata):
        for h, side in enumerate(stratum.sides):
            if side == "±":
                continue
            both = (*stratum.sides[:h], "±", *stratum.sides[h + 1 :])
            # a dead neuron goes to the other side; where that makes a group superfluous, its neurons are dead then
            if stratum.dead:
                yield from ((k, number[key]) for key in ((both, stratum.group), (both, False)) if key in number)
        if stratum.group:
            yield from ((k, number[key]) for h in range(len(stratum.sides))
                        if (key := _moved(form, stratum, h)) is not None and key in number)  # fmt: skip


def _moved(form: Form, stratum: Stratum, h: int) -> tuple[tuple[str, ...], bool] | None:
    """The stratum in which the group lies on hyperplane ``h``, if its normal can be that of it."""
    cell = cell_of(form, stratum.sides)
    rows = [form_row[:-1] for form_row in cell.rows]
    fixed = [rows[g] for g in cell.mixed]
    here = matrix_of([*fixed, rows[h]], cell.d)
    wanted = np.concatenate([here, cell.wanted])
    if rational_rank(wanted) != rational_rank(here) or not any(Fraction(v) for v in rows[h]):
        return None
    return (*stratum.sides[:h], "±", *stratum.sides[h + 1 :]), False
