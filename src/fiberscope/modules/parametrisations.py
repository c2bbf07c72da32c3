"""Weights with parts that are never trained: ``W_eff = F + D * W``, entry by entry.

``F`` and ``D`` are buffers of a ``torch.nn.utils.parametrize`` parametrisation, so they travel with state dicts,
devices and dtypes, and the optimiser sees ``W`` alone: weight decay acts on ``W``, never on ``W_eff``.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, remove_spectral_norm, remove_weight_norm
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from fiberscope.errors import InputError


class FixedPart(nn.Module):
    """The parametrisation ``W -> F + D * W`` with buffers ``F`` and ``D`` of the weight's shape.

    Assigning a weight ``V`` (``layer.weight = V``) sets ``W = (V - F) / D`` where ``D`` is not zero, and ``W = 0``
    where it is: such an entry is fixed, so ``V`` must have exactly ``F`` there, and anything else is refused.
    """

    F: Tensor
    D: Tensor

    def __init__(self, F: Tensor, D: Tensor) -> None:
        super().__init__()
        if F.shape != D.shape:
            raise InputError(f"fixed part: expected F and D of one shape, got {tuple(F.shape)} and {tuple(D.shape)}")
        self.register_buffer("F", F)
        self.register_buffer("D", D)

    def forward(self, W: Tensor) -> Tensor:
        return self.F + self.D * W

    def right_inverse(self, V: Tensor) -> Tensor:
        fixed = self.D == 0  # D is a datum, not a result: an entry is fixed exactly where it is zero
        if not torch.equal(V[fixed], self.F[fixed]):
            raise InputError("weight: expected F at the fixed entries (where D is zero), got other numbers")
        return torch.where(fixed, torch.zeros_like(V), (V - self.F) / torch.where(fixed, torch.ones_like(V), self.D))

    def extra_repr(self) -> str:
        return f"shape={tuple(self.F.shape)}, fixed={int((self.D == 0).sum())}"


class Gate(nn.Module):
    """The sigma-asymmetric activation ``x -> sigmoid(F x) * x`` with a fixed matrix ``F`` (Lim et al. 2024).

    It does not act entry by entry, so a permutation of its inputs is not one of its outputs. ``axis`` is where the
    features stand: 1 for images ``(points, channels, height, width)``, -1 for vectors and tokens.
    """

    F: Tensor

    def __init__(self, F: Tensor, axis: int = -1) -> None:
        super().__init__()
        self.register_buffer("F", F)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[self.axis] != self.F.shape[1]:
            raise InputError(
                f"gate: expected {self.F.shape[1]} features on axis {self.axis}, got shape {tuple(x.shape)}; "
                "give break_symmetry an example= input"
            )
        moved = x.movedim(self.axis, -1)
        gated = torch.sigmoid(nn.functional.linear(moved, self.F)) * moved
        return gated.movedim(-1, self.axis)

    def extra_repr(self) -> str:
        return f"features={self.F.shape[0]}, axis={self.axis}"


def fix_part(layer: nn.Module, name: str, F: Tensor, D: Tensor) -> None:
    """Give ``layer.<name>`` the form ``F + D * W`` in place; ``W`` starts at the present value, bit for bit."""
    if parametrize.is_parametrized(layer):  # by another tensor: the class may be shared with a copy
        kind = type(layer)
        kept = {key: value for key, value in vars(kind).items() if key not in {"__dict__", "__weakref__"}}
        layer.__class__ = type(kind.__name__, kind.__bases__, kept)
    parameter = getattr(layer, name)
    start = parameter.detach().clone()
    with torch.no_grad():
        parameter.copy_(F + D * start)  # what registering asks right_inverse about must be realisable
    parametrize.register_parametrization(layer, name, FixedPart(F, D))
    with torch.no_grad():
        layer.parametrizations[name].original.copy_(start)  # type: ignore[index, union-attr]


def fixed_parts(module: nn.Module) -> Iterator[tuple[str, FixedPart | Gate]]:
    """All fixed parts and gates of a module, each with the name of its parameter or activation.

    A parameter's name is that of the plain module, such as ``layers.0.weight``.
    """
    for path, part in module.named_modules():
        if isinstance(part, FixedPart):
            layer, _, rest = path.rpartition("parametrizations.")
            yield layer + rest.split(".")[0], part
        elif isinstance(part, Gate):
            yield path, part


def effective_weights(module: Any) -> nn.Module:
    """A plain module with the same function, bit for bit: every parametrised tensor becomes its value.

    The argument is not changed. Gates, which are activations and not weights, stay.

    Parameters
    ----------
    module
        Any ``torch.nn.Module``; one without parametrisations is merely copied. The older functions ``weight_norm`` and
        ``spectral_norm`` of ``torch.nn.utils``, which compute a weight before every call, count as parametrisations.

    Examples
    --------
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> fix_part(layer, "weight", torch.tensor([[5.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    >>> plain = effective_weights(layer)
    >>> plain.weight[0, 0].item(), sorted(plain.state_dict())
    (5.0, ['weight'])
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    copy = copied(module)
    for part in list(copy.modules()):
        if parametrize.is_parametrized(part):
            _make_plain(part)
        for hook in _weight_hooks(part):
            _settle_hook(part, hook)
    return copy


def plain(module: nn.Module) -> nn.Module:
    """The module itself, or one with effective weights where it has parametrised tensors."""
    broken = any(parametrize.is_parametrized(part) or _weight_hooks(part) for part in module.modules())
    return effective_weights(module) if broken else module


def copied(module: nn.Module) -> nn.Module:
    """A deep copy, also of a module that keeps tensors which it computed: torch does not copy these by itself."""
    computed = (v for part in module.modules() for v in vars(part).values() if isinstance(v, Tensor) and not v.is_leaf)
    return deepcopy(module, {id(value): value.detach().clone() for value in computed})


def _weight_hooks(part: nn.Module) -> list[WeightNorm | SpectralNorm]:
    """What computes a weight anew before every call, the way of torch before there were parametrisations."""
    return [hook for hook in part._forward_pre_hooks.values() if isinstance(hook, WeightNorm | SpectralNorm)]


def _settle_hook(part: nn.Module, hook: WeightNorm | SpectralNorm) -> None:
    others = [name for name in part._parameters if not name.startswith(f"{hook.name}_")]
    (remove_weight_norm if isinstance(hook, WeightNorm) else remove_spectral_norm)(part, hook.name)
    for name in others:  # a weight stands before its bias
        part._parameters[name] = part._parameters.pop(name)


def _make_plain(part: nn.Module) -> None:
    """Put the values of parametrised tensors in their places.

    Torch keeps the parametrised properties on a class made for the module, and a deep copy shares it. So its own
    ``remove_parametrizations`` would take them away from the module that was copied, too.
    """
    lists = dict(part.parametrizations.items())  # type: ignore[operator, union-attr]
    values = {name: getattr(part, name).detach().clone() for name in lists}
    part.__class__ = type(part).__bases__[0]
    del part.parametrizations
    others = dict(part._parameters)
    part._parameters.clear()
    for name, value in values.items():  # first, since a weight stands before its bias
        trained = list(lists[name].parameters(recurse=False))
        if trained:
            part.register_parameter(name, nn.Parameter(value, any(p.requires_grad for p in trained)))
        else:
            part.register_buffer(name, value)
    part._parameters.update(others)
