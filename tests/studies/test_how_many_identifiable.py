"""The study of full functional dimension: its rows, its claims at a small size and on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.plot.studies import study_figure
from fiberscope.studies.how_many_identifiable import DECAYS, PARTS, STUDY, drawn, measure
from fiberscope.studies.lab.shares import differs, newcombe, wilson
from fiberscope.studies.lab.study import Picture
from fiberscope.studies.lab.table import Table

SMALL = {
    "networks": 1,
    "others": 1,
    "depths": [1, 2],
    "widths": [2],
    "squares": [2],
    "epochs": [5],
    "schemes": ["he", "xavier"],
}


@pytest.fixture(scope="module")
def small() -> Table:
    rows: list[Any] = []
    for task in STUDY.tasks("quick", SMALL):
        rows += STUDY.run_task(task)
    return Table.of(rows)


def test_rows_of_a_small_plan(small: Table) -> None:
    assert len(small.where(record="run")) == 2 * len(DECAYS)
    assert set(small.where(record="start").column("scheme")) == {"he", "xavier"}
    assert len(small.where(square=True, depth=2)) == 1  # the square of two inputs is in the grid already
    assert len(STUDY.summarise(small)) == len(small)
    for row in small.dicts():
        assert row["lower"] <= row["upper"] <= row["needed"]
        assert row["full"] is (row["exact"] == row["needed"])  # two and fewer inputs: all is decided
        if row["unexplained"] is not None:
            assert sum(row[kind] for kind in PARTS) == row["shortfall"]


def test_what_must_hold_holds(small: Table) -> None:
    words = {verdict.claim: verdict.holds for verdict in STUDY.judge(small)}
    assert words["upper-bound"] is True
    assert words["theorems"] is True


def test_shortfalls_of_known_networks() -> None:
    rigid = Network([np.eye(2), [[1.0, -2.0], [-1.5, 1.0]], [[1.0, 2.0]]], [[0.5, 0.25], [0.5, 0.75], [0.0]])
    dead = Network([np.eye(2), [[-1.0, -2.0], [-1.5, 1.0]], [[1.0, 2.0]]], [[0.5, 0.25], [-0.5, 0.75], [0.0]])
    assert measure(rigid, 0)["full"] is True
    found = measure(dead, 0)
    # four weights of the dead neuron, its rescaling among them: three are missing beyond rescalings
    assert (found["full"], found["shortfall"], found["dead"], found["unexplained"]) == (False, 3, 3, 0)
    assert found["identifiable"] is False and found["fiber"] == 3


def test_small_biases_have_a_tenth_for_their_deviation() -> None:
    net = drawn((3, 400, 1), 0, "small")
    assert abs(net.biases[0].std() - 0.1) < 0.02
    assert np.array_equal(net.weights[0], drawn((3, 400, 1), 0, "he").weights[0])


def by_hand(shares: dict[tuple[int, int, int], float], gained: int = 0, lost: int = 0, **more: Any) -> Table:
    """100 networks in every cell ``(inputs, depth, width)``, and 100 in training that change their answers."""
    rows: list[dict[str, Any]] = []
    usual = {"needed": 9, "exact": 9, "lower": 9, "numerical": 9, "decisive": True, "shortfall": 0, "sampled": 9}
    usual |= {"sampled_more": 9, "identifiable": True, "fiber": 0, "fiber_exact": True, **dict.fromkeys(PARTS), **more}
    for (inputs, depth, width), share in shares.items():
        about = {"record": "start", "inputs": inputs, "depth": depth, "width": width, "scheme": "he", "epoch": 0}
        about |= {"square": inputs == width, "decay": None}
        rows += [{**about, "network": k, "full": k < 100 * share, **usual} for k in range(100)]
    for decay in DECAYS:
        for k in range(100):
            about = {"record": "run", "inputs": 2, "depth": 2, "width": 5, "scheme": "he", "decay": decay, "network": k}
            before = k < 50
            after = k >= lost if before else k < 50 + gained
            rows += [{**about, "square": False, "epoch": e, "full": a, **usual} for e, a in ((0, before), (9, after))]
    return Table.of(rows)


UP = {(2, 2, 2): 0.53, (2, 2, 5): 0.53, (3, 2, 3): 0.67, (3, 2, 5): 0.9, (2, 3, 2): 0.1, (2, 3, 5): 0.2, (3, 3, 5): 0.5}
DOWN = {**UP, (2, 2, 5): 0.1, (2, 3, 5): 0.5}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            by_hand(UP),
            {"depth": True, "inputs": True, "width": None, "width-alone": True, "signs": True, "sampled": True},
        ),
        (by_hand(DOWN), {"width-alone": False, "depth": False, "training": True, "weight-decay": True}),
        (by_hand(UP, gained=20), {"training": False, "weight-decay": False}),
        (by_hand(UP, gained=8, lost=8), {"training": None}),
        (by_hand(UP, numerical=10), {"upper-bound": False}),
        (by_hand(UP, sampled_more=8), {"sampled": False}),
        (by_hand(UP, fiber=1), {"theorems": False}),
        (by_hand(UP, shortfall=2, **dict.fromkeys(PARTS, 0)), {"reasons": True, "theorems": False}),
        (by_hand(UP, shortfall=2, **dict.fromkeys(PARTS, 1)), {"reasons": False}),
        (by_hand({**UP, (3, 2, 3): 0.2}), {"signs": False}),
    ],
)
def test_claims_on_tables_made_by_hand(table: Table, expected: dict[str, bool | None]) -> None:
    found = {verdict.claim: verdict.holds for verdict in STUDY.judge(table)}
    assert {name: found[name] for name in expected} == expected


def test_undecided_networks_leave_a_trend_open() -> None:
    shares = {(2, 2, 5): 0.2, (3, 2, 5): 0.9}
    rows = [
        {**row, "full": None if row["full"] and row["inputs"] == 3 else row["full"]} for row in by_hand(shares).dicts()
    ]
    assert next(v for v in STUDY.judge(Table.of(rows)) if v.claim == "inputs").holds is None


def test_intervals_of_shares() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        a, b = rng.binomial(40, 0.3), rng.binomial(60, 0.7)
        low, high = newcombe((int(a), 40), (int(b), 60))
        inside += low <= 0.4 <= high
    assert 180 <= inside <= 199
    low, high = wilson(0, 20)
    assert low == 0 and 0.1 < high < 0.2
    assert differs([False] * 30, [True] * 30) == 1
    assert differs([False] * 30 + [None] * 30, [True] * 30 + [False] * 30) == 0
    with pytest.raises(InputError, match="of none"):
        newcombe((0, 0), (1, 2))


def test_shares_are_drawn_with_intervals() -> None:
    table = Table.of([{"depth": d, "full": k < 3, "width": w} for d in (1, 2) for w in (3, 5) for k in range(4)])
    (ax,) = study_figure(table, Picture("s", "Shares", x="depth", y="full", lines="width", style="share"))
    assert [container.get_label() for container in ax.containers] == ["width 3", "width 5"]
    low, high = wilson(3, 4)
    (bars,) = ax.containers[0].lines[2]
    assert bars.get_segments()[0][:, 1] == pytest.approx([low, high])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"networks": 0}, "positive integer"),
        ({"others": 0}, "positive integer"),
        ({"depths": [0]}, "integers from 1"),
        ({"epochs": [-1]}, "integers from 0"),
        ({"schemes": ["hee"]}, "did you mean he"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        STUDY.tasks("quick", options)
