"""Quantisers of ONNX graphs: ``QuantizeLinear`` and ``DequantizeLinear`` of computed values.

The pair takes ``x`` to ``s (clip(round(x / s) + z, q, Q) - z)``: it clips to the range of the codes and rounds to the
grid, so it is off from the clipped value by half a step at most. That is how it is read, where somebody accounts for
the rounding; in a network, which is a continuous function, it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.formats.graph_values import Value
from fiberscope.network.formats.nonlinear import refusal
from fiberscope.network.formats.onnx.graph import Attributes, Graph
from fiberscope.network.nodes import Clip
from fiberscope.numerics.arrays import frozen
from fiberscope.numerics.floats import FloatArray

_CODES = {"int8": (-128, 127), "uint8": (0, 255)}


@dataclass(frozen=True, eq=False)
class Quantiser(Clip):
    """A clip whose result is rounded besides, by at most ``half`` a step for every entry."""

    half: FloatArray | float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        full = np.broadcast_to(
            np.asarray(self.half, dtype=np.float64).reshape(np.shape(self.half) or (1,)), self.low.shape
        )
        object.__setattr__(self, "half", frozen(full))


def _quantise(graph: Graph, node: Any, attributes: Attributes) -> Value:
    if not graph.rounding:
        raise refusal(node.op_type)
    value = graph.value(node)
    _check_readers(graph, node.output[0])
    scale, zero, kind = _grid(graph, node)
    if scale.size > 1:
        axis = _axis(graph, value, attributes)
        if value.shape[axis] != scale.size:
            raise UnsupportedModelError(f"scales along an axis of {value.shape} that has not {scale.size} entries")
        column = tuple(-1 if k == axis else 1 for k in range(len(value.shape)))
        scale, zero = scale.reshape(column), zero.reshape(column) if zero.size > 1 else zero
    else:
        scale, zero = scale.reshape(()), zero.reshape(())
    first, last = _CODES[kind]
    # exact: integers of a few bits times float32 numbers; half of a number is one, too
    low, high = ((code - zero) * scale for code in (first, last))
    full = [np.broadcast_to(x, value.shape).reshape(-1) for x in (low, high, scale / 2)]
    made = Quantiser(value.index, full[0], full[1], value.shape, full[2])
    return graph.builder.push(made, value.shape, value.batched)


def _dequantise(graph: Graph, node: Any, attributes: Attributes) -> Value:
    if not graph.rounding:
        raise refusal(node.op_type)
    value = graph.value(node)
    maker = next((other for other in graph.nodes if node.input[0] in other.output), None)
    if maker is None or maker.op_type != "QuantizeLinear":
        raise UnsupportedModelError("codes that are not right behind their quantiser are not supported")
    mine, theirs = _grid(graph, node), _grid(graph, maker)
    if not np.array_equal(mine[0], theirs[0]) or not np.array_equal(mine[1], theirs[1]):
        raise UnsupportedModelError("codes that are read with another scale than they are written with")
    if mine[0].size > 1 and _axis(graph, value, attributes) != _axis(graph, value, Attributes(maker)):
        raise UnsupportedModelError("codes that are read along another axis than they are written along")
    return value


def _check_readers(graph: Graph, codes: str) -> None:
    """Codes are no values: nothing but what turns them back may read them."""
    readers = [other for other in graph.nodes if codes in other.input and other.op_type != "DequantizeLinear"]
    who = [f"node {other.name or other.output[0]!r} ({other.op_type})" for other in readers]
    who += ["the output"] if codes == graph.result else []
    if who:
        read = f"its codes are read by {who[0]}"
        raise UnsupportedModelError(f"{read}; only DequantizeLinear right behind it is supported")


def _axis(graph: Graph, value: Value, attributes: Attributes) -> int:
    """The axis along which scales go, counted without the batch axis."""
    return graph.axis(value, attributes.integer("axis", 1), "a scale")


def first_code(node: Any, scale: Any) -> Any:
    """The zero point where a node names none: 0 of the type that it makes, which is uint8 if nothing is said."""
    attributes = Attributes(node)
    if attributes.integer("block_size", 0):
        raise UnsupportedModelError("scales in blocks are not supported")
    kind = attributes.integer("output_dtype", 0)
    if node.op_type == "DequantizeLinear" and kind and helper.tensor_dtype_to_np_dtype(kind) != scale.dtype:
        raise UnsupportedModelError("values of another type than the scales are not supported")
    made = kind if kind and node.op_type == "QuantizeLinear" else TensorProto.UINT8
    return np.zeros((), dtype=helper.tensor_dtype_to_np_dtype(made))


def _grid(graph: Graph, node: Any) -> tuple[FloatArray, FloatArray, str]:
    """Scale and zero point as float64 numbers, and the type of the codes."""
    found = [graph.constants.get(name) for name in node.input[1:3] if name]
    if not found or any(constant is None for constant in found):
        raise UnsupportedModelError("expected a scale and a zero point that are constants")
    arrays = [np.asarray(numpy_helper.to_array(c.proto)) for c in found if c is not None]
    scale = arrays[0].astype(np.float64).reshape(-1)
    first = first_code(node, arrays[0])
    zero = arrays[1] if len(arrays) > 1 else first
    if str(zero.dtype) not in _CODES:
        raise UnsupportedModelError(f"codes of type {zero.dtype}, expected int8 or uint8")
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise InputError("scale: expected positive numbers")
    if zero.size not in (1, scale.size):
        raise InputError(f"zero point: expected one number, or one for each of {scale.size} scales, got {zero.size}")
    return scale, zero.astype(np.float64).reshape(-1), str(zero.dtype)


QUANTISERS = {"DequantizeLinear": _dequantise, "QuantizeLinear": _quantise}
