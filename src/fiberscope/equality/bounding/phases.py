"""Branch and bound over the signs of open neurons: is a linear function of the outputs at most 0 on a box?

With many inputs halves of a box are hardly smaller, but a neuron whose sign is known needs no lines at all. A split
asks twice, once where the preactivation is at least 0 and once where it is at most 0; what the box leaves open besides
is met by a factor of every split, which is not negative (Wang et al., *Beta-CROWN*, 2021). Bounds are those of
:mod:`fiberscope.equality.bounding.lines`, with intervals of the preactivations that are found once.

The tree is what a proof consists of: in preorder a split ``(layer, neuron)``, first its part at or above zero, or a
leaf with the slopes of lines and the factors that its bound is computed with. Whatever these are, the bound holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fiberscope.equality.bounding.chains import Layer
from fiberscope.equality.bounding.lines import (
    Known,
    Phases,
    Turns,
    back,
    first_turns,
    intervals,
    losses,
    turned,
)
from fiberscope.errors import InputError
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import ENDLESS, Run

BATCH = 32
"""Nodes that are bounded together."""

FIRST_STEPS, STEPS = 10, 4
"""How often lines and factors are improved: of the whole box, and of its parts."""

Numbers = tuple[tuple[int, int, float], ...]
"""Of neurons: the layer, the place in it, a number."""


class Split(NamedTuple):
    """A neuron whose sign is asked."""

    layer: int
    neuron: int


class Leaf(NamedTuple):
    """Slopes of the lines through zero that are not the first choice, and factors of the splits above."""

    slopes: Numbers
    factors: Numbers


Tree = tuple[Split | Leaf, ...]


class Chain:
    """A dense chain on a box, with what is known of its preactivations."""

    def __init__(self, layers: Sequence[Layer], low: FloatArray, high: FloatArray, run: Run = ENDLESS) -> None:
        self.layers, self.low, self.high = layers, low, high
        self.bends = [k for k, layer in enumerate(layers) if layer.slopes is not None]
        """Layers with an activation: certificates count these, whatever affine maps there are in between."""
        with np.errstate(all="ignore"):
            self.known: list[Known] = intervals(layers, low, high, run)

    def free(self, count: int) -> list[Phases]:
        """No sign is told."""
        return [Phases(np.zeros((count, len(ends.low))), np.zeros((count, len(ends.low)))) for ends in self.known]

    def bounds(
        self, row: FloatArray, turns: Turns, phases: Sequence[Phases], marks: list[FloatArray] | None = None
    ) -> FloatArray:
        """Upper bounds of ``row @ f(x)``, one for every row of turns and phases."""
        rows = np.repeat(row[None], len(phases[0].signs) if phases else 1, axis=0)
        return back(self.layers, self.known, self.low, self.high, rows, turns, marks, phases)


class _Open(NamedTuple):
    """Nodes of the tree that are to be bounded: their numbers, and a row for each of them in every array."""

    numbers: list[int]
    turns: Turns
    phases: list[Phases]


class SignSearch:
    """The search for one row of weights of the outputs."""

    def __init__(self, chain: Chain, row: FloatArray) -> None:
        self.chain, self.row = chain, row
        self.tree: list[Split | Leaf | None] = [None]
        self.children: dict[int, int] = {}
        self.open = [_Open([0], first_turns(chain.layers, chain.known, 1), chain.free(1))]

    def go(self) -> bool | None:
        """One step: true when everything is proven, false when it cannot be, None to go on."""
        part = self._next()
        if part is None:
            return True
        with np.errstate(all="ignore"):
            return None if self._bounded(part) else False

    def preorder(self) -> Tree:
        """The tree of a search that is done."""
        made: list[Split | Leaf] = []
        stack = [0]
        while stack:
            number = stack.pop()
            entry = self.tree[number]
            assert entry is not None
            made.append(entry)
            if isinstance(entry, Split):
                stack += [self.children[number] + 1, self.children[number]]
        return tuple(made)

    def _next(self) -> _Open | None:
        """Some open nodes, the latest first: proofs end sooner there, and little has to be kept."""
        parts, count = list[_Open](), 0
        while self.open and count < BATCH:
            parts.append(self.open.pop())
            count += len(parts[-1].numbers)
        return _together(parts) if parts else None

    def _bounded(self, part: _Open) -> bool:
        chain, (numbers, turns, phases) = self.chain, part
        count, first = len(numbers), numbers == [0]
        best, step = np.full(count, np.inf), 0.5 if first else 0.25
        kept = [None if t is None else t.copy() for t in turns], [p.factors.copy() for p in phases]
        marks: list[FloatArray] = []
        used = list(turns)
        for _ in range(FIRST_STEPS if first else STEPS):
            marks, used = [], list(turns)
            found = chain.bounds(self.row, turns, phases, marks)
            better = found < best
            best = np.where(better, found, best)
            for k, ends in enumerate(phases):
                kept[1][k][better] = ends.factors[better]
                own, now = kept[0][k], turns[k]
                if own is not None and now is not None:
                    own[better] = now[better]
            if (best <= 0).all():
                break
            turned(chain.layers, chain.known, chain.low, chain.high, turns, marks, step, phases)
            step *= 0.75 if first else 0.8
        lost = losses(chain.layers, chain.known, marks, used, phases)
        for i in range(count):
            if best[i] <= 0:
                self.tree[numbers[i]] = self._leaf(i, kept[0], phases, kept[1])
            elif not self._split(numbers[i], i, lost, part):
                return False
        return True

    def _leaf(self, i: int, turns: Turns, phases: list[Phases], factors: list[FloatArray]) -> Leaf:
        usual = first_turns(self.chain.layers, self.chain.known, 1)
        slopes: list[tuple[int, int, float]] = []
        for k, (turn, first) in enumerate(zip(turns, usual, strict=True)):
            if turn is not None and first is not None:
                changed = np.flatnonzero((turn[i] != first[0]) & (phases[k].signs[i] == 0)).tolist()
                slopes += [(self.chain.bends.index(k), j, float(turn[i, j])) for j in changed]
        bends = enumerate(self.chain.bends)
        rest = [(n, j, float(factors[k][i, j])) for n, k in bends for j in np.flatnonzero(factors[k][i]).tolist()]
        return Leaf(tuple(slopes), tuple(rest))

    def _split(self, number: int, i: int, lost: list[FloatArray], part: _Open) -> bool:
        """Ask for the sign whose line loses most; false where there is none."""
        k = int(np.argmax([rows[i].max(initial=0.0) for rows in lost]))
        j = int(lost[k][i].argmax())
        if not lost[k][i, j] > 0:
            return False
        self.children[number] = len(self.tree)
        self.tree[number] = Split(self.chain.bends.index(k), j)
        self.tree += [None, None]
        turns = [None if turn is None else np.repeat(turn[i : i + 1], 2, axis=0) for turn in part.turns]
        phases = [
            Phases(np.repeat(p.signs[i : i + 1], 2, axis=0), np.repeat(p.factors[i : i + 1], 2, axis=0))
            for p in part.phases
        ]
        phases[k].signs[:, j] = 1.0, -1.0
        self.open.append(_Open([len(self.tree) - 2, len(self.tree) - 1], turns, phases))
        return True


def _together(parts: list[_Open]) -> _Open:
    """Nodes side by side."""
    if len(parts) == 1:
        return parts[0]
    turns: Turns = []
    for column in zip(*(part.turns for part in parts), strict=True):
        rows = [turn for turn in column if turn is not None]
        turns.append(np.concatenate(rows) if rows else None)
    phases = [
        Phases(np.concatenate([p.signs for p in column]), np.concatenate([p.factors for p in column]))
        for column in zip(*(part.phases for part in parts), strict=True)
    ]
    return _Open([number for part in parts for number in part.numbers], turns, phases)


def worst_leaf(chain: Chain, row: FloatArray, tree: Tree) -> float:
    """The largest bound of ``row @ f(x)`` on a leaf of a tree; :class:`InputError` for what is no tree."""
    leaves = list(_paths(chain, tree))
    worst = -np.inf
    for start in range(0, len(leaves), BATCH):
        part = leaves[start : start + BATCH]
        turns, phases = first_turns(chain.layers, chain.known, len(part)), chain.free(len(part))
        for i, (signs, leaf) in enumerate(part):
            for (k, j), sign in signs.items():
                phases[chain.bends[k]].signs[i, j] = sign
            for k, j, number in leaf.factors:
                phases[chain.bends[k]].factors[i, j] = number
            for k, j, number in leaf.slopes:
                slopes, turn = chain.layers[chain.bends[k]].slopes, turns[chain.bends[k]]
                assert slopes is not None and turn is not None
                turn[i, j] = min(max(number, min(slopes[j], 1.0)), max(slopes[j], 1.0))
        with np.errstate(all="ignore"):
            found = chain.bounds(row, turns, phases)
        worst = max(worst, float(np.where(np.isnan(found), np.inf, found).max()))
    return worst


def _paths(chain: Chain, tree: Tree) -> list[tuple[dict[tuple[int, int], float], Leaf]]:
    """Every leaf with the signs above it; everything is a number of a neuron that bends."""
    found: list[tuple[dict[tuple[int, int], float], Leaf]] = []
    stack: list[dict[tuple[int, int], float]] = [{}]
    sizes = [len(chain.known[k].low) for k in chain.bends]
    for entry in tree:
        if not stack:
            raise InputError("certificate: expected a tree of signs that ends")
        signs = stack.pop()
        numbers = [(*entry, 0.0)] if isinstance(entry, Split) else [*entry.slopes, *entry.factors]
        for k, j, number in numbers:
            if not (0 <= k < len(sizes) and 0 <= j < sizes[k] and -np.inf < number < np.inf):
                raise InputError("certificate: expected numbers of neurons that bend")
        if isinstance(entry, Split):
            stack += [signs | {(entry.layer, entry.neuron): sign} for sign in (-1.0, 1.0)]
        elif any(number < 0 for _, _, number in entry.factors):
            raise InputError("certificate: expected factors that are not negative")
        else:
            found.append((signs, entry))
    if stack:
        raise InputError("certificate: expected a whole tree of signs")
    return found
