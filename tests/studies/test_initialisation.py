"""The study of initialisation against counts made the slow way, and its claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiberscope.network.network import Network
from fiberscope.studies.initialisation import BATCHES, STUDY
from fiberscope.studies.lab.table import Table


def test_rows_against_the_definition() -> None:
    options = {"seeds": 2, "widths": [4], "depths": [2], "batches": ["segment", "circle"]}
    for task in STUDY.tasks("quick", options):
        X = BATCHES[task.settings["batch"]]()
        for index, row in enumerate(STUDY.run_task(task)):
            net = Network.random((X.shape[1], 4, 4, 1), np.random.default_rng([task.seed, index]))
            patterns = [tuple(np.concatenate([z[0] > 0 for z in net.preactivations(x[None])])) for x in X]
            assert row["regions"] == len(set(patterns))
            counts = [patterns.count(p) for p in set(patterns)]
            assert row["region_bound"] == sum(min(c, X.shape[1] + 1) for c in counts)
            active = np.array(patterns)
            assert row["dead"] == int((~active).all(axis=0).sum())
            assert row["linear"] == int(active.all(axis=0).sum())
            assert row["dead"] + row["linear"] + row["switching"] == row["neurons"] == 8


def rows(regions: int, bound: int, switching: int, batch: str = "segment") -> list[dict[str, Any]]:
    row = {
        "batch": batch,
        "width": 10,
        "depth": 4,
        "points": 100,
        "neurons": 40,
        "regions": regions,
        "region_bound": bound,
        "switching": switching,
    }
    return [row, row]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            Table.of(rows(5, 10, 20) + rows(40, 0, 0, "circle")),
            {"rank-deficient": True, "below-20": True, "fixed-neurons": True, "close-to-neurons": True},
        ),
        (
            Table.of(rows(90, 100, 40) + rows(90, 0, 0, "circle")),
            {"rank-deficient": None, "below-20": None, "fixed-neurons": False, "close-to-neurons": False},
        ),
        (
            Table.of(rows(5, 25, 39) + rows(10, 0, 0, "circle")),
            {"rank-deficient": True, "below-20": None, "fixed-neurons": True, "close-to-neurons": None},
        ),
        (
            Table.of(rows(5, 25, 39, "square")),
            {"rank-deficient": None, "below-20": None, "fixed-neurons": None, "close-to-neurons": None},
        ),
    ],
)
def test_claims_can_hold_fail_and_stay_open(table: Table, expected: dict[str, bool | None]) -> None:
    assert {verdict.claim: verdict.holds for verdict in STUDY.judge(table)} == expected
