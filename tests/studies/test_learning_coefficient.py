"""The study of learning coefficients: one small run, claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fiberscope.errors import InputError
from fiberscope.studies.lab.table import Table
from fiberscope.studies.learning_coefficient import HEATS, STUDY, moments


def test_a_small_run() -> None:
    options = {"runs": 1, "epochs": 20, "draws": 5, "width": 2, "datasets": ["f1"]}
    (task,) = STUDY.tasks("quick", options)
    rows = STUDY.run_task(task)
    assert [(row["epoch"], row["heat"]) for row in rows] == [(e, h) for e in moments(20) for h in HEATS]
    assert all(row["half_rank"] <= row["half_most"] <= row["parameters"] / 2 for row in rows)
    assert {row["parameters"] for row in rows} == {13}
    assert len(STUDY.summarise(Table.of(rows))) == len(rows)


def by_hand(estimates: tuple[float, float, float], met: bool = True) -> Table:
    rows: list[dict[str, Any]] = []
    for heat in HEATS:
        for epoch, rank, estimate in zip((0, 10, 20), (4.0, 6.0, 5.0), estimates, strict=True):
            row = {"dataset": "f1", "run": 0, "epoch": epoch, "heat": heat, "half_rank": rank, "half_most": rank + 1}
            found = estimate - (2 if heat == HEATS[0] else 0)
            rows.append(row | {"estimate": found, "quadratic": found, "error": 0.01, "met": met})
    return Table.of(rows)


def test_claims() -> None:
    said = {v.claim: v.holds for v in STUDY.judge(by_hand((4.5, 6.5, 5.5)))}
    assert said == {"between": True, "seen-from-afar": True, "by-the-spectrum": True, "drop-together": True}
    said = {v.claim: v.holds for v in STUDY.judge(by_hand((4.5, 6.5, 8.5)))}
    assert said["between"] is False and said["seen-from-afar"] is False and said["drop-together"] is False
    assert {v.claim: v.holds for v in STUDY.judge(by_hand((4.5, 6.5, 5.5), met=False))}["between"] is None


def test_options() -> None:
    with pytest.raises(InputError, match="option runs"):
        STUDY.tasks("quick", {"runs": 0})
    with pytest.raises(InputError, match="option datasets"):
        STUDY.tasks("quick", {"datasets": ["f9"]})
