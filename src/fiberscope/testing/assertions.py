"""Slow, obvious oracles in rational arithmetic, and assertions built on them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, assert_never

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear
from fiberscope.numerics.arrays import batch, real_array
from fiberscope.numerics.floats import SignArray
from fiberscope.testing.rational import composite_value


def fraction_values(net: Network, x: Any) -> list[list[Fraction]]:
    """All values of the program at one point, in Python fractions, by definition: the oracle of every evaluation."""
    values = [[Fraction(float(v)) for v in real_array(x, "x").reshape(-1)]]
    detours = {detour.last: detour for detour in net.layout.detours.values()}
    for index, node in enumerate(net.nodes):
        values.append(_value(node, values))
        if index in detours:  # by definition, and not by what it means in plain nodes
            values[-1] = composite_value(detours[index].node, values[detours[index].source])
    return values


def _value(node: Node, values: list[list[Fraction]]) -> list[Fraction]:
    """One step; it shares nothing with the walk that it judges."""
    match node:
        case Affine():
            value = values[node.source]
            for stage in node.operator.stages():
                matrix = stage.dense()
                value = [
                    sum((Fraction(float(w)) * v for w, v in zip(row, value, strict=True) if w), Fraction(0))
                    for row in matrix
                ]
            offset = [0.0] * len(value) if node.offset is None else node.offset
            return [v + Fraction(float(b)) for v, b in zip(value, offset, strict=True)]
        case PiecewiseLinear():
            slopes = [Fraction(float(s)) for s in node.slopes]
            return [v if v > 0 else s * v for v, s in zip(values[node.source], slopes, strict=True)]
        case MaxPool():
            return [max(values[node.source][i] for i in window if i >= 0) for window in node.windows]
        case Concat():
            joined = [v for s in node.sources for v in values[s]]
            return joined if node.order is None else [joined[i] for i in node.order]
        case Add():
            return [sum(column, Fraction(0)) for column in zip(*(values[s] for s in node.sources), strict=True)]
        case _:
            assert_never(node)


def fraction_signs(net: Network, x: Any) -> SignArray:
    """The sign vector at one point by rational arithmetic, ``(num_signs,)``; linear neurons count as +1."""
    values = fraction_values(net, x)
    signs: list[int] = []
    for node in net.switches:
        here = values[node.source]
        match node:
            case PiecewiseLinear():
                signs += [1 if s == 1 else (v > 0) - (v < 0) for v, s in zip(here, node.slopes, strict=True)]
            case MaxPool():
                for window in node.windows:
                    signs += _margin_signs([here[i] if i >= 0 else None for i in window])
            case _:
                assert_never(node)
    return np.array(signs, dtype=np.int8)


def _margin_signs(inputs: list[Fraction | None]) -> list[int]:
    """Signs of every input of a window minus the best of the others; an absent one loses, one without rivals wins."""
    signs = []
    for j, value in enumerate(inputs):
        rivals = [v for i, v in enumerate(inputs) if i != j and v is not None]
        margin = Fraction(-1) if value is None else value - max(rivals) if rivals else Fraction(1)
        signs.append((margin > 0) - (margin < 0))
    return signs


def assert_same_function(a: Network, b: Network, X: Any) -> None:
    """Assert that two networks have *exactly* equal outputs on a batch, in rational arithmetic."""
    for index, x in enumerate(batch(X, a.in_size)):
        left, right = fraction_values(a, x)[-1], fraction_values(b, x)[-1]
        if left != right:
            gap = max(abs(p - q) for p, q in zip(left, right, strict=True))
            raise AssertionError(f"outputs differ by {float(gap):.3g} at point {index}: {x.tolist()}")
