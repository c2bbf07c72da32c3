"""What a neuron does: dead, linear or switching, on a batch by certified signs or for every input by its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear
from fiberscope.network.operators import Operator
from fiberscope.network.walk import walk
from fiberscope.numerics.algebra.base import LinearMap, gather, joined
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.results import Tabular, hidden, named


@dataclass(frozen=True, slots=True, eq=False)
class Roles(Tabular):
    """One role for every hidden neuron; the three masks are ``(num_hidden,)`` and exclude each other.

    ``layers`` gives the activation layer of each neuron, counted from 1. ``on_boundary`` counts the pairs of a point
    and a neuron whose preactivation is exactly zero.
    """

    dead: BoolArray = field(metadata=named(told=np.flatnonzero))
    linear: BoolArray = field(metadata=named(told=np.flatnonzero))
    switching: BoolArray = field(metadata=named(told=np.flatnonzero))
    layers: IntArray = field(metadata=hidden())
    where: str
    on_boundary: int = 0

    told = ("layers=per_layer",)
    frame = "per_layer"

    def per_layer(self) -> list[dict[str, int]]:
        """Counts of every role in every layer."""
        return [
            {
                "layer": int(layer),
                "width": int((self.layers == layer).sum()),
                "dead": int(self.dead[self.layers == layer].sum()),
                "linear": int(self.linear[self.layers == layer].sum()),
                "switching": int(self.switching[self.layers == layer].sum()),
            }
            for layer in np.unique(self.layers)
        ]

    def __repr__(self) -> str:
        return (
            f"Roles({int(self.dead.sum())} dead, {int(self.linear.sum())} linear, "
            f"{int(self.switching.sum())} switching {self.where})"
        )


def roles(net: Network, X: Any) -> Roles:
    """Roles of the hidden neurons on a batch ``X`` of shape ``(points, in_size)``, by certified signs.

    *dead*: never positive on the batch and the activation is zero there; *linear*: the activation acts as one and the
    same linear map on the whole batch (never negative; or never positive with a leaky slope; or linear by itself);
    *switching*: both signs occur.

    >>> net = Network([[[1.0], [1.0], [-1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 9.0, -9.0], [0.0]])
    >>> roles(net, [[-1.0], [1.0]]).per_layer()
    [{'layer': 1, 'width': 3, 'dead': 1, 'linear': 1, 'switching': 1}]
    """
    signs = net.signs(X).signs
    return _from_extremes(net, signs.min(axis=0), signs.max(axis=0), f"on {len(signs)} points", signs)


def structural_roles(net: NetworkLike) -> Roles:
    """Roles that hold for *every* input, read off the weights; what the weights do not decide counts as switching.

    What a value can be follows from what its inputs can be and from the signs of weights and biases: behind a ReLU all
    inputs are non-negative, so a neuron without positive weight or bias is dead and one without a negative weight or
    bias is linear; what is dead reaches nothing. A row of zeros makes a neuron constant.

    >>> net = Network([[[1.0]], [[-1.0], [2.0]], [[1.0, 1.0]]], [[0.0], [-1.0, 1.0], [0.0]])
    >>> structural_roles(net)
    Roles(1 dead, 1 linear, 1 switching for every input)
    """
    net = as_network(net)
    anything = np.ones(net.in_size, dtype=bool)
    values = {0: _Possible(anything, anything)}
    low, high = np.zeros(net.num_signs, dtype=np.int8), np.zeros(net.num_signs, dtype=np.int8)
    for index in walk(net.layout, values, _POSSIBLE_SIGNS):
        place = net.layout.of_node.get(index)
        if place is not None and isinstance(place.node, PiecewiseLinear):
            can = values[place.source]
            high[place.columns] = np.where(can.be_positive, 1, np.where(can.be_negative, -1, 0))
            low[place.columns] = np.where(can.be_negative, -1, np.where(can.be_positive, 1, 0))
    return _from_extremes(net, low, high, "for every input", None)


class _Possible(NamedTuple):
    """Which entries of a value can be positive, and which negative, for some input; vectors."""

    be_positive: BoolArray
    be_negative: BoolArray


class _PossibleSigns:
    """The signs that values can have, judged by the signs of coefficients."""

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: _Possible) -> _Possible:
        for stage in operator.stages():
            assert isinstance(stage, Operator)
            up, down = (x[None].astype(np.float64) for x in value)
            signs = np.sign(stage.coefficients)
            keep, turn = (stage.with_coefficients(np.maximum(s, 0.0)) for s in (signs, -signs))
            ways = (keep.apply(up) + turn.apply(down), keep.apply(down) + turn.apply(up))
            value = _Possible(*((way > 0)[0] for way in ways))
        if bias is None:
            return value
        return _Possible(value.be_positive | (bias > 0), value.be_negative | (bias < 0))

    def add(self, values: Sequence[_Possible]) -> _Possible:
        return _Possible(*(np.logical_or.reduce(x) for x in zip(*values, strict=True)))

    def concat(self, values: Sequence[_Possible], order: IntArray | None) -> _Possible:
        return _Possible(*(joined(x, order) for x in zip(*values, strict=True)))

    def piecewise(self, value: _Possible, slopes: FloatArray) -> _Possible:
        # A negative slope turns negative values into positive ones.
        turned = value.be_negative & (slopes < 0)
        return _Possible(value.be_positive | turned, value.be_negative & (slopes > 0))

    def window_max(self, value: _Possible, windows: IntArray) -> _Possible:
        positive = gather(value.be_positive, windows, False).any(axis=-1)
        return _Possible(positive, gather(value.be_negative, windows, True).all(axis=-1))


_POSSIBLE_SIGNS = _PossibleSigns()


def _from_extremes(net: Network, low: SignArray, high: SignArray, where: str, signs: SignArray | None) -> Roles:
    layout, neurons = net.layout, ~net.layout.pooled
    never_positive, never_negative = high[neurons] <= 0, low[neurons] >= 0
    dead = never_positive & (layout.slopes[neurons] == 0)
    linear = ~dead & (never_positive | never_negative | layout.linear[neurons])
    zero_entries = 0 if signs is None else int((signs[:, neurons] == 0).sum())
    return Roles(dead, linear, ~dead & ~linear, layout.layers, where, zero_entries)
