"""Forward and backward through a program whose signs are fixed, in any ring: what derivatives are made of.

With the signs held fixed an output is a polynomial in the parameters, of degree one in each use of a parameter. So
the derivative with respect to a weight is the product of the *input* of its layer and the derivative of the output
with respect to the layer's result, called *delta*. A parameter that is used several times has the sum over its uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fiberscope.dimension.rings import FloatRing, Ring
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Operator, Shape
from fiberscope.numerics.arithmetic import gather
from fiberscope.numerics.floats import IntArray, SignArray


class Use(NamedTuple):
    """One place at which a parameter enters.

    ``delta`` is ``(points or 1, outputs, size)``: the derivative of every output with respect to the result of the
    layer, with one point where it is the same for all. ``inputs`` is ``(points, in_size)``, or None for a bias of
    ``shape``, which is broadcast to ``full``. ``start`` is the place of the first entry within the parameter.
    """

    name: str
    start: int
    operator: Operator | None
    shape: Shape
    full: Shape
    inputs: Any
    delta: Any


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """Values of a batch and what the backward pass needs: inputs of every affine stage, gates, pool winners."""

    stage_inputs: dict[int, list[Any]]
    gates: dict[int, Any]
    winners: dict[int, IntArray]
    values: list[Any]


def uses(net: Network, X: Any, ring: Ring, signs: SignArray | None = None) -> list[Use]:
    """All uses of all parameters on a batch ``X`` of floats ``(points, in_size)``.

    ``signs`` are certified signs ``(points, num_signs)``; without them the signs of the ring's own values decide,
    which only floats have. A zero takes the slope of the negative side, as torch does.
    """
    return backward(net, forward(net, ring.take(X), ring, signs), ring, ring.take(np.eye(net.out_size))[None])


def forward(net: Network, X: Any, ring: Ring, signs: SignArray | None) -> Forward:
    """Values of the program on a batch in the ring, with the signs given or, in floats, found."""
    found = Forward({}, {}, {}, [X])
    start = 0
    for index, node in enumerate(net.nodes):
        source = [found.values[s] for s in node.sources]
        if isinstance(node, Affine):
            value, found.stage_inputs[index] = source[0], []
            for stage in node.operator.stages():
                found.stage_inputs[index].append(value)
                value = ring.apply(stage, value)
            if node.offset is not None:
                value = ring.add(value, ring.take(node.offset))
        elif isinstance(node, PiecewiseLinear):
            part = None if signs is None else signs[:, start : start + node.num_signs]
            found.gates[index] = (source[0] > 0 if part is None else part > 0), _slopes(node, ring)
            value = gate(source[0], found.gates[index], ring)
            start += node.num_signs
        elif isinstance(node, MaxPool):
            part = None if signs is None else signs[:, start : start + node.num_signs]
            found.winners[index] = pool_winners(node, source[0], part)
            value = np.take_along_axis(source[0], found.winners[index], axis=1)
            start += node.num_signs
        elif isinstance(node, Add):
            value = source[0]
            for other in source[1:]:
                value = ring.add(value, other)
        else:
            value = np.concatenate(source, axis=1)
            value = value if node.order is None else value[:, node.order]
        found.values.append(value)
    return found


def _slopes(node: PiecewiseLinear, ring: Ring) -> Any:
    return ring.take(node.slopes) if _leaky(node) else None


@lru_cache(maxsize=1024)
def _leaky(node: PiecewiseLinear) -> bool:
    return bool(node.slopes.any())


def gate(value: Any, gates: tuple[Any, Any], ring: Ring) -> Any:
    """``value`` where active, ``slope * value`` elsewhere."""
    active, slopes = gates
    if slopes is None:
        # A product is faster than a choice and the same: values are finite, and residues below 2^61.
        return value * active
    return np.where(active, value, ring.multiply(value, np.broadcast_to(slopes, np.shape(value))))


def pool_winners(node: MaxPool, value: Any, signs: SignArray | None) -> IntArray:
    """Input that each window takes its value from, ``(points, windows)``: the first that no other beats."""
    if signs is None:
        first = gather(value, node.windows, -np.inf).argmax(axis=2)
    else:
        first = (signs.reshape(len(signs), *node.windows.shape) >= 0).argmax(axis=2)
    return np.asarray(np.take_along_axis(node.windows[None], first[:, :, None], axis=2)[:, :, 0])


def backward(net: Network, found: Forward, ring: Ring, delta: Any) -> list[Use]:
    """The uses of all parameters, last node first, for functions of the outputs with derivatives ``delta``.

    ``delta`` is ``(points or 1, functions, out_size)``; the identity asks for every output.
    """
    deltas: dict[int, Any] = {len(net.nodes): delta}
    result: list[Use] = []
    for index in range(len(net.nodes) - 1, -1, -1):
        delta = deltas.pop(index + 1, None)
        if delta is None:
            continue  # a value that the output does not depend on
        node = net.nodes[index]
        if isinstance(node, Affine):
            _affine(node, found.stage_inputs[index], delta, deltas, result, ring)
        elif isinstance(node, PiecewiseLinear):
            active, slopes = found.gates[index]
            _send(deltas, node.source, gate(delta, (active[:, None, :], slopes), ring), ring)
        elif isinstance(node, MaxPool):
            _send(deltas, node.source, _unpool(delta, found.winners[index], prod(node.in_shape), ring), ring)
        elif isinstance(node, Add):
            for source in node.sources:
                _send(deltas, source, delta, ring)
        else:
            laid = delta if node.order is None else delta[..., np.argsort(node.order)]
            ends = np.cumsum([prod(s) for s in node.shapes])
            for source, part in zip(node.sources, np.split(laid, ends[:-1], axis=2), strict=True):
                _send(deltas, source, part, ring)
    return result


def _affine(
    node: Affine, inputs: Sequence[Any], delta: Any, deltas: dict[int, Any], result: list[Use], ring: Ring
) -> None:
    operator = node.operator
    full = operator.out_shape
    if node.bias_name is not None and node.bias is not None:
        result.append(Use(node.bias_name, 0, None, node.bias.shape, full, None, delta))
    stages = operator.stages()
    end = 0 if len(stages) == 1 else operator.coefficients.size
    for k in range(len(stages) - 1, -1, -1):
        own = stages[k].coefficients
        end = max(0, end - own.size)
        if node.weight_name is not None:
            result.append(Use(node.weight_name, end, stages[k], own.shape, full, inputs[k], delta))
        if k > 0 or node.source > 0:  # nothing is asked about the network's input
            lead, functions, size = delta.shape
            delta = ring.adjoint(stages[k], delta.reshape(lead * functions, size)).reshape(lead, functions, -1)
    if node.source > 0:
        _send(deltas, node.source, delta, ring)


def _send(deltas: dict[int, Any], source: int, delta: Any, ring: Ring) -> None:
    if source > 0:
        deltas[source] = delta if source not in deltas else ring.add(deltas[source], delta)


def _unpool(delta: Any, winners: IntArray, size: int, ring: Ring) -> Any:
    points, outputs = len(winners), delta.shape[1]
    rows = np.broadcast_to(delta, (points, *delta.shape[1:])).reshape(points * outputs, -1)
    return ring.scatter(rows, np.repeat(winners, outputs, axis=0), size).reshape(points, outputs, size)


FLOAT = FloatRing()
"""The ordinary ring."""
