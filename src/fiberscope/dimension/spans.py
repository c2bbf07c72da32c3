"""How many bits sums of products of floats can have, without forming them."""

from __future__ import annotations

from math import frexp
from typing import Any

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, MaxPool, PiecewiseLinear
from fiberscope.numerics.floats import FloatArray

Span = tuple[int, int]
"""``(low, high)``: all numbers are multiples of ``2^low`` and below ``2^high`` in absolute value."""


def span(values: Any) -> Span:
    """The span of some floats; zeros have any.

    >>> span([0.5, 3.0])
    (-1, 2)
    """
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    numbers = numbers[numbers != 0]
    if len(numbers) == 0:
        return 0, 0
    mantissas, exponents = np.frexp(numbers)
    integers = np.abs(mantissas * 2.0**53).astype(np.int64)
    trailing = np.frexp((integers & -integers).astype(np.float64))[1] - 1
    return int((exponents - 53 + trailing).min()), frexp(float(np.abs(numbers).max()))[1]


def _log(count: int) -> int:
    return max(0, int(count) - 1).bit_length()


def multiplied(a: Span, b: Span, terms: int) -> Span:
    """The span of sums of ``terms`` products."""
    return a[0] + b[0], a[1] + b[1] + _log(terms)


def repeated(a: Span, terms: int) -> Span:
    """The span of sums of ``terms`` numbers of one span."""
    return a[0], a[1] + _log(terms)


def united(spans: list[Span]) -> Span:
    """The span of numbers of any of these spans."""
    return min(s[0] for s in spans), max(s[1] for s in spans)


def summed(spans: list[Span]) -> Span:
    """The span of sums of one number of each span."""
    low, high = united(spans)
    return low, high + _log(len(spans))


def entry_bits(net: Network, X: FloatArray) -> int:
    """Bits of every entry of the Jacobian after multiplication with one power of two."""
    values = [span(X)]
    inputs: list[list[Span]] = []
    for node in net.nodes:
        stages: list[Span] = []
        value = values[node.sources[0]]
        if isinstance(node, Affine):
            for stage in node.operator.stages():
                stages.append(value)
                value = multiplied(span(stage.coefficients), value, stage.fan_in)
            if node.bias is not None:
                value = summed([value, span(node.bias)])
        elif isinstance(node, PiecewiseLinear):
            value = united([value, multiplied(span(node.slopes), value, 1)])
        elif isinstance(node, Add):
            value = summed([values[s] for s in node.sources])
        elif not isinstance(node, MaxPool):
            value = united([values[s] for s in node.sources])
        values.append(value)
        inputs.append(stages)
    return _backward_bits(net, inputs)


def _backward_bits(net: Network, inputs: list[list[Span]]) -> int:
    deltas: dict[int, list[Span]] = {len(net.nodes): [(0, 1)]}
    uses: dict[str, list[Span]] = {}
    for index in range(len(net.nodes) - 1, -1, -1):
        node = net.nodes[index]
        if index + 1 not in deltas:
            continue
        delta = summed(deltas.pop(index + 1))
        if isinstance(node, Affine):
            if node.bias is not None and node.bias_name is not None:
                uses.setdefault(node.bias_name, []).append(repeated(delta, node.operator.out_size))
            for stage, value in reversed(list(zip(node.operator.stages(), inputs[index], strict=True))):
                if node.weight_name is not None:
                    uses.setdefault(node.weight_name, []).append(multiplied(delta, value, stage.out_size))
                delta = multiplied(span(stage.coefficients), delta, stage.out_size)
        elif isinstance(node, PiecewiseLinear):
            delta = united([delta, multiplied(span(node.slopes), delta, 1)])
        elif isinstance(node, MaxPool):
            delta = repeated(delta, node.windows.size)
        for source in node.sources:
            deltas.setdefault(source, []).append(delta)
    low, high = united([summed(spans) for spans in uses.values()]) if uses else (0, 1)
    return max(1, high - low)
