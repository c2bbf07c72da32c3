"""Which symmetries of a transformer have to be aligned before two trainings can be joined? The barrier after each.

Theus et al. (2025) report that permutations leave most of the barrier between vision transformers, and that learned
orthogonal maps of the residual stream remove it. Here pairs of small vision transformers on digits are measured as
trained, after matching by weights of one kind of group at a time (neurons of feed-forward layers, heads with what is
inside them, the residual stream), of all permutations, after Procrustes in the orthogonal groups, and after learning
the maps on the training data. Barriers are of training and of held-out data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from fiberscope.connectivity.barrier import barrier
from fiberscope.connectivity.matching import match
from fiberscope.connectivity.methods.families import families
from fiberscope.connectivity.structure import Structure, permutation_structure
from fiberscope.errors import InputError
from fiberscope.modules.models import vit
from fiberscope.studies._asymmetric_runs import Recipe, task_data, train_modules
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.dataset import Dataset

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"pairs": 2, "epochs": 20, "size": 32, "steps": 200},
    "paper": {"pairs": 5, "epochs": 60, "size": 64, "steps": 1000},
}
SIDE, PATCH, DEPTH, HEADS, RATIO = 8, 2, 2, 4, 2
"""Of the images and of the transformers."""

PARTS = ("feed-forward", "heads", "stream")
PATHS = ("as trained", *PARTS, "permutations", "procrustes", "learned")


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task for every pair."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    for name in SIZES[scale]:
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    return [
        {"pair": pair, **{key: sizes[key] for key in ("epochs", "size", "steps")}} for pair in range(sizes["pairs"])
    ]


def transformer(size: int, seed: int) -> nn.Module:
    """A small vision transformer that takes images as vectors."""
    net = vit(size, DEPTH, HEADS, seed, image=SIDE, patch=PATCH, ratio=RATIO, channels=1)
    return nn.Sequential(nn.Unflatten(1, (1, SIDE, SIDE)), net)


def run_task(task: Task) -> list[dict[str, Any]]:
    """The rows of one pair."""
    settings = task.settings
    data = task_data("digits")
    seeds = [2 * settings["pair"], 2 * settings["pair"] + 1]
    starts = [transformer(settings["size"], seed) for seed in seeds]
    recipe = Recipe(settings["epochs"], lr=2e-3)
    a, b = train_modules(starts, data, seeds, recipe)[settings["epochs"]]
    return [{"pair": settings["pair"], **row} for row in along(a, b, data, settings["steps"])]


def parts_of(structure: Structure) -> dict[str, Structure]:
    """The groups by what they are: the one with most places is the stream; what has groups inside are heads."""
    trees = families(structure.only("permutation").groups)
    stream = max(trees, key=lambda tree: len(tree.group.axes))
    kinds: dict[str, list[Any]] = {part: [] for part in PARTS}
    for tree in trees:
        kind = "stream" if tree is stream else "heads" if tree.inside else "feed-forward"
        kinds[kind] += tree.groups
    return {part: replace(structure, groups=tuple(groups)) for part, groups in kinds.items()}


def along(a: nn.Module, b: nn.Module, data: Dataset, steps: int) -> list[dict[str, Any]]:
    """The barrier of a pair on every path."""
    X, y = np.array(data.flat_inputs, dtype=np.float32), np.array(data.targets)
    tests = np.array(data.test_inputs, dtype=np.float32).reshape(-1, X.shape[1])
    structure = permutation_structure(a, X[:2])
    parts = parts_of(structure) | {"permutations": structure}
    rows = []
    for path in PATHS:
        left, right = a, b
        if path in parts:
            right = match(a, b, parts[path], "weights").apply(b)
        elif path in ("procrustes", "learned"):
            method = "weights" if path == "procrustes" else "learned"
            found = match(a, b, structure, method, (X, y), group="orthogonal", steps=steps, batch_size=128)
            left, right = found.reference(a), found.apply(b)
        way = barrier(left, right, "cross_entropy", (X, y), 7, test=(tests, np.array(data.test_targets)))
        assert way.test is not None and way.test.accuracy is not None
        ends = way.test.accuracy.values[0]
        rows.append(
            {
                "path": path,
                "barrier": way.barrier,
                "test_barrier": way.test.barrier,
                "accuracy": float(ends[[0, -1]].mean()),
                "middle": float(ends[3]),
            }
        )
    return rows


def summarise(table: Table) -> Table:
    """Means over pairs."""
    names = ("barrier", "test_barrier", "accuracy", "middle")
    return Table.of(
        [{"path": path, **{n: part.mean(n) for n in names}} for (path,), part in table.groups("path").items()]
    )


def _means(table: Table, column: str, *paths: str) -> list[float]:
    return [float(table.where(path=path).mean(column)) for path in paths]


def permuted(table: Table) -> Finding:
    """All permutations by weights: below the barrier as trained, with more than a tenth of it left."""
    before, after = _means(table, "barrier", "as trained", "permutations")
    return Finding(before / 10 < after < before, f"as trained {before:.3g}, permutations {after:.3g}")


def rotated(table: Table) -> Finding:
    """Procrustes: a smaller barrier than that of permutations."""
    after, turned = _means(table, "barrier", "permutations", "procrustes")
    return Finding(turned < after, f"permutations {after:.3g}, procrustes {turned:.3g}")


def learned(table: Table) -> Finding:
    """Learned maps leave at most a twentieth of the barrier, on the data they were learned on."""
    before, after = _means(table, "barrier", "as trained", "learned")
    return Finding(after <= before / 20, f"as trained {before:.3g}, learned {after:.3g}")


def generalises(table: Table) -> Finding:
    """At most a tenth on held-out data."""
    before, after = _means(table, "test_barrier", "as trained", "learned")
    return Finding(after <= before / 10, f"held out: as trained {before:.3g}, learned {after:.3g}")


STUDY = Study(
    name="transformer-symmetries",
    title="The barrier between vision transformers after each kind of symmetry is aligned",
    paper="Generalized Linear Mode Connectivity for Transformers (Theus et al. 2025)",
    figure="loss barriers of vision transformers",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "permutations", "Permutations lower the barrier and leave much of it.", "CIFAR-10: 1.69 to .36", permuted
        ),
        Claim("orthogonal", "Orthogonal maps lower it further (Procrustes; ours).", "not in the paper", rotated),
        Claim("learned", "Learned orthogonal maps remove it.", "CIFAR-10: 1.69 to 0.00", learned),
        Claim("held-out", "Also on held-out data (ours).", "not in the paper", generalises),
    ),
    cost={"quick": 150.0, "paper": 3000.0},
    options={"pairs": None, "epochs": None, "size": None, "steps": None},
    pictures=(
        Picture(
            "paths",
            "Barrier of the training loss after each alignment",
            x="path",
            y=("barrier", "test_barrier"),
            lines="quantity",
            y_label="barrier",
            style="points",
            words={"barrier": "training", "test_barrier": "held out"},
            caption="One point per pair of runs.",
        ),
    ),
    summarise=summarise,
)
