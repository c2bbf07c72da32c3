"""The five studies of the functional dimension: rows against slow computations, claims on tables made by hand."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fiberscope.dimension.exact_rank import sample
from fiberscope.dimension.functional import functional_dimension
from fiberscope.dimension.gap import adjacent_layers_bound, position_bound, silent_layers_bound
from fiberscope.dimension.jacobian import jacobian
from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.numerics.modular import random_primes
from fiberscope.numerics.rank import exact_rank
from fiberscope.plot.studies import has_rows, study_figure
from fiberscope.reporting.studies import write_study_page
from fiberscope.studies import _runs, _verdicts, bivariate, energy, regions_vs_dimension, univariate, weight_decay
from fiberscope.studies._verdicts import (
    beyond,
    correlated,
    curves,
    far_below_regions,
    more_regions_than_rank,
    ordered,
    rises_then_settles,
    theorem_one,
)
from fiberscope.studies.lab.runner import reproduce
from fiberscope.studies.lab.study import Picture, Study
from fiberscope.studies.lab.table import Table
from fiberscope.training.track import track

STUDIES = [module.STUDY for module in (univariate, weight_decay, bivariate, energy, regions_vs_dimension)]


@pytest.fixture
def buildings(shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = shared_folder / "data"
    if not (data / "ENB2012_data.csv").is_file():
        pytest.skip(f"the building data are not in {data}")
    monkeypatch.setenv("FIBERSCOPE_DATA", str(data))


# -- the settings are the paper's --------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "parameters"), [(1, 361), (2, 371), (8, 431)])
def test_four_hidden_layers_have_the_parameters_that_the_paper_counts(inputs: int, parameters: int) -> None:
    widths = (inputs, *[_runs.WIDTH] * _verdicts.LAYERS, 1)
    assert Network.random(widths, 0).num_parameters == parameters
    assert Network.random((inputs, *[_runs.WIDTH] * 5, 1), 0).num_parameters != parameters


def test_plans_have_the_papers_numbers() -> None:
    def runs(study: Study) -> list[tuple[str, float, int, int]]:
        plan = [task.settings for task in study.tasks("paper", {}) if task.settings["record"] == "run"]
        keys = dict.fromkeys((s["dataset"], s["weight_decay"], s["every"]) for s in plan)
        return [
            (*key, sum(s["count"] for s in plan if (s["dataset"], s["weight_decay"], s["every"]) == key))
            for key in keys
        ]

    assert runs(univariate.STUDY) == [(name, 1e-4, 50, 15) for name in ("f1", "f2", "f3")]
    assert runs(weight_decay.STUDY) == [("f2", decay, 50, 10) for decay in (0.0, 1e-4, 1e-3)]
    assert runs(bivariate.STUDY) == [(name, 1e-4, 25, 20) for name in ("g1", "g2", "g3")]
    assert runs(energy.STUDY) == [(name, 1e-4, 25, 10) for name in ("heating", "cooling")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 0}, "option runs"),
        ({"datasets": ["f4"]}, "did you mean f3"),
        ({"every": 7}, "divisor"),
        ({"starts": -1}, "option starts"),
        ({"layers": 2.5}, "option layers"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        univariate.STUDY.tasks("quick", options)
    with pytest.raises(InputError, match="scaling"):
        energy.STUDY.tasks("quick", {"scaling": "none"})
    with pytest.raises(InputError, match="decays"):
        weight_decay.STUDY.tasks("quick", {"decays": [-1.0]})


# -- rows against the definitions --------------------------------------------------------------------------------


def small_table(study: Study, folder: Path, **options: Any) -> Table:
    return reproduce(study, jobs=1, out=folder, progress=False, **options).table


def test_rows_of_a_run_against_slow_computations(tmp_path: Path) -> None:
    table = small_table(univariate.STUDY, tmp_path, runs=2, epochs=20, every=10, starts=2, datasets=["f2"])
    runs = table.where(record="run")
    assert [(row["run"], row["epoch"]) for row in runs.dicts()] == [(r, e) for r in (0, 1) for e in (0, 10, 20)]
    data = _runs.load_data("f2")
    for row in runs.where(epoch=0).dicts():
        net = Network.random((1, 10, 10, 10, 10, 1), row["run"])
        # Training begins in float32.
        net = Network([w.astype(np.float32) for w in net.weights], [b.astype(np.float32) for b in net.biases])
        patterns = [tuple(np.concatenate([z[0] > 0 for z in net.preactivations(x[None])])) for x in data.X]
        counts = [patterns.count(p) for p in set(patterns)]
        assert row["regions"] == len(counts) and row["bound_regions"] == 2 * len(counts)
        assert row["bound_regions_refined"] == sum(min(2, c) for c in counts)
        narrow = net.to_torch().float()
        X = torch.tensor(data.X, dtype=torch.float32)
        grads = []
        for x in X:
            narrow.zero_grad()
            narrow(x[None]).sum().backward()
            grads.append(torch.cat([p.grad.reshape(-1) for p in narrow.parameters()]))
        assert abs(row["paper"] - int(torch.linalg.matrix_rank(torch.stack(grads)))) <= 1  # float32, other rounding
        active = np.array(patterns)
        for k in range(4):
            part = active[:, 10 * k : 10 * k + 10]
            assert row[f"active_{k + 1}"] == part.all(axis=0).sum()
            assert row[f"inactive_{k + 1}"] == (~part).all(axis=0).sum()
        error = ((net(data.X) - data.y) ** 2).mean()
        assert row["loss"] == pytest.approx(error) and row["r2"] == pytest.approx(1 - error / data.y.var())


def test_no_met_bound_is_below_the_exact_rank_and_vacuous_means_what_it_says(tmp_path: Path) -> None:
    table = small_table(bivariate.STUDY, tmp_path, runs=1, epochs=20, every=20, starts=1)
    rows = [row for row in table.dicts() if row["record"] in ("run", "start")]
    assert len(rows) == 3 * 2 + 1 * 4
    names = [name.removeprefix("bound_") for name in table.columns if name.startswith("bound_")]
    assert {"regions", "regions_refined", "fixed_neurons", "orbit", "rescaling", "adjacent", "silent"} <= set(names)
    for row in rows:
        assert row["lower"] <= row["exact"]
        for name in names:
            value = row[f"bound_{name}"]
            if value is None:
                continue
            if row.get(f"met_{name}", True):
                assert value >= row["exact"], name
            if f"vacuous_{name}" in row:
                assert row[f"vacuous_{name}"] == (value >= min(row["points"], row["parameters"]))
        if row["level_regions"] is not None:
            levels = [row[n] for n in ("level_regions", "level_points", "level_position", "level_silent")]
            assert levels == sorted(levels, reverse=True)
            assert row["level_silent"] >= row["level_fixed"] >= row["level_adjacent"] >= row["exact"]


def test_five_hidden_layers_are_an_option(tmp_path: Path) -> None:
    table = small_table(univariate.STUDY, tmp_path, runs=1, epochs=1, every=1, starts=0, datasets=["f1"], layers=5)
    assert set(table.where(record="run").column("parameters")) == {471}
    assert "switching_5" in table.columns


def test_equal_seeds_begin_equal_in_all_tasks(tmp_path: Path) -> None:
    table = small_table(weight_decay.STUDY, tmp_path, runs=2, epochs=1, every=1).where(epoch=0)
    for run in (0, 1):
        assert len(set(table.where(run=run).column("exact"))) == 1
        assert len(set(table.where(run=run).column("loss"))) == 1


@pytest.mark.usefixtures("buildings")
def test_building_data_keep_their_relation_and_the_exact_rank_is_not_of_rounding_errors() -> None:
    data = _runs.load_data("heating")
    assert np.abs(data.X.mean(axis=0)).max() < 1e-3 and np.abs(data.X.std(axis=0) - 1).max() < 1e-3
    assert exact_rank(np.column_stack([data.X, np.ones(768)])).rank == 8  # nine, were the relation broken
    assert _runs.load_data("heating", "unit").X.max() == 1 and _runs.load_data("heating", "raw").X.max() > 800
    assert _runs.load_data("heating", "raw targets").y.mean() == pytest.approx(22.3, abs=0.1)
    row = _runs.measure(Network.random((8, 10, 10, 10, 10, 1), 0), data, 0, gap=False)
    assert row["exact"] == row["numerical"] and row["full"] == 431


@pytest.mark.usefixtures("buildings")
def test_regions_against_dimension_has_graphs_and_both_families(tmp_path: Path) -> None:
    options = {"runs": 1, "epochs": 100, "every": 100, "energy_epochs": 50, "datasets": ["f2", "heating"]}
    result = reproduce(regions_vs_dimension.STUDY, jobs=1, out=tmp_path, progress=False, **options)
    assert set(result.table.column("record")) == {"run", "graph", "data", "function"}
    assert set(result.table.where(record="graph").column("epoch")) == {0, 100}
    write_study_page(result, regions_vs_dimension.STUDY)
    assert {p.name for p in regions_vs_dimension.STUDY.pictures} == {p.stem for p in tmp_path.glob("*.png")}


# -- the two bounds of the gap -----------------------------------------------------------------------------------


def fraction_rank(rows: list[list[Fraction]]) -> int:
    rank = 0
    for c in range(len(rows[0]) if rows else 0):
        pivot = next((r for r in range(rank, len(rows)) if rows[r][c]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for r in range(rank + 1, len(rows)):
            factor = rows[r][c] / rows[rank][c]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[rank], strict=True)]
        rank += 1
    return rank


def test_adjacent_layers_against_the_whole_network_of_two_layers() -> None:
    """With one hidden layer the pair is the network, so the bound is the rank itself."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        net = Network.random((2, 4, 1), seed)
        X = rng.standard_normal((int(rng.integers(1, 12)), 2))
        assert adjacent_layers_bound(net, sample(net, X)).value == functional_dimension(net, X).exact


def test_bounds_of_the_gap_are_bounds_on_deep_narrow_and_dead_networks() -> None:
    rng = np.random.default_rng(1)
    for seed in range(30):
        widths = (int(rng.integers(1, 4)), *rng.integers(1, 5, int(rng.integers(2, 5))).tolist(), 1)
        net = Network.random(widths, seed)
        if seed % 5 == 0:  # a dead layer
            net = Network([*net.weights], [net.biases[0] - 100.0, *net.biases[1:]])
        X = rng.integers(-3, 4, (15, widths[0])) / 4.0
        found = functional_dimension(net, X)
        sampled = sample(net, X)
        assert adjacent_layers_bound(net, sampled).value >= found.exact
        refined = found.bound("regions refined").value
        assert refined >= position_bound(sampled) >= silent_layers_bound(net, sampled) >= found.exact
        if seed % 5 == 0:
            assert silent_layers_bound(net, sampled) == 1 == found.exact
        slow = 0
        for region in range(sampled.regions):
            points = sampled.X[sampled.region == region]
            slow += fraction_rank([[*map(Fraction, p), Fraction(1)] for p in points.tolist()])
        assert position_bound(sampled) == slow


def test_a_pair_of_layers_finds_more_than_fixed_neurons() -> None:
    """Two switching neurons with equal masks may be mixed: no neuron is fixed, but the rank is below D - N."""
    net = Network([[[1.0], [2.0]], [[1.0, 3.0]]], [[0.0, 0.0], [0.0]])
    X = np.array([[-1.0], [1.0], [2.0], [-3.0], [5.0]])
    found = functional_dimension(net, X)
    assert found.bound("orbit").value == 5 and adjacent_layers_bound(net, sample(net, X)).value == found.exact == 3
    assert np.linalg.matrix_rank(jacobian(net, X)) == 3


def test_points_that_coincide_modulo_the_prime_that_is_drawn_do_not_lower_a_bound() -> None:
    """Their distance is the prime itself: modulo it two points are one."""
    (prime,) = random_primes(1, 0)
    low = prime % 1024
    X = np.array([[-float(low)], [float(prime - low)]])
    assert int(X[1, 0]) - int(X[0, 0]) == prime
    net = Network([[[1.0]], [[3.0]]], [[2048.0], [1.0]])  # active at both
    found = sample(net, X)
    assert found.regions == 1
    assert position_bound(found) == silent_layers_bound(net, found) == 2
    bound = adjacent_layers_bound(net, found)
    assert bound.value == functional_dimension(net, X).exact == 2
    assert not bound.proven and 0 < bound.failure_probability < 1e-25


# -- claims ------------------------------------------------------------------------------------------------------


def trained(curves_by_name: dict[str, list[list[float]]], **columns: Any) -> Table:
    rows = [
        {
            "record": "run",
            "family": "univariate",
            "dataset": name,
            "run": run,
            "epoch": epoch,
            "successful": True,
            "exact": value,
            "paper": value - 1,
            "regions": value / 2 + 1,
            "full": 100,
            **columns,
        }
        for name, runs in curves_by_name.items()
        for run, curve in enumerate(runs)
        for epoch, value in enumerate(curve)
    ]
    return Table.of(rows)


LOW = [[10, 20, 20, 20], [11, 22, 21, 21], [10, 21, 21, 20]]
HIGH = [[10, 30, 31, 30], [11, 31, 30, 30], [10, 33, 32, 33]]
NOISE = [[10, 12, 30, 41], [11, 40, 2, 1], [10, 3, 11, 14]]


@pytest.mark.parametrize(("low", "high", "expected"), [(LOW, HIGH, True), (HIGH, LOW, False), (LOW, NOISE, None)])
def test_ordered_holds_fails_and_stays_open(low: Any, high: Any, expected: bool | None) -> None:
    assert ordered(trained({"a": low, "b": high}), "exact", ("a", "b")).holds is expected


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (LOW, True),
        ([[10, 20, 18, 12], [10, 22, 17, 11]], True),
        ([[10, 9, 8, 7], [10, 8, 8, 7]], False),
        ([[10, 12, 15, 30], [10, 13, 15, 31]], False),
        (NOISE, None),
    ],
)
def test_rises_then_settles(runs: Any, expected: bool | None) -> None:
    assert rises_then_settles(trained({"a": runs}), "exact").holds is expected


def test_correlation_and_counts() -> None:
    table = trained({"a": LOW, "b": HIGH})
    assert correlated(table, "exact").holds is True
    rows = [{**row, "regions": -row["exact"]} for row in table.dicts()]
    assert correlated(Table.of(rows), "exact").holds is False
    assert more_regions_than_rank(table, "exact").holds is False
    assert more_regions_than_rank(Table.of([{**row, "regions": 99} for row in rows]), "exact").holds is True


def test_bounds_are_judged() -> None:
    def table(exact: int, bound: int, met: bool, theorem: int) -> Table:
        row = {
            "record": "run",
            "family": "univariate",
            "run": 0,
            "exact": exact,
            "bound_regions": bound,
            "bound_regions_refined": bound,
        }
        row |= {"met_fixed_neurons": met, "bound_fixed_neurons": theorem, "vacuous_fixed_neurons": False}
        return Table.of([row, {**row, "run": 1}])

    assert far_below_regions(table(20, 20, True, 30)).holds is False
    assert far_below_regions(table(20, 40, True, 30)).holds is True
    assert far_below_regions(table(20, 24, True, 30)).holds is None
    assert (
        theorem_one(table(20, 20, False, 10)).holds is None
        and "below the exact rank in 2" in theorem_one(table(20, 20, False, 10)).ours
    )
    assert theorem_one(table(20, 20, True, 30)).holds is True
    assert theorem_one(table(20, 20, True, 10)).holds is False


def test_only_whole_and_successful_runs_count() -> None:
    rows = trained({"a": LOW}).dicts()
    rows = [row for row in rows if (row["run"], row["epoch"]) != (0, 3)]  # broke off
    rows = [{**row, "successful": row["run"] != 1} for row in rows]
    assert list(curves(Table.of(rows), "exact")["a"]) == [2]
    assert list(curves(Table.of(rows), "exact", successful=False)["a"]) == [1, 2]
    with pytest.raises(InputError, match="at least two"):
        ordered(Table.of(rows), "exact", ("a", "a"))


def test_margins() -> None:
    assert (beyond(3, 1), beyond(-3, 1), beyond(1, 1)) == (True, False, None)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_an_empty_table_decides_nothing(study: Study) -> None:
    columns = ("record", "layers", "epoch", "dataset", "run", "batch", "family")
    assert {verdict.holds for verdict in study.judge(Table(columns, ()))} <= {None}


# -- pictures ----------------------------------------------------------------------------------------------------


def test_pictures_select_join_and_single_out() -> None:
    table = Table.of(
        [*trained({"a": LOW, "b": HIGH}).dicts(), {"record": "data", "dataset": "a", "epoch": 1, "exact": 5.0}]
    )
    picture = Picture(
        "p", "t", "epoch", ("exact", "paper"), "dataset", "quantity", where={"record": "run"}, words={"dataset": ""}
    )
    left, right = study_figure(table, picture)
    assert [left.get_title(), right.get_title()] == ["exact", "paper"]
    assert [line.get_label() for line in left.get_lines()] == ["a", "b"]
    assert left.get_lines()[0].get_ydata()[1] == pytest.approx(21) and right.get_lines()[0].get_ydata()[1] == 20
    (each,) = study_figure(table, Picture("p", "t", "epoch", "exact", "dataset", where={"record": "run"}, each="run"))
    assert len(each.get_lines()) == 6 + 2  # every run, and the mean of each data set
    behind = Picture("p", "t", "epoch", "exact", panels="dataset", where={"record": "run"}, behind={"record": "data"})
    a, b = study_figure(table, behind)
    assert a.get_lines()[0].get_xdata().tolist() == [1.0] and len(b.get_lines()[0].get_xdata()) == 0
    assert not has_rows(table, Picture("p", "t", "epoch", "exact", where={"record": "graph"}))
    with pytest.raises(InputError, match="style"):
        study_figure(table, Picture("p", "t", "epoch", "exact", style="pie"))


def test_surfaces_have_colours_and_points() -> None:
    rows = [{"x": x, "y": y, "v": x * y, "n": n} for x in (0, 1) for y in (0, 1) for n in "ab"]
    axes = study_figure(Table.of(rows), Picture("p", "t", "x", "y", panels="n", style="surface", colour="v"))
    assert len(axes) == 2 and all(len(ax.collections) == 1 and len(ax.get_lines()) == 1 for ax in axes)


# -- tracking ----------------------------------------------------------------------------------------------------


def test_trackers_record_the_functional_dimension() -> None:
    net = Network([[[1.0]], [[2.0]]], [[0.5], [0.0]])
    X = np.array([[-2.0], [-3.0], [1.0], [2.0], [3.0]])
    values = track(net, X, quantities=["functional_dimension", "functional_dimensions"]).record(0).values
    assert values["functional_dimension"] == 3
    assert values["functional_dimensions"] == {
        "exact": 3,
        "lower": 3,
        "upper": 3,
        "certified": True,
        "numerical": 3,
        "paper": 3,
        "left_out": 0,
    }
