"""Positive scalings: by which powers of one factor do the tensors of a trace change, so that the function does not?

For an atom, every axis on which it stands has an unknown *degree* ``d``: entry ``i`` is multiplied by ``s_i^d``. A
matrix product asks that the degrees of what is summed over cancel, a sum of tensors that they agree, ReLU passes them
on, and an operation that is not homogeneous makes them zero; so do inputs and outputs. Each is one linear equation, and
every solution that is not zero on all parameters is a group of scalings: the rows of one layer by 1, the columns of the
next by -1. The equations are noted while the trace runs and solved in rational numbers when all atoms are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

from fiberscope.modules.tracing.axes import Atom, Expr, leaves, normal

if TYPE_CHECKING:
    from fiberscope.modules.tracing.places import Axes

Place = tuple[int, int]
"""A tensor of the trace by its number, and an axis of it."""

Row = dict[Place, int | Fraction]
"""Coefficients; nearly always whole numbers, and these are much quicker."""


@dataclass(frozen=True)
class Pass:
    """Places of an output and of an argument: an atom that stands on both sides keeps its degree.

    One that stands on a side that is ``whole``, and not on the other, has none: nothing of that side is cut away, so it
    is an index that the other side writes differently.
    """

    out: tuple[Place, ...]
    given: tuple[Place, ...]
    whole: tuple[bool, bool]


@dataclass
class Degrees:
    """Tensors of a trace by number, and equations between the degrees on their axes."""

    tensors: list[Axes] = field(default_factory=list)
    balances: list[tuple[tuple[int, Place], ...]] = field(default_factory=list)
    """Coefficients and places whose degrees add up to zero, for every atom; where it does not stand its degree is 0."""
    passes: list[Pass] = field(default_factory=list)

    def number(self, axes: Axes) -> int:
        self.tensors.append(axes)
        return len(self.tensors) - 1

    def flat(self, places: Iterable[Place]) -> None:
        self.balances += [((1, place),) for place in places]

    def solved(self) -> dict[Atom, list[dict[Place, int]]]:
        """For every atom a basis of its scalings: the powers, where they are not zero."""
        places: dict[Atom, list[Place]] = {}
        rows: dict[Atom, list[Row]] = {}
        atoms = {(t, k): frozenset(_members(e)) for t, axes in enumerate(self.tensors) for k, e in enumerate(axes)}
        for place, found in atoms.items():
            for atom in found:
                places.setdefault(atom, []).append(place)
        for terms in self.balances:
            for atom in {atom for _, place in terms for atom in atoms[place]}:
                row: Row = {}
                for coefficient, place in terms:
                    if atom in atoms[place]:
                        row[place] = row.get(place, 0) + coefficient
                rows.setdefault(atom, []).append(row)
        for one in self.passes:
            for atom in {atom for place in (*one.out, *one.given) for atom in atoms[place]}:
                left, right = ([place for place in side if atom in atoms[place]] for side in (one.out, one.given))
                if len(left) == 1 and len(right) == 1:
                    rows.setdefault(atom, []).append({left[0]: 1, right[0]: -1})
                elif (left and right) or (one.whole[0] if left else one.whole[1]):
                    # twice on a side, which goes where? or not at all on one that holds everything
                    rows.setdefault(atom, []).extend({place: 1} for place in (*left, *right))
        return {atom: _solutions(rows.get(atom, []), where) for atom, where in places.items()}


def _members(e: Expr) -> Iterator[Atom]:
    """The atoms of an expression, families with all of their members."""
    for leaf in leaves(e):
        if leaf.family is None:
            yield leaf
        else:
            for member in leaf.family[1]:
                yield from _members(normal(member))


def _solutions(rows: Sequence[Row], places: Sequence[Place]) -> list[dict[Place, int]]:
    """Integers that satisfy all rows, a basis: places one by one are expressed by those that stay free."""
    known: dict[Place, Row] = {}

    def reduced(row: Row) -> Row:
        found: Row = {}
        stack = list(row.items())
        while stack:
            place, value = stack.pop()
            if place in known:
                stack += [(other, value * c) for other, c in known[place].items()]
            else:
                found[place] = found.get(place, 0) + value
        return {place: value for place, value in found.items() if value}

    for row in rows:
        left = reduced(row)
        if left:
            pivot = max(left)  # the newest, so that what is known leads to the oldest at once
            lead = left[pivot]
            factor = -lead if lead in (1, -1) else Fraction(-1) / lead
            known[pivot] = {other: value * factor for other, value in left.items() if other != pivot}
    full = {place: reduced({place: 1}) for place in places}
    free = dict.fromkeys(place for row in full.values() for place in row)
    found = []
    for one in free:
        values = {place: row[one] for place, row in full.items() if one in row}
        scale = lcm(*(value.denominator for value in values.values()))
        found.append({place: int(value * scale) for place, value in values.items()})
    return found
