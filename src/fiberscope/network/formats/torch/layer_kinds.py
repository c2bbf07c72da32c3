"""Layers of torch.nn in terms of a network's nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from fiberscope.errors import UnsupportedModelError
from fiberscope.network.formats.graph_values import Value
from fiberscope.network.formats.torch import bends, functions, shaping
from fiberscope.network.formats.torch.traced_values import Const, Reader

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
        numbers, padding = (weight(m, "weight"), weight(m, "bias")), m.padding
        if m.padding_mode != "zeros":
            x = shaping.pad(r, x, m._reversed_padding_repeated_twice, m.padding_mode)
            padding = 0
        result: Value = function(r, x, *numbers, m.stride, padding, m.dilation, m.groups)
        return result

    return layer


def _transposed(function: Any) -> Layer:
    def layer(r: Reader, m: Any, x: Value) -> Value:
        numbers = weight(m, "weight"), weight(m, "bias")
        result: Value = function(r, x, *numbers, m.stride, m.padding, m.output_padding, m.groups, m.dilation)
        return result

    return layer


def _pad(mode: str) -> Layer:
    def layer(r: Reader, m: Any, x: Value) -> Value:
        axes = len(m.padding) // 2
        if len(x.shape) != axes + 1:
            raise UnsupportedModelError(f"expected an input with {axes + 1} axes (channels first), got {x.shape}")
        return shaping.pad(r, x, m.padding, mode, getattr(m, "value", None))

    return layer


def _upsample(r: Reader, m: Any, x: Value) -> Value:
    return shaping.interpolate(r, x, m.size, m.scale_factor, m.mode, m.align_corners, m.recompute_scale_factor)


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
    nn.ConvTranspose1d: _transposed(functions.conv_transpose1d),
    nn.ConvTranspose2d: _transposed(functions.conv_transpose2d),
    nn.BatchNorm1d: _batch_norm((1, 2)),
    nn.BatchNorm2d: _batch_norm((3,)),
    nn.ReLU: lambda r, m, x: bends.relu(r, x),
    nn.LeakyReLU: lambda r, m, x: bends.leaky_relu(r, x, m.negative_slope),
    nn.ReLU6: lambda r, m, x: bends.relu6(r, x),
    nn.Hardtanh: lambda r, m, x: bends.hardtanh(r, x, m.min_val, m.max_val),
    nn.Hardsigmoid: lambda r, m, x: bends.hardsigmoid(r, x),
    nn.Softshrink: lambda r, m, x: bends.softshrink(r, x, m.lambd),
    nn.PReLU: lambda r, m, x: bends.prelu(r, x, weight(m, "weight")),
    nn.RReLU: lambda r, m, x: bends.rrelu(r, x, m.lower, m.upper),
    nn.Identity: _identity,
    nn.Dropout: _identity,
    nn.Dropout1d: _identity,
    nn.Dropout2d: _identity,
    nn.Dropout3d: _identity,
    nn.AlphaDropout: _identity,
    nn.FeatureAlphaDropout: _identity,
    nn.Flatten: lambda r, m, x: shaping.flatten(r, x, m.start_dim, m.end_dim),
    nn.Unflatten: lambda r, m, x: shaping.unflatten(r, x, m.dim, m.unflattened_size),
    nn.MaxPool1d: _max_pool(functions.max_pool1d),
    nn.MaxPool2d: _max_pool(functions.max_pool2d),
    nn.AvgPool1d: _avg_pool(functions.avg_pool1d),
    nn.AvgPool2d: _avg_pool(functions.avg_pool2d),
    nn.AdaptiveAvgPool1d: lambda r, m, x: functions.adaptive_avg_pool1d(r, x, m.output_size),
    nn.AdaptiveAvgPool2d: lambda r, m, x: functions.adaptive_avg_pool2d(r, x, m.output_size),
    nn.AdaptiveMaxPool1d: lambda r, m, x: functions.adaptive_max_pool1d(r, x, m.output_size, m.return_indices),
    nn.AdaptiveMaxPool2d: lambda r, m, x: functions.adaptive_max_pool2d(r, x, m.output_size, m.return_indices),
    nn.PixelShuffle: lambda r, m, x: shaping.pixel_shuffle(r, x, m.upscale_factor),
    nn.PixelUnshuffle: lambda r, m, x: shaping.pixel_unshuffle(r, x, m.downscale_factor),
    nn.ChannelShuffle: lambda r, m, x: shaping.channel_shuffle(r, x, m.groups),
    **dict.fromkeys((nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d), _upsample),
    **dict.fromkeys((nn.ZeroPad1d, nn.ZeroPad2d, nn.ConstantPad1d, nn.ConstantPad2d), _pad("constant")),
    **dict.fromkeys((nn.ReflectionPad1d, nn.ReflectionPad2d), _pad("reflect")),
    **dict.fromkeys((nn.ReplicationPad1d, nn.ReplicationPad2d), _pad("replicate")),
    **dict.fromkeys((nn.CircularPad1d, nn.CircularPad2d), _pad("circular")),
}
