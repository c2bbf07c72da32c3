"""The permutations that leave a module's function alone: groups of neurons, and the tensors that each group moves.

A :class:`Structure` is plain data: for each group of neurons its size, the axes of tensors on which it acts, and the
layers at which its activations can be read. Applying an element knows nothing of architectures; what finds the groups
does. Here that is :func:`chain_structure`, for multilayer perceptrons.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.parametrisations import Gate
from fiberscope.modules.recording import hooked
from fiberscope.numerics.drift import DRIFT, relative_drift
from fiberscope.numerics.floats import IntArray

Permutations = Mapping[str, IntArray]
"""One permutation per group: new neuron ``i`` is old neuron ``p[i]``, as in :func:`fiberscope.permute`."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of one tensor (a parameter or buffer, by its name) that moves with a group."""

    tensor: str
    axis: int


@dataclass(frozen=True, slots=True)
class Group:
    """Neurons that move together: how many, the axes they move, and the layers whose *inputs* are their activations."""

    name: str
    size: int
    axes: tuple[Axis, ...]
    readers: tuple[str, ...]


@dataclass(frozen=True)
class Structure:
    """Groups of interchangeable neurons of one architecture.

    >>> chain = Structure((Group("h", 2, (Axis("0.weight", 0), Axis("0.bias", 0), Axis("2.weight", 1)), ("2",)),))
    >>> net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> moved = chain.apply(net, {"h": np.array([1, 0])})
    >>> torch.equal(moved[0].weight, net[0].weight.flip(0)), torch.equal(moved[2].weight, net[2].weight.flip(1))
    (True, True)
    """

    groups: tuple[Group, ...]

    def random(self, seed: int | np.random.Generator) -> dict[str, IntArray]:
        """A random element, uniform in every group."""
        rng = np.random.default_rng(seed)
        return {group.name: rng.permutation(group.size) for group in self.groups}

    def identity(self) -> dict[str, IntArray]:
        return {group.name: np.arange(group.size) for group in self.groups}

    def apply(self, module: nn.Module, permutations: Permutations) -> nn.Module:
        """A new module with its neurons in another order; groups that are not mentioned stay."""
        known = {group.name for group in self.groups}
        for name in permutations:
            if name not in known:
                raise InputError(f"permutations: no group {name!r}; the groups are {', '.join(sorted(known))}")
        moved = deepcopy(module)
        tensors: dict[str, Tensor] = {**dict(moved.named_parameters()), **dict(moved.named_buffers())}
        with torch.no_grad():
            for group in self.groups:
                if group.name not in permutations:
                    continue
                order = _checked(permutations[group.name], group)
                for axis in group.axes:
                    if axis.tensor not in tensors:
                        raise InputError(f"layer {axis.tensor}: the module has no such tensor; is it parametrised?")
                    tensor = tensors[axis.tensor]
                    tensor.copy_(tensor.index_select(axis.axis, order.to(tensor.device)))
        return moved

    def to_dict(self) -> dict[str, Any]:
        return {
            group.name: {
                "size": group.size,
                "axes": [[axis.tensor, axis.axis] for axis in group.axes],
                "readers": list(group.readers),
            }
            for group in self.groups
        }


def _checked(order: Any, group: Group) -> Tensor:
    array = np.asarray(order)
    if array.shape != (group.size,) or not np.array_equal(np.sort(array), np.arange(group.size)):
        raise InputError(f"group {group.name}: expected a permutation of {group.size} neurons")
    return torch.from_numpy(array.astype(np.int64))


def drift(structure: Structure, module: nn.Module, x: Tensor, seed: int = 0) -> float:
    """How much a random element changes the outputs on ``x``, relative to their size; computed in float64."""
    wide = deepcopy(module).double()
    moved = structure.apply(wide, structure.random(seed))
    with torch.no_grad(), evaluating(wide), evaluating(moved):
        before, after = wide(x.double()), moved(x.double())
    return relative_drift(before.cpu().numpy(), after.cpu().numpy())


def chain_structure(module: nn.Module, x: Tensor) -> Structure:
    """The groups of a multilayer perceptron, from the order in which its layers run on ``x``; checked by outputs.

    A group is the outputs of one linear layer; norms and gates behind it move along, up to the next linear layer.
    Whatever happens between modules (activations as functions, say) is not seen: that the function stays the same is
    tried with a random element, and :class:`UnsupportedModelError` says so if it does not.
    """
    if any(parametrize.is_parametrized(part) for part in module.modules()):
        raise InputError("module: expected plain weights, got parametrised ones; take effective_weights(module)")
    calls = _calls(module, x)
    groups: list[Group] = []
    current: tuple[str, int] | None = None
    axes: list[Axis] = []
    for name, part in calls:
        if isinstance(part, nn.Linear):
            if current is not None:
                producer, size = current
                if part.in_features != size:
                    raise UnsupportedModelError(
                        f"layer {name}: expected {size} inputs from {producer}, it has {part.in_features}"
                    )
                groups.append(Group(producer, size, (*axes, Axis(f"{name}.weight", 1)), (name,)))
            current = (name, part.out_features)
            axes = [Axis(f"{name}.{key}", 0) for key, _ in part.named_parameters()]
        else:
            axes += _moved_along(name, part, None if current is None else current[1])
    if not groups:
        raise UnsupportedModelError("module: expected a multilayer perceptron with a hidden layer, found none")
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for axis in (axis for group in groups for axis in group.axes):
        if axis.tensor not in own:
            raise UnsupportedModelError(f"layer {axis.tensor}: it is tied to another, so its neurons do not move alone")
    structure = Structure(tuple(groups))
    found = drift(structure, module, x)
    if not found <= DRIFT:
        raise UnsupportedModelError(
            f"module: reordering its hidden neurons changes the outputs by {found:.1e}; "
            "it is not a plain chain of linear layers (a skip connection, or an activation that is not entry by entry?)"
        )
    return structure


def _calls(module: nn.Module, x: Tensor) -> list[tuple[str, nn.Module]]:
    """The layers without children in the order in which they run."""
    leaves = [name for name, part in module.named_modules() if not list(part.children()) and name]
    if not leaves:
        raise UnsupportedModelError(f"module: expected a multilayer perceptron, got {type(module).__name__}")
    calls: list[tuple[str, nn.Module]] = []
    with torch.no_grad(), evaluating(module), hooked(module, leaves, lambda name, part, *_: calls.append((name, part))):
        module(x)
    used: set[str] = set()
    for name, part in calls:
        if name in used and list(part.parameters()):
            raise UnsupportedModelError(f"layer {name}: it runs twice, so its neurons have no order of their own")
        used.add(name)
    return calls


def _moved_along(name: str, part: nn.Module, size: int | None) -> list[Axis]:
    """The axes of a layer that is not linear; none before the first linear layer, where ``size`` is None."""
    if isinstance(part, Gate):
        return [Axis(f"{name}.F", 0), Axis(f"{name}.F", 1)]
    tensors = {**dict(part.named_parameters()), **dict(part.named_buffers())}
    if isinstance(part, nn.LayerNorm | nn.BatchNorm1d | nn.RMSNorm | nn.GroupNorm):
        return [Axis(f"{name}.{key}", 0) for key, value in tensors.items() if value.shape == (size,)]
    if tensors:
        kind = type(part).__name__
        raise UnsupportedModelError(
            f"layer {name}: matching knows linear layers, norms and gates of an MLP, not {kind}"
        )
    return []
