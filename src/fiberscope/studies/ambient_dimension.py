"""Regions along a circle in a random plane of R^n, for growing n.

The paper on data geometry trains the same network on the same task while only the dimension of the space around the
circle grows, and finds that neither the number of regions along the circle nor the distance to them changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.studies._curve_runs import (
    INITS,
    OPTIONS,
    READINGS,
    blocks,
    by_init,
    checked,
    close_to_neurons,
    follow,
    late,
    per_run,
    summarise,
    task_settings,
)
from fiberscope.studies._verdicts import mean_and_error
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study
from fiberscope.studies.lab.table import Table

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 10, "epochs": 40, "every": 4, "dimensions": [5, 15, 25]},
    "paper": {"runs": 20, "epochs": 300, "every": 5, "dimensions": [5, 10, 15, 20, 25, 30, 35, 40, 45, 50]},
}
HIDDEN = [10, 16]
LITTLE = 0.1
"""Change of a mean, relative, that is called little, from the smallest to the largest dimension: ours."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Blocks of runs for every dimension; on the whole circle unless told otherwise."""
    sizes = checked({"init": INITS[:1], "arc": ["whole"]} | SIZES[scale], options)
    dimensions = sizes["dimensions"]
    if not isinstance(dimensions, list | tuple) or not all(isinstance(n, int) and n > 1 for n in dimensions):
        raise InputError(f"option dimensions: expected a list of integers above 1, got {dimensions!r}")
    if len(sizes["arc"]) != 1:
        raise InputError(f"option arc: expected one of {', '.join(READINGS)}, got {sizes['arc']!r}")
    common = {"curve": READINGS[sizes["arc"][0]], "hidden": HIDDEN, **task_settings(sizes)}
    return [
        {**common, "init": init, "dimension": n, **block}
        for init in sizes["init"]
        for n in dimensions
        for block in blocks(sizes["runs"])
    ]


def _trend(part_of: Table, column: str) -> Finding:
    """The slope of the runs' means over the dimension, by least squares; its change over the whole range."""
    points = [(n, value) for (n,), part in part_of.groups("inputs").items() for value in per_run(part, column)]
    x, y = np.array(points, dtype=float).T
    if np.ptp(x) == 0:
        raise InputError("expected at least two dimensions, got one")
    slope, offset = np.polyfit(x, y, 1)
    spread = y - (slope * x + offset)
    error = float(np.sqrt(np.sum(spread**2) / max(len(x) - 2, 1) / np.sum((x - x.mean()) ** 2)))
    change, doubt = slope * np.ptp(x) / y.mean(), 2 * error * np.ptp(x) / y.mean()
    means = ", ".join(
        f"R^{n}: {mean_and_error(per_run(part, column))[0]:.3g}" for (n,), part in part_of.groups("inputs").items()
    )
    answer = True if abs(change) + doubt < LITTLE else False if abs(change) - doubt > LITTLE else None
    text = f"from R^{x.min():g} to R^{x.max():g} the mean changes by {change:+.1%} +- {doubt:.1%}; {means}"
    return Finding(answer, text)


def constant_count(table: Table) -> Finding:
    """In the second half of the training, by at most a tenth, two standard errors included."""
    return _trend(late(table), "regions")


def constant_at_start(table: Table) -> Finding:
    """The same at initialisation."""
    return _trend(table.where(epoch=0), "regions")


def constant_distance(table: Table) -> Finding:
    """As for the count."""
    return _trend(late(table), "distance")


STUDY = Study(
    name="ambient-dimension",
    title="Linear regions along a circle in spaces of growing dimension",
    paper="Effects of Data Geometry in Early Deep Learning",
    figure="figures 6 and 7",
    plan=plan,
    run_task=follow,
    claims=(
        Claim(
            "proportional",
            "The number of linear regions remains proportional to the number of neurons (26).",
            "figure 6",
            by_init(close_to_neurons),
        ),
        Claim(
            "constant-count",
            "It does not vary as n_in is increased (in the second half of the training).",
            "section 4.2, figure 6",
            by_init(constant_count),
        ),
        Claim("constant-at-start", "The same, at initialisation.", "section 4.2, figure 6", by_init(constant_at_start)),
        Claim(
            "constant-distance",
            "The average distance varies very little (in the second half of the training).",
            "section 4.2, figure 7",
            by_init(constant_distance),
        ),
    ),
    cost={"quick": 15.0, "paper": 300.0},
    options={**OPTIONS, "dimensions": None},
    version=2,
    pictures=tuple(
        Picture(
            name,
            title,
            x="epoch",
            y=column,
            lines="inputs",
            x_label="epoch",
            y_label=label,
            style="curve",
            words={"inputs": "n ="},
            caption="Means over runs, one line per dimension of the space.",
        )
        for name, title, column, label in (
            ("regions", "Regions along the circle", "regions", "regions"),
            ("distance", "Distance to the next boundary", "distance", "mean distance along the circle"),
        )
    ),
    summarise=summarise("init", "inputs", "epoch"),
)
