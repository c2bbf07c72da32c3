"""Swap costs by architecture: rows of a small run against the network's own numbers, claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.studies import image_swap_costs as study
from fiberscope.studies.lab.table import Table

SMALL = {"width": 6, "runs": 1, "epochs": 1, "swaps": 2, "map": 3, "limit": 60}


@pytest.mark.parametrize("kind", range(4))
def test_rows_of_a_small_run(kind: int) -> None:
    task = study.STUDY.tasks("quick", SMALL)[kind]
    assert task.settings["kind"] == list(study.KINDS)[kind]
    rows = study.run_task(task)
    table = Table.of(rows)
    assert [len(table.where(record=name)) for name in ("layer", "ridge", "map")] == [3, 6, 27]
    for layer in (1, 2, 3):
        costs = {(row["i"], row["j"]): row["root"] for row in table.where(record="map", layer=layer).dicts()}
        assert all(costs[i, i] == 0 and costs[i, j] == pytest.approx(costs[j, i], abs=1e-6) for i, j in costs)
        pair = table.where(record="ridge", layer=layer, neuron=0).dicts()[0]
        assert pair["swap"] == pytest.approx(costs[0, 1], abs=1e-6) and np.isfinite(pair["ridge_swap"])
        if kind == 0:  # every neuron can be every other one: a swap costs nothing
            assert max(map(abs, costs.values())) < 1e-3


def table(broken: float, cheap: float, ridge: float) -> Table:
    rows: list[dict[str, Any]] = []
    for kind in study.KINDS:
        large = kind in study.BROKEN
        for layer in (1, 2):
            share = {"near": cheap if large else 0.9, "negative": 0.0, "positive": 0.1, "infinite": 0.0}
            rows.append({"record": "layer", "kind": kind, "run": 0, "layer": layer, "accuracy": 1.0, **share})
            both = {"swap": broken if large else 0.1, "ridge_swap": ridge if large else 0.1}
            rows.append({"record": "ridge", "kind": kind, "run": 0, "layer": layer, "accuracy": 1.0, **both})
    return Table.of(rows)


def test_claims_hold_and_fail() -> None:
    assert study.cheap_swaps(table(2.0, 0.0, 2.0)).holds and not study.cheap_swaps(table(2.0, 0.3, 2.0)).holds
    assert study.both_estimates(table(2.0, 0.0, 2.0)).holds
    assert not study.both_estimates(table(2.0, 0.0, 0.1)).holds
    assert len(study.summarise(table(2.0, 0.0, 2.0))) == 8
    with pytest.raises(InputError, match="option swaps: expected at most 3"):
        study.STUDY.tasks("quick", {**SMALL, "swaps": 4})
    with pytest.raises(InputError, match="option limit"):
        study.STUDY.tasks("quick", {"limit": 0})
