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
from typing import Any

import numpy as np
from torch import nn

from fiberscope.connectivity.barrier import Barrier, barrier
from fiberscope.connectivity.matching import match
from fiberscope.errors import InputError
from fiberscope.modules.parametrisations import effective_weights
from fiberscope.studies._asymmetric_runs import NETS, PAPER, Recipe, task_data, train_modules, untrained
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.dataset import Dataset

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"data": "digits", "pairs": 2, "epochs": 15, "width": 256},
    "paper": {"data": "mnist", "pairs": 5, "epochs": 25, "width": 512},
}
KINDS: dict[str, dict[str, Any]] = {
    "standard": {"architecture": "standard"},
    "mask alone": {"architecture": "w", "sigma": 0.0},
    "centre-dominated": {"architecture": "w", "sigma": 1.0},
    "syre": {"architecture": "syre", "sigma": 1.0},
}
"""The architectures of figure 1: standard, W-asymmetric without and with fixed weights, static noise. Residual networks
have fixed weights of scale 2, as in Table 3."""

COUPLED = "coupled masks"
"""Of transformers alone, after the outlook of H.4: see :func:`fiberscope.neurons.asymmetric_models.w_vit`."""

PATHS = ("as trained", "weights", "activations")
POINTS, MIDDLE = 9, 0.5
"""Points of a path; every one has a row, with the path's barriers beside it."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task for every pair of every architecture; an interrupted run has seen all architectures early.

    ``first``: the pairs from this one on, so that several machines may share the work. A pair's task is the same.
    """
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    first = sizes.pop("first", 0)
    for name in ("pairs", "epochs", "width"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    if sizes.get("net", NETS[0]) not in NETS:
        raise InputError(f"option net: expected one of {', '.join(NETS)}, got {sizes['net']!r}")
    if sizes.get("limit") is not None and (not isinstance(sizes["limit"], int) or sizes["limit"] < 1):
        raise InputError(f"option limit: expected a positive integer, got {sizes['limit']!r}")
    if not isinstance(first, int) or not 0 <= first < sizes["pairs"]:
        raise InputError(f"option first: expected one of the pairs 0 to {sizes['pairs'] - 1}, got {first!r}")
    kinds = (*KINDS, COUPLED) if sizes.get("net") == "vit" else KINDS
    return [{"kind": kind, "pair": pair, **sizes} for pair in range(first, sizes["pairs"]) for kind in kinds]


def run_task(task: Task) -> list[dict[str, Any]]:
    """Rows of every point of every path of one pair."""
    settings = task.settings
    data = task_data(settings["data"], settings.get("limit"))
    kind, pair = settings["kind"], settings["pair"]
    seeds = (2 * pair, 2 * pair + 1)
    about = KINDS["centre-dominated"] | {"masks": "coupled"} if kind == COUPLED else KINDS[kind]
    net = settings.get("net", NETS[0])
    if net == "resnet20" and kind == "centre-dominated":
        about = about | {"sigma": 2.0}
    starts = [untrained(net, settings["width"], data, seed, **about) for seed in seeds]
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
        between = barrier(left, right, "cross_entropy", (X, y), POINTS, test=tests)
        common = {"path": path, "identity": near, **_values(between)}
        rows += [{**common, "t": t, **point} for t, point in _curve(between)]
    return rows


def _curve(found: Barrier) -> list[tuple[float, dict[str, float]]]:
    """Accuracies along the path, figures 3, 7 and 21."""
    assert found.test is not None and found.accuracy is not None and found.test.accuracy is not None
    parts = zip(found.t, found.accuracy.values[0], found.test.accuracy.values[0], strict=True)
    return [(float(t), {"train_at": float(a), "test_at": float(b)}) for t, a, b in parts]


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
        values = part.where(t=MIDDLE).column("barrier")
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
    figure="section 5, Q1, figures 3, 7 and 21",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("aligned", "Alignment of neurons removes the barrier of standard networks.", "Q1", aligned),
        Claim("mask", "A mask without fixed weights leaves the barrier.", "Q1", mask_alone),
        Claim("identified", "Large fixed weights and static noise remove it without alignment.", "Q1", identified),
    ),
    cost={"quick": 120.0, "paper": 20_000.0},
    options={"pairs": None, "epochs": None, "width": None, "data": None, "net": None, "limit": None, "first": None},
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
            where={"t": MIDDLE},
        ),
        Picture(
            "curves",
            "Training accuracy along the path",
            x="t",
            y="train_at",
            lines="kind",
            panels="path",
            x_label="from the first network to the second",
            y_label="accuracy",
            words={"kind": "", "path": ""},
        ),
    ),
    summarise=summarise,
)
