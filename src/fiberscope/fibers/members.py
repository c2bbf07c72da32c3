"""Random members of a component of a fiber."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.fibers.components import Component
from fiberscope.fibers.hidden_hyperplanes import cancelled_hyperplanes, flip, lower_bound, translate
from fiberscope.fibers.one_layer.factorisations import first_factors, snapped, walk
from fiberscope.fibers.one_layer.layer import DEAD, LINEAR, OneLayer, rational_rank
from fiberscope.fibers.theorems import Setting
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.chains import with_arrays
from fiberscope.network.network import Network
from fiberscope.numerics.exact_arrays import nearest
from fiberscope.numerics.floats import FloatArray

STEPS = 60
"""Steps of the walk over factorisations for one member."""

Arrays = tuple[list[FloatArray], list[FloatArray]]


def member(setting: Setting, component: Component, rng: np.random.Generator) -> Network:
    """A random member of the component, permuted and rescaled.

    Where a move would leave the range of floats, it is not made: then the member is nearer to the given network.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _member(setting, component, rng)


def _member(setting: Setting, component: Component, rng: np.random.Generator) -> Network:
    chain = setting.chain
    if component.cell is not None:
        W, b, V, c = (nearest(x) for x in component.cell.member(rng))
        drawn: Arrays = ([*chain.weights[:-2], W, V], [*chain.biases[:-2], b, c])
        return _shuffled(setting, drawn if _finite(drawn) else (list(chain.weights), list(chain.biases)), rng)
    arrays: Arrays = ([np.array(w) for w in chain.weights], [np.array(b) for b in chain.biases])
    if component.kind == "translation":
        arrays = _moved(setting, arrays, component.flipped, rng)
    elif component.kind == "reflection":
        arrays = reflected(arrays, setting.alive)
    elif component.kind == "constant":
        # no living neuron reads the first layer
        arrays[0][0], arrays[1][0] = rng.normal(size=arrays[0][0].shape), rng.normal(size=arrays[1][0].shape)
    elif component.kind == "known":
        arrays = _known(setting, arrays, rng)
    if not _finite(arrays):
        arrays = (list(chain.weights), list(chain.biases))
    if component.kind in ("orbit", "orientation"):
        for i, _, _ in setting.cancelled:
            arrays = _slid(arrays, 0, i, rng)
    if setting.kind in ("one layer", "bottleneck") and component.kind != "known":
        flipped = component.flipped if component.kind == "orientation" else ()
        arrays = in_layer(arrays, len(arrays[0]) - 2, setting.kind == "bottleneck", flipped, rng)
    return _shuffled(setting, arrays, rng)


def _shuffled(setting: Setting, arrays: Arrays, rng: np.random.Generator) -> Network:
    """The network with these numbers, permuted, and rescaled where floats allow."""
    moved = setting.parts.joined(with_arrays(setting.chain, *arrays))
    element = Symmetry.random(setting.chain.widths, rng, spread=2)
    try:
        return element(moved)
    except InputError:  # products leave the range of floats
        return Symmetry(element.permutations, [np.ones(n) for n in element.widths])(moved)


def _finite(arrays: Arrays) -> bool:
    return all(bool(np.isfinite(x).all()) for part in arrays for x in part)


def _moved(setting: Setting, arrays: Arrays, flipped: tuple[int, ...], rng: np.random.Generator) -> Arrays:
    """Reflections of visible hyperplanes, and a random translation of the hidden one."""
    i, alive = setting.hidden, setting.alive
    assert i is not None
    if flipped:
        arrays = flip(*arrays, 0, i, flipped, alive[0])
    bound = lower_bound(arrays[0][1][alive], arrays[1][1][alive], i)
    moved = translate(*arrays, 0, i, _above(bound, rng))
    dead = [j for j in range(len(arrays[1][1])) if j not in alive]
    moved[1][1][dead] = arrays[1][1][dead]
    return moved


def _above(bound: float, rng: np.random.Generator) -> float:
    """A random translation above a negative bound, of few bits so that moving a bias by it rounds little or nothing."""
    t = bound - bound * max(float(rng.exponential(1.0)), 2.0**-10)
    m, e = np.frexp(t)
    short = float(np.ldexp(np.round(m * 256), int(e) - 8))
    # near the bound the short number may lie on the other side, where the function changes
    return short if short > bound * (1 - 2.0**-12) else t


def _between(low: float, high: float, rng: np.random.Generator) -> float:
    """A random translation well inside of its bounds, of few bits."""
    end = low if rng.random() < 0.5 else high
    t = float(np.sign(end)) * float(rng.exponential(1.0)) if np.isinf(end) else 0.75 * end * rng.random()
    m, e = np.frexp(t)
    return float(np.ldexp(np.round(m * 256), int(e) - 8))


def _slid(arrays: Arrays, layer: int, i: int, rng: np.random.Generator) -> Arrays:
    """Move a hyperplane of hidden layer ``layer`` (from 0) whose readers cancel; dead neurons stay as they are.

    How far it may go is asked anew: other hyperplanes may have moved the biases of its readers.
    """
    W, b = arrays[0][layer + 1], arrays[1][layer + 1]
    bounds = {k: (low, high) for k, low, high in cancelled_hyperplanes(W, b, arrays[0][layer + 2])}
    if i not in bounds:
        return arrays
    moved = translate(*arrays, layer, i, _between(*bounds[i], rng))
    dead = (W <= 0).all(axis=1) & (b <= 0)
    moved[1][layer + 1][dead] = b[dead]
    return moved if _finite(moved) else arrays


def reflected(arrays: Arrays, alive: list[int]) -> Arrays:
    """The mirror image for one first-layer neuron whose readers all have signs ``(-, +)``.

    The function of ``z = w x + b`` is constant on both sides of ``[0, T]``; read from the other end it has the same
    form, with the breaks at ``T - t_j``, and at ``T`` what was at 0.
    """
    weights, biases = [np.array(w) for w in arrays[0]], [np.array(b) for b in arrays[1]]
    slope, offset = -weights[1][alive, 0], biases[1][alive]
    out = weights[2][:, alive]
    breaks = offset / slope
    last = int(breaks.argmax())
    reach = float(breaks[last])
    biases[2] = biases[2] + out @ offset
    total = out @ slope
    weights[0], biases[0] = -weights[0], reach - biases[0]
    mirrored = slope * (reach - breaks)
    mirrored[last] = offset[last]
    biases[1][alive] = mirrored
    weights[2][:, alive[last]] = -total / slope[last]
    return weights, biases


def in_layer(arrays: Arrays, place: int, orthant: bool, flipped: tuple[int, ...], rng: np.random.Generator) -> Arrays:
    """Another member of the set of Definition 22 for hidden layer ``place`` (from 0), the given neurons reversed."""
    weights, biases = [np.array(w) for w in arrays[0]], [np.array(b) for b in arrays[1]]
    layer = OneLayer(weights[place], biases[place], weights[place + 1], biases[place + 1], orthant)
    W, b, V, c = (np.array(x) for x in (layer.W, layer.b, layer.V, layer.c))
    linear = layer.where(LINEAR)
    T = list(flipped)
    if orthant and linear:
        A = layer.linear_part(T)
        if not np.isfinite(nearest(A)).all():
            return arrays
        start = (V[:, linear], W[linear])
        if T:
            start = first_factors(nearest(A), len(linear), rational_rank(A))
        new_V, new_W = snapped(A, *walk(*start, STEPS * len(linear), rng))
        new_b = rng.exponential(1.0, len(linear))
        c = c + V[:, linear] @ b[linear] - new_V @ new_b
        V[:, linear], W[linear], b[linear] = new_V, new_W, new_b
    elif linear:  # constants
        new_b = rng.exponential(1.0, len(linear))
        c = c + V[:, linear] @ (b[linear] - new_b)
        b[linear] = new_b
    c = c + V[:, T] @ b[T]
    W[T], b[T] = -W[T], -b[T]
    _free_dead(layer, W, b, V, rng)
    _free_shares(layer, T, (W, b, V), rng)
    weights[place], biases[place], weights[place + 1], biases[place + 1] = W, b, V, c
    return (weights, biases) if _finite((weights, biases)) else arrays


def _free_dead(layer: OneLayer, W: Any, b: Any, V: Any, rng: np.random.Generator) -> None:
    dead = layer.where(DEAD)
    if layer.orthant:
        W[dead] = -rng.exponential(1.0, (len(dead), layer.d))
    b[dead] = -rng.exponential(1.0, len(dead))
    V[:, dead] = rng.normal(size=(layer.m, len(dead)))


def _free_shares(layer: OneLayer, turned: list[int], free: tuple[Any, Any, Any], rng: np.random.Generator) -> None:
    """Neurons on one hyperplane with one orientation share its weight anew; where it cancels, the hyperplane moves.

    The orientation is that of the member, in which the neurons ``turned`` are reversed already: between opposite ones
    weight cannot move without changing the linear part, nor can a hyperplane that only some of its neurons left.
    """
    W, b, V = free
    for plane in layer.hyperplanes:
        reversed_ones = {i in turned for i in plane.neurons}
        if not plane.visible and not plane.mixed and len(reversed_ones) == 1:
            row = rng.normal(size=layer.d + 1)
            row[0], row[-1] = abs(row[0]), -abs(row[-1])  # stays nonlinear
            row = -row if True in reversed_ones else row
            k = int(np.abs(layer.rows[plane.neurons[0]]).argmax())
            for i in plane.neurons:
                ratio = layer.rows[i, k] / layer.rows[plane.neurons[0], k]
                W[i], b[i] = ratio * row[:-1], ratio * row[-1]
        for side in (True, False):
            same = [i for i, along in zip(plane.neurons, plane.along, strict=True) if (along is side) != (i in turned)]
            for i, j in itertools.pairwise(same):
                k = int(np.abs(layer.rows[i]).argmax())
                ratio = abs(layer.rows[i, k] / layer.rows[j, k])
                change = np.round(rng.normal(size=layer.m) * 16) / 16
                V[:, i] += change
                V[:, j] -= change * ratio


def _known(setting: Setting, arrays: Arrays, rng: np.random.Generator) -> Arrays:
    """Known symmetries of a network outside the theorems, wherever they occur.

    What hides a hyperplane of the layer before and what a pair of layers does on the orthant are identities whatever
    the image of the earlier layers is. First the hidden hyperplanes move; then, from the last layer to the first, since
    outgoing weights of one layer are rows of the next, neurons that are dead, linear, unread or doubled.
    """
    depth = len(arrays[0]) - 1
    for found in setting.symmetries:
        layer, i = found.layer - 1, found.neurons[0]
        if found.kind == "hidden":
            moved = _moved_within(arrays, layer, i, rng)
            arrays = moved if _finite(moved) else arrays
        elif found.kind == "cancelled":
            arrays = _slid(arrays, layer, i, rng)
    for layer in reversed(range(depth)):
        moves = [s for s in setting.symmetries if s.layer == layer + 1 and s.kind not in ("hidden", "cancelled")]
        if moves:
            arrays = in_layer(arrays, layer, layer > 0, (), rng)
    return arrays


def _moved_within(arrays: Arrays, layer: int, i: int, rng: np.random.Generator) -> Arrays:
    """Reflections, where a single living neuron reads the layer, and a translation of its hidden hyperplane."""
    weights, biases = arrays
    view = OneLayer(weights[layer + 1], biases[layer + 1], weights[layer + 2], biases[layer + 2], True)
    alive = [j for j in range(view.n) if view.roles[j] != DEAD]
    if not alive or not _hides(view, alive, i):
        return arrays
    if len(alive) == 1:
        flipped = [k for k in range(view.d) if k != i and rng.random() < 0.5]
        weights, biases = flip(weights, biases, layer, i, flipped, alive[0])
    bound = lower_bound(view.W[alive], view.b[alive], i)
    moved = translate(weights, biases, layer, i, _above(bound, rng))
    dead = [j for j in range(view.n) if j not in alive]
    moved[1][layer + 1][dead] = biases[layer + 1][dead]
    return moved


def _hides(view: OneLayer, alive: list[int], i: int) -> bool:
    others = np.delete(view.W[alive], i, axis=1)
    return bool((view.W[alive, i] > 0).all() and (others < 0).all() and (view.b[alive] < 0).all())
