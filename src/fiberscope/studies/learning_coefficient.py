"""The local learning coefficient beside half the rank, through training: where does one drop and the other not?

The coefficient is that of the network as a model of its own function on the points: the loss is the squared distance to
the outputs at the parameter itself, which is a minimum at every moment of a training. Then it lies between half the
rank of the Jacobian and half of ``D - s``, with ``s`` the directions that are known to change nothing on the points.
Draws at two temperatures estimate it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.learning.coefficient import learning_coefficient
from fiberscope.errors import InputError
from fiberscope.studies._runs import UNIVARIATE, load_data
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.seeds import train_many

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 3, "epochs": 1000, "draws": 600, "width": 6, "datasets": ["f1", "f3"]},
    "paper": {"runs": 10, "epochs": 5000, "draws": 4000, "width": 10, "datasets": list(UNIVARIATE)},
}
HEATS = (1e3, 1e7)
"""Inverse temperatures: from afar, and from near by."""

CLOSE = 0.05
"""An estimate is taken to agree with a value within three standard errors and this part of the value."""


def moments(epochs: int) -> list[int]:
    """Epochs at which a network is looked at, in steps of about three.

    >>> moments(1000)
    [0, 10, 30, 100, 300, 1000]
    """
    return sorted({0, *(e for k in range(5) for e in (10 * 10**k, 30 * 10**k) if e < epochs), epochs})


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per data set and run."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    for name in ("runs", "epochs", "draws", "width"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    for name in sizes["datasets"]:
        load_data(name)
    common = {name: sizes[name] for name in ("epochs", "draws", "width")}
    return [{"dataset": name, "run": run, **common} for name in sizes["datasets"] for run in range(sizes["runs"])]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per epoch and temperature."""
    settings = task.settings
    data, width = load_data(settings["dataset"]), settings["width"]
    widths = (data.X.shape[1], width, width, 1)
    times = moments(settings["epochs"])
    trained = train_many(
        widths, (data.X, data.y), [task.seed % 2**31], epochs=settings["epochs"], batch_size=16, checkpoints=times
    )
    rows = []
    for epoch in times:
        net = trained.checkpoints[epoch][0]
        if net is None:  # the training has diverged
            break
        rank = functional_dimension(net, data.X, ranks="exact", seed=task.seed)
        for heat in HEATS:
            found = learning_coefficient(
                net, data.X, nbeta=heat, draws=settings["draws"], burn_in=settings["draws"], seed=task.seed
            )
            rows.append(
                {
                    "dataset": settings["dataset"],
                    "run": settings["run"],
                    "epoch": epoch,
                    "heat": heat,
                    "loss": float(np.mean((net(data.X) - data.y) ** 2)),
                    "parameters": net.num_parameters,
                    "half_rank": (rank.exact or 0) / 2,
                    "half_most": rank.bound("orbit").value / 2,
                    "estimate": found.estimate,
                    "error": found.standard_error,
                    "quadratic": found.quadratic,
                    "met": not found.warnings,
                }
            )
    return rows


def summarise(table: Table) -> Table:
    """Means over runs."""
    rows = []
    for (dataset, heat, epoch), part in table.groups("dataset", "heat", "epoch").items():
        row: dict[str, Any] = {"dataset": dataset, "heat": heat, "epoch": epoch}
        names = ("half_rank", "half_most", "estimate", "error", "quadratic", "met")
        rows.append(row | {name: part.mean(name) for name in names})
    return Table.of(rows)


def _rows(table: Table, **wanted: Any) -> list[dict[str, Any]]:
    part = table.where(**wanted)
    return [dict(zip(part.columns, row, strict=True)) for row in part.rows]


def _slack(row: Mapping[str, Any], value: float) -> float:
    return 3 * float(row["error"]) + CLOSE * value


def between(table: Table) -> Finding:
    """Estimates from near by, of chains that have met."""
    rows = [row for row in _rows(table, heat=HEATS[1]) if row["met"]]
    if not rows:
        return Finding(None, "no chains have met")
    low = sum(row["estimate"] < row["half_rank"] - _slack(row, row["half_rank"]) for row in rows)
    high = sum(row["estimate"] > row["half_most"] + _slack(row, row["half_most"]) for row in rows)
    inside = len(rows) - low - high
    return Finding(low + high == 0, f"{inside} of {len(rows)} estimates lie between; {low} below, {high} above")


def seen_from_afar(table: Table) -> Finding:
    """Estimates at the higher temperature."""
    rows = [row for row in _rows(table, heat=HEATS[0]) if row["half_rank"]]
    if not rows:
        return Finding(None, "no rows")
    below = sum(row["estimate"] < row["half_rank"] for row in rows)
    above = sum(row["estimate"] > row["half_rank"] + _slack(row, row["half_rank"]) for row in rows)
    share = float(np.mean([row["estimate"] / row["half_rank"] for row in rows]))
    said = f"{below} of {len(rows)} are below half the rank, {above} above it beyond their errors; {share:.2f} of it"
    return Finding(above == 0, f"{said} on average")


def by_the_spectrum(table: Table) -> Finding:
    """Estimates against what singular values alone would give, both temperatures."""
    rows = [row for row in _rows(table) if row["met"]]
    if not rows:
        return Finding(None, "no chains have met")
    near = sum(abs(row["estimate"] - row["quadratic"]) <= _slack(row, row["quadratic"]) for row in rows)
    return Finding(near == len(rows), f"{near} of {len(rows)} estimates agree with it")


def drop_together(table: Table) -> Finding:
    """Pairs of consecutive moments between which the rank drops."""
    drops = falls = rises = 0
    for heat in HEATS:
        series: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
        for row in _rows(table, heat=heat):
            series.setdefault((row["dataset"], row["run"]), []).append(row)
        for rows in series.values():
            ordered = sorted(rows, key=lambda row: row["epoch"])
            for before, after in itertools.pairwise(ordered):
                if after["half_rank"] < before["half_rank"]:
                    drops += 1
                    change = after["estimate"] - before["estimate"]
                    clear = abs(change) > 3 * float(np.hypot(before["error"], after["error"]))
                    falls += clear and change < 0
                    rises += clear and change > 0
    if not drops:
        return Finding(None, "the rank never drops")
    holds = False if rises else True if falls == drops else None
    left = drops - falls - rises
    return Finding(
        holds, f"the rank drops {drops} times; the estimate falls {falls} times, rises {rises}, {left} unclear"
    )


ASKED = "asked here"

STUDY = Study(
    name="learning-coefficient",
    title="The local learning coefficient beside half the rank",
    paper="none: a question of this library",
    figure="none",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("between", "Near by, the coefficient lies between half the rank and half of D - s.", ASKED, between),
        Claim("seen-from-afar", "At a higher temperature the estimate is below half the rank.", ASKED, seen_from_afar),
        Claim("by-the-spectrum", "The singular values of J explain the estimate.", ASKED, by_the_spectrum),
        Claim("drop-together", "Where the rank drops, the estimate drops.", ASKED, drop_together),
    ),
    cost={"quick": 120.0, "paper": 6000.0},
    options={"runs": None, "epochs": None, "draws": None, "width": None, "datasets": None},
    pictures=(
        Picture(
            "coefficients",
            "Learning coefficient and half the rank",
            x="epoch",
            y=("half_rank", "half_most", "estimate", "quadratic"),
            lines="quantity",
            panels="heat",
            x_label="epoch",
            y_label="coefficient",
            words={
                "half_rank": "half the exact rank",
                "half_most": "half of D - s",
                "estimate": "estimate",
                "quadratic": "by singular values",
                "1000.0": "from afar, $n\\beta = 10^3$",
                "10000000.0": "near by, $n\\beta = 10^7$",
            },
            caption="Means over runs and tasks, from afar (left) and from near by (right).",
        ),
    ),
    summarise=summarise,
)
