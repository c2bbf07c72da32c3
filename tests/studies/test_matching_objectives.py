"""The study of matching objectives: rows against correlations computed outright, claims on tables made by hand."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fiberscope.errors import InputError
from fiberscope.studies import matching_objectives as study
from fiberscope.studies._asymmetric_runs import model
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.dataset import Dataset

SMALL = {"width": 6, "pairs": 1, "epochs": 2, "checkpoints": [0, 1, 2], "limit": 64, "dataset": "gaussian_mixture"}


def test_rows_of_a_small_run() -> None:
    tasks = study.STUDY.tasks("quick", {**SMALL, "sigmas": [0.0, 1.0], "shares": [0.125, 0.5]})
    kinds = [tuple(task.settings[n] for n in ("sweep", "architecture", "sigma", "share")) for task in tasks]
    assert kinds == [
        ("sigma", "w", 0.0, 0.125),
        ("sigma", "w", 1.0, 0.125),
        *(("architecture", name, 1.0, 0.125) for name in ("standard", "syre", "sigma")),
        ("share", "w", 0.0, 0.5),
        ("share", "w", 1.0, 0.5),
    ]
    table = Table.of([row for task in (tasks[1], tasks[4]) for row in study.run_task(task)])
    assert len(table) == 2 * 3 * 3  # tasks, epochs, layers: the last epoch is recorded once
    assert table.where(last=True).column("epoch") == [2] * 6
    assert all(row["optimal"] >= max(row["identity"], row["random"]) for row in table.dicts())
    assert len(study.summarise(table)) == 2 * 3


def test_objectives_against_all_permutations() -> None:
    a, b = (model("w", (4, 3, 3, 3, 2), seed) for seed in (0, 1))
    X = torch.tensor(np.random.default_rng(0).normal(size=(40, 4)), dtype=torch.float32)
    Y = torch.zeros(40, dtype=torch.long)
    rows = study.objectives(a, b, X, Y)
    assert [row["layer"] for row in rows] == [1, 2, 3]
    for i, row in enumerate(rows):
        with torch.no_grad():
            left, right = (nn.Sequential(*list(net.children())[: 4 + 3 * i])(X).numpy() for net in (a, b))
        S = np.corrcoef(left.T, right.T)[:3, 3:]
        values = [np.mean(S[np.arange(3), list(p)]) for p in permutations(range(3))]
        assert row["optimal"] == pytest.approx(max(values), abs=1e-5)
        assert row["identity"] == pytest.approx(values[0], abs=1e-5)
    hits = [float((net(X).argmax(dim=1) == Y).double().mean()) for net in (a, b)]
    assert rows[0]["accuracy"] == pytest.approx(np.mean(hits))


def test_fixed_entries_of_a_share() -> None:
    data = Dataset("", np.zeros((4, 8), dtype=np.float32), np.array([0, 1, 0, 1]))
    net = study.initial({"architecture": "w", "share": 0.5, "sigma": 1.0, "width": 6}, data, 0)
    counts = [
        int((net.get_submodule(f"linear{i}").parametrizations.weight[0].D == 0).sum(dim=1).unique()) for i in range(4)
    ]
    assert counts == [4, 3, 3, 3]


def test_closeness() -> None:
    assert study.closeness(0.9, 0.9, 0.1) == 1.0
    assert study.closeness(0.9, 0.1, 0.1) == 0.0
    assert study.closeness(0.5, 0.5, 0.5) is None


def test_missing_files_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def absent(name: str, **options: Any) -> Any:
        raise InputError("train-images-idx3-ubyte.gz: not found")

    monkeypatch.setattr(study, "load_dataset", absent)
    with pytest.raises(InputError, match="needs the data set mnist: train-images"):
        study.dataset("mnist", 10)


# -- claims


def made(by_sigma: dict[float, float], others: dict[str, float], sparse: float, spread: float = 0.0) -> Table:
    """Random permutations at 0, the optimal one at 1, so that the identity is its own closeness."""
    rows: list[dict[str, Any]] = []

    def add(sweep: str, architecture: str, sigma: float, share: float, value: float) -> None:
        about = {"sweep": sweep, "architecture": architecture, "sigma": sigma, "share": share}
        for epoch, last in ((0, False), (5, True)):
            for layer in (1, 2, 3):
                identity = value + spread * (layer - 2)
                found = {"optimal": 1.0, "identity": identity, "random": 0.0, "closeness": identity}
                rows.append({**about, "epoch": epoch, "last": last, "layer": layer, **found})

    for sigma, value in by_sigma.items():
        add("sigma", "w", sigma, 0.125, value)
    for name, value in others.items():
        add("architecture", name, 1.0, 0.125, value)
    add("share", "w", 0.0, 0.5, sparse)
    add("share", "w", 1.0, 0.5, 0.9)
    return Table.of(rows)


GOOD = {0.0: 0.1, 0.5: 0.6, 1.0: 0.9, 5.0: 0.95}
OTHERS = {"standard": 0.0, "syre": 0.9, "sigma": 0.05}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (made(GOOD, OTHERS, 0.3), [True] * 7),
        (made({**GOOD, 5.0: 0.5}, OTHERS, 0.3), [False, *[True] * 6]),
        (made({**GOOD, 0.0: 0.7}, OTHERS, 0.9), [False, True, False, True, True, True, False]),
        (made(GOOD, {**OTHERS, "sigma": 0.5, "standard": 0.3}, 0.3), [True] * 4 + [False, False, True]),
        (made(GOOD, OTHERS, 0.3, spread=0.2), [True, True, True, False, True, True, True]),
    ],
)
def test_claims(table: Table, expected: list[bool]) -> None:
    verdicts = study.STUDY.judge(table)
    assert [verdict.holds for verdict in verdicts] == expected, [verdict.ours for verdict in verdicts]


def test_random_permutations_that_are_as_good() -> None:
    rows = [row | {"random": 0.6} for row in made(GOOD, OTHERS, 0.3).dicts()]
    assert study.STUDY.judge(Table.of(rows))[1].holds is False


def test_a_table_without_architectures_is_undecided() -> None:
    verdicts = study.STUDY.judge(made(GOOD, {}, 0.3))
    assert [verdict.holds for verdict in verdicts][3:6] == [None] * 3


def test_one_share_of_fixed_entries_does_not_decide() -> None:
    rows = [row for row in made(GOOD, OTHERS, 0.3).dicts() if row["sweep"] != "share"]
    assert study.STUDY.judge(Table.of(rows))[6].holds is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "iris"}, "one of digits, mnist"),
        ({"width": 0}, "positive integer"),
        ({"shares": [1.5]}, "from 0 to 1"),
        ({"sigmas": [-1.0]}, "numbers from 0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study.STUDY.tasks("quick", options)


def test_residual_networks_are_matched_at_streams_and_inside_blocks() -> None:
    options = {"net": "resnet20", "width": 1, "pairs": 1, "epochs": 1, "limit": 12, "sigmas": [2.0], "shares": []}
    tasks = study.STUDY.tasks("quick", options)
    assert {task.settings["architecture"] for task in tasks} == {"w", "standard", "syre"}
    data = study.dataset("digits", 12)
    a, b = (study.initial(tasks[0].settings, data, seed) for seed in (0, 1))
    mine = a.get_submodule("1.conv").parametrizations.weight[0]
    assert int((mine.D == 0).sum()) == 2 and float(mine.F[mine.D == 0].abs().max()) > 0
    X, Y = torch.tensor(np.array(data.flat_inputs)), torch.tensor(np.array(data.targets))
    rows = study.objectives(a, b, X, Y)
    assert len(rows) == 12 and len({row["place"] for row in rows}) == 12  # three streams, nine blocks
    with pytest.raises(InputError, match="option net"):
        study.STUDY.tasks("quick", {"net": "vit"})
