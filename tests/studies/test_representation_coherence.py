"""Coherence of representations: rows against the slow way, claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fiberscope.errors import InputError
from fiberscope.modules.models import mlp
from fiberscope.studies import representation_coherence as study
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.dataset import Dataset

SMALL = {"hidden": [8, 8], "runs": 2, "epochs": 1, "variants": ["plain"]}


def slow_coherence(seen: np.ndarray) -> tuple[int, float]:
    """Principal components by the singular values of the centred samples."""
    _, s, vt = np.linalg.svd(seen - seen.mean(axis=0), full_matrices=False)
    shares = np.cumsum(s**2) / np.sum(s**2)
    rank = int(np.argmax(shares >= 0.9)) + 1
    return rank, float((vt[:rank] ** 2).sum(axis=0).max())


def test_places_against_singular_values() -> None:
    rng = np.random.default_rng(0)
    data = Dataset("given", rng.normal(1, 1, (50, 6)).astype("float32"), rng.integers(0, 3, 50))
    net = mlp((6, 5, 4, 3), 0)
    rows = study.places(net, data)
    assert [row["seen"] for row in rows] == ["inputs", "hidden 1", "hidden 2", "output"]
    x = torch.from_numpy(np.array(data.inputs))
    with torch.no_grad():
        seen = [x, net[:4](x), net[:7](x), net(x)]
    for row, values in zip(rows, seen, strict=True):
        rank, nu = slow_coherence(values.double().numpy())
        assert row["rank"] == rank
        assert row["coherence"] == pytest.approx(nu, abs=1e-6)
        assert row["ratio"] == pytest.approx(nu * values.shape[1] / rank, abs=1e-5)
    assert rows[0]["accuracy"] == pytest.approx(float(np.mean(seen[-1].argmax(1).numpy() == data.targets)))


def test_rows_of_a_small_run() -> None:
    tasks = study.STUDY.tasks("quick", SMALL)
    assert [task.settings["model"] for task in tasks] == list(study.MODELS)
    rows = study.run_task(tasks[2])
    assert len(rows) == 2 * 2 * 4  # epochs 0 and 1, two runs, four places
    assert all(row["least"] <= row["coherence"] <= 1 for row in rows)


def test_rotation_keeps_the_spectrum_and_mixes_the_coordinates() -> None:
    plain, rotated = (study.training_data("digits", variant) for variant in study.VARIANTS)
    assert np.linalg.norm(rotated.inputs, axis=1) == pytest.approx(np.linalg.norm(plain.inputs, axis=1), rel=1e-4)
    (k, nu), (k_rotated, nu_rotated) = (slow_coherence(part.inputs.astype(float)) for part in (plain, rotated))
    assert (k, nu_rotated < nu) == (k_rotated, True)


@pytest.mark.parametrize(("d", "k"), [(9, 4), (9, 9), (8, 8), (64, 29), (5, 1), (6, 3)])
def test_flattening_reaches_the_least_coherence(d: int, k: int) -> None:
    basis = np.linalg.qr(np.random.default_rng(d).normal(size=(d, k)))[0]
    turn = study.flattening(basis)
    np.testing.assert_allclose(turn @ turn.T, np.eye(d), atol=1e-12)
    np.testing.assert_allclose(((turn.T @ basis) ** 2).sum(axis=1), k / d, atol=1e-12)


def test_the_least_variant_and_uncentred_subspaces() -> None:
    data = study.training_data("digits", "least")
    rank, nu = slow_coherence(data.inputs.astype(float))
    assert nu == pytest.approx(rank / 64, rel=1e-3)
    net = mlp((64, 5, 10), 0)
    centred, plain = (study.places(net, data, one)[0]["rank"] for one in (True, False))
    assert centred == rank != plain
    with pytest.raises(InputError, match="option centred"):
        study.STUDY.tasks("quick", {"centred": 1})


def made(values: dict[str, float], ratio: float = 2.0, spread: float = 0.001, name: str = "digits") -> Table:
    """The first hidden layer has 0.5 everywhere, the last one what is given."""
    rows: list[dict[str, Any]] = []
    for model, value in values.items():
        for run in (0, 1, 2):
            for place, seen in enumerate(("inputs", "hidden 1", "hidden 2", "output")):
                nu = {1: 0.5, 2: value}.get(place, 0.9) + spread * run
                row = {"variant": "plain", "model": model, "run": run, "epoch": 1, "data": name, "place": place}
                scale = ratio if model in study.BROKEN else 2.0
                rows.append(row | {"seen": seen, "rank": 87, "coherence": nu, "least": 0.1, "ratio": scale})
    return Table.of(rows)


def verdicts(table: Table) -> dict[str, bool | None]:
    return {verdict.claim: verdict.holds for verdict in study.STUDY.judge(table)}


def test_claims_by_hand() -> None:
    low, high = dict.fromkeys(study.UNBROKEN, 0.2), dict.fromkeys(study.BROKEN, 0.7)
    holds = {"later-layers": True, "all-layers": True, "depth": True, "mnist-rank": None, "beyond-rank": True}
    assert verdicts(made(low | high, ratio=3.0)) == holds
    swapped = verdicts(made(dict.fromkeys(study.UNBROKEN, 0.7) | dict.fromkeys(study.BROKEN, 0.2), ratio=1.0))
    assert swapped == {**dict.fromkeys(holds, False), "mnist-rank": None}
    noisy = verdicts(made(low | high, spread=0.4))
    assert (noisy["later-layers"], noisy["beyond-rank"]) == (None, None)
    assert verdicts(made(low | high, name="mnist"))["mnist-rank"] is True


def test_one_run_decides_nothing_about_differences() -> None:
    table = made(dict.fromkeys(study.UNBROKEN, 0.2) | dict.fromkeys(study.BROKEN, 0.7)).where(run=0)
    assert verdicts(table)["later-layers"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 0}, "positive integer"),
        ({"epochs": 0.5}, "positive integer"),
        ({"hidden": []}, "list of widths"),
        ({"variants": ["turned"]}, "some of plain, rotated"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study.STUDY.tasks("quick", options)


def test_missing_data_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("FIBERSCOPE_DATA", str(tmp_path / "nowhere"))
    task = study.STUDY.tasks("paper", {"variants": ["plain"]})[0]
    with pytest.raises(InputError, match="FIBERSCOPE_DATA"):
        study.run_task(task)
