"""Data in the forms people have it, as batches on the module's device: arrays, pairs, data sets, loaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.errors import InputError
from fiberscope.modules.calls import Inputs, points, told

BATCH = 1024
"""Points per batch where the caller leaves it open."""

LABELS = "labels"
"""The key of keyword arguments that holds the targets, where they do not come beside them."""

Batch = tuple[Inputs, Tensor | None]


def batches(data: Any, module: nn.Module | None = None, size: int = BATCH, name: str = "data") -> Iterator[Batch]:
    """Batches ``(inputs, targets or None)``; inputs in the dtype and on the device of the module's first parameter.

    Parameters
    ----------
    data
        An array or tensor ``(points, ...)``; a pair ``(inputs, targets)``, as a tuple; anything with ``inputs`` and
        ``targets``, such as a :class:`fiberscope.Dataset`; or an iterable of batches, each an array or such a pair,
        such as a list or a ``DataLoader``. Inputs may be a dict of keyword arguments, arrays of one length beside
        flags; its entry ``labels`` is then the targets, where none come beside it, and is not given to the module.
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
        if points(inputs) == 0:
            continue
        empty = False
        yield _placed_inputs(inputs, like, name), None if targets is None else _placed(targets, like)
    if empty:
        raise InputError(f"{name}: expected at least one point, got none")


def _parts(data: Any, size: int, name: str) -> Iterator[Batch]:
    if hasattr(data, "inputs") and hasattr(data, "targets"):
        data = (data.inputs, data.targets)
    if not (_is_inputs(data) or (isinstance(data, tuple) and _is_batch(data))):
        # a list of two arrays is two batches; a pair is a tuple
        if not isinstance(data, Iterable) or isinstance(data, str | bytes):
            raise InputError(f"{name}: expected arrays, a data set or batches, got {type(data).__name__}")
        yield from (_one(batch, name) for batch in _each(data, name))
        return
    inputs, targets = _one(data, name)
    for start in range(0, points(inputs), size):
        stop = start + size
        yield _slice(inputs, start, stop), None if targets is None else targets[start:stop]


def _each(data: Iterable[Any], name: str) -> Iterator[Any]:
    """What an iterable gives; it may read files, and raise anything."""
    end = object()
    with told(f"{name}: reading it fails"):
        source = iter(data)
    while True:
        with told(f"{name}: reading it fails"):
            found = next(source, end)
        if found is end:
            return
        yield found


def _one(batch: Any, name: str) -> Batch:
    """One batch, checked: as many targets as inputs."""
    if _is_inputs(batch):
        batch = (batch,)
    if not (isinstance(batch, tuple | list) and _is_batch(batch)):
        raise InputError(f"{name}: expected batches (inputs, targets) of arrays, got {type(batch).__name__}")
    inputs, targets = batch[0], batch[1] if len(batch) == 2 else None
    if isinstance(inputs, Mapping):
        if targets is None:
            targets = inputs.get(LABELS)
            inputs = {key: value for key, value in inputs.items() if key != LABELS}
        found: Inputs = {key: _tensor(value) if _is_array(value) else value for key, value in inputs.items()}
    else:
        found = _tensor(inputs)
    labels = None if targets is None else _tensor(targets)
    _check_lengths(found, labels, name)
    return found, labels


def _check_lengths(inputs: Inputs, targets: Tensor | None, name: str) -> None:
    parts = inputs if isinstance(inputs, dict) else {"inputs": inputs}
    shapes = {key: tuple(value.shape) for key, value in parts.items() if isinstance(value, Tensor)}
    if not shapes:
        raise InputError(f"{name}: expected at least one array among the inputs, got {', '.join(parts) or 'none'}")
    if targets is not None:
        shapes["targets"] = tuple(targets.shape)
    if len({shape[:1] for shape in shapes.values()}) > 1 or () in shapes.values():
        text = ", ".join(f"{key} {shape}" for key, shape in shapes.items())
        raise InputError(f"{name}: expected as many inputs as targets, got {text}")


def _slice(inputs: Inputs, start: int, stop: int) -> Inputs:
    if isinstance(inputs, Tensor):
        return inputs[start:stop]
    return {key: value[start:stop] if isinstance(value, Tensor) else value for key, value in inputs.items()}


def _tensor(array: Any) -> Tensor:
    # torch takes no negative strides, as x[::-1] has them
    return torch.as_tensor(np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _is_inputs(value: Any) -> bool:
    return _is_array(value) or (isinstance(value, Mapping) and any(map(_is_array, value.values())))


def _is_batch(value: Any) -> bool:
    """Inputs, or inputs with targets."""
    return len(value) in (1, 2) and _is_inputs(value[0]) and all(map(_is_array, value[1:]))


def _placed_inputs(inputs: Inputs, like: Tensor | None, name: str) -> Inputs:
    if isinstance(inputs, dict):
        return {key: _placed(value, like) if isinstance(value, Tensor) else value for key, value in inputs.items()}
    if like is not None and inputs.dtype == torch.uint8:
        raise InputError(f"{name}: expected floating-point inputs, got uint8 (convert and scale it first)")
    return _placed(inputs, like)


def _placed(value: Tensor, like: Tensor | None) -> Tensor:
    value = value.detach()
    if like is None:
        return value
    return value.to(device=like.device, dtype=like.dtype if value.is_floating_point() else value.dtype)
