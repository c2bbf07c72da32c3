"""What each ONNX operator means for a network: one function per operator.

Every function takes the graph, the node and its attributes, and gives the node's value, or a constant passed on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.formats.graph_values import Named, Value, Window
from fiberscope.network.formats.nonlinear import NotPiecewiseLinearError
from fiberscope.network.formats.onnx.bends import BENDS
from fiberscope.network.formats.onnx.graph import Attributes, Graph, MixesBatchError
from fiberscope.network.formats.onnx.quantisers import QUANTISERS
from fiberscope.network.formats.onnx.shaping import SHAPES
from fiberscope.network.formats.onnx.stored_constants import FLOATS, Constant, kind_name
from fiberscope.network.operators import Dense, Sparse
from fiberscope.numerics.arrays import real_array


def _constant(graph: Graph, node: Any, attributes: Attributes) -> Constant:
    name = node.output[0]
    for key in ("value", "sparse_value"):
        if key in attributes.found:
            return Constant(name, attributes.found[key], graph.folder, False)
    for key, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64)):
        if key in attributes.found:
            array = np.asarray(attributes.found[key], dtype=dtype)
            return Constant(name, onnx.numpy_helper.from_array(array), graph.folder, False)
    if "value_ints" in attributes.found:
        array = np.asarray(attributes.found["value_ints"], dtype=np.int64)
        return Constant(name, onnx.numpy_helper.from_array(array), graph.folder, False)
    raise UnsupportedModelError("a constant that is not a tensor of numbers")


def _identity(graph: Graph, node: Any, attributes: Attributes) -> Value | Constant:
    constant = graph.constant(node, 0)
    return graph.value(node) if constant is None else constant


def _cast(graph: Graph, node: Any, attributes: Attributes) -> Value | Constant:
    """From one float type to another: the same number, up to the rounding of a runtime."""
    kind = attributes.integer("to", 0)
    if kind not in FLOATS:
        raise UnsupportedModelError(f"a change of type to {kind_name(kind)} is not supported")
    return _identity(graph, node, attributes)


def _dropout(graph: Graph, node: Any, attributes: Attributes) -> Value:
    training = node.input[2] if len(node.input) > 2 else ""
    if training:
        flag = graph.constants.get(training)
        if flag is None or np.asarray(onnx.numpy_helper.to_array(flag.proto)).any():
            raise UnsupportedModelError("dropout in training mode is not a function")
    return graph.value(node)


def _gemm(graph: Graph, node: Any, attributes: Attributes) -> Value:
    alpha, beta = attributes.number("alpha", 1.0), attributes.number("beta", 1.0)
    turn = attributes.integer("transA", 0), attributes.integer("transB", 0)
    weight = graph.constant(node, 1)
    if weight is not None:
        value = _turned(graph, graph.value(node, 0), bool(turn[0]))
        result = _right(graph, node, value, weight, bool(turn[1]))
    elif (left := graph.constant(node, 0)) is not None:
        value = _turned(graph, graph.value(node, 1), bool(turn[1]))
        named = graph.named(left)
        result = _left(graph, value, Named(named.array.T if turn[0] else named.array, named.name))
    else:
        graph.value(node, 1)  # which is missing or not defined in a damaged file
        raise NotPiecewiseLinearError("a product of computed values is not piecewise linear")
    if alpha != 1:
        result = graph.builder.scale(result, Named(np.asarray(alpha)))
    bias = graph.optional(node, 2, "bias")
    if bias is None or beta == 0:
        return result
    if beta != 1:
        bias = Named(real_array(beta * bias.array, "beta times bias"))
    return graph.builder.shift(result, graph.aligned(bias, result), fuse=True)


def _turned(graph: Graph, value: Value, transpose: bool) -> Value:
    """A matrix operand of Gemm, transposed where asked; a batch of one may be turned into a column."""
    if not transpose:
        return value
    full = graph.full(value)
    if len(full) != 2 or (value.batched and graph.batch != 1):
        raise MixesBatchError(f"cannot transpose a value of shape {value.shape} with its batch axis")
    rows, columns = full
    if min(full) == 1:
        return value.reshaped((columns, rows), batched=False)
    return graph.builder.gather(value, np.arange(rows * columns).reshape(rows, columns).T)


def _matmul(graph: Graph, node: Any, attributes: Attributes) -> Value:
    weight = graph.constant(node, 1)
    if weight is not None:
        return _right(graph, node, graph.value(node, 0), weight, False)
    left = graph.constant(node, 0)
    if left is None:
        graph.value(node, 1)
        raise NotPiecewiseLinearError("a product of computed values is not piecewise linear")
    return _left(graph, graph.value(node, 1), graph.named(left))


def _right(graph: Graph, node: Any, value: Value, weight: Constant, transposed: bool) -> Value:
    """``x @ W`` (``x @ W.T`` if transposed) along the last axis."""
    shapes = graph.notes.shapes.get(node.name)
    if weight.is_sparse:
        graph.builder.precisions.add(weight.precision)
        matrix = weight.matrix() if transposed else weight.matrix().T.tocsr()
        in_shape, out_shape = shapes or (value.shape, (matrix.shape[0],))
        operator = Sparse(matrix, in_shape, out_shape)
        name = graph.notes.parameter(weight)
        return graph.builder.affine(value, operator, None, (name, None), (operator.out_size,))
    named = graph.named(weight)
    array = named.array
    rank = len(value.shape) + value.batched
    if array.ndim > 2:
        if array.ndim > rank or any(n != 1 for n in array.shape[:-2]):
            raise UnsupportedModelError(f"a stack of matrices {array.shape} is not supported")
        array = array.reshape(array.shape[-2:])
    vector = array.ndim == 1
    array = array.reshape(1, -1) if vector else (array if transposed else array.T)
    if not value.shape:
        raise UnsupportedModelError("a product over the batch axis mixes the points")
    if shapes is not None and not vector and shapes[1] == array.shape[:1]:
        return graph.builder.affine(value, Dense(array, shapes[0]), None, (named.name, None))
    result = graph.builder.dense(value, Named(array, named.name))
    return result.reshaped(result.shape[:-1], result.batched) if vector else result


def _left(graph: Graph, value: Value, named: Named) -> Value:
    """``W @ X``: along the last but one axis, which must not be the batch; ``W @ x`` for a vector without a batch."""
    array = named.array
    if array.ndim > 2:
        if array.ndim > len(value.shape) + value.batched or any(n != 1 for n in array.shape[:-2]):
            raise UnsupportedModelError(f"a stack of matrices {array.shape} is not supported")
        array = array.reshape(array.shape[-2:])
    if value.batched and len(value.shape) == 1:
        raise MixesBatchError(
            f"a constant {array.shape} times a value of shape {tuple(graph.full(value))} mixes the points of a batch; "
            "if the input has no batch axis, give its full shape as input_shape"
        )
    matrix = Named(array.reshape(-1, array.shape[-1]), named.name)
    if len(value.shape) == 1:
        result = graph.builder.dense(value, matrix)
        return result.reshaped(array.shape[:-1], result.batched)
    if len(value.shape) != 2:
        raise UnsupportedModelError(f"a constant {array.shape} times a value of shape {value.shape} is not supported")
    result = graph.builder.dense_left(value, matrix)
    return result.reshaped((*array.shape[:-1], value.shape[1]), result.batched)


# -- entrywise -------------------------------------------------------------------------------------------------


def _operands(graph: Graph, node: Any, attributes: Attributes) -> tuple[Value, Named | None, bool]:
    """The computed operand, the constant one (aligned with it; None if both are computed), and whether it is first."""
    if attributes.found.keys() & {"broadcast", "axis"}:
        raise UnsupportedModelError("broadcasting of ONNX before opset 7 is not supported")
    first, second = graph.constant(node, 0), graph.constant(node, 1)
    if first is not None:
        value = graph.value(node, 1)
        return value, graph.aligned(graph.named(first), value), True
    value = graph.value(node, 0)
    return value, None if second is None else graph.aligned(graph.named(second), value), False


def _add(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value, constant, first = _operands(graph, node, attributes)
    if constant is None:
        return graph.builder.add(graph.alike([value, graph.value(node, 1)]))
    return graph.builder.shift(value, constant, fuse=graph.private(node.input[1 if first else 0]))


def _sum(graph: Graph, node: Any, attributes: Attributes) -> Value:
    values = [graph.value(node, index) for index in range(len(node.input))]
    return values[0] if len(values) == 1 else graph.builder.add(graph.alike(values))


def _sub(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value, constant, first = _operands(graph, node, attributes)
    if constant is None:
        return graph.builder.subtract(*graph.alike([value, graph.value(node, 1)]))
    if first:
        return graph.builder.scale(value, Named(np.full_like(constant.array, -1.0)), constant)
    return graph.builder.shift(value, Named(0.0 - constant.array), fuse=False)


def _mul(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value, constant, _ = _operands(graph, node, attributes)
    if constant is None:
        raise NotPiecewiseLinearError("a product of computed values is not piecewise linear")
    return graph.builder.scale(value, constant)


def _div(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value, constant, first = _operands(graph, node, attributes)
    if constant is None or first:
        raise NotPiecewiseLinearError("division by a computed value is not piecewise linear")
    if (constant.array == 0).any():
        raise InputError("division by zero")
    return graph.builder.scale(value, Named(real_array(1 / constant.array, "reciprocal")))


def _neg(graph: Graph, node: Any, attributes: Attributes) -> Value:
    return graph.builder.negated(graph.value(node))


# -- convolution, normalisation, pooling -----------------------------------------------------------------------


def _image(graph: Graph, node: Any) -> Value:
    value = graph.value(node)
    if not value.batched or len(value.shape) not in (2, 3):
        raise UnsupportedModelError(f"expected (batch, channels, length) or an image, got {tuple(graph.full(value))}")
    return value


def _window(value: Value, attributes: Attributes, size: tuple[int, ...]) -> Window:
    axes = len(value.shape) - 1
    if len(size) != axes:
        raise InputError(f"kernel_shape: expected {axes} sizes for {value.shape}, got {size}")
    stride = attributes.integers("strides", (1,) * axes)
    dilation = attributes.integers("dilations", (1,) * axes)
    mode = attributes.text("auto_pad", "NOTSET")
    padding = attributes.integers("pads", (0,) * (2 * axes))
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
            for n, s, d, k in zip(value.shape[1:], stride, dilation, size, strict=True)
        ]
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        padding = (*small, *large) if mode == "SAME_UPPER" else (*large, *small)
    elif mode == "VALID":
        padding = (0,) * (2 * axes)
    elif mode != "NOTSET":
        raise InputError(f"auto_pad: unknown mode {mode!r}")
    return Window(size, stride, padding, dilation, bool(attributes.integer("ceil_mode", 0)))


def _conv(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value, weight = _image(graph, node), graph.required(node, 1, "kernel")
    window = _window(value, attributes, weight.array.shape[2:])
    bias = graph.optional(node, 2, "bias")
    return graph.builder.convolution(value, weight, bias, window, attributes.integer("group", 1))


def _conv_transpose(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value, weight = _image(graph, node), graph.required(node, 1, "kernel")
    axes, size = len(value.shape) - 1, weight.array.shape[2:]
    stride, dilation = (attributes.integers(name, (1,) * axes) for name in ("strides", "dilations"))
    more = attributes.integers("output_padding", (0,) * axes)
    mode = attributes.text("auto_pad", "NOTSET")
    padding = attributes.integers("pads", (0,) * (2 * axes))
    same = mode in ("SAME_UPPER", "SAME_LOWER")
    if "output_shape" in attributes.found or same:
        steps = zip(value.shape[1:], stride, dilation, size, more, strict=True)
        full = [s * (n - 1) + d * (k - 1) + 1 + extra for n, s, d, k, extra in steps]
        wanted = attributes.integers("output_shape", tuple(n * s for n, s in zip(value.shape[1:], stride, strict=True)))
        totals = [a - b for a, b in zip(full, wanted[-axes:], strict=True)]
        if min(totals) < 0:  # runtimes do not agree on it
            raise UnsupportedModelError(
                f"an output {wanted[-axes:]} that is larger than what the kernel reaches, {full}"
            )
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        padding = (*small, *large) if mode == "SAME_UPPER" else (*large, *small)
    elif mode == "VALID":
        padding = (0,) * (2 * axes)
    elif mode != "NOTSET":
        raise InputError(f"auto_pad: unknown mode {mode!r}")
    ends = tuple(p - extra for p, extra in zip(padding[axes:], more, strict=True))
    window = Window(size, stride, (*padding[:axes], *ends), dilation)
    bias = graph.optional(node, 2, "bias")
    return graph.builder.convolution(value, weight, bias, window, attributes.integer("group", 1), transposed=True)


def _batch_normalization(graph: Graph, node: Any, attributes: Attributes) -> Value:
    if attributes.integer("training_mode", 0) or not attributes.integer("spatial", 1):
        raise UnsupportedModelError("expected batch normalisation in evaluation mode, per channel")
    value = graph.value(node)
    if not value.batched:
        raise UnsupportedModelError(f"expected a batch axis before the channels, got {value.shape}")
    parts = [graph.required(node, 1 + i, what) for i, what in enumerate(("scale", "bias", "mean", "variance"))]
    gamma, beta, mean, variance = parts
    epsilon = attributes.number("epsilon", float(np.float32(1e-5)))
    return graph.builder.batch_norm(value, mean.array, variance.array, epsilon, gamma, beta)


def _max_pool(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = _image(graph, node)
    return graph.builder.max_pool(value, _window(value, attributes, attributes.integers("kernel_shape", ())))


def _average_pool(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = _image(graph, node)
    window = _window(value, attributes, attributes.integers("kernel_shape", ()))
    return graph.builder.mean_pool(value, window, bool(attributes.integer("count_include_pad", 0)))


def _global_average_pool(graph: Graph, node: Any, attributes: Attributes) -> Value:
    value = _image(graph, node)
    size = value.shape[1:]
    ones = (1,) * len(size)
    return graph.builder.mean_pool(value, Window(size, ones, (0,) * (2 * len(size)), ones), False)


def _concat(graph: Graph, node: Any, attributes: Attributes) -> Value:
    values = graph.alike([graph.value(node, index) for index in range(len(node.input))])
    rank = len(graph.full(values[0]))
    axis = attributes.integer("axis", 1)
    axis = axis + rank if axis < 0 else axis
    if values[0].batched and axis == 0:
        raise UnsupportedModelError("joining along the batch axis mixes the points")
    return graph.builder.concat(values, axis - values[0].batched)


HANDLERS: dict[str, Callable[[Graph, Any, Attributes], Value | Constant | list[Value]]] = {
    **BENDS,
    **QUANTISERS,
    **SHAPES,
    "Add": _add,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Concat": _concat,
    "Constant": _constant,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _div,
    "Dropout": _dropout,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average_pool,
    "Identity": _identity,
    "MatMul": _matmul,
    "MaxPool": _max_pool,
    "Mul": _mul,
    "Neg": _neg,
    "Sub": _sub,
    "Sum": _sum,
}

ALIASES = frozenset({"Cast", "Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose value is their input under another name or shape."""
