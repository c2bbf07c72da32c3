"""The study of identifiability through training: its rows, its claims at a small size and on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.fibers.identifiability import identifiability
from fiberscope.network.network import Network
from fiberscope.studies.identifiability_in_training import DECAYS, STUDY, TARGETS, free_directions, problem
from fiberscope.studies.lab.table import Table

SMALL = {"networks": 6, "widths": [[2, 2, 2, 1]], "epochs": [20], "targets": ["sine", "teacher"]}


@pytest.fixture(scope="module")
def small() -> Table:
    rows: list[Any] = []
    for task in STUDY.tasks("quick", SMALL):
        rows += STUDY.run_task(task)
    return Table.of(rows)


def test_rows_of_a_small_plan(small: Table) -> None:
    assert len(small) == 6 * 2 * len(DECAYS) * 2
    assert set(small.column("epoch")) == {0, 20}
    assert {type(a) for a in small.column("identifiable")} == {bool}
    for name in ("dead", "linear", "hidden", "rigid"):
        assert all(0 <= value <= 1 for value in small.column(name))
    assert len(STUDY.summarise(small)) == 2 * len(DECAYS) * 2


def test_a_network_is_identifiable_exactly_where_nothing_is_dead_linear_or_hidden(small: Table) -> None:
    columns = [small.column(name) for name in ("identifiable", "dead", "linear", "hidden")]
    for answer, *shares in zip(*columns, strict=True):
        assert answer is (not any(shares))


def test_the_dimension_agrees_with_the_rank_of_the_jacobian(small: Table) -> None:
    verdict = next(v for v in STUDY.judge(small) if v.claim == "dimension")
    assert verdict.holds is True


def test_free_directions_of_known_networks() -> None:
    rigid = Network([np.eye(2), [[1.0, -2.0], [-1.5, 1.0]], [[1.0, 2.0]]], [[0.5, 0.25], [0.5, 0.75], [0.0]])
    dead = Network([np.eye(2), [[-1.0, -2.0], [-1.5, 1.0]], [[1.0, 2.0]]], [[0.5, 0.25], [-0.5, 0.75], [0.0]])
    for net in (rigid, dead):
        assert free_directions(net) == identifiability(net).fiber_dimension
    assert free_directions(rigid) == 0
    assert free_directions(dead) == 3
    assert free_directions(Network.random((4, 2, 2, 1), 0)) is None


@pytest.mark.parametrize("targets", TARGETS)
def test_problems_have_the_shapes_of_the_network(targets: str) -> None:
    X, Y = problem([3, 2, 2, 2], targets, np.random.default_rng(0))
    assert X.shape == (len(Y), 3)
    assert Y.shape[1] == 2
    assert Y.std() > 0


def by_hand(start: int, gained: int, lost: int, agree: bool = True) -> Table:
    """40 networks 2-2-2-1 (exactly 0.531 of which are identifiable), so many identifiable at first."""
    rows: list[dict[str, Any]] = []
    for decay in DECAYS:
        for network in range(40):
            before = network < start
            after = (before and not network < lost) or (not before and network < start + gained)
            for epoch, answer in ((0, before), (100, after)):
                rows.append({"widths": "2-2-2-1", "targets": "sine", "decay": decay, "network": network})
                rows[-1] |= {"epoch": epoch, "identifiable": answer, "fiber_dimension": 0}
                rows[-1]["free_directions"] = int(not agree)
    return Table.of(rows)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (by_hand(21, 4, 4), [True, True, True, True, True]),
        (by_hand(21, 15, 0), [True, True, False, False, True]),
        (by_hand(2, 0, 0, agree=False), [False, False, True, True, False]),
        (by_hand(21, 0, 0).where(epoch=0), [True, True, None, None, True]),
    ],
)
def test_claims_on_tables_made_by_hand(table: Table, expected: list[bool | None]) -> None:
    assert [verdict.holds for verdict in STUDY.judge(table)] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"networks": 0}, "positive integer"),
        ({"widths": [[2, 2, 1]]}, "four widths"),
        ({"widths": [[2, 3, 2, 1]]}, "n_1 <= n_0"),
        ({"targets": ["sin"]}, "did you mean sine"),
        ({"epochs": [-1]}, "numbers of epochs"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        STUDY.tasks("quick", options)
