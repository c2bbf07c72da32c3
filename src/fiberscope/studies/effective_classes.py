"""What neurons can compute on inputs from a plane, at which cost, and which of it two trainings choose.

The inputs span a plane of R^8, so a ReLU neuron without bias is a point ``a`` of the plane, and the functions of cost
at most 1 at neuron ``i`` are the ellipse ``(a - v_i)^T S_i^+ (a - v_i) <= 1``. Two students learn one teacher of as
many neurons: without fixed parts (all ellipses are one), with pruned weights (different shapes), and with fixed
weights (different centres). The paper draws this and gives no numbers; ours are below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.neurons.classes import NeuronClasses
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies._asymmetric_runs import PAPER
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.synthetic import coherence_embedding
from fiberscope.training.plan import Parametrisation
from fiberscope.training.seeds import TrainingRuns, train_many

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"draws": 6, "pairs": 5, "sigmas": [0.5, 1.0, 2.0]},
    "paper": {"draws": 50, "pairs": 10, "sigmas": [0.25, 0.5, 1.0, 2.0]},
}
INPUTS, WIDTH, FIXED, POINTS, EPOCHS = 8, 6, 4, 512, 600
"""Ambient dimension, neurons of teacher and student, fixed entries per row, training points, full-batch steps."""

FITTED = 0.01
"""Share of the variance that the error of a student may have."""

ANISOTROPIC = 2.0
"""Ratio of the eigenvalues of a Gram matrix that is called anisotropic."""

SHOWN = 1.0
"""The ``sigma_F`` whose classes are drawn."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per level of symmetry."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    for name in ("draws", "pairs"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    sigmas = sizes["sigmas"]
    if not isinstance(sigmas, list | tuple) or any(not isinstance(s, int | float) or s <= 0 for s in sigmas):
        raise InputError(f"option sigmas: expected a list of positive numbers, got {sigmas!r}")
    levels = [("symmetric", 0.0), ("pruned", 0.0), *(("fixed", float(sigma)) for sigma in sigmas)]
    common = {"draws": sizes["draws"], "pairs": sizes["pairs"]}
    return [{"level": level, "sigma": sigma, **common} for level, sigma in levels]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per draw, pair and neuron; and the points of the first draw's ellipses and paths."""
    level, sigma = task.settings["level"], task.settings["sigma"]
    rows: list[dict[str, Any]] = []
    for index in range(task.settings["draws"]):
        draw = Draw.of(index, level, sigma)
        runs = draw.train(task.settings["pairs"])
        for pair in range(task.settings["pairs"]):
            both = draw.classes(runs, 2 * pair), draw.classes(runs, 2 * pair + 1)
            errors = runs.losses[2 * pair : 2 * pair + 2, -1] / draw.variance
            common = {"level": level, "sigma": sigma, "draw": index, "pair": pair}
            numbers = measure(*both)
            rows += [common | {"record": "neuron", "error": float(errors.max()), **row} for row in numbers]
            if index == pair == 0 and (level != "fixed" or sigma == SHOWN):
                rows += [common | {"record": "drawn", **row} for row in outlines(*both)]
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """A teacher, inputs, fixed parts and scales; the same teacher, inputs and mask at every level."""

    index: int
    basis: FloatArray
    """``(d, 2)``: coherence ``k/d``, the least there is, so that the anisotropy is the mask's doing."""
    inputs: FloatArray
    targets: FloatArray
    F: FloatArray
    D: FloatArray

    @classmethod
    def of(cls, index: int, level: str, sigma: float) -> Draw:
        rng = np.random.default_rng([index, 6])
        angles = 2 * np.pi * (np.arange(WIDTH) + rng.uniform(-0.3, 0.3, WIDTH)) / WIDTH
        teacher = rng.uniform(0.7, 1.3, (WIDTH, 1)) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        latent = rng.standard_normal((POINTS, 2))
        basis = coherence_embedding("frame", INPUTS // 2, INPUTS, index)
        targets = np.maximum(latent @ teacher.T, 0.0).sum(axis=1, keepdims=True)
        places = rng.permuted(np.broadcast_to(np.arange(INPUTS), (WIDTH, INPUTS)), axis=1)[:, :FIXED]
        mask = np.zeros((WIDTH, INPUTS))
        np.put_along_axis(mask, places, 1.0, axis=1)
        F = sigma * mask * rng.standard_normal(mask.shape)
        return cls(index, basis, latent @ basis.T, targets, F, 1.0 - mask if level != "symmetric" else np.ones_like(F))

    @property
    def variance(self) -> float:
        """Of the targets."""
        return float(self.targets.var())

    def train(self, pairs: int) -> TrainingRuns:
        """Students with outgoing weights 1 and no biases: their functions are the coefficients and nothing else."""
        ones, none = np.ones((1, WIDTH)), np.zeros((1, WIDTH))
        starts = [np.random.default_rng([self.index, run, 7]).normal(0, 0.3, self.F.shape) for run in range(2 * pairs)]
        return train_many(
            (INPUTS, WIDTH, 1),
            (self.inputs, self.targets),
            seeds=range(2 * pairs),
            epochs=EPOCHS,
            optimizer="adamw",
            lr=0.02,
            weight_decay=0.01,
            init=[Network([W, ones], [np.zeros(WIDTH), np.zeros(1)]) for W in starts],
            parametrisation=Parametrisation([self.F, ones], [self.D, none], [np.zeros(WIDTH), np.zeros(1)]),
        )

    def classes(self, runs: TrainingRuns, run: int) -> NeuronClasses:
        """The hidden layer of one student on the plane."""
        assert runs.trained is not None
        return NeuronClasses.from_arrays(self.F, self.D, runs.trained[run].weights[0], self.basis)


def measure(a: NeuronClasses, b: NeuronClasses) -> list[dict[str, Any]]:
    """Per neuron: its class, and whether the closest matching of the two runs' features leaves it where it is."""
    squares = ((a.coefficients[:, None] - b.coefficients[None]) ** 2).sum(axis=-1)
    matching = linear_sum_assignment(squares)[1]
    grams = a.grams
    values = np.linalg.eigvalsh(grams)
    swaps = np.abs(a.swap_costs()).sum(axis=1) / (a.num_neurons - 1)
    return [
        {
            "neuron": i,
            "bias": float(np.linalg.norm(a.centers[i])),
            "ratio": float(values[i, 1] / values[i, 0]) if a.ranks[i] == 2 else float("inf"),
            "unlike": float(np.abs(grams - grams[i]).max()),
            "swap": float(swaps[i]),
            "apart": float(np.sqrt(squares[i, i])),
            "matched": float(matching[i] == i),
        }
        for i in range(a.num_neurons)
    ]


def outlines(a: NeuronClasses, b: NeuronClasses) -> list[dict[str, Any]]:
    """The functions of cost 1 at each neuron, and its function along the segment from one run to the other."""
    turn = np.linspace(0.0, 2 * np.pi, 120, endpoint=False)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    rows = []
    for i in range(a.num_neurons):
        values, vectors = np.linalg.eigh(a.gram(i))
        ellipse = a.centers[i] + (vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * circle)).T
        path = [(1 - t) * a.coefficients[i] + t * b.coefficients[i] for t in np.linspace(0.0, 1.0, 21)]
        for kind, points in (("class", ellipse), ("path", path)):
            rows += [{"neuron": i, "kind": kind, "x": float(x), "y": float(y)} for x, y in points]
    return rows


def _numbers(table: Table) -> Table:
    return table.where(record="neuron")


def summarise(table: Table) -> Table:
    """Means over draws, pairs and neurons."""
    rows = []
    for (level, sigma), part in _numbers(table).groups("level", "sigma").items():
        row = {"level": level, "sigma": sigma, "pairs": len(part) // WIDTH, "error": part.mean("error")}
        rows.append(row | {name: part.mean(name) for name in ("bias", "ratio", "swap", "apart", "matched")})
    return Table.of(rows)


def symmetric(table: Table) -> Finding:
    """Equal centres, equal Gram matrices, bit by bit: the same numbers were computed for every neuron."""
    part = _numbers(table).where(level="symmetric")
    bias, unlike, swap = (max(part.column(name)) for name in ("bias", "unlike", "swap"))
    text = f"largest centre {bias:.2g}, difference of Gram matrices {unlike:.2g}, mean swap cost of a neuron {swap:.2g}"
    return Finding(bias == 0 and unlike == 0, text)


def anisotropic(table: Table) -> Finding:
    """In every draw some neuron's eigenvalues differ by a factor of two, and no centre has moved."""
    part = _numbers(table).where(level="pruned")
    worst = [max(rows.column("ratio")) for rows in part.groups("draw").values()]
    text = f"largest ratio of eigenvalues by draw {min(worst):.2f} to {max(worst):.2f}, median {np.median(worst):.2f}"
    return Finding(min(worst) >= ANISOTROPIC and max(part.column("bias")) == 0, text)


def _by_draw(part: Table, column: str) -> tuple[float, float]:
    """Mean and standard error over draws; pairs of one draw share their fixed parts."""
    means = [rows.mean(column) for rows in part.groups("draw").values()]
    error = np.std(means, ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.inf
    return float(np.mean(means)), float(error)


def biased(table: Table) -> Finding:
    """At the largest ``sigma_F`` features stay at their neurons more often than with pruning alone, by two errors."""
    part = _numbers(table)
    largest = max(part.column("sigma"))
    levels = {"symmetric": 0.0, "pruned": 0.0, "fixed": largest}
    found = {name: _by_draw(part.where(level=name, sigma=sigma), "matched") for name, sigma in levels.items()}
    gap = found["fixed"][0] - max(found["symmetric"][0], found["pruned"][0])
    error = float(np.hypot(found["fixed"][1], max(found["symmetric"][1], found["pruned"][1])))
    text = "; ".join(f"{name}: {mean:.2f} +- {error:.2f}" for name, (mean, error) in found.items())
    return Finding(None if abs(gap) <= 2 * error else gap > 0, f"{text} (chance {1 / WIDTH:.2f})")


def grows(table: Table) -> Finding:
    """The share of matched neurons must rise, and their distance fall, with every step of ``sigma_F``."""
    part = _numbers(table)
    sigmas = sorted({0.0, *part.where(level="fixed").column("sigma")})
    cells = [part.where(level="fixed" if sigma else "pruned", sigma=sigma) for sigma in sigmas]
    shares, apart = ([cell.mean(name) for cell in cells] for name in ("matched", "apart"))
    fits = all(x < y for x, y in pairwise(shares)) and all(x > y for x, y in pairwise(apart))
    listed = zip(sigmas, shares, apart, strict=True)
    return Finding(fits, "; ".join(f"sigma {s:g}: {m:.2f} matched, {d:.2f} apart" for s, m, d in listed))


def fitted(table: Table) -> Finding:
    """The median pair of every level has errors below a hundredth of the variance."""
    groups = _numbers(table).groups("level", "sigma")
    medians = {key: float(np.median(part.column("error"))) for key, part in groups.items()}
    text = "; ".join(f"{level} {sigma:g}: {value:.2g}" for (level, sigma), value in medians.items())
    return Finding(max(medians.values()) < FITTED, text)


STUDY = Study(
    name="effective-classes",
    title="What each neuron can compute on a plane of inputs, and what two trainings make of it",
    paper=PAPER,
    figure="figure 6, appendix F.1",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "symmetric",
            "In a fully symmetric MLP, each neuron can implement the same functions on X.",
            "figure 6, column 1",
            symmetric,
        ),
        Claim(
            "pruned",
            "Pruning weights affects S_i and can introduce anisotropy.",
            "figure 6, column 2",
            anisotropic,
        ),
        Claim("fixed", "Fixed weights via F introduce functional biases.", "figure 6, column 3", biased),
        Claim(
            "scale",
            "The larger the fixed weights, the more features stay at their neurons (ours).",
            "not in the paper",
            grows,
        ),
        Claim("fitted", "The students fit the teacher at all levels (a control of ours).", "not in the paper", fitted),
    ),
    cost={"quick": 20.0, "paper": 600.0},
    options={"draws": None, "pairs": None, "sigmas": None},
    pictures=(
        Picture(
            "classes",
            "Functions of cost 1, and the functions of two runs joined by a line",
            x="x",
            y="y",
            lines="neuron",
            panels="level",
            where={"record": "drawn"},
            style="points",
            equal=True,
            x_label="first coefficient",
            y_label="second coefficient",
            words={"level": "", "fixed": "fixed weights, sigma 1"},
            caption="One colour per neuron, one draw, one pair of runs.",
        ),
        Picture(
            "apart",
            "Distance of both runs' functions",
            x="sigma",
            y="apart",
            lines="level",
            where={"record": "neuron"},
            x_label="sigma_F",
            y_label="distance at one neuron",
            words={"level": ""},
            caption="Means and standard deviations over draws, pairs and neurons.",
        ),
    ),
    summarise=summarise,
)
