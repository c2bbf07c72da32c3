"""What layers see: moments of their inputs and activations, taken while data streams through, in bounded memory.

Hooks are set for the time of one call and taken away again, whatever happens; modes, gradients and the module's own
hooks stay as they were. Nothing but sums in float64 is kept, so 50,000 inputs cost no more than 50.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.modules.batches import BATCH, batches
from fiberscope.modules.calls import checked_call, describe, find, moved
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.moments import CrossMoments, CrossSums, Moments, Sums
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import ENDLESS, Progress, Run

ROWS_BYTES = 1 << 25
"""Memory of the samples that are turned into float64 at once."""

LAYERS = (nn.Linear, nn.Conv2d)
"""Layers that are recorded when none are named."""

OTHERS = (nn.Conv1d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Bilinear)
"""Layers with weights whose rows see neither vectors nor two-dimensional patches of their input."""


def record_inputs(
    module: Any,
    layers: Sequence[str] | str | None,
    data: Any,
    *,
    bias: bool = False,
    batch_size: int = BATCH,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> dict[str, Moments]:
    """Moments of what each layer is given, as a row of its weight sees it.

    A sample of a linear layer is a vector (every token of a sequence is one); of a convolution, a patch with the
    ``channels * height * width`` entries of one row of its weight. Evaluation mode, no gradients.

    Parameters
    ----------
    module
        Any ``torch.nn.Module``.
    layers
        Names as in ``named_modules()``; None for all linear layers and two-dimensional convolutions.
    data
        See :func:`fiberscope.modules.batches.batches`; targets are left aside.
    bias
        Append the constant 1 that multiplies the bias.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
    >>> record_inputs(net, ["0"], np.array([[1.0, 0.0], [3.0, 0.0]]))["0"].second_moment
    array([[5., 0.],
           [0., 0.]])
    """
    recorder = {name: Sums(bias) for name in _names(module, layers)}

    def keep(name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        for rows in _input_rows(name, layer, inputs):
            recorder[name].add(rows)

    return _recorded(module, recorder, keep, data, batch_size, Run.begin(progress, time_limit), before=True)


def record_activations(
    module: Any,
    layers: Sequence[str] | str | None,
    data: Any,
    *,
    batch_size: int = BATCH,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> dict[str, Moments]:
    """Moments of what each layer gives; a pixel of an image is a sample, and its channels are the features.

    >>> net = nn.Sequential(nn.Identity(), nn.ReLU())
    >>> record_activations(net, "1", np.array([[-1.0], [2.0]]))["1"].mean
    array([1.])
    """
    recorder = {name: Sums(False) for name in _names(module, layers)}

    def keep(name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        for rows in _chunks(name, _features(name, output)):
            recorder[name].add(rows)

    return _recorded(module, recorder, keep, data, batch_size, Run.begin(progress, time_limit))


def cross_moments(
    a: Any,
    b: Any,
    layers: Mapping[str, tuple[str, ...]] | Sequence[str],
    data: Any,
    *,
    inputs: bool = False,
    batch_size: int = BATCH,
    run: Run = ENDLESS,
) -> dict[str, CrossMoments]:
    """Moments of the activations of two modules of one architecture on the same data, in one pass.

    Parameters
    ----------
    layers
        Names of layers; or a dict from names of groups to layers whose samples are pooled, as along a residual stream.
    inputs
        Record what the layers are given, not what they give: its features are on axis 1 for convolutions, else last.

    Examples
    --------
    >>> a, b = nn.Sequential(nn.Identity()), nn.Sequential(nn.Identity())
    >>> cross_moments(a, b, ["0"], np.array([[1.0, -1.0], [2.0, -2.0]]))["0"].correlation.round(12)
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    groups = dict(layers) if isinstance(layers, Mapping) else {name: (name,) for name in layers}
    names = [name for members in groups.values() for name in members]
    for module in (a, b):
        _names(module, names)
    sums = {group: CrossSums() for group in groups}
    seen: dict[str, dict[str, list[Tensor]]] = {"a": {}, "b": {}}

    def keeper(side: str) -> Callable[[str, nn.Module, tuple[Any, ...], Any], None]:
        def keep(name: str, layer: nn.Module, given: tuple[Any, ...], output: Any) -> None:
            # a copy: what runs next may write into the tensor
            value = (_given(name, layer, given[0]) if inputs else _features(name, output)).clone()
            seen[side].setdefault(name, []).append(value)

        return keep

    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        for side, module in (("a", a), ("b", b)):
            stack.enter_context(evaluating(module))
            stack.enter_context(hooked(module, names, keeper(side), before=inputs))
        for done, (x, _) in enumerate(batches(data, a, batch_size), start=1):
            seen["a"], seen["b"] = {}, {}
            checked_call(a, x)
            checked_call(b, moved(x, next(iter(b.parameters()), None)))
            for group, members in groups.items():
                for name in members:
                    _ran(name, name in seen["a"] and name in seen["b"])
                    for left, right in zip(seen["a"][name], seen["b"][name], strict=True):
                        for rows in zip(_chunks(name, left), _chunks(name, right), strict=True):
                            sums[group].add(*rows)
            run.step(done, None, "cross moments")
    return {group: found.moments() for group, found in sums.items()}


def activation_shapes(module: nn.Module, layers: Sequence[str], example: Any) -> dict[str, set[tuple[int, ...]]]:
    """The shapes that layers give on one batch (a layer used twice may give two)."""
    found: dict[str, set[tuple[int, ...]]] = {name: set() for name in layers}

    def keep(name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        found[name].add(tuple(_whole(name, output).shape))

    with torch.no_grad(), evaluating(module), hooked(module, layers, keep):
        checked_call(module, next(batches(example, module))[0])
    for name, shapes in found.items():
        _ran(name, bool(shapes))
    return found


@contextmanager
def hooked(
    module: nn.Module,
    layers: Sequence[str],
    keep: Callable[[str, nn.Module, tuple[Any, ...], Any], Any],
    before: bool = False,
) -> Iterator[None]:
    """While the context lasts, ``keep(name, layer, inputs, output)`` is called at every call of these layers.

    After the layer has run, and what it gives takes the output's place unless it is None; or before, without an output,
    since a layer may write into its input.
    """
    with ExitStack() as stack:
        for name in layers:
            layer = module.get_submodule(name)

            def hook(
                part: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], output: Any = None, name: str = name
            ) -> Any:
                found = keep(name, part, inputs or tuple(options.values()), output)
                return None if before else found

            register = layer.register_forward_pre_hook if before else layer.register_forward_hook
            handle = register(hook, with_kwargs=True)
            stack.callback(handle.remove)
        yield


def _recorded(
    module: nn.Module,
    recorder: Mapping[str, Sums],
    keep: Callable[[str, nn.Module, tuple[Any, ...], Any], None],
    data: Any,
    batch_size: int,
    run: Run,
    before: bool = False,
) -> dict[str, Moments]:
    with torch.no_grad(), evaluating(module), hooked(module, list(recorder), keep, before):
        for done, (inputs, _) in enumerate(batches(data, module, batch_size), start=1):
            checked_call(module, inputs)
            run.step(done, None, "moments")
    for name, sums in recorder.items():
        _ran(name, sums.count > 0)
    return {name: sums.moments() for name, sums in recorder.items()}


# -- samples -----------------------------------------------------------------------------------------------------------


def _names(module: Any, layers: Sequence[str] | str | None) -> list[str]:
    if not isinstance(module, nn.Module):
        raise InputError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    known = dict(module.named_modules(remove_duplicate=False))
    if layers is None:
        layers = [name for name, part in module.named_modules() if isinstance(part, LAYERS)]
    names = [layers] if isinstance(layers, str) else list(layers)
    for name in names:
        if name not in known:
            some = ", ".join([known_name for known_name in known if known_name][:8])
            raise InputError(f"layer {name}: the module has no such layer; its first are {some}")
    if not names:
        raise InputError("layers: expected at least one layer to record, got none")
    return names


def _ran(name: str, seen: bool) -> None:
    if not seen:
        raise InputError(
            f"layer {name}: it was never run on the inputs "
            "(nn.MultiheadAttention, for one, uses its out_proj's weight without calling it)"
        )


def _features(name: str, value: Any) -> Tensor:
    """A tensor as samples ``(n, features)``: axis 1 of images, the last axis of anything else, holds the features."""
    tensor = _whole(name, value)
    turned = tensor.movedim(1, -1) if tensor.dim() >= 4 else tensor
    return turned.reshape(-1, turned.shape[-1])


def _given(name: str, layer: nn.Module, value: Any) -> Tensor:
    """What a layer is given as samples ``(n, features)``: the features are what its weight is multiplied with."""
    tensor = _whole(name, value)
    if isinstance(layer, _ConvNd):
        tensor = (tensor if tensor.dim() == len(layer.kernel_size) + 2 else tensor[None]).movedim(1, -1)
    return tensor.reshape(-1, tensor.shape[-1])


def _whole(name: str, value: Any) -> Tensor:
    """The tensor that a layer gives or is given, as a batch."""
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        value = value[0]  # attention gives its output and its weights
    tensor = find(value)
    if tensor is None:
        raise InputError(f"layer {name}: expected one tensor, got {describe(value)}; take a layer inside it")
    if tensor.dim() < 2:
        raise InputError(f"layer {name}: expected a batch (points, ...), got shape {tuple(tensor.shape)}")
    return tensor


def _chunks(name: str, rows: Tensor) -> Iterator[FloatArray]:
    """Samples in float64, a bounded number at once."""
    for part in torch.split(rows, max(1, ROWS_BYTES // (8 * max(1, rows.shape[1])))):
        yield _finite(name, part.double().cpu().numpy())


def _finite(name: str, rows: FloatArray) -> FloatArray:
    """The samples, whose squares and their sums must be numbers; or moments would say what no sample is."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(np.square(rows).sum()):
            raise InputError(f"layer {name}: expected finite samples of moderate size, got NaN, infinity or overflow")
    return rows


def _input_rows(name: str, layer: nn.Module, inputs: tuple[Any, ...]) -> Iterator[FloatArray]:
    if not inputs or not isinstance(inputs[0], Tensor):
        raise InputError(f"layer {name}: expected a tensor as its first argument")
    x = inputs[0]
    if isinstance(layer, OTHERS):
        kind = type(layer).__name__
        raise UnsupportedModelError(
            f"layer {name}: expected a linear layer or a Conv2d, whose rows see patches; got {kind}"
        )
    if not isinstance(layer, nn.Conv2d):
        if isinstance(layer, nn.Linear) and x.dim() >= 4:
            x = x.reshape(-1, x.shape[-1])
        yield from _chunks(name, _features(name, x if x.dim() > 1 else x[None]))
        return
    if layer.groups > 1:
        raise UnsupportedModelError(f"layer {name}: a grouped convolution has no one input that all its rows see")
    if x.dim() == 3:
        x = x[None]
    sides = _padding(layer)
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    patch = layer.weight[0].numel()
    height, width = (x.shape[2] + sides[2] + sides[3], x.shape[3] + sides[0] + sides[1])
    places = (height // layer.stride[0] + 1) * (width // layer.stride[1] + 1)
    for part in torch.split(x, max(1, ROWS_BYTES // (8 * patch * places))):
        # float64 first: not every type of numbers can be padded and unfolded
        padded = nn.functional.pad(part.double(), sides, mode=mode)
        patches = nn.functional.unfold(padded, layer.kernel_size, layer.dilation, 0, layer.stride)
        yield _finite(name, patches.transpose(1, 2).reshape(-1, patch).cpu().numpy())


def _padding(layer: nn.Conv2d) -> list[int]:
    """Left, right, top, bottom."""
    if layer.padding == "valid":
        return [0, 0, 0, 0]
    sides: list[int] = []
    for axis in (1, 0):
        if layer.padding == "same":
            total = layer.dilation[axis] * (layer.kernel_size[axis] - 1)
            sides += [total // 2, total - total // 2]
        else:
            sides += [int(layer.padding[axis])] * 2
    return sides
