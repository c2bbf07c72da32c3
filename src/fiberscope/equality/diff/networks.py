"""Two programs compared layer by layer, in terms of matched channels: see ``equality.maps.numbering``.

A layer is what one activation, one pool or the output reads: the affine maps between switches, composed. So fused,
split and folded maps are one layer, and what is compared is what the maps do, after neurons were matched. Programs
whose layers agree up to rounding as they stand need no matching.

An offset counts as no smaller than the largest coefficient of its neuron. Two exporters that fold a batch normalisation
add up its terms in another order, and where these cancel, what is left is off by many of its own units of rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fiberscope.equality.diff.changes import ADDED, CHANGED, REMOVED, ROUNDED, SAME, Change, Difference
from fiberscope.equality.maps.blocks import read_by, rows_of
from fiberscope.equality.maps.compared import compare, in_one_layout, largest_of_rows
from fiberscope.equality.maps.numbering import SAME as TWIN
from fiberscope.equality.maps.numbering import Numbering
from fiberscope.equality.maps.search import ChannelSearch
from fiberscope.equality.maps.skeleton import ComposedMap, Skeleton, skeletons
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.structure import Alignment, aligned, slopes_apart
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
    unmoved = asked.a is question.a and asked.b is question.b
    alignment = None
    for tried in (question,) if unmoved else (question, asked):  # pools stand where they stood, or can be moved there
        pair = skeletons(tried)
        alignment = aligned(*pair, tried.rounding, run=tried.run)
        found = None if alignment is None else _in_turn(tried, pair, alignment)
        if found is not None:
            return Difference("layers", question.rounding.precision, tuple(found))
    numbering = Numbering(asked, skeletons(asked))
    numbering.run(ChannelSearch(float(question.rounding.few), loose=True, least=ALIKE))
    return Difference("layers", question.rounding.precision, tuple(_matched(asked, numbering, alignment)))


def _in_turn(asked: Question, pair: tuple[Skeleton, Skeleton], alignment: Alignment) -> list[Change] | None:
    """The layers of two programs with the same switches, neurons as they stand; None where more than that changed."""
    values = {0: 0} | {j + 1: k + 1 for k, j in enumerate(alignment.order)}
    found = []
    for number, (gate, j) in enumerate(zip(pair[0].gates, alignment.order, strict=True), start=1):
        other = pair[1].gates[j]
        own, theirs = _segment(asked.a, gate.node.source), _segment(asked.b, other.node.source)
        name, form = own.name or f"layer {number}", _named(other.form, values)
        bends = float(slopes_apart(gate, other, asked.rounding).max())
        change = _beside(name, asked.rounding, gate.form, form, own, theirs, bends)
        if change.status == CHANGED:
            return None
        if own.maps or theirs.maps or change.status != SAME:
            channels = (read_by(gate).channels, read_by(other).channels)
            found.append(replace(change, neurons=channels))
    last = _output(pair[0].output, _named(pair[1].output, values), asked)
    return None if last.status == CHANGED else [*found, last]


def _named(form: ComposedMap, values: dict[int, int]) -> ComposedMap:
    """A map of the second program with the values of the first that it reads."""
    return replace(form, pieces={values[name]: piece for name, piece in form.pieces.items()})


def _matched(asked: Question, numbering: Numbering, alignment: Alignment | None) -> list[Change]:
    """The layers of two programs, neurons matched."""
    pairs = _paired(numbering)
    taken = set(pairs.values())
    found: list[Change] = []
    for number in range(1, numbering.first + 1):
        own = _segment(asked.a, numbering.gate(number).node.source)
        name = own.name or f"layer {number}"
        if number in pairs:
            theirs = _segment(asked.b, numbering.gate(pairs[number]).node.source)
            change = _change(name, numbering, number, pairs[number], own, theirs)
            if own.maps or theirs.maps or change.status != SAME:
                found.append(change)
            continue
        counterpart = 0 if alignment is None else numbering.first + alignment.order[number - 1] + 1
        kept = None
        if counterpart in numbering.switches and counterpart not in taken:
            kept = _kept(name, numbering, number, counterpart, own)
        if kept is not None:
            taken.add(counterpart)
        if own.maps:
            gone = Change(name, REMOVED, (numbering.views[number].channels, 0), maps=(own.maps, 0))
            found.append(gone if kept is None else kept)
    for number in range(numbering.first + 1, max(numbering.switches, default=0) + 1):
        segment = _segment(asked.b, numbering.gate(number).node.source)
        if number not in taken and segment.maps:
            name = segment.name or f"layer {number - numbering.first}"
            found.append(Change(name, ADDED, (0, numbering.views[number].channels), maps=(0, segment.maps)))
    return [*found, _output(*numbering.outputs(), asked)]


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


def _kept(name: str, numbering: Numbering, mine: int, theirs: int, own: _Segment) -> Change | None:
    """A layer whose neurons do not stand for themselves (constant, passed on, doubled), if its numbers are the same."""
    left, right = numbering.switches[mine], numbering.switches[theirs]
    bends = float(slopes_apart(left.gate, right.gate, numbering.question.rounding).max())
    other = _segment(numbering.question.b, right.gate.node.source)
    change = _beside(name, numbering.question.rounding, left.form, right.form, own, other, bends)
    return None if change.status == CHANGED else replace(change, neurons=(left.read.channels, right.read.channels))


def _change(name: str, numbering: Numbering, mine: int, theirs: int, own: _Segment, other: _Segment) -> Change:
    left, right = numbering.switches[mine], numbering.switches[theirs]
    claim, rounding = right.claim, numbering.question.rounding
    which = np.flatnonzero((claim.ways == TWIN) & (claim.values == mine))
    members, factors = claim.members[which], claim.factors[which]
    p = rows_of(left.form, left.read, members, factors)
    q = rows_of(right.form, right.read, which)
    beside = _beside(name, rounding, p, q, own, other)
    reps = (left.claim.values == mine) & (left.claim.ways == TWIN)
    met = {
        int(m)
        for k, switch in numbering.switches.items() if k > numbering.first
        for m in switch.claim.members[(switch.claim.values == mine) & (switch.claim.ways == TWIN)]
    }  # fmt: skip
    pruned = sum(int(c) not in met for c in np.flatnonzero(reps & (left.claim.members == np.arange(len(reps)))))
    new = int(((claim.ways == TWIN) & (claim.values == theirs) & (claim.members == np.arange(len(claim.ways)))).sum())
    return replace(
        beside, neurons=(left.read.channels, right.read.channels), pruned=pruned, new=new,
        reordered=int((members != which).sum()), rescaled=int((np.abs(factors - 1) > rounding.share).sum()),
    )  # fmt: skip


def _beside(
    name: str, rounding: Rounding, a: ComposedMap, b: ComposedMap, own: _Segment, other: _Segment, bends: float = 0.0
) -> Change:
    """A layer whose maps are written in terms of the same values; ``bends``: how far the slopes behind it are apart, in
    units of rounding."""
    change, largest, zeroed = _apart(a, b)
    units = compare(_widened(a), _widened(b), {value: value for value in b.pieces}, rounding).residual
    units = bends if largest == 0 else max(units, bends)
    status = SAME if units == 0 else ROUNDED if units <= rounding.few else CHANGED
    grid, grids = (None, 0)
    if own.numbers is not None and other.numbers is not None:
        grid, grids = new_grid(own.numbers, other.numbers, rounding)
    neurons, maps = (a.offset.size, b.offset.size), (own.maps, other.maps)
    return Change(name, status, neurons, change, largest, maps=maps, grid=grid, grids=grids, zeroed=zeroed)


def _widened(form: ComposedMap) -> ComposedMap:
    """With offsets that count as no smaller than the largest coefficient of their neuron."""
    sizes = form.offset_sizes
    for piece in form.pieces.values():
        sizes = np.maximum(sizes, largest_of_rows(piece.sizes, piece.sizes.coefficients))
    return replace(form, offset_sizes=sizes)


def _output(a: ComposedMap, b: ComposedMap, asked: Question) -> Change:
    own, theirs = (_segment(net, len(net.nodes)) for net in (asked.a, asked.b))
    return _beside(own.name or "output", asked.rounding, a, b, own, theirs)


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
