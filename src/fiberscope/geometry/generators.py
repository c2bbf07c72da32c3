"""What curves and surfaces through the latent space of a generator ``g: R^k -> R^n`` share.

If the generator is piecewise linear, ``net(g(z))`` is a network and everything is exact in latent space. Two numbers
come out. The *latent regions* are those of both networks: there ``net(g(z))`` is one affine map of ``z``. The *regions*
are those of the classifier alone: a neuron of the generator that switches bends the image and not the classifier.
A smooth generator is followed on a polygonal curve or mesh, refined until the count settles; the table of counts is
part of the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from math import frexp
from typing import Any, Protocol

import numpy as np

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.extras import import_module
from fiberscope.network.border import as_network, library_of, loaded
from fiberscope.network.network import Network
from fiberscope.network.nodes import behind, nameless
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.smooth_functions import BENDS, Bend, softplus
from fiberscope.results import Result

SAME = 3
"""A count has settled when so many in a row agree."""

_BATCH = 1024
"""Latent points that a torch module is given at once."""


@dataclass(frozen=True, slots=True)
class Refinement(Result):
    """One step of a refinement: points of the polygon (on one side of a grid), and the regions found there."""

    points: int
    num_regions: int


class Refined(Protocol):
    """Regions on the image of a latent set: exact with a number of latent regions, or the end of a refinement."""

    @property
    def latent_regions(self) -> int | None: ...
    @property
    def refinement(self) -> tuple[Refinement, ...]: ...
    @property
    def settled(self) -> bool: ...


@dataclass(frozen=True, slots=True, eq=False)
class Generator:
    """A generator as a function; ``network`` is the same function as a program if it is piecewise linear.

    ``reason`` says why there is no network; ``stages`` are piecewise linear networks and smooth functions one after the
    other, if the generator is made of such, so that it can be enclosed.
    """

    function: Callable[[FloatArray], FloatArray]
    network: Network | None
    reason: str = ""
    stages: tuple[Network | Bend, ...] = ()

    def __call__(self, Z: FloatArray) -> FloatArray:
        """Points ``(count, n)`` from latent points ``(count, k)``."""
        found = np.asarray(self.function(Z), dtype=np.float64).reshape(len(Z), -1)
        if not np.isfinite(found).all():
            raise InputError("generator: expected finite outputs, got NaN or infinity")
        return found


def as_generator(module: Any, shape: tuple[int, ...]) -> Generator:
    """The generator of whatever ``fs.load`` takes, or of a function of batches; ``shape`` is of one input."""
    if isinstance(module, Network | str | os.PathLike) or library_of(module) == "sklearn":
        net = as_network(module, "generator")
        return Generator(net, net)
    if library_of(module) == "torch":
        function = _function_of(module, shape)
        try:
            return Generator(function, loaded(module, shape))
        except UnsupportedModelError as error:
            return Generator(function, None, str(error).split("\n", maxsplit=1)[0], _stages(module, shape))
    if not callable(module):
        raise InputError(
            "generator: expected a Network, a torch module, a scikit-learn MLP, the path of a model file or a "
            f"function, got {type(module).__name__}"
        )
    return Generator(lambda Z: module(Z.reshape(-1, *shape)), None, "a plain function")


def _stages(module: Any, shape: tuple[int, ...]) -> tuple[Network | Bend, ...]:
    """The layers of a sequence of torch modules, cut at its smooth activations; none if some of it is not read."""
    torch = import_module("torch")
    layers = list(_layers(module, torch.nn.Sequential))
    stages: list[Network | Bend] = []
    group: list[Any] = []
    point, start = torch.zeros(1, *shape, dtype=torch.float64), shape
    try:
        for layer in [*layers, None]:
            bend = None if layer is None else _bend_of(layer)
            if (layer is None or bend is not None) and group:
                stages.append(loaded(torch.nn.Sequential(*group), start))
                with torch.no_grad():
                    point = deepcopy(torch.nn.Sequential(*group)).double().eval()(point)
                group, start = [], tuple(point.shape[1:])
            if bend is not None:
                stages.append(bend)
            elif layer is not None:
                group.append(layer)
    except UnsupportedModelError:
        return ()
    return tuple(stages)


def _bend_of(layer: Any) -> Bend | None:
    """The smooth function of a torch layer, if it is one of those with bounds."""
    name = type(layer).__name__
    if name == "Softplus":
        return softplus(float(layer.beta)) if layer.beta > 0 and frexp(layer.beta)[0] == 0.5 else None
    if name == "GELU" and layer.approximate != "none":
        return None
    return None if name == "ELU" and layer.alpha != 1 else BENDS.get(name)


def _layers(module: Any, sequence: Any) -> Iterator[Any]:
    if type(module) is sequence:
        for part in module:
            yield from _layers(part, sequence)
    else:
        yield module


def _function_of(module: Any, shape: tuple[int, ...]) -> Callable[[FloatArray], FloatArray]:
    """``Z -> module(Z)`` on batches ``(count, latent)``, outputs flattened; ``shape`` is that of one latent point.

    A copy of the module is evaluated, in evaluation mode and float64: in float32 a fine polygon would follow the
    rounding of its corners.
    """
    torch = import_module("torch")
    copy = deepcopy(module).double().eval()

    def evaluate(Z: FloatArray) -> FloatArray:
        parts = []
        with torch.no_grad():
            for start in range(0, len(Z), _BATCH):
                rows = torch.from_numpy(np.array(Z[start : start + _BATCH])).reshape(-1, *shape)
                found = copy(rows)
                if not isinstance(found, torch.Tensor) or len(found) != len(rows):
                    kind = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
                    raise InputError(f"generator: expected one output per point, got {kind} for {len(rows)} points")
                parts.append(found.reshape(len(rows), -1).double().numpy())
        return np.concatenate(parts)

    return evaluate


def composition(net: Network, inner: Network) -> Network:
    """``x -> net(inner(x))`` as one program; the neurons of ``inner`` come first in the sign vector.

    >>> inner, net = Network([[[2.0]]], [[1.0]]), Network([[[3.0]]], [[0.0]])
    >>> composition(net, inner)([[5.0]])
    array([[33.]])
    """
    if inner.out_size != net.in_size:
        raise InputError(f"generator: expected {net.in_size} outputs for this network, got {inner.out_size}")
    nodes = (*inner.nodes, *behind(net.nodes, len(inner.nodes)))
    return Network.from_nodes([nameless(node) for node in nodes], inner.input_shape)


def latent_points(name: str, points: list[Any]) -> tuple[tuple[int, ...], list[FloatArray]]:
    arrays = [real_array(z, f"z{i}") for i, z in enumerate(points)]
    if len({a.shape for a in arrays}) != 1 or arrays[0].size == 0 or arrays[0].ndim == 0:
        raise InputError(f"{name}: expected latent points of one shape, got {[a.shape for a in arrays]}")
    return arrays[0].shape, [a.reshape(-1) for a in arrays]


def checked_points(points: int, most: int | None, least: int, otherwise: int) -> int:
    if not isinstance(points, int | np.integer) or points < least:
        raise InputError(f"points: expected an integer from {least}, got {points!r}")
    limit = max(otherwise, points) if most is None else most
    if limit < points:
        raise InputError(f"most: expected at least points = {points}, got {most}")
    return limit


def has_settled(table: list[Refinement]) -> bool:
    """Whether two refinements in a row have changed nothing: a rule, not a proof."""
    return len(table) >= SAME and len({row.num_regions for row in table[-SAME:]}) == 1


def counts_of(found: Refined) -> str:
    if found.latent_regions is not None:
        return f"exact, {found.latent_regions} latent regions of generator and network"
    counts = ", ".join(f"{row.num_regions} at {row.points}" for row in found.refinement)
    return f"{'settled' if found.settled else 'not settled'}: {counts} points"
