"""Named quantities that can be recorded during training, and the registry that later packages add to.

A quantity is a function of a :class:`State`, the network at one moment and the data it is seen on. It returns plain
data: a number, or a list or mapping of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fiberscope.dimension.functional import FunctionalDimension, functional_dimension
from fiberscope.dimension.kernels.kernel import effective_rank, kernel_alignment, ntk
from fiberscope.errors import InputError, hint
from fiberscope.fibers.conservation import Conserved, conserved_quantities
from fiberscope.fibers.identifiability import Identifiability, identifiability
from fiberscope.geometry.domains import Box
from fiberscope.geometry.regions import count_regions
from fiberscope.network.roles import roles
from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.training.live import LiveModule
from fiberscope.training.region_density import (
    adversarial_regions,
    boundary_topology,
    chord_regions,
    circle_regions,
    segment_regions,
    sphere_regions,
)


@dataclass(frozen=True, eq=False)
class State:
    """One moment of a training.

    ``loss`` is what the caller passed, if anything; ``start`` is the network at the first record of the run. A torch
    module that is no piecewise linear network is a ``LiveModule`` there, and only quantities in :data:`OF_MODULES` are
    asked of it.
    """

    step: int
    run: int
    network: Any
    inputs: FloatArray
    targets: npt.NDArray[Any] | None
    start: Any
    loss: float | None = None

    @property
    def model(self) -> Any:
        """What the questions about derivatives are asked of: the network, or the module itself."""
        return self.network.module if isinstance(self.network, LiveModule) else self.network

    @cached_property
    def outputs(self) -> FloatArray:
        found: FloatArray = self.network(self.inputs)
        return found

    @cached_property
    def patterns(self) -> BoolArray:
        """Certified activation patterns ``(points, num_signs)``, evaluated once for all quantities that need them."""
        found: BoolArray = self.network.pattern(self.inputs)
        return found

    @cached_property
    def dimension(self) -> FunctionalDimension:
        """The functional dimension on the inputs, found once for all quantities that need it."""
        return functional_dimension(self.model, self.inputs)

    @cached_property
    def exact_dimension(self) -> FunctionalDimension:
        """As :attr:`dimension` without the two ranks of floats, which cost more than the exact one."""
        whole = self.__dict__.get("dimension")
        return functional_dimension(self.model, self.inputs, ranks="exact") if whole is None else whole

    @cached_property
    def kernel(self) -> FloatArray:
        """The empirical tangent kernel on the inputs, found once for all quantities that need it."""
        return np.asarray(ntk(self.model, self.inputs), dtype=np.float64)

    @cached_property
    def identifiability(self) -> Identifiability:
        """Whether the function determines the parameters, found once for all quantities that need it."""
        return identifiability(self.network)

    def need_targets(self, quantity: str) -> npt.NDArray[Any]:
        if self.targets is None:
            raise InputError(f"quantity {quantity}: expected data with targets, got inputs only")
        return self.targets


Quantity = Callable[[State], Any]

OF_MODULES = frozenset(
    {
        "accuracy",
        "distance_from_start",
        "effective_rank",
        "functional_dimensions",
        "kernel_alignment",
        "kernel_layers",
        "kernel_spectrum",
        "loss",
        "parameter_norm",
        "r2",
        "weight_norms",
    }
)
"""Quantities that need no piecewise linear network: derivatives and numerical ranks exist for every torch module."""

_QUANTITIES: dict[str, tuple[Quantity, str]] = {}


def register_quantity(name: str, summary: str = "") -> Callable[[Quantity], Quantity]:
    """Decorator: make a quantity known by name to every tracker.

    >>> @register_quantity("num_hidden", "hidden neurons")
    ... def num_hidden(state):
    ...     return state.network.num_hidden
    >>> "num_hidden" in list_quantities()
    True
    """

    def register(function: Quantity) -> Quantity:
        _QUANTITIES[name] = (function, summary or (function.__doc__ or "").split("\n")[0])
        return function

    return register


def list_quantities() -> dict[str, str]:
    """Every known quantity with its summary."""
    return {name: _QUANTITIES[name][1] for name in sorted(_QUANTITIES)}


def find_quantity(name: str) -> Quantity:
    """A quantity by name; an unknown one is refused with the closest names."""
    if name not in _QUANTITIES:
        raise InputError(
            f"quantity: expected one of {', '.join(sorted(_QUANTITIES))}, got {name!r}{hint(name, _QUANTITIES)}"
        )
    return _QUANTITIES[name][0]


@register_quantity("loss", "mean squared error, or cross entropy for labels, on the tracked data")
def loss(state: State) -> float:
    """What the caller passed, else computed on the tracked data."""
    if state.loss is not None:
        return float(state.loss)
    targets = state.need_targets("loss")
    if targets.dtype.kind == "f":
        return float(np.mean((state.outputs - targets) ** 2))
    shifted = state.outputs - state.outputs.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1))
    return float(np.mean(log_sum - shifted[np.arange(len(targets)), targets]))


@register_quantity("r2", "coefficient of determination of a regression on the tracked data")
def r2(state: State) -> float | None:
    """``1 - residual / variance`` over all outputs; None where the targets are constant."""
    targets = state.need_targets("r2")
    if targets.dtype.kind != "f":
        raise InputError("quantity r2: expected floating targets, got labels")
    total = float(np.sum((targets - targets.mean(axis=0)) ** 2))
    return None if total == 0 else 1.0 - float(np.sum((state.outputs - targets) ** 2)) / total


@register_quantity("accuracy", "fraction of labels met on the tracked data")
def accuracy(state: State) -> float:
    """How often the largest output is the label's."""
    targets = state.need_targets("accuracy")
    if targets.dtype.kind == "f":
        raise InputError("quantity accuracy: expected labels, got floating targets")
    return float(np.mean(state.outputs.argmax(axis=1) == targets))


@register_quantity("regions_sampled", "distinct certified activation patterns on the tracked data")
def regions_sampled(state: State) -> int:
    """Patterns, not distinct affine maps: two regions with the same map count twice."""
    return count_distinct(state.patterns)


@register_quantity("fixed_neurons", "per layer: dead, linear (always active) and switching neurons on the tracked data")
def fixed_neurons(state: State) -> list[dict[str, int]]:
    """By certified signs; see :func:`fiberscope.network.roles.roles`."""
    return roles(state.network, state.inputs).per_layer()


@register_quantity("region_count", "exact number of linear regions on the box around the tracked data (up to 3 inputs)")
def region_count(state: State) -> int:
    """By the geometry engine; see :func:`fiberscope.geometry.regions.count_regions`."""
    if state.network.in_size > 3:
        raise InputError(f"quantity region_count: expected at most 3 inputs, got {state.network.in_size}")
    low, high = state.inputs.min(axis=0), state.inputs.max(axis=0)
    return int(count_regions(state.network, Box(low, high)))


@register_quantity("segment_regions", "exact breakpoints along the chain through the first tracked points, per length")
def along_segments(state: State) -> dict[str, Any]:
    """See :func:`fiberscope.training.region_density.segment_regions`."""
    return segment_regions(state.network, state.inputs)


@register_quantity("chord_regions", "exact breakpoints per length on chords within classes and between classes")
def along_chords(state: State) -> dict[str, Any]:
    """See :func:`fiberscope.training.region_density.chord_regions`."""
    return chord_regions(state.network, state.inputs, state.need_targets("chord_regions"))


@register_quantity("circle_regions", "exact regions on small circles around the first tracked points: local complexity")
def around_points(state: State) -> dict[str, Any]:
    """See :func:`fiberscope.training.region_density.circle_regions`."""
    return circle_regions(state.network, state.inputs)


@register_quantity("sphere_regions", "exact regions on round spheres around the first tracked points: local complexity")
def on_spheres(state: State) -> dict[str, Any]:
    """See :func:`fiberscope.training.region_density.sphere_regions`."""
    return sphere_regions(state.network, state.inputs)


@register_quantity("adversarial_regions", "exact breakpoints per length on paths up the loss from the tracked points")
def along_attacks(state: State) -> dict[str, Any]:
    """See :func:`fiberscope.training.region_density.adversarial_regions`."""
    return adversarial_regions(state.network, state.inputs, state.need_targets("adversarial_regions"))


@register_quantity("boundary_topology", "exact Betti numbers of the decision boundary and of its two sides")
def topology_of_boundary(state: State) -> dict[str, Any]:
    """See :func:`fiberscope.training.region_density.boundary_topology`."""
    return boundary_topology(state.network, state.inputs)


@register_quantity(
    "functional_dimension", "exact rank of the Jacobian on the tracked data; None: only bounds are known"
)
def exact_dimension(state: State) -> int | None:
    """See :func:`fiberscope.dimension.functional.functional_dimension`."""
    return state.exact_dimension.exact


@register_quantity("functional_dimensions", "the three ranks on the tracked data: exact (and lower), numerical, paper")
def three_ranks(state: State) -> dict[str, Any]:
    """With the smallest proven upper bound, whether it certifies the exact rank, and how many points were kinks.

    Sentences about ranks that mean little come along; of a module that is no network the exact ones are None.
    """
    found = state.dimension
    names = ("exact", "lower", "upper", "certified", "numerical", "paper")
    said = {"warnings": list(found.warnings)} if found.warnings else {}
    return {**{name: getattr(found, name) for name in names}, "left_out": len(found.on_boundary), **said}


@register_quantity(
    "dimension_bounds", "upper bounds of the functional dimension on the tracked data that hold, by name"
)
def dimension_bounds(state: State) -> dict[str, int]:
    """Those whose assumptions are met; see :func:`fiberscope.dimension.functional.functional_dimension`."""
    return {bound.name: bound.value for bound in state.exact_dimension.bounds if bound.holds}


@register_quantity("effective_rank", "effective rank of the tangent kernel on the tracked data")
def kernel_effective_rank(state: State) -> float:
    """See :func:`fiberscope.dimension.kernels.kernel.effective_rank`."""
    return effective_rank(state.kernel)


@register_quantity("kernel_spectrum", "the largest 20 eigenvalues of the tangent kernel on the tracked data")
def kernel_eigenvalues(state: State) -> list[float]:
    """From the largest on."""
    values = np.linalg.eigvalsh(state.kernel)[::-1]
    return [float(value) for value in values[:20]]


@register_quantity("kernel_alignment", "kernel-target alignment of the tangent kernel on the tracked data")
def alignment(state: State) -> float | None:
    """With the targets, or with labels as centred indicators; None where kernel or targets are zero."""
    targets = state.need_targets("kernel_alignment")
    if targets.dtype.kind != "f":
        marks = np.eye(state.outputs.shape[1])[targets]
        targets = marks - marks.mean(axis=0)
    return kernel_alignment(state.kernel, targets) if state.kernel.any() and targets.any() else None


@register_quantity("kernel_layers", "share of every layer in the trace of the tangent kernel on the tracked data")
def kernel_layers(state: State) -> dict[str, float]:
    """By the names of the layers; they add up to 1 where the kernel is not zero."""
    kernels = ntk(state.model, state.inputs, by="layer")
    traces = {name: float(np.trace(np.asarray(K))) for name, K in kernels.items()}
    total = sum(traces.values())
    return {name: trace / total if total > 0 else 0.0 for name, trace in traces.items()}


@register_quantity("conserved_quantities", "what a gradient flow conserves: per neuron, and per block of active ones")
def conserved(state: State) -> Conserved:
    """See :func:`fiberscope.fibers.conservation.conserved_quantities`."""
    return conserved_quantities(state.network, state.inputs)


@register_quantity(
    "identifiable", "does the function determine the parameters, up to order and scales? None: undecided"
)
def identifiable(state: State) -> bool | None:
    """On all inputs, not only on the tracked data; see :func:`fiberscope.fibers.identifiability`."""
    return state.identifiability.identifiable


@register_quantity("fiber_dimension", "dimension of the fiber at the parameter modulo rescaling; None where not known")
def fiber_dimension(state: State) -> int | None:
    """On all inputs, where it is exact; see :func:`fiberscope.fibers.identifiability`."""
    found = state.identifiability
    return found.fiber_dimension if found.dimension_exact else None


@register_quantity("neuron_kinds", "shares of the neurons that are dead, linear, hidden or rigid on all inputs")
def neuron_kinds(state: State) -> dict[str, float | None]:
    """Dead and linear ones among all hidden neurons, hidden and rigid ones among those of the first layer.

    *Hidden* and *rigid* are about the hyperplane of a first-layer neuron: no neuron of the second layer sees it, or it
    is shown to be the same along the fiber. Rigid is None where no theorem applies.
    """
    found, net = state.identifiability, state.network
    of_kind = {
        kind: {(s.layer, i) for s in found.symmetries if s.kind == kind for i in s.neurons}
        for kind in ("dead", "linear", "hidden")
    }
    first = len(found.rigid)
    return {
        "dead": len(of_kind["dead"]) / max(net.num_hidden, 1),
        "linear": len(of_kind["linear"]) / max(net.num_hidden, 1),
        "hidden": len({s for s in of_kind["hidden"] if s[0] == 1}) / max(first, 1),
        "rigid": float(found.rigid.mean()) if first and _covered(found) else None,
    }


def _covered(found: Identifiability) -> bool:
    """Whether a theorem says which hyperplanes are rigid; that on bottlenecks speaks of generic parameters."""
    return found.theorem != "none" and (found.dimension_exact or not found.theorem.startswith("three-layer"))


@register_quantity("weight_norms", "Frobenius norm of every parameter array")
def weight_norms(state: State) -> dict[str, float]:
    """By parameter name."""
    return {name: float(np.linalg.norm(value)) for name, value in state.network.parameters.items()}


@register_quantity("parameter_norm", "Euclidean norm of all parameters")
def parameter_norm(state: State) -> float:
    """Over all parameters together."""
    return float(np.sqrt(sum(float(np.sum(value**2)) for value in state.network.parameters.values())))


@register_quantity("distance_from_start", "Euclidean distance of the parameters from those first recorded")
def distance_from_start(state: State) -> float:
    """Zero at the first record of a run."""
    before = state.start.parameters
    return float(np.sqrt(sum(float(np.sum((v - before[n]) ** 2)) for n, v in state.network.parameters.items())))


def count_distinct(patterns: BoolArray) -> int:
    """Number of distinct rows of a boolean matrix.

    >>> count_distinct(np.array([[True, False], [False, True], [True, False]]))
    2
    """
    packed = np.packbits(patterns, axis=1)
    return len({row.tobytes() for row in packed})
