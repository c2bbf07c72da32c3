"""Paths between two parameters of one hidden layer, on all of space or on the orthant, that are the same function.

What a layer needs is its *core*: one neuron for every hyperplane and orientation, with all of its weight, and the
linear neurons of an orthant. The others (dead, constant, doubled, cancelling) can hand over their outgoing weights, and
then their rows are free. So a path has three parts: the weights go to the core; rows are rescaled, spare rows move,
linear neurons are mixed; and the weights go where the other parameter has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fiberscope.fibers.one_layer.factorisations import realises
from fiberscope.fibers.one_layer.layer import LINEAR, NONLINEAR, OneLayer
from fiberscope.fibers.paths.block_paths import BlockPath, join_factors
from fiberscope.numerics.cutoffs import SAME_ROWS
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.ulps import ROWS

_PLACES = 17
"""Where a path between linear neurons is looked at."""

REVERSED = "is reversed"
"""The end of a reason that names a neuron which looks to the other side of its hyperplane."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerPath:
    """Three moves, each from 0 to 1, and the order in which the neurons of the second layer stand at the end."""

    gather: Callable[[float], OneLayer]
    move: Callable[[float], OneLayer]
    spread: Callable[[float], OneLayer]
    order: IntArray


@dataclass(frozen=True, eq=False)
class Core:
    """The neurons of a layer by what they do; rows of one hyperplane agree up to rounding."""

    layer: OneLayer

    @cached_property
    def units(self) -> tuple[FloatArray, FloatArray]:
        """Rows with largest entry 1, and what they were divided by."""
        size = np.abs(self.layer.rows).max(axis=1)
        return self.layer.rows / np.where(size > 0, size, 1.0)[:, None], size

    @cached_property
    def groups(self) -> list[list[int]]:
        """Nonlinear neurons of one hyperplane and orientation.

        A neuron joins a group if its weight on the row of the first one changes no coefficient of the layer beyond the
        rounding of the terms that it is a sum of.
        """
        (units, size), V = self.units, np.abs(self.layer.V)
        allowed = ROWS * (V @ np.abs(self.layer.rows))
        found: list[list[int]] = []
        for i in self.layer.where(NONLINEAR):
            away = [np.outer(V[:, i] * size[i], np.abs(units[g[0]] - units[i])) for g in found]
            near = [k for k, off in enumerate(away) if (off <= allowed).all() and units[found[k][0]] @ units[i] > 0]
            if near:
                found[near[0]].append(i)
            else:
                found.append([i])
        return found

    @cached_property
    def bent(self) -> dict[int, tuple[FloatArray, list[int]]]:
        """For one neuron of every group with a weight: that weight for the row of largest entry 1, and the group."""
        size, V, found = self.units[1], self.layer.V, {}
        for group in self.groups:
            parts = V[:, group] * size[group]
            total = parts.sum(axis=1)
            if (np.abs(total) > ROWS * np.abs(parts).sum(axis=1)).any():
                first = group[int(np.abs(parts).max(axis=0).argmax())]
                found[first] = (total, group)
        return found

    @cached_property
    def linear(self) -> list[int]:
        """Neurons that carry a linear map."""
        return self.layer.where(LINEAR) if self.layer.orthant else []

    @cached_property
    def spare(self) -> list[int]:
        """All others."""
        used = {*self.bent, *self.linear}
        return [i for i in range(self.layer.n) if i not in used]

    @cached_property
    def gathered(self) -> OneLayer:
        """The layer with all weights on its core; constants go into the output bias."""
        layer = self.layer
        V, c = layer.V.copy(), layer.c.copy()
        if not layer.orthant:
            constant = layer.where(LINEAR)
            c = c + V[:, constant] @ layer.b[constant]
        V[:, self.spare] = 0.0
        for i, (total, _) in self.bent.items():
            V[:, i] = total / self.units[1][i]
        return OneLayer(layer.W, layer.b, V, c, layer.orthant)

    def gathering(self, s: float) -> OneLayer:
        """The way there: outgoing weights and the output bias on a segment."""
        a, b = self.layer, self.gathered
        return OneLayer(a.W, a.b, (1 - s) * a.V + s * b.V, (1 - s) * a.c + s * b.c, a.orthant)


def join_layers(first: OneLayer, second: OneLayer) -> LayerPath | str:
    """A path between two layers that are the same function, or why none is known."""
    a, b = Core(first), Core(second)
    pairs = _matched(a, b)
    if isinstance(pairs, str):
        return pairs
    block = join_factors(
        (first.V[:, a.linear], first.W[a.linear]), (second.V[:, b.linear], second.W[b.linear])
    )  # fmt: skip
    if isinstance(block, str):
        return block
    if not _holds(block, first, a.linear):
        return "the linear neurons are joined through terms whose rounding shows"
    order = np.empty(first.n, dtype=np.int64)
    for i, j in pairs.items():
        order[i] = j
    order[a.linear] = np.array(b.linear, dtype=np.int64)[block.order]
    order[a.spare] = b.spare
    end = _ordered(b.gathered, order)
    move = _moving(a, end, list(pairs), block)
    if not _close(move(1.0), end):
        return "the members differ otherwise"
    return LayerPath(a.gathering, move, lambda s: _ordered(b.gathering(1 - s), order), order)


def _holds(block: BlockPath, layer: OneLayer, linear: list[int]) -> bool:
    """Whether the linear neurons realise their map, up to rounding, at places along the path."""
    exact = layer.linear_part([])
    size = max(float((np.abs(V) @ np.abs(W)).max(initial=0.0)) for V, W in (block.at(0.0), block.at(1.0)))
    return not linear or all(realises(exact, *block.at(s), size) for s in np.linspace(0.0, 1.0, _PLACES))


def _ordered(layer: OneLayer, order: IntArray) -> OneLayer:
    return OneLayer(layer.W[order], layer.b[order], layer.V[:, order], layer.c, layer.orthant)


def _matched(a: Core, b: Core) -> dict[int, int] | str:
    """For every bent neuron of the first core that of the second one with the same row and weight."""
    pairs: dict[int, int] = {}
    for i, (weight, _) in a.bent.items():
        row = a.units[0][i]
        for sign in (1.0, -1.0):
            near = [j for j in b.bent if np.abs(b.units[0][j] - sign * row).max() <= SAME_ROWS]
            if near and sign < 0:
                return f"neuron {i} of the last hidden layer {REVERSED}"
            if near:
                pairs[i] = near[0]
                break
        else:
            return f"the hyperplane of neuron {i} of the last hidden layer has no counterpart"
        if not np.abs(b.bent[pairs[i]][0] - weight).max() <= SAME_ROWS * np.abs(weight).max():
            return f"neurons of both orientations share the hyperplane of neuron {i} in another way"
    if len(pairs) < len(b.bent):
        return "the other network has neurons on more sides of hyperplanes"
    return pairs


def _moving(a: Core, end: OneLayer, bent: list[int], block: BlockPath) -> Callable[[float], OneLayer]:
    """Bent rows are rescaled, spare ones go straight, linear ones along their path; the output bias makes up."""
    start, sizes = a.gathered, np.abs(end.rows).max(axis=1)
    ratio = np.ones(start.n)
    ratio[bent] = sizes[bent] / a.units[1][bent]
    constant = start.c + start.V[:, a.linear] @ start.b[a.linear]
    ends = [_offsets(layer, a.linear) for layer in (start, end)]

    def at(s: float) -> OneLayer:
        W, b, V = start.W.copy(), start.b.copy(), start.V.copy()
        scale = ratio**s
        W, b, V = W * scale[:, None], b * scale, V / scale
        for i in a.spare:
            W[i], b[i] = (1 - s) * start.W[i] + s * end.W[i], (1 - s) * start.b[i] + s * end.b[i]
        if a.linear:
            V[:, a.linear], W[a.linear] = block.at(s)
            b[a.linear] = _sums(W[a.linear]) * ((1 - s) * ends[0] + s * ends[1])
        return OneLayer(W, b, V, constant - V[:, a.linear] @ b[a.linear], start.orthant)

    return at


def _offsets(layer: OneLayer, linear: list[int]) -> FloatArray:
    """Biases of linear neurons for rows of sum 1: those that grow with their rows stay beside them."""
    return np.asarray(layer.b[linear] / _sums(layer.W[linear]))


def _sums(W: FloatArray) -> FloatArray:
    sums = W.sum(axis=1)
    return np.where(sums > 0, sums, 1.0)


def _close(a: OneLayer, b: OneLayer) -> bool:
    pairs = ((a.W, b.W), (a.b, b.b), (a.V, b.V))
    same = all(np.abs(x - y).max(initial=0.0) <= SAME_ROWS * np.abs(y).max(initial=0.0) for x, y in pairs)
    scale = np.abs(a.c) + np.abs(a.V) @ np.abs(a.b)
    return bool(same and (np.abs(a.c - b.c) <= SAME_ROWS * scale).all())
