"""Certified signs of batches with many ties: images whose constant background makes patches equal.

Equal patches give equal preactivations, and a pool over them ties exactly. No error bound of floats, and no ball, can
prove a zero; exact evaluation can, slowly. Residues can as well: preactivations are dyadic rationals of a bounded
number of bits, and one that vanishes modulo primes whose product is larger is zero.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fiberscope.dimension.spans import Span, Spans
from fiberscope.network.layout import Place
from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool
from fiberscope.network.walk import decided, switch_values, switches
from fiberscope.numerics.algebra.bounded import BOUNDED
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.floats import BoolArray, FloatArray, SignArray
from fiberscope.numerics.modular import WIDE, Residues, random_primes
from fiberscope.numerics.signs import UNDECIDED, bounded_signs, join
from fiberscope.run import ENDLESS, Run

_HELD = 1 << 22
"""Values on the way, of all points of a chunk, that are held at once."""

_PRIMES = 40
"""Primes that are tried: numbers of more bits are left to exact evaluation."""


def certified(net: Network, X: FloatArray, run: Run = ENDLESS) -> SignArray:
    """As ``net.signs(X).signs``, sooner where many signs are exactly zero."""
    result = np.empty((len(X), net.num_signs), np.int8)
    step = max(1, _HELD // max(1, sum(prod(shape) for shape in net.shapes)))
    for start in range(0, len(X), step):
        run.step(start, len(X), "signs of the points")
        part = X[start : start + step]
        with np.errstate(over="ignore", invalid="ignore"):
            signs = join([bounded_signs(v) for v in switch_values(net.layout, BOUNDED.take(part), BOUNDED)], len(part))
        signs[:, net.linear_entries] = 1
        rows = np.flatnonzero((signs == UNDECIDED).any(axis=1))
        if len(rows):
            signs[rows] = _settled(net, part[rows], signs[rows])
        rows = np.flatnonzero((signs == UNDECIDED).any(axis=1))
        if len(rows):
            signs[rows] = net.signs(part[rows]).signs
        result[start : start + step] = signs
    return result


def _settled(net: Network, X: FloatArray, signs: SignArray) -> SignArray:
    """The same signs with those that residues prove to be zero; a point where one is not stays as it was."""
    counts = _prime_counts(net, X, signs)
    most = max(counts.values(), default=0)
    if not 0 < most <= _PRIMES:
        return signs
    rings = [ModularAlgebra(prime) for prime in dict.fromkeys(random_primes(most + 2, 0))][:most]
    if len(rings) < most:  # pragma: no cover - two equal primes of 61 bits
        return signs
    found = signs.copy()
    lost = np.zeros(len(X), dtype=bool)
    choices: dict[int, Any] = {}
    values: list[dict[int, Residues]] = [{0: ring.take(X)} for ring in rings]
    walks = [switches(net.layout, own, ring, choices) for own, ring in zip(values, rings, strict=True)]
    last = max(place.index for place in net.layout.places if place.index in counts)
    for places in zip(*walks, strict=True):
        place = places[0]
        part = found[:, place.columns]
        if place.index in counts:
            fronts = [own[place.source] for own in values[: counts[place.index]]]
            part[...] = _with_zeros(place, part, fronts)
            lost |= (part == UNDECIDED).any(axis=1)
        if place.index == last:
            break
        choices[place.index] = place.node.chosen(np.where(part == UNDECIDED, 1, part).astype(np.int8))
    return np.where(lost[:, None], signs, found)


def _with_zeros(place: Place, part: SignArray, fronts: list[Residues]) -> SignArray:
    """Signs of one switch where the values in front of it, modulo enough primes, show that they are zero."""
    open_: BoolArray = part == UNDECIDED
    if not isinstance(place.node, MaxPool):
        zero = np.all([front == 0 for front in fronts], axis=0)
        return np.where(open_ & zero, 0, part).astype(np.int8)
    windows = place.node.windows
    group = open_.reshape(len(part), *windows.shape)
    # What is sure to lose is not open, so the best of a window with an open entry is one of the open ones.
    first = windows[np.arange(len(windows)), group.argmax(axis=2)]
    same = np.ones(group.shape, dtype=bool)
    for front in fronts:
        best = np.take_along_axis(front, first, axis=1)
        same &= front[:, np.maximum(windows, 0)] == best[:, :, None]
    tied = (same | ~group).all(axis=2, keepdims=True) & group
    alone = group.sum(axis=2, keepdims=True) == 1
    value = np.where(tied, np.where(alone, 1, 0), part.reshape(group.shape))
    return value.reshape(part.shape).astype(np.int8)


def _prime_counts(net: Network, X: FloatArray, signs: SignArray) -> dict[int, int]:
    """For every switch with an open sign the number of primes of 61 bits that prove a zero there."""
    spans, result = Spans(), dict[int, int]()
    values: dict[int, Span] = {0: spans.take(X)}
    choices: dict[int, Any] = {}
    for place in switches(net.layout, values, spans, choices):
        choices[place.index] = decided(place.node, values[place.source], spans)
        if (signs[:, place.columns] == UNDECIDED).any():
            low, high = values[place.source]
            # One bit more for the difference of two of them, one for the sign.
            result[place.index] = max(1, high - low + 2) // (WIDE - 1) + 1
    return result
