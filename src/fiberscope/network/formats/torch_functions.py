"""Functions and methods of torch in terms of a network's nodes; each takes the arguments that torch's own takes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.formats.build import Named, Value, Window
from fiberscope.network.formats.nonlinear import NotPiecewiseLinearError
from fiberscope.network.formats.torch_values import BATCH, Const, Reader
from fiberscope.numerics.arrays import real_array

Handler = Callable[..., Any]


def _plain(**options: Any) -> None:
    """Refuse options that are set to something unusual."""
    for name, value in options.items():
        if value not in (None, False):
            raise UnsupportedModelError(f"option {name}={value!r} is not supported")


def identity(r: Reader, input: Value, *args: Any, **options: Any) -> Value:
    return input


def dropout(r: Reader, input: Value, p: float = 0.5, training: bool = False, inplace: bool = False) -> Value:
    # Functional dropout is active by default in torch, and then not a function.
    if training and p != 0:
        raise UnsupportedModelError("dropout in training mode is not a function; pass training=self.training")
    return input


def functional_dropout(r: Reader, input: Value, p: float = 0.5, training: bool = True, inplace: bool = False) -> Value:
    return dropout(r, input, p, training)


# -- entrywise -------------------------------------------------------------------------------------------------


def relu(r: Reader, input: Value, inplace: bool = False) -> Value:
    return r.builder.activation(input, 0.0)


def leaky_relu(r: Reader, input: Value, negative_slope: float = 0.01, inplace: bool = False) -> Value:
    return r.builder.activation(input, real_array(float(negative_slope), "slope"))


def clamp(r: Reader, input: Value, min: Any = None, max: Any = None) -> Value:
    if max is not None or isinstance(min, Value | Const) or min != 0:
        raise UnsupportedModelError("only clamp(min=0), which is ReLU, is supported")
    return relu(r, input)


def add(r: Reader, input: Any, other: Any, *, alpha: float = 1, out: Any = None) -> Value:
    _plain(out=out)
    if alpha != 1:
        raise UnsupportedModelError(f"option alpha={alpha} is not supported")
    if isinstance(input, Value) and isinstance(other, Value):
        return r.builder.add([input, other])
    value, constant = (input, other) if isinstance(input, Value) else (other, input)
    return r.builder.shift(value, r.aligned(constant, value, "summand"), fuse=r.private(value))


def sub(r: Reader, input: Any, other: Any, *, alpha: float = 1) -> Value:
    if alpha != 1:
        raise UnsupportedModelError(f"option alpha={alpha} is not supported")
    if isinstance(input, Value) and isinstance(other, Value):
        return r.builder.subtract(input, other)
    if isinstance(input, Value):
        return r.builder.shift(input, Named(0.0 - r.aligned(other, input, "constant").array), fuse=False)
    bias = r.aligned(input, other, "constant")
    return r.builder.scale(other, Named(np.full_like(bias.array, -1.0)), bias)


def mul(r: Reader, input: Any, other: Any) -> Value:
    if isinstance(input, Value) and isinstance(other, Value):
        raise NotPiecewiseLinearError("a product of computed values is not piecewise linear")
    value, constant = (input, other) if isinstance(input, Value) else (other, input)
    return r.builder.scale(value, r.aligned(constant, value, "factor"))


def div(r: Reader, input: Any, other: Any, *, rounding_mode: Any = None) -> Value:
    _plain(rounding_mode=rounding_mode)
    if isinstance(other, Value):
        raise NotPiecewiseLinearError("division by a computed value is not piecewise linear")
    divisor = r.aligned(other, input, "divisor").array
    if (divisor == 0).any():
        raise InputError("division by zero")
    return r.builder.scale(input, Named(real_array(1 / divisor, "reciprocal")))


def neg(r: Reader, input: Value) -> Value:
    return r.builder.scale(input, Named(np.asarray(-1.0)))


# -- linear maps -----------------------------------------------------------------------------------------------


def linear(r: Reader, input: Value, weight: Any, bias: Any = None) -> Value:
    matrix = r.named(weight, "weight")
    if matrix.array.ndim != 2:
        raise InputError(f"weight: expected 2 axes, got shape {matrix.array.shape}")
    return r.builder.dense(input, matrix, r.optional(bias, "bias"))


def matmul(r: Reader, input: Any, other: Any) -> Value:
    if isinstance(input, Value) and isinstance(other, Value):
        raise NotPiecewiseLinearError("a product of computed values is not piecewise linear")
    if not isinstance(input, Value):
        raise UnsupportedModelError(
            "only products of a computed value with a constant matrix on its right are supported"
        )
    matrix = r.named(other, "weight")
    if matrix.array.ndim != 2:
        raise UnsupportedModelError(f"a product with a constant of shape {matrix.array.shape} is not supported")
    return r.builder.dense(input, Named(matrix.array.T, matrix.name))


def _tuple(value: Any, axes: int) -> tuple[int, ...]:
    numbers = (value,) * axes if isinstance(value, int) else tuple(value)
    numbers = numbers * axes if len(numbers) == 1 else numbers
    if len(numbers) != axes or not all(isinstance(n, int) for n in numbers):
        raise InputError(f"expected {axes} integers, got {value!r}")
    return numbers


def _convolution(axes: int) -> Handler:
    def convolution(
        r: Reader,
        input: Value,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Value:
        kernel = r.named(weight, "weight")
        steps, gaps = _tuple(stride, axes), _tuple(dilation, axes)
        size = kernel.array.shape[2:]
        if padding == "same":
            totals = [d * (k - 1) for d, k in zip(gaps, size, strict=True)]
            pads = (*(t // 2 for t in totals), *(t - t // 2 for t in totals))
        else:
            pads = (0,) * (2 * axes) if padding == "valid" else _tuple(padding, axes) * 2
        window = Window(size, steps, pads, gaps)
        return r.builder.convolution(input, kernel, r.optional(bias, "bias"), window, groups)

    return convolution


conv1d, conv2d = _convolution(1), _convolution(2)


def batch_norm(
    r: Reader,
    input: Value,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Value:
    if training or running_mean is None or running_var is None:
        raise UnsupportedModelError("batch normalisation without stored statistics is not a function of one point")
    mean, variance = r.named(running_mean, "mean").array, r.named(running_var, "variance").array
    gamma, beta = r.optional(weight, "weight"), r.optional(bias, "bias")
    return r.builder.batch_norm(input, mean, variance, float(eps), gamma, beta)


# -- pooling ---------------------------------------------------------------------------------------------------


def _max_pool(axes: int) -> Handler:
    def max_pool(
        r: Reader,
        input: Value,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Value:
        _plain(return_indices=return_indices)
        size = _tuple(kernel_size, axes)
        steps = _tuple(stride, axes) if stride else size
        window = Window(size, steps, _tuple(padding, axes) * 2, _tuple(dilation, axes), bool(ceil_mode))
        return r.builder.max_pool(input, window)

    return max_pool


def _avg_pool(axes: int) -> Handler:
    def avg_pool(
        r: Reader,
        input: Value,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Value:
        _plain(divisor_override=divisor_override)
        size = _tuple(kernel_size, axes)
        steps = _tuple(stride, axes) if stride else size
        window = Window(size, steps, _tuple(padding, axes) * 2, (1,) * axes, bool(ceil_mode))
        return r.builder.mean_pool(input, window, bool(count_include_pad))

    return avg_pool


def _adaptive_avg_pool(axes: int) -> Handler:
    def adaptive_avg_pool(r: Reader, input: Value, output_size: Any) -> Value:
        wanted = (output_size,) * axes if output_size is None or isinstance(output_size, int) else tuple(output_size)
        if len(input.shape) != axes + 1 or len(wanted) != axes:
            raise InputError(f"expected an input with {axes + 1} axes (channels first), got {input.shape}")
        sizes = [n if m is None else m for n, m in zip(input.shape[1:], wanted, strict=True)]
        if any(m < 1 or n % m for n, m in zip(input.shape[1:], sizes, strict=True)):
            raise UnsupportedModelError(
                f"windows of different sizes: {input.shape[1:]} is no multiple of {tuple(sizes)}"
            )
        size = tuple(n // m for n, m in zip(input.shape[1:], sizes, strict=True))
        return r.builder.mean_pool(input, Window(size, size, (0,) * (2 * axes), (1,) * axes), False)

    return adaptive_avg_pool


max_pool1d, max_pool2d = _max_pool(1), _max_pool(2)
avg_pool1d, avg_pool2d = _avg_pool(1), _avg_pool(2)
adaptive_avg_pool1d, adaptive_avg_pool2d = _adaptive_avg_pool(1), _adaptive_avg_pool(2)


def mean(r: Reader, input: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    _plain(dtype=dtype)
    if dim is None:
        raise UnsupportedModelError("a mean over all axes mixes the points of a batch")
    axes = [r.axis(input, axis) for axis in ((dim,) if isinstance(dim, int) else dim)]
    return r.builder.mean(input, sorted(set(axes)), keepdim)


# -- shapes ----------------------------------------------------------------------------------------------------


def cat(r: Reader, tensors: Any, dim: int = 0, *, axis: int | None = None) -> Value:
    if not all(isinstance(value, Value) for value in tensors):
        raise UnsupportedModelError("joining constants to computed values is not supported")
    return r.builder.concat(list(tensors), r.axis(tensors[0], dim if axis is None else axis))


def flatten(r: Reader, input: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if not input.shape and start_dim in (1, -1):
        return input.reshaped((1,))
    first, last = r.axis(input, start_dim), r.axis(input, end_dim)
    shape = input.shape
    return input.reshaped((*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]))


def unflatten(r: Reader, input: Value, dim: int, sizes: Any) -> Value:
    axis = r.axis(input, dim)
    sizes = [int(n) for n in sizes]
    if -1 in sizes:
        sizes[sizes.index(-1)] = input.shape[axis] // max(1, -prod(sizes))
    return input.reshaped((*input.shape[:axis], *sizes, *input.shape[axis + 1 :]))


def reshape(r: Reader, input: Value, *shape: Any) -> Value:
    target = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    return r.reshaped(input, target)


def squeeze(r: Reader, input: Value, dim: int) -> Value:
    axis = r.axis(input, dim)
    return input.reshaped((*input.shape[:axis], *input.shape[axis + 1 :])) if input.shape[axis] == 1 else input


def unsqueeze(r: Reader, input: Value, dim: int) -> Value:
    axis = r.axis(input, dim, extra=1)
    return input.reshaped((*input.shape[:axis], 1, *input.shape[axis:]))


def size(r: Reader, input: Value, dim: int | None = None) -> Any:
    full = (BATCH, *input.shape)
    return full if dim is None else full[dim]


def attribute(r: Reader, input: Value, name: str) -> Any:
    if name == "shape":
        return size(r, input)
    if name == "ndim":
        return len(input.shape) + 1
    raise UnsupportedModelError(f"attribute {name!r} of a tensor is not supported")


def rank(r: Reader, input: Value) -> int:
    return len(input.shape) + 1


FUNCTIONS: dict[Any, Handler] = {
    getattr: attribute,
    operator.add: add,
    operator.iadd: add,
    operator.sub: sub,
    operator.isub: sub,
    operator.mul: mul,
    operator.imul: mul,
    operator.truediv: div,
    operator.itruediv: div,
    operator.neg: neg,
    operator.matmul: matmul,
    torch.add: add,
    torch.sub: sub,
    torch.mul: mul,
    torch.div: div,
    torch.neg: neg,
    torch.relu: relu,
    torch.relu_: relu,
    torch.clamp: clamp,
    torch.matmul: matmul,
    torch.mm: matmul,
    torch.mean: mean,
    torch.cat: cat,
    torch.concat: cat,
    torch.flatten: flatten,
    torch.reshape: reshape,
    torch.squeeze: squeeze,
    torch.unsqueeze: unsqueeze,
    torch.unflatten: unflatten,
    torch.dropout: functional_dropout,
    F.relu: relu,
    F.relu_: relu,
    F.leaky_relu: leaky_relu,
    F.leaky_relu_: leaky_relu,
    F.linear: linear,
    F.conv1d: conv1d,
    F.conv2d: conv2d,
    torch.conv1d: conv1d,
    torch.conv2d: conv2d,
    F.batch_norm: batch_norm,
    F.dropout: functional_dropout,
    F.dropout1d: functional_dropout,
    F.dropout2d: functional_dropout,
    F.alpha_dropout: dropout,
    F.max_pool1d: max_pool1d,
    F.max_pool2d: max_pool2d,
    torch.max_pool1d: max_pool1d,
    torch.max_pool2d: max_pool2d,
    F.avg_pool1d: avg_pool1d,
    F.avg_pool2d: avg_pool2d,
    F.adaptive_avg_pool1d: adaptive_avg_pool1d,
    F.adaptive_avg_pool2d: adaptive_avg_pool2d,
}

METHODS: dict[str, Handler] = {
    "add": add,
    "add_": add,
    "sub": sub,
    "sub_": sub,
    "mul": mul,
    "mul_": mul,
    "div": div,
    "div_": div,
    "neg": neg,
    "matmul": matmul,
    "relu": relu,
    "relu_": relu,
    "clamp": clamp,
    "clamp_": clamp,
    "mean": mean,
    "view": reshape,
    "reshape": reshape,
    "flatten": flatten,
    "unflatten": unflatten,
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
    "size": size,
    "dim": rank,
    "contiguous": identity,
    "clone": identity,
    "detach": identity,
    "detach_": identity,
    "requires_grad_": identity,
}
