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
from typing import Any

import numpy as np

from fiberscope.dimension.classes import OpenTies, open_ties
from fiberscope.dimension.jacobian import rows_in_ring
from fiberscope.dimension.passes import gate, pool_winners
from fiberscope.dimension.rings import ModularRing
from fiberscope.dimension.spans import Span, entry_bits, multiplied, span, summed, united
from fiberscope.network.layout import Layout
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense, Operator
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.numerics.modular import LOW_BIT, random_primes


def kinks(net: Network, X: FloatArray, signs: SignArray) -> BoolArray:
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
    layout = Layout(net.nodes)
    place = layout.at(entry)
    inside = entry - place.start
    if isinstance(place.node, MaxPool):
        return f"window {inside // place.node.windows.shape[1]} of the max pool at node {place.index}"
    where = (
        f"hidden layer {layout.places.index(place) + 1}" if net.is_chain else f"the activation at node {place.index}"
    )
    return f"neuron {inside} of {where}"


def _apart_from_idle(net: Network, signs: SignArray) -> BoolArray:
    """Zero signs without ties of a pool between inputs that are all off: the common case, for all points at once."""
    zero: BoolArray = np.asarray(signs == 0)
    off: dict[int, BoolArray] = {}
    for place in Layout(net.nodes).places:
        if isinstance(place.node, PiecewiseLinear):
            off[place.index + 1] = np.asarray((signs[:, place.columns] < 0) & (place.node.slopes == 0))
        elif place.source in off:
            windows = place.node.windows
            ties = zero[:, place.columns].reshape(len(signs), *windows.shape)
            harmless = (~ties | off[place.source][:, np.maximum(windows, 0)]).all(axis=2, keepdims=True)
            zero[:, place.columns] = (ties & ~harmless).reshape(len(signs), -1)
    return zero


def _entries(net: Network, found: OpenTies, reaching: BoolArray) -> BoolArray:
    """The entries of the sign vector that belong to ties with an effect."""
    result = np.zeros(net.num_signs, dtype=bool)
    for place in Layout(net.nodes).places:
        if place.index in found.signs:
            owner = found.signs[place.index]
            result[place.columns] = (owner >= 0) & reaching[np.maximum(owner, 0)]
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
    switches = Layout(net.nodes).of_node
    for index, node in enumerate(net.nodes):
        source = [values[s] for s in node.sources]
        value = source[0]
        if isinstance(node, Affine):
            for stage in node.operator.stages():
                value = ring.apply(stage, value)
        elif isinstance(node, PiecewiseLinear | MaxPool):
            value = _through(node, value, signs[None, switches[index].columns], ring)
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
    place = Layout(net.nodes).of_node[index]
    node, part = place.node, signs[place.columns]
    size = prod(net.shapes[node.source])
    rows, ties = [], []
    for entry, tie in zip(found.entries[index], found.ties[index], strict=True):
        if isinstance(node, MaxPool):
            best = node.windows[entry][part.reshape(node.windows.shape)[entry] >= 0]
            block = np.zeros((len(best) - 1, size))
            block[:, best[0]] = -1.0
            block[np.arange(len(best) - 1), best[1:]] = 1.0
        else:
            block = np.zeros((1, size))
            block[0, entry] = 1.0
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
        ring = ModularRing(prime)
        if part.parameters:
            result |= np.asarray(rows_in_ring(part, x[None], ring, own[None]).any(axis=1))
        if before.count:
            result |= np.asarray(_behind(part, own, before, ring).any(axis=0))
        if result.all():
            break
    return result


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
