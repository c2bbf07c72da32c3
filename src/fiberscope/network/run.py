"""Running a program: one interpreter for every arithmetic, and the affine map of a program with fixed signs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear
from fiberscope.numerics.arithmetic import EXACT, Arithmetic, BallArithmetic, balls, nearest_floats
from fiberscope.numerics.floats import FloatArray, IntArray, ObjectArray, SignArray

V = TypeVar("V")


def all_values(nodes: Sequence[Node], value: V, arithmetic: Arithmetic[V]) -> list[V]:
    """Values of all nodes, the input first."""
    values = [value]
    for node in nodes:
        values.append(step(node, values, arithmetic))
    return values


def output(nodes: Sequence[Node], value: V, arithmetic: Arithmetic[V], last_use: Sequence[int]) -> V:
    """The output alone; a value is let go after its last use, so that deep networks need little memory."""
    alive = {0: value}
    for index, node in enumerate(nodes):
        alive[index + 1] = step(node, alive, arithmetic)
        for source in set(node.sources):
            if last_use[source] == index:
                del alive[source]
    return alive[len(nodes)]


def step(node: Node, values: Sequence[V] | Mapping[int, V], arithmetic: Arithmetic[V]) -> V:
    """The value of one node."""
    match node:
        case Affine():
            return arithmetic.affine(node.operator, node.offset, values[node.source])
        case PiecewiseLinear():
            return arithmetic.piecewise(values[node.source], node.slopes)
        case Add():
            return arithmetic.add([values[s] for s in node.sources])
        case Concat():
            return arithmetic.concat([values[s] for s in node.sources], node.order)
        case MaxPool():
            return arithmetic.window_max(values[node.source], node.windows)


def switch_values(nodes: Sequence[Node], value: V, arithmetic: Arithmetic[V]) -> list[V]:
    """What the signs are taken of: preactivations, and for max pooling the margins of every input."""
    values = [value]
    wanted = []
    for node in nodes:
        if isinstance(node, PiecewiseLinear):
            wanted.append(values[node.source])
        elif isinstance(node, MaxPool):
            wanted.append(arithmetic.window_margins(values[node.source], node.windows))
        values.append(step(node, values, arithmetic))
    return wanted


def affine_values(nodes: Sequence[Node], size: int, signs: SignArray) -> list[FloatArray]:
    """Every value of the program as an affine function of the input, with the signs held fixed, in float64.

    Value ``k`` comes as ``(size + 1, features)``: a row for each input coordinate and last the constant term.
    A zero sign takes the slope of the negative side; the first of several winners wins its window.
    """
    return _pieces(nodes, np.eye(size + 1, size), signs, lambda x: x)


def affine_output(nodes: Sequence[Node], size: int, signs: SignArray) -> FloatArray:
    """The last of :func:`affine_values`; where a number on the way leaves the range of floats, it is computed exactly
    and rounded once, so that only a coefficient that is itself beyond that range is infinite, and none is NaN.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rows = affine_values(nodes, size, signs)[-1]
    if np.isfinite(rows).all():
        return rows
    with BallArithmetic(EXACT).working():
        return nearest_floats(exact_affine_values(nodes, size, signs)[-1])


def exact_affine_values(nodes: Sequence[Node], size: int, signs: SignArray) -> list[ObjectArray]:
    """As :func:`affine_values`, in exact Arb numbers; call it under an exact working precision."""
    return _pieces(nodes, balls(np.eye(size + 1, size)), signs, balls)


def _pieces(nodes: Sequence[Node], rows: Any, signs: SignArray, convert: Callable[[Any], Any]) -> list[Any]:
    values, start = [rows], 0
    exact = rows.dtype == object
    for node in nodes:
        if isinstance(node, Affine):
            value = values[node.source]
            for stage in node.operator.stages():
                value = stage.apply_scalars(value) if exact else stage.apply(value)
            if node.offset is not None:
                value[-1] = value[-1] + convert(node.offset)
        elif isinstance(node, PiecewiseLinear):
            part = signs[start : start + node.num_signs]
            start += node.num_signs
            value = values[node.source] * convert(np.where(part > 0, 1.0, node.slopes))
        elif isinstance(node, MaxPool):
            part = signs[start : start + node.num_signs]
            start += node.num_signs
            value = values[node.source][:, winners(node, part)]
        elif isinstance(node, Add):
            value = sum((values[s] for s in node.sources[1:]), start=values[node.sources[0]])
        else:
            value = np.concatenate([values[s] for s in node.sources], axis=1)
            value = value if node.order is None else value[:, node.order]
        values.append(value)
    return values


def winners(node: MaxPool, signs: SignArray) -> IntArray:
    """Input index that each window takes its value from: the first one that no other input beats."""
    first = (signs.reshape(node.windows.shape) >= 0).argmax(axis=1)
    return np.take_along_axis(node.windows, first[:, None], axis=1)[:, 0]
