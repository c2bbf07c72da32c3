"""Data in the forms people have it, as batches on the module's device: arrays, pairs, data sets, loaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.errors import InputError

BATCH = 1024
"""Points per batch where the caller leaves it open."""

Batch = tuple[Tensor, Tensor | None]


def batches(data: Any, module: nn.Module | None = None, size: int = BATCH, name: str = "data") -> Iterator[Batch]:
    """Batches ``(inputs, targets or None)``; inputs in the dtype and on the device of the module's first parameter.

    Parameters
    ----------
    data
        An array or tensor ``(points, ...)``; a pair ``(inputs, targets)``, as a tuple; anything with ``inputs`` and
        ``targets``, such as a :class:`fiberscope.Dataset`; or an iterable of batches, each an array or such a pair,
        such as a list or a ``DataLoader``.
    module
        Where inputs go; None leaves them as they are.
    size
        Points per batch, where the data does not come in batches already.

    Examples
    --------
    >>> [len(x) for x, y in batches(torch.zeros(5, 2), size=2)]
    [2, 2, 1]
    """
    if isinstance(size, bool) or int(size) != size or size < 1:
        raise InputError(f"batch_size: expected a positive integer, got {size!r}")
    like = None if module is None else next((p for p in module.parameters() if p.is_floating_point()), None)
    empty = True
    for inputs, targets in _parts(data, int(size), name):
        if inputs.dim() == 0 or (targets is not None and len(targets) != len(inputs)):
            shapes = tuple(inputs.shape), None if targets is None else tuple(targets.shape)
            raise InputError(f"{name}: expected batches of as many inputs as targets, got shapes {shapes}")
        if len(inputs) == 0:
            continue
        empty = False
        yield _placed(inputs, like, floating=True), None if targets is None else _placed(targets, like, floating=False)
    if empty:
        raise InputError(f"{name}: expected at least one point, got none")


def _parts(data: Any, size: int, name: str) -> Iterator[Batch]:
    if hasattr(data, "inputs") and hasattr(data, "targets"):
        data = (data.inputs, data.targets)
    if _is_array(data):
        data = (data,)
    elif not (isinstance(data, tuple | list) and 1 <= len(data) <= 2 and all(map(_is_array, data))):
        if not isinstance(data, Iterable) or isinstance(data, str | bytes | dict):
            raise InputError(f"{name}: expected arrays, a data set or batches, got {type(data).__name__}")
        yield from (_one(batch, name) for batch in data)
        return
    elif isinstance(data, list):
        # a list of two arrays is two batches; a pair is a tuple
        yield from (_one(batch, name) for batch in data)
        return
    inputs, targets = _one(data, name)
    if targets is not None and len(inputs) != len(targets):
        raise InputError(f"{name}: expected as many inputs as targets, got {len(inputs)} and {len(targets)}")
    for start in range(0, len(inputs), size):
        stop = start + size
        yield inputs[start:stop], None if targets is None else targets[start:stop]


def _one(batch: Any, name: str) -> Batch:
    if _is_array(batch):
        return _tensor(batch), None
    if isinstance(batch, tuple | list) and 1 <= len(batch) <= 2 and all(map(_is_array, batch)):
        return _tensor(batch[0]), _tensor(batch[1]) if len(batch) == 2 else None
    raise InputError(f"{name}: expected batches (inputs, targets) of arrays, got {type(batch).__name__}")


def _tensor(array: Any) -> Tensor:
    # torch takes no negative strides, as x[::-1] has them
    return torch.as_tensor(np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _placed(value: Tensor, like: Tensor | None, floating: bool) -> Tensor:
    value = value.detach()
    if like is None:
        return value
    if value.is_floating_point():
        return value.to(device=like.device, dtype=like.dtype)
    if floating and value.dtype == torch.uint8:
        raise InputError("data: expected floating-point inputs, got uint8 (convert and scale it first)")
    return value.to(device=like.device)
