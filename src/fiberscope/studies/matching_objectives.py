"""Do two trainings give the same neuron the same role? Objectives of activation matching for three permutations.

The paper on neuron identifiability compares the mean correlation of matched neurons at the optimal permutation, at the
identity and at random ones: against the scale ``sigma_F`` of the fixed weights, over epochs, layer by layer, for other
architectures, and against the number of fixed entries. Where the identity is nearly optimal the architecture alone says
which neuron is which. With ``net=resnet20`` (``width`` multiplies its channels) the networks are residual ones, and a
*layer* is a place of matching: a residual stream, or the inside of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from fiberscope.connectivity.matching import match
from fiberscope.errors import InputError
from fiberscope.neurons.asymmetric_models import RESNET_FIXED
from fiberscope.studies._asymmetric_runs import (
    ARCHITECTURES,
    NETS,
    PAPER,
    Recipe,
    model,
    standardised,
    train_modules,
    untrained,
)
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.datasets.loading import load_dataset

SIZES: dict[str, dict[str, Any]] = {
    "quick": {
        "dataset": "digits",
        "width": 64,
        "pairs": 2,
        "epochs": 20,
        "checkpoints": [0, 2, 5, 10],
        "sigmas": [0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0],
        "shares": [0.03125, 0.125, 0.5],
        "limit": 1797,
    },
    "paper": {
        "dataset": "mnist",
        "width": 512,
        "pairs": 8,
        "epochs": 100,
        "checkpoints": [0, 1, 2, 5, 10, 25, 50],
        "sigmas": [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0],
        "shares": [0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5, 0.75],
        "limit": 70_000,
    },
}
DATASETS = ("digits", "mnist", "fashion_mnist", "cifar10", "gaussian_mixture")
HIDDEN = 3
SPARSE = (0.0, 1.0)
"""Scales at which the number of fixed entries is varied."""

CLOSE, WEAK = 0.8, 0.2
"""Shares of the way from random to optimal: above the first the identity is nearly optimal, below the second it is
hardly better than random."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per architecture, scale and share of fixed entries."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    if sizes["dataset"] not in DATASETS:
        raise InputError(f"option dataset: expected one of {', '.join(DATASETS)}, got {sizes['dataset']!r}")
    for name in ("width", "pairs", "epochs", "limit"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    net = sizes.get("net", NETS[0])
    if net not in NETS[:2]:
        raise InputError(f"option net: expected one of {', '.join(NETS[:2])}, got {net!r}")
    sigmas, shares = _numbers("sigmas", sizes, 0.0, np.inf), _numbers("shares", sizes, 0.0, 1.0)
    common = {name: sizes[name] for name in ("dataset", "width", "pairs", "epochs", "limit")}
    if net != NETS[0]:  # only if it differs: seeds come from the settings
        common["net"] = net
    common["checkpoints"] = [epoch for epoch in sizes["checkpoints"] if epoch < sizes["epochs"]]
    # The paper fixes an eighth of the rows (64 of 512).
    found = [{"sweep": "sigma", "architecture": "w", "sigma": sigma, "share": 0.125} for sigma in sigmas]
    found += [{"sweep": "architecture", "architecture": a, "sigma": 1.0, "share": 0.125} for a in others(net)]
    found += [
        {"sweep": "share", "architecture": "w", "sigma": sigma, "share": share}
        for sigma in SPARSE
        for share in shares
        if share != 0.125 or sigma not in sigmas
    ]
    return [one | common for one in found]


def others(net: str = NETS[0]) -> tuple[str, ...]:
    """What the W-asymmetric network is compared with; residual networks have no sigma-asymmetric version."""
    return tuple(name for name in ARCHITECTURES if name != "w" and (net == NETS[0] or name != "sigma"))


def _numbers(name: str, sizes: Mapping[str, Any], low: float, high: float) -> list[float]:
    values = sizes[name]
    good = isinstance(values, list | tuple) and all(isinstance(v, int | float) and low <= v <= high for v in values)
    if not good:
        raise InputError(f"option {name}: expected numbers from {low:g} to {high:g}, got {values!r}")
    return [float(value) for value in values]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per epoch, pair and layer."""
    settings = task.settings
    data = dataset(settings["dataset"], settings["limit"])
    # Runs begin alike in all tasks: what differs is the architecture, not the luck of a draw.
    seeds = list(range(2 * settings["pairs"]))
    starts = [initial(settings, data, seed) for seed in seeds]
    kept = train_modules(starts, data, seeds, Recipe(settings["epochs"]), settings["checkpoints"])
    X, Y = torch.tensor(np.array(data.flat_inputs)), torch.tensor(np.array(data.targets))
    about = {name: settings[name] for name in ("sweep", "architecture", "sigma", "share")}
    about["sparsity"] = settings["architecture"] == "w" and settings["sigma"] in SPARSE  # for the picture
    return [
        {**about, "epoch": epoch, "last": epoch == settings["epochs"], "pair": pair, **row}
        for epoch, nets in kept.items()
        for pair, (a, b) in enumerate(zip(nets[::2], nets[1::2], strict=True))
        for row in objectives(a, b, X, Y)
    ]


def dataset(name: str, limit: int) -> Dataset:
    """The training points, their inputs standardised as a whole; files that are missing are asked for by name."""
    try:
        if name == "gaussian_mixture":
            return standardised(load_dataset(name, points=limit, test_points=1))
        data = standardised(load_dataset(name))
    except InputError as error:
        raise InputError(f"matching-objectives needs the data set {name}: {error}") from error
    share = 0.8 if name != "digits" else 1.0  # the paper's split; of the few digits all are used
    part = data.split((share,), seed=0)[0]
    rows = slice(min(limit, len(part)))
    return Dataset(name, part.inputs[rows], part.targets[rows], provenance=part.provenance)


def initial(settings: Mapping[str, Any], data: Dataset, seed: int) -> nn.Module:
    """A network with ``share`` of the entries of every row fixed; of the last layer half, as in G.1.

    Residual networks have the numbers of Table 3, which are those of an eighth, in proportion.
    """
    width, architecture = settings["width"], settings["architecture"]
    fixed: dict[str, Any] = {}
    if settings.get("net", NETS[0]) != NETS[0]:
        if architecture == "w":
            parts = RESNET_FIXED.items()
            fixed = {"fixed": {name: max(1, round(settings["share"] * count * width)) for name, count in parts}}
        return untrained("resnet20", width, data, seed, architecture=architecture, sigma=settings["sigma"], **fixed)
    widths = (data.flat_inputs.shape[1], *[width] * HIDDEN, data.num_outputs)
    if architecture == "w":
        share = settings["share"]
        fixed = {"fixed": [max(1, round(share * n)) for n in widths[:-2]] + [widths[-2] // 2]}
    return model(architecture, widths, seed, sigma=settings["sigma"], **fixed)


def objectives(a: nn.Module, b: nn.Module, X: torch.Tensor, Y: torch.Tensor) -> list[dict[str, Any]]:
    """Mean correlation of matched neurons in every hidden layer, after norm and activation, and the accuracy."""
    with torch.no_grad():
        accuracy = float(np.mean([(net.eval()(X).argmax(dim=1) == Y).double().mean().item() for net in (a, b)]))
    found = match(a, b, data=X)
    return [
        {
            "layer": layer,
            "place": part.group,
            "optimal": part.optimal,
            "identity": part.identity,
            "random": part.random,
            "closeness": closeness(part.optimal, part.identity, part.random),
            "accuracy": accuracy,
        }
        for layer, part in enumerate(found.objectives, start=1)
    ]


def closeness(optimal: float, identity: float, random: float) -> float | None:
    """Share of the way from random permutations to the optimal one that the identity has come.

    >>> closeness(1.0, 0.75, 0.5)
    0.5
    """
    return (identity - random) / (optimal - random) if optimal > random else None


def summarise(table: Table) -> Table:
    """Means over pairs and layers."""
    rows = []
    names = ("sweep", "architecture", "sigma", "share", "epoch")
    for key, part in table.groups(*names).items():
        columns = ("optimal", "identity", "random", "closeness", "accuracy")
        rows.append(dict(zip(names, key, strict=True)) | {name: part.mean(name) for name in columns})
    return Table.of(rows)


def at_end(table: Table, **where: Any) -> Table:
    """The rows after the last epoch."""
    found = table.where(last=True, **where)
    if not len(found):
        raise InputError(f"expected rows of {where}, got none")
    return found


def by_scale(table: Table) -> dict[float, float]:
    """Closeness of the identity at the end, by ``sigma_F``."""
    part = at_end(table, sweep="sigma")
    return {sigma: rows.mean("closeness") for (sigma,), rows in sorted(part.groups("sigma").items())}


def nearly_optimal(table: Table) -> Finding:
    """From some scale on the identity comes 0.8 of the way; without fixed weights it comes less than half of it."""
    found = by_scale(table)
    large = [sigma for sigma in found if all(found[other] > CLOSE for other in found if other >= sigma)]
    listed = ", ".join(f"{sigma:g}: {value:.2f}" for sigma, value in found.items())
    start = f"nearly optimal from sigma_F = {large[0]:g}" if large else "nearly optimal at no tail of scales"
    holds = bool(large) and 0.0 in found and found[0.0] < 0.5
    return Finding(holds, f"the identity's share of the way from random to optimal by sigma_F {listed}; {start}")


def random_is_worse(table: Table) -> Finding:
    """At every scale random permutations have less than half of the optimal objective."""
    part = at_end(table, sweep="sigma")
    pairs = {s: (rows.mean("random"), rows.mean("optimal")) for (s,), rows in part.groups("sigma").items()}
    listed = ", ".join(f"{s:g}: {r:.2f} of {best:.2f}" for s, (r, best) in pairs.items())
    return Finding(all(r < best / 2 for r, best in pairs.values()), f"random and optimal by sigma_F {listed}")


def over_training(table: Table) -> Finding:
    """At every recorded epoch ``sigma_F = 1`` is at least 0.3 closer to the optimum than ``sigma_F = 0``."""
    part = table.where(sweep="sigma")
    epochs = sorted(set(part.column("epoch")))
    values = [[part.where(epoch=e, sigma=s).mean("closeness") for s in (0.0, 1.0)] for e in epochs]
    listed = ", ".join(f"{e}: {a:.2f} and {b:.2f}" for e, (a, b) in zip(epochs, values, strict=True))
    return Finding(all(b - a > 0.3 for a, b in values), f"sigma_F = 0 and 1 after epochs {listed}")


def same_in_layers(table: Table) -> Finding:
    """Layers differ by less than 0.3 at ``sigma_F`` 0 and 1 and in the other architectures."""
    parts = {f"sigma_F = {s:g}": at_end(table, sweep="sigma", sigma=s) for s in (0.0, 1.0)}
    sigma = bool(len(table.where(sweep="architecture", architecture="sigma")))
    compared = others(NETS[0] if sigma else "resnet20")
    parts |= {name: at_end(table, sweep="architecture", architecture=name) for name in compared}
    texts, holds = [], True
    for name, part in parts.items():
        layers = [rows.mean("closeness") for (_,), rows in sorted(part.groups("layer").items())]
        holds = holds and max(layers) - min(layers) < 0.3
        texts.append(f"{name}: {', '.join(f'{value:.2f}' for value in layers)}")
    return Finding(holds, "by layer, " + "; ".join(texts))


def hardly_better(architecture: str) -> Callable[[Table], Finding]:
    """The identity comes less than 0.2 of the way."""

    def check(table: Table) -> Finding:
        part = at_end(table, sweep="architecture", architecture=architecture)
        value, numbers = part.mean("closeness"), [part.mean(n) for n in ("random", "identity", "optimal")]
        text = ", ".join(f"{name} {v:.3f}" for name, v in zip(("random", "identity", "optimal"), numbers, strict=True))
        return Finding(value < WEAK, f"{text}; the identity has come {value:.2f} of the way")

    return check


def sparsity_alone(table: Table) -> Finding:
    """Without fixed weights the identity comes less than 0.8 of the way at every share of fixed entries."""
    part = at_end(table, architecture="w")
    found = {
        sigma: {
            share: rows.mean("closeness") for (share,), rows in sorted(part.where(sigma=sigma).groups("share").items())
        }
        for sigma in (0.0, 1.0)
    }
    texts = [
        f"sigma_F = {sigma:g}: {', '.join(f'{share:.2g}: {v:.2f}' for share, v in values.items())}"
        for sigma, values in found.items()
    ]
    if len(found[0.0]) < 2:
        raise InputError(f"expected at least two shares of fixed entries without fixed weights, got {len(found[0.0])}")
    return Finding(all(v < CLOSE for v in found[0.0].values()), "by share of fixed entries, " + "; ".join(texts))


_LINES = {"optimal": "optimal permutation", "identity": "identity", "random": "random permutations"}
_WORDS = {**_LINES, "layer": "layer", "architecture": "", "sigma": "sigma-asymmetric"}


def _objectives(name: str, title: str, x: str, panels: str, **where: Any) -> Picture:
    """The three objectives as lines."""
    return Picture(
        name,
        title,
        x=x,
        y=tuple(_LINES),
        lines="quantity",
        panels=panels,
        x_label="sigma_F" if x == "sigma" else x,
        y_label="mean correlation",
        where=where,
        words=_WORDS,
    )


STUDY = Study(
    name="matching-objectives",
    title="Activation matching at the optimal permutation, the identity and random ones",
    paper=PAPER,
    figure="question 2, figures 2 and 8 to 11",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "identity",
            "Once sigma_F is large enough, the identity becomes nearly optimal.",
            "figure 2a",
            nearly_optimal,
        ),
        Claim("random", "Random permutations remain much worse.", "figure 2a", random_is_worse),
        Claim("epochs", "The same trend over training.", "figure 2c", over_training),
        Claim("layers", "The patterns are consistent across layers.", "figures 8 and 9", same_in_layers),
        Claim(
            "sigma-asymmetric",
            "In sigma-asymmetric networks the identity does not produce a higher objective than random permutations.",
            "appendix H.1, figure 8",
            hardly_better("sigma"),
        ),
        Claim("standard", "Nor in standard networks.", "figure 8", hardly_better("standard")),
        Claim(
            "sparsity",
            "Sparsity alone without fixed weights does not yield strong neuron identifiability.",
            "figure 11",
            sparsity_alone,
        ),
    ),
    cost={"quick": 70.0, "paper": 400_000.0},
    options=dict.fromkeys((*SIZES["quick"], "net")),
    pictures=(
        _objectives("scale", "Objective after training, by sigma_F", "sigma", "layer", sweep="sigma", last=True),
        _objectives("epochs", "Objective over training, sigma_F = 1", "epoch", "layer", sweep="sigma", sigma=1.0),
        _objectives("others", "Objective over training, other networks", "epoch", "architecture", sweep="architecture"),
        Picture(
            "sparsity",
            "The identity, by the share of fixed entries",
            x="share",
            y="closeness",
            lines="sigma",
            x_label="share of fixed entries",
            y_label="0 random, 1 optimal",
            where={"sparsity": True, "last": True},
            words={"sigma": "sigma_F ="},
        ),
    ),
    summarise=summarise,
)
