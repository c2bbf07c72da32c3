"""The study of recovery: a small plan, and its claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fiberscope.errors import InputError
from fiberscope.studies.lab.table import Table
from fiberscope.studies.recovery import STUDY, smooth

SMALL = {"networks": 1, "widths": [[3, 3, 1]], "epochs": [0, 2]}


def test_rows_of_a_small_plan() -> None:
    (task,) = STUDY.tasks("quick", SMALL)
    rows = list(STUDY.run_task(task))
    assert [row["epoch"] for row in rows] == [0, 2]
    assert all(row["parameters"] == 16 and row["queries"] > 0 and row["seconds"] > 0 for row in rows)
    assert all((row["reason"] is None) == row["recovered"] and not row["false"] for row in rows)
    again = STUDY.run_task(task)
    for one, two in zip(rows, again, strict=True):
        assert {**one, "seconds": 0} == {**two, "seconds": 0}
    assert len(STUDY.summarise(Table.of(rows))) == 2


def row(**changes: Any) -> dict[str, Any]:
    about = {"hidden_layers": 1, "recovered": True, "false": False, "queries": 100, "parameters": 10}
    return {**about, **changes}


def test_claims_on_tables_made_by_hand() -> None:
    claims = {claim.name: claim.check for claim in STUDY.claims}
    good = Table.of([row(), row(hidden_layers=2, recovered=False)])
    assert claims["nothing-false"](good).holds is True and claims["deep-is-hard"](good).holds is True
    assert claims["few-queries"](good).holds is True
    bad = Table.of([row(false=True, queries=10_000), row(hidden_layers=2)])
    assert claims["nothing-false"](bad).holds is False and claims["deep-is-hard"](bad).holds is False
    assert claims["few-queries"](bad).holds is False
    assert claims["deep-is-hard"](Table.of([row()])).holds is None


@pytest.mark.parametrize("options", [{"widths": [[1, 3, 1]]}, {"widths": [[3, 3, 2]]}, {"networks": 0}, {"epochs": []}])
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected"):
        STUDY.tasks("quick", {**SMALL, **options})


def test_the_data_are_the_same_in_every_run() -> None:
    assert smooth(4).sha256 == smooth(4).sha256 and smooth(4).inputs.shape == (400, 4)
