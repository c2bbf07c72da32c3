"""Repair of a model half-way between two: statistics of its activations as they should be.

Between two networks activations shrink: the variance of a mean of two neurons that agree only in part is less than the
mean of their variances. Deep networks then compute with next to nothing (Jordan et al. 2023, "REPAIR"). Two cures.
Batch norm knows the statistics it expects: they are estimated anew on data. Layers without it get factors and biases
such that mean and deviation of every channel of what they give are those between the ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from fiberscope.connectivity.paths import check_comparable, check_finite
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.modules.batches import BATCH, batches
from fiberscope.modules.calls import checked_call, points
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.parametrisations import copied, plain
from fiberscope.modules.recording import hooked
from fiberscope.network.border import as_torch
from fiberscope.run import Progress, Run


def repair(
    module: Any,
    data: Any,
    ends: Sequence[Any] | None = None,
    *,
    t: float = 0.5,
    batch_size: int = BATCH,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> nn.Module:
    """A new module whose activations have the statistics that they should have on data.

    Running statistics of batch norms become those of the data, in one pass; without ``ends`` that is all. With the two
    models that the module lies between, every other linear layer and convolution that has a bias, but the last that
    runs, is changed too: its channels get the mean and deviation that lie between those of the ends. A channel that is
    constant on the data stays as it is. Where no layer has such a bias, batch norms are all that is repaired: with new
    statistics their channels have mean ``beta`` and deviation ``|gamma|``, which lie between those of the ends wherever
    the signs of ``gamma`` agree.

    Parameters
    ----------
    module
        What :func:`fiberscope.interpolate` or :func:`fiberscope.merge` gave, or any module. It is not changed.
    data
        Inputs, in any of the forms of :func:`fiberscope.barrier`; training data, in batches of more than one point.
        Statistics are means over batches of this size, as in training.
    ends, t
        The two models, and where between them the statistics are wanted.

    Examples
    --------
    >>> net = nn.Sequential(nn.BatchNorm1d(1, affine=False))
    >>> repair(net, torch.tensor([[1.0], [3.0]]))[0].running_mean, net[0].running_mean
    (tensor([2.]), tensor([0.]))
    """
    run = Run.begin(progress, time_limit)
    given = as_torch(module, "module")
    copy = plain(given)
    copy = copied(given) if copy is given else copy
    check_finite(copy, "module")
    norms = [part for part in copy.modules() if isinstance(part, _BatchNorm) and part.running_mean is not None]
    if ends is None:
        if not norms:
            raise UnsupportedModelError(
                "module: expected batch norms, or ends= to know what activations should be like"
            )
        _renorm(copy, norms, data, batch_size, run)
        return copy
    if len(ends) != 2:
        raise InputError(f"ends: expected two models, got {len(ends)}")
    sides = [plain(as_torch(end, f"ends[{k}]")) for k, end in enumerate(ends)]
    for k, side in enumerate(sides):
        check_comparable(copy, side)
        check_finite(side, f"ends[{k}]")
    names = _layers(copy, data)
    if not names and not norms:
        raise UnsupportedModelError("module: expected a hidden layer with a bias, whose activations could be repaired")
    if names:
        wanted = [_statistics(side, names, data, batch_size, run) for side in sides]
        aims = {
            name: Channel(torch.lerp(x.mean, y.mean, t), torch.lerp(x.deviation, y.deviation, t))
            for name, x, y in ((name, wanted[0][name], wanted[1][name]) for name in names)
        }
        _corrected(copy, aims, norms, data, batch_size, run)
    if norms:
        _renorm(copy, norms, data, batch_size, run)
    return copy


@dataclass(frozen=True)
class Channel:
    """Mean and deviation of every channel of a layer, ``(channels,)``, in float64."""

    mean: Tensor
    deviation: Tensor


@contextmanager
def _estimating(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Batch norms in training: each uses the statistics of its batch, and keeps the mean over all batches."""
    kept = [(norm.momentum, norm.training) for norm in norms]
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
            norm.train()
        yield
    finally:
        for norm, (momentum, training) in zip(norms, kept, strict=True):
            norm.momentum = momentum
            norm.train(training)


def _renorm(module: nn.Module, norms: Sequence[_BatchNorm], data: Any, batch_size: int, run: Run) -> None:
    """Running statistics from one pass in which only batch norms are in training."""
    seen = 0
    with torch.no_grad(), evaluating(module), _estimating(norms):
        for done, (inputs, _) in enumerate(batches(data, module, batch_size), start=1):
            if points(inputs) > 1:
                checked_call(module, inputs)
                seen += 1
            run.step(done, None, "repair")
    if not seen:
        raise InputError("data: expected a batch of two points at least, to estimate statistics, got single points")


def _layers(module: nn.Module, data: Any) -> list[str]:
    """Layers that can be corrected, as they run: with a bias, and not the last one."""
    ran: dict[str, None] = {}
    known = [name for name, part in module.named_modules() if _is_linear(part)]

    def keep(name: str, layer: nn.Module, inputs: Any, output: Any) -> None:
        ran[name] = None

    with torch.no_grad(), evaluating(module), hooked(module, known, keep):
        checked_call(module, next(batches(data, module, 2))[0])
    return [name for name in list(ran)[:-1] if getattr(module.get_submodule(name), "bias", None) is not None]


def _is_linear(part: nn.Module) -> bool:
    linear = isinstance(part, nn.Linear | _ConvNd) or type(part).__name__ == "Conv1D"
    return linear and isinstance(getattr(part, "weight", None), Tensor)


def _by_channel(layer: nn.Module, output: Tensor) -> Tensor:
    """What a layer gives as ``(samples, channels)``."""
    turned = output.movedim(1, -1) if isinstance(layer, _ConvNd) else output
    return turned.reshape(-1, turned.shape[-1])


def _watched(
    module: nn.Module,
    names: Sequence[str],
    data: Any,
    batch_size: int,
    run: Run,
    change: Callable[[str, nn.Module, Tensor, Channel], Tensor | None],
    norms: Sequence[_BatchNorm] = (),
) -> None:
    """Run the data through; ``change`` sees what every layer gives with its statistics, and may give it anew.

    ``norms`` are the batch norms that use the statistics of the batch meanwhile; they take no single points.
    """

    def keep(name: str, layer: nn.Module, inputs: Any, output: Any) -> Any:
        rows = _by_channel(layer, output).double()
        return change(name, layer, output, Channel(rows.mean(0), rows.std(0, correction=0)))

    with torch.no_grad(), evaluating(module), _estimating(norms), hooked(module, names, keep):
        for done, (inputs, _) in enumerate(batches(data, module, batch_size), start=1):
            if not norms or points(inputs) > 1:
                checked_call(module, inputs)
            run.step(done, None, "repair")


def _statistics(module: nn.Module, names: Sequence[str], data: Any, batch_size: int, run: Run) -> dict[str, Channel]:
    sums: dict[str, list[Channel]] = {name: [] for name in names}

    def change(name: str, layer: nn.Module, output: Tensor, seen: Channel) -> None:
        sums[name].append(seen)

    _watched(module, names, data, batch_size, run, change)
    return {name: _mean(found) for name, found in sums.items()}


def _mean(found: Sequence[Channel]) -> Channel:
    return Channel(*(torch.stack([getattr(one, key) for one in found]).mean(0) for key in ("mean", "deviation")))


def _corrected(
    module: nn.Module, aims: dict[str, Channel], norms: Sequence[_BatchNorm], data: Any, batch_size: int, run: Run
) -> None:
    """One pass in which every layer gives what it should, so that the next one sees it; then written into weights.

    Batch norms use new statistics in it: with the old ones, layers behind them would be corrected for inputs that they
    do not get afterwards.
    """
    sums: dict[str, list[Channel]] = {name: [] for name in aims}

    def change(name: str, layer: nn.Module, output: Tensor, seen: Channel) -> Tensor:
        sums[name].append(seen)
        factor, shift = _affine(seen, aims[name])
        shape = [1, -1, *(1 for _ in output.shape[2:])] if isinstance(layer, _ConvNd) else [-1]
        return (output * factor.reshape(shape) + shift.reshape(shape)).to(output.dtype)

    _watched(module, list(aims), data, batch_size, run, change, norms)
    if not all(sums.values()):
        raise InputError("data: expected a batch of two points at least, to estimate statistics, got single points")
    with torch.no_grad():
        for name, aim in aims.items():
            layer: Any = module.get_submodule(name)
            factor, shift = _affine(_mean(sums[name]), aim)
            axis = _output_axis(layer)
            shape = [-1 if k == axis else 1 for k in range(layer.weight.dim())]
            layer.weight.copy_(layer.weight * factor.reshape(shape))
            layer.bias.copy_(layer.bias * factor + shift)


def _affine(seen: Channel, aim: Channel) -> tuple[Tensor, Tensor]:
    """``x -> factor x + shift`` takes the statistics seen to those aimed at; a constant channel stays as it is."""
    still = ~(seen.deviation > 0) | ~(aim.deviation > 0)
    factor = torch.where(still, torch.ones_like(aim.deviation), aim.deviation / seen.deviation)
    return factor, torch.where(still, torch.zeros_like(aim.mean), aim.mean - factor * seen.mean)


def _output_axis(layer: nn.Module) -> int:
    """The axis of a weight along which the channels stand that a layer gives."""
    if isinstance(layer, _ConvNd) and layer.transposed:
        if layer.groups > 1:
            raise UnsupportedModelError("layer: a transposed convolution in groups cannot be repaired")
        return 1
    return 1 if type(layer).__name__ == "Conv1D" else 0
