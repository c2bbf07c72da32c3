r"""Whether the outputs at a point are differentiable in the parameters, decided exactly.

A preactivation that is exactly zero, or a tie inside a pooling window, is a kink of the *output* only if its sides
differ and the difference gets through. First, ties between values that are one and the same function of the parameters
(:mod:`fiberscope.dimension.classes`) are none. Write ``u`` for the results of the ties that are left. Near the
parameter the output is ``G(theta, u(theta))`` with a polynomial ``G`` and Lipschitz continuous ``u``. So it is
differentiable if ``dG/du`` vanishes, with the derivative ``dG/dtheta``: no side has to be chosen. Where it does not
vanish, ties whose members have equal derivatives (with respect to the parameters and to the ``u`` before them) are
taken out of ``u``: to first order they have one side only.

A derivative is a dyadic rational of a known number of bits. Different from zero modulo one prime it is different from
zero. It is zero where no non-zero weight leads to it, or where it is zero modulo so many primes that their product
exceeds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, assert_never

import numpy as np

from fiberscope.dimension.classes import OpenTies, open_ties
from fiberscope.dimension.jacobian import rows_in_ring
from fiberscope.dimension.spans import Span, Spans, entry_bits, united
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.network.walk import choices_of, cross, output, walk
from fiberscope.numerics.algebra.base import ArrayAlgebra, Constant
from fiberscope.numerics.algebra.bits import BitAlgebra
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.numerics.modular import WIDE, random_primes
from fiberscope.run import ENDLESS, Run


def kinks(net: Network, X: FloatArray, signs: SignArray, run: Run = ENDLESS) -> BoolArray:
    """Where a zero sign is a kink of an output in the parameters, ``(points, num_signs)``.

    ``signs`` are the certified ones of the batch ``X``. A point whose row is False throughout has a Jacobian, and the
    signs as they are give it. Where an entry is True, that switch has sides with different derivatives and the outputs
    depend on them. (Switches that share parameters may still cancel, as in ``relu(z) - relu(-z)``, or leave each other
    one side only, as in ``relu(z - 2 relu(z))``: this is not seen, and the point counts as a kink.)

    The first neuron is at its kink, but the second one is off, and then the first has nothing to say:

    >>> net = Network([[[1.0]], [[1.0]], [[3.0]]], [[0.0], [-5.0], [1.0]])
    >>> kinks(net, np.zeros((1, 1)), net.signs([[0.0]]).signs)
    array([[False, False]])
    """
    zero = _apart_from_idle(net, signs)
    for i in np.flatnonzero(zero.any(axis=1)):
        run.check()
        found = open_ties(net, X[i], signs[i])
        reaching = _reaching(net, signs[i], found)
        if reaching.any():
            found = _first_order(net, X[i], signs[i], found)
            reaching = _reaching(net, signs[i], found)
        zero[i] = _entries(net, found, reaching)
    return zero


def describe(net: Network, entry: int) -> str:
    """Which switch an entry of the sign vector belongs to, in words; neurons count from 0, layers from 1.

    >>> describe(Network.random((2, 3, 4, 1), 0), 5)
    'neuron 2 of hidden layer 2'
    """
    place = net.layout.at(entry)
    inside = entry - place.start
    if isinstance(place.node, MaxPool):
        return f"window {inside // place.node.windows.shape[1]} of the max pool at node {place.index}"
    layer = net.layout.places.index(place) + 1
    where = f"hidden layer {layer}" if net.is_chain else f"the activation at node {place.index}"
    return f"neuron {inside} of {where}"


def _apart_from_idle(net: Network, signs: SignArray) -> BoolArray:
    """Zero signs without ties of a pool between inputs that are all off: the common case, for all points at once."""
    zero: BoolArray = np.asarray(signs == 0)
    off: dict[int, BoolArray] = {}
    for place in net.layout.places:
        if isinstance(place.node, PiecewiseLinear):
            off[place.index + 1] = np.asarray((signs[:, place.columns] < 0) & (place.node.slopes == 0))
        elif isinstance(place.node, MaxPool) and place.source in off:
            windows = place.node.windows
            ties = zero[:, place.columns].reshape(len(signs), *windows.shape)
            harmless = (~ties | off[place.source][:, np.maximum(windows, 0)]).all(axis=2, keepdims=True)
            zero[:, place.columns] = (ties & ~harmless).reshape(len(signs), -1)
    return zero


def _entries(net: Network, found: OpenTies, reaching: BoolArray) -> BoolArray:
    """The entries of the sign vector that belong to ties with an effect."""
    result = np.zeros(net.num_signs, dtype=bool)
    for place in net.layout.places:
        if place.index in found.signs:
            owner = found.signs[place.index]
            result[place.columns] = (owner >= 0) & reaching[np.maximum(owner, 0)]
    return result


def _reaching(net: Network, signs: SignArray, found: OpenTies) -> BoolArray:
    """Open ties with a non-zero derivative of some output behind them: none only if there is none, which is proven."""
    result = np.zeros(found.count, dtype=bool)
    possible = _behind(net, signs, found, BitAlgebra()).any(axis=1) if found.count else result
    if not possible.any():
        return result
    for prime in _primes_beyond(_bits(net)):
        result |= np.asarray(_behind(net, signs, found, ModularAlgebra(prime, Constant.NOWHERE)).any(axis=1))
        if result.any():
            # One is enough for the point. What is zero so far is not proven to be, but need not be named either.
            break
    return result


def _primes_beyond(bits: int) -> Iterator[int]:
    """Different primes whose product exceeds ``2^bits``: an integer below that which all of them divide is zero."""
    count, drawn = bits // (WIDE - 1) + 1, set[int]()
    rng = np.random.default_rng(0)
    while len(drawn) < count:
        prime = random_primes(1, rng)[0]
        if prime not in drawn:
            drawn.add(prime)
            yield prime


def _behind(net: Network, signs: SignArray, found: OpenTies, algebra: ArrayAlgebra) -> Any:
    """``dG/du`` in an algebra without constants: the derivatives of the outputs for open ties, ``(ties, out_size)``."""
    values: dict[int, Any] = {0: algebra.take(np.zeros((found.count, net.in_size)))}
    choices, one = choices_of(net.layout, signs), algebra.take(np.ones(1))[0]
    for index in walk(net.layout, values, algebra, choices):
        if index in found.entries:
            node = net.layout.of_node[index].node
            value = cross(node, values[node.source], algebra, choices[index])
            value[:, found.entries[index]] = 0
            value[found.ties[index], found.entries[index]] = one
            values[index + 1] = value
    return values[len(net.nodes)]


# --- ties whose members have one derivative ------------------------------------------------------------------------


def _first_order(net: Network, x: FloatArray, signs: SignArray, found: OpenTies) -> OpenTies:
    """Only the ties whose members have different derivatives, given that the ties before them are open or not."""
    for index in sorted(found.entries):
        rows, ties = _differences(net, index, signs, found)
        if len(rows):
            same = ~_differ(net, index, x, signs, found, rows)
            closed = np.setdiff1d(ties, ties[~same])
            found = found.without(index, closed)
    return found


def _differences(net: Network, index: int, signs: SignArray, found: OpenTies) -> tuple[FloatArray, IntArray]:
    """Members of every tie of a node as differences ``(rows, size)`` that vanish if they agree, and whose tie it is."""
    place = net.layout.of_node[index]
    node, part = place.node, signs[place.columns]
    size = prod(net.shapes[node.source])
    rows, ties = [], []
    for entry, tie in zip(found.entries[index], found.ties[index], strict=True):
        match node:
            case MaxPool():
                best = node.windows[entry][part.reshape(node.windows.shape)[entry] >= 0]
                block = np.zeros((len(best) - 1, size))
                block[:, best[0]] = -1.0
                block[np.arange(len(best) - 1), best[1:]] = 1.0
            case PiecewiseLinear():
                block = np.zeros((1, size))
                block[0, entry] = 1.0
            case _:
                assert_never(node)
        rows.append(block)
        ties.append(np.full(len(block), tie))
    return np.concatenate(rows), np.concatenate(ties)


def _differ(net: Network, index: int, x: FloatArray, signs: SignArray, found: OpenTies, rows: FloatArray) -> BoolArray:
    """Which linear functions ``rows`` of the input of a node have a derivative other than zero, proven either way."""
    source = net.nodes[index].sources[0]
    if source == 0:
        return np.zeros(len(rows), dtype=bool)  # inputs do not depend on parameters
    part = Network.from_nodes([*net.nodes[:source], Affine(source, Dense(rows, net.shapes[source]))], net.input_shape)
    own = signs[: part.num_signs]
    before = found.before(source)
    result = np.zeros(len(rows), dtype=bool)
    for prime in _primes_beyond(max(entry_bits(part, x[None]), _bits(part))):
        if part.parameters:
            result |= np.asarray(rows_in_ring(part, x[None], ModularAlgebra(prime), own[None]).any(axis=1))
        if before.count:
            linear = ModularAlgebra(prime, Constant.NOWHERE)
            result |= np.asarray(_behind(part, own, before, linear).any(axis=0))
        if result.all():
            break
    return result


class _SpansBehind(Spans):
    """Spans of derivatives: no biases, and ones that begin at every switch."""

    def shift(self, value: Span, offset: FloatArray) -> Span:
        return value

    def piecewise(self, value: Span, slopes: FloatArray) -> Span:
        return united([self.gate(value, np.ones(1, dtype=bool), slopes), (0, 1)])

    def window_max(self, value: Span, windows: IntArray) -> Span:
        return united([value, (0, 1)])


def _bits(net: Network) -> int:
    """Bits of every entry of ``dG/du`` after multiplication with one power of two."""
    low, high = output(net.layout, (0, 0), _SpansBehind())
    return max(1, high - low)
