"""Weight decay and the functional dimension (figure 4): three decay rates on the task f2, the same seeds for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fiberscope.errors import InputError
from fiberscope.studies._pictures import bound_pictures, trajectory_pictures
from fiberscope.studies._runs import OPTIONS, UNIVARIATE, plan_runs, run_task, settle
from fiberscope.studies._verdicts import (
    BOUND_CLAIMS,
    RISES,
    both_ranks,
    ordered,
    rises_then_settles,
    summarise,
)
from fiberscope.studies.lab.study import Study

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 5, "epochs": 1000, "every": 100},
    "paper": {"runs": 10, "epochs": 5000, "every": 50},
}
DECAYS = (0.0, 1e-4, 1e-3)


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs of every decay."""
    sizes = settle({"datasets": ["f2"], "decays": list(DECAYS), "starts": 0, **SIZES[scale]}, options, UNIVARIATE)
    decays = [float(decay) for decay in sizes["decays"]]
    if not decays or min(decays) < 0:
        raise InputError(f"option decays: expected numbers of at least 0, got {sizes['decays']!r}")
    return plan_runs(sizes, decays)


STUDY = Study(
    name="weight-decay",
    title="Weight decay damps the functional dimension",
    paper="Empirical NTK tracks task complexity",
    figure="figure 4",
    plan=plan,
    run_task=run_task,
    claims=(
        *both_ranks(
            "damped",
            "Higher weight decay leads to trained functions with lower functional dimension: 0, 1e-4, 1e-3.",
            "sections 1 and 6, figure 4",
            ordered,
            order=tuple(reversed(DECAYS)),
            by="weight_decay",
        ),
        *both_ranks("rises-then-settles", RISES, "sections 1 and 6", rises_then_settles, by="weight_decay"),
        *BOUND_CLAIMS,
    ),
    cost={"quick": 45.0, "paper": 110.0},
    options={**{name: OPTIONS[name] for name in ("runs", "epochs", "every", "layers")}, "decays": None},
    pictures=(
        *trajectory_pictures("figure 4", "weight_decay", "decay"),
        *bound_pictures("weight_decay", "decay"),
    ),
    summarise=summarise,
)
