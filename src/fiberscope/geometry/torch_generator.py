"""Torch modules as functions of NumPy batches."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
from torch import nn

from fiberscope.errors import InputError
from fiberscope.numerics.floats import FloatArray

_BATCH = 1024


def function_of(module: nn.Module, shape: tuple[int, ...]) -> Callable[[FloatArray], FloatArray]:
    """``Z -> module(Z)`` on batches ``(count, latent)``, outputs flattened; ``shape`` is that of one latent point.

    A copy of the module is evaluated, in evaluation mode and float64: in float32 a fine polygon would follow the
    rounding of its corners.
    """
    copy = deepcopy(module).double().eval()

    def evaluate(Z: FloatArray) -> FloatArray:
        parts = []
        with torch.no_grad():
            for start in range(0, len(Z), _BATCH):
                rows = torch.from_numpy(np.array(Z[start : start + _BATCH])).reshape(-1, *shape)
                found = copy(rows)
                if not isinstance(found, torch.Tensor) or len(found) != len(rows):
                    kind = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
                    raise InputError(f"generator: expected one output per point, got {kind} for {len(rows)} points")
                parts.append(found.reshape(len(rows), -1).double().numpy())
        return np.concatenate(parts)

    return evaluate
