"""The program that a module runs on an example: every operation in order, on which tensors, with which settings.

Two modules that run one program with the same parameters under the same names compute the same function of inputs of
that shape, whatever their operations are; provided that the program does not depend on the values of the inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from fiberscope.modules.calls import Inputs, Selector, call, meant, tensors
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.dispatch import Dispatch
from fiberscope.modules.tracing.groups import own_tensors


@dataclass(frozen=True, slots=True)
class Program:
    """Operations with their arguments, what the outputs are, and operations that draw random numbers."""

    steps: tuple[str, ...]
    outputs: tuple[str, ...]
    random: tuple[str, ...]


class _Recorder(Dispatch):
    """Writes down every operation that is run while it is active; a tensor is named by where it comes from."""

    def __init__(self, named: dict[str, Tensor], inputs: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: Any = WeakTensorKeyDictionary()
        self.steps: list[str] = []
        self.random: list[str] = []
        self._held: list[Tensor] = []
        for name, tensor in named.items():
            if tensor not in self.names:
                self.names[tensor] = f"parameter {name} {tuple(tensor.shape)}"
        for k, tensor in enumerate(inputs):
            self.names[tensor] = f"input {k} {tuple(tensor.shape)}"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        told = [*(self.said(value) for value in args), *(f"{k}={self.said(v)}" for k, v in sorted(kwargs.items()))]
        result = func(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags and not _without_dropout(func, args, kwargs):
            self.random.append(str(func))
        for k, tensor in enumerate(tensors(result)):
            self.names[tensor] = f"{len(self.steps)}.{k}"
            self._held.append(tensor)
        self.steps.append(f"{func}({', '.join(told)}) -> {[tuple(t.shape) for t in tensors(result)]}")
        return result

    def said(self, value: Any) -> str:
        if isinstance(value, Tensor):
            if value not in self.names:  # a constant, told by its numbers
                data = value.detach().cpu().contiguous()
                digest = hashlib.sha256(data.reshape(-1).view(torch.uint8).numpy().tobytes()) if data.numel() else None
                self.names[value] = f"constant {value.dtype} {tuple(value.shape)} {digest and digest.hexdigest()}"
                self._held.append(value)
            return str(self.names[value])
        if isinstance(value, list | tuple):
            return f"[{', '.join(self.said(item) for item in value)}]"
        return repr(value)


def _without_dropout(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an operation draws numbers for its dropout only, and drops nothing."""
    names = [argument.name for argument in func._schema.arguments]
    if "dropout_p" not in names:
        return False
    place = names.index("dropout_p")
    return not (args[place] if place < len(args) else kwargs.get("dropout_p", 0.0))


def recorded(module: nn.Module, inputs: Inputs, output: Selector = None) -> Program:
    """The program of a module on a batch, in evaluation.

    >>> steps = recorded(nn.Sequential(nn.Linear(2, 1), nn.GELU()), torch.zeros(1, 2)).steps
    >>> [step.split("(")[0] for step in steps][-1]
    'aten.gelu.default'
    """
    named, _ = own_tensors(module)
    recorder = _Recorder(named, list(tensors(inputs)))
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(evaluating(module))
        stack.enter_context(recorder)
        found = meant(call(module, inputs), output)
    return Program(tuple(recorder.steps), tuple(recorder.said(t) for t in found), tuple(recorder.random))


def first_difference(a: Program, b: Program) -> str | None:
    """Where two programs part; None if they are one.

    >>> x = torch.zeros(1, 2)
    >>> nets = [nn.Sequential(nn.LayerNorm(2, eps=eps)) for eps in (1e-5, 1e-6)]
    >>> "1e-05" in first_difference(*(recorded(net, x) for net in nets))
    True
    """
    for k, (p, q) in enumerate(_padded(a.steps, b.steps)):
        if p != q:
            return f"operation {k}: {p or 'none'} and {q or 'none'}"
    return None if a.outputs == b.outputs else "the outputs are not the same operations"


def _padded(a: tuple[str, ...], b: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    size = max(len(a), len(b))
    yield from zip((*a, *[""] * (size - len(a))), (*b, *[""] * (size - len(b))), strict=True)
