"""The hidden equivalence group of a batch, and what it does to the parameter infinitesimally.

``G_hid = GL(n_1) x ... x GL(n_{L-1})`` acts by ``(W_l, b_l) -> (g_l W_l g_{l-1}^{-1}, g_l b_l)``. On a batch the
elements that commute with the activation do not change the outputs: positive diagonal ones on neurons that switch, all
of ``GL`` on the block of neurons that act linearly. Beyond the group, linear neurons may be translated, and all weights
of a dead neuron are free. Every tangent vector of these lies in the kernel of the Jacobian.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse as sp
from scipy.sparse.csgraph import connected_components

from fiberscope.dimension.jacobian import offsets
from fiberscope.network.network import Network
from fiberscope.network.roles import structural_roles
from fiberscope.numerics.algebra.base import Ring
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.elimination import rank_mod
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.numerics.modular import Residues, random_primes
from fiberscope.results import Result, Tabular
from fiberscope.run import ENDLESS, Run

WORK = 4 * 10**9
"""Products that the rank of the infinitesimal action may cost; above, only rescalings and dead neurons count."""


@dataclass(frozen=True, slots=True)
class LayerActivity(Result):
    """How many neurons of one hidden layer are always active, always inactive, or switch on the batch."""

    layer: int
    width: int
    active: int
    inactive: int
    switching: int


@dataclass(frozen=True, slots=True)
class HiddenSymmetry(Tabular):
    """The hidden equivalence group of a batch at a parameter.

    ``dimension`` is that of the group: one for every neuron that switches or is dead, ``k^2`` for ``k`` linear neurons
    of a layer. ``orbit`` is the rank of its infinitesimal action at the parameter and ``stabiliser`` the difference;
    both are None where they were too large to compute. ``directions`` is the dimension of the space of all known
    directions that do not change the outputs: the orbit's, translations of linear neurons, free weights of dead ones.
    ``complete`` is False where only rescalings and dead neurons were counted. Ranks are modulo a prime, so
    ``directions`` and ``orbit`` are proven lower bounds, and ``stabiliser`` is an upper one. By Lemma 4.2 the critical
    locus of any loss through a critical parameter has dimension at least ``orbit`` (the group's, if the stabiliser is
    trivial).
    """

    layers: tuple[LayerActivity, ...]
    dimension: int
    orbit: int | None
    stabiliser: int | None
    translations: int
    free: int
    directions: int
    complete: bool

    told = ("critical_locus",)
    frame = "layers"

    @property
    def critical_locus(self) -> int | None:
        """Lower bound of the dimension of the critical locus through this parameter, if it is critical for a loss."""
        return self.orbit


@dataclass(frozen=True, slots=True, eq=False)
class LayerRoles:
    """A hidden layer of a chain on a batch: masks over its neurons, and the factor of every linear one."""

    dead: BoolArray
    linear: BoolArray
    switching: BoolArray
    factors: FloatArray


def activity(net: Network, signs: SignArray) -> list[LayerRoles]:
    """Roles on a batch of certified signs without kinks; a leaky neuron that is never positive is linear too."""
    layers = []
    for place in net.layout.places:
        node, part = place.node, signs[:, place.columns]
        positive, negative = (part > 0).all(axis=0), (part < 0).all(axis=0)
        dead = negative & (node.slopes == 0)
        linear = positive | (negative & ~dead) | node.linear
        factors = np.where(positive | node.linear, 1.0, node.slopes)
        layers.append(LayerRoles(dead, linear, ~dead & ~linear, factors))
    return layers


def signs_anywhere(net: Network) -> SignArray:
    """Two sign vectors with the same constant entries as all of the input space is known to have from the weights."""
    roles = structural_roles(net)
    off = np.where(roles.dead, -1, 1).astype(np.int8)
    return np.stack([off, np.where(roles.switching, -1, off).astype(np.int8)])


def signs_nearby(net: Network) -> SignArray:
    """As :func:`signs_anywhere`, where what is constant stays so for all parameters of a chain near this one.

    Behind non-negative values a neuron is dead if all of its weights and its bias are negative, and linear if all are
    positive: none may be zero, since a small change would make it switch far away. Weights of neurons that stay dead
    do not matter. In the first layer inputs have either sign, and only a neuron without a kink is linear.

    >>> net = Network([[[1.0]], [[-1.0], [-1.0]], [[1.0, 1.0]]], [[0.0], [-1.0, 0.0], [0.0]])
    >>> signs_anywhere(net).tolist(), signs_nearby(net).tolist()
    ([[1, -1, -1], [-1, -1, -1]], [[1, -1, 1], [-1, -1, -1]])
    """
    rows: list[list[IntArray]] = [[], []]
    seen = np.ones(net.in_size, dtype=bool)
    positive = False
    for weight, bias, place in zip(net.weights, net.biases, net.layout.places, strict=False):
        read = weight[:, seen]
        dead = positive & (read < 0).all(axis=1) & (bias < 0)
        active = positive & (read > 0).all(axis=1) & (bias > 0)
        slopes, linear = place.node.slopes, place.node.linear
        rows[0].append(np.where(dead & ~linear, -1, 1))
        rows[1].append(np.where(active | linear, 1, -1))
        seen = ~(dead & (slopes == 0))
        positive = bool((slopes <= 0).all())
    return np.stack([np.concatenate([np.zeros(0), *part]) for part in rows]).astype(np.int8)


def layer_counts(layers: list[LayerRoles]) -> tuple[LayerActivity, ...]:
    """The numbers that the paper's tables need."""
    return tuple(
        LayerActivity(k, len(x.dead), int(x.linear.sum()), int(x.dead.sum()), int(x.switching.sum()))
        for k, x in enumerate(layers, start=1)
    )


def acts_freely_on(net: Network) -> bool:
    """Whether the group acts on the parameters: a chain whose weights are parameters of their own, used once.

    A bias may be missing; one that is a constant other than zero would be moved and must not be.
    """
    if not net.is_chain:
        return False
    affine = net.layout.affine
    names = [name for node in affine for name in (node.weight_name, node.bias_name) if name is not None]
    hidden = affine[:-1]
    return (
        all(node.weight_name is not None for node in affine)
        and len(set(names)) == len(names)
        and all(node.bias_name is not None or node.bias is None or not node.bias.any() for node in hidden)
        and all(node.bias is None or node.bias.size == node.operator.out_size for node in affine)
    )


def hidden_symmetry(net: Network, signs: SignArray, work: int = WORK, run: Run = ENDLESS) -> HiddenSymmetry | None:
    """The group of a batch at the parameter of a chain; None for other networks (see :func:`acts_freely_on`).

    Four neurons that are active on the whole batch, one input and three outputs: the group is ``GL(4)``, and two of its
    dimensions do nothing at all, although the architecture is roughly monotonic.

    >>> net = Network([np.ones((4, 1)) + np.eye(4, 1), np.eye(3, 4) + 0.5], [np.array([1.0, 2, 4, 8]), np.zeros(3)])
    >>> symmetry = hidden_symmetry(net, np.ones((5, 4), dtype=np.int8))
    >>> symmetry.dimension, symmetry.orbit, symmetry.stabiliser
    (16, 14, 2)
    """
    if not acts_freely_on(net):
        return None
    layers = activity(net, signs)
    counts = layer_counts(layers)
    dimension = sum(c.switching + c.inactive + c.active**2 for c in counts)
    free = free_columns(net, layers)
    translations = sum(
        c.active for k, c in enumerate(counts) if first_bias(net, k) is not None and first_bias(net, k + 1) is not None
    )
    rows = dimension + translations
    columns = net.num_parameters
    if rows * columns * min(rows, columns) > work:
        directions = int(free.sum()) + rescaling_rank(net, [~layer.dead for layer in layers])
        return HiddenSymmetry(counts, dimension, None, None, translations, int(free.sum()), directions, False)
    prime = random_primes(1, 0)[0]
    group, moved = tangents(net, layers, prime)
    orbit = rank_mod(group, prime, run) if len(group) else 0
    together = np.concatenate([group, moved])[:, ~free]
    directions = int(free.sum()) + (rank_mod(np.ascontiguousarray(together), prime, run) if together.size else 0)
    return HiddenSymmetry(counts, dimension, orbit, dimension - orbit, translations, int(free.sum()), directions, True)


def tangents(net: Network, layers: list[LayerRoles], prime: int) -> tuple[Residues, Residues]:
    """Tangent vectors at the parameter as rows: of the group, and of translations of linear neurons.

    For linear neurons ``i, j`` with factors ``d`` the generator ``E_ij``, times ``d_j``, moves ``W_l[i] += d_j W_l[j]``
    and ``W_{l+1}[:, j] -= d_i W_{l+1}[:, i]``. A translation moves ``b_l[i] += 1``, ``b_{l+1} -= d_i W_{l+1}[:, i]``.
    """
    ring = ModularAlgebra(prime)
    group: list[Residues] = []
    moved: list[Residues] = []
    for k, layer in enumerate(layers):
        linear = np.flatnonzero(layer.linear)
        alone = np.flatnonzero(~layer.linear)
        i = np.concatenate([alone, np.repeat(linear, len(linear))])
        j = np.concatenate([alone, np.tile(linear, len(linear))])
        factors = np.where(layer.linear, layer.factors, 1.0)
        group.append(generators(net, k, i, j, factors, ring))
        if first_bias(net, k) is not None and first_bias(net, k + 1) is not None:
            moved.append(translations(net, k, linear, factors, ring))
    empty = np.zeros((0, net.num_parameters), np.uint64)
    return np.concatenate([empty, *group]), np.concatenate([empty, *moved])


def generators(net: Network, k: int, i: IntArray, j: IntArray, d: FloatArray, ring: Ring) -> Any:
    """The generators ``E_ij``, times ``d_j``, of hidden layer ``k`` for some pairs of neurons, as rows in a ring."""
    weights, biases, after = net.weights[k], net.biases[k], net.weights[k + 1]
    rows = np.arange(len(i))
    result = ring.take(np.zeros((len(i), net.num_parameters)))
    first = columns_of(net, k)
    scale = ring.take(d[j])[:, None]
    result[rows[:, None], first[i]] = ring.multiply(ring.take(weights)[j], scale)
    bias = first_bias(net, k)
    if bias is not None:
        result[rows, bias + i] = ring.multiply(ring.take(biases)[j], scale[:, 0])
    outgoing = ring.multiply(ring.take(after.T)[i], ring.take(d[i])[:, None])
    result[rows[:, None], columns_of(net, k + 1)[:, j].T] = _negated(outgoing, ring)
    return result


def _negated(a: Any, ring: Ring) -> Any:
    return ring.multiply(a, ring.take(np.full((1, 1), -1.0)))


def translations(net: Network, k: int, linear: IntArray, d: FloatArray, ring: Ring) -> Any:
    """The translations of linear neurons of hidden layer ``k``, as rows in a ring."""
    own, following = first_bias(net, k), first_bias(net, k + 1)
    result = ring.take(np.zeros((len(linear), net.num_parameters)))
    if own is None or following is None or len(linear) == 0:
        return result
    rows = np.arange(len(linear))
    result[rows, own + linear] = ring.take(np.ones(1))[0]
    moved = ring.multiply(ring.take(net.weights[k + 1].T)[linear], ring.take(d[linear])[:, None])
    result[:, following : following + moved.shape[1]] = _negated(moved, ring)
    return result


def columns_of(net: Network, k: int) -> IntArray:
    """Columns of the entries of ``W_{k+1}``, in its shape."""
    node = net.layout.affine[k]
    assert node.weight_name is not None  # acts_freely_on
    shape = net.weights[k].shape
    return offsets(net)[node.weight_name] + np.arange(shape[0] * shape[1]).reshape(shape)


def first_bias(net: Network, k: int) -> int | None:
    """First column of ``b_{k+1}``, or None if it is no parameter."""
    node = net.layout.affine[k]
    name = None if node.bias is None else node.bias_name
    return None if name is None else offsets(net)[name]


def free_columns(net: Network, layers: list[LayerRoles]) -> BoolArray:
    """Mask over the parameters of those that are weights of a dead neuron: no output depends on them here."""
    free = np.zeros(net.num_parameters, dtype=bool)
    for k, layer in enumerate(layers):
        dead = np.flatnonzero(layer.dead)
        free[columns_of(net, k)[dead].reshape(-1)] = True
        free[columns_of(net, k + 1)[:, dead].reshape(-1)] = True
        bias = first_bias(net, k)
        if bias is not None:
            free[bias + dead] = True
    return free


def rescaling_rank(net: Network, alive: list[BoolArray] | None = None) -> int:
    """Rank of the infinitesimal rescalings of the hidden neurons of a chain (of those ``alive`` only), exactly.

    A combination ``c`` of them is zero when ``c_i = c_k`` across every non-zero weight, and ``c = 0`` at the inputs, at
    the outputs and at non-zero biases. So each connected component of neurons that touches none of these loses one.
    """
    masks = alive if alive is not None else [np.ones(n, dtype=bool) for n in net.widths[1:-1]]
    sizes = [int(mask.sum()) for mask in masks]
    starts = np.cumsum([1, *sizes])  # vertex 0 is the ground
    rows, columns = [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
    for k, mask in enumerate(masks):
        own = starts[k] + np.arange(sizes[k])
        grounded = net.biases[k][mask] != 0
        if k == 0:
            grounded = grounded | (net.weights[0][mask] != 0).any(axis=1)
        else:
            i, j = np.nonzero(net.weights[k][np.ix_(mask, masks[k - 1])])
            rows.append(own[i])
            columns.append(starts[k - 1] + j)
        if k + 1 == len(masks):
            grounded = grounded | (net.weights[k + 1][:, mask] != 0).any(axis=0)
        rows.append(own[grounded])
        columns.append(np.zeros(int(grounded.sum()), dtype=np.int64))
    i, j = np.concatenate(rows), np.concatenate(columns)
    graph = sp.coo_array((np.ones(len(i)), (i, j)), shape=(int(starts[-1]), int(starts[-1])))
    return int(starts[-1]) - int(connected_components(graph, directed=False)[0])
