"""A box that was split again and again: the tree of splits, and its leaves.

A tree is a list in preorder: ``(d, v)`` cuts a box in coordinate ``d`` at ``v``, first comes the part ``x_d <= v``,
then the part ``x_d >= v``; None is a leaf. The leaves cover the box whatever the cuts are, as long as every cut is
inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.floats import FloatArray

Cut = tuple[int, float]
Tree = Sequence[Cut | None]


def leaves(tree: Tree, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The boxes of the leaves, ``(count, n)`` lower and upper ends, in the order of the list.

    >>> low, high = leaves([(0, 0.5), None, None], np.zeros(1), np.ones(1))
    >>> low.tolist(), high.tolist()
    ([[0.0], [0.5]], [[0.5], [1.0]])
    """
    lows, highs = [], []
    waiting = [(low, high)]
    for node in tree:
        if not waiting:
            raise InputError("tree of splits: expected as many leaves as splits and one, got more nodes")
        bottom, top = waiting.pop()
        if node is None:
            lows.append(bottom)
            highs.append(top)
            continue
        first, second = halves(bottom, top, *node)
        waiting += [second, first]
    if waiting:
        raise InputError("tree of splits: expected as many leaves as splits and one, got fewer")
    return np.array(lows), np.array(highs)


Sides = tuple[FloatArray, FloatArray]


def halves(low: FloatArray, high: FloatArray, dimension: int, value: float) -> tuple[Sides, Sides]:
    """The two parts of a box."""
    if not 0 <= dimension < low.size or not low[dimension] <= value <= high[dimension]:
        raise InputError(f"tree of splits: expected a cut inside of the box, got {value} in coordinate {dimension}")
    middle_high, middle_low = high.copy(), low.copy()
    middle_high[dimension] = middle_low[dimension] = value
    return (low, middle_high), (middle_low, high)


class Growing:
    """A tree that grows: node 0 is the root, the children of a split stand side by side."""

    def __init__(self) -> None:
        self.cuts: list[Cut | None] = [None]
        self.child: list[int] = [0]

    def split(self, node: int, cut: Cut) -> int:
        """Cut a leaf; the number of its first child, the second is the next one."""
        self.cuts[node], self.child[node] = cut, len(self.cuts)
        self.cuts += [None, None]
        self.child += [0, 0]
        return self.child[node]

    def graft(self, node: int, tree: Tree) -> list[int]:
        """Put a whole tree in the place of a leaf; the numbers of its leaves in order."""
        found: list[int] = []
        waiting = [node]
        for cut in tree:
            at = waiting.pop()
            if cut is None:
                found.append(at)
            else:
                first = self.split(at, cut)
                waiting += [first + 1, first]
        return found

    def preorder(self) -> list[Cut | None]:
        """As a list."""
        return [self.cuts[node] for node in self._walk()]

    def graft_order(self) -> list[int]:
        """The numbers of the leaves in the order of the list."""
        return [node for node in self._walk() if self.cuts[node] is None]

    def _walk(self) -> Iterator[int]:
        waiting = [0]
        while waiting:
            node = waiting.pop()
            yield node
            if self.cuts[node] is not None:
                waiting += [self.child[node] + 1, self.child[node]]


def tree_of(found: object) -> tuple[Cut | None, ...]:
    """A tree out of JSON; what is not one raises :class:`InputError`."""
    if not isinstance(found, list | tuple) or not found:
        raise InputError("tree of splits: expected a list of splits and leaves")
    return tuple(None if node is None else _cut(node) for node in found)


def _cut(node: object) -> Cut:
    if not isinstance(node, list | tuple) or len(node) != 2:
        raise InputError("tree of splits: expected [coordinate, value] or null for every node")
    d, value = node
    if isinstance(d, bool) or not isinstance(d, int) or isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("tree of splits: expected an integer and a number for every split")
    return d, float(value)
