"""The studies of regions on curves: their rows against the slow way, their claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Circle, Tractrix
from fiberscope.network.network import Network
from fiberscope.studies import ambient_dimension, architectures, circle_vs_tractrix
from fiberscope.studies._curve_runs import SAMPLES, curve_of, measure, tangent_gradients
from fiberscope.studies.lab.study import Study
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.loading import load_dataset

STUDIES = {
    module.STUDY.name: (module.STUDY, options)
    for module, options in (
        (circle_vs_tractrix, {}),
        (ambient_dimension, {"dimensions": [3, 6]}),
        (architectures, {"hidden": [[3, 3], [4, 5]]}),
    )
}
SMALL = {"runs": 2, "epochs": 3, "every": 2, "init": ["torch"]}


def rows_of(study: Study, options: dict[str, Any]) -> Table:
    rows: list[Any] = []
    for task in study.tasks("quick", options):
        rows += study.run_task(task)
    return Table.of(rows)


@pytest.mark.parametrize("name", STUDIES)
def test_rows_of_a_small_plan(name: str) -> None:
    study, options = STUDIES[name]
    table = rows_of(study, SMALL | options)
    curves = 2 if name == "ambient-dimension" else 3 * len(options.get("hidden", [0]))  # there, two dimensions
    assert len(table) == 2 * 3 * curves
    assert set(table.column("epoch")) == {0, 2, 3}
    assert all(table.column("certified"))
    assert all(0 <= a <= b for a, b in zip(*map(table.column, ("projected", "gradient")), strict=True))
    assert {verdict.claim for verdict in study.judge(table)} == {claim.name for claim in study.claims}
    assert len(study.summarise(table)) == len(table) / 2


@pytest.mark.parametrize("curve", [Circle(), Tractrix()])
def test_a_row_against_dense_sampling(curve: Any) -> None:
    net = Network.random((2, 5, 6, 1), 3)
    found = regions_along(net, curve)
    row = measure(net, curve, found.num_regions, found.breakpoints, load_dataset("circle"))
    low, high = curve.interval
    t = np.linspace(low, high, 400_001)
    changes = np.flatnonzero((np.diff(net.pattern(curve(t)).astype(int), axis=0) != 0).any(axis=1))
    assert row["regions"] == len(changes) + 1
    marks = curve.arc_length((t[changes] + t[changes + 1]) / 2)
    here = curve.arc_length(low + (np.arange(SAMPLES) + 0.5) * (high - low) / SAMPLES)
    gaps = np.abs(here[:, None] - marks)
    if curve.closed:
        gaps = np.minimum(gaps, curve.length - gaps)
    assert row["distance"] == pytest.approx(gaps.min(axis=1).mean(), rel=1e-3)
    assert row["share"] == pytest.approx(row["distance"] / curve.length)


def test_gradients_along_tangents_are_differences() -> None:
    net, curve, step = Network.random((2, 4, 3, 1), 1), Circle(), 1e-7
    found = tangent_gradients(net, curve, samples=7).reshape(-1, 7, 2)
    t = -np.pi + (np.arange(7) + 0.5) * 2 * np.pi / 7
    before, after = (np.concatenate(net.preactivations(curve(t + s)), axis=1) for s in (-step, step))
    slow = (after - before) / (2 * step)
    np.testing.assert_allclose(tangent_gradients(net, curve, samples=7).reshape(7, 7, 2)[..., 0], slow, atol=1e-6)
    assert (np.abs(found[..., 0]) <= found[..., 1] * (1 + 1e-12)).all()


def by_hand(circle: float, half: float, tractrix: float, spread: float = 1.0) -> Table:
    rows: list[dict[str, Any]] = []
    for curve, count in (("circle", circle), ("upper half", half), ("tractrix", tractrix)):
        for run in range(6):
            for epoch in (0, 1, 2):
                regions = count + spread * (run % 3 - 1)
                rows.append({"init": "torch", "curve": curve, "hidden": "10-16", "inputs": 2, "neurons": 26})
                rows[-1] |= {"run": run, "epoch": epoch, "regions": regions, "per_neuron": regions / 26}
                rows[-1] |= {"share": 1 / regions, "distance": 6 / regions, "projected": count / 10, "gradient": 6.0}
                rows[-1]["test_error"] = 0.01 * regions
    return Table.of(rows)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (by_hand(24, 20, 34), [None, True, True, True, True, True, True, None]),
        (by_hand(40, 16, 20), [None, False, False, True, True, True, None, None]),  # what is measured
        (by_hand(40, 30, 20), [None, False, False, False, False, True, False, None]),
        (by_hand(30, 30, 30.1, spread=4), [None] * 8),
        (by_hand(80, 81, 90), [None, True, True, True, True, None, True, None]),
    ],
)
def test_claims_about_the_curves_on_tables_made_by_hand(table: Table, expected: list[bool | None]) -> None:
    judged = circle_vs_tractrix.STUDY.judge(table)
    assert [v.claim for v in judged[1:5]] == [
        "more-than-whole", "more-than-whole-at-start", "more-than-half", "more-than-half-at-start",
    ]  # fmt: skip
    assert [v.holds for v in judged] == expected


def test_words_without_a_measure_are_not_judged() -> None:
    found = {v.claim: v for v in circle_vs_tractrix.STUDY.judge(by_hand(260, 26, 26))}
    for name in ("close-to-neurons", "comparable"):
        assert found[name].holds is None and "not judged" in found[name].ours
    assert "circle 9.9" in found["close-to-neurons"].ours or "circle 10.0" in found["close-to-neurons"].ours
    assert not any("normalised" in claim.text or "distance" in claim.text for claim in circle_vs_tractrix.STUDY.claims)


def test_the_settings_that_the_paper_leaves_open_are_options() -> None:
    options = {"frequency": 2, "amplitude": 0.5, "noise": 0, "batch": 7, "rate": 0.1, "arc": "upper", "init": ["he"]}
    tasks = circle_vs_tractrix.STUDY.tasks("quick", {**SMALL, **options})
    assert {t.settings["curve"] for t in tasks} == {"upper half", "tractrix"}
    for task in tasks:
        assert {name: task.settings[name] for name in ("frequency", "amplitude", "noise", "batch", "rate")} == {
            "frequency": 2.0, "amplitude": 0.5, "noise": 0.0, "batch": 7, "rate": 0.1,
        }  # fmt: skip
    table = rows_of(circle_vs_tractrix.STUDY, {**SMALL, **options})
    assert set(table.column("curve")) == {"upper half", "tractrix"}
    found = {v.claim: v.holds for v in circle_vs_tractrix.STUDY.judge(table)}
    assert found["more-than-whole"] is None  # there are no rows on the whole circle
    plain = rows_of(circle_vs_tractrix.STUDY, {**SMALL, "arc": ["upper"]})
    assert plain.column("test_error") != table.column("test_error")


def test_the_upper_half_is_learned_and_measured_on_the_upper_half() -> None:
    data = load_dataset("circle", arc="upper", frequency=2.0, noise=0.0, seed=3)
    assert (data.inputs[:, 1] >= 0).all() and (data.inputs[:, 0].min() < -0.9)
    angle = np.arctan2(data.inputs[:, 1], data.inputs[:, 0])
    np.testing.assert_allclose(data.targets[:, 0], np.sin(2 * angle), atol=1e-12)
    assert curve_of("upper half", np.eye(2)).interval == (0.0, np.pi)
    assert curve_of("circle", np.eye(2)).closed and not curve_of("upper half", np.eye(2)).closed
    with pytest.raises(InputError, match="arc: expected whole or upper, got 'lower'"):
        load_dataset("circle", arc="lower")


def dimensions(slope: float, spread: float) -> Table:
    rows: list[dict[str, Any]] = []
    for inputs in (5, 15, 25):
        for run in range(6):
            for epoch in (0, 1):
                regions = 30 + slope * inputs + spread * (run - 2.5)
                rows.append({"init": "torch", "curve": "circle", "hidden": "10-16", "inputs": inputs, "run": run})
                rows[-1] |= {"epoch": epoch, "regions": regions, "per_neuron": regions / 26, "distance": 1 / regions}
    return Table.of(rows)


@pytest.mark.parametrize(
    ("table", "answer"), [(dimensions(0.0, 0.1), True), (dimensions(1.0, 0.1), False), (dimensions(0.1, 9.0), None)]
)
def test_whether_a_count_depends_on_the_dimension(table: Table, answer: bool | None) -> None:
    found = {verdict.claim: verdict.holds for verdict in ambient_dimension.STUDY.judge(table)}
    assert found["constant-count"] is found["constant-at-start"] is answer
    assert found["proportional"] is None  # with one number of neurons there is nothing to be proportional to


def test_proportional_architectures() -> None:
    def with_other(factor: float) -> Table:
        table = by_hand(24, 20, 34)
        other = [row | {"hidden": "5-8", "per_neuron": factor * row["per_neuron"]} for row in table.dicts()]
        return Table.of([*table.dicts(), *other])

    answers = [architectures.STUDY.judge(with_other(factor))[0].holds for factor in (1.0, 1.2, 3.0)]
    assert answers == [True, None, False]
    claims = {v.claim: v.holds for v in architectures.STUDY.judge(by_hand(40, 16, 20))}
    assert (claims["more-than-whole"], claims["more-than-half"]) == (False, True)


@pytest.mark.parametrize(
    ("study", "options", "message"),
    [
        (circle_vs_tractrix.STUDY, {"runs": 0}, "positive integer"),
        (circle_vs_tractrix.STUDY, {"init": ["zero"]}, "torch, he"),
        (circle_vs_tractrix.STUDY, {"arc": ["lower"]}, "option arc: expected some of whole, upper"),
        (circle_vs_tractrix.STUDY, {"arc": []}, "option arc"),
        (circle_vs_tractrix.STUDY, {"batch": 0}, "option batch: expected a positive integer"),
        (circle_vs_tractrix.STUDY, {"frequency": 0}, "option frequency: expected a number > 0"),
        (circle_vs_tractrix.STUDY, {"noise": -1.0}, "option noise: expected a number >= 0"),
        (circle_vs_tractrix.STUDY, {"rate": float("nan")}, "option rate"),
        (ambient_dimension.STUDY, {"arc": ["whole", "upper"]}, "option arc: expected one of"),
        (ambient_dimension.STUDY, {"dimensions": [1]}, "above 1"),
        (architectures.STUDY, {"hidden": [5, 8]}, "lists of hidden widths"),
    ],
)
def test_bad_options_are_refused(study: Study, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study.tasks("quick", options)
