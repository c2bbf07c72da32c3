"""The studies of projected centres and of coherence: rows against the slow way, claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.studies import coherence, gap_rate
from fiberscope.studies.lab.study import Study
from fiberscope.studies.lab.table import Table


def rows_of(study: Study, options: dict[str, Any]) -> Table:
    return Table.of([row for task in study.tasks("quick", options) for row in study.run_task(task)])


def test_gaps_against_all_pairs() -> None:
    table = rows_of(gap_rate.STUDY, {"draws": 2, "widths": [5], "ranks": [3]})
    assert len(table) == 2 * 2
    assert all(gap > 0 for gap in table.column("gap"))
    task = gap_rate.STUDY.tasks("quick", {"draws": 1, "widths": [5], "ranks": [128]})[0]
    F, _ = gap_rate.fixed_part("dense", 5, np.random.default_rng([task.seed, 0]))
    slow = min(np.linalg.norm(F[i] - F[j]) for i in range(5) for j in range(i))  # the subspace is the whole space
    assert gap_rate.STUDY.run_task(task)[0]["gap"] == pytest.approx(np.sqrt(2) * slow)


def test_masks_have_the_entries_of_the_scheme() -> None:
    F, D = gap_rate.fixed_part("masked", 7, np.random.default_rng(0))
    assert ((F != 0) == (D == 0)).all()
    assert ((F != 0).sum(axis=1) == gap_rate.FIXED).all()


def gaps(power: float) -> Table:
    return Table.of(
        [
            {"scheme": scheme, "rank": k, "width": m, "draw": 0, "gap": m ** (-power / k)}
            for scheme in gap_rate.SCHEMES
            for k in (2, 8)
            for m in (16, 64, 256)
        ]
    )


@pytest.mark.parametrize(("power", "expected"), [(2.0, [True, True, True]), (3.0, [False, False, True])])
def test_claims_about_rates(power: float, expected: list[bool]) -> None:
    assert [verdict.holds for verdict in gap_rate.STUDY.judge(gaps(power))] == expected
    assert [verdict.holds for verdict in gap_rate.STUDY.judge(gaps(-power))][2] is False


def test_students_keep_their_masks_and_outgoing_weights() -> None:
    table = rows_of(coherence.STUDY, {"masks": 1, "pairs": 1, "copies": [1, 10], "epochs": 2})
    assert len(table) == 2 * 2
    assert sorted(set(table.column("coherence"))) == [0.1, 1.0]
    assert all(row["barrier"] == pytest.approx(row["middle"] - row["error"]) for row in table.dicts())


def test_the_middle_of_two_students_by_hand() -> None:
    a = Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    b = Network([[[-1.0]], [[1.0]]], [[0.0], [0.0]])
    X = np.array([[1.0], [-1.0]])
    found = coherence.along(a, b, X, a(X))  # the middle is zero everywhere
    assert found == {"error": 0.5, "middle": 0.5, "barrier": 0.0}


def barriers(slope: float) -> Table:
    return Table.of(
        [
            {"embedding": name, "copies": t, "coherence": 1 / t, "pair": 0, "error": 0.001, "barrier": 1 + slope / t}
            for name in coherence.EMBEDDINGS
            for t in (1, 2, 5, 10)
        ]
    )


@pytest.mark.parametrize(("slope", "expected"), [(-0.9, True), (0.9, False), (-0.1, False)])
def test_claims_about_coherence(slope: float, expected: bool) -> None:
    assert [verdict.holds for verdict in coherence.STUDY.judge(barriers(slope))] == [expected, expected, True]


@pytest.mark.parametrize(
    ("study", "options", "message"),
    [
        (gap_rate.STUDY, {"draws": 0}, "positive integer"),
        (gap_rate.STUDY, {"widths": [1]}, "integers from 2"),
        (gap_rate.STUDY, {"ranks": [200]}, "at most 128"),
        (coherence.STUDY, {"copies": [11]}, "from 1 to 10"),
        (coherence.STUDY, {"pairs": 0}, "positive integer"),
    ],
)
def test_bad_options_are_refused(study: Study, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study.tasks("quick", options)
