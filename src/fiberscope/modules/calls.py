"""Calling a module on a batch, and finding the tensor in what it gives.

A batch is a tensor, or keyword arguments: a dict with a tensor per name. Modules give tensors, but also dicts, tuples,
or objects with fields such as the ``logits`` of ``transformers``; a *selector* says which part is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fiberscope.errors import FiberscopeError, InputError

Inputs = Tensor | dict[str, Any]
"""One batch: the only argument of a module, or its keyword arguments."""

Selector = str | int | Callable[[Any], Tensor] | None
"""Which part of an output is meant: a key or field, a place in a tuple, a function; None where there is no choice."""

LOGITS = "logits"
"""The field that is meant where an output has it and nobody says otherwise."""


def points(inputs: Inputs) -> int:
    """How many points a batch holds.

    >>> points({"ids": torch.zeros(3, 7), "flag": True})
    3
    """
    if isinstance(inputs, Tensor):
        return len(inputs)
    return next(len(value) for value in inputs.values() if isinstance(value, Tensor))


def call(module: nn.Module, inputs: Inputs, state: Mapping[str, Tensor] | None = None) -> Any:
    """What the module gives on a batch; with ``state``, other parameters and buffers in the place of its own."""
    arguments, options = ((inputs,), {}) if isinstance(inputs, Tensor) else ((), inputs)
    if state is None:
        return module(*arguments, **options)
    return functional_call(module, dict(state), arguments, options)


def checked_call(module: nn.Module, inputs: Inputs, state: Mapping[str, Tensor] | None = None) -> Any:
    """As :func:`call`, but what the module raises becomes one line.

    >>> checked_call(nn.Linear(3, 2), torch.zeros(4, 5))
    Traceback (most recent call last):
    fiberscope.errors.InputError: module: it does not run on the data: mat1 and mat2 shapes cannot be multiplied ...
    """
    with told("module: it does not run on the data"):
        return call(module, inputs, state)


@contextmanager
def told(text: str) -> Iterator[None]:
    """Around code of the caller's, which may raise anything: it becomes one line that begins with a text.

    >>> with told("loss: it cannot be computed"):
    ...     {}["size"]
    Traceback (most recent call last):
    fiberscope.errors.InputError: loss: it cannot be computed: KeyError: 'size'
    """
    try:
        yield
    except (FiberscopeError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{text}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """The first line of what was raised, with its kind where that is of interest or it says nothing."""
    first = (str(error).splitlines() or [""])[0][:120]
    kind = type(error).__name__
    if not first:
        return kind
    return first if isinstance(error, RuntimeError | ValueError | InputError) else f"{kind}: {first}"


def moved(inputs: Inputs, like: Tensor | None) -> Inputs:
    """A batch on the device of a tensor, its floating-point parts in the tensor's dtype."""
    if isinstance(inputs, dict):
        return {name: moved(value, like) if isinstance(value, Tensor) else value for name, value in inputs.items()}
    if like is None:
        return inputs
    floating = inputs.is_floating_point() and like.is_floating_point()
    return inputs.to(device=like.device, dtype=like.dtype if floating else inputs.dtype)


def select(output: Any, selector: Selector = None) -> Tensor:
    """The tensor of an output.

    Without a selector: the output itself, its ``logits``, or its only tensor. Anything else is refused, since a guess
    would be an answer about another function.

    Examples
    --------
    >>> select({"logits": torch.zeros(2), "hidden": torch.zeros(3)}).shape
    torch.Size([2])
    >>> select((torch.zeros(2), torch.zeros(3)), 1).shape
    torch.Size([3])
    >>> select((torch.zeros(2), torch.zeros(3)))
    Traceback (most recent call last):
    fiberscope.errors.InputError: output: expected one tensor, got tuple (0, 1); say which part by output=
    """
    if selector is not None:
        return _selected(output, selector)
    if isinstance(output, Tensor):
        return output
    parts = _parts(output)
    if isinstance(parts.get(LOGITS), Tensor):
        return _tensor(parts[LOGITS])
    tensors = [value for value in parts.values() if isinstance(value, Tensor)]
    if len(tensors) == 1:
        return tensors[0]
    raise InputError(f"output: expected one tensor, got {describe(output)}; say which part by output=")


def find(output: Any) -> Tensor | None:
    """As :func:`select` without a selector, but None where it would refuse."""
    try:
        return select(output)
    except InputError:
        return None


def meant(output: Any, selector: Selector = None) -> list[Tensor]:
    """What counts as the module's function: the part that :func:`select` finds, else all tensors of the output.

    >>> h, y = torch.zeros(3), torch.ones(1)
    >>> [len(meant(output)) for output in (y, {"logits": y, "hidden": h}, (h, y))]
    [1, 1, 2]
    """
    if selector is not None:
        return [select(output, selector)]
    only = find(output)
    return list(tensors(output)) if only is None else [only]


def tensors(output: Any) -> Iterator[Tensor]:
    """All tensors in an output, however deep, in a fixed order."""
    if isinstance(output, Tensor):
        yield output
    else:
        for part in _parts(output).values():
            yield from tensors(part)


def describe(output: Any) -> str:
    """The type of an output and the names of its parts."""
    names = ", ".join(map(str, _parts(output)))
    return f"{type(output).__name__} ({names})" if names else type(output).__name__


def _selected(output: Any, selector: str | int | Callable[[Any], Tensor]) -> Tensor:
    if callable(selector):
        with told("output: the function raises"):
            found = selector(output)
        if not isinstance(found, Tensor):
            raise InputError(f"output: expected the function to give a tensor, got {type(found).__name__}")
        return found
    parts = _parts(output)
    names = list(parts)
    key: Any = selector
    if isinstance(selector, int) and selector not in parts and -len(names) <= selector < len(names):
        key = names[selector]
    if not isinstance(parts.get(key), Tensor):
        raise InputError(f"output: expected a tensor under {selector!r}, got {describe(output)}")
    return _tensor(parts[key])


def _tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value


def _parts(output: Any) -> dict[Any, Any]:
    """The parts of an output by key, place or field; empty for anything that has none."""
    if isinstance(output, Mapping):
        return dict(output)
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return dict(zip(output._fields, output, strict=True))
    if isinstance(output, tuple | list):
        return dict(enumerate(output))
    if isinstance(output, Tensor | nn.Module | torch.dtype | type) or not hasattr(output, "__dict__"):
        return {}
    return {name: value for name, value in vars(output).items() if not name.startswith("_")}
