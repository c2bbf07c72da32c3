"""Functional dimension through training on three univariate tasks of increasing complexity (figures 1 and 2).

Three sums of sines on an interval, 100 noisy points, networks of four hidden layers of ten. At recorded epochs the rank
of the Jacobian on all points is found three times: by the paper's rule in float32, in float64, and exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fiberscope.studies._pictures import WORDS, bound_pictures, trajectory_pictures
from fiberscope.studies._runs import OPTIONS, UNIVARIATE, plan_data, plan_runs, plan_starts, run_task, settle
from fiberscope.studies._verdicts import (
    BOUND_CLAIMS,
    DEFICIENT,
    MORE_REGIONS,
    RISES,
    below_at_start,
    both_ranks,
    deficient_at_start,
    more_regions_than_rank,
    no_overfit,
    ordered,
    rises_then_settles,
    summarise,
)
from fiberscope.studies.lab.study import Claim, Picture, Study

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 5, "epochs": 1000, "every": 100, "starts": 60},
    "paper": {"runs": 15, "epochs": 5000, "every": 50, "starts": 400},
}
"""The paper does not say how long it trains."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs of every task, initialisations (all three tasks have the same inputs), and the data."""
    sizes = settle({"datasets": list(UNIVARIATE), **SIZES[scale]}, options, UNIVARIATE)
    return plan_runs(sizes) + plan_starts(sizes["datasets"][0], sizes["starts"]) + plan_data(sizes["datasets"])


STUDY = Study(
    name="univariate",
    title="Functional dimension tracks task complexity: one input",
    paper="Empirical NTK tracks task complexity",
    figure="figures 1 and 2",
    plan=plan,
    run_task=run_task,
    claims=(
        *both_ranks("rank-deficient", DEFICIENT, "section 6", deficient_at_start),
        *both_ranks(
            "below-20",
            "For the univariate experiments the functional dimension at initialization is on average below 20.",
            "section 6",
            below_at_start,
            limit=20,
        ),
        *both_ranks("rises-then-settles", RISES, "sections 1 and 6, figure 2", rises_then_settles),
        *both_ranks(
            "ordered",
            "More complex data sets tend to result in functions that have higher functional dimension: f1, f2, f3.",
            "section 6, figure 2",
            ordered,
            order=UNIVARIATE,
        ),
        *both_ranks(
            "more-regions",
            MORE_REGIONS,
            "section 1",
            more_regions_than_rank,
        ),
        Claim(
            "no-overfit",
            "Although the networks are overparameterized, the learned functions do not overfit.",
            "figure 7",
            no_overfit,
        ),
        *BOUND_CLAIMS,
    ),
    cost={"quick": 45.0, "paper": 300.0},
    options=OPTIONS,
    pictures=(
        Picture(
            "data",
            "Functions and data sets (figure 1)",
            x="x1",
            y="y",
            panels="dataset",
            x_label="x",
            where={"record": "function"},
            style="curve",
            behind={"record": "data"},
            caption="Lines: the functions. Points: 100 samples with noise on inputs and outputs.",
            words=WORDS,
        ),
        *trajectory_pictures("figure 2"),
        *bound_pictures(),
    ),
    summarise=summarise,
)
