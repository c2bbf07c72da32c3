"""ONNX operators with kinks: activations, bounds, the largest of several; one function per operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.formats.graph_values import Named, Value
from fiberscope.network.formats.onnx.graph import Attributes, Graph
from fiberscope.network.formats.onnx.stored_constants import array_of
from fiberscope.network.nodes import MaxPool


def _relu(graph: Graph, node: Any, attributes: Attributes) -> Value:
    return graph.builder.activation(graph.value(node), 0.0)


def _abs(graph: Graph, node: Any, attributes: Attributes) -> Value:
    return graph.builder.activation(graph.value(node), -1.0)


def _clip(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = graph.value(node)
    bounds = []
    for index, (name, infinite) in enumerate((("min", -np.inf), ("max", np.inf)), start=1):
        if name in attributes.found:  # before opset 11
            bounds.append(_bound(np.float32(attributes.found[name])))
        else:
            bounds.append(_constant_bound(graph, node, index, value) if len(node.input) > index else None)
        bounds[-1] = infinite if bounds[-1] is None else bounds[-1]
    return graph.builder.clip(value, bounds[0], bounds[1], join=not graph.notes.own)


def _constant_bound(graph: Graph, node: Any, index: int, value: Value) -> Any:
    """A constant bound, which may be infinite; None where it is absent."""
    if not node.input[index]:
        return None
    found = graph.constant(node, index)
    if found is None:
        raise UnsupportedModelError("its bounds are not constant")
    graph.builder.precisions.add(found.precision)
    graph.builder.drop_names(graph.parameters_of([found]))  # a parameter that is a bound is no weight
    array = np.asarray(array_of(found.proto, graph.folder))
    return graph.aligned(Named(_bound(array)), value).array


def _bound(array: Any) -> Any:
    """In float32 the largest number says that there is no bound: no value is beyond it."""
    limit = np.finfo(array.dtype).max
    if np.isnan(array).any():
        raise InputError("a bound is not a number")
    exact = np.asarray(array, dtype=np.float64)
    return np.where(np.abs(exact) >= limit, np.copysign(np.inf, exact), exact) if array.dtype != np.float64 else exact


def _hard_sigmoid(graph: Graph, node: Any, attributes: Attributes) -> Value:
    alpha, beta = attributes.number("alpha", float(np.float32(0.2))), attributes.number("beta", 0.5)
    line = graph.builder.scale(graph.value(node), Named(np.asarray(alpha)), Named(np.asarray(beta)))
    return graph.builder.clip(line, 0.0, 1.0)


def _extreme(largest: bool) -> Any:
    def extreme(graph: Graph, node: Any, attributes: Attributes) -> Value:
        """Max or Min: the largest of the computed values, which constants clip."""
        if node.name in graph.notes.windows:
            return _own_windows(graph, node)
        values = [graph.values[name] for name in node.input if name in graph.values]
        if not values:
            return graph.value(node)
        if largest:
            value = graph.builder.maximum(graph.alike(values))
        elif len(values) == 1:
            value = values[0]
        else:
            lower = [graph.builder.negated(value) for value in graph.alike(values)]
            value = graph.builder.negated(graph.builder.maximum(lower))
        join = not graph.notes.own or node.name in graph.notes.joined
        for k, name in enumerate(node.input):
            if name not in graph.values:
                bound = _constant_bound(graph, node, k, value)
                low, high = (bound, np.inf) if largest else (-np.inf, bound)
                value = graph.builder.clip(value, low, high, join)
        return value

    return extreme


def _own_windows(graph: Graph, node: Any) -> Value:
    """In a file of our own, the largest of several selections of one vector: windows given one by one."""
    makers = [next(other for other in graph.nodes if name in other.output) for name in node.input]
    places = [graph.constant(maker, 1) for maker in makers]
    sources = {maker.input[0] for maker in makers}
    if {maker.op_type for maker in makers} != {"Gather"} or len(sources) != 1 or None in places:
        raise InputError("the notes say that it is a maximum over windows, the graph says something else")
    table = np.array([place.integers() for place in places if place is not None]).T
    shape, absent = graph.notes.windows[node.name]
    kept = np.ones(table.shape, dtype=bool)
    kept.reshape(-1)[list(absent)] = False
    # what the notes leave out must stand in its window a second time
    first = np.take_along_axis(table, kept.argmax(axis=1)[:, None], axis=1)
    if not (kept | (table == first)).all():
        raise InputError("the notes leave out inputs of a maximum")
    table = np.where(kept, table, -1)
    value = graph.values[sources.pop()].reshaped(shape)
    return graph.builder.push(MaxPool.over(value.index, shape, table), (len(table),), value.batched)


def _leaky_relu(graph: Graph, node: Any, attributes: Attributes) -> Value:
    # The attribute is a float32 in the file, and so is the specification's default.
    return graph.builder.activation(graph.value(node), attributes.number("alpha", float(np.float32(0.01))))


def _prelu(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = graph.value(node)
    slope = graph.aligned(graph.required(node, 1, "slope"), value)
    return graph.builder.activation(value, slope.array, slope.name)


BENDS: dict[str, Callable[[Graph, Any, Attributes], Value]] = {
    "Abs": _abs,
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": _leaky_relu,
    "Max": _extreme(True),
    "Min": _extreme(False),
    "PRelu": _prelu,
    "Relu": _relu,
}
