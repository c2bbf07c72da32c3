"""Derivatives of any torch module by ``torch.func``, in chunks of bounded memory.

Parameters go in as arguments of a function, so a layer that is used several times is differentiated through all of its
uses, and a tensor with two names is one parameter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.func import functional_call, jacrev, vmap

from fiberscope.errors import InputError, TooLargeError, UnsupportedModelError
from fiberscope.modules.dispatch import Dispatch
from fiberscope.run import ENDLESS, Run

CHUNK_BYTES = 1 << 28
"""Memory of the Jacobian rows that are held at once."""


_RAISED = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError)
"""What modules raise on an input, or in a precision, that they cannot take; NotImplementedError is a RuntimeError."""


def jacobian(
    module: Any,
    X: Any,
    memory: int,
    precision: str | None = None,
    run: Run = ENDLESS,
    names: Collection[str] | None = None,
) -> torch.Tensor:
    """``(points * outputs, parameters)``; the columns follow ``named_parameters()``, or those of ``names`` only.

    In the module's own dtype, or in another one (``"float64"``): its numbers are converted, its code is run as it is.
    """
    with evaluating(_checked(module)):
        dtype: torch.dtype = _parameter(module).dtype if precision is None else getattr(torch, precision)
        batch = _batch(module, X, "X", dtype)
        call = _Call(module, dtype, names)
        rows, size = len(batch) * call.outputs(batch), call.size
        _fits(rows, size, dtype.itemsize, memory, "Jacobian")
        return torch.cat(list(_blocks(call, batch, run)))


def ntk(
    module: Any, X: Any, Y: Any, memory: int, run: Run = ENDLESS, names: Collection[str] | None = None
) -> torch.Tensor:
    """``J(X) J(Y)^T``, from blocks of the two Jacobians; ``Y=None`` means ``X`` and an exactly symmetric answer.

    With ``names`` the columns of these parameters only.
    """
    with evaluating(_checked(module)):
        dtype = _parameter(module).dtype
        call = _Call(module, dtype, names)
        left = _batch(module, X, "X", dtype)
        right = left if Y is None else _batch(module, Y, "Y", dtype)
        outputs = call.outputs(left)
        _fits(len(left) * outputs, len(right) * outputs, dtype.itemsize, memory, "kernel")
        result = left.new_empty(len(left) * outputs, len(right) * outputs)
        start = 0
        for rows in _blocks(call, left, run):
            # Of a symmetric kernel only what lies from the diagonal block on is computed.
            column = start if Y is None else 0
            end = start + len(rows)
            parts = _blocks(call, right[column // outputs :], run.quietly())
            whole = Y is None and end - column == len(right) * outputs - column
            for block in [rows] if whole else parts:
                result[start:end, column : column + len(block)] = rows @ block.T
                column += len(block)
            start = end
        if Y is None:
            upper = result.triu()
            result = upper + upper.triu(1).T
        return result


class TangentMap:
    """``J(X)`` of a module in float64, never formed: products with it and with its transpose, and its trace.

    ``J w`` is the derivative of ``J^T u``, which is linear in ``u``, along ``w``: two gradients, which every
    layer has, and no forward derivative, which some have not.
    """

    def __init__(self, module: Any, X: Any) -> None:
        self._module = _checked(module)
        with evaluating(self._module):
            self._call = _Call(self._module, torch.float64)
            self._batch = _batch(self._module, X, "X", torch.float64)
            self._call.outputs(self._batch)
            self._values = {name: value.requires_grad_() for name, value in self._call.parameters.items()}
            self._result: torch.Tensor = self._call(self._values, self._batch).reshape(-1)
        self.shape = (self._result.numel(), _count(self._module))

    def gram(self, v: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """``J J^T v``: the tangent kernel times a vector."""
        wanted = torch.as_tensor(v, device=self._result.device)
        along = [part.detach() for part in self._pulled(wanted, False)]
        u = torch.zeros_like(self._result, requires_grad=True)
        product = torch.stack([(a * b).sum() for a, b in zip(self._pulled(u, True), along, strict=True)]).sum()
        return np.asarray(torch.autograd.grad(product, u)[0].cpu().numpy())

    def _pulled(self, u: torch.Tensor, again: bool) -> list[torch.Tensor]:
        found = torch.autograd.grad(
            self._result, list(self._values.values()), u, retain_graph=True, create_graph=again, allow_unused=True
        )
        # A parameter that nothing depends on: zero, as a function of u too.
        return [
            torch.zeros_like(value) * u.sum() if part is None else part
            for part, value in zip(found, self._values.values(), strict=True)
        ]

    def trace(self, run: Run = ENDLESS) -> float:
        """The trace of the kernel, from blocks of rows."""
        with evaluating(self._module):
            return float(sum((rows**2).sum() for rows in _blocks(self._call, self._batch, run)))


class _Call:
    """A module as a function of its parameters, in one precision; those that are not named are constants."""

    def __init__(self, module: torch.nn.Module, dtype: torch.dtype, names: Collection[str] | None = None) -> None:
        self.module, self.dtype = module, dtype
        other = dtype != _parameter(module).dtype

        def taken(value: torch.Tensor) -> torch.Tensor:
            return value.to(dtype) if other and value.is_floating_point() else value

        values = {name: taken(value.detach()) for name, value in module.named_parameters()}
        self.parameters = {name: value for name, value in values.items() if names is None or name in names}
        constants = {name: value for name, value in values.items() if name not in self.parameters}
        self._buffers = constants | {name: taken(value) for name, value in module.named_buffers()}
        self.size = sum(value.numel() for value in self.parameters.values())
        self._plain = False

    def __call__(self, values: dict[str, torch.Tensor], batch: torch.Tensor) -> Any:
        return functional_call(self.module, (values, self._buffers), (batch,))

    def outputs(self, batch: torch.Tensor) -> int:
        """Outputs per point; refuses what the module cannot take."""
        try:
            with torch.no_grad():
                with _Operations() as seen:
                    result = self({name: value.detach() for name, value in self.parameters.items()}, batch[:1])
                # Its rule for many outputs of many points at once is wrong where these are equally many.
                self._plain |= any("prelu" in name for name in seen.names)
        except _RAISED as error:
            shape = tuple(batch.shape[1:])
            raise InputError(
                f"X: the module does not take points of shape {shape} in {_name(self.dtype)}: {_line(error)}"
            ) from error
        if not isinstance(result, torch.Tensor):
            kind = type(result).__name__
            raise UnsupportedModelError(f"net: expected a module with one tensor as output, got {kind}")
        return result.numel()

    def rows(self, batch: torch.Tensor) -> torch.Tensor:
        """The rows of the Jacobian for some points, ``(points * outputs, parameters)``.

        All outputs of all points at once where ``torch.func`` can; a few layers have no such rule, or a wrong one
        (PReLU), and then one gradient after the other is taken. :meth:`outputs` is asked first.
        """
        values = {name: value.detach() for name, value in self.parameters.items()}

        def single(values: dict[str, torch.Tensor], x: torch.Tensor) -> Any:
            return self(values, x.unsqueeze(0)).reshape(-1)

        if not self._plain:
            try:
                found = vmap(jacrev(single), in_dims=(None, 0))(values, batch)
                flat = [
                    found[name].detach().flatten(2) if value.dim() else found[name].detach().unsqueeze(2)
                    for name, value in values.items()
                ]
                return torch.cat(flat, dim=2).flatten(0, 1)
            except _RAISED:
                self._plain = True
        try:
            return torch.cat([self._one_by_one(values, x) for x in batch])
        except _RAISED as error:
            raise UnsupportedModelError(f"net: torch cannot differentiate this module: {_line(error)}") from error

    def _one_by_one(self, values: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        own = {name: value.detach().requires_grad_() for name, value in values.items()}
        rows = []
        for output in self(own, x.unsqueeze(0)).reshape(-1):
            found = torch.autograd.grad(output, list(own.values()), retain_graph=True, allow_unused=True)
            parts = [
                torch.zeros_like(value) if part is None else part
                for part, value in zip(found, own.values(), strict=True)
            ]
            rows.append(torch.cat([part.reshape(-1) for part in parts]))
        return torch.stack(rows)


class _Operations(Dispatch):
    """Collects the names of the operations that run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


def _line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _blocks(call: _Call, batch: torch.Tensor, run: Run) -> Iterator[torch.Tensor]:
    """Rows of the Jacobian, as many points at a time as fit into :data:`CHUNK_BYTES`."""
    per_point = call.outputs(batch) * call.size * call.dtype.itemsize
    step = max(1, CHUNK_BYTES // max(1, per_point))
    for start in range(0, len(batch), step):
        run.step(start, len(batch), "rows of the Jacobian")
        yield call.rows(batch[start : start + step])


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


def _batch(module: torch.nn.Module, X: Any, name: str, dtype: torch.dtype) -> torch.Tensor:
    try:
        # Lists go through NumPy, which keeps the digits of Python's floats.
        batch = X if isinstance(X, torch.Tensor) else torch.as_tensor(np.asarray(X))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: expected an array (points, ...) of floats, got {type(X).__name__}") from error
    if not batch.is_floating_point():
        if batch.dtype in (torch.int32, torch.int64) and _reads_tokens(module):
            dtype = batch.dtype
        else:
            raise InputError(f"{name}: expected a floating-point array, got {batch.dtype} (convert it first)")
    batch = batch.detach().to(device=_parameter(module).device, dtype=dtype)
    if batch.dim() < 2 or len(batch) == 0:
        raise InputError(f"{name}: expected a non-empty batch (points, ...), got shape {tuple(batch.shape)}")
    if not torch.isfinite(batch).all():
        raise InputError(f"{name}: expected finite numbers in the range of {_name(dtype)}, got NaN or infinity")
    return batch


def _reads_tokens(module: torch.nn.Module) -> bool:
    return any(isinstance(part, torch.nn.Embedding) for part in module.modules())


def _parameter(module: torch.nn.Module) -> torch.Tensor:
    return next(module.parameters())


def _count(module: torch.nn.Module) -> int:
    return sum(value.numel() for value in module.parameters())


def _fits(rows: int, columns: int, item: int, memory: int, what: str) -> None:
    need = item * rows * columns
    if not need <= memory:
        raise TooLargeError(
            f"a {rows} x {columns} {what} needs {need / 2**30:.1f} GiB, the limit is {memory / 2**30:.1f} GiB; "
            "take fewer points or raise memory="
        )
