"""The permutations that leave a module's function alone: groups of neurons, and the tensors that each group moves.

A :class:`Structure` is plain data: for each group of neurons its size, the axes of tensors on which it acts, and the
layers at which its activations can be read. Applying an element knows nothing of architectures; what finds the groups
does. Here that is :func:`chain_structure`, for multilayer perceptrons, with several heads or one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.modules.calls import Inputs, Selector, call, meant, moved, tensors
from fiberscope.modules.derivatives import evaluating
from fiberscope.modules.parametrisations import Gate
from fiberscope.modules.recording import hooked
from fiberscope.numerics.drift import allowed_drift, relative_drift
from fiberscope.numerics.floats import IntArray
from fiberscope.results import Result

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
class Structure(Result):
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
        changed = deepcopy(module)
        own: dict[str, Tensor] = {**dict(changed.named_parameters()), **dict(changed.named_buffers())}
        with torch.no_grad():
            for group in self.groups:
                if group.name not in permutations:
                    continue
                order = _checked(permutations[group.name], group)
                for axis in group.axes:
                    if axis.tensor not in own:
                        raise InputError(f"layer {axis.tensor}: the module has no such tensor; is it parametrised?")
                    tensor = own[axis.tensor]
                    tensor.copy_(tensor.index_select(axis.axis, order.to(tensor.device)))
        return changed

    def _answer(self) -> Iterator[tuple[str, Any]]:
        for group in self.groups:
            axes = [(axis.tensor, axis.axis) for axis in group.axes]
            yield group.name, {"size": group.size, "axes": axes, "readers": group.readers}


def _checked(order: Any, group: Group) -> Tensor:
    array = np.asarray(order)
    if array.shape != (group.size,) or not np.array_equal(np.sort(array), np.arange(group.size)):
        raise InputError(f"group {group.name}: expected a permutation of {group.size} neurons")
    return torch.from_numpy(array.astype(np.int64))


@dataclass(frozen=True, slots=True)
class Drift:
    """How much a random element changes the outputs, relative to their size, and how much may be rounding."""

    value: float
    allowed: float

    @property
    def ok(self) -> bool:
        return self.value <= self.allowed  # never for NaN


def drift(structure: Structure, module: nn.Module, inputs: Inputs, seed: int = 0, output: Selector = None) -> Drift:
    """What a random element changes, computed in float64 as far as the module lets us.

    A module may fall back to a coarser type inside (norms in float32 are common), or not run in float64 at all. So the
    coarsest type that really occurs says what counts as rounding.
    """
    try:
        return _measured(structure, deepcopy(module).double(), inputs, seed, output)
    except RuntimeError:  # layers of a type of their own, say: torch does not multiply matrices of two types
        return _measured(structure, module, inputs, seed, output)


def _measured(structure: Structure, module: nn.Module, inputs: Inputs, seed: int, output: Selector) -> Drift:
    like = next((p for p in module.parameters() if p.is_floating_point()), None)
    batch = moved(inputs, like)
    changed = structure.apply(module, structure.random(seed))
    with torch.no_grad(), evaluating(module), evaluating(changed):
        with Precisions() as seen:
            before = meant(call(module, batch), output)
        after = meant(call(changed, batch), output)
    values = [
        np.concatenate([t.double().flatten().cpu().numpy() for t in found] or [np.zeros(0)])
        for found in (before, after)
    ]
    return Drift(relative_drift(values[0], values[1]), allowed_drift(seen.coarsest))


class Precisions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, notes the coarsest floating-point type that any operation gives.

    >>> with Precisions() as seen:
    ...     _ = torch.ones(2, dtype=torch.float64).float() + 1
    >>> seen.coarsest == torch.finfo(torch.float32).eps
    True
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.coarsest = float(torch.finfo(torch.float64).eps)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in tensors(found):
            if tensor.is_floating_point():
                self.coarsest = max(self.coarsest, float(torch.finfo(tensor.dtype).eps))
        return found


def chain_structure(module: nn.Module, inputs: Inputs, output: Selector = None) -> Structure:
    """The groups of a network of linear layers, from who reads whom on ``inputs``; checked by outputs.

    A group is the outputs of one linear layer that other linear layers read, one or several; norms and gates in between
    move along. Who reads whom is followed through whatever happens between the layers. The function is what ``output``
    selects; None for the ``logits`` or the only tensor of an output, else for all of its tensors. That it stays the
    same is tried with a random element, and :class:`UnsupportedModelError` says so if it does not.
    """
    if any(parametrize.is_parametrized(part) for part in module.modules()):
        raise InputError("module: expected plain weights, got parametrised ones; take effective_weights(module)")
    reading = _reading(module, inputs, output)
    for name, part in reading.parts.items():
        _moved_along(name, part, 0)  # refuses what it does not know, wherever it stands
    groups = [
        Group(name, part.out_features, tuple(_axes(name, reading)), reading.readers(name))
        for name, part in reading.producers()
    ]
    if not groups:
        raise UnsupportedModelError("module: expected a multilayer perceptron with a hidden layer, found none")
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for axis in (axis for group in groups for axis in group.axes):
        if axis.tensor not in own:
            raise UnsupportedModelError(f"layer {axis.tensor}: it is tied to another, so its neurons do not move alone")
    structure = Structure(tuple(groups))
    found = drift(structure, module, inputs, output=output)
    if not found.ok:
        raise UnsupportedModelError(
            f"module: reordering its hidden neurons changes the outputs by {found.value:.1e}; "
            "it is not a plain chain of linear layers (a skip connection, or an activation that is not entry by entry?)"
        )
    return structure


@dataclass(frozen=True)
class _Reading:
    """Which linear layers each layer reads: directly, that is, not through another linear layer."""

    parts: dict[str, nn.Module]
    """Layers without children, in the order in which they ran."""
    sources: dict[str, tuple[str, ...]]
    shown: tuple[str, ...]
    """Linear layers that the output of the module reads."""

    def readers(self, producer: str) -> tuple[str, ...]:
        """The linear layers that read this one."""
        return tuple(
            name
            for name, sources in self.sources.items()
            if producer in sources and isinstance(self.parts[name], nn.Linear)
        )

    def producers(self) -> list[tuple[str, nn.Linear]]:
        """The linear layers whose neurons are hidden: others read them, and the output does not."""
        return [
            (name, part)
            for name, part in self.parts.items()
            if isinstance(part, nn.Linear) and name not in self.shown and self.readers(name)
        ]


def _axes(producer: str, reading: _Reading) -> list[Axis]:
    """What moves with the outputs of one linear layer."""
    layer = reading.parts[producer]
    assert isinstance(layer, nn.Linear)
    axes = [Axis(f"{producer}.{key}", 0) for key, _ in layer.named_parameters()]
    for name, sources in reading.sources.items():
        if producer not in sources:
            continue
        part = reading.parts[name]
        if len(sources) > 1 and (isinstance(part, nn.Linear) or list(part.parameters())):
            raise UnsupportedModelError(
                f"layer {name}: it reads {' and '.join(sources)}, expected one layer of a chain"
            )
        if isinstance(part, nn.Linear):
            if part.in_features != layer.out_features:
                raise UnsupportedModelError(
                    f"layer {name}: expected {layer.out_features} inputs from {producer}, it has {part.in_features}"
                )
            axes.append(Axis(f"{name}.weight", 1))
        else:
            axes += _moved_along(name, part, layer.out_features)
    return axes


def _reading(module: nn.Module, inputs: Inputs, selector: Selector) -> _Reading:
    """Run the module once. Every linear layer's output becomes a variable of its own, so that what depends on it, and
    on no later one, is what torch's graph of derivatives says.
    """
    leaves = [name for name, part in module.named_modules() if not list(part.children()) and name]
    if not leaves:
        raise UnsupportedModelError(f"module: expected a multilayer perceptron, got {type(module).__name__}")
    parts: dict[str, nn.Module] = {}
    sources: dict[str, tuple[str, ...]] = {}
    variables: dict[str, Tensor] = {}

    def read(value: Any) -> tuple[str, ...]:
        found = [t for t in tensors(value) if t.requires_grad]
        if not found or not variables:
            return ()
        slopes = torch.autograd.grad(
            [t.sum() for t in found], list(variables.values()), retain_graph=True, allow_unused=True
        )
        return tuple(name for name, slope in zip(variables, slopes, strict=True) if slope is not None)

    def before(name: str, part: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        if name in parts and list(part.parameters()):
            raise UnsupportedModelError(f"layer {name}: it runs twice, so its neurons have no order of their own")
        parts[name] = part
        sources[name] = tuple(dict.fromkeys((*sources.get(name, ()), *read(given))))

    def after(name: str, part: nn.Module, given: tuple[Any, ...], output: Any) -> Any:
        if not isinstance(part, nn.Linear):
            return None
        variables[name] = output.detach().requires_grad_()
        return variables[name].clone()  # an activation in place may not write into a variable

    like = next((p for p in module.parameters() if p.is_floating_point()), None)
    with (
        torch.enable_grad(),
        evaluating(module),
        hooked(module, leaves, before, before=True),
        hooked(module, leaves, after),
    ):
        shown = read(meant(call(module, moved(inputs, like)), selector))
    return _Reading(parts, sources, shown)


def _moved_along(name: str, part: nn.Module, size: int) -> list[Axis]:
    """The axes of a layer that is not linear, behind one of ``size`` neurons."""
    if isinstance(part, nn.Linear):
        return []
    if isinstance(part, Gate):
        return [Axis(f"{name}.F", 0), Axis(f"{name}.F", 1)]
    own = {**dict(part.named_parameters()), **dict(part.named_buffers())}
    if isinstance(part, nn.LayerNorm | nn.BatchNorm1d | nn.RMSNorm | nn.GroupNorm):
        return [Axis(f"{name}.{key}", 0) for key, value in own.items() if value.shape == (size,)]
    if own:
        kind = type(part).__name__
        raise UnsupportedModelError(
            f"layer {name}: matching knows linear layers, norms and gates of an MLP, not {kind}"
        )
    return []
