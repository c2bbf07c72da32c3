"""Regions sampled against the functional dimension (figures 5 and 6), and the function through training (figure 7).

The paper shows one run of each task. Here the correlation is taken over several, and the first one is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fiberscope.studies._pictures import WORDS
from fiberscope.studies._runs import ENERGY, OPTIONS, UNIVARIATE, plan_data, plan_runs, run_task, settle
from fiberscope.studies._verdicts import (
    BOUND_CLAIMS,
    MORE_REGIONS,
    both_ranks,
    correlated,
    more_regions_than_rank,
    summarise,
)
from fiberscope.studies.lab.study import Picture, Study

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 2, "epochs": 1000, "every": 100, "energy_epochs": 100, "graphs": [0, 100, 300, 1000]},
    "paper": {"runs": 5, "epochs": 5000, "every": 50, "energy_epochs": 1000, "graphs": [0, 50, 200, 1000, 5000]},
}


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs of the univariate tasks, with graphs of the first, and of the two targets of the building data."""
    known = (*UNIVARIATE, *ENERGY)
    sizes = settle({"datasets": list(known), "starts": 0, **SIZES[scale]}, options, known)
    low = [name for name in sizes["datasets"] if name in UNIVARIATE]
    high = [name for name in sizes["datasets"] if name in ENERGY]
    real = settle({**sizes, "epochs": sizes["energy_epochs"], "every": min(sizes["every"], 50)}, {}, known)
    graphs = [epoch for epoch in sizes["graphs"] if epoch <= sizes["epochs"] and epoch % sizes["every"] == 0]
    return (
        [{**settings, "graphs": graphs} for settings in plan_runs({**sizes, "datasets": low})]
        + plan_runs({**real, "datasets": high})
        + plan_data(low)
    )


def _one_run(name: str, title: str, family: str) -> Picture:
    return Picture(
        name,
        title,
        x="epoch",
        y=("exact", "paper", "regions"),
        lines="quantity",
        panels="dataset",
        x_label="epochs",
        y_label="count",
        style="curve",
        where={"record": "run", "family": family, "run": 0},
        caption="One run of each task.",
        words=WORDS,
    )


def _scatter(name: str, title: str, family: str, log: bool) -> Picture:
    return Picture(
        name,
        title,
        x="regions",
        y=("bound_regions", "bound_regions_refined", "exact"),
        lines="quantity",
        panels="dataset",
        x_label="regions sampled",
        y_label="dimension",
        style="points",
        log_y=log,
        where={"record": "run", "family": family},
        caption="Every point is one run at one epoch.",
        words=WORDS,
    )


STUDY = Study(
    name="regions-vs-dimension",
    title="Regions sampled against functional dimension",
    paper="Empirical NTK tracks task complexity",
    figure="figures 5, 6 and 7",
    plan=plan,
    run_task=run_task,
    claims=(
        *both_ranks(
            "correlated",
            "The number of linear regions sampled by the data set is strongly correlated with the rank of the NTK.",
            "sections 1 and 6, figures 5 and 6",
            correlated,
        ),
        *both_ranks(
            "more-regions",
            MORE_REGIONS,
            "section 1",
            more_regions_than_rank,
            family="univariate",
        ),
        *BOUND_CLAIMS,
    ),
    cost={"quick": 50.0, "paper": 150.0},
    options={
        **{name: OPTIONS[name] for name in ("runs", "epochs", "every", "datasets", "layers")},
        "energy_epochs": None,
    },
    pictures=(
        _one_run("one-run", "Regions and functional dimension (figure 5)", "univariate"),
        _one_run("one-run-energy", "Regions and functional dimension (figure 6)", "energy"),
        Picture(
            "functions",
            "The function through training (figure 7)",
            x="x1",
            y="y",
            lines="epoch",
            panels="dataset",
            x_label="x",
            style="curve",
            where={"record": "graph"},
            behind={"record": "data"},
            caption="The network of the first run at several epochs, light to dark, and the data.",
            words=WORDS,
        ),
        _scatter("scatter", "Exact rank against regions", "univariate", False),
        _scatter("scatter-energy", "Exact rank against regions", "energy", True),
    ),
    summarise=summarise,
)
