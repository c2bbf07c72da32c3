"""Derivatives of any torch module by ``torch.func``, in chunks of bounded memory.

Parameters go in as arguments of a function, so a layer that is used several times is differentiated through all of its
uses, and a tensor with two names is one parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.func import functional_call, jacrev, vmap

from fiberscope.errors import InputError, TooLargeError, UnsupportedModelError

CHUNK_BYTES = 1 << 28
"""Memory of the Jacobian rows that are held at once."""


def jacobian(module: Any, X: Any, limit: int) -> torch.Tensor:
    """``(points * outputs, parameters)`` in the module's dtype; the columns follow ``named_parameters()``."""
    with evaluating(_checked(module)):
        batch = _batch(module, X, "X")
        rows, size = len(batch) * _outputs(module, batch), _count(module)
        _fits(rows, size, _parameter(module).element_size(), limit, "Jacobian")
        return torch.cat(list(_blocks(module, batch, CHUNK_BYTES)))


def ntk(module: Any, X: Any, Y: Any, limit: int) -> torch.Tensor:
    """``J(X) J(Y)^T``, from blocks of the two Jacobians; ``Y=None`` means ``X`` and an exactly symmetric answer."""
    with evaluating(_checked(module)):
        left = _batch(module, X, "X")
        right = left if Y is None else _batch(module, Y, "Y")
        outputs = _outputs(module, left)
        item = _parameter(module).element_size()
        _fits(len(left) * outputs, len(right) * outputs, item, limit, "kernel")
        result = left.new_empty(len(left) * outputs, len(right) * outputs, dtype=_parameter(module).dtype)
        start = 0
        for rows in _blocks(module, left, CHUNK_BYTES):
            # Of a symmetric kernel only what lies from the diagonal block on is computed.
            column = start if Y is None else 0
            end = start + len(rows)
            parts = _blocks(module, right[column // outputs :], CHUNK_BYTES)
            whole = Y is None and end - column == len(right) * outputs - column
            for block in [rows] if whole else parts:
                result[start:end, column : column + len(block)] = rows @ block.T
                column += len(block)
            start = end
        if Y is None:
            upper = result.triu()
            result = upper + upper.triu(1).T
        return result


def _blocks(module: torch.nn.Module, batch: torch.Tensor, memory: int) -> Iterator[torch.Tensor]:
    """Rows of the Jacobian, as many points at a time as fit into ``memory`` bytes."""
    parameters = {name: value.detach() for name, value in module.named_parameters()}
    buffers = dict(module.named_buffers())

    def outputs(values: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = functional_call(module, (values, buffers), (x.unsqueeze(0),))
        return result.reshape(-1)

    per_point = _outputs(module, batch[:1]) * _count(module) * _parameter(module).element_size()
    step = max(1, memory // max(1, per_point))
    derivative = vmap(jacrev(outputs), in_dims=(None, 0))
    for start in range(0, len(batch), step):
        try:
            found = derivative(parameters, batch[start : start + step])
        except RuntimeError as error:
            raise UnsupportedModelError(f"torch.func cannot differentiate this module: {str(error)[:200]}") from error
        points = len(batch[start : start + step])
        flat = [
            found[name].detach().flatten(2) if parameters[name].dim() else found[name].unsqueeze(2)
            for name in parameters
        ]
        yield torch.cat(flat, dim=2).reshape(points * flat[0].shape[1], -1)


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every submodule gets its own flag back."""
    flags = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, flag in flags:
            part.training = flag


def _checked(module: Any) -> torch.nn.Module:
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"net: expected a Network or a torch.nn.Module, got {type(module).__name__}")
    if _count(module) == 0:
        raise UnsupportedModelError("net: expected a module with parameters, got none")
    for name, value in module.named_parameters():
        if not torch.isfinite(value).all():
            raise InputError(f"parameter {name}: expected finite numbers")
    return module


def _batch(module: torch.nn.Module, X: Any, name: str) -> torch.Tensor:
    reference = _parameter(module)
    batch = torch.as_tensor(X)
    if not batch.is_floating_point():
        raise InputError(f"{name}: expected a floating-point array, got {batch.dtype} (convert it first)")
    batch = batch.detach().to(device=reference.device, dtype=reference.dtype)
    if batch.dim() < 2 or len(batch) == 0:
        raise InputError(f"{name}: expected a non-empty batch (points, ...), got shape {tuple(batch.shape)}")
    if not torch.isfinite(batch).all():
        raise InputError(f"{name}: expected finite numbers, got NaN or infinity")
    return batch


def _outputs(module: torch.nn.Module, batch: torch.Tensor) -> int:
    try:
        with torch.no_grad():
            result = module(batch[:1])
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"X: the module does not take points of shape {tuple(batch.shape[1:])}: {reason}") from error
    if not isinstance(result, torch.Tensor):
        raise UnsupportedModelError(f"net: expected a module with one tensor as output, got {type(result).__name__}")
    return result.numel()


def _parameter(module: torch.nn.Module) -> torch.Tensor:
    return next(module.parameters())


def _count(module: torch.nn.Module) -> int:
    return sum(value.numel() for value in module.parameters())


def _fits(rows: int, columns: int, item: int, limit: int, what: str) -> None:
    need = item * rows * columns
    if need > limit:
        raise TooLargeError(
            f"a {rows} x {columns} {what} needs {need / 2**30:.1f} GiB, the limit is {limit / 2**30:.1f} GiB; "
            "take fewer points or raise limit="
        )
