"""What a model loses on a batch, by name or by a function: points, or tokens of which some do not count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.errors import InputError
from fiberscope.modules.batches import Batch
from fiberscope.modules.calls import Selector, checked_call, find, points, select, told

Loss = str | Callable[[Any, Tensor], Tensor]
"""``"cross_entropy"``, ``"next_token"``, ``"mse"``, or a function of outputs and targets: its mean over the batch, or
one per point."""

IGNORED = -100
"""The label of a token that does not count, as everywhere in torch and transformers."""

NAMES = ("cross_entropy", "next_token", "mse")
TOKENS = "next_token"


@dataclass(frozen=True, slots=True)
class Lost:
    """The sum of the loss over the points or tokens of a batch, how many they are, and how many were hit."""

    total: Tensor
    terms: int
    right: int | None


def lost(loss: Loss, output: Any, target: Tensor, count: int) -> Lost:
    """The loss of a batch of ``count`` points; it can be differentiated.

    >>> lost("cross_entropy", torch.zeros(2, 3, 4), torch.tensor([[1, 2, -100], [0, -100, -100]]), 2).terms
    3
    """
    if loss == TOKENS:
        if not isinstance(output, Tensor) or output.dim() != 3 or target.dim() != 2 or output.shape[1] < 2:
            got = f"{_shape(output)} and {tuple(target.shape)}"
            raise InputError(
                f"targets: expected labels (points, tokens) for outputs with two tokens at least, got {got}"
            )
        output, target = output[:, :-1], target[:, 1:]
    if loss in ("cross_entropy", TOKENS):
        return _classified(output, target)
    if loss == "mse":
        if target.dim() == 1 and output.dim() == 2 and output.shape[1] == 1:
            target = target[:, None]
        if target.shape != output.shape:
            shapes = f"{tuple(target.shape)} and {tuple(output.shape)}"
            raise InputError(f"targets: expected the shape of the outputs for the loss mse, got {shapes}")
        return Lost((output.double() - target.double()).square().mean() * count, count, _right(find(output), target))
    if not callable(loss):
        raise InputError(f"loss: expected one of {', '.join(NAMES)} or a function, got {loss!r}")
    return Lost(_called(loss, output, target, count), count, _right(find(output), target))


def batch_loss(a: nn.Module, state: Mapping[str, Tensor], batch: Batch, loss: Loss, output: Selector) -> Lost:
    """What a module with other numbers loses on a batch."""
    inputs, targets = batch
    if targets is None:
        raise InputError("data: expected inputs with targets, got inputs alone")
    found = checked_call(a, inputs, state)
    read = found if output is None and callable(loss) else select(found, output)
    return lost(loss, read, targets, points(inputs))


def _classified(output: Any, target: Tensor) -> Lost:
    if not isinstance(output, Tensor):
        raise InputError(f"output: expected a tensor of logits, got {type(output).__name__}; say which by output=")
    classes = output.shape[-1] if output.dim() == target.dim() + 1 else 0
    whole = not target.is_floating_point() and output.shape[:-1] == target.shape and target.dim() in (1, 2)
    counts = target != IGNORED if whole and target.dim() == 2 else torch.ones_like(target, dtype=torch.bool)
    kept = target[counts]
    if not whole or (len(kept) and not 0 <= int(kept.min()) <= int(kept.max()) < classes):
        raise InputError(f"targets: expected labels from 0 to {classes - 1} for outputs {tuple(output.shape)}")
    rows = output[counts]
    total = nn.functional.cross_entropy(rows.double(), kept.long(), reduction="sum")
    return Lost(total, len(kept), _right(rows, kept))


def _called(loss: Callable[[Any, Tensor], Any], output: Any, target: Tensor, count: int) -> Tensor:
    with told("loss: it raises"):
        value = loss(output, target)
    if isinstance(value, Tensor) and value.shape == (count,):
        return value.double().sum()
    if isinstance(value, Tensor) and value.numel() != 1:
        raise InputError(f"loss: expected one number or one per point, got shape {tuple(value.shape)}")
    if not isinstance(value, Tensor | float | int | np.number):
        raise InputError(f"loss: expected one number or one per point, got {type(value).__name__}")
    number = value if isinstance(value, Tensor) else torch.tensor(float(value))
    return number.double().reshape(()) * count


def _right(output: Tensor | None, target: Tensor) -> int | None:
    """How many labels are hit, or None where the task is no classification."""
    if output is None or target.is_floating_point() or target.dim() != 1 or output.dim() != 2 or output.shape[1] < 2:
        return None
    # of a row with NaN argmax names the NaN: no answer is no hit
    return int(((output.argmax(dim=1) == target) & ~output.isnan().any(dim=1)).sum())


def _shape(output: Any) -> str:
    return str(tuple(output.shape)) if isinstance(output, Tensor) else type(output).__name__
