"""Functional dimension through training on three bivariate tasks (figures 8 and 9): a grid of 400 points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fiberscope.studies._pictures import WORDS, bound_pictures, trajectory_pictures
from fiberscope.studies._runs import BIVARIATE, OPTIONS, plan_data, plan_runs, plan_starts, run_task, settle
from fiberscope.studies._verdicts import (
    BOUND_CLAIMS,
    DEFICIENT,
    RISES,
    below_at_start,
    both_ranks,
    correlated,
    deficient_at_start,
    ordered,
    rises_then_settles,
    summarise,
)
from fiberscope.studies.lab.study import Picture, Study

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 4, "epochs": 300, "every": 50, "starts": 20},
    "paper": {"runs": 20, "epochs": 1000, "every": 25, "starts": 200},
}
"""The paper does not say how long it trains."""

BATCHES = ("", "10 x 10")
"""The paper speaks of 400 points, and where it gives the rank at initialisation of a matrix of 100 rows."""

BELOW = "For the bivariate experiments the functional dimension at initialization is on average less than 60"


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs of every task, initialisations (all three tasks have the same inputs), and the data."""
    sizes = settle({"datasets": list(BIVARIATE), **SIZES[scale]}, options, BIVARIATE)
    starts = plan_starts(sizes["datasets"][0], sizes["starts"], BATCHES)
    return plan_runs(sizes) + starts + plan_data(sizes["datasets"])


STUDY = Study(
    name="bivariate",
    title="Functional dimension tracks task complexity: two inputs",
    paper="Empirical NTK tracks task complexity",
    figure="figures 8 and 9",
    plan=plan,
    run_task=run_task,
    claims=(
        *both_ranks("rank-deficient", DEFICIENT, "section 6", deficient_at_start),
        *both_ranks("below-60", f"{BELOW} (400 points).", "section 6", below_at_start, limit=60),
        *both_ranks(
            "below-60-of-100",
            f"{BELOW} (for a 100 x 371 matrix).",
            "section 6",
            below_at_start,
            limit=60,
            batch=BATCHES[1],
        ),
        *both_ranks("rises-then-settles", RISES, "sections 1 and 6, figure 9", rises_then_settles),
        *both_ranks(
            "ordered",
            "The functional dimension in the end reflects the complexity of the task: g1, g2, g3.",
            "section 6, figure 9",
            ordered,
            order=BIVARIATE,
        ),
        *both_ranks(
            "correlated",
            "The number of linear regions sampled is strongly correlated with the rank (not shown for two inputs).",
            "section 1",
            correlated,
        ),
        *BOUND_CLAIMS,
    ),
    cost={"quick": 45.0, "paper": 450.0},
    options=OPTIONS,
    pictures=(
        Picture(
            "data",
            "Functions and data sets (figure 8)",
            x="x1",
            y="x2",
            colour="y",
            panels="dataset",
            where={"record": "data"},
            style="surface",
            caption="Colours: the values. Points: the 400 inputs.",
            words=WORDS,
        ),
        *trajectory_pictures("figure 9"),
        *bound_pictures(),
    ),
    summarise=summarise,
)
