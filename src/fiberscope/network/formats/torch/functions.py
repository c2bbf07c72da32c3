"""Functions and methods of torch in terms of a network's nodes; each takes the arguments that torch's own takes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.formats.graph_values import Named, Value, Window
from fiberscope.network.formats.nonlinear import NotPiecewiseLinearError
from fiberscope.network.formats.torch import bends, shaping
from fiberscope.network.formats.torch.traced_values import Reader
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


def cast(r: Reader, input: Value, *target: Any, **options: Any) -> Value:
    """To another float type or another device: the same number, up to the rounding of torch."""
    types = [t for t in (*target, *options.values()) if isinstance(t, torch.dtype)]
    if any(not t.is_floating_point for t in types) or any(isinstance(t, Value) for t in target):
        raise UnsupportedModelError(f"a change of type to {target} is not supported")
    return input


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
    return r.builder.negated(input)


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


def _transposed(axes: int) -> Handler:
    def transposed(
        r: Reader,
        input: Value,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Value:
        kernel, pads = r.named(weight, "weight"), _tuple(padding, axes)
        ends = tuple(p - more for p, more in zip(pads, _tuple(output_padding, axes), strict=True))
        window = Window(kernel.array.shape[2:], _tuple(stride, axes), (*pads, *ends), _tuple(dilation, axes))
        return r.builder.convolution(input, kernel, r.optional(bias, "bias"), window, groups, transposed=True)

    return transposed


conv1d, conv2d = _convolution(1), _convolution(2)
conv_transpose1d, conv_transpose2d = _transposed(1), _transposed(2)


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


def _adaptive_pool(axes: int, maximum: bool) -> Handler:
    def adaptive_pool(r: Reader, input: Value, output_size: Any, return_indices: bool = False) -> Value:
        _plain(return_indices=return_indices)
        wanted = (output_size,) * axes if output_size is None or isinstance(output_size, int) else tuple(output_size)
        if len(input.shape) != axes + 1 or len(wanted) != axes:
            raise InputError(f"expected an input with {axes + 1} axes (channels first), got {input.shape}")
        sizes = [n if m is None else m for n, m in zip(input.shape[1:], wanted, strict=True)]
        if any(m < 1 for m in sizes):
            raise InputError(f"expected positive sizes, got {tuple(sizes)}")
        even = all(n % m == 0 for n, m in zip(input.shape[1:], sizes, strict=True))
        size = tuple(n // m for n, m in zip(input.shape[1:], sizes, strict=True))
        if maximum and even:
            return r.builder.max_pool(input, Window(size, size, (0,) * (2 * axes), (1,) * axes))
        if maximum:
            cells = shaping.cells(input, sizes)
            rows = np.split(cells.matrix.indices, cells.matrix.indptr[1:-1])  # the entries of every cell
            table = [np.pad(row, (0, cells.fan_in - len(row)), constant_values=-1) for row in rows]
            return r.builder.largest(input, np.array(table), cells.out_shape)
        if not even:
            return r.builder.affine(input, shaping.cells(input, sizes))
        return r.builder.mean_pool(input, Window(size, size, (0,) * (2 * axes), (1,) * axes), False)

    return adaptive_pool


max_pool1d, max_pool2d = _max_pool(1), _max_pool(2)
avg_pool1d, avg_pool2d = _avg_pool(1), _avg_pool(2)
adaptive_avg_pool1d, adaptive_avg_pool2d = _adaptive_pool(1, False), _adaptive_pool(2, False)
adaptive_max_pool1d, adaptive_max_pool2d = _adaptive_pool(1, True), _adaptive_pool(2, True)


def mean(r: Reader, input: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    _plain(dtype=dtype)
    if dim is None:
        raise UnsupportedModelError("a mean over all axes mixes the points of a batch")
    axes = [r.axis(input, axis) for axis in ((dim,) if isinstance(dim, int) else dim)]
    return r.builder.mean(input, sorted(set(axes)), keepdim)


def total(r: Reader, input: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    _plain(dtype=dtype)
    if dim is None:
        raise UnsupportedModelError("a sum over all axes mixes the points of a batch")
    axes = [r.axis(input, axis) for axis in ((dim,) if isinstance(dim, int) else dim)]
    return r.builder.sums(input, sorted(set(axes)), keepdim)


FUNCTIONS: dict[Any, Handler] = {
    **bends.FUNCTIONS,
    **shaping.FUNCTIONS,
    operator.add: add,
    operator.iadd: add,
    operator.sub: sub,
    operator.isub: sub,
    operator.mul: mul,
    operator.imul: mul,
    operator.truediv: div,
    operator.itruediv: div,
    operator.neg: neg,
    torch.sum: total,
    operator.matmul: matmul,
    torch.add: add,
    torch.sub: sub,
    torch.mul: mul,
    torch.div: div,
    torch.neg: neg,
    torch.matmul: matmul,
    torch.mm: matmul,
    torch.mean: mean,
    torch.dropout: functional_dropout,
    F.linear: linear,
    F.conv1d: conv1d,
    F.conv2d: conv2d,
    F.conv_transpose1d: conv_transpose1d,
    F.conv_transpose2d: conv_transpose2d,
    torch.conv_transpose1d: conv_transpose1d,
    torch.conv_transpose2d: conv_transpose2d,
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
    F.adaptive_max_pool1d: adaptive_max_pool1d,
    F.adaptive_max_pool2d: adaptive_max_pool2d,
}

METHODS: dict[str, Handler] = {
    **bends.METHODS,
    **shaping.METHODS,
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
    "sum": total,
    "float": cast,
    "double": cast,
    "to": cast,
    "mean": mean,
    "contiguous": identity,
    "clone": identity,
    "detach": identity,
    "detach_": identity,
    "requires_grad_": identity,
}
