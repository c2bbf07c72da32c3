"""What identifiability costs: neurons near their centres are random features (C.4), and projections hide little (E.2).

Appendix C.4 of the paper says that trained weights that are small beside the fixed centres hardly move what neurons
compute (Lemmas C.16, C.17), and that features that cannot move need weights that are exponential in the dimension to
compute a single steep neuron (Theorems C.18, C.19): what tells neurons apart stands in the way of learning features.
Proposition E.2 says that functions that agree on the projections of the inputs are close on the inputs.

Three parts. *Stability*: exact changes of random features against both lemmas. *Hardness*: the least error, exactly, of
``m`` features on the sphere for a neuron ``relu(w.x + b)`` with ``|w| = d^2`` as in the theorem, which promises some
bias ``b``; here ``b`` is 0 or ``d^2``. The constant of the theorem is not known, so its bound on the weights cannot be
compared. *Projection*: mean squared differences of neurons and their projections on digits, against E.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.neurons.features import feature_change, least_error
from fiberscope.neurons.subspace import moments, subspace
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies._asymmetric_runs import PAPER, standardised
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.loading import load_dataset

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"draws": 3, "dimensions": [5, 10, 20, 45]},
    "paper": {"draws": 10, "dimensions": [5, 10, 20, 45, 80]},
}
RATIOS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Of the sizes of weights and centres."""

FACTORS = (1, 4, 16)
"""Features for every dimension."""

NEURONS, INPUTS = 200, 20
RANKS = (2, 5, 10, 20, 40)
MISSED = 1 / np.sqrt(50)
"""The error of Theorem C.18."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task for the stability, one for every dimension, one for the projections."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    draws, dimensions = sizes["draws"], sizes["dimensions"]
    if not isinstance(draws, int) or draws < 1:
        raise InputError(f"option draws: expected a positive integer, got {draws!r}")
    if not isinstance(dimensions, list | tuple) or any(not isinstance(d, int) or d < 2 for d in dimensions):
        raise InputError(f"option dimensions: expected integers from 2, got {dimensions!r}")
    parts = [{"part": "stability"}, *({"part": "hardness", "dimension": d} for d in dimensions), {"part": "projection"}]
    return [{**part, "draws": draws} for part in parts]


def run_task(task: Task) -> list[dict[str, Any]]:
    """The rows of one part."""
    part, draws = task.settings["part"], task.settings["draws"]
    seeds = np.random.SeedSequence(task.seed).spawn(draws)
    rngs = [np.random.default_rng(seed) for seed in seeds]
    if part == "stability":
        return [row for draw, rng in enumerate(rngs) for row in stability(rng, draw)]
    if part == "hardness":
        return [row for draw, rng in enumerate(rngs) for row in hardness(rng, draw, task.settings["dimension"])]
    data = standardised(load_dataset("digits"))
    return [row for draw, rng in enumerate(rngs) for row in projection(rng, draw, np.array(data.flat_inputs, float))]


def stability(rng: np.random.Generator, draw: int) -> list[dict[str, Any]]:
    """The largest share of the bounds that random weights use, by the ratio of weights and centres."""
    rows = []
    F, alpha = sphere(rng, NEURONS, INPUTS), rng.normal(size=NEURONS)
    for ratio in RATIOS:
        change = feature_change(F, ratio * sphere(rng, NEURONS, INPUTS), alpha)
        row = {"part": "stability", "draw": draw, "ratio": ratio, "network_share": change.network / change.bound}
        rows.append(row | {"neuron_share": float((change.neurons / change.neuron_bounds).max())})
    return rows


def hardness(rng: np.random.Generator, draw: int, dimension: int) -> list[dict[str, Any]]:
    """The least error of random features for one steep neuron, and the weights that it takes."""
    rows = []
    target = dimension**2 * sphere(rng, 1, dimension)[0]
    for factor in FACTORS:
        F = sphere(rng, factor * dimension, dimension)
        for bias in (0.0, 1.0):
            found = least_error(F, target, bias * dimension**2)
            row = {"part": "hardness", "draw": draw, "dimension": dimension, "features": len(F), "factor": factor}
            rows.append(row | {"bias": bias, "error": found.error, "relative": found.relative, "weight": found.weight})
    return rows


def projection(rng: np.random.Generator, draw: int, X: FloatArray) -> list[dict[str, Any]]:
    """Neurons and their projections agree on the projected inputs: how far are they apart on the inputs?"""
    rows = []
    found = moments(X, X.shape[1])
    U = rng.normal(size=(NEURONS, X.shape[1])) / np.sqrt(X.shape[1])
    for rank in RANKS:
        space = subspace(found, rank=rank)
        inside = U @ space.basis @ space.basis.T
        gaps = np.square(np.maximum(X @ U.T, 0.0) - np.maximum(X @ inside.T, 0.0)).mean(axis=0)
        bounds = 2 * ((U**2).sum(axis=1) + (inside**2).sum(axis=1)) * space.tail_energy
        row = {"part": "projection", "draw": draw, "rank": rank, "tail": space.tail_energy}
        rows.append(row | {"gap": float(gaps.mean()), "share": float((gaps / bounds).max())})
    return rows


def sphere(rng: np.random.Generator, count: int, dimension: int) -> FloatArray:
    """Rows of length one."""
    found = rng.normal(size=(count, dimension))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def summarise(table: Table) -> Table:
    """Largest shares of the bounds, and means of the errors."""
    rows: list[dict[str, Any]] = []
    for (ratio,), part in table.where(part="stability").groups("ratio").items():
        shares = {name: max(part.column(name)) for name in ("neuron_share", "network_share")}
        rows.append({"part": "stability", "ratio": ratio, **shares})
    for (d, m, bias), part in table.where(part="hardness").groups("dimension", "features", "bias").items():
        means = {name: part.mean(name) for name in ("relative", "error", "weight")}
        rows.append({"part": "hardness", "dimension": d, "features": m, "bias": bias, **means})
    for (rank,), part in table.where(part="projection").groups("rank").items():
        rows.append({"part": "projection", "rank": rank, "gap": part.mean("gap"), "share": max(part.column("share"))})
    return Table.of(rows)


def stable(table: Table) -> Finding:
    """No change beyond the bounds of C.16 and C.17; nor beyond half of their squares, by symmetry."""
    part = table.where(part="stability")
    worst = max(part.column("neuron_share")), max(part.column("network_share"))
    text = f"largest shares of the bounds: neurons {worst[0]:.3f}, networks {worst[1]:.3f}; by symmetry at most .707"
    return Finding(bool(max(worst) <= np.sqrt(0.5)), text)


def hard(table: Table) -> Finding:
    """With 16 features for every dimension, the error of C.18 is missed in every draw, for both biases."""
    part = table.where(part="hardness", factor=max(FACTORS))
    least = min(part.column("error"))
    return Finding(bool(least > MISSED), f"least error {least:.3g}, asked for at most {MISSED:.3g}")


def grows(table: Table) -> Finding:
    """At sixteen features for every dimension the relative error for bias 0 does not fall from the second dimension."""
    part = table.where(part="hardness", factor=max(FACTORS), bias=0.0)
    means = {d: one.mean("relative") for (d,), one in part.groups("dimension").items()}
    values = [means[d] for d in sorted(means)]
    text = ", ".join(f"d = {d}: {means[d]:.2f}" for d in sorted(means))
    return Finding(all(a <= b for a, b in pairwise(values)), text)


def projected(table: Table) -> Finding:
    """No pair beyond the bound of E.2."""
    worst = max(table.where(part="projection").column("share"))
    return Finding(worst <= 1, f"largest share of the bound {worst:.3f}")


STUDY = Study(
    name="feature-learning",
    title="What identifiability costs: centres as random features, and neurons on projected inputs",
    paper=PAPER,
    figure="appendices C.4 and E.1",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("stable", "Weights move features by no more than their size.", "Lemmas C.16, C.17", stable),
        Claim("hard", "Features near their centres miss a single steep neuron.", "Theorems C.18, C.19", hard),
        Claim("dimension", "With m proportional to d, more so in higher dimensions (ours).", "not in the paper", grows),
        Claim("projection", "Functions that agree on projected inputs are close.", "Proposition E.2", projected),
    ),
    cost={"quick": 10.0, "paper": 60.0},
    options={"draws": None, "dimensions": None},
    pictures=(
        Picture(
            "errors",
            "Least error of random features for one neuron, relative to it",
            x="features",
            y=("relative",),
            lines="dimension",
            where={"part": "hardness", "bias": 0.0},
            y_label="relative error",
            log_x=True,
            words={"dimension": "d = "},
        ),
    ),
    summarise=summarise,
)
