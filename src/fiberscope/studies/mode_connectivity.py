"""Can two trainings be joined by a straight line, as they are and after alignment? Q1 of the paper on identifiability.

The paper claims that standard networks need an alignment of their neurons, that a mask alone (``sigma = 0``) changes
little, and that large fixed weights, or a static noise on all weights (``syre``), let independent trainings be joined
as they are. Here pairs of MLPs on digits (quick) or MNIST (paper) are measured: barriers of training and test loss as
trained, after matching by weights, and after matching by activations. With ``net=resnet20`` they are residual networks
(``width`` is the multiplier of their channels; the paper: 8, on ``data=cifar10``), with ``net=vit`` vision transformers
of two layers (``width`` is their size; :mod:`fiberscope.studies.transformer_symmetries` looks closer at these).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from fiberscope.connectivity.barrier import Barrier, barrier
from fiberscope.connectivity.matching import match
from fiberscope.errors import InputError
from fiberscope.modules.models import resnet20, vit
from fiberscope.modules.parametrisations import effective_weights
from fiberscope.neurons.asymmetric_models import w_resnet20, w_vit
from fiberscope.neurons.asymmetry import break_symmetry
from fiberscope.studies._asymmetric_runs import PAPER, Recipe, model, standardised, train_modules
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.datasets.loading import load_dataset

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"data": "digits", "pairs": 2, "epochs": 15, "width": 256},
    "paper": {"data": "mnist", "pairs": 5, "epochs": 25, "width": 512},
}
NETS = ("mlp", "resnet20", "vit")
HEADS, DEPTH, PATCH = 4, 2, 2
"""Of the transformers."""

KINDS: dict[str, dict[str, Any]] = {
    "standard": {"architecture": "standard"},
    "mask alone": {"architecture": "w", "sigma": 0.0},
    "centre-dominated": {"architecture": "w", "sigma": 1.0},
    "syre": {"architecture": "syre", "sigma": 1.0},
}
"""The architectures of figure 1: standard, W-asymmetric without and with fixed weights, static noise. Residual networks
have fixed weights of scale 2, as in Table 3."""

PATHS = ("as trained", "weights", "activations")
HELD_OUT = 0.2
"""The part of a data set without test points that is held out."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task for every pair of every architecture; an interrupted run has seen all architectures early."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    for name in ("pairs", "epochs", "width"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    if sizes.get("net", NETS[0]) not in NETS:
        raise InputError(f"option net: expected one of {', '.join(NETS)}, got {sizes['net']!r}")
    if sizes.get("limit") is not None and (not isinstance(sizes["limit"], int) or sizes["limit"] < 1):
        raise InputError(f"option limit: expected a positive integer, got {sizes['limit']!r}")
    return [{"kind": kind, "pair": pair, **sizes} for pair in range(sizes["pairs"]) for kind in KINDS]


def start(net: str, kind: str, width: int, data: Dataset, seed: int) -> nn.Module:
    """A network at its initialisation, which takes inputs as vectors; all seeds share the fixed parts."""
    if net == "mlp":
        widths = (data.flat_inputs.shape[1], width, width, width, data.num_outputs)
        return model(widths=widths, seed=seed, **KINDS[kind])
    shape = pictures(data)
    scheme, sigma = KINDS[kind]["architecture"], KINDS[kind].get("sigma", 0.0)
    made: nn.Module
    if net == "resnet20":
        sizes: dict[str, Any] = {"channels": shape[0], "classes": data.num_outputs}
        made = w_resnet20(width, seed, sigma=2 * sigma, **sizes) if scheme == "w" else resnet20(width, seed, **sizes)
    else:
        sizes = {"image": shape[1], "patch": PATCH, "channels": shape[0], "classes": data.num_outputs}
        if scheme == "w":
            made = w_vit(width, DEPTH, HEADS, seed, sigma=sigma, **sizes)
        else:
            made = vit(width, DEPTH, HEADS, seed, **sizes)
    if scheme == "syre":
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


def run_task(task: Task) -> list[dict[str, Any]]:
    """Rows of every path of one pair."""
    settings = task.settings
    data = task_data(settings["data"], settings.get("limit"))
    kind, pair = settings["kind"], settings["pair"]
    seeds = (2 * pair, 2 * pair + 1)
    starts = [start(settings.get("net", NETS[0]), kind, settings["width"], data, seed) for seed in seeds]
    a, b = train_modules(starts, data, seeds, Recipe(settings["epochs"]))[settings["epochs"]]
    return [{"kind": kind, "pair": pair, **row} for row in along(a, b, data)]


def along(a: nn.Module, b: nn.Module, data: Dataset) -> list[dict[str, Any]]:
    """The barrier of one pair on every path; aligned ones between the effective weights."""
    X, y = np.array(data.flat_inputs, dtype=np.float32), np.array(data.targets)
    tests = np.array(data.test_inputs, dtype=np.float32).reshape(-1, X.shape[1]), np.array(data.test_targets)
    plain = effective_weights(a)
    rows = []
    for path in PATHS:
        left, right, near = a, b, np.nan
        if path != "as trained":
            found = match(a, b, method=path, data=X)
            left, right, near = plain, found.apply(b), found.identity / found.objective
        rows.append(
            {"path": path, "identity": near, **_values(barrier(left, right, "cross_entropy", (X, y), 9, test=tests))}
        )
    return rows


def _values(found: Barrier) -> dict[str, float]:
    assert found.test is not None and found.accuracy is not None and found.test.accuracy is not None
    return {
        "barrier": found.barrier,
        "test_barrier": found.test.barrier,
        "test_midpoint": found.test.midpoint,
        "relative": found.accuracy.relative,
        "accuracy": float(found.test.accuracy.values[0, [0, -1]].mean()),
        "middle": float(found.test.accuracy.values[0, len(found.t) // 2]),
    }


def summarise(table: Table) -> Table:
    """Means and deviations over pairs."""
    rows = []
    for (kind, path), part in table.groups("kind", "path").items():
        values = part.column("barrier")
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
        row = {"kind": kind, "path": path, "barrier": part.mean("barrier"), "deviation": spread}
        rows.append(row | {key: part.mean(key) for key in ("test_barrier", "test_midpoint", "accuracy", "middle")})
    return Table.of(rows)


def _mean(table: Table, kind: str, path: str) -> float:
    part = table.where(kind=kind, path=path)
    if not len(part.dicts()):
        raise InputError(f"expected rows of {kind}, {path}, got none")
    return float(part.mean("barrier"))


def aligned(table: Table) -> Finding:
    """Of standard networks, at most a quarter of the barrier is left after either matching."""
    before = _mean(table, "standard", "as trained")
    after = {path: _mean(table, "standard", path) for path in PATHS[1:]}
    text = ", ".join(f"{path} {value:.3g}" for path, value in after.items())
    return Finding(before > 0 and max(after.values()) <= before / 4, f"as trained {before:.3g}; {text}")


def mask_alone(table: Table) -> Finding:
    """More than half of the standard barrier is left."""
    standard, mask = (_mean(table, kind, "as trained") for kind in ("standard", "mask alone"))
    return Finding(mask > standard / 2, f"standard {standard:.3g}, mask alone {mask:.3g}")


def identified(table: Table) -> Finding:
    """Fixed weights and static noise: at most a tenth of the standard barrier as trained."""
    standard = _mean(table, "standard", "as trained")
    found = {kind: _mean(table, kind, "as trained") for kind in ("centre-dominated", "syre")}
    text = ", ".join(f"{kind} {value:.3g}" for kind, value in found.items())
    return Finding(max(found.values()) <= standard / 10, f"standard {standard:.3g}; {text}")


STUDY = Study(
    name="mode-connectivity",
    title="Barriers between independent trainings, as they are and after alignment",
    paper=PAPER,
    figure="section 5, Q1",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("aligned", "Alignment of neurons removes the barrier of standard networks.", "Q1", aligned),
        Claim("mask", "A mask without fixed weights leaves the barrier.", "Q1", mask_alone),
        Claim("identified", "Large fixed weights and static noise remove it without alignment.", "Q1", identified),
    ),
    cost={"quick": 120.0, "paper": 20_000.0},
    options={"pairs": None, "epochs": None, "width": None, "data": None, "net": None, "limit": None},
    pictures=(
        Picture(
            "barriers",
            "Barrier of the training loss",
            x="path",
            y=("barrier",),
            lines="kind",
            y_label="barrier",
            style="points",
            words={"kind": ""},
            caption="One point per pair of runs.",
        ),
    ),
    summarise=summarise,
)
