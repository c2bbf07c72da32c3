"""Layers of torch.nn in terms of a network's nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from fiberscope.errors import UnsupportedModelError
from fiberscope.network.formats import torch_functions as functions
from fiberscope.network.formats.build import Value
from fiberscope.network.formats.torch_values import Const, Reader

Layer = Callable[[Reader, Any, Value], Value]


def refuse_hooks(module: nn.Module) -> None:
    """A hook may change values and is not seen by tracing; those that compute a weight are known and taken care of."""
    unknown = [h for h in module._forward_pre_hooks.values() if not isinstance(h, _Weights)]
    if module._forward_hooks or unknown:
        raise UnsupportedModelError("it has forward hooks, which may change its values; remove them before loading")


_Weights = prune.BasePruningMethod | WeightNorm | SpectralNorm


def weight(module: nn.Module, name: str) -> Any:
    """A layer's weight or bias; one that is computed before every call comes with its present value."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, prune.BasePruningMethod) and hook._tensor_name == name:
            return Const(hook.apply_mask(module).detach())  # type: ignore[no-untyped-call]
        if isinstance(hook, WeightNorm) and hook.name == name:
            return Const(hook.compute_weight(module).detach())
        if isinstance(hook, SpectralNorm) and hook.name == name:
            return Const(hook.compute_weight(module, do_power_iteration=False).detach())
    tensor = getattr(module, name)
    return Const(tensor.detach()) if parametrize.is_parametrized(module, name) else tensor


def _identity(r: Reader, m: Any, x: Value) -> Value:
    return x


def _linear(r: Reader, m: Any, x: Value) -> Value:
    return functions.linear(r, x, weight(m, "weight"), weight(m, "bias"))


def _convolution(function: Any) -> Layer:
    def layer(r: Reader, m: Any, x: Value) -> Value:
        if m.padding_mode != "zeros":
            raise UnsupportedModelError(f"padding mode {m.padding_mode!r} is not supported")
        numbers = weight(m, "weight"), weight(m, "bias")
        result: Value = function(r, x, *numbers, m.stride, m.padding, m.dilation, m.groups)
        return result

    return layer


def _batch_norm(axes: tuple[int, ...]) -> Layer:
    def layer(r: Reader, m: Any, x: Value) -> Value:
        if len(x.shape) not in axes:
            raise UnsupportedModelError(f"expected an input with {' or '.join(map(str, axes))} axes, got {x.shape}")
        numbers = weight(m, "weight"), weight(m, "bias")
        return functions.batch_norm(r, x, m.running_mean, m.running_var, *numbers, eps=m.eps)

    return layer


def _max_pool(function: Any) -> Layer:
    def layer(r: Reader, m: Any, x: Value) -> Value:
        options = m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode, m.return_indices
        result: Value = function(r, x, *options)
        return result

    return layer


def _avg_pool(function: Any) -> Layer:
    def layer(r: Reader, m: Any, x: Value) -> Value:
        options = m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad
        result: Value = function(r, x, *options, getattr(m, "divisor_override", None))
        return result

    return layer


LAYERS: dict[type[nn.Module], Layer] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution(functions.conv1d),
    nn.Conv2d: _convolution(functions.conv2d),
    nn.BatchNorm1d: _batch_norm((1, 2)),
    nn.BatchNorm2d: _batch_norm((3,)),
    nn.ReLU: lambda r, m, x: functions.relu(r, x),
    nn.LeakyReLU: lambda r, m, x: functions.leaky_relu(r, x, m.negative_slope),
    nn.Identity: _identity,
    nn.Dropout: _identity,
    nn.Dropout1d: _identity,
    nn.Dropout2d: _identity,
    nn.Dropout3d: _identity,
    nn.AlphaDropout: _identity,
    nn.FeatureAlphaDropout: _identity,
    nn.Flatten: lambda r, m, x: functions.flatten(r, x, m.start_dim, m.end_dim),
    nn.Unflatten: lambda r, m, x: functions.unflatten(r, x, m.dim, m.unflattened_size),
    nn.MaxPool1d: _max_pool(functions.max_pool1d),
    nn.MaxPool2d: _max_pool(functions.max_pool2d),
    nn.AvgPool1d: _avg_pool(functions.avg_pool1d),
    nn.AvgPool2d: _avg_pool(functions.avg_pool2d),
    nn.AdaptiveAvgPool1d: lambda r, m, x: functions.adaptive_avg_pool1d(r, x, m.output_size),
    nn.AdaptiveAvgPool2d: lambda r, m, x: functions.adaptive_avg_pool2d(r, x, m.output_size),
}
