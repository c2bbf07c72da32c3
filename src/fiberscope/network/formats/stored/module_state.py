"""A state dict put into the module that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import nn

from fiberscope.errors import FiberscopeError, InputError
from fiberscope.network.formats.stored.checkpoint import under


def filled(given: Any, state: Mapping[str, Any]) -> nn.Module:
    """A module, or the one that a function makes, with the numbers of a state dict.

    The caller's module is left as it was. Numbers keep the precision they have in the state dict, whatever that of the
    module. A prefix that all names of the module have in the file (``model.``, ``net.``, ``module.``) is taken off.

    >>> filled(nn.Linear(1, 1, bias=False), {"net.weight": torch.tensor([[2.0]])}).weight.item()
    2.0
    """
    module = _instance(given)
    own: dict[str, Any] = module.state_dict(keep_vars=True)
    tensors = {name: _tensor(name, value) for name, value in _matching(state, own).items()}
    _check_ties(own, tensors)
    for name, tensor in own.items():
        given = tensors.get(name)
        if given is not None and given.is_floating_point() and tensor.is_floating_point():
            tensor.data = tensor.data.to(given.dtype)
    try:
        module.load_state_dict(tensors, strict=True)
    except Exception as error:  # a module may load its state by code of its own
        raise InputError(f"module: the state dict does not fit {type(module).__name__} ({_line(error)})") from error
    return module


def _instance(given: Any) -> nn.Module:
    try:
        made = deepcopy(given) if isinstance(given, nn.Module) else given() if callable(given) else given
    except FiberscopeError:
        raise
    except Exception as error:  # the caller's own code
        raise InputError(f"module: it cannot be made ({type(error).__name__}: {_line(error)})") from error
    if not isinstance(made, nn.Module):
        what = f"one that gives a {type(made).__name__}" if callable(given) else type(made).__name__
        raise InputError(f"module: expected a torch module or a function without arguments that makes one, got {what}")
    return made


def _matching(state: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a state dict that has the names of the module, behind a prefix where there is just one."""
    names = set(own)
    if not names or set(state) == names:
        return state
    first = next(iter(own))
    prefixes = [name[: -len(first) - 1] for name in map(str, state) if name.endswith(f".{first}")]
    fitting = [prefix for prefix in prefixes if set(under(state, prefix)) == names]
    if len(fitting) > 1:
        raise InputError(f"the module fits {', '.join(map(repr, fitting))} in the file; choose one by key= (--key)")
    return under(state, fitting[0]) if fitting else state


def _check_ties(own: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Names of one and the same parameter must have one value, or which of them is loaded last would decide."""
    first: dict[int, str] = {}
    for name, tensor in own.items():
        other = first.setdefault(id(tensor), name)
        if name in tensors and other in tensors and not torch.equal(tensors[name], tensors[other]):
            raise InputError(f"module: {name} and {other} are one parameter there, and two in the file")


def _tensor(name: str, value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach()
    try:
        return torch.from_numpy(np.array(value))
    except TypeError as error:
        raise InputError(f"{name}: expected numbers, got {value.dtype}") from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
