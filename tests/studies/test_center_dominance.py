"""Chord deviations against the ratio of trained to fixed weights: rows by hand, claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fiberscope.errors import InputError
from fiberscope.studies import center_dominance as study
from fiberscope.studies.lab.table import Table


@pytest.mark.parametrize("inputs", ["gaussian", "halves"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_single_layers_have_the_ratio_asked_for(inputs: str, activation: str) -> None:
    found = study.one_layer(inputs, 0.2, activation, np.random.default_rng(0), points=2000)
    assert found.q == pytest.approx(0.2)
    assert found.fixed == pytest.approx(8.0)  # 64 neurons of size one
    assert 0 < found.worst <= found.any_inputs * (1 + 1e-12)
    assert found.worst < found.bound


def test_halves_deviate_by_half_of_the_ratio() -> None:
    """Where the fixed part is silent, relu(z) and relu(-z) have the mean |z| / 2, and their middle is relu(0)."""
    found = study.one_layer("halves", 0.01, "relu", np.random.default_rng(1), points=2000)
    assert found.worst / found.fixed == pytest.approx(0.005)
    assert found.worst > 1.9 * found.bound


def test_rows_of_a_pair_against_the_networks() -> None:
    data = study.task_data("gaussian")
    X, y = np.array(data.inputs[:50]), np.array(data.targets[:50])
    a, b = (study.anchored("relu", "none", (study.INPUTS, 8, 8, study.CLASSES), 1.0, seed) for seed in (0, 1))
    rows = study.along(a, b, (X, y), "relu")
    assert [row["record"] for row in rows] == ["inner", "inner", "network"]
    x, labels = torch.from_numpy(X), torch.from_numpy(y)
    middle = study.anchored("relu", "none", (study.INPUTS, 8, 8, study.CLASSES), 1.0, 0)
    with torch.no_grad():
        for p, v, w in zip(middle.parameters(), a.parameters(), b.parameters(), strict=True):
            p.copy_((v + w) / 2)
        outputs = [net(x) for net in (a, b, middle)]
    losses = [float(torch.nn.functional.cross_entropy(out, labels)) for out in outputs]
    off = float(((outputs[2] - (outputs[0] + outputs[1]) / 2) ** 2).sum(dim=1).mean().sqrt())
    size = float((outputs[0] ** 2).sum(dim=1).mean().sqrt())
    assert rows[2]["loss"] == pytest.approx((losses[0] + losses[1]) / 2, rel=1e-5)
    assert rows[2]["deviation"] >= off / size * (1 - 1e-5)
    assert rows[2]["barrier"] >= losses[2] - (losses[0] + losses[1]) / 2 - 1e-6
    assert rows[2]["barrier"] <= rows[2]["loss_bound"]
    assert rows[2]["q"] == max(row["q"] for row in rows[:2])


def test_a_task_trains_pairs() -> None:
    tasks = study.STUDY.tasks("quick", {"pairs": 1, "epochs": 1, "scales": [2.0]})
    assert len(tasks) == 2 + len(study.GROUPS)
    rows = study.run_task(tasks[-1])
    assert [row["record"] for row in rows] == ["inner", "inner", "network"]
    assert {row["case"] for row in rows} == {"digits, gelu, layer norm"}


def made(power: float = 1.5, above: float = 0.1, falls: float = 1.0, excess: float = 0.1) -> Table:
    """``above``: deviations over bounds; ``falls``: the power of ``q`` in deviations and barriers of networks."""
    rows: list[dict[str, Any]] = []
    for activation, gain in (("relu", 0.0), ("gelu", 0.5)):
        for q in study.RATIOS:
            deviation = q ** (power + gain)
            bounds = {"bound": deviation / above, "free": deviation / above}
            row = {"record": "layer", "activation": activation, "q": q, "deviation": deviation, **bounds}
            rows.append(row | {"case": f"gaussian, {activation}"})
            rows.append(row | {"case": f"halves, {activation}", "deviation": 20 * above * deviation})
    for data, activation, norm in study.GROUPS:
        for scale in (1.0, 2.0, 4.0, 8.0):
            value = (4 / scale) ** falls
            case = {"case": f"{data}, {activation}, {norm}", "data": data, "activation": activation, "norm": norm}
            row = {"record": "network", "scale": scale, "q": 4 / scale, "deviation": value, "barrier": value, **case}
            rows.append(row | {"loss_bound": value / excess, "loss": scale**falls, "accuracy": 0.5})
            inner = {"record": "inner", "layer": 0, "scale": scale, "q": 4 / scale, "deviation": above, **case}
            rows.append(inner | {"bound": 1.0 if scale > 4 else np.inf, "free": 1.0})
    return Table.of(rows)


def verdicts(table: Table) -> dict[str, bool | None]:
    return {verdict.claim: verdict.holds for verdict in study.STUDY.judge(table)}


def test_claims_by_hand() -> None:
    falling = ("deviation", "barrier", "barrier-no-norms", "harder")
    good = verdicts(made())
    assert {name: good[name] for name in ("bound", "exponent", "loss", *falling)} == dict.fromkeys(
        ("bound", "exponent", "loss", *falling), True
    )
    assert verdicts(made(power=1.0))["exponent"] is False
    high = verdicts(made(above=1.2))
    assert (high["bound"], high["free"], high["assumption"]) == (False, False, True)
    assert verdicts(made(above=0.01))["assumption"] is False
    assert all(verdicts(made(falls=-1.0))[name] is False for name in falling)
    assert verdicts(made(excess=1.5))["loss"] is False


def test_few_scales_leave_it_open() -> None:
    table = made()
    few = Table.of([row for row in table.dicts() if row.get("scale") in (None, 1.0)])
    assert verdicts(few)["barrier"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [({"pairs": 0}, "positive integer"), ({"epochs": 1.5}, "positive integer"), ({"scales": [0]}, "positive numbers")],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study.STUDY.tasks("quick", options)
