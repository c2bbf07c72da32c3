"""Coherence of inputs, hidden representations and outputs of standard and symmetry-broken MLPs while they are trained.

For each place of the network the subspace holds 90 % of the *variance* (centred principal components; of the second
moments with ``centred=false``) of what is seen there on the training data, and ``nu(U) = max_l (U U^T)_ll`` lies
between ``k/d`` and 1. Since ``k`` differs from network to network, the ratio of ``nu`` to its least value ``k/d``
stands beside it. The data may be turned, at random or to the least coherence that there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from fiberscope.errors import InputError
from fiberscope.modules.recording import record_activations, record_inputs
from fiberscope.neurons.coherence import coherence
from fiberscope.neurons.subspace import moments as moments_of
from fiberscope.neurons.subspace import subspace
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies._asymmetric_runs import PAPER, Recipe, model, standardised, train_modules
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.datasets.loading import load_dataset

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"data": "digits", "hidden": [64, 64, 64], "runs": 3, "epochs": 30},
    "paper": {"data": "mnist", "hidden": [512, 512, 512], "runs": 3, "epochs": 100},
}
MODELS: dict[str, tuple[str, float]] = {
    "standard": ("standard", 0.0),
    "w, sigma 0": ("w", 0.0),
    "w, sigma 1": ("w", 1.0),
    "syre, sigma 1": ("syre", 1.0),
}
"""Name of a variant: its architecture and ``sigma_F``."""

UNBROKEN, BROKEN = ("standard", "w, sigma 0"), ("w, sigma 1", "syre, sigma 1")
VARIANTS = ("plain", "rotated")
CHOICES = (*VARIANTS, "least")
"""Of the data: as it is, turned at random, and turned to the lowest coherence that there can be (H.5)."""

MOMENTS = (0, 1, 3, 10, 30, 100)
"""Epochs at which it is looked, besides the last."""

MNIST_RANK = 87


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per variant of the data and of the network."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    for name in ("runs", "epochs"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    hidden = sizes["hidden"]
    if not isinstance(hidden, list | tuple) or not hidden or any(not isinstance(n, int) or n < 2 for n in hidden):
        raise InputError(f"option hidden: expected a list of widths from 2, got {hidden!r}")
    variants = sizes.get("variants", VARIANTS)
    if not isinstance(variants, list | tuple) or not variants or not set(variants) <= set(CHOICES):
        raise InputError(f"option variants: expected some of {', '.join(CHOICES)}, got {variants!r}")
    if not isinstance(sizes.get("centred", True), bool):
        raise InputError(f"option centred: expected true or false, got {sizes['centred']!r}")
    common = {name: sizes[name] for name in ("data", "hidden", "runs", "epochs")}
    if not sizes.get("centred", True):  # only if it differs: seeds come from the settings
        common["centred"] = False
    return [{"variant": variant, "model": name, **common} for variant in variants for name in MODELS]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per run, epoch and place in the network."""
    variant, name, epochs, runs = (task.settings[key] for key in ("variant", "model", "epochs", "runs"))
    data = training_data(task.settings["data"], variant)
    architecture, sigma = MODELS[name]
    widths = (data.flat_inputs.shape[1], *task.settings["hidden"], data.num_outputs)
    starts = [model(architecture, widths, run, sigma=sigma) for run in range(runs)]
    moments = [epoch for epoch in MOMENTS if epoch < epochs]
    kept = train_modules(starts, data, range(runs), Recipe(epochs), moments)
    return [
        {"variant": variant, "model": name, "run": run, "epoch": epoch, "data": data.name, **row}
        for epoch, nets in sorted(kept.items())
        for run, net in enumerate(nets)
        for row in places(net, data, task.settings.get("centred", True))
    ]


def training_data(name: str, variant: str) -> Dataset:
    """Four fifths of the data, standardised; ``rotated`` turns the space of pixels by a random orthogonal matrix.

    ``least`` turns it so that all pixels see the principal subspace alike, and the coherence is ``k/d``.
    """
    part = standardised(load_dataset(name).split((0.8, 0.1, 0.1), seed=0)[0])
    part = replace(part, name=name, inputs=part.flat_inputs)
    if variant == "plain":
        return part
    width = part.inputs.shape[1]
    turn = rotation(width) if variant == "rotated" else flattening(principal(part.inputs))
    return replace(part, inputs=(part.inputs @ turn).astype(np.float32))


def principal(inputs: FloatArray) -> FloatArray:
    """The centred principal subspace, ``(d, k)``."""
    return subspace(moments_of(inputs, inputs.shape[1]), centred=True).basis


def flattening(basis: FloatArray) -> FloatArray:
    """An orthogonal ``Q`` that turns a subspace, ``(d, k)``, to coherence ``k/d``: its basis becomes waves.

    All rows of ``sqrt(2/d) (cos, sin)(2 pi j l / d)``, a few ``j`` each with both, have the same length; the constant
    is added where ``k`` is odd. Inputs as rows are turned by ``x Q``.

    >>> turned = flattening(np.eye(9)[:, :4]).T @ np.eye(9)[:, :4]
    >>> bool(np.allclose((turned**2).sum(axis=1), 4 / 9))
    True
    """
    d, k = basis.shape
    places = 2 * np.pi * np.arange(d) / d
    waves = [np.ones(d) / np.sqrt(d)] if k % 2 else []
    for j in range(1, k // 2 + 1):
        if 2 * j == d:  # a whole space of even dimension: the last wave has no sine
            waves.append(np.cos(places * j) / np.sqrt(d))
            waves.append(np.ones(d) / np.sqrt(d))
        else:
            waves += [np.sqrt(2 / d) * np.cos(places * j), np.sqrt(2 / d) * np.sin(places * j)]
    frame = np.stack(waves, axis=1)
    rest, other = (np.linalg.svd(part, full_matrices=True)[0][:, k:] for part in (basis, frame))
    return np.asarray(basis @ frame.T + rest @ other.T)


def rotation(size: int) -> FloatArray:
    """An orthogonal matrix; under the uniform distribution no coordinate sees a subspace better than another."""
    return np.asarray(np.linalg.qr(np.random.default_rng([size, 5]).standard_normal((size, size)))[0])


def places(net: nn.Module, data: Dataset, centred: bool = True) -> list[dict[str, Any]]:
    """Rank, coherence and its ratio to ``k/d`` of the inputs of every layer, and of the output."""
    inputs = np.array(data.inputs)
    seen: list[Any] = list(record_inputs(net, None, inputs).values())
    last = [name for name, part in net.named_modules() if isinstance(part, nn.Linear)][-1]
    seen.append(record_activations(net, [last], inputs)[last])
    with torch.no_grad():
        right = net(torch.from_numpy(inputs)).argmax(dim=1).numpy() == data.targets
    rows = []
    for place, moments in enumerate(seen):
        space = subspace(moments, centred=centred, name=_word(place, len(seen)))
        nu, least = coherence(space.basis), space.rank / len(space.basis)
        row = {"place": place, "seen": _word(place, len(seen)), "rank": space.rank, "coherence": nu}
        rows.append(row | {"least": least, "ratio": nu / least, "accuracy": float(right.mean())})
    return rows


def _word(place: int, count: int) -> str:
    return {0: "inputs", count - 1: "output"}.get(place, f"hidden {place}")


def summarise(table: Table) -> Table:
    """Means over runs at the end of the training."""
    end = table.where(epoch=max(table.column("epoch")))
    rows = []
    for (variant, name, seen), part in end.groups("variant", "model", "seen").items():
        row = {"variant": variant, "model": name, "seen": seen}
        rows.append(row | {key: part.mean(key) for key in ("rank", "coherence", "ratio", "accuracy")})
    return Table.of(rows)


def _hidden(table: Table) -> tuple[Table, list[str]]:
    """The rows of hidden representations of the plain data after the last epoch, and the names of these places."""
    end = table.where(variant="plain")
    end = end.where(epoch=max(end.column("epoch")))
    places = sorted(set(end.column("place")))[1:-1]
    if not places:
        raise InputError("expected hidden layers, got none")
    return end, [f"hidden {place}" for place in places]


def _separated(table: Table, seen: Sequence[str], column: str) -> Finding:
    """Means over places: both models with fixed weights above both without, by more than two standard errors.

    Less than that, in either direction, leaves it undecided; so does a single run, which has no spread.
    """
    end, _ = _hidden(table)
    found = {}
    for name in MODELS:
        runs = [
            np.mean([part.where(seen=place).mean(column) for place in seen])
            for part in end.where(model=name).groups("run").values()
        ]
        error = np.std(runs, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else np.inf
        found[name] = float(np.mean(runs)), float(error)
    low, high = max(found[name] for name in UNBROKEN), min(found[name] for name in BROKEN)
    gap, error = high[0] - low[0], float(np.hypot(high[1], low[1]))
    texts = "; ".join(f"{name}: {mean:.3f} +- {error:.3f}" for name, (mean, error) in found.items())
    return Finding(None if abs(gap) <= 2 * error else gap > 0, texts)


def later(table: Table) -> Finding:
    """The last hidden representation."""
    return _separated(table, _hidden(table)[1][-1:], "coherence")


def overall(table: Table) -> Finding:
    """All hidden representations."""
    return _separated(table, _hidden(table)[1], "coherence")


def beyond_rank(table: Table) -> Finding:
    """The last hidden representation, coherence over its least value."""
    return _separated(table, _hidden(table)[1][-1:], "ratio")


def falls_with_depth(table: Table) -> Finding:
    """Without effective symmetry breaking the last hidden representation must have less than the first."""
    end, seen = _hidden(table)
    texts, fits = [], True
    for name in UNBROKEN:
        first, last = (end.where(model=name, seen=place).mean("coherence") for place in (seen[0], seen[-1]))
        fits = fits and last < first
        texts.append(f"{name}: {first:.3f} in the first, {last:.3f} in the last hidden layer")
    return Finding(fits, "; ".join(texts))


def mnist_rank(table: Table) -> Finding:
    """Only MNIST can tell."""
    part = table.where(variant="plain", seen="inputs")
    rank, nu, least = (part.column(name)[0] for name in ("rank", "coherence", "least"))
    ours = f"{part.column('data')[0]}: k = {rank}, k/d = {least:.4f}, coherence {nu:.3f}"
    return Finding(rank == MNIST_RANK if part.column("data")[0] == "mnist" else None, ours)


STUDY = Study(
    name="representation-coherence",
    title="Coherence of inputs, hidden representations and outputs over training",
    paper=PAPER,
    figure="figure 22, appendix H.5",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "later-layers",
            "Without effective symmetry breaking coherence is low in later layers, with large fixed weights higher.",
            "appendix H.5, figure 22",
            later,
        ),
        Claim("all-layers", "The same in the mean over the hidden layers.", "appendix H.5, figure 22", overall),
        Claim(
            "depth",
            "Without effective symmetry breaking coherence is low in particular in later layers.",
            "appendix H.5, figure 22",
            falls_with_depth,
        ),
        Claim("mnist-rank", "MNIST has k = 87 at 90 % of the variance, k/d = 0.111.", "appendix H.5", mnist_rank),
        Claim(
            "beyond-rank",
            "In later layers it is also higher relative to k/d, not only because the rank is (a control of ours).",
            "not in the paper",
            beyond_rank,
        ),
    ),
    cost={"quick": 30.0, "paper": 30000.0},
    options={"data": None, "hidden": None, "runs": None, "epochs": None, "variants": None, "centred": None},
    pictures=(
        Picture(
            "training",
            "Coherence over training",
            x="epoch",
            y="coherence",
            lines="model",
            panels="seen",
            where={"variant": "plain"},
            x_label="epochs",
            y_label="coherence",
            words={"model": "", "seen": ""},
            caption="Means over runs with standard deviations.",
        ),
        Picture(
            "ratio",
            "Coherence over its least value k/d",
            x="epoch",
            y="ratio",
            lines="model",
            panels="seen",
            where={"variant": "plain"},
            x_label="epochs",
            y_label="coherence / (k/d)",
            words={"model": "", "seen": ""},
            caption="What is left of the differences when ranks are taken into account.",
        ),
    ),
    summarise=summarise,
)
