"""What the studies of symmetry-broken MLPs share: many trainings of one architecture side by side.

The modules have norms and smooth activations, so they are no ReLU chains. Their parameters are stacked and the module
is mapped over them. Every run has its own initialisation and order of points; its numbers never meet another's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from fiberscope.connectivity.paths import check_comparable
from fiberscope.errors import InputError
from fiberscope.modules.models import mlp, resnet20, vit
from fiberscope.neurons.asymmetric_models import w_mlp, w_resnet20, w_vit
from fiberscope.neurons.asymmetry import break_symmetry
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.datasets.loading import load_dataset

ARCHITECTURES = ("standard", "w", "syre", "sigma")
LARGE = 500_000
"""Parameters from which on modules are trained one after the other: a stack of them no longer saves time."""

NETS = ("mlp", "resnet20", "vit")
HEADS, DEPTH, PATCH = 4, 2, 2
"""Of the transformers."""

HELD_OUT = 0.2
"""The part of a data set without test points that is held out."""

PAPER = "Beyond Structural Symmetries: Linear Mode Connectivity via Neuron Identifiability"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a module is trained: AdamW as in appendix G.1. The paper does not name its batch size."""

    epochs: int
    batch_size: int = 64
    lr: float = 1e-3
    weight_decay: float = 0.01


def model(
    architecture: str, widths: Sequence[int], seed: int, *, sigma: float = 1.0, fixed: Any = None, **options: Any
) -> nn.Module:
    """One MLP at its initialisation; all seeds share the fixed parts. ``options`` go to :func:`mlp`, as ``norm``.

    >>> nets = [model("w", (8, 4, 2), seed, sigma=2.0) for seed in (0, 1)]
    >>> first, second = (net.get_submodule("linear0").parametrizations.weight for net in nets)
    >>> torch.equal(first[0].F, second[0].F), torch.equal(first.original, second.original)
    (True, False)
    """
    if architecture not in ARCHITECTURES:
        raise InputError(f"architecture: expected one of {', '.join(ARCHITECTURES)}, got {architecture!r}")
    if architecture in {"w", "syre"}:
        return w_mlp(widths, seed, sigma=sigma, fixed=fixed, scheme=architecture, **options)
    net = mlp(widths, seed, **options)
    return net if architecture == "standard" else break_symmetry(net, "sigma", sigma=sigma)


def untrained(
    net: str, width: int, data: Dataset, seed: int, *, architecture: str, sigma: float = 0.0, **options: Any
) -> nn.Module:
    """A network at its initialisation, which takes inputs as vectors; all seeds share the fixed parts.

    ``net``: an MLP with three hidden layers, a residual network (``width`` multiplies its channels), or a vision
    transformer of two blocks (``width`` is its size).
    """
    if net == "mlp":
        widths = (data.flat_inputs.shape[1], width, width, width, data.num_outputs)
        return model(architecture, widths, seed, sigma=sigma, **options)
    shape = pictures(data)
    made: nn.Module
    if net == "resnet20":
        sizes: dict[str, Any] = {"channels": shape[0], "classes": data.num_outputs}
        if architecture == "w":
            made = w_resnet20(width, seed, sigma=sigma, **sizes, **options)
        else:
            made = resnet20(width, seed, **sizes)
    else:
        sizes = {"image": shape[1], "patch": PATCH, "channels": shape[0], "classes": data.num_outputs}
        if architecture == "w":
            made = w_vit(width, DEPTH, HEADS, seed, sigma=sigma, **sizes, **options)
        else:
            made = vit(width, DEPTH, HEADS, seed, **sizes)
    if architecture == "syre":
        made = break_symmetry(made, "syre", sigma=sigma)
    return nn.Sequential(nn.Unflatten(1, shape), made)


def pictures(data: Dataset) -> tuple[int, int, int]:
    """Channels, height and width of the images of a data set."""
    shape = data.inputs.shape[1:]
    side = round(np.sqrt(shape[-1]))
    if len(shape) == 1 and side**2 == shape[0]:
        return 1, side, side
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    raise InputError(f"option data: expected images, got inputs of shape {shape}")


def task_data(name: str, limit: int | None = None) -> Dataset:
    """The data set, standardised; where it has no test points, the last fifth of a fixed shuffle.

    ``limit``: at most so many training points.
    """
    data = standardised(load_dataset(name))
    if limit is not None:
        data = replace(data, inputs=data.inputs[:limit], targets=data.targets[:limit])
    if data.test_inputs is not None:
        return data
    order = np.random.default_rng(0).permutation(len(data.inputs))
    cut = round(len(order) * (1 - HELD_OUT))
    first, last = order[:cut], order[cut:]
    parts = (data.inputs[first], data.targets[first], data.inputs[last], data.targets[last])
    return Dataset(name, *parts)


def standardised(data: Dataset) -> Dataset:
    """Float32, all coordinates moved and scaled together: mean 0 and variance 1 over points and coordinates."""
    mean, scale = float(data.inputs.mean()), float(data.inputs.std()) or 1.0
    tests = None if data.test_inputs is None else (data.test_inputs - mean) / scale
    return replace(data, inputs=(data.inputs - mean) / scale, test_inputs=tests).astype("float32")


def train_modules(
    modules: Sequence[nn.Module], data: Dataset, seeds: Sequence[int], recipe: Recipe, checkpoints: Sequence[int] = ()
) -> Mapping[int, tuple[nn.Module, ...]]:
    """The modules after each of the epochs in ``checkpoints`` and after the last one; the arguments stay as they are.

    In every epoch run ``i`` visits the points in the order of a generator made from ``[seeds[i], 1]``. The loss is
    cross entropy for labels and the squared error otherwise. A run whose numbers stop being finite stays in the result
    with them: look at its accuracy.

    >>> data = Dataset("line", np.array([[-1.0], [1.0]], dtype="float32"), np.array([0, 1]))
    >>> start = mlp((1, 4, 2), norm="none")
    >>> both = train_modules([start, start], data, [0, 0], Recipe(20, 2, lr=0.1), [0])
    >>> sorted(both), all(torch.equal(a, b) for a, b in zip(*(net.parameters() for net in both[20])))
    ([0, 20], True)
    """
    if not modules or len(modules) != len(seeds):
        raise InputError(
            f"seeds: expected one per module, at least one, got {len(modules)} modules, {len(seeds)} seeds"
        )
    for other in modules[1:]:
        check_comparable(modules[0], other)
    apart = sum(value.numel() for value in modules[0].parameters()) >= LARGE
    runs = (_Apart if apart else _Stacked)(modules, data, seeds, recipe)
    kept = {}
    for epoch in range(recipe.epochs + 1):
        if epoch:
            runs.epoch()
        if epoch in checkpoints or epoch == recipe.epochs:
            kept[epoch] = runs.modules()
    return kept


class _Runs:
    """Modules in training: every run visits the points in an order of its own."""

    def __init__(self, modules: Sequence[nn.Module], data: Dataset, seeds: Sequence[int], recipe: Recipe) -> None:
        self.templates = tuple(deepcopy(module).train() for module in modules)
        self.modes = tuple(module.training for module in modules)
        self.recipe = recipe
        self.generators = [np.random.default_rng([seed, 1]) for seed in seeds]
        self.inputs = torch.from_numpy(data.flat_inputs.astype(np.float32))
        self.targets = torch.from_numpy(np.array(data.targets))
        self.loss = nn.functional.cross_entropy if data.is_classification else nn.functional.mse_loss

    def rule(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        # A parametrised weight is decayed as it is trained, W and not W_eff.
        return torch.optim.AdamW(parameters, lr=self.recipe.lr, weight_decay=self.recipe.weight_decay, fused=True)

    def epoch(self) -> None:
        order = torch.from_numpy(np.stack([rng.permutation(len(self.inputs)) for rng in self.generators]))
        for rows in torch.split(order, self.recipe.batch_size, dim=1):
            if rows.shape[1] < min(2, len(self.inputs)):
                continue  # a batch norm cannot train on one point
            self.step(rows)

    def step(self, rows: Tensor) -> None:
        """One batch of every run; ``rows`` has a row of points for each."""
        raise NotImplementedError

    def state(self, run: int) -> Mapping[str, Tensor]:
        raise NotImplementedError

    def modules(self) -> tuple[nn.Module, ...]:
        """Copies of the modules as they are now, in the modes in which they came."""
        found = []
        for run, (template, mode) in enumerate(zip(self.templates, self.modes, strict=True)):
            module = deepcopy(template).train(mode)
            module.load_state_dict(self.state(run))
            found.append(module)
        return tuple(found)


class _Stacked(_Runs):
    """Their parameters and buffers stacked, and one module mapped over them: small ones cost little more."""

    def __init__(self, modules: Sequence[nn.Module], data: Dataset, seeds: Sequence[int], recipe: Recipe) -> None:
        super().__init__(modules, data, seeds, recipe)
        parameters, buffers = stack_module_state(list(self.templates))
        self.parameters: dict[str, Tensor] = {n: p.detach().requires_grad_() for n, p in parameters.items()}
        self.buffers: dict[str, Tensor] = buffers
        self.optimizer = self.rule(self.parameters.values())

    def step(self, rows: Tensor) -> None:
        losses = vmap(self._one)(self.parameters, self.buffers, self.inputs[rows], self.targets[rows])
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(losses.sum())
        self.optimizer.step()

    def _one(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return self.loss(functional_call(self.templates[0], (parameters, buffers), (x,)), y)

    def state(self, run: int) -> Mapping[str, Tensor]:
        return {name: value[run].detach() for name, value in (self.parameters | self.buffers).items()}


class _Apart(_Runs):
    """One after the other: large modules."""

    def __init__(self, modules: Sequence[nn.Module], data: Dataset, seeds: Sequence[int], recipe: Recipe) -> None:
        super().__init__(modules, data, seeds, recipe)
        self.optimizers = [self.rule(module.parameters()) for module in self.templates]

    def step(self, rows: Tensor) -> None:
        for module, optimizer, own in zip(self.templates, self.optimizers, rows, strict=True):
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(self.loss(module(self.inputs[own]), self.targets[own]))
            optimizer.step()

    def state(self, run: int) -> Mapping[str, Tensor]:
        return self.templates[run].state_dict()
