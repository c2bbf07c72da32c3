"""Functional dimension through training on real data (figure 3): heating against cooling load of 768 buildings.

The file of the UCI data set is looked for as :func:`fiberscope.training.datasets.loading.load_dataset` does. Features
are standardised (the paper does not say what it does) by short binary numbers, so that the relation
*surface = wall + 2 roof* survives: with rounded features the exact rank would count rounding errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fiberscope.errors import InputError
from fiberscope.studies._pictures import bound_pictures, trajectory_pictures
from fiberscope.studies._runs import ENERGY, OPTIONS, plan_runs, plan_starts, run_task, settle
from fiberscope.studies._verdicts import (
    BOUND_CLAIMS,
    DEFICIENT,
    RISES,
    below_at_start,
    both_ranks,
    deficient_at_start,
    ordered,
    rises_then_settles,
    summarise,
)
from fiberscope.studies.lab.study import Study

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 4, "epochs": 100, "every": 25, "starts": 10},
    "paper": {"runs": 10, "epochs": 1000, "every": 25, "starts": 60},
}
"""The paper does not say how long it trains."""


SCALINGS = ("standardised", "raw targets", "unit", "raw")
"""What may be done to the numbers before training: see :func:`fiberscope.studies._runs.load_data`."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs of both targets with the same seeds, and initialisations on standardised and on raw features."""
    sizes = settle({"datasets": list(ENERGY), **SIZES[scale]}, options, ENERGY)
    scaling = sizes["scaling"]
    if scaling not in SCALINGS:
        raise InputError(f"option scaling: expected one of {', '.join(SCALINGS)}, got {scaling!r}")
    other = {} if scaling == SCALINGS[0] else {"batch": scaling}
    runs = [{**settings, **other} for settings in plan_runs(sizes)]
    return runs + plan_starts(sizes["datasets"][0], sizes["starts"], ("", "raw"))


STUDY = Study(
    name="energy",
    title="Functional dimension tracks task complexity: heating and cooling load",
    paper="Empirical NTK tracks task complexity",
    figure="figure 3",
    plan=plan,
    run_task=run_task,
    claims=(
        *both_ranks("rank-deficient", DEFICIENT, "section 6", deficient_at_start),
        *both_ranks(
            "below-400",
            "For the Energy Efficiency experiments the functional dimension at initialization is on average below 400.",
            "section 6",
            below_at_start,
            limit=400,
        ),
        *both_ranks("rises-then-settles", RISES, "sections 1 and 6, figure 3", rises_then_settles),
        *both_ranks(
            "ordered",
            "Cooling load, the more difficult task, ends with a higher functional dimension than heating load.",
            "section 6, figure 3",
            ordered,
            order=ENERGY,
        ),
        *BOUND_CLAIMS,
    ),
    cost={"quick": 100.0, "paper": 400.0},
    options={**OPTIONS, "scaling": SCALINGS[0]},
    pictures=(*trajectory_pictures("figure 3"), *bound_pictures()),
    summarise=summarise,
)
