"""Functions and methods of torch with kinks: activations, bounds, the largest of several."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from fiberscope.errors import UnsupportedModelError
from fiberscope.network.formats.graph_values import Named, Value
from fiberscope.network.formats.torch.traced_values import Const, Reader
from fiberscope.numerics.arrays import real_array

Handler = Callable[..., Any]


def relu(r: Reader, input: Value, inplace: bool = False) -> Value:
    return r.builder.activation(input, 0.0)


def leaky_relu(r: Reader, input: Value, negative_slope: float = 0.01, inplace: bool = False) -> Value:
    return r.builder.activation(input, real_array(float(negative_slope), "slope"))


def absolute(r: Reader, input: Value) -> Value:
    return r.builder.activation(input, -1.0)


def prelu(r: Reader, input: Value, weight: Any) -> Value:
    slope = r.named(weight, "slope")
    if slope.array.size == 1:
        return r.builder.activation(input, slope.array.reshape(()), slope.name)
    return r.builder.activation(input, slope.array.reshape(-1, *(1 for _ in input.shape[1:])), slope.name)


def rrelu(
    r: Reader, input: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Value:
    if training:
        raise UnsupportedModelError("slopes that are drawn at random are not a function")
    return leaky_relu(r, input, (lower + upper) / 2)


def clamp(r: Reader, input: Value, min: Any = None, max: Any = None) -> Value:
    low, high = (_bound(r, bound, input) for bound in (min, max))
    return r.builder.clip(input, -np.inf if low is None else low, np.inf if high is None else high)


def _bound(r: Reader, bound: Any, input: Value) -> Any:
    if bound is None or (isinstance(bound, float) and np.isinf(bound)):
        return bound
    named = r.aligned(bound, input, "bound")
    r.builder.drop_names([] if named.name is None else [named.name])  # a parameter that is a bound is no weight
    return named.array


def clamp_min(r: Reader, input: Value, min: Any) -> Value:
    return clamp(r, input, min)


def clamp_max(r: Reader, input: Value, max: Any) -> Value:
    return clamp(r, input, None, max)


def relu6(r: Reader, input: Value, inplace: bool = False) -> Value:
    return r.builder.clip(input, 0.0, 6.0)


def hardtanh(r: Reader, input: Value, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Value:
    return r.builder.clip(input, float(min_val), float(max_val))


def hardsigmoid(r: Reader, input: Value, inplace: bool = False) -> Value:
    moved = r.builder.shift(input, Named(np.asarray(3.0)), fuse=False)
    return r.builder.scale(r.builder.clip(moved, 0.0, 6.0), Named(np.asarray(1 / 6)))


def softshrink(r: Reader, input: Value, lambd: float = 0.5) -> Value:
    return r.builder.subtract(input, r.builder.clip(input, -float(lambd), float(lambd)))


def maximum(r: Reader, input: Any, other: Any) -> Value:
    if isinstance(input, Value) and isinstance(other, Value):
        return r.builder.maximum([input, other])
    value, bound = (input, other) if isinstance(input, Value) else (other, input)
    return clamp(r, value, bound)


def minimum(r: Reader, input: Any, other: Any) -> Value:
    if isinstance(input, Value) and isinstance(other, Value):
        return r.builder.negated(r.builder.maximum([r.builder.negated(value) for value in (input, other)]))
    value, bound = (input, other) if isinstance(input, Value) else (other, input)
    return clamp(r, value, None, bound)


def amax(r: Reader, input: Value, dim: Any = (), keepdim: bool = False) -> Value:
    if dim in (None, ()):
        raise UnsupportedModelError("the largest over all axes mixes the points of a batch")
    axes = [r.axis(input, axis) for axis in ((dim,) if isinstance(dim, int) else dim)]
    return r.builder.largest_along(input, sorted(set(axes)), keepdim)


def amin(r: Reader, input: Value, dim: Any = (), keepdim: bool = False) -> Value:
    return r.builder.negated(amax(r, r.builder.negated(input), dim, keepdim))


def _largest(pair: Handler, along: Handler) -> Handler:
    def largest(r: Reader, input: Any, *args: Any, **options: Any) -> Any:
        """``max`` of torch: of two tensors, or values and places along an axis, of which only the values are known."""
        second = args[0] if args else options.get("other", options.get("dim"))
        if isinstance(second, Value | Const):
            return pair(r, input, second)
        return (along(r, input, *args, **options), None)

    return largest


FUNCTIONS: dict[Any, Handler] = {
    operator.abs: absolute,
    torch.abs: absolute,
    torch.maximum: maximum,
    torch.minimum: minimum,
    torch.amax: amax,
    torch.amin: amin,
    torch.max: _largest(maximum, amax),
    torch.min: _largest(minimum, amin),
    torch.relu: relu,
    torch.relu_: relu,
    torch.clamp: clamp,
    torch.clamp_: clamp,
    torch.clip: clamp,
    torch.clamp_min: clamp_min,
    torch.clamp_max: clamp_max,
    F.relu: relu,
    F.relu_: relu,
    F.leaky_relu: leaky_relu,
    F.leaky_relu_: leaky_relu,
    F.relu6: relu6,
    F.hardtanh: hardtanh,
    F.hardtanh_: hardtanh,
    F.hardsigmoid: hardsigmoid,
    F.softshrink: softshrink,
    F.rrelu: rrelu,
    F.prelu: prelu,
    torch.prelu: prelu,
}

METHODS: dict[str, Handler] = {
    "relu": relu,
    "relu_": relu,
    "clamp": clamp,
    "clamp_": clamp,
    "clip": clamp,
    "clamp_min": clamp_min,
    "clamp_max": clamp_max,
    "abs": absolute,
    "maximum": maximum,
    "minimum": minimum,
    "amax": amax,
    "amin": amin,
    "max": _largest(maximum, amax),
    "min": _largest(minimum, amin),
    "prelu": prelu,
}
