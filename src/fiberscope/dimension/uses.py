"""Where parameters enter a program, and the derivatives there: what derivatives with respect to them are made of.

With the signs held fixed an output is a polynomial in the parameters, of degree one in each use of a parameter. So
the derivative with respect to a weight is the product of the *input* of its layer and the derivative of the output
with respect to the layer's result, called *delta*. A parameter that is used several times has the sum over its uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Operator, Shape
from fiberscope.network.walk import Journey, backward, choices_of, traced
from fiberscope.numerics.algebra.base import Ring
from fiberscope.numerics.floats import SignArray


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


def uses(net: Network, X: Any, ring: Ring, signs: SignArray | None = None) -> list[Use]:
    """All uses of all parameters on a batch ``X`` of floats ``(points, in_size)``.

    ``signs`` are certified signs ``(points, num_signs)``; without them the signs of the ring's own values decide,
    which only floats have. A zero takes the slope of the negative side, as torch does.
    """
    choices = None if signs is None else choices_of(net.layout, signs)
    trace = traced(net.layout, ring.take(X), ring, choices)
    return uses_behind(net, trace, ring, ring.take(np.eye(net.out_size))[None])


def uses_behind(net: Network, trace: Journey[Any], ring: Ring, delta: Any) -> list[Use]:
    """The uses of all parameters, last node first, for functions of the outputs with derivatives ``delta``.

    ``delta`` is ``(points or 1, functions, out_size)``; the identity asks for every output.
    """
    found: list[Use] = []
    # Nothing is asked about the network's input, value 0.
    for value, stage, behind in backward(net.layout, trace.choices, {len(net.nodes): delta}, ring, first=1):
        node = net.nodes[value - 1]
        if isinstance(node, Affine):
            found += _uses(node, stage, trace.inputs[value - 1][stage], behind)
    return found


def _uses(node: Affine, stage: int, inputs: Any, delta: Any) -> Iterator[Use]:
    """A stage of an affine node, and with the last one the bias."""
    stages, full = node.operator.stages(), node.operator.out_shape
    if stage == len(stages) - 1 and node.bias_name is not None and node.bias is not None:
        yield Use(node.bias_name, 0, None, node.bias.shape, full, None, delta)
    if node.weight_name is not None:
        start = node.operator.places()[stage].start
        yield Use(node.weight_name, start, stages[stage], stages[stage].coefficients.shape, full, inputs, delta)
