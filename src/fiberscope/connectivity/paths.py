"""The segment between two parameters: ``theta(t) = (1 - t) theta_A + t theta_B``, as modules and as states.

What is mixed: parameters, and floating buffers that differ, such as running statistics. What is not: fixed parts ``F``
and ``D``, which belong to the architecture and must agree; and integer buffers, which are taken from the first model.
Of a parametrised weight the trained ``W`` is mixed, so ``W_eff`` runs along the segment of the effective weights too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fiberscope.errors import InputError
from fiberscope.modules.parametrisations import FixedPart, Gate, copied, fixed_parts
from fiberscope.network.border import as_model
from fiberscope.network.comparison import identical
from fiberscope.network.network import Network

State = dict[str, Tensor]


Place = float | Mapping[str, float]
"""A point of the segment: one number, or one for each layer by name."""


def interpolate(a: Any, b: Any, t: Place) -> Any:
    """The model at ``(1 - t) a + t b``: a new one; at ``t = 0`` and ``t = 1`` it has the end points' bits.

    Parameters
    ----------
    a, b
        Two ``torch.nn.Module`` of one architecture, or two :class:`Network`. Names, shapes and types of all parameters
        and buffers must agree, and so must the fixed parts of symmetry-breaking layers.
    t
        Any finite number; outside ``[0, 1]`` the line goes on. Of torch modules also a dict with a number for each
        layer, by the beginning of its name; what no name fits stays at ``a``.

    Examples
    --------
    >>> a, b = nn.Linear(1, 1), nn.Linear(1, 1)
    >>> for layer, value in ((a, 1.0), (b, 3.0)):
    ...     _ = nn.init.constant_(layer.weight, value)
    >>> interpolate(a, b, 0.25).weight.item()
    1.5
    """
    for value in t.values() if isinstance(t, Mapping) else [t]:
        if not math.isfinite(float(value)):
            raise InputError(f"t: expected a finite number, got {value}")
    a, b = as_model(a, "a"), as_model(b, "b")
    if isinstance(a, Network) and isinstance(b, Network):
        if isinstance(t, Mapping):
            raise InputError("t: expected one number for networks, got one for each layer; take torch modules")
        return _mixed_network(a, b, float(t))
    check_comparable(a, b)
    return with_state(a, mixed_state(a, b, t))


def with_state(module: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a module with other numbers in some of its tensors."""
    copy = copied(module)
    target = tensors_of(copy)
    with torch.no_grad():
        for name, value in state.items():
            target[name].copy_(value)
    return copy


def mixed_state(a: nn.Module, b: nn.Module, t: Place) -> State:
    """Parameters and floating buffers at ``t`` of two modules that were found comparable, by name."""
    left, right = tensors_of(a), tensors_of(b)
    if isinstance(t, Mapping):
        check_layers(a, t)
    fixed = {
        f"{path}.{letter}" for path, part in a.named_modules() if isinstance(part, FixedPart | Gate) for letter in "FD"
    }
    state: State = {}
    tied: set[tuple[int, int]] = set()
    with torch.no_grad():
        for name, x in left.items():
            pair = id(x), id(right[name])  # a tensor with two names is mixed once, under its first
            if name not in fixed and pair not in tied and (x.is_floating_point() or x.is_complex()):
                tied.add(pair)
                state[name] = _mixture(x, right[name], place_of(name, t))
    return state


def place_of(name: str, t: Place) -> float:
    """Where on the segment a tensor is: the number of the longest name that its own begins with; 0 without one.

    >>> place_of("layers.1.weight", {"layers": 0.25, "layers.1": 0.5}), place_of("head.weight", {"layers": 0.25})
    (0.5, 0.0)
    """
    if not isinstance(t, Mapping):
        return float(t)
    fits = [key for key in t if key in ("", name) or name.startswith(f"{key}.")]
    return float(t[max(fits, key=len)]) if fits else 0.0


def check_layers(module: nn.Module, layers: Iterable[str]) -> None:
    """Raise :class:`InputError` for a name that no tensor of the module begins with."""
    names = tensors_of(module)
    for key in layers:
        if key and key not in names and not any(name.startswith(f"{key}.") for name in names):
            raise InputError(f"layer {key}: the module has no such layer; its first are {', '.join(list(names)[:4])}")


def _mixture(x: Tensor, y: Tensor, t: float) -> Tensor:
    """``(1 - t) x + t y``; the ends as they are, be they infinite or a negative zero."""
    if t in (0.0, 1.0):
        return (y if t else x).detach().clone()
    # lerp keeps equal entries equal, which (1 - t) x + t y does not
    return torch.lerp(x, y, t)


def check_comparable(a: Any, b: Any) -> None:
    """Raise :class:`InputError`, which names the layer, unless the two modules are of one architecture."""
    for name, module in (("a", a), ("b", b)):
        if not isinstance(module, nn.Module):
            other = " (and the other is not one)" if isinstance(module, Network) else ""
            raise InputError(f"{name}: expected a torch.nn.Module{other}, got {type(module).__name__}")
    left, right = tensors_of(a), tensors_of(b)
    for name in {**left, **right}:  # the first that differs, in the order of the models
        if name not in left or name not in right:
            side = "second" if name in left else "first"
            if _plain(name) != name and _plain(name) in {**left, **right}:
                raise InputError(
                    f"layer {_plain(name)}: expected it parametrised in both models or in none, the {side} has a plain "
                    "one; take effective_weights of both"
                )
            raise InputError(
                f"layer {_plain(name)}: expected two models of one architecture, the {side} has no such tensor"
            )
        x, y = left[name], right[name]
        if x.shape != y.shape:
            raise InputError(f"layer {_plain(name)}: expected equal shapes, got {tuple(x.shape)} and {tuple(y.shape)}")
        if x.dtype != y.dtype or x.device != y.device:
            kinds = f"{x.dtype} on {x.device} and {y.dtype} on {y.device}"
            raise InputError(f"layer {_plain(name)}: expected equal types and devices, got {kinds}")
    _check_parts(a, b)
    _check_ties(a, b)


def check_finite(module: nn.Module, side: str) -> None:
    """Raise :class:`InputError`, which names the tensor, unless all floating parameters are finite."""
    for name, value in module.named_parameters():
        numbers = value.detach() if value.is_floating_point() and value.numel() else torch.zeros(1)
        if not bool(torch.isfinite(torch.linalg.vector_norm(numbers, torch.inf))):
            raise InputError(f"{side}: expected finite weights, got NaN or infinity in {name}")


def _check_parts(a: nn.Module, b: nn.Module) -> None:
    left, right = dict(fixed_parts(a)), dict(fixed_parts(b))
    for name in sorted(left.keys() ^ right.keys()):
        raise InputError(f"layer {name}: expected fixed parts in both models or in none, got them in one")
    for name, part in left.items():
        other: FixedPart | Gate = right[name]
        for letter, buffer in part.named_buffers():
            if not torch.equal(buffer, other.get_buffer(letter)):
                raise InputError(
                    f"layer {name}: expected the same fixed part {letter} in both models, got two; "
                    "break their symmetries with one architecture_seed and the same settings"
                )


def _check_ties(a: nn.Module, b: nn.Module) -> None:
    """A tensor with two names in one model and two tensors in the other have no mixture."""
    owners: list[dict[str, str]] = []
    for module in (a, b):
        first: dict[int, str] = {}
        owners.append({n: first.setdefault(id(p), n) for n, p in module.named_parameters(remove_duplicate=False)})
    for name, owner in owners[0].items():
        if owners[1][name] != owner:
            raise InputError(f"layer {_plain(name)}: it is tied in one model and not in the other")


def tensors_of(module: nn.Module) -> State:
    """Parameters and buffers under all their names."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _plain(name: str) -> str:
    """``fc.parametrizations.weight.original`` and ``fc.parametrizations.weight.0.F`` are both ``fc.weight``."""
    layer, mark, rest = name.rpartition("parametrizations.")
    return layer + rest.split(".")[0] if mark else name


def _mixed_network(a: Network, b: Network, t: float) -> Network:
    left, right = a.parameters, b.parameters
    shapes = [{name: value.shape for name, value in found.items()} for found in (left, right)]
    if shapes[0] != shapes[1] or not identical(a.with_parameters(right), b):
        raise InputError(f"networks: expected two of one architecture, got {a!r} and {b!r}")
    mixed = {n: _mixture(torch.tensor(x), torch.tensor(right[n]), t).numpy() for n, x in left.items()}
    return a.with_parameters(mixed)
