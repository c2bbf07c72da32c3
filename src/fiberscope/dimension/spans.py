"""How many bits sums of products of floats can have, without forming them."""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp
from typing import Any

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.walk import backward, traced
from fiberscope.numerics.algebra.base import Algebra, LinearMap
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray

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


def united(spans: Sequence[Span]) -> Span:
    """The span of numbers of any of these spans."""
    return min(s[0] for s in spans), max(s[1] for s in spans)


def summed(spans: Sequence[Span]) -> Span:
    """The span of sums of one number of each span."""
    low, high = united(spans)
    return low, high + _log(len(spans))


class Spans(Algebra[Span]):
    """The spans of all values of a program: one for every value, whatever its switches do."""

    def take(self, values: FloatArray) -> Span:
        return span(values)

    def apply(self, stage: LinearMap, value: Span) -> Span:
        return multiplied(span(stage.coefficients), value, stage.fan_in)

    def shift(self, value: Span, offset: FloatArray) -> Span:
        return summed([value, span(offset)])

    def add(self, values: Sequence[Span]) -> Span:
        return summed(values)

    def concat(self, values: Sequence[Span], order: IntArray | None) -> Span:
        return united(values)

    def gate(self, value: Span, active: BoolArray, slopes: FloatArray | None) -> Span:
        return value if slopes is None else united([value, multiplied(span(slopes), value, 1)])

    def pick(self, value: Span, index: IntArray) -> Span:
        return value

    def active(self, value: Span) -> BoolArray:
        return np.ones(1, dtype=bool)  # any of them, or none

    def winners(self, value: Span, windows: IntArray) -> IntArray:
        return np.zeros(len(windows), dtype=np.int64)  # an input may win all windows

    def adjoint(self, stage: LinearMap, value: Span) -> Span:
        return multiplied(span(stage.coefficients), value, stage.out_size)

    def scatter(self, value: Span, index: IntArray, size: int) -> Span:
        return repeated(value, len(index))

    def split(self, value: Span, order: IntArray | None, sizes: Sequence[int]) -> list[Span]:
        return [value] * len(sizes)


def entry_bits(net: Network, X: FloatArray) -> int:
    """Bits of every entry of the Jacobian after multiplication with one power of two."""
    spans = Spans()
    trace = traced(net.layout, spans.take(X), spans)
    uses: dict[str, list[Span]] = {}
    for value, k, delta in backward(net.layout, trace.choices, {len(net.nodes): (0, 1)}, spans, first=1):
        node = net.nodes[value - 1]
        if not isinstance(node, Affine):
            continue
        stages = node.operator.stages()
        if k == len(stages) - 1 and node.bias is not None and node.bias_name is not None:
            uses.setdefault(node.bias_name, []).append(repeated(delta, node.operator.out_size))
        if node.weight_name is not None:
            entry = multiplied(delta, trace.inputs[value - 1][k], stages[k].out_size)
            uses.setdefault(node.weight_name, []).append(entry)
    low, high = united([summed(parts) for parts in uses.values()]) if uses else (0, 1)
    return max(1, high - low)
