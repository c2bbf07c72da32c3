"""The study of approximate fibers: distances against slow ones, its rows, and its claims on tables made by hand."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.studies import approximate_fibers
from fiberscope.studies._near_members import (
    BOX,
    FULL,
    NARROW,
    at_levels,
    balanced,
    directions,
    near_member,
    orbit_distance,
    planted,
    points,
    scaled,
    teacher,
    vector,
    with_vector,
)
from fiberscope.studies.approximate_fibers import FAMILIES, KINDS, STUDY, compared, move_rows, strata_rows
from fiberscope.studies.lab.table import Table


def some(seed: int) -> Network:
    return balanced(Network.random(NARROW, seed))


def test_balancing_is_a_rescaling_of_least_norm() -> None:
    net = Network.random((2, 4, 3, 1), 0)
    even = balanced(net)
    X = points(0)
    assert np.allclose(even(X), net(X))
    assert np.linalg.norm(vector(even)) < np.linalg.norm(vector(net))
    for layer in (0, 1):
        rows = np.column_stack([even.weights[layer], even.biases[layer]])
        assert np.allclose(np.linalg.norm(rows, axis=1), np.linalg.norm(even.weights[layer + 1], axis=0))
    assert np.array_equal(vector(with_vector(net, vector(net) + 1)), vector(net) + 1)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_least_distance_under_all_orders(seed: int) -> None:
    a, b = some(seed), some(seed + 10)
    slow = min(
        np.linalg.norm(vector(a) - vector(Symmetry([list(p), list(q)], [np.ones(3), np.ones(2)])(b)))
        for p, q in product(permutations(range(3)), permutations(range(2)))
    )
    assert orbit_distance(a, b) == pytest.approx(slow)
    moved = Symmetry([[2, 0, 1], [1, 0]], [[0.5, 4.0, 1.0], [2.0, 3.0]])(a)
    assert orbit_distance(a, balanced(moved)) < 1e-9


def test_descent_comes_back_to_the_fiber() -> None:
    net, X, found = teacher(FULL, 0)
    assert found.rank == net.num_parameters - net.num_hidden and found.seen
    assert len(found.kernel) == net.num_hidden
    away = with_vector(net, vector(net) + 1e-4 * np.random.default_rng(0).normal(size=net.num_parameters))
    error, member = near_member(net, away, X)
    assert error < 1e-9
    stages = at_levels(net, away, X, [1e-5, 1e-7])
    assert set(stages) <= {1e-5, 1e-7} and None not in stages
    row = compared(net, away, X)
    assert row["member"] and row["fiber"] <= row["orbit"] * (1 + 1e-9)
    assert row["found"] <= row["proven"]
    assert at_levels(net, away, X, [1e-300]).keys() == {None}
    assert np.linalg.norm(vector(member) - vector(away)) <= np.linalg.norm(vector(net) - vector(away)) + 1e-9


def test_planted_teachers_have_smaller_dimensions() -> None:
    base, X, full = teacher(FULL, 0)
    for kind in KINDS[1:]:
        net = scaled(planted(base, kind), X)
        assert directions(net, BOX, X).rank < full.rank, kind
    signs = np.sign(planted(base, "hidden").weights[1])
    assert (signs[:, 0] > 0).all() and (signs[:, 1:] < 0).all()


def test_moves_and_strata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate_fibers, "STEPS", (1e-3,))
    monkeypatch.setattr(approximate_fibers, "GAPS", (0.1, 0.01))
    net, X, found = teacher(FULL, 0)
    moves = Table.of(list(move_rows(net, X, found, 0)))
    for step in set(moves.column("step")):
        sizes = {row["direction"]: row["found"] for row in moves.where(step=step).dicts()}
        assert sizes["kernel"] < sizes["least"] < sizes["random"]
    ratios = [row["ratio"] for row in strata_rows("twins", 0)]
    assert ratios == sorted(ratios)


def by_hand(
    orbit: float = 0.02, fiber: float = 0.01, steep: float = 1.0, order: float = 2.0, wide: float = 0.1
) -> Table:
    """Four teachers of every kind, whose students are as far as said."""
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        for number in range(20 if kind == FULL else 8):  # so many show that a share is above nine tenths
            about = {"kind": kind, "teacher": number, "least": 0.01 / (1 + number)}
            for sort in ("narrow", "near", "wide"):
                for k, found in enumerate((0.004, 0.0004)):
                    far = fiber * (wide if sort == "wide" else 1) * (1 + number * steep) / 9 / (1 + k)
                    away = max(orbit / (1 + k), far)
                    row = {"record": "student", "sort": sort, "level": found, "found": found, "proven": 1.2 * found}
                    row |= {
                        "orbit": None if sort == "wide" else away,
                        "member": True,
                        "fiber": far,
                        "ratio": far / found,
                    }
                    rows.append({**row, **about})
            rows.append({"record": "pair", "found": 0.001, "proven": 0.002, "orbit": orbit, **about})
            for step in (1e-3, 1e-2):
                for name, power, size in (("kernel", order, 1.0), ("random", 1.0, 1.0), ("least", 1.0, 0.1)):
                    found = size * step**power / (1 + steep * number if name == "least" else 1)
                    row = {"record": "move", "direction": name, "step": step, "found": found, "proven": found}
                    rows.append({**row, "ratio": step / found, **about})
            if kind in FAMILIES:
                for gap in (0.1, 0.01):
                    about |= {"record": "strata", "gap": gap, "ratio": gap**-steep, "found": 1.0, "proven": 1.0}
                    rows.append(dict(about))
    return Table.of(rows)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (by_hand(), dict.fromkeys([claim.name for claim in STUDY.claims], True)),
        (by_hand(orbit=0.5), {"stable": False, "stable-nearby": False, "fiber": True, "follows": True}),
        (by_hand(orbit=0.01, fiber=0.5), {"fiber": False}),
        (by_hand(steep=-0.04), {"where": False, "where-students": False, "strata": False}),
        (by_hand(order=1.0, wide=10.0), {"flat": False, "wide": False}),
        (by_hand().where(record="move"), {"stable": None, "wide": None, "strata": None, "flat": True}),
    ],
)
def test_claims_on_tables_made_by_hand(table: Table, expected: dict[str, bool | None]) -> None:
    found = {verdict.claim: verdict.holds for verdict in STUDY.judge(table)}
    assert {name: found[name] for name in expected} == expected


def test_the_summary_has_a_row_for_every_group() -> None:
    table = STUDY.summarise(by_hand())
    assert len(table.where(record="student")) == len(KINDS) * 3 * 2
    assert len(table.where(record="pair")) == len(KINDS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"teachers": 0}, "positive integer"),
        ({"students": 0}, "positive integer"),
        ({"levels": [2.0]}, "between 0 and 1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        STUDY.tasks("quick", options)
