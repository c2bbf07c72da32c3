"""Barriers predicted from early quantities: R^2 is that of settings never seen, and knows its error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fiberscope.errors import InputError
from fiberscope.studies import barrier_prediction as study
from fiberscope.studies.lab.table import Table


def test_a_task_has_rows_of_every_pair_and_epoch() -> None:
    tasks = study.STUDY.tasks(
        "quick", {"pairs": 1, "epochs": 2, "width": 8, "sigmas": [0.0, 1.0], "moments": [0, 1, 5]}
    )
    kinds = [(task.settings["architecture"], task.settings["sigma"]) for task in tasks]
    assert kinds == [("standard", 0.0), ("w", 0.0), ("w", 1.0), ("syre", 1.0)]
    rows = {kind: study.run_task(task) for kind, task in zip(kinds, tasks, strict=True)}
    for found in rows.values():
        assert [row["epoch"] for row in found] == [0, 1] and len({row["barrier"] for row in found}) == 1
        assert all(0 <= row[name] <= 1 for row in found for name in study.QUANTITIES)
    assert rows["standard", 0.0][0]["gap"] == 0 < rows["w", 1.0][0]["gap"]  # without fixed weights no centres differ
    assert rows["standard", 0.0][0]["swap"] < rows["w", 1.0][0]["swap"]


def test_static_noise_has_no_scales() -> None:
    net = study.model("syre", (8, 4, 2), 0, epsilon=0.0)
    part = net.get_submodule("linear0").parametrizations.weight[0]
    assert torch.equal(part.D, torch.ones_like(part.D)) and bool((part.F != 0).all())


@pytest.mark.parametrize(("name", "value"), [("sigmas", [-1.0]), ("moments", ["a"]), ("pairs", 0)])
def test_bad_options(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"option {name}"):
        study.STUDY.tasks("quick", {name: value})


def table(slope: float, noise: float, swap: float = 0.0) -> Table:
    rng = np.random.default_rng(0)
    rows = []
    for k in range(12):
        gap, setting = k / 12, float(rng.normal())
        for pair in range(3):
            value = slope * gap + noise * (setting + 0.1 * float(rng.normal()))
            row = {
                "architecture": "w" if k % 2 else "syre",
                "sigma": float(k),
                "pair": pair,
                "barrier": value,
                "gap": gap,
            }
            rows += [{**row, "epoch": epoch, "coherence": 0.5, "swap": swap * setting} for epoch in (0, 3)]
    return Table.of(rows)


def test_claims_hold_and_fail() -> None:
    line, luck, told = table(1.0, 0.01), table(0.0, 1.0), table(0.0, 1.0, swap=1.0)
    assert study.together(line).holds and not study.together(luck).holds
    assert study.swaps(told).holds and not study.swaps(luck).holds
    assert study.before_training(line).holds
    assert study.transfers(told).holds and not study.transfers(luck).holds
    assert np.isnan(study.transferred(line.where(architecture="w"), ["gap"]))
    assert study.explained(luck.where(epoch=0), ["gap"])[0] < 0.2  # pairs of a setting do not predict each other
    shown = study.summarise(line)
    assert len(shown) == 2 * len(study.SETS) and all(value > 0 for value in shown.column("error"))


def test_no_prediction_without_variance() -> None:
    assert np.isnan(study.explained(table(0.0, 0.0), ["gap"])[0])
    assert not study.together(table(0.0, 0.0)).holds
