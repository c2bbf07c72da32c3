"""Value numbering by channels: which channels of two programs are positive multiples of one and the same function.

The switches of both programs are gone through in turn, those of ``a`` first. What a switch reads is an affine map of
channels that are known already; each of them is put in as a factor times the channel that stands for it, its
*representative*. Then every channel of the switch is one of four things:

- SAME: its map is a positive multiple of the map of a representative, of a switch that does the same; so its value is
  that multiple of the representative's (``relu(s x) = s relu(x)``, and so with the largest of a window). A channel
  that is like no other represents itself.
- PASSED: a ReLU that reads a positive multiple of a channel that is never negative.
- CONSTANT: it reads no channel, so its value is known.
- DEAD: a ReLU that reads nothing positive on the box of the question, by rigorous ranges.

So permuted, rescaled, split, doubled, pruned and constant channels, and sums and concatenations in any order, end in
the same maps of the same representatives, and the two outputs are compared as such. Every comparison is entry by entry,
in units of rounding; on a box the differences are bounded on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, assert_never

import numpy as np
from scipy import sparse as sp

from fiberscope.equality.maps.blocks import Blocks, Naming, given_by, read_by, renamed, rows_of
from fiberscope.equality.maps.compared import Compared, compare
from fiberscope.equality.maps.skeleton import ComposedMap, Gate, Piece, Skeleton
from fiberscope.geometry.domains import Box
from fiberscope.geometry.ranges.intervals import Range, ranges
from fiberscope.network.nodes import MaxPool, PiecewiseLinear
from fiberscope.network.operators import Sparse
from fiberscope.numerics.algebra.base import gather
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, IntArray, round_up

if TYPE_CHECKING:
    from fiberscope.equality.question import Question

SAME, PASSED, CONSTANT, DEAD = range(4)


class Claim(NamedTuple):
    """For every channel of a switch what it is, and where that needs one, the representative and the factor."""

    ways: IntArray
    values: IntArray
    members: IntArray
    factors: FloatArray

    @classmethod
    def own(cls, number: int, channels: int) -> Claim:
        """Every channel represents itself."""
        return cls(
            np.zeros(channels, dtype=np.int64), np.full(channels, number), np.arange(channels), np.ones(channels)
        )

    def copied(self) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Arrays that may be written to."""
        return self.ways.copy(), self.values.copy(), self.members.copy(), self.factors.copy()

    def with_own(self, number: int, which: BoolArray) -> Claim:
        """The same, but some channels represent themselves."""
        own = Claim.own(number, len(self.ways))
        whole = [np.where(which, new, old) for new, old in zip(own[:3], self[:3], strict=True)]
        return Claim(whole[0], whole[1], whole[2], np.where(which, own.factors, self.factors))


@dataclass(frozen=True, slots=True, eq=False)
class Numbered:
    """A switch of either program: what it reads, in terms of representatives, and what its channels are."""

    gate: Gate
    read: Blocks
    given: Blocks
    form: ComposedMap
    claim: Claim
    never_negative: BoolArray
    nearness: FloatArray
    """For every channel how far it is from what it is said to be, in units of rounding."""


class Numbering:
    """The channels of two programs as far as the walk has come; value 0 is the input."""

    def __init__(self, question: Question, pair: tuple[Skeleton, Skeleton], bounded: bool = False) -> None:
        self.question, self.pair = question, pair
        self.switches: dict[int, Numbered] = {}
        self.blocks = {0: Blocks(question.a.in_size, 1)}
        self.namings = {0: Naming.itself(0, question.a.in_size)}
        self.units = 0.0
        box = question.place if isinstance(question.place, Box) else None
        self._ranges = None if box is None else [ranges(net, box) for net in (question.a, question.b)]
        self._bounded = bounded and box is not None
        self._gaps = {0: np.zeros(question.a.in_size)}
        self._sizes = {} if box is None else {0: _largest(Range(box.low, box.high))}
        self._behind: dict[int, FloatArray] = {}
        self._last: tuple[int, Claim, list[tuple[IntArray, Compared]]] | None = None
        self.views = _views(*pair)

    @property
    def first(self) -> int:
        """The number of switches of ``a``, which have the first numbers."""
        return len(self.pair[0].gates)

    def run(self, choose: Callable[[Numbering, int, Gate, ComposedMap], Claim | None]) -> bool:
        """Number all channels as ``choose`` says; False as soon as it says nothing, or something that is not so."""
        for number in range(1, self.first + len(self.pair[1].gates) + 1):
            self.question.run.check()
            gate = self.gate(number)
            form = renamed(self.shifted(gate.form, number), self.namings, self.blocks)
            claim = choose(self, number, gate, form)
            if claim is None or not self.add(number, gate, form, claim):
                return False
        return True

    def gate(self, number: int) -> Gate:
        side = number > self.first
        return self.pair[side].gates[number - 1 - (self.first if side else 0)]

    def shifted(self, form: ComposedMap, number: int) -> ComposedMap:
        """A map of the second program with the numbers that its switches have here."""
        if number <= self.first:
            return form
        return replace(form, pieces={k + self.first if k else 0: piece for k, piece in form.pieces.items()})

    def add(self, number: int, gate: Gate, form: ComposedMap, claim: Claim) -> bool:
        """Put a switch in its place, unless a channel cannot be what it is said to be, however far."""
        read = self.views[number]
        given = given_by(gate, read)
        nearness = self.nearness(number, gate, form, claim)
        if nearness is None:
            return False
        match gate.node:
            case PiecewiseLinear():
                negative = (gate.node.slopes[read.places] == 0).all(axis=1)
            case MaxPool():
                negative = self._not_negative(form, read)
            case _:
                assert_never(gate.node)
        self.switches[number] = Numbered(gate, read, given, form, claim, negative, nearness)
        self.blocks[number] = given
        self.namings[number] = self._naming(gate, read, given, form, claim)
        self.units = max(self.units, float(nearness.max(initial=0.0)))
        if self._bounded:
            self._bound(number, gate, form, claim)
        return True

    def _not_negative(self, form: ComposedMap, read: Blocks) -> BoolArray:
        """Which channels of a pool read single channels that are never negative, nothing added."""
        if form.roundings or form.lost or form.offset.any() or form.offset_sizes.any() or len(form.pieces) != 1:
            return np.zeros(read.channels, dtype=bool)
        ((name, piece),) = form.pieces.items()
        if name not in self.switches or (piece.values.coefficients < 0).any():
            return np.zeros(read.channels, dtype=bool)
        source = self.switches[name]
        entries = np.ones(source.given.size)
        entries[source.given.places[source.never_negative]] = 0.0
        touched = piece.values.apply_abs(entries[None])[0]
        return np.asarray((touched[read.places] == 0).all(axis=1))

    @staticmethod
    def _naming(gate: Gate, read: Blocks, given: Blocks, form: ComposedMap, claim: Claim) -> Naming:
        fixed = (claim.ways == CONSTANT) | (claim.ways == DEAD)
        constants = None
        if fixed.any():
            match gate.node:
                case PiecewiseLinear():
                    value = np.maximum(form.offset, 0.0)  # see `constant_passes`
                case MaxPool():
                    value = gather(form.offset[None], gate.node.windows, -np.inf)[0].max(axis=1)
                case _:
                    assert_never(gate.node)
            constants = value[given.places].copy()
            constants[claim.ways == DEAD] = 0.0
        return Naming(np.where(fixed, -1, claim.values), claim.members, claim.factors, constants)

    # -- is a channel what it is said to be? -----------------------------------------------------------------------

    def nearness(self, number: int, gate: Gate, form: ComposedMap, claim: Claim) -> FloatArray | None:
        """How far every channel is from what is claimed of it, in units of rounding; None where that is no claim."""
        read = self.views[number]
        if not self._fits(number, gate, form, claim):
            return None
        found = np.zeros(read.channels)
        for which, compared in self._compared(number, form, claim):
            units = compared.units.reshape(len(which), read.positions).max(axis=1, initial=0.0)
            found[which] = np.maximum(found[which], units)
        return found

    def _compared(self, number: int, form: ComposedMap, claim: Claim) -> list[tuple[IntArray, Compared]]:
        """Channels, and their maps beside what they are said to be; of the last claim they are kept."""
        if self._last is None or self._last[0] != number or self._last[1] is not claim:
            self._last = (number, claim, self._compared_anew(number, form, claim))
        return self._last[2]

    def _compared_anew(self, number: int, form: ComposedMap, claim: Claim) -> list[tuple[IntArray, Compared]]:
        read, rounding = self.views[number], self.question.rounding
        found = []
        own = (claim.values == number) & (claim.members == np.arange(read.channels))
        for way, value in {*zip(claim.ways.tolist(), claim.values.tolist(), strict=True)}:
            which = np.flatnonzero((claim.ways == way) & (claim.values == value) & ~((way == SAME) & own))
            if way == DEAD or not which.size:
                continue
            mine = rows_of(form, read, which)
            members, factors = claim.members[which], claim.factors[which]
            if way == SAME:
                source, blocks = (form, read) if value == number else self._of(value)
                theirs = rows_of(source, blocks, members, factors)
            elif way == PASSED:
                theirs = _multiples(value, self.blocks[value], members, factors)
            else:
                theirs = ComposedMap({}, mine.offset, mine.offset_sizes, mine.roundings, mine.lost)
            names = {name: name for name in theirs.pieces}
            found.append((which, compare(mine, theirs, names, rounding)))
        return found

    def _of(self, value: int) -> tuple[ComposedMap, Blocks]:
        return self.switches[value].form, self.switches[value].read

    def _fits(self, number: int, gate: Gate, form: ComposedMap, claim: Claim) -> bool:
        """Whether every claim names representatives that there are, and switches that do the same."""
        read = self.views[number]
        n = read.channels
        ways, values, members, factors = claim
        if any(len(part) != n for part in claim) or not ((ways >= SAME) & (ways <= DEAD)).all():
            return False
        if not (np.isfinite(factors) & (factors > 0)).all():
            return False
        slopes = gate.node.slopes[read.places] if isinstance(gate.node, PiecewiseLinear) else None
        plain = np.ones(n, dtype=bool) if slopes is None else (slopes == 0).all(axis=1)
        if (ways == DEAD).any() and not (self.dead(number)[ways == DEAD] & plain[ways == DEAD]).all():
            return False
        if not constant_passes(gate, form, read)[ways == CONSTANT].all():
            return False
        if slopes is None and (ways == PASSED).any():
            return False
        if not plain[ways == PASSED].all():
            return False
        for value in np.unique(values[ways <= PASSED]).tolist():
            which = (values == value) & (ways <= PASSED)
            if not self._represents(number, value, members[which], claim):
                return False
            if not self._alike(number, value, which, ways, members):
                return False
        return True

    def _represents(self, number: int, value: int, members: IntArray, claim: Claim) -> bool:
        """Whether channels of a value stand for themselves."""
        if value == number:
            if not ((members >= 0) & (members < len(claim.ways))).all():
                return False
            itself = (claim.values == number) & (claim.members == np.arange(len(claim.ways))) & (claim.factors == 1)
            return bool((itself & (claim.ways == SAME))[members].all())
        if value not in self.switches:
            return False
        known = self.switches[value].claim
        if not ((members >= 0) & (members < len(known.ways))).all():
            return False
        itself = (known.values == value) & (known.members == np.arange(len(known.ways))) & (known.factors == 1)
        return bool((itself & (known.ways == SAME))[members].all())

    def _alike(self, number: int, value: int, which: BoolArray, ways: IntArray, members: IntArray) -> bool:
        """Whether the switches do the same to the channels that are claimed to be the same; whether none is negative
        where channels are claimed to pass."""
        read, gate = self.views[number], self.gate(number)
        passed = which & (ways == PASSED)
        if passed.any():
            if value == number or self.blocks[value].positions != read.positions:
                return False
            if not self.switches[value].never_negative[members[passed]].all():
                return False
        same = which & (ways == SAME)
        if value == number:
            return self._slopes_agree(gate, read, same, gate, read, members)
        other = self.switches[value]
        if same.any() and other.read.positions != read.positions:
            return False
        if isinstance(gate.node, PiecewiseLinear) and isinstance(other.gate.node, PiecewiseLinear):
            return self._slopes_agree(gate, read, same, other.gate, other.read, members)
        return not same.any() or same_windows(gate, read, other.gate, other.read)

    @staticmethod
    def _slopes_agree(
        gate: Gate, read: Blocks, same: BoolArray, other: Gate, blocks: Blocks, members: IntArray
    ) -> bool:
        if not isinstance(gate.node, PiecewiseLinear) or not isinstance(other.node, PiecewiseLinear):
            return gate is other
        mine, theirs = gate.node.slopes[read.places[same]], other.node.slopes[blocks.places[members[same]]]
        return np.array_equal(mine, theirs)

    def dead(self, number: int) -> BoolArray:
        """Channels that read nothing positive on the box of the question; none where it is no box."""
        read, gate = self.views[number], self.gate(number)
        if self._ranges is None or not isinstance(gate.node, PiecewiseLinear):
            return np.zeros(read.channels, dtype=bool)
        seen = self._ranges[number > self.first][gate.node.source]
        off = (seen.high <= 0) & (gate.node.slopes == 0)
        return np.asarray(off[read.places].all(axis=1))

    # -- the outputs, and bounds of differences --------------------------------------------------------------------

    def outputs(self) -> tuple[ComposedMap, ComposedMap]:
        """Both outputs as maps of the representatives."""
        last = self.first + len(self.pair[1].gates)
        found = [
            renamed(self.shifted(skeleton.output, number), self.namings, self.blocks)
            for skeleton, number in zip(self.pair, (0, last + 1), strict=True)
        ]
        return found[0], found[1]

    def _bound(self, number: int, gate: Gate, form: ComposedMap, claim: Claim) -> None:
        """Bounds of how far each entry of the switch is from the multiple of its representative, on the box."""
        assert self._ranges is not None
        read, node = self.views[number], gate.node
        behind = self._drift(self.shifted(gate.form, number))
        self._behind[number] = behind
        gap = np.zeros(read.size)
        with np.errstate(over="ignore", invalid="ignore"):
            for which, compared in self._compared(number, form, claim):
                places = read.places[which]
                more = self._apart(compared).reshape(places.shape)
                if (claim.ways[which] == SAME).all():
                    value = int(claim.values[which[0]])
                    source = read if value == number else self.switches[value].read
                    theirs = self._behind[value][source.places[claim.members[which]]]
                    more = more + theirs * claim.factors[which][:, None]
                gap[places] = round_up(behind[places] + more, 4)
            own = (claim.values == number) & (claim.members == np.arange(read.channels)) & (claim.ways == SAME)
            gap[read.places[own | (claim.ways == DEAD)]] = 0.0
            match node:
                case PiecewiseLinear():
                    gap = round_up(np.maximum(1.0, np.abs(node.slopes)) * gap, 3)
                case MaxPool():
                    gap = gather(gap[None], node.windows, 0.0)[0].max(axis=1)
                case _:
                    assert_never(node)
        given = self.blocks[number]
        gap[given.places[own | (claim.ways == DEAD)]] = 0.0
        self._gaps[number] = gap
        self._sizes[number] = _largest(self._ranges[number > self.first][gate.index + 1])

    def _drift(self, form: ComposedMap) -> FloatArray:
        """How far a map moves when every channel that it reads is replaced by what it is said to be."""
        total, terms = np.zeros(form.offset.size), 1
        with np.errstate(over="ignore", invalid="ignore"):
            for name, piece in form.pieces.items():
                if not (self._gaps[name] == 0).all():
                    # sizes are no smaller than the coefficients' true absolute values, but for their rounding
                    reach = (1 + form.error) * piece.sizes.apply(self._gaps[name][None])[0]
                    total = total + reach + form.lost * self._gaps[name].sum()
                    terms += 2 * piece.values.fan_in + 4
        return total if terms == 1 else round_up(total + terms * TINY, terms + 6)

    def _apart(self, compared: Compared) -> FloatArray:
        """``|A - B| |x| + |c - d|`` for what the box allows as values of the representatives."""
        total, terms = compared.offset, 1
        for name, gap in compared.gaps.items():
            total = total + gap.apply(self._sizes[name][None])[0]
            terms += gap.fan_in + 2
        return round_up(total + terms * TINY, terms + 4)

    def bound(self, compared: Compared) -> float:
        """An upper bound of the difference of the outputs on the box, from their comparison; infinite without one."""
        if not self._bounded:
            return np.inf
        last = self.first + len(self.pair[1].gates) + 1
        with np.errstate(over="ignore", invalid="ignore"):
            moved = [
                self._drift(self.shifted(skeleton.output, number))
                for skeleton, number in zip(self.pair, (0, last), strict=True)
            ]
            found = float(round_up(moved[0] + moved[1] + self._apart(compared), 3).max(initial=0.0))
        return found if found >= 0 else np.inf


def _largest(value: Range) -> FloatArray:
    return np.maximum(np.abs(value.low), np.abs(value.high))


def same_windows(a: Gate, read_a: Blocks, b: Gate, read_b: Blocks) -> bool:
    """Whether two pools take the largest of the same windows in every channel."""
    if not isinstance(a.node, MaxPool) or not isinstance(b.node, MaxPool) or read_a.positions != read_b.positions:
        return False
    pairs = ((a.node, read_a), (b.node, read_b))
    first = [node.windows[: len(node.windows) // read.channels] for node, read in pairs]
    return np.array_equal(np.sort(first[0], axis=1), np.sort(first[1], axis=1))


def constant_passes(gate: Gate, form: ComposedMap, read: Blocks) -> BoolArray:
    """Channels for which the switch makes the larger one of 0 and what it reads of a constant, or the largest one."""
    match gate.node:
        case MaxPool():
            return np.ones(read.channels, dtype=bool)
        case PiecewiseLinear():
            return np.asarray(((gate.node.slopes == 0) | (form.offset >= 0))[read.places].all(axis=1))
        case _:
            assert_never(gate.node)


def _multiples(value: int, blocks: Blocks, members: IntArray, factors: FloatArray) -> ComposedMap:
    """Some channels of a value times factors, as a map."""
    columns = blocks.places[members].reshape(-1)
    data = np.repeat(factors, blocks.positions)
    matrix = sp.csr_array((data, columns, np.arange(len(columns) + 1)), shape=(len(columns), blocks.size))
    operator = Sparse(matrix, (blocks.size,), (len(columns),))
    zeros = np.zeros(len(columns))
    return ComposedMap({value: Piece(operator, operator)}, zeros, zeros)


def _views(a: Skeleton, b: Skeleton) -> dict[int, Blocks]:
    """The channels of what every switch reads. Where one program has neurons in the place of the other's channels, as
    an unrolled convolution has, they are taken as channels too."""
    mine, theirs = ([read_by(gate) for gate in skeleton.gates] for skeleton in (a, b))
    if len(mine) == len(theirs):
        for k, (p, q) in enumerate(zip(mine, theirs, strict=True)):
            if p.size == q.size and p.channels != q.channels:
                coarse = p if p.channels < q.channels else q
                if isinstance(a.gates[k].node, PiecewiseLinear) and isinstance(b.gates[k].node, PiecewiseLinear):
                    mine[k] = theirs[k] = coarse
    return dict(enumerate([*mine, *theirs], start=1))
