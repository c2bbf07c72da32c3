r"""Whether the outputs at a point are differentiable in the parameters, decided exactly.

A preactivation that is exactly zero, or a tie inside a pooling window, is a kink of the *output* only if its sides
differ and the difference gets through. First, ties between values that are one and the same function of the parameters
(:mod:`fiberscope.dimension.classes`) are none. Write ``u`` for the results of the ties that are left. Near the
parameter the output is ``G(theta, u(theta))`` with a polynomial ``G`` and Lipschitz continuous ``u``. So it is
differentiable if ``dG/du`` vanishes, with the derivative ``dG/dtheta``: no side has to be chosen.

``dG/du`` is a dyadic rational of a known number of bits. Different from zero modulo one prime it is different from
zero. It is zero where no non-zero weight leads to an output, or where it is zero modulo so many primes that their
product exceeds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fiberscope.dimension.classes import OpenTies, open_ties
from fiberscope.dimension.passes import gate, pool_winners
from fiberscope.dimension.rings import ModularRing
from fiberscope.dimension.spans import Span, multiplied, span, summed, united
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Operator
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.numerics.modular import LOW_BIT, random_primes


def kinks(net: Network, X: FloatArray, signs: SignArray) -> BoolArray:
    """Where a zero sign is a kink of an output in the parameters, ``(points, num_signs)``.

    ``signs`` are the certified ones of the batch ``X``. A point whose row is False throughout has a Jacobian. A row
    with a True one has sides with different derivatives there.

    The first neuron is at its kink, but the second one is off, and then the first has nothing to say:

    >>> net = Network([[[1.0]], [[1.0]], [[3.0]]], [[0.0], [-5.0], [1.0]])
    >>> kinks(net, np.zeros((1, 1)), net.signs([[0.0]]).signs)
    array([[False, False]])
    """
    zero = _apart_from_idle(net, signs)
    for i in np.flatnonzero(zero.any(axis=1)):
        found = open_ties(net, X[i], signs[i])
        reaching = _reaching(net, signs[i], found)
        zero[i] = _entries(net, found, reaching)
    return zero


def describe(net: Network, entry: int) -> str:
    """Which switch an entry of the sign vector belongs to, in words; neurons count from 0, layers from 1.

    >>> describe(Network.random((2, 3, 4, 1), 0), 5)
    'neuron 2 of hidden layer 2'
    """
    start = number = 0
    for index, node in enumerate(net.nodes):
        if not isinstance(node, PiecewiseLinear | MaxPool):
            continue
        number += 1
        if entry < start + node.num_signs:
            break
        start += node.num_signs
    place = entry - start
    if isinstance(node, MaxPool):
        return f"window {place // node.windows.shape[1]} of the max pool at node {index}"
    return f"neuron {place} of " + (f"hidden layer {number}" if net.is_chain else f"the activation at node {index}")


def _apart_from_idle(net: Network, signs: SignArray) -> BoolArray:
    """Zero signs without ties of a pool between inputs that are all off: the common case, for all points at once."""
    zero: BoolArray = np.asarray(signs == 0)
    start, off = 0, {}
    for index, node in enumerate(net.nodes):
        if isinstance(node, PiecewiseLinear):
            part = signs[:, start : start + node.num_signs]
            off[index + 1] = (part < 0) & (node.slopes == 0)
            start += node.num_signs
        elif isinstance(node, MaxPool):
            ties = zero[:, start : start + node.num_signs].reshape(len(signs), *node.windows.shape)
            if node.source in off:
                dead = off[node.source][:, np.maximum(node.windows, 0)]
                harmless = (~ties | dead).all(axis=2, keepdims=True)
                zero[:, start : start + node.num_signs] = (ties & ~harmless).reshape(len(signs), -1)
            start += node.num_signs
    return zero


def _entries(net: Network, found: OpenTies, reaching: BoolArray) -> BoolArray:
    """The entries of the sign vector that belong to ties with an effect."""
    result = np.zeros(net.num_signs, dtype=bool)
    start = 0
    for index, node in enumerate(net.nodes):
        if not isinstance(node, PiecewiseLinear | MaxPool):
            continue
        if index in found.signs:
            owner = found.signs[index]
            result[start : start + node.num_signs] = (owner >= 0) & reaching[np.maximum(owner, 0)]
        start += node.num_signs
    return result


def _reaching(net: Network, signs: SignArray, found: OpenTies) -> BoolArray:
    """Open ties with a non-zero derivative of some output behind them: none only if there is none, which is proven."""
    result = np.zeros(found.count, dtype=bool)
    possible = _behind(net, signs, found, Reach()).any(axis=1) if found.count else result
    if not possible.any():
        return result
    for prime in _primes_beyond(_bits(net)):
        result |= np.asarray(_behind(net, signs, found, ModularRing(prime)).any(axis=1))
        if result.any():
            # One is enough for the point. What is zero so far is not proven to be, but need not be named either.
            break
    return result


def _primes_beyond(bits: int) -> Iterator[int]:
    """Different primes whose product exceeds ``2^bits``: an integer below that which all of them divide is zero."""
    count, drawn = bits // LOW_BIT + 1, set[int]()
    rng = np.random.default_rng(0)
    while len(drawn) < count:
        prime = random_primes(1, rng)[0]
        if prime not in drawn:
            drawn.add(prime)
            yield prime


def _behind(net: Network, signs: SignArray, found: OpenTies, ring: Any) -> Any:
    """``dG/du`` in a ring: for every open tie the derivative of the outputs, ``(ties, out_size)``."""
    none = ring.take(np.zeros((found.count, 1)))
    values: list[Any] = [np.repeat(none, net.in_size, axis=1)]
    start = 0
    for index, node in enumerate(net.nodes):
        source = [values[s] for s in node.sources]
        value = source[0]
        if isinstance(node, Affine):
            for stage in node.operator.stages():
                value = ring.apply(stage, value)
        elif isinstance(node, PiecewiseLinear | MaxPool):
            part = signs[None, start : start + node.num_signs]
            start += node.num_signs
            value = _through(node, value, part, ring)
            if index in found.entries:
                value[:, found.entries[index]] = 0
                value[found.ties[index], found.entries[index]] = ring.take(np.ones(1))[0]
        elif isinstance(node, Add):
            for other in source[1:]:
                value = ring.add(value, other)
        else:
            value = np.concatenate(source, axis=1)
            value = value if node.order is None else value[:, node.order]
        values.append(value)
    return values[-1]


def _through(node: PiecewiseLinear | MaxPool, value: Any, signs: SignArray, ring: Any) -> Any:
    """A copy of what passes a switch."""
    if isinstance(node, PiecewiseLinear):
        return gate(value, (signs > 0, ring.take(node.slopes)), ring)
    winners: IntArray = pool_winners(node, None, signs)[0]
    return value[:, winners]


class Reach:
    """Zero or not, in place of numbers: what non-zero coefficients can lead to. A sum may vanish all the same."""

    def take(self, values: Any) -> Any:
        return (np.asarray(values) != 0).astype(np.float64)

    def apply(self, stage: Operator, rows: Any) -> Any:
        return self.take(stage.apply_abs(rows))

    def add(self, a: Any, b: Any) -> Any:
        return np.maximum(a, b)

    def multiply(self, a: Any, b: Any) -> Any:
        return a * b


def _bits(net: Network) -> int:
    """Bits of every entry of ``dG/du`` after multiplication with one power of two."""
    values: list[Span] = [(0, 0)]
    for node in net.nodes:
        value = united([values[s] for s in node.sources])
        if isinstance(node, Affine):
            for stage in node.operator.stages():
                value = multiplied(span(stage.coefficients), value, stage.fan_in)
        elif isinstance(node, PiecewiseLinear):
            value = united([value, multiplied(span(node.slopes), value, 1), (0, 1)])
        elif isinstance(node, MaxPool):
            value = united([value, (0, 1)])
        elif isinstance(node, Add):
            value = summed([values[s] for s in node.sources])
        values.append(value)
    low, high = values[-1]
    return max(1, high - low)
