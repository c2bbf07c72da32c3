"""Barriers as trained and after alignment: rows against the networks, claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fiberscope.connectivity.barrier import barrier
from fiberscope.errors import InputError
from fiberscope.modules.models import mlp
from fiberscope.studies import mode_connectivity as study
from fiberscope.studies.lab.table import Table


def test_rows_of_a_pair_against_the_networks() -> None:
    data = study.task_data("digits", 300)
    assert data.test_inputs is not None and len(data.inputs) + len(data.test_inputs) == 300
    a, b = (mlp((64, 6, 10), seed) for seed in (0, 1))
    rows = study.along(a, b, data)
    assert [row["path"] for row in rows] == [path for path in study.PATHS for _ in range(study.POINTS)]
    X, y = np.array(data.flat_inputs, dtype=np.float32), np.array(data.targets)
    assert rows[0]["barrier"] == pytest.approx(barrier(a, b, "cross_entropy", (X, y), 9).barrier)
    assert np.isnan(rows[0]["identity"]) and rows[9]["accuracy"] == pytest.approx(rows[0]["accuracy"])
    ends = [float((net(torch.from_numpy(X)).argmax(1).numpy() == y).mean()) for net in (a, b)]
    assert [rows[0]["train_at"], rows[8]["train_at"]] == pytest.approx(ends)
    assert [row["t"] for row in rows[:9]] == pytest.approx(np.linspace(0, 1, 9))
    assert (rows[0]["test_at"] + rows[8]["test_at"]) / 2 == pytest.approx(rows[0]["accuracy"])
    made = study.summarise(Table.of([{"kind": "standard", "pair": k, **row} for k in range(2) for row in rows]))
    assert made.dicts()[0]["deviation"] == 0 and made.dicts()[0]["barrier"] == rows[0]["barrier"]


def test_a_task_trains_pairs() -> None:
    tasks = study.STUDY.tasks("quick", {"pairs": 1, "epochs": 1, "width": 8})
    assert [task.settings["kind"] for task in tasks] == list(study.KINDS)
    rows = study.run_task(tasks[2])
    assert {row["kind"] for row in rows} == {"centre-dominated"} and len(rows) == 3 * study.POINTS
    with pytest.raises(InputError, match="option width"):
        study.STUDY.tasks("quick", {"width": 0})


def test_the_last_pairs_are_the_tasks_of_the_whole() -> None:
    """Their results fit into the folder of the whole study."""
    assert study.STUDY.tasks("paper", {"first": 3}) == study.STUDY.tasks("paper", {})[12:]
    with pytest.raises(InputError, match="option first: expected one of the pairs 0 to 4, got 5"):
        study.STUDY.tasks("paper", {"first": 5})


@pytest.mark.parametrize(("net", "width"), [("resnet20", 1), ("vit", 8)])
def test_residual_networks_and_transformers(net: str, width: int) -> None:
    """Every kind starts from other weights and the same fixed parts; one of them is trained and measured."""
    options = {"net": net, "pairs": 1, "epochs": 1, "width": width, "limit": 20}
    tasks = study.STUDY.tasks("quick", options)
    data = study.task_data("digits", 20)
    assert len(data.inputs) == 16
    for kind, about in study.KINDS.items():
        a, b = (study.untrained(net, width, data, seed, **about) for seed in (0, 1))
        shared = [name for name, value in a.named_buffers() if name.endswith(".F")]
        assert bool(shared) == (kind != "standard")
        assert all(torch.equal(a.get_buffer(name), b.get_buffer(name)) for name in shared)
        assert not all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    rows = study.run_task(tasks[0 if net == "vit" else 2])
    assert {row["path"] for row in rows} == set(study.PATHS) and all(np.isfinite(row["barrier"]) for row in rows)
    assert (study.COUPLED in {task.settings["kind"] for task in tasks}) == (net == "vit")
    with pytest.raises(InputError, match="option net"):
        study.STUDY.tasks("quick", {"net": "lstm"})


def table(**values: float) -> Table:
    """Barriers by kind and path; 1 where nothing is said."""
    rows: list[dict[str, Any]] = [
        {"kind": kind, "path": path, "t": study.MIDDLE, "barrier": values.get(f"{kind}/{path}", 1.0)}
        for kind in study.KINDS
        for path in study.PATHS
    ]
    return Table.of(rows)


def test_claims_hold_and_fail() -> None:
    low = {"standard/weights": 0.1, "standard/activations": 0.2}
    assert study.aligned(table(**low)).holds and not study.aligned(table(**{"standard/weights": 0.1})).holds
    assert study.mask_alone(table()).holds and not study.mask_alone(table(**{"mask alone/as trained": 0.2})).holds
    known = {"centre-dominated/as trained": 0.05, "syre/as trained": 0.01}
    assert study.identified(table(**known)).holds and not study.identified(table()).holds
