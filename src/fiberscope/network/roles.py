"""What a neuron does: dead, linear or switching, on a batch by certified signs or for every input by its weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.network.io import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.numerics.floats import BoolArray, IntArray, SignArray
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

    Behind a ReLU all inputs of a layer are non-negative, so a neuron without positive weight or bias is dead and one
    without a negative weight or bias is linear. A row of zeros makes a neuron constant.

    >>> net = Network([[[1.0]], [[-1.0], [2.0]], [[1.0, 1.0]]], [[0.0], [-1.0, 1.0], [0.0]])
    >>> structural_roles(net)
    Roles(1 dead, 1 linear, 1 switching for every input)
    """
    net = as_network(net)
    low, high = [], []
    nonnegative = [False]
    can_be_negative: list[BoolArray | None] = [None]
    can_be_positive: list[BoolArray | None] = [None]
    for node in net.nodes:
        size = int(np.prod(node.shape))
        positive, negative = np.ones(size, dtype=bool), np.ones(size, dtype=bool)
        clean = False
        if isinstance(node, Affine):
            positive, negative = _reach(node, nonnegative[node.source])
            clean = not negative.any()
        elif isinstance(node, PiecewiseLinear):
            positive, negative = (_known(x[node.source], size) for x in (can_be_positive, can_be_negative))
            high.append(np.where(positive, 1, np.where(negative, -1, 0)))
            low.append(np.where(negative, -1, np.where(positive, 1, 0)))
            clean = bool(((node.slopes == 0) | ~negative).all())
            # Behind the activation: a negative slope turns negative values into positive ones.
            positive = positive | (negative & (node.slopes < 0))
            negative = negative & (node.slopes > 0)
        elif isinstance(node, Add | Concat):
            clean = all(nonnegative[s] for s in node.sources)
        elif isinstance(node, MaxPool):
            clean = nonnegative[node.source]
        nonnegative.append(clean)
        can_be_positive.append(positive)
        can_be_negative.append(negative)
    empty = np.zeros(0, dtype=np.int8)
    lowest = np.concatenate(low) if low else empty
    highest = np.concatenate(high) if high else empty
    return _from_extremes(net, lowest, highest, "for every input", None, pools=False)


def _known(mask: BoolArray | None, size: int) -> BoolArray:
    return np.ones(size, dtype=bool) if mask is None else mask


def _reach(node: Affine, nonnegative: bool) -> tuple[BoolArray, BoolArray]:
    """Whether each output can be positive and can be negative, judged by the signs of its coefficients."""
    operator = node.operator
    if len(operator.stages()) > 1:
        everything = np.ones(operator.out_size, dtype=bool)
        return everything, everything
    ones = np.ones((1, operator.in_size))
    up = operator.with_coefficients((operator.coefficients > 0).astype(np.float64)).apply(ones)[0] > 0
    down = operator.with_coefficients((operator.coefficients < 0).astype(np.float64)).apply(ones)[0] > 0
    if not nonnegative:
        up = down = up | down
    bias = np.zeros(operator.out_size) if node.offset is None else node.offset
    return up | (bias > 0), down | (bias < 0)


def _from_extremes(
    net: Network, low: SignArray, high: SignArray, where: str, signs: SignArray | None, pools: bool = True
) -> Roles:
    masks, layers, zero_entries, start, layer = [], [], 0, 0, 0
    for node in net.switches:
        if isinstance(node, MaxPool):
            start += node.num_signs if pools else 0
            continue
        layer += 1
        part = slice(start, start + node.num_signs)
        start += node.num_signs
        never_positive, never_negative = high[part] <= 0, low[part] >= 0
        dead = never_positive & (node.slopes == 0)
        linear = ~dead & (never_positive | never_negative | node.linear)
        masks.append(np.stack([dead, linear, ~dead & ~linear]))
        layers.append(np.full(node.num_signs, layer))
        if signs is not None:
            zero_entries += int((signs[:, part] == 0).sum())
    joined = np.concatenate(masks, axis=1) if masks else np.zeros((3, 0), dtype=bool)
    numbers = np.concatenate(layers) if layers else np.zeros(0, dtype=np.int64)
    return Roles(joined[0], joined[1], joined[2], numbers, where, zero_entries)
