"""Classes of neurons on a plane: rows against the slow way, claims on tables made by hand."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.neurons.classes import NeuronClasses
from fiberscope.studies import effective_classes as study
from fiberscope.studies.lab.table import Table


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    tasks = study.STUDY.tasks("quick", {"draws": 1, "pairs": 1, "sigmas": [1.0]})
    return {task.settings["level"]: Table.of(study.run_task(task)) for task in tasks}


def test_rows_of_every_level(tables: dict[str, Table]) -> None:
    assert list(tables) == ["symmetric", "pruned", "fixed"]
    for level, table in tables.items():
        assert len(table.where(record="neuron")) == study.WIDTH
        assert len(table.where(record="drawn", kind="class")) == 120 * study.WIDTH
        assert (max(table.where(record="neuron").column("bias")) > 0) == (level == "fixed")
        assert (max(table.where(record="neuron").column("unlike")) > 0) == (level != "symmetric")


@pytest.mark.parametrize("level", ["symmetric", "pruned", "fixed"])
def test_the_outline_has_cost_one(level: str) -> None:
    draw = study.Draw.of(3, level, 1.0)
    found = NeuronClasses.from_arrays(draw.F, draw.D, np.zeros_like(draw.F), draw.basis)
    rows = [row for row in study.outlines(found, found) if row["kind"] == "class"]
    for row in rows[::17]:
        i, a = row["neuron"], np.array([row["x"], row["y"]])
        matrix = draw.basis.T * draw.D[i]  # the least weights with this function, by least squares
        w = np.linalg.lstsq(matrix, a - draw.basis.T @ draw.F[i], rcond=None)[0]
        assert np.linalg.norm(w) == pytest.approx(1.0)
        assert found.realization_cost(a, i) == pytest.approx(1.0)


def test_levels_share_teacher_inputs_and_mask() -> None:
    symmetric, pruned, fixed = (study.Draw.of(1, level, 2.0) for level in ("symmetric", "pruned", "fixed"))
    assert np.array_equal(pruned.D, fixed.D) and np.array_equal(symmetric.targets, fixed.targets)
    assert (symmetric.D == 1).all() and ((pruned.D == 0).sum(axis=1) == study.FIXED).all()
    assert np.array_equal(fixed.F, 2 * study.Draw.of(1, "fixed", 1.0).F) and ((fixed.F != 0) == (fixed.D == 0)).all()


def test_matching_against_all_permutations() -> None:
    rng = np.random.default_rng(0)
    F, D, basis = rng.normal(size=(4, 3)), np.ones((4, 3)), np.eye(3)[:, :2]
    a, b = (NeuronClasses.from_arrays(F, D, rng.normal(size=(4, 3)), basis) for _ in range(2))
    best = min(permutations(range(4)), key=lambda p: float(((a.coefficients - b.coefficients[list(p)]) ** 2).sum()))
    rows = study.measure(a, b)
    assert [row["matched"] for row in rows] == [float(p == i) for i, p in enumerate(best)]
    apart = np.linalg.norm(a.coefficients - b.coefficients, axis=1)
    assert [row["apart"] for row in rows] == pytest.approx(apart.tolist())


def test_a_neuron_that_cannot_turn_is_infinitely_anisotropic() -> None:
    D = np.array([[1.0, 0.0], [1.0, 1.0]])
    net = NeuronClasses.from_arrays(np.zeros((2, 2)), D, np.ones((2, 2)), np.eye(2))
    assert [row["ratio"] for row in study.measure(net, net)] == [np.inf, pytest.approx(1.0)]


def made(
    shares: dict[tuple[str, float], float], ratio: float = 3.0, unlike: float = 0.0, error: float = 0.001
) -> Table:
    rows: list[dict[str, Any]] = []
    for (level, sigma), share in shares.items():
        for draw in range(3):
            row = {"record": "neuron", "level": level, "sigma": sigma, "draw": draw, "pair": 0, "neuron": 0}
            numbers = {"error": error, "bias": sigma, "ratio": ratio, "unlike": unlike, "swap": 0.0}
            rows.append(row | numbers | {"apart": 1 - share, "matched": share + 0.01 * draw})
    return Table.of(rows)


def verdicts(table: Table) -> list[bool | None]:
    return [verdict.holds for verdict in study.STUDY.judge(table)]


def test_claims_by_hand() -> None:
    rising = {("symmetric", 0.0): 0.1, ("pruned", 0.0): 0.2, ("fixed", 0.5): 0.5, ("fixed", 2.0): 0.9}
    assert verdicts(made(rising)) == [True] * 5
    assert verdicts(made(rising, unlike=0.1, ratio=1.5, error=0.1)) == [False, False, True, True, False]
    falling = {key: 1 - share for key, share in rising.items()}
    assert verdicts(made(falling))[2:4] == [False, False]
    level = dict.fromkeys(rising, 0.5)
    assert verdicts(made(level))[2:4] == [None, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "positive integer"),
        ({"pairs": "two"}, "positive integer"),
        ({"sigmas": [0.0]}, "positive numbers"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study.STUDY.tasks("quick", options)
