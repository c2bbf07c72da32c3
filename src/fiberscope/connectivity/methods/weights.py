"""Matching by weights: the element of the permutation group that brings the tensors of ``b`` closest to those of ``a``.

``|a - g b|^2`` over all parameters is smallest where the sum of inner products ``<a_t, (g b)_t>`` over the tensors is
largest. With all groups but one held, that sum is linear in the permutation of the one: ``sum_i M_{i p(i)}``, where the
matrix of *gains* ``M_ij`` adds up the inner products of neuron ``i`` of ``a`` with neuron ``j`` of ``b`` over all
places of the group, biases and norms included. So the best permutation is an assignment, and going round the groups
never worsens the distance (Ainsworth et al. 2023, "Git Re-Basin", algorithm 1).

Where this differs. *Start*: groups are taken in the order in which they become known, those beside pinned axes (inputs,
outputs, rows of embeddings) first, and each sees only the tensors whose other groups were taken before; a planted
permutation is found in this first round. *Blocks* such as heads move together with the orders inside them
(:mod:`fiberscope.connectivity.methods.families`). *A group on two axes of one tensor*, as in recurrent layers, has
a quadratic gain: its move is made only if the measured distance falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fiberscope.connectivity.methods.families import Family, best, element_of, families
from fiberscope.errors import InputError
from fiberscope.modules.action import PERMUTATION, Axis, Group, act, members
from fiberscope.network.action.element import Element
from fiberscope.numerics.cutoffs import PROGRESS
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import ENDLESS, Run

ROUNDS = 100
"""Rounds over all groups, at most; some ten are usual."""

Note = Callable[[Element], None]


class Moving(Mapping[str, Tensor]):
    """Tensors that are read when they are asked for, and then moved by an element: nothing is kept in memory."""

    def __init__(
        self,
        read: Callable[[str], Tensor],
        sizes: Mapping[str, int],
        groups: Sequence[Group],
        element: Element | None = None,
    ) -> None:
        self.read, self.sizes, self.groups, self.element = read, sizes, groups, element or Element({})

    def __getitem__(self, name: str) -> Tensor:
        value = {name: _workable(self.read(name))}
        for group in self.groups:
            axes = [axis for axis in group.axes if axis.tensor == name]
            if axes and group.name in self.element and not self.element[group.name].is_identity:
                value = act(self.element[group.name], axes, value)
        return value[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def moved(self, element: Element) -> Moving:
        return Moving(self.read, self.sizes, self.groups, element @ self.element)


@dataclass(frozen=True)
class Weights:
    """Tensors of two models face to face, and the groups that may move those of ``b``; see :class:`Problem`.

    >>> weight = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> pair = Weights((Group("h", 2, (Axis("w", 0),)),), {"w": weight}, {"w": weight.flip(0)})
    >>> pair.gains(pair.groups[0])
    array([[[0., 1.],
            [4., 0.]]], dtype=float32)
    """

    groups: tuple[Group, ...]
    a: Mapping[str, Tensor]
    b: Mapping[str, Tensor]
    hidden: frozenset[str] = frozenset()
    """Tensors that are left aside for now."""

    @classmethod
    def between(cls, groups: Sequence[Group], a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Self:
        """Of the tensors that the groups move, in float32 at least; axes on others (buffers, say) do not count."""
        known = tuple(replace(one, axes=tuple(axis for axis in one.axes if axis.tensor in a)) for one in groups)
        names = dict.fromkeys(axis.tensor for group in known for axis in group.axes)
        left, right = ({name: _workable(side[name]) for name in names} for side in (a, b))
        return cls(known, left, right)

    def gains(self, group: Group) -> FloatArray:
        total: Tensor | None = None
        for _, x, y in self.rows(group):
            part = x @ y.transpose(-1, -2)
            total = part if total is None else total.add_(part)
        if total is None:
            return np.zeros((group.copies, group.size, group.size))
        return np.asarray(total.cpu().numpy())

    def scores(self, group: Group) -> FloatArray:
        parts = [torch.linalg.vecdot(x, y).double() for _, x, y in self.rows(group)]
        return np.asarray(torch.stack(parts).sum(0).cpu().numpy() if parts else np.zeros((group.copies, group.size)))

    def moved(self, element: Element) -> Self:
        if isinstance(self.b, Moving):
            return replace(self, b=self.b.moved(element))
        b = dict(self.b)
        for group in self.groups:  # a parent stands before what is inside it, and moves first
            if group.name in element and not element[group.name].is_identity:
                axes = [axis for axis in group.axes if axis.tensor in b and axis.tensor not in self.hidden]
                b |= act(element[group.name], axes, b)
        return replace(self, b=b)

    def value(self, names: Sequence[str]) -> tuple[float, float]:
        """The sum of inner products over some tensors, added in float64; and how much of it may be rounding."""
        total, rounding = 0.0, 0.0
        for name in names:
            x, y = self.a[name], self.b[name]
            total += torch.sum(x * y, dtype=torch.float64).item()
            rounding += PROGRESS * torch.finfo(x.dtype).eps * torch.sum(x.square()).item()
        return total, rounding

    def held(self, tree: Family) -> Self:
        """The same with the tensors of a family in memory, which is asked for them again and again."""
        if not isinstance(self.b, Moving) or not tree.inside:
            return self
        names = _tensors(tree) - self.hidden
        a, b = ({name: side[name] for name in names} for side in (self.a, self.b))
        return replace(self, a=a, b=b, groups=tuple(tree.groups), hidden=frozenset())

    def distance(self) -> float:
        """``|a - b|`` over the tensors that can move, added in float64."""
        parts = (torch.sum((self.a[name] - self.b[name]).square(), dtype=torch.float64).item() for name in self.a)
        return float(np.sqrt(sum(parts)))

    def of(self, groups: Sequence[Group]) -> Self:
        """The same with only these groups to move."""
        names = {group.name for group in groups}
        return replace(self, groups=tuple(group for group in self.groups if group.name in names))

    def squares(self, group: Group) -> tuple[FloatArray, FloatArray]:
        """The squared lengths of the neurons of ``a`` and ``b`` over all places of a group, ``(copies, n)``."""
        found = np.zeros((2, group.copies, group.size))
        for _, *sides in self.rows(group):
            for k, side in enumerate(sides):
                found[k] += torch.linalg.vecdot(side, side).double().cpu().numpy()
        return found[0], found[1]

    def check(self) -> None:
        """Raise :class:`InputError`, which names the tensor, unless all numbers are finite."""
        for side, found in (("a", self.a), ("b", self.b)):
            for name, value in found.items():
                if value.numel() and not bool(torch.isfinite(torch.linalg.vector_norm(value, torch.inf))):
                    raise InputError(f"{side}: expected finite weights, got NaN or infinity in {name}")

    def only(self, names: set[str]) -> Self:
        """The same with all other tensors left aside."""
        return replace(self, hidden=frozenset(self.a.keys() - names))

    def rows(self, group: Group) -> Iterator[tuple[Axis, Tensor, Tensor]]:
        """For every place of a group both sides as ``(copies, members, everything that moves along)``."""
        for axis in group.axes:
            if axis.tensor in self.a and axis.tensor not in self.hidden:
                x, y = (members(side[axis.tensor], axis, group.size, group.copies) for side in (self.a, self.b))
                yield axis, x.reshape(group.copies, group.size, -1), y.reshape(group.copies, group.size, -1)


def descend(
    start: Weights, seed: int | None = None, run: Run = ENDLESS, rounds: int = ROUNDS
) -> tuple[Element, Weights]:
    """Go round the families until no move helps; the element that does it all, and the pair after it.

    ``seed`` draws the order of the families in every round; without one, it begins with a round in the order in which
    they become known.
    """
    trees = movable(start)
    neighbours = {id(tree): _tensors(tree) for tree in trees}
    element = Element({})
    pair = start
    if seed is None:
        element, pair = known_first(start, trees, run)
        if pair.distance() == 0:  # nothing is nearer
            return element, pair
    rng = np.random.default_rng(seed)
    changed = {id(tree) for tree in trees}
    for _ in range(rounds):
        for k in rng.permutation(len(trees)):
            tree = trees[k]
            if id(tree) not in changed:
                continue
            changed.discard(id(tree))
            run.step(len(trees) - len(changed), len(trees), "matching by weights")
            move = element_of(tree, best(tree, pair.held(tree), run))
            if move.is_identity:
                continue
            after = pair.moved(move)
            mine = sorted(neighbours[id(tree)])
            (old, rounding), (new, _) = pair.value(mine), after.value(mine)
            if new - old > rounding:
                element, pair = move @ element, after
                changed |= {id(one) for one in trees if one is not tree and neighbours[id(one)] & neighbours[id(tree)]}
                if _double(tree):
                    changed.add(id(tree))
        if not changed:
            break
    return element, pair


def movable(pair: Weights) -> tuple[Family, ...]:
    """The families of permutations of a pair."""
    return families([group for group in pair.groups if group.kind == PERMUTATION])


def known_first(
    pair: Weights, trees: Sequence[Family], run: Run, begun: Element | None = None, note: Note | None = None
) -> tuple[Element, Weights]:
    """Every family once, the best known one first: the one with most of its entries in tensors that are settled.

    ``begun`` is an element that an earlier run had come to; ``note`` is told what to begin with another time.
    """
    element = begun or Element({})
    pair = pair.moved(element)
    open_ = [tree for tree in trees if tree.group.name not in element]
    while open_:
        run.step(len(trees) - len(open_), len(trees), "matching by weights")
        settled = {id(tree): _settled(tree, open_) for tree in open_}
        share = {id(tree): _size(pair, settled[id(tree)]) / max(1, _size(pair, _tensors(tree))) for tree in open_}
        tree = max(open_, key=lambda one: share[id(one)])
        open_.remove(tree)
        seen = settled[id(tree)] or _tensors(tree)
        move = element_of(tree, best(tree, pair.only(seen).held(tree), run))
        element, pair = move @ element, pair.moved(move)
        if note is not None:
            note(element)
    return element, pair


def _settled(tree: Family, open_: Sequence[Family]) -> set[str]:
    others = set().union(*(_tensors(one) for one in open_ if one is not tree))
    return _tensors(tree) - others - _double(tree)


def _tensors(tree: Family) -> set[str]:
    return {axis.tensor for group in tree.groups for axis in group.axes}


def _double(tree: Family) -> set[str]:
    """Tensors on two of whose axes a family stands."""
    axes = {(axis.tensor, axis.axis) for group in tree.groups for axis in group.axes}
    return {name for name, _ in axes if sum(other == name for other, _ in axes) > 1}


def _size(pair: Weights, names: set[str]) -> int:
    sizes = pair.b.sizes if isinstance(pair.b, Moving) else None
    return sum(pair.a[name].numel() if sizes is None else sizes[name] for name in names)


def _workable(tensor: Tensor) -> Tensor:
    """Without history, and in a type whose sums of products mean something."""
    tensor = tensor.detach()
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def by_weights(pair: Weights, restarts: int = 0, seed: int = 0, run: Run = ENDLESS) -> Element:
    """The best of several descents; never one that is farther than ``b`` as it stands."""
    element, after = descend(pair, run=run)
    best_one, nearest = element, after.distance()
    if not nearest <= pair.distance():
        best_one, after = descend(pair, seed, run)
        nearest = after.distance()
    rng = np.random.default_rng(seed)
    movable = [group for group in pair.groups if group.kind == PERMUTATION]
    for _ in range(restarts):
        start = Element({group.name: group.random(rng) for group in movable})
        element, after = descend(pair.moved(start), int(rng.integers(1 << 31)), run)
        if (distance := after.distance()) < nearest:
            best_one, nearest = element @ start, distance
    return best_one if nearest < pair.distance() else Element({group.name: group.identity() for group in movable})


def cosines(before: Weights, after: Weights, group: Group) -> tuple[tuple[float, float, float, float], tuple[int, int]]:
    """How alike the tensors of a group are, as cosines: at the element found, as they stood, and at random, with its
    deviation; and how many neurons of ``a`` and ``b`` are zero.

    The random ones are all permutations of the group, with the other groups as found, in closed form (Hoeffding 1951).
    """
    left, right = after.squares(group)
    scale = float(np.sqrt(left.sum() * right.sum())) or 1.0
    gains = after.gains(group).astype(np.float64)
    n = group.size
    best_one = float(np.trace(gains, axis1=1, axis2=2).sum()) / scale
    now = float(before.scores(group).sum()) / scale
    random = float(gains.sum()) / n / scale
    gains -= gains.mean(axis=1, keepdims=True)
    gains -= gains.mean(axis=2, keepdims=True)
    deviation = float(np.sqrt(np.square(gains).sum() / max(1, n - 1))) / scale
    return (best_one, now, random, deviation), (int((left == 0).sum()), int((right == 0).sum()))
