"""Swap costs of neurons of MLPs that classify images, by architecture and by two estimates; appendix H.3 on MNIST.

The paper shows, for standard, W-asymmetric (``sigma_F`` 0 and 1) and syre MLPs on MNIST, the swap costs of disjoint
consecutive pairs of neurons on the principal subspace and by ridge regression (figure 13), and maps of the costs of the
first pairs by both estimates (figures 17 to 20). Here one network with batch norm is trained per architecture and run,
and all of it is measured on it. Maps by ridge take a descent for every pair of neurons, so they may be smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from fiberscope.errors import InputError
from fiberscope.modules.recording import record_inputs
from fiberscope.neurons.classes import neuron_classes
from fiberscope.studies._asymmetric_runs import PAPER, Recipe, model, task_data, train_modules
from fiberscope.studies._verdicts import mean_and_error
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.studies.swap_costs import HIDDEN, layer_rows, ridge_rows, ridge_swaps, signed_root, tensors

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"data": "digits", "width": 64, "runs": 2, "epochs": 15, "swaps": 8, "map": 16, "ridge_map": 16},
    "paper": {"data": "mnist", "width": 512, "runs": 1, "epochs": 100, "swaps": 32, "map": 128, "ridge_map": 128},
}
KINDS: dict[str, dict[str, Any]] = {
    "standard": {"architecture": "standard"},
    "mask alone": {"architecture": "w", "sigma": 0.0},
    "centre-dominated": {"architecture": "w", "sigma": 1.0},
    "syre": {"architecture": "syre", "sigma": 1.0, "epsilon": 0.0},
}
"""The four of figure 13; syre with ``D = 1``, as in the authors' code."""

UNBROKEN, BROKEN = ("standard", "mask alone"), ("centre-dominated", "syre")


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per architecture and run."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    for name in ("width", "runs", "epochs", "swaps", "map", "ridge_map"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    for name, most in (("swaps", sizes["width"] // 2), ("map", sizes["width"]), ("ridge_map", sizes["map"])):
        if sizes[name] > most:
            raise InputError(f"option {name}: expected at most {most}, got {sizes[name]}")
    if sizes.get("limit") is not None and (not isinstance(sizes["limit"], int) or sizes["limit"] < 1):
        raise InputError(f"option limit: expected a positive integer, got {sizes['limit']!r}")
    return [{"kind": kind, "run": run, **sizes} for run in range(sizes["runs"]) for kind in KINDS]


def run_task(task: Task) -> list[dict[str, Any]]:
    """Rows ``layer`` (all swap costs of a layer), ``ridge`` (two estimates of some swaps) and ``map``."""
    settings = task.settings
    data = task_data(settings["data"], settings.get("limit"))
    widths = (data.flat_inputs.shape[1], *[settings["width"]] * HIDDEN, data.num_outputs)
    run, recipe = settings["run"], Recipe(settings["epochs"])
    start = model(widths=widths, seed=run, norm="batch", bias=False, **KINDS[settings["kind"]])
    net = train_modules([start], data, [run], recipe)[recipe.epochs][0].eval()
    X, y = tensors(data)
    X = X.flatten(1)
    right = float((net(X).argmax(1) == y).float().mean())
    rows = layer_rows(net, run, X) + ridge_rows(net, X, settings["swaps"])
    for name, moments in record_inputs(net, [f"linear{i}" for i in range(HIDDEN)], X).items():
        costs = neuron_classes(net.get_submodule(name), moments, name=name).swap_costs()
        size = settings["map"]
        shown = signed_root(np.where(np.isfinite(costs), costs, np.nan)[:size, :size])
        layer = int(name.removeprefix("linear")) + 1
        ridge = ridge_map(net, X, layer - 1, settings["ridge_map"])
        rows += [
            {"record": "map", "layer": layer, "i": i, "j": j, "root": float(shown[i, j]), "ridge": ridge.get((i, j))}
            for i in range(size)
            for j in range(size)
        ]
    about = {"kind": settings["kind"], "run": run, "accuracy": right}
    return [{"record": row.pop("record"), **about, **row} for row in rows]


def ridge_map(net: nn.Module, X: Tensor, layer: int, size: int) -> dict[tuple[int, int], float]:
    """Signed roots of the relaxed swap costs of all pairs among the first neurons of a layer."""
    neurons = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"), axis=-1).reshape(-1, 2)
    pairs, costs = ridge_swaps(net, X, layer, neurons)
    found = dict.fromkeys(((i, i) for i in range(size)), 0.0)
    for (i, j), value in zip(pairs.tolist(), signed_root(costs).tolist(), strict=True):
        found[i, j] = found[j, i] = value
    return found


def summarise(table: Table) -> Table:
    """Per architecture and layer: cheap swaps, and both estimates of the disjoint pairs."""
    rows = []
    for (kind, layer), part in table.groups("kind", "layer").items():
        all_, pairs = part.where(record="layer"), part.where(record="ridge")
        row = {"kind": kind, "layer": layer, "accuracy": part.mean("accuracy")}
        row |= {name: all_.mean(name) for name in ("near", "negative", "positive", "infinite")}
        rows.append(row | {"swap": pairs.mean("swap"), "ridge_swap": pairs.mean("ridge_swap")})
    return Table.of(rows)


def _cheap(table: Table, kind: str) -> float:
    part = table.where(record="layer", kind=kind)
    if not len(part):
        raise InputError(f"expected rows of {kind}, got none")
    return float(part.mean("near") + part.mean("negative"))


def cheap_swaps(table: Table) -> Finding:
    """At least half of the swaps are cheap without large fixed weights, at most a tenth with them."""
    found = {kind: _cheap(table, kind) for kind in KINDS}
    holds = min(found[k] for k in UNBROKEN) >= 0.5 and max(found[k] for k in BROKEN) <= 0.1
    return Finding(holds, "share of cheap swaps: " + ", ".join(f"{kind} {value:.2f}" for kind, value in found.items()))


def both_estimates(table: Table) -> Finding:
    """By both estimates the mean root of a swap is larger in both broken architectures, by two standard errors."""
    texts, holds = [], True
    for column in ("swap", "ridge_swap"):
        found = {kind: mean_and_error(table.where(record="ridge", kind=kind).column(column)) for kind in KINDS}
        low = max(mean + 2 * error for mean, error in (found[kind] for kind in UNBROKEN))
        high = min(mean - 2 * error for mean, error in (found[kind] for kind in BROKEN))
        holds = holds and high > low
        listed = ", ".join(f"{kind} {mean:.2f} ± {error:.2f}" for kind, (mean, error) in found.items())
        texts.append(f"{'ridge' if column == 'ridge_swap' else 'subspace'}: {listed}")
    return Finding(holds, "; ".join(texts))


STUDY = Study(
    name="image-swap-costs",
    title="Swap costs of neurons that classify images, by architecture and estimate",
    paper=PAPER,
    figure="appendix H.3, figures 13 and 17 to 20",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "cheap",
            "Swaps are cheap without large fixed weights and expensive with them.",
            "figures 17-20",
            cheap_swaps,
        ),
        Claim("estimates", "Both estimates say so (our reading of figure 13).", "figure 13", both_estimates),
    ),
    cost={"quick": 100.0, "paper": 40_000.0},
    options=dict.fromkeys((*SIZES["quick"], "limit")),
    pictures=(
        Picture(
            "estimates",
            "Swap costs of disjoint pairs of neurons",
            x="layer",
            y=("swap", "ridge_swap"),
            lines="kind",
            panels="quantity",
            y_label="signed root of the cost",
            where={"record": "ridge"},
            words={"kind": "", "swap": "on the subspace", "ridge_swap": "by ridge"},
        ),
        *(
            Picture(
                name,
                f"Swap costs {words}, first layer",
                x="j",
                y="i",
                panels="kind",
                colour=column,
                style="map",
                x_label="neuron",
                y_label="neuron",
                words={"kind": ""},
                where={"record": "map", "layer": 1, "run": 0},
            )
            for name, column, words in (("maps", "root", "on the subspace"), ("ridge-maps", "ridge", "by ridge"))
        ),
    ),
    summarise=summarise,
)
