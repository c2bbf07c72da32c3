"""The study of conservation: its rows, its claims at a small size and on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.studies.conservation import FIRST_STEP, STUDY, problem
from fiberscope.studies.lab.table import Table

SMALL = {"networks": 2, "halvings": 2, "widths": [[2, 4, 3, 1]]}


@pytest.fixture(scope="module")
def small() -> Table:
    rows: list[Any] = []
    for task in STUDY.tasks("quick", SMALL):
        rows += STUDY.run_task(task)
    return Table.of(rows)


def test_rows_of_a_small_plan(small: Table) -> None:
    descents = small.where(kind="descent")
    assert len(descents) == 2 * 2 * 3
    assert sorted(set(descents.column("step"))) == [FIRST_STEP / 4, FIRST_STEP / 2, FIRST_STEP]
    assert all(end < start for start, end in zip(*map(descents.column, ("loss_start", "loss_end")), strict=True))
    assert min(descents.column("active")) >= 4
    assert len(small.where(kind="translation")) == 2
    assert len(STUDY.summarise(small)) == 2 * 3


def test_claims_hold_at_a_small_size(small: Table) -> None:
    assert {verdict.claim: verdict.holds for verdict in STUDY.judge(small)} == dict.fromkeys(
        ("per-neuron", "linear-blocks", "only-there", "weight-decay", "translation"), True
    )


def test_rows_do_not_depend_on_anything_but_the_task() -> None:
    task = STUDY.tasks("quick", SMALL | {"halvings": 1, "networks": 1})[0]
    assert STUDY.run_task(task) == STUDY.run_task(task)


def test_the_problem_has_active_neurons() -> None:
    for seed in range(10):
        net, X, Y = problem([3, 5, 4, 2], np.random.default_rng(seed))
        assert Y.shape == (len(X), 2)
        assert all((z[:, :2] > 0).all() for z in net.preactivations(X))


def by_hand(power: float, others: float, final: float, curl: float) -> Table:
    rows: list[dict[str, Any]] = []
    for step in (0.02, 0.01, 0.005):
        for decay in (0.0, 0.3):
            drift = 1e-3 * (step / 0.02) ** power
            rows.append({"kind": "descent", "widths": "2-2-1", "network": 0, "decay": decay, "step": step})
            rows[-1] |= {"drift_neurons": drift, "drift_off_diagonal": drift, "moved": 1.0, "final": final}
            rows[-1]["drift_others"] = 0.1 * (step / 0.02) ** others
    rows.append({"kind": "translation", "along": 1e-16, "curl": curl})
    return Table.of(rows)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (by_hand(1.0, 0.0, np.exp(-0.6), 0.1), [True, True, True, True, True]),
        (by_hand(0.0, 1.0, 1.0, 0.0), [False, False, False, False, False]),
        (by_hand(1.0, 0.0, np.exp(-0.6), 0.1).where(kind="translation"), [None, None, None, None, True]),
    ],
)
def test_claims_can_hold_fail_and_stay_open(table: Table, expected: list[bool | None]) -> None:
    assert [verdict.holds for verdict in STUDY.judge(table)] == expected


def test_bad_options() -> None:
    for options in ({"networks": 0}, {"halvings": 0}, {"widths": [[2, 1]]}, {"widths": [[2, 0, 1]]}, {"widths": 3}):
        with pytest.raises(InputError, match="option"):
            STUDY.tasks("quick", options)
