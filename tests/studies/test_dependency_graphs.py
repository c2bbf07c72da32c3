"""The study of dependency graphs: its rows against slow counts, its claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box
from fiberscope.geometry.regions import regions
from fiberscope.network.network import Network
from fiberscope.studies.dependency_graphs import DOMAINS, STUDY, measure
from fiberscope.studies.lab.table import Table

SMALL = {"networks": 2, "widths": [[2, 4, 3, 1]], "datasets": ["g1"], "epochs": [0, 3]}


def test_rows_of_a_small_plan() -> None:
    (task,) = STUDY.tasks("quick", SMALL)
    rows = STUDY.run_task(task)
    assert len(rows) == 2 * 2 * len(DOMAINS)
    assert [row["epoch"] for row in rows] == [0] * 4 + [3] * 4
    assert rows == STUDY.run_task(task)
    for row in rows:
        assert row["first_identified_fraction"] <= row["first_straight_fraction"] <= row["first_crossing_fraction"]
        assert row["visible_fraction"] <= row["crossing_fraction"]
        assert row["bending_violations"] == 0
        assert (row["loss"] is None) == (row["epoch"] == 0)
        assert row["is_surface"] or not row["transparent"]
    assert len(STUDY.summarise(Table.of(rows))) == 4


@pytest.mark.parametrize("seed", range(3))
def test_fractions_against_gradients_on_both_sides(seed: int) -> None:
    """A unit shows if the gradient jumps at one of its facets; it crosses if both of its signs occur."""
    net, box = Network.random((2, 5, 4, 1), seed), Box.cube(2)
    complex, row = regions(net, box), measure(net, box)
    seen = np.zeros(9, dtype=bool)
    for facet in np.flatnonzero(~complex.facets.boundary).tolist():
        a, b = (net.affine_at(complex.points[r]).matrix for r in complex.facets.regions[facet])
        if np.abs(a - b).max() > 1e-12:
            seen[complex.facets.neurons[facet]] = True
    signs = complex.sign_vectors
    crossing = (signs > 0).any(axis=0) & (signs < 0).any(axis=0)
    assert row["visible_fraction"] == pytest.approx(seen.mean())
    assert row["crossing_fraction"] == pytest.approx(crossing.mean())
    assert row["first_crossing_fraction"] == pytest.approx(crossing[:5].mean())
    blocked = [(signs[:, part] < 0).all(axis=1).any() for part in (slice(0, 5), slice(5, 9))]
    assert row["transparent"] == (not any(blocked))


def test_a_network_without_folds() -> None:
    row = measure(Network([np.zeros((3, 2)), np.ones((1, 3))], [np.ones(3), [0.0]]), Box.cube(2))
    assert row["pieces"] == row["order"] == row["longest_chain"] == 0
    assert row["loose_fraction"] == 0.0 and row["is_surface"] and not row["well_connected"]


def table(**changes: Any) -> Table:
    row = {
        "epoch": 0,
        "hidden_layers": 2,
        "order": 2,
        "transparent": True,
        "is_surface": True,
        "well_connected": True,
        "first_identified_fraction": 1.0,
        "wrong_pieces": 0,
        "lemma_violations": 0,
        "bending_violations": 0,
    }
    return Table.of([{**row, "domain": name, "epoch": e} | (changes if e else {}) for name in DOMAINS for e in (0, 5)])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            table(),
            {
                "not-well-connected": False,
                "transparent": True,
                "surface": True,
                "chains": True,
                "identified-as-such": True,
            },
        ),
        (
            table(well_connected=False, transparent=False, is_surface=False, lemma_violations=1, wrong_pieces=1),
            {
                "not-well-connected": True,
                "transparent": False,
                "surface": True,
                "chains": False,
                "identified-as-such": False,
            },
        ),
        (
            table(is_surface=False),
            {
                "not-well-connected": False,
                "transparent": True,
                "surface": False,
                "chains": True,
                "identified-as-such": True,
            },
        ),
        (
            Table.of([{"transparent": False, "domain": "elsewhere", "epoch": 1}]),
            dict.fromkeys(["not-well-connected", "transparent", "surface", "chains", "identified-as-such"]),
        ),
    ],
)
def test_claims_can_hold_fail_and_stay_open(rows: Table, expected: dict[str, bool | None]) -> None:
    assert {verdict.claim: verdict.holds for verdict in STUDY.judge(rows)} == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("widths", [[3, 4, 1]], "two inputs"),
        ("widths", [[2, 1]], "two inputs"),
        ("datasets", ["g4"], "did you mean g"),
        ("networks", 0, "positive integer"),
        ("epochs", [0], "times from 0 up"),
    ],
)
def test_bad_options(name: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        STUDY.tasks("quick", {name: value})


def test_seeds_of_tasks_do_not_meet() -> None:
    tasks = STUDY.tasks("quick", {})
    seeds = [(task.seed + k) % 2**31 for task in tasks for k in range(task.settings["count"])]
    assert len(set(seeds)) == len(seeds)
