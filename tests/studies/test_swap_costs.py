"""The study of swap costs: rows against the slow way, claims on tables made by hand; and trainings side by side."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fiberscope.errors import InputError
from fiberscope.neurons.classes import NeuronClasses
from fiberscope.studies import swap_costs
from fiberscope.studies._asymmetric_runs import ARCHITECTURES, Recipe, model, standardised, train_modules
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.dataset import Dataset

SMALL = {"pairs": 2, "points": 200, "epochs": 1, "swaps": 2, "ranks": [2, 8]}


def some_data(points: int = 65) -> Dataset:
    rng = np.random.default_rng(0)
    return Dataset("some", rng.normal(size=(points, 6)).astype("float32"), rng.integers(3, size=points))


# -- trainings side by side


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_trainings_side_by_side_are_what_a_loop_gives(architecture: str) -> None:
    data, seeds = some_data(), [5, 6, 7]
    starts = [model(architecture, (6, 8, 8, 3), seed) for seed in seeds]
    before = [{name: value.clone() for name, value in net.state_dict().items()} for net in starts]
    found = train_modules(starts, data, seeds, Recipe(2, 16, lr=0.01), [1])
    assert sorted(found) == [1, 2]
    net, rng = deepcopy(starts[1]), np.random.default_rng([6, 1])
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.01)
    X, Y = torch.tensor(np.array(data.inputs)), torch.tensor(np.array(data.targets))
    for _ in range(2):
        # the last batch has one point: it is left out, since a batch norm could not train on it
        for rows in torch.split(torch.from_numpy(rng.permutation(len(X))), 16)[:-1]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X[rows]), Y[rows]).backward()
            optimizer.step()
    for a, b in zip(net.parameters(), found[2][1].parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-4)
    for start, state in zip(starts, before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in start.state_dict().items())
    assert not torch.equal(next(found[1][0].parameters()), next(found[2][0].parameters()))


def test_running_statistics_of_a_batch_norm_are_trained() -> None:
    starts = [model("w", (6, 8, 3), seed, norm="batch", bias=False).eval() for seed in (0, 1)]
    first, second = train_modules(starts, some_data(), [0, 1], Recipe(2, 16))[2]
    means = [net.get_submodule("norm0").running_mean for net in (first, second)]
    assert not torch.equal(means[0], means[1]) and float(means[0].abs().max()) > 0
    assert not first.training  # in the mode in which it came


def test_fixed_entries_stay() -> None:
    start = model("w", (6, 8, 3), 0, sigma=2.0, fixed=(2, 3))
    trained = train_modules([start], some_data(), [0], Recipe(3, 16))[3][0]
    part = start.get_submodule("linear0").parametrizations.weight[0]
    weights = trained.get_submodule("linear0").weight
    assert torch.equal(weights[part.D == 0], part.F[part.D == 0])
    assert not torch.equal(weights, start.get_submodule("linear0").weight)


def test_bad_runs_are_refused() -> None:
    with pytest.raises(InputError, match="one of standard, w"):
        model("other", (2, 2), 0)
    with pytest.raises(InputError, match="one per module"):
        train_modules([model("w", (6, 4, 3), 0)], some_data(), [0, 1], Recipe(1))
    with pytest.raises(InputError):
        train_modules([model("w", (6, w, 3), 0) for w in (4, 5)], some_data(), [0, 1], Recipe(1))


def test_standardised_as_a_whole() -> None:
    data = standardised(Dataset("x", np.array([[1.0, 3.0], [5.0, 7.0]]), np.array([0, 1])))
    assert data.inputs.dtype == np.float32
    assert data.inputs.mean() == pytest.approx(0, abs=1e-6) and data.inputs.std() == pytest.approx(1)
    constant = standardised(Dataset("x", np.ones((2, 2)), np.array([0, 1])))
    assert np.array_equal(constant.inputs, np.zeros((2, 2)))


# -- rows


def test_rows_of_a_small_run() -> None:
    tasks = swap_costs.STUDY.tasks("quick", SMALL)
    assert [tuple(t.settings[n] for n in ("series", "rank", "separation")) for t in tasks[::2]] == [
        ("common", 2, 0.5),
        ("common", 8, 0.5),
        ("matched", 2, 1.0),
        ("matched", 8, 0.35),
    ]
    rows = swap_costs.run_task(tasks[1])
    assert rows == swap_costs.run_task(tasks[1])
    table = Table.of(rows)
    assert [len(table.where(record=name)) for name in ("pair", "layer", "ridge")] == [2, 2 * 3, 3 * 2]
    for row in table.where(record="layer").dicts():
        assert row["near"] + row["negative"] + row["positive"] + row["infinite"] == pytest.approx(1)
        roots = [row[f"root_{q}"] for q in swap_costs.QUANTILES]
        assert roots == sorted(roots)
    assert all(np.isfinite(row["ridge_swap"]) for row in table.where(record="ridge").dicts())
    assert len(swap_costs.summarise(table)) == 3


def test_midpoints_by_hand() -> None:
    data = some_data(12)
    both = Dataset("both", data.inputs, data.targets, data.inputs, data.targets)
    a, b = (model("w", (6, 8, 3), seed) for seed in (0, 1))
    (row,) = swap_costs.midpoints([a, b], both)
    middle = deepcopy(a)
    with torch.no_grad():
        for p, q in zip(middle.parameters(), b.parameters(), strict=True):
            p.copy_((p + q) / 2)
        X = torch.tensor(np.array(data.inputs))
        hits = [float((net(X).argmax(dim=1).numpy() == data.targets).mean()) for net in (a, b, middle)]
    assert row["drop"] == row["train_drop"] == pytest.approx(100 * ((hits[0] + hits[1]) / 2 - hits[2]))
    assert row["accuracy"] == pytest.approx((hits[0] + hits[1]) / 2)


def test_shares_by_hand() -> None:
    # Neurons 0 and 1 pay 1 each and would pay the same after a swap; neuron 2 sits far away.
    F = np.array([[0.0, 0.0], [0.0, 0.0], [10.0, 0.0]])
    W = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    found = swap_costs.shares(NeuronClasses.from_arrays(F, np.ones((3, 2)), W, np.eye(2)))
    assert [found[name] for name in ("near", "negative", "infinite")] == pytest.approx([1 / 3, 0, 0])
    assert found["positive"] == pytest.approx(2 / 3)
    # Exchanged places: each would be better off where the other is.
    crossed = NeuronClasses.from_arrays([[1.0], [-1.0]], np.ones((2, 1)), [[-2.0], [2.0]], np.eye(1))
    assert swap_costs.shares(crossed)["negative"] == 1.0
    # No weight moves: neither can compute the other's function.
    stuck = NeuronClasses.from_arrays([[1.0], [-1.0]], np.zeros((2, 1)), np.zeros((2, 1)), np.eye(1))
    assert swap_costs.shares(stuck)["infinite"] == 1.0 and swap_costs.shares(stuck)["root_50"] is None


def test_settings_of_the_authors() -> None:
    tasks = swap_costs.STUDY.tasks("quick", SMALL | {"preset": "authors"})
    assert {task.settings["series"] for task in tasks} == {"common"}
    assert all(task.settings["separation"] == 0.3 and task.settings["batch"] == 128 for task in tasks)
    rows = swap_costs.run_task(tasks[1])
    pairs = [row for row in rows if row["record"] == "pair"]
    assert all(row["measure"] == "relative" and row["lost"] == row["train_relative_drop"] for row in pairs)
    own = swap_costs.STUDY.tasks("quick", SMALL | {"preset": "authors", "separation": 2.0, "measure": "absolute"})
    assert own[0].settings["separation"] == 2.0 and "measure" not in own[0].settings


def test_new_options_leave_the_seeds_of_the_default_run_alone() -> None:
    settings = swap_costs.STUDY.tasks("quick", SMALL)[0].settings
    assert set(settings) == {"series", "rank", "sigma", "separation", "fixed", *swap_costs.SIZES["quick"]}


def test_networks_have_the_fixed_entries_that_were_asked_for() -> None:
    def counts(*fixed: Any, **options: Any) -> list[int]:
        net = swap_costs.wide(0, 1.0, *fixed, **options)
        parts = [net.get_submodule(f"linear{i}").parametrizations.weight[0].D for i in range(4)]
        return [int((part == 0).sum(dim=1)[0]) for part in parts]

    assert counts() == [16, 8, 8, 32]
    assert counts(2) == [2, 2, 2, 32] and counts(2, 8, norm="batch") == [2, 2, 2, 8] and counts(None, 8)[-1] == 8


def test_relative_drop_by_hand() -> None:
    assert swap_costs.relative_drop(np.array([0.8, 0.4, 0.5])) == pytest.approx(50.0)
    assert swap_costs.relative_drop(np.array([0.0, 0.0, 0.0])) == 0.0


# -- claims


def made(drops: dict[int, float], matched: dict[int, float], without: float, cheap: dict[int, float]) -> Table:
    """Two pairs for each setting; ``without`` is added at sigma_F = 0, where most swaps are cheap. Costs by ridge rise
    with ``sigma_F`` if it is not negative.
    """
    rows: list[dict[str, Any]] = []
    ridged = 9.0 if without >= 0 else -9.0
    for series, means in (("common", drops), ("matched", matched)):
        for k, mean in means.items():
            for sigma in swap_costs.SIGMAS:
                about = {"series": series, "rank": k, "sigma": sigma}
                value = mean + (without if sigma == 0 else 0)
                pair = {"record": "pair", **about, "accuracy": 0.9, "measure": "absolute"}
                rows += [{**pair, "lost": value + e} for e in (-0.1, 0.1)]
                near = 0.9 if sigma == 0 else cheap[k]
                layer = {"record": "layer", **about, "layer": 1, "near": near, "negative": 0.0, "relative": 1.0}
                ridge = {"record": "ridge", **about, "layer": 1}
                rows += [layer, *({**ridge, "swap": 9 * sigma + i, "ridge_swap": ridged * sigma + i} for i in range(3))]
    return Table.of(rows)


FALLING, FLAT, RISING = {2: 40.0, 8: 15.0, 32: 5.0}, dict.fromkeys((2, 8, 32), 40.0), {2: 5.0, 8: 15.0, 32: 40.0}
FEWER, MORE = {2: 0.3, 8: 0.1, 32: 0.0}, {2: 0.0, 8: 0.1, 32: 0.6}


@pytest.mark.parametrize(
    ("drops", "matched", "without", "cheap", "expected"),
    [
        (FALLING, FLAT, 10.0, FEWER, [True, True, None, True, True, True, True]),
        (RISING, RISING, -10.0, MORE, [False, False, False, True, False, False, False]),
        ({2: 40.0, 8: 3.0, 32: 5.0}, FLAT, 0.0, FEWER, [None, False, None, True, True, None, True]),
        (FALLING, FALLING, 10.0, {2: 0.3, 8: 0.95, 32: 0.1}, [True, True, True, False, False, True, True]),
    ],
)
def test_claims(drops: Any, matched: Any, without: float, cheap: Any, expected: list[bool | None]) -> None:
    verdicts = swap_costs.STUDY.judge(made(drops, matched, without, cheap))
    assert [verdict.holds for verdict in verdicts] == expected, [verdict.ours for verdict in verdicts]


def test_too_few_rows_leave_claims_undecided() -> None:
    table = Table.of(made(FALLING, FLAT, 1.0, FEWER).where(rank=2).dicts())
    assert [verdict.holds for verdict in swap_costs.STUDY.judge(table)] == [None] * 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": [3]}, "some of"),
        ({"pairs": 0}, "positive integer"),
        ({"swaps": 40}, "at most 32"),
        ({"fixed": 65}, "from 0 to 64"),
        ({"separation": 0.0}, "positive number"),
        ({"fixed_last": -1}, "from 0 to 64"),
        ({"scales": "flat"}, "option scales: expected one of geometric, normal"),
        ({"norm": "none"}, "option norm"),
        ({"measure": "points"}, "option measure"),
        ({"turn_centers": 1}, "option turn_centers"),
        ({"series": ["other"]}, "option series"),
        ({"data_seed": 0.5}, "option data_seed"),
        ({"preset": "ours"}, "option preset: expected 'authors'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        swap_costs.STUDY.tasks("quick", options)
