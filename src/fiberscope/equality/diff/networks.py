"""Two programs compared layer by layer, in terms of matched channels: see ``equality.maps.numbering``.

A layer is what one activation, one pool or the output reads: the affine maps between switches, composed. So fused,
split and folded maps are one layer, and what is compared is what the maps do, after neurons were matched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fiberscope.equality.diff.changes import ADDED, CHANGED, REMOVED, ROUNDED, SAME, Change, Difference
from fiberscope.equality.maps.blocks import rows_of
from fiberscope.equality.maps.compared import compare, in_one_layout
from fiberscope.equality.maps.numbering import SAME as TWIN
from fiberscope.equality.maps.numbering import Numbering
from fiberscope.equality.maps.search import ChannelSearch
from fiberscope.equality.maps.skeleton import ComposedMap, skeletons
from fiberscope.equality.question import Question
from fiberscope.network.commute import pools_first
from fiberscope.network.convolutions import Convolving
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear, Switch
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.grids import new_grid
from fiberscope.numerics.ulps import Rounding

ALIKE = 0.5
"""Cosine of the angle between two neurons below which they are not taken for one that changed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Segment:
    """The affine maps that a value is made of, back to switches or the input: how many, their name, their numbers."""

    maps: int
    name: str | None
    numbers: FloatArray | None


def by_layers(a: Network, b: Network, time_limit: float | None = None) -> Difference:
    """Every layer of either; see the module."""
    question = Question.of(a, b, time_limit=time_limit)
    asked = replace(question, a=pools_first(question.a), b=pools_first(question.b))
    numbering = Numbering(asked, skeletons(asked))
    numbering.run(ChannelSearch(float(question.rounding.few), loose=True, least=ALIKE))
    pairs = _paired(numbering)
    found: list[Change] = []
    for number in range(1, numbering.first + 1):
        own = _segment(asked.a, numbering.gate(number).node.source)
        name = own.name or f"layer {number}"
        if number not in pairs:
            if own.maps:
                found.append(Change(name, REMOVED, (numbering.views[number].channels, 0), maps=(own.maps, 0)))
            continue
        theirs = _segment(asked.b, numbering.gate(pairs[number]).node.source)
        change = _change(name, numbering, number, pairs[number], own, theirs)
        if own.maps or theirs.maps or change.status != SAME:
            found.append(change)
    taken = set(pairs.values())
    for number in range(numbering.first + 1, max(numbering.switches, default=0) + 1):
        segment = _segment(asked.b, numbering.gate(number).node.source)
        if number not in taken and segment.maps:
            name = segment.name or f"layer {number - numbering.first}"
            found.append(Change(name, ADDED, (0, numbering.views[number].channels), maps=(0, segment.maps)))
    found.append(_output(numbering, asked))
    return Difference("layers", question.rounding.precision, tuple(found))


def _paired(numbering: Numbering) -> dict[int, int]:
    """For switches of ``a`` the switch of ``b`` most of whose channels are theirs."""
    votes: list[tuple[int, int, int]] = []
    for number, switch in numbering.switches.items():
        if number > numbering.first:
            values = switch.claim.values[switch.claim.ways == TWIN]
            for value, count in zip(*np.unique(values[values <= numbering.first], return_counts=True), strict=True):
                votes.append((-int(count), int(value), number))
    found: dict[int, int] = {}
    for _, value, number in sorted(votes):
        if value not in found and number not in found.values():
            found[value] = number
    return found


def _change(name: str, numbering: Numbering, mine: int, theirs: int, own: _Segment, other: _Segment) -> Change:
    left, right = numbering.switches[mine], numbering.switches[theirs]
    claim, rounding = right.claim, numbering.question.rounding
    which = np.flatnonzero((claim.ways == TWIN) & (claim.values == mine))
    members, factors = claim.members[which], claim.factors[which]
    p = rows_of(left.form, left.read, members, factors)
    q = rows_of(right.form, right.read, which)
    change, largest, zeroed = _apart(p, q)
    worst = float(right.nearness[which].max(initial=0.0))
    reps = (left.claim.values == mine) & (left.claim.ways == TWIN)
    met = {
        int(m)
        for k, switch in numbering.switches.items() if k > numbering.first
        for m in switch.claim.members[(switch.claim.values == mine) & (switch.claim.ways == TWIN)]
    }  # fmt: skip
    pruned = sum(int(c) not in met for c in np.flatnonzero(reps & (left.claim.members == np.arange(len(reps)))))
    new = int(((claim.ways == TWIN) & (claim.values == theirs) & (claim.members == np.arange(len(claim.ways)))).sum())
    grid, grids = (None, 0)
    if own.numbers is not None and other.numbers is not None:
        grid, grids = new_grid(own.numbers, other.numbers, rounding)
    channels = (left.read.channels, right.read.channels)
    return Change(
        name, _status(worst, largest, rounding), channels, change, largest, pruned, new,
        int((members != which).sum()), int((np.abs(factors - 1) > rounding.share).sum()), (own.maps, other.maps), grid,
        grids, zeroed,
    )  # fmt: skip


def _status(units: float, largest: float, rounding: Rounding) -> str:
    return SAME if units == 0 or largest == 0 else ROUNDED if units <= rounding.few else CHANGED


def _output(numbering: Numbering, asked: Question) -> Change:
    a, b = numbering.outputs()
    worst = compare(a, b, {name: name for name in b.pieces}, asked.rounding).residual
    own, theirs = (_segment(net, len(net.nodes)) for net in (asked.a, asked.b))
    change, largest, zeroed = _apart(a, b)
    grid, grids = (None, 0)
    if own.numbers is not None and theirs.numbers is not None:
        grid, grids = new_grid(own.numbers, theirs.numbers, asked.rounding)
    size, maps = a.offset.size, (own.maps, theirs.maps)
    status = _status(worst, largest, asked.rounding)
    return Change(
        own.name or "output", status, (size, size), change, largest, maps=maps, grid=grid, grids=grids, zeroed=zeroed
    )


def _apart(a: ComposedMap, b: ComposedMap) -> tuple[float | None, float, int]:
    """The norm of the difference over the norm of the first, the largest difference of a number, and how many of the
    coefficients have become zero."""
    total, size, largest, zeroed = 0.0, 0.0, 0.0, 0
    for name in {**a.pieces, **b.pieces}:
        (p, _), (q, _) = in_one_layout(a.pieces.get(name), b.pieces.get(name))
        gap = np.abs(p.coefficients - q.coefficients)
        total, size = total + float((gap**2).sum()), size + float((p.coefficients**2).sum())
        largest = max(largest, float(gap.max(initial=0.0)))
        zeroed += int(((p.coefficients != 0) & (q.coefficients == 0)).sum())
    gap = np.abs(a.offset - b.offset)
    largest = max(largest, float(gap.max(initial=0.0)))
    total, size = total + float((gap**2).sum()), size + float((a.offset**2).sum())
    return (None if size == 0 else float(np.sqrt(total / size))), largest, zeroed


def _segment(net: Network, value: int) -> _Segment:
    maps, name, numbers = 0, None, None
    seen, queue = set(), [value]
    while queue:
        place = queue.pop(0)
        if place == 0 or place in seen:
            continue
        seen.add(place)
        node = net.nodes[place - 1]
        if isinstance(node, Switch) and not (isinstance(node, PiecewiseLinear) and node.linear.all()):
            continue
        if isinstance(node, Affine):
            maps += 1
            for stage in node.operator.stages():
                larger = numbers is None or stage.coefficients.size > numbers.size
                if isinstance(stage, Dense | Convolving) and larger:
                    numbers = stage.coefficients
                    name = node.weight_name or name
            name = name or node.weight_name
        queue += node.sources
    return _Segment(maps, None if name is None else name.removesuffix(".weight"), numbers)
