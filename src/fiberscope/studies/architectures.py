"""Regions per neuron along a circle and a tractrix, for three architectures.

The paper on data geometry divides the number of regions by the number of neurons, for three architectures on both
curves, and says that ``C_M`` affects the number of regions proportionally. Which arc of the circle it means is not
clear: see :mod:`fiberscope.studies.circle_vs_tractrix`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from fiberscope.errors import InputError
from fiberscope.studies._curve_runs import (
    INITS,
    OPTIONS,
    against,
    blocks,
    by_init,
    checked,
    close_to_neurons,
    compared,
    curves_of,
    follow,
    late,
    per_run,
    readings,
    summarise,
    task_settings,
)
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study
from fiberscope.studies.lab.table import Table

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 10, "epochs": 40, "every": 4, "hidden": [[5, 8], [10, 16], [20, 32]], "init": INITS[:1]},
    "paper": {"runs": 30, "epochs": 300, "every": 5, "hidden": [[5, 8], [10, 16], [20, 32]], "init": INITS[:1]},
}
ALIKE = 1.5
"""Means per neuron of two architectures whose ratio is larger are not proportional to the number of neurons: ours."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Blocks of runs for every curve and architecture."""
    sizes = checked(SIZES[scale], options)
    shapes = sizes["hidden"]
    if not isinstance(shapes, list | tuple) or not all(isinstance(one, list | tuple) and one for one in shapes):
        raise InputError(f"option hidden: expected lists of hidden widths, got {shapes!r}")
    return [
        {"curve": curve, "hidden": list(hidden), "init": init, **task_settings(sizes), **block}
        for init in sizes["init"]
        for curve in curves_of(sizes)
        for hidden in shapes
        for block in blocks(sizes["runs"])
    ]


def proportional(table: Table) -> Finding:
    """Means per neuron in the second half of the training, over architectures, on every curve.

    It holds where no two architectures differ by more than two standard errors, and does not where a ratio exceeds 1.5.
    """
    texts, answers = [], []
    for (curve,), part in late(table).groups("curve").items():
        runs = {hidden: per_run(rows, "per_neuron") for (hidden,), rows in part.groups("hidden").items()}
        means = {hidden: sum(values) / len(values) for hidden, values in runs.items()}
        ratio = max(means.values()) / min(means.values())
        same = all(compared(a, b)[0] is None for a, b in combinations(runs.values(), 2))
        answers.append(True if same else False if ratio > ALIKE else None)
        texts.append(f"{curve}: {', '.join(f'{name}: {mean:.2f}' for name, mean in means.items())}")
    verdict = False if False in answers else None if None in answers else True
    return Finding(verdict, "; ".join(texts))


def more_on_tractrix(name: str) -> Callable[[Table], Finding]:
    """For every architecture, in the second half of the training; undecided where some are."""

    def check(table: Table) -> Finding:
        if name not in readings(table):
            raise InputError(f"expected rows on the {name}, got none")
        answers, texts = [], []
        for (hidden,), part in late(table).groups("hidden").items():
            answer, text = against(part, "per_neuron", name)
            answers.append(answer)
            texts.append(f"{hidden}: {text}")
        verdict = answers[0] if len(set(answers)) == 1 else None
        return Finding(verdict, "per neuron: " + "; ".join(texts))

    return check


STUDY = Study(
    name="architectures",
    title="Regions per neuron along a circle and a tractrix",
    paper="Effects of Data Geometry in Early Deep Learning",
    figure="figure 8",
    plan=plan,
    run_task=follow,
    claims=(
        Claim(
            "proportional",
            "On one curve the number of regions is proportional to the number of neurons (our reading of the figure).",
            "figure 8",
            by_init(proportional),
        ),
        *(
            Claim(
                f"more-than-{short}",
                f"The value of C_M affects the number of regions proportionally (read: more than on the {words}).",
                "figure 8",
                by_init(more_on_tractrix(name)),
            )
            for short, name, words in (("whole", "circle", "whole circle"), ("half", "upper half", "upper half of it"))
        ),
        Claim(
            "close-to-neurons",
            "The number of linear regions is close to #neurons throughout.",
            "section 4.1",
            by_init(close_to_neurons),
        ),
    ),
    cost={"quick": 30.0, "paper": 360.0},
    options={**OPTIONS, "hidden": None},
    version=2,
    pictures=(
        Picture(
            "per-neuron",
            "Regions per neuron along the curve",
            x="epoch",
            y="per_neuron",
            lines="hidden",
            panels="curve",
            x_label="epoch",
            y_label="regions / neurons",
            words={"curve": "", "hidden": ""},
            caption="Hidden widths in the legend.",
        ),
    ),
    summarise=summarise("init", "curve", "hidden", "epoch"),
)
