"""Which theorem speaks about a network: one hidden layer, the three-layer bottleneck, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from fiberscope.dimension.jacobian import check_parameters
from fiberscope.fibers.generic import Generic, bottleneck_genericity
from fiberscope.fibers.hidden_hyperplanes import cancelled_hyperplanes, hidden_hyperplane, lower_bound
from fiberscope.fibers.one_layer.layer import DEAD, LINEAR, OneLayer
from fiberscope.network.chains import Split, slopes_of, split
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.lp.programs import Polyhedron
from fiberscope.numerics.rank import exact_rank
from fiberscope.numerics.rows import proportional_rows
from fiberscope.results import Result

Kind = Literal["affine", "one layer", "bottleneck", "outside"]

_CONE = 1024
"""Entries of a weight matrix up to which linear programs look whether its image is a full orthant."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A chain, the theorem that speaks about it, or why none does."""

    parts: Split
    kind: Kind
    reason: str = ""

    @property
    def chain(self) -> Network:
        return self.parts.tail

    @cached_property
    def layer(self) -> OneLayer:
        """The last hidden layer: on all of space, or on the orthant behind the first one."""
        return OneLayer.of(self.chain, orthant=self.kind == "bottleneck")

    @cached_property
    def alive(self) -> list[int]:
        """Neurons of the last hidden layer that are not dead."""
        return [j for j in range(self.layer.n) if self.layer.roles[j] != DEAD]

    @cached_property
    def hidden(self) -> int | None:
        """The first-layer hyperplane that every living neuron of the second layer hides."""
        if self.kind != "bottleneck":
            return None
        return hidden_hyperplane(self.layer.W[self.alive], self.layer.b[self.alive])

    @cached_property
    def reflects(self) -> bool:
        """With one first-layer neuron: whether all living rows have signs ``(-, +)``, so that it can be mirrored."""
        if self.kind != "bottleneck" or self.layer.d != 1 or not self.alive:
            return False
        return bool((self.layer.W[self.alive] < 0).all() and (self.layer.b[self.alive] > 0).all())

    @cached_property
    def generic(self) -> Generic:
        """Whether the layers behind the first one are generic, as the theorem assumes.

        Dead neurons are looked at as well. One whose row has a zero can wake up along the fiber and make up for a
        hyperplane that moves, as ``relu(x) = relu(x + t) + relu(t - relu(x + t)) - t`` does.
        """
        return bottleneck_genericity(self.layer)

    @cached_property
    def cancelled(self) -> list[tuple[int, float, float]]:
        """First-layer hyperplanes that are not seen since their readers cancel, and how far each can be moved."""
        if self.kind != "bottleneck":
            return []
        layer = self.layer
        return [found for found in cancelled_hyperplanes(layer.W, layer.b, layer.V) if found[0] != self.hidden]

    @cached_property
    def symmetries(self) -> tuple[KnownSymmetry, ...]:
        """Those that are known whatever the theorem."""
        return tuple(known_symmetries(self.chain))


def setting_of(net: Network) -> Setting:
    """The setting of a network; refuses what has no parameters of its own to ask about."""
    parts = split(net)
    check_parameters(net)
    chain = parts.tail
    hidden = len(chain.widths) - 2
    if not _onto(parts):
        return Setting(parts, "outside", "the affine map in front of the first dense layer is not shown to be onto")
    if any((s != 0).any() for s in slopes_of(chain)):
        return Setting(parts, "outside", "not all activations are ReLU, which the theorems assume")
    if hidden == 0:
        return Setting(parts, "affine")
    if hidden == 1:
        return Setting(parts, "one layer")
    if hidden == 2:
        n0, n1 = chain.widths[:2]
        if n1 > n0:
            return Setting(parts, "outside", f"the first layer is wider than the input ({n1} > {n0}): no bottleneck")
        if exact_rank(chain.weights[0]).rank < n1:
            return Setting(
                parts, "outside", "the first weight matrix is not of full rank, so the layer is no bottleneck"
            )
        return Setting(parts, "bottleneck")
    return Setting(parts, "outside", f"{hidden} hidden layers: the theorems are about one and two")


def _onto(parts: Split) -> bool:
    for node in parts.prefix:
        if not isinstance(node, Affine):
            return False
        for stage in node.operator.stages():
            if stage.out_size > stage.in_size or exact_rank(stage.dense()).rank < stage.out_size:
                return False
    return True


@dataclass(frozen=True, slots=True)
class KnownSymmetry(Result):
    """A symmetry beyond permutation and rescaling that a network certainly has.

    ``layer`` counts from 1, ``neurons`` from 0; ``dimension`` is that of the family, modulo rescaling; ``full`` says
    whether the layer is known to see a full orthant (or all of space), where a theorem knows such symmetries.
    """

    kind: Literal["dead", "linear", "hidden", "cancelled", "coincident", "unread"]
    layer: int
    neurons: tuple[int, ...]
    dimension: int
    full: bool
    text: str


def known_symmetries(chain: Network) -> list[KnownSymmetry]:
    """Dead, linear, unread, coincident neurons and hidden hyperplanes of every layer; a list without claim to be all.

    >>> net = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, -1.0]], [[2.0]]], [[0.0, 0.0], [-1.0], [0.0]])
    >>> [(s.kind, s.layer, s.neurons) for s in known_symmetries(net)]
    [('hidden', 1, (0,))]
    """
    if any((s != 0).any() for s in slopes_of(chain)):
        return []
    found: list[KnownSymmetry] = []
    full = True
    for layer in range(len(chain.weights) - 1):
        view = OneLayer(
            chain.weights[layer], chain.biases[layer], chain.weights[layer + 1], chain.biases[layer + 1], layer > 0
        )
        found += _of_layer(view, layer + 1, full)
        if layer + 2 < len(chain.weights):
            full = full and _full_image(view)
            found += _hidden_of(chain, layer, full)
    return found


def known_dimension(symmetries: Sequence[KnownSymmetry]) -> int:
    """A dimension, modulo rescaling, that the families have together at least.

    Families of one layer move different numbers. Those of consecutive layers share the weights between their neurons,
    each of which is one direction at most that both may have.
    """
    moving = [s for s in symmetries if s.kind not in ("hidden", "cancelled")]
    shared = sum(
        len(s.neurons) * len(t.neurons)
        for s in moving
        for t in moving
        if t.layer == s.layer + 1 and t.kind != "coincident"
    )
    return max(sum(s.dimension for s in symmetries) - shared, max((s.dimension for s in symmetries), default=0))


def _of_layer(view: OneLayer, number: int, full: bool) -> list[KnownSymmetry]:
    found = []
    d, m = view.d, view.m
    reach = d if view.orthant else 0
    for i in view.where(DEAD):
        text = f"neuron {i} of layer {number} is dead: its row and its outgoing weights are free while it stays dead"
        found.append(KnownSymmetry("dead", number, (i,), reach + m, full, text))
    linear = view.where(LINEAR)
    if linear:
        free = OneLayer(view.W[linear], view.b[linear], view.V[:, linear], view.c, view.orthant).cell_dimension()
        word = "linear (always active)" if view.orthant else "constant (linear, with a zero row)"
        listed = ", ".join(map(str, linear))
        many = len(linear) > 1
        text = f"neuron{'s' if many else ''} {listed} of layer {number} {'are' if many else 'is'} {word}"
        found.append(KnownSymmetry("linear", number, tuple(linear), free, full, text))
    for i in range(view.n):
        if view.roles[i] == 0 and not view.V[:, i].any():
            text = f"neuron {i} of layer {number} is read by nobody (dead to the output): its row is free"
            found.append(KnownSymmetry("unread", number, (i,), d, full, text))
    read = [i for i in range(view.n) if view.roles[i] == 0 and view.V[:, i].any()]
    for group in proportional_rows(view.rows[read]) if read else []:
        names = tuple(read[k] for k in group)
        pivot = int(np.abs(view.rows[names[0]]).argmax())
        for sign in (1, -1):
            same = tuple(i for i in names if np.sign(view.rows[i, pivot]) == sign)
            if len(same) > 1:
                text = (
                    f"neurons {', '.join(map(str, same))} of layer {number} coincide: they share their outgoing weights"
                )
                found.append(KnownSymmetry("coincident", number, same, m * (len(same) - 1), full, text))
    return found


def _hidden_of(chain: Network, layer: int, full: bool) -> list[KnownSymmetry]:
    W, b, V = chain.weights[layer + 1], chain.biases[layer + 1], chain.weights[layer + 2]
    alive = [j for j in range(len(b)) if not ((W[j] <= 0).all() and b[j] <= 0)]
    i = hidden_hyperplane(W[alive], b[alive])
    found = []
    if i is not None:
        above = lower_bound(W[alive], b[alive], i)
        text = (
            f"the hyperplane of neuron {i} of layer {layer + 1} is hidden by every neuron of layer {layer + 2}: it can "
            f"be moved by any t > {above:.6g}"
        )
        found.append(KnownSymmetry("hidden", layer + 1, (i,), 1, full, text))
    kinked = (chain.weights[layer] != 0).any(axis=1).tolist()
    for k, low, high in cancelled_hyperplanes(W, b, V):
        if k != i and kinked[k]:
            text = (
                f"the hyperplane of neuron {k} of layer {layer + 1} is hidden, since its readers in layer {layer + 2} "
                f"cancel: it can be moved by any t between {low:.6g} and {high:.6g}"
            )
            found.append(KnownSymmetry("cancelled", layer + 1, (k,), 1, full, text))
    return found


def _full_image(view: OneLayer) -> bool:
    """Whether the outputs of a layer are shown to be the whole orthant, given that its inputs are all of its domain."""
    if not view.orthant:
        return bool(view.n <= view.d and exact_rank(view.W).rank == view.n)
    if view.W.size > _CONE:
        return False
    targets = [*np.eye(view.n), -view.b]
    return all(_in_cone(view.W, target) for target in targets)


def _in_cone(W: FloatArray, target: FloatArray) -> bool:
    """Whether ``target = W a`` for some ``a >= 0``, proven."""
    n = W.shape[1]
    return Polyhedron(np.zeros((0, n)), np.zeros(0), equations=(W, target), lower=0.0).feasible().answer is True
