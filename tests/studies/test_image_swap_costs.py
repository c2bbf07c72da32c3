"""Swap costs by architecture: rows of a small run against the network's own numbers, claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.plot.studies import study_figure
from fiberscope.studies import image_swap_costs as study
from fiberscope.studies.lab.table import Table

SMALL = {"width": 6, "runs": 1, "epochs": 1, "swaps": 2, "map": 3, "ridge_map": 2, "limit": 60}


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
        ridge = {(row["i"], row["j"]): row["ridge"] for row in table.where(record="map", layer=layer).dicts()}
        assert ridge[0, 1] == ridge[1, 0] == pytest.approx(pair["ridge_swap"], abs=1e-6) and ridge[0, 0] == 0
        assert [place for place, value in ridge.items() if value is None] == [place for place in ridge if 2 in place]
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
    with pytest.raises(InputError, match="option ridge_map: expected at most 3, got 4"):
        study.STUDY.tasks("quick", {**SMALL, "ridge_map": 4})
    with pytest.raises(InputError, match="option limit"):
        study.STUDY.tasks("quick", {"limit": 0})


def test_maps_are_drawn_with_one_scale_of_colours() -> None:
    rows = [
        {"record": "map", "kind": kind, "run": 0, "layer": 1, "i": i, "j": j, "root": sign * (i + j), "ridge": ridge}
        for kind, sign in (("standard", 1.0), ("syre", -2.0))
        for i in range(3)
        for j in range(3)
        for ridge in (float(i * j) if i < 2 and j < 2 else None,)
    ]
    maps, ridges = (next(p for p in study.STUDY.pictures if p.name == name) for name in ("maps", "ridge-maps"))
    first, second = (ax.get_images()[0] for ax in study_figure(Table.of(rows), maps))
    assert first.get_clim() == second.get_clim() == (-8.0, 8.0)
    assert np.asarray(second.get_array()).tolist() == [[-2.0 * (i + j) for j in range(3)] for i in range(3)]
    assert np.asarray(study_figure(Table.of(rows), ridges)[0].get_images()[0].get_array()).shape == (2, 2)
