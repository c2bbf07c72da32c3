"""Regions per neuron along a circle and a tractrix, for three architectures.

The paper on data geometry divides the number of regions by the number of neurons and finds nearly the same for all
architectures on one curve, and other values on the other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fiberscope.errors import InputError
from fiberscope.studies._curve_runs import (
    CURVES,
    INITS,
    blocks,
    by_init,
    checked,
    close_to_neurons,
    compared,
    follow,
    late,
    per_run,
    summarise,
)
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study
from fiberscope.studies.lab.table import Table

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 10, "epochs": 40, "every": 4, "hidden": [[5, 8], [10, 16], [20, 32]]},
    "paper": {"runs": 30, "epochs": 300, "every": 5, "hidden": [[5, 8], [10, 16], [20, 32]]},
}
ALIKE = 1.5
"""Largest ratio of the means per neuron of two architectures that are called proportional."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Blocks of runs for every curve and architecture."""
    sizes = checked(
        {"init": INITS[:1]} | SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    )
    shapes = sizes["hidden"]
    if not isinstance(shapes, list | tuple) or not all(isinstance(one, list | tuple) and one for one in shapes):
        raise InputError(f"option hidden: expected lists of hidden widths, got {shapes!r}")
    common = {"epochs": sizes["epochs"], "every": sizes["every"]}
    return [
        {"curve": curve, "hidden": list(hidden), "init": init, **common, **block}
        for init in sizes["init"]
        for curve in CURVES
        for hidden in shapes
        for block in blocks(sizes["runs"])
    ]


def proportional(table: Table) -> Finding:
    """Means per neuron in the second half of the training, over architectures, on both curves."""
    texts, fits = [], True
    for (curve,), part in late(table).groups("curve").items():
        means = {hidden: rows.mean("per_neuron") for (hidden,), rows in part.groups("hidden").items()}
        ratio = max(means.values()) / min(means.values())
        fits = fits and ratio <= ALIKE
        texts.append(f"{curve}: {', '.join(f'{name}: {mean:.2f}' for name, mean in means.items())}")
    return Finding(fits, "; ".join(texts))


def more_on_tractrix(table: Table) -> Finding:
    """For every architecture, in the second half of the training; undecided where some are."""
    answers, texts = [], []
    for (hidden,), part in late(table).groups("hidden").items():
        answer, text = compared(*(per_run(part.where(curve=name), "per_neuron") for name in ("tractrix", "circle")))
        answers.append(answer)
        texts.append(f"{hidden}: tractrix {text}")
    verdict = False if False in answers else None if None in answers else True
    return Finding(verdict, "per neuron, against the circle: " + "; ".join(texts))


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
            "On one curve the number of regions is proportional to the number of neurons, for all architectures.",
            "figure 8",
            by_init(proportional),
        ),
        Claim(
            "curve-matters",
            "The value of C_M affects the number of linear regions: the tractrix has more.",
            "figure 8",
            by_init(more_on_tractrix),
        ),
        Claim(
            "close-to-neurons",
            "The number of linear regions is close to #neurons throughout.",
            "section 4.1",
            by_init(close_to_neurons),
        ),
    ),
    cost={"quick": 20.0, "paper": 240.0},
    options={"runs": None, "epochs": None, "every": None, "init": None, "hidden": None},
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
