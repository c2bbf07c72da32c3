"""The checked settings of a training of many runs: what goes in is looked at here, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fiberscope.errors import InputError, hint
from fiberscope.network.border import NetworkLike, as_networks
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.training.batched import LOSSES, FixedParts, Layout
from fiberscope.training.datasets.dataset import Dataset

_DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True, slots=True)
class Parametrisation:
    """Weights that are only partly trained: ``W_eff = scale * F + D * W``, ``b_eff = d * b``, entry by entry.

    Parameters
    ----------
    centers, masks
        ``F`` and ``D``: one ``(n_l, n_{l-1})`` array per layer, or None for zeros and ones. Shared by all runs.
    bias_masks
        ``d``: one ``(n_l,)`` array per layer, or None.
    scale
        ``sigma_F``: one number, one per run, or ``(runs, layers)``.
    """

    centers: Sequence[Any | None]
    masks: Sequence[Any | None]
    bias_masks: Sequence[Any | None] | None = None
    scale: Any = 1.0


@dataclass(frozen=True, eq=False)
class Plan:
    """The checked settings of a training."""

    layout: Layout
    seeds: tuple[int, ...]
    epochs: int
    batch_size: int
    loss: str
    checkpoints: frozenset[int]
    inputs: Tensor  # (runs or 1, points, n_0)
    targets: Tensor  # (runs or 1, points[, n_L])
    arrays: tuple[tuple[FloatArray, npt.NDArray[Any]], ...]  # one pair per run, or one for all

    @property
    def runs(self) -> int:
        return len(self.seeds)

    @property
    def points(self) -> int:
        return self.inputs.shape[1]


def make_plan(
    widths: Sequence[int],
    data: Any,
    seeds: Sequence[int],
    epochs: int,
    batch_size: int | None,
    loss: str,
    checkpoints: Sequence[int],
    dtype: str,
    device: str,
) -> Plan:
    """Check everything and put the data into tensors."""
    shape = tuple(int(n) for n in widths)
    if len(shape) < 2 or min(shape) < 1 or shape != tuple(widths):
        raise InputError(f"widths: expected at least two positive integers, got {tuple(widths)}")
    for name, value, known in (("loss", loss, LOSSES), ("dtype", dtype, _DTYPES)):
        if value not in known:
            raise InputError(f"{name}: expected one of {', '.join(known)}, got {value!r}{hint(str(value), known)}")
    numbers = tuple(int(seed) for seed in seeds)
    if not numbers or min(numbers) < 0 or numbers != tuple(seeds):
        raise InputError(f"seeds: expected non-negative integers, at least one, got {tuple(seeds)}")
    if int(epochs) != epochs or epochs < 0:
        raise InputError(f"epochs: expected an integer of at least 0, got {epochs}")
    outside = [c for c in checkpoints if int(c) != c or not 0 <= c <= epochs]
    if outside:
        raise InputError(f"checkpoints: expected epochs from 0 to {epochs}, got {outside[0]}")
    arrays = _arrays(data, shape, len(numbers), loss)
    points = len(arrays[0][0])
    if batch_size is not None and (int(batch_size) != batch_size or batch_size < 1):
        raise InputError(f"batch_size: expected a positive integer or None, got {batch_size}")
    floats = _DTYPES[dtype]
    inputs = torch.from_numpy(np.stack([pair[0] for pair in arrays])).to(device=device, dtype=floats)
    targets = torch.from_numpy(np.stack([pair[1] for pair in arrays])).to(device=device)
    targets = targets.long() if loss == "cross_entropy" else targets.to(floats)
    size = points if batch_size is None else int(batch_size)
    kept = frozenset(int(c) for c in checkpoints)
    return Plan(Layout(shape), numbers, int(epochs), size, loss, kept, inputs, targets, arrays)


def _arrays(
    data: Any, widths: tuple[int, ...], runs: int, loss: str
) -> tuple[tuple[FloatArray, npt.NDArray[Any]], ...]:
    one = isinstance(data, Dataset) or (isinstance(data, tuple) and len(data) == 2 and hasattr(data[0], "shape"))
    parts = [data] if one else list(data)
    if not one and len(parts) != runs:
        raise InputError(f"data: expected one data set for all runs or one per seed ({runs}), got {len(parts)}")
    pairs = tuple(_pair(part, widths, loss) for part in parts)
    for inputs, targets in pairs:
        if inputs.shape != pairs[0][0].shape or targets.shape != pairs[0][1].shape:
            raise InputError(f"data: expected equal shapes in all runs, got {pairs[0][0].shape} and {inputs.shape}")
    return pairs


def _pair(part: Any, widths: tuple[int, ...], loss: str) -> tuple[FloatArray, npt.NDArray[Any]]:
    data = part if isinstance(part, Dataset) else Dataset("given", np.asarray(part[0]), np.asarray(part[1]))
    inputs = data.flat_inputs.astype(np.float64)
    if inputs.shape[1] != widths[0]:
        raise InputError(f"data {data.name}: expected {widths[0]} features as in widths, got {inputs.shape[1]}")
    if (loss == "cross_entropy") != data.is_classification:
        wanted = "integer labels" if loss == "cross_entropy" else "floating targets"
        raise InputError(f"data {data.name}: expected {wanted} for the loss {loss}, got {data.targets.dtype}")
    outputs = data.num_outputs
    if outputs > widths[-1] or (loss == "mse" and outputs != widths[-1]):
        raise InputError(f"data {data.name}: expected {widths[-1]} outputs as in widths, got {outputs}")
    return inputs, data.targets


def initial_parameters(plan: Plan, init: str | Sequence[NetworkLike]) -> Tensor:
    """The parameters at which the runs begin, ``(runs, D)``."""
    widths = plan.layout.widths
    if isinstance(init, str):
        networks = [Network.random(widths, seed, init) for seed in plan.seeds]
    else:
        networks = as_networks(init, "init")
        if len(networks) != plan.runs or any(net.widths != widths for net in networks):
            found = sorted({net.widths for net in networks})
            raise InputError(f"init: expected {plan.runs} networks of widths {widths}, got {len(networks)} of {found}")
    rows = [
        np.concatenate([x.ravel() for w, b in zip(net.weights, net.biases, strict=True) for x in (w, b)])
        for net in networks
    ]
    return torch.from_numpy(np.stack(rows)).to(device=plan.inputs.device, dtype=plan.inputs.dtype)


def per_run(value: float | Sequence[float], name: str, plan: Plan, positive: bool = False) -> float | Tensor:
    """A plain number where all runs agree (the fast path, and torch's own order of operations), else a vector."""
    numbers = np.atleast_1d(np.asarray(value, dtype=np.float64))
    good = np.isfinite(numbers).all() and (numbers > 0 if positive else numbers >= 0).all()
    if numbers.ndim != 1 or len(numbers) not in {1, plan.runs} or not good:
        kind = "positive" if positive else "non-negative"
        raise InputError(f"{name}: expected one {kind} number or {plan.runs}, one per run, got {value}")
    if (numbers == numbers[0]).all():
        return float(numbers[0])
    return plan.layout.spread(torch.from_numpy(numbers).to(device=plan.inputs.device, dtype=plan.inputs.dtype))


def fixed_parts(given: Parametrisation, plan: Plan) -> FixedParts:
    """A parametrisation as tensors, its scale spread over runs and layers."""
    widths = plan.layout.widths
    layers = len(widths) - 1

    def tensors(name: str, arrays: Sequence[Any | None] | None, bias: bool) -> tuple[Tensor | None, ...]:
        arrays = [None] * layers if arrays is None else arrays
        if len(arrays) != layers:
            raise InputError(f"{name}: expected {layers} arrays or None, one per layer, got {len(arrays)}")
        found: list[Tensor | None] = []
        for index, array in enumerate(arrays):
            shape = (widths[index + 1],) if bias else (widths[index + 1], widths[index])
            if array is not None and np.shape(array) != shape:
                raise InputError(f"{name}: expected shape {shape} in layer {index + 1}, got {np.shape(array)}")
            found.append(None if array is None else plan.inputs.new_tensor(np.asarray(array, dtype=np.float64)))
        return tuple(found)

    scale = np.asarray(given.scale, dtype=np.float64)
    scale = scale[:, None] if scale.ndim == 1 else scale
    if scale.ndim > 2 or any(n not in {1, want} for n, want in zip(scale.shape, (plan.runs, layers), strict=False)):
        raise InputError(f"scale: expected one number, {plan.runs} or ({plan.runs}, {layers}), got {scale.shape}")
    return FixedParts(
        tensors("centers", given.centers, bias=False),
        tensors("masks", given.masks, bias=False),
        tensors("bias_masks", given.bias_masks, bias=True),
        plan.inputs.new_tensor(np.broadcast_to(scale, (plan.runs, layers)).copy()),
    )


def plain(value: Any) -> Any:
    """A number or a list of numbers for JSON."""
    return np.asarray(value, dtype=np.float64).tolist()
