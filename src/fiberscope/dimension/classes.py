"""Which values of a program are one and the same function of the parameters, as long as these move a little.

At a fixed input, two entries of a convolution with equal patches stay equal whatever the kernel does; what sits behind
a neuron that is off stays zero. Entries get numbers as in :mod:`fiberscope.network.equal_entries`: equal numbers mean
equal functions near the parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np
from scipy import sparse as sp

from fiberscope.network.convolutions import Convolution
from fiberscope.network.equal_entries import (
    Numbering,
    added,
    bits,
    constants,
    convolved,
    maxima,
    scaled,
    shifted,
)
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense, Gather, Operator, Scale
from fiberscope.numerics.algebra.base import joined
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray


@dataclass(slots=True)
class _Numbering(Numbering):
    """Also with the numbers of ReLUs at their kink: zero here, and nowhere negative."""

    positive: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True, eq=False)
class OpenTies:
    """Ties of one point that the classes do not resolve.

    ``entries[k]`` are the results of node ``k`` that depend on the side of a tie, and ``ties[k]`` which tie it is,
    numbered from 0 to ``count``; results of one class have one number, also behind a pool that hands one on.
    ``signs[k]`` says to which tie each entry of the node's part of the sign vector belongs, -1 for none.
    """

    entries: dict[int, IntArray]
    ties: dict[int, IntArray]
    signs: dict[int, IntArray]
    count: int

    def before(self, node: int) -> OpenTies:
        """The ties of the nodes before one; the numbers stay."""
        entries = {k: part for k, part in self.entries.items() if k < node}
        ties = {k: part for k, part in self.ties.items() if k < node}
        return OpenTies(entries, ties, {k: part for k, part in self.signs.items() if k < node}, self.count)

    def without(self, node: int, closed: IntArray) -> OpenTies:
        """Some ties of a node taken out; the numbers stay."""
        kept = ~np.isin(self.ties[node], closed)
        signs = np.where(np.isin(self.signs[node], closed), -1, self.signs[node])
        return OpenTies(
            {**self.entries, node: self.entries[node][kept]},
            {**self.ties, node: self.ties[node][kept]},
            {**self.signs, node: signs},
            self.count,
        )


def open_ties(net: Network, x: FloatArray, signs: SignArray) -> OpenTies:
    """Follow the classes of one point ``(in_size,)`` with its certified signs ``(num_signs,)``.

    A walk of its own and no algebra: affine maps count by the names of their parameters, and a switch gives more than
    a value.
    """
    numbering = _Numbering()
    values = [constants(numbering, x[:, None])]
    found: dict[int, tuple[IntArray, IntArray, IntArray]] = {}
    for index, node in enumerate(net.nodes):
        sources = [values[s] for s in node.sources]
        switched: tuple[IntArray, IntArray, IntArray] | None = None
        match node:
            case Affine():
                value = _affine(numbering, node, sources[0])
            case PiecewiseLinear():
                switched = _piecewise(numbering, node, sources[0], signs[net.layout.of_node[index].columns])
            case MaxPool():
                switched = _pooled(numbering, node, sources[0], signs[net.layout.of_node[index].columns])
            case Add():
                value = added(numbering, sources)
            case Concat():
                value = joined(sources, node.order)
            case _:
                assert_never(node)
        if switched is not None:
            value, opened, owners = switched
            if len(opened):
                found[index] = (opened, value[opened], owners)
        values.append(value)
    names = np.unique(np.concatenate([np.zeros(0, np.int64), *(classes for _, classes, _ in found.values())]))
    ties = {k: np.searchsorted(names, classes) for k, (_, classes, _) in found.items()}
    owned = {k: np.where(owners < 0, -1, ties[k][np.maximum(owners, 0)]) for k, (_, _, owners) in found.items()}
    return OpenTies({k: opened for k, (opened, _, _) in found.items()}, ties, owned, len(names))


# --- nodes -----------------------------------------------------------------------------------------------


def _affine(numbering: Numbering, node: Affine, before: IntArray) -> IntArray:
    value = before
    for stage, place in zip(node.operator.stages(), node.operator.places(), strict=True):
        value = _linear(numbering, stage, None if node.weight_name is None else (node.weight_name, place.start), value)
    if node.bias is None or node.offset is None:
        return value
    if node.bias_name is None:
        return shifted(numbering, node.offset, value)
    places = np.broadcast_to(np.arange(node.bias.size).reshape(node.bias.shape), node.operator.out_shape).reshape(-1)
    return numbering.take((node.bias_name, "bias"), np.column_stack([places, value]))[:, 0]


def _linear(numbering: Numbering, stage: Operator, name: Any, before: IntArray) -> IntArray:
    """Numbers behind a linear map; ``name`` says which parameter its coefficients are, None that they are constants."""
    if isinstance(stage, Convolution):
        return convolved(numbering, stage, id(stage) if name is None else name, before)
    if isinstance(stage, Scale):
        return _scale(numbering, stage, name, before)
    if isinstance(stage, Gather) and name is None:
        return np.where(stage.index < 0, 0, before[stage.index])
    # Every coefficient of a matrix stands at one place only, so no two results are equal unless nothing reaches them;
    # where a transposed convolution makes equal ones, they are not noticed.
    fresh = numbering.take(id(stage) if name is None else name, before[None], stage.out_size)[0]
    return np.where(_reached(stage, name is None, before != 0), fresh, 0)


def _reached(stage: Operator, constant: bool, alive: BoolArray) -> BoolArray:
    if isinstance(stage, Dense) and not constant:
        return np.full(stage.out_size, bool(alive.any()))
    matrix = stage.sparse()
    weights = (matrix.data != 0) if constant else np.ones(len(matrix.data), dtype=bool)
    pattern = sp.csr_array((weights.astype(np.float64), matrix.indices, matrix.indptr), shape=matrix.shape)
    return np.asarray(pattern @ alive.astype(np.float64) > 0)


def _scale(numbering: Numbering, stage: Scale, name: Any, before: IntArray) -> IntArray:
    if name is None:
        return scaled(numbering, stage.sparse().diagonal(), before)
    own = stage.coefficients
    places = stage.with_coefficients(np.arange(1.0, own.size + 1).reshape(own.shape)).sparse().diagonal()
    numbers = numbering.take((name, "scale"), np.column_stack([places.astype(np.int64), before]))[:, 0]
    return np.where(before == 0, 0, numbers)


# --- switches: numbers, results that stay open, and for every sign the place among those or -1 -----------------


def _piecewise(
    numbering: _Numbering, node: PiecewiseLinear, before: IntArray, signs: SignArray
) -> tuple[IntArray, IntArray, IntArray]:
    rows = np.column_stack([bits(node.slopes), before])
    bent = numbering.take("slope", rows)[:, 0]
    off = np.where((node.slopes == 0) | (before == 0), 0, bent)
    value = np.where(signs > 0, before, off)
    opened = np.flatnonzero((signs == 0) & (before != 0))
    if len(opened):
        value[opened] = numbering.take("kink", rows[opened])[:, 0]
        numbering.positive.update(value[opened[node.slopes[opened] == 0]].tolist())
    owners = np.full(len(signs), -1)
    owners[opened] = np.arange(len(opened))
    return value, opened, owners


def _pooled(
    numbering: _Numbering, node: MaxPool, before: IntArray, signs: SignArray
) -> tuple[IntArray, IntArray, IntArray]:
    best = signs.reshape(node.windows.shape) >= 0
    members = np.where(best, before[np.maximum(node.windows, 0)], -1)
    first = np.take_along_axis(members, best.argmax(axis=1)[:, None], axis=1)
    opened = np.flatnonzero(((members != first) & best).any(axis=1))
    value = first[:, 0].copy()
    if len(opened):
        # the first member stands in for all that take no part
        value[opened] = maxima(numbering, _undominated(numbering, np.where(best, members, first)[opened]))
    owners = np.full(node.windows.shape, -1)
    owners[opened] = np.arange(len(opened))[:, None]
    return value, opened, np.where(best, owners, -1).reshape(-1)


def _undominated(numbering: _Numbering, sets: IntArray) -> IntArray:
    """The constant zero is never above a ReLU at its kink: such a one stands in for it."""
    positive: BoolArray = np.asarray(np.isin(sets, list(numbering.positive)), dtype=bool)
    other = np.take_along_axis(sets, positive.argmax(axis=1)[:, None], axis=1)
    return np.where((sets == 0) & positive.any(axis=1, keepdims=True), other, sets)
