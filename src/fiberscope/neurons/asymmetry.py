"""Symmetry-breaking layers on any torch module: ``W_eff = F + D * W`` with fixed ``F`` and ``D``, by four schemes.

=============  ==============================================  =================================================
scheme         ``F``                                           ``D``
=============  ==============================================  =================================================
``w``          ``mask * N(0, sigma^2)``                        ``1 - mask`` (Lim et al. 2024)
``syre``       ``N(0, sigma^2)``                               ``Unif(1 - epsilon, 1 + epsilon)^(-1/2)``
``residual``   ``sigma`` times the identity                    1
``sparse``     0                                               ``1 - mask``
=============  ==============================================  =================================================

A fifth, ``sigma``, leaves the weights alone and replaces the activations by gates that mix neurons. Paper: *Beyond
structural symmetries: linear mode connectivity via neuron identifiability*, Table 1 and appendix G.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fiberscope.errors import InputError
from fiberscope.modules.draws import lowest, normal, stream, uniform
from fiberscope.modules.parametrisations import Gate, fix_part
from fiberscope.modules.recording import activation_shapes
from fiberscope.numerics.floats import BoolArray, FloatArray

SCHEMES = ("w", "syre", "residual", "sparse", "sigma")

ACTIVATIONS = (
    *(nn.ReLU, nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.CELU, nn.SELU, nn.LeakyReLU, nn.ReLU6, nn.Softplus),
    *(nn.Tanh, nn.Sigmoid, nn.Hardswish, nn.Hardtanh, nn.Hardsigmoid, nn.LogSigmoid, nn.Softsign),
)
"""What the scheme ``sigma`` replaces."""

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *_TRANSPOSED)
_MAPS = (nn.Linear, nn.Bilinear, *_CONVOLUTIONS)


@dataclass(frozen=True)
class Target:
    """One weight that can be given fixed parts: the layer's public name, its owner and the parameter's own name."""

    name: str
    path: str
    owner: nn.Module
    parameter: str

    @property
    def convolution(self) -> bool:
        return isinstance(self.owner, _CONVOLUTIONS)

    @property
    def transposed(self) -> bool:
        """Whether the weight is ``(inputs, outputs / groups, ...)`` and not ``(outputs, inputs / groups, ...)``."""
        return isinstance(self.owner, _TRANSPOSED)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(getattr(self.owner, self.parameter).shape)

    @property
    def groups(self) -> int:
        return int(getattr(self.owner, "groups", 1))


def break_symmetry(
    module: Any,
    scheme: str = "w",
    architecture_seed: int = 0,
    *,
    fixed: Any = None,
    density: Any = None,
    sigma: Any = 1.0,
    epsilon: Any = 0.1,
    per: str = "input",
    include: str | Sequence[str] = "*",
    exclude: str | Sequence[str] = (),
    example: Any = None,
) -> nn.Module:
    """A copy of a module whose weights have fixed parts, drawn from the architecture seed and the layers' names alone.

    ``W`` starts at the module's present weight; with ``D = 0`` an entry never moves from ``F``. Two runs share ``F``
    and ``D`` if they share the seed, the names, the shapes and the settings: no process, hash seed or version matters.

    Parameters
    ----------
    module
        Any ``torch.nn.Module``. Linear and bilinear layers, convolutions, transposed ones too, and the projections of
        ``nn.MultiheadAttention`` (layers ``<path>.in_proj``, or ``q_proj``, ``k_proj``, ``v_proj``, and
        ``<path>.out_proj``) can be given fixed parts. Other layers with matrices of weights (recurrent ones,
        embeddings) stay as they are, and a warning names them unless ``exclude`` does.
    scheme
        ``"w"``, ``"syre"``, ``"residual"``, ``"sparse"`` or ``"sigma"``.
    architecture_seed
        An integer.
    fixed
        For ``w`` and ``sparse``: fixed entries per row of a linear map, and per input channel of a convolution, spread
        over the kernels that read it (with ``per="output"`` per output channel, over its own kernels; a channel of a
        grouped convolution has those of its group). One value for all layers, a list with one per layer, or a dict from
        layer names or patterns to values (exact names first, then the first pattern that fits). None: an eighth.
    density
        Instead of ``fixed``: every entry is trained with this probability, independently.
    sigma
        Scale of ``F``; one value, a list or a dict, as ``fixed``.
    epsilon
        For ``syre``, in ``[0, 1)``; the paper gives no number.
    per
        What ``fixed`` counts in a convolution, ``"input"`` or ``"output"`` channels.
    include, exclude
        Patterns of layer names (``fnmatch``).
    example
        For ``sigma``: a batch, to learn the widths at the activations; without it they are read from the layer that was
        registered before each activation.

    Examples
    --------
    >>> net = break_symmetry(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1)), "w", 7, fixed=(2, 1))
    >>> part = net[0].parametrizations.weight[0]
    >>> (part.D == 0).sum(dim=1).tolist(), bool((part.F[part.D == 1] == 0).all())
    ([2, 2, 2], True)
    >>> W = net[0].parametrizations.weight.original
    >>> torch.equal(net[0].weight, part.F + part.D * W)
    True
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    if scheme not in SCHEMES:
        raise InputError(f"scheme: expected one of {', '.join(SCHEMES)}, got {scheme!r}")
    if isinstance(architecture_seed, bool) or int(architecture_seed) != architecture_seed:
        raise InputError(f"architecture_seed: expected an integer, got {architecture_seed!r}")
    if per not in {"input", "output"}:
        raise InputError(f"per: expected 'input' or 'output', got {per!r}")
    if fixed is not None and density is not None:
        raise InputError("fixed and density: expected one of them, got both")
    copy = deepcopy(module)
    if scheme == "sigma":
        _replace_activations(copy, int(architecture_seed), sigma, include, exclude, example)
        return copy
    targets = _targets(copy, include, exclude)
    _warn_of_others(copy, include, exclude)
    names = [target.name for target in targets]
    settings = {
        "fixed": per_layer(fixed, names, "fixed"),
        "density": per_layer(density, names, "density"),
        "sigma": per_layer(sigma, names, "sigma"),
        "epsilon": per_layer(epsilon, names, "epsilon"),
    }
    for i, target in enumerate(targets):
        chosen = {key: value[i] for key, value in settings.items()}
        F, D = _fixed_part(scheme, int(architecture_seed), target, per, chosen)
        weight = getattr(target.owner, target.parameter)
        fix_part(target.owner, target.parameter, _like(F, weight), _like(D, weight))
    return copy


def per_layer(value: Any, names: Sequence[str], what: str) -> list[Any]:
    """One value per layer, from one value, a list, or a dict of names and patterns.

    >>> per_layer({"a": 1, "b.*": 2}, ["a", "b.0", "b.1"], "fixed")
    [1, 2, 2]
    """
    if isinstance(value, Mapping):
        unused = [key for key in value if not any(key == name or fnmatchcase(name, key) for name in names)]
        if unused:
            raise InputError(f"{what}: no layer fits {unused[0]!r}; the layers are {', '.join(names)}")
        found = []
        for name in names:
            keys = [key for key in value if key == name] or [key for key in value if fnmatchcase(name, key)]
            if not keys:
                raise InputError(f"{what}: no value for the layer {name}; add it, or '*' for all others")
            found.append(value[keys[0]])
        return found
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != len(names):
            raise InputError(f"{what}: expected one value or {len(names)}, one per layer, got {len(value)}")
        return list(value)
    return [value] * len(names)


# -- the weights -------------------------------------------------------------------------------------------------------


def _all_targets(module: nn.Module) -> list[Target]:
    found = []
    for path, part in module.named_modules():
        if isinstance(part, _MAPS):
            found.append(Target(path or type(part).__name__, path, part, "weight"))
        elif isinstance(part, nn.MultiheadAttention):
            for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
                if parametrize.is_parametrized(part, name) or getattr(part, name) is not None:
                    found.append(Target(".".join(filter(None, (path, name.removesuffix("_weight")))), path, part, name))
    return found


def _warn_of_others(module: nn.Module, include: str | Sequence[str], exclude: str | Sequence[str]) -> None:
    """Name the layers that were asked for and have matrices of weights, but no known way to fix parts of them."""
    skipped = [
        f"{path} ({type(part).__name__})"
        for path, part in module.named_modules()
        if not isinstance(part, (*_MAPS, nn.MultiheadAttention, parametrize.ParametrizationList))
        and _fits(path, include)
        and not _fits(path, exclude)
        and any("weight" in name and p is not None and p.dim() >= 2 for name, p in part._parameters.items())
    ]
    if skipped:
        warnings.warn(
            f"break_symmetry leaves these layers as they are: {', '.join(skipped)}; exclude= them to say so",
            stacklevel=3,
        )


def _targets(module: nn.Module, include: str | Sequence[str], exclude: str | Sequence[str]) -> list[Target]:
    everything = _all_targets(module)
    chosen = [target for target in everything if _fits(target.name, include) and not _fits(target.name, exclude)]
    if not chosen:
        names = ", ".join(target.name for target in everything) or "none"
        raise InputError(
            f"module: expected a linear, bilinear, convolution or attention layer to break; of {names} none is left"
        )
    shared: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        shared.setdefault(id(parameter), []).append(name)
    for target in chosen:
        if parametrize.is_parametrized(target.owner, target.parameter):
            raise InputError(f"layer {target.name}: its {target.parameter} is parametrised already")
        if target.parameter not in target.owner._parameters:
            raise InputError(f"layer {target.name}: its {target.parameter} is computed by a hook, not a parameter")
        ties = shared[id(target.owner._parameters[target.parameter])]
        if len(ties) > 1:
            raise InputError(f"layer {target.name}: its {target.parameter} is tied ({', '.join(ties)}); exclude it")
    return chosen


def _fits(name: str, patterns: str | Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns))


def _fixed_part(
    scheme: str, seed: int, target: Target, per: str, settings: Mapping[str, Any]
) -> tuple[FloatArray, FloatArray]:
    """``F`` and ``D`` of one layer. All entries are drawn, so a value does not depend on how many are fixed."""
    shape = target.shape
    size = math.prod(shape)
    name = ".".join(filter(None, (target.path, target.parameter)))
    sigma = _number(settings["sigma"], "sigma", target.name, low=0.0)
    if scheme == "residual":
        return sigma * _identity(target), np.ones(shape)
    if scheme == "syre":
        epsilon = _number(settings["epsilon"], "epsilon", target.name, low=0.0, below=1.0)
        D = 1.0 / np.sqrt(1.0 + epsilon * (2.0 * uniform(stream(seed, name, "D"), size) - 1.0))
        return sigma * normal(stream(seed, name, "F"), size).reshape(shape), D.reshape(shape)
    mask = _mask(seed, name, target, per, settings)
    if scheme == "sparse":
        return np.zeros(shape), np.where(mask, 0.0, 1.0)
    # where, not a product: -0.0 has other bits than 0.0
    F = np.where(mask, sigma * normal(stream(seed, name, "F"), size).reshape(shape), 0.0)
    return np.asarray(F, dtype=np.float64), np.where(mask, 0.0, 1.0)


def _mask(seed: int, name: str, target: Target, per: str, settings: Mapping[str, Any]) -> BoolArray:
    """Which entries are fixed: as many in every row, where a row is what one output, or one input channel, owns."""
    source, shape = stream(seed, name, "mask"), target.shape
    if settings["density"] is not None:
        density = _number(settings["density"], "density", target.name, low=0.0, high=1.0)
        return np.asarray((uniform(source, math.prod(shape)) >= density).reshape(shape))
    by_input = target.convolution and per == "input"
    across = by_input != target.transposed  # the rows stand on the second axis of the weight
    rows = shape[1] * target.groups if across else shape[0]
    columns = math.prod(shape) // max(rows, 1)
    kind = "input channel" if by_input else "output channel" if target.convolution else "row"
    count = settings["fixed"]
    if count is None:
        count = max(1, columns // 8)
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 0 <= count <= columns:
        raise InputError(f"layer {target.name}: expected 0 to {columns} fixed entries per {kind}, got {count!r}")
    mask = lowest(source, rows, columns, int(count))
    if not across:
        return mask.reshape(shape)
    # (groups, rows of the group, what the group has on the first axis, kernel) to (first axis, second axis, kernel)
    parts = mask.reshape(target.groups, shape[1], shape[0] // target.groups, *shape[2:])
    return np.swapaxes(parts, 1, 2).reshape(shape)


def _identity(target: Target) -> FloatArray:
    """Ones on the diagonal of a matrix; of a convolution, the kernel that copies channel ``i`` to channel ``i``, where
    both are in one group.
    """
    shape, groups = target.shape, target.groups
    if isinstance(target.owner, nn.Bilinear):
        raise InputError(f"layer {target.name}: a bilinear map has no identity; exclude it from the scheme residual")
    F = np.zeros(shape)
    centre = tuple(n // 2 for n in shape[2:])
    first, second = shape[0] // groups, shape[1]  # per group
    for i in range(min(shape[0], second * groups)):
        if i // first == i // second:
            F[(i, i % second, *centre)] = 1.0
    return F


def _number(value: Any, what: str, layer: str, *, low: float, high: float = math.inf, below: float = math.inf) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (low <= number <= high and number < below):
        bounds = (
            f"at least {low:g}" if high == below else f"in [{low:g}, {min(high, below):g}{'' if below > high else ')'}"
        )
        raise InputError(f"{what}: expected a finite number {bounds} for the layer {layer}, got {value!r}")
    return number


def _like(array: FloatArray, weight: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(dtype=weight.dtype, device=weight.device)


# -- the activations ---------------------------------------------------------------------------------------------------


def _replace_activations(
    module: nn.Module, seed: int, sigma: Any, include: str | Sequence[str], exclude: str | Sequence[str], example: Any
) -> None:
    places = {
        path: part
        for path, part in module.named_modules(remove_duplicate=False)
        if isinstance(part, ACTIVATIONS) and path and _fits(path, include) and not _fits(path, exclude)
    }
    if not places:
        raise InputError("module: expected activation modules (such as nn.ReLU) to replace, found none")
    widths = _registered_widths(module, places) if example is None else _recorded_widths(module, places, example)
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.zeros(()))
    for (path, _), scale in zip(places.items(), per_layer(sigma, list(places), "sigma"), strict=True):
        width, axis = widths[path]
        F = _number(scale, "sigma", path, low=0.0) * normal(stream(seed, path, "F"), width * width).reshape(
            width, width
        )
        owner, _, name = path.rpartition(".")
        setattr(module.get_submodule(owner), name, Gate(_like(F, like), axis))


def _registered_widths(module: nn.Module, places: Mapping[str, nn.Module]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    last: tuple[int, int] | None = None
    for path, part in module.named_modules(remove_duplicate=False):
        if isinstance(part, nn.Linear | nn.Bilinear):
            last = (part.out_features, -1)
        elif isinstance(part, _CONVOLUTIONS):
            last = (part.out_channels, 1)
        elif path in places:
            if last is None:
                raise InputError(f"layer {path}: no layer stands before this activation; give an example= input")
            found[path] = last
    return found


def _recorded_widths(module: nn.Module, places: Mapping[str, nn.Module], example: Any) -> dict[str, tuple[int, int]]:
    shapes = activation_shapes(module, list(places), example)
    found = {}
    for path, seen in shapes.items():
        ends = {(shape[1], 1) if len(shape) == 4 else (shape[-1], -1) for shape in seen}
        if len(ends) > 1:
            raise InputError(f"layer {path}: this activation is used at several widths; use one module per place")
        found[path] = ends.pop()
    return found
