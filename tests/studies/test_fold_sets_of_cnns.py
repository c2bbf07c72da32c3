"""The study of fold-sets beyond chains: its rows against slow computations, its claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box
from fiberscope.network.io import load
from fiberscope.network.network import Network
from fiberscope.studies._small_networks import KINDS, build, hiding, waves
from fiberscope.studies.dependency_graphs import look
from fiberscope.studies.fold_sets_of_cnns import DOMAINS, OTHERS, STUDY, measure, reach
from fiberscope.studies.lab.table import Table

SMALL = {"networks": 1, "epochs": [0, 2], "shapes": [[2, 2, 2]]}


def test_a_transparent_network_hides_a_kink() -> None:
    """Both layers have a positive unit at every point; the first unit changes its sign, and the function is affine."""
    module, box = hiding()
    X = box.draw(np.random.default_rng(0), 500)
    first = np.maximum(X, 0)
    second = first + np.roll(first, -1, axis=1) - 1
    assert (X > 0).any(axis=1).all() and (second > 0).any(axis=1).all() and {-1, 1} == set(np.sign(X[:, 0]))
    with torch.no_grad():
        values = module(torch.from_numpy(X).float())[:, 0].numpy()
    assert np.allclose(values, np.maximum(second, 0).sum(axis=1), atol=1e-6)
    affine = np.column_stack([X, np.ones(len(X))])
    assert np.abs(affine @ np.linalg.lstsq(affine, values, rcond=None)[0] - values).max() < 1e-5
    row = measure(look(load(module, input_shape=(4,)), box))
    assert row["transparent"] and row["hidden_fraction"] == 1.0 and row["visible_fraction"] == 0.0
    assert row["cancelled_facets"] == 0  # no active path leads on: the reading that holds


@pytest.mark.parametrize("kind", KINDS)
def test_who_acts_on_whom(kind: str) -> None:
    """Against gradients of the preactivations, with all weights positive and all units active."""
    module = build(kind, 4, 2, 4, 0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.abs() + 0.1)
    found = reach(load(module, input_shape=(4,)))
    assert not found[4:].any() and not found[:4, :4].any()
    expected = np.ones((4, 4), dtype=bool)
    if kind == "convolutional":  # unit q of the second layer reads q and q + 1 of the first
        expected = np.eye(4, dtype=bool) | np.roll(np.eye(4, dtype=bool), -1, axis=1)
    assert np.array_equal(found[:4, 4:], expected)


def test_rows_of_a_small_plan() -> None:
    tasks = STUDY.tasks("quick", SMALL)
    assert [task.settings["kind"] for task in tasks] == ["constructed", *KINDS]
    rows = [row for task in tasks for row in STUDY.run_task(task)]
    assert len(rows) == 1 + len(KINDS) * 2 * len(DOMAINS)
    for row in rows:
        assert 0 <= row["hidden_fraction"] <= 1 and row["bending_violations"] == row["stranger_bends"] == 0
        assert row["visible_fraction"] <= row["crossing_fraction"] and row["units_are_surface"]
        assert row["oriented_right"] == row["oriented_facets"] or row["kind"] == "residual"
        assert (row["hidden_fraction"] == 0) or row["kind"] != "leaky"
    verdicts = STUDY.judge(Table.of(rows))
    assert {v.claim: v.holds for v in verdicts}["visible-convolutional"] is False
    assert len(STUDY.summarise(Table.of(rows))) == len(rows)


@pytest.mark.parametrize(("slope", "right"), [(0.0, True), (0.25, True), (4.0, False)])
def test_the_larger_coefficient_is_on_the_active_side(slope: float, right: bool) -> None:
    """Two inputs, two units: gradients by hand are (1, 1), (s, 1), (1, s) and (s, s)."""
    net = Network([np.eye(2), [[1.0, 1.0]]], [np.zeros(2), [0.0]], "leaky_relu", slope=slope)
    row = measure(look(net, Box.cube(2)))
    assert (row["oriented_facets"], row["oriented_right"]) == (4, 4 * right)
    assert row["bent_fraction"] is None and row["filters_identified_fraction"] is None


def test_the_task_is_the_same_for_all() -> None:
    data = waves(3)
    assert data.inputs.shape == (400, 3) and data.targets.shape == (400, 1) and np.abs(data.inputs).max() <= 1
    x = data.inputs[7].astype(float)
    expected = sum((-1) ** i * np.sin(2 * x[i] + x[(i + 1) % 3]) for i in range(3))
    assert data.targets[7, 0] == pytest.approx(expected, abs=1e-5)


ROW: dict[str, Any] = {
    "hidden_layers": 2,
    "transparent": True,
    "units_order": 2,
    "units_are_surface": True,
    "hidden_fraction": 0.0,
    "cancelled_facets": 0,
    "lemma_violations": 0,
    "bending_violations": 0,
    "stranger_bends": 0,
    "wrong_pieces": 0,
    "well_connected": False,
    "first_identified_fraction": 0.5,
    "filters_identified_fraction": 1.0,
    "oriented_facets": 3,
    "oriented_right": 3,
    "optimum_free": True,
    "largest_ranks": True,
    "distinct": True,
}


def verdicts(**changes: Any) -> dict[str, bool | None]:
    """Of a table in which all is as the paper would have it, but for the changes."""
    rows = [
        {**ROW, "kind": kind, "domain": domain, "epoch": epoch, **changes}
        for kind in KINDS
        for domain in DOMAINS
        for epoch in (0, 5)
    ]
    return {v.claim: v.holds for v in STUDY.judge(Table.of(rows))}


@pytest.mark.parametrize(
    ("changes", "claim", "holds"),
    [
        ({"units_order": 3}, "surface", False),
        ({"units_are_surface": False}, "surface", False),
        ({"distinct": False}, "general-leaky", False),
        ({"largest_ranks": None}, "general-recurrent", None),
        ({"largest_ranks": None, "optimum_free": False}, "general-recurrent", False),
        ({"hidden_fraction": 0.1}, "visible-residual", False),
        ({"hidden_fraction": 0.1, "transparent": False}, "visible-residual", None),
        ({"cancelled_facets": 1}, "paths", False),
        ({"bending_violations": 1}, "chains", False),
        ({"stranger_bends": 1}, "chains", False),
        ({"lemma_violations": 1}, "chains", True),
        ({"wrong_pieces": 1}, "identified-convolutional", False),
        ({"oriented_right": 2}, "orientation-leaky", False),
        ({"oriented_facets": 0, "oriented_right": 0}, "orientation-residual", None),
        ({"well_connected": True}, "not-well-connected", False),
    ],
)
def test_claims(changes: dict[str, Any], claim: str, holds: bool | None) -> None:
    assert set(verdicts().values()) == {True}
    assert verdicts(**changes)[claim] is holds


def test_a_table_without_a_kind_decides_nothing_about_it() -> None:
    table = Table.of([{**ROW, "kind": "chain", "domain": "wide", "epoch": 5}])
    found = {v.claim: v for v in STUDY.judge(table)}
    assert all(found[f"general-{kind}"].holds is None and kind in found[f"general-{kind}"].ours for kind in OTHERS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"networks": 0}, "option networks"),
        ({"epochs": [0]}, "option epochs"),
        ({"epochs": [0, 1.5]}, "option epochs"),
        ({"shapes": [[4, 2]]}, "option shapes"),
        ({"shapes": [[4, 3, 4]]}, "layers that divide"),
        ({"shapes": [[4, 2, 6]]}, "layers that divide"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        STUDY.tasks("quick", options)
