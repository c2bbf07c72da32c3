"""Paths inside a fiber between two of its members."""

from __future__ import annotations

import numpy as np

from fiberscope.network.network import Network
from fiberscope.numerics.cutoffs import SAME_ROWS
from fiberscope.numerics.floats import FloatArray
from fiberscope.symmetry.chains import split, with_arrays
from fiberscope.symmetry.fiber.bottleneck import find_rounded
from fiberscope.symmetry.fiber.hidden import translate
from fiberscope.symmetry.fiber.one_layer import DEAD, LINEAR, OneLayer
from fiberscope.symmetry.fiber.result import Connection, FiberPath
from fiberscope.symmetry.fiber.setting import Setting, setting_of
from fiberscope.symmetry.group import Symmetry
from fiberscope.symmetry.matching import match_chains


def connect(setting: Setting, other: Network, complete: bool) -> Connection:
    """A path from the network of ``setting`` to a member of its fiber.

    Rescalings are joined through powers of the scales, translations through shorter ones, linear blocks through the
    segment between two bases of one row space, where no basis on it is singular. Permutations are not joined by any of
    these. So a path is found only to members with neurons in the same order.
    """
    chain, tail = setting.chain, split(other).tail
    match = match_chains(chain, tail)
    if match:
        return _rescaled(setting, chain, match.symmetry, complete)
    if setting.kind != "bottleneck":
        return Connection(None, None, "no path is known between these members")
    found = find_rounded(chain, tail)
    if found is None or found.line:
        return Connection(None, None, "the first layers do not match: no path is known")
    if found.permutation != tuple(range(len(found.permutation))):
        return Connection(None, None, "the first layers are permuted: no path is known")
    if found.flips:
        return Connection(None, None, "the members differ by a reflection, which no generic members join")
    if setting.hidden is not None:
        return _translated(setting, tail, float(found.translation))
    return _mixed(setting, tail)


def _rescaled(setting: Setting, chain: Network, element: Symmetry | None, complete: bool) -> Connection:
    assert element is not None
    if any((p != np.arange(p.size)).any() for p in element.permutations):
        finite = complete and setting.layer.cell_dimension() == 0 and setting.hidden is None
        # of a bottleneck the theorem knows the generic members only; a path might pass through others
        alone = finite and setting.kind == "one layer"
        text = "the members differ by a permutation of neurons"
        if finite:
            where = "" if alone else ", among generic parameters"
            text += f", and the fiber is a finite union of orbits of rescalings{where}"
        return Connection(False if alone else None, None, text)

    def at(s: float) -> Network:
        return setting.parts.joined(_scaled(chain, element, s))

    return Connection(True, FiberPath(at, "rescaling of neurons"), "joined by rescaling")


def _scaled(chain: Network, element: Symmetry, s: float) -> Network:
    return Symmetry(element.permutations, [scale**s for scale in element.scales])(chain)


def _then_scaled(setting: Setting, middle: Network, tail: Network) -> Symmetry | None:
    """The rescaling from the end of the first half of a path to the other member."""
    rows = [
        [np.abs(np.column_stack([w, b])).max(axis=1) for w, b in zip(n.weights[:-1], n.biases[:-1], strict=True)]
        for n in (middle, tail)
    ]
    first = rows[1][0] / rows[0][0]
    # the rows of the second layer are compared with the scales of the first taken out
    weights = [n.weights[1] * (first if n is tail else 1.0) for n in (middle, tail)]
    sizes = [
        np.abs(np.column_stack([w, n.biases[1]])).max(axis=1) for w, n in zip(weights, (middle, tail), strict=True)
    ]
    if (sizes[0] == 0).any() or (sizes[1] == 0).any():
        return None
    return Symmetry([np.arange(len(first)), np.arange(len(sizes[0]))], [first, sizes[1] / sizes[0]])


def _close(a: Network, b: Network) -> bool:
    pairs = zip((*a.weights, *a.biases), (*b.weights, *b.biases), strict=True)
    return all(
        np.abs(x - y).max(initial=0.0) <= SAME_ROWS * max(1.0, float(np.abs(y).max(initial=0.0))) for x, y in pairs
    )


def _translated(setting: Setting, tail: Network, t: float) -> Connection:
    chain, i = setting.chain, setting.hidden
    assert i is not None
    if setting.layer.where(DEAD) or setting_of(tail).layer.where(DEAD):
        return Connection(None, None, "dead neurons: no path is known")

    def moved(s: float) -> Network:
        return with_arrays(chain, *translate(chain.weights, chain.biases, 0, i, s * t))

    return _in_halves(setting, tail, moved, "translation of the hidden hyperplane, then rescaling")


def _in_halves(setting: Setting, tail: Network, first: object, text: str) -> Connection:
    assert callable(first)
    middle = first(1.0)
    element = _then_scaled(setting, middle, tail)
    if element is None or not _close(element(middle), tail):
        return Connection(None, None, "the second layers are permuted or differ otherwise: no path is known")

    def at(s: float) -> Network:
        part = first(2 * s) if s <= 0.5 else _scaled(middle, element, 2 * s - 1)
        return setting.parts.joined(part)

    return Connection(True, FiberPath(at, text), f"joined by {text}")


def _mixed(setting: Setting, tail: Network) -> Connection:
    """Members with the same orientation whose linear neurons are two bases of one row space."""
    chain, layer = setting.chain, setting.layer
    linear = layer.where(LINEAR)
    theirs = OneLayer.of(tail, True)
    if theirs.where(LINEAR) != linear or layer.where(DEAD) or theirs.where(DEAD) or not linear:
        return Connection(None, None, "other neurons are linear, or some are dead: no path is known")
    first = np.abs(np.column_stack([tail.weights[0], tail.biases[0]])).max(axis=1) / np.abs(
        np.column_stack([chain.weights[0], chain.biases[0]])
    ).max(axis=1)
    W, goal = layer.W[linear], theirs.W[linear] * first
    M = np.asarray(np.linalg.lstsq(W.T, goal.T, rcond=None)[0].T, dtype=np.float64)
    if np.abs(M @ W - goal).max() > SAME_ROWS * np.abs(goal).max():
        return Connection(None, None, "the linear neurons span different spaces: no path is known")
    values = np.linalg.eigvals(M)
    if ((np.abs(values.imag) <= SAME_ROWS) & (values.real <= SAME_ROWS)).any():
        return Connection(None, None, "the segment between the linear blocks is singular somewhere: no path is known")
    start, end = layer.b[linear], theirs.b[linear]

    def moved(s: float) -> Network:
        return with_arrays(
            chain, *_mixed_arrays(chain, layer, linear, (1 - s) * np.eye(len(M)) + s * M, (1 - s) * start + s * end)
        )

    return _in_halves(setting, tail, moved, "mixing of the linear neurons, then rescaling")


def _mixed_arrays(
    chain: Network, layer: OneLayer, linear: list[int], M: FloatArray, offset: FloatArray
) -> tuple[list[FloatArray], list[FloatArray]]:
    weights, biases = [np.array(w) for w in chain.weights], [np.array(b) for b in chain.biases]
    V = np.asarray(np.linalg.solve(M.T, layer.V[:, linear].T).T, dtype=np.float64)
    weights[1][linear], biases[1][linear] = np.maximum(M @ layer.W[linear], 0.0), offset
    weights[2][:, linear] = V
    biases[2] = biases[2] + layer.V[:, linear] @ layer.b[linear] - V @ offset
    return weights, biases
