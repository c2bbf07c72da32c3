"""The study of ranks against images: networks, one small run, claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fiberscope.errors import InputError
from fiberscope.studies.lab.table import Table
from fiberscope.studies.saturation import NETWORKS, STUDY, build


@pytest.mark.parametrize("side", [8, 28])
@pytest.mark.parametrize("kind", NETWORKS)
def test_networks_take_both_sizes(kind: str, side: int) -> None:
    module = build(kind, side).eval()
    assert module(torch.zeros(2, 1, side, side)).shape == (2, 10)


def test_a_small_run() -> None:
    options = {"runs": 1, "largest": 8, "epochs": 1}
    tasks = STUDY.tasks("quick", options)
    assert [task.settings["network"] for task in tasks] == list(NETWORKS)
    rows = STUDY.run_task(tasks[1])
    assert [row["points"] for row in rows] == [1, 2, 4, 8] * 2
    assert all(row["rank"] <= min(row["rows"], row["most"]) for row in rows)
    assert {row["parameters"] for row in rows} == {530}
    # four channels each: of the stream and inside the block, and three times two that normalisations take back
    assert rows[-1]["most"] == 530 - 8 - 24
    assert np.isfinite([row["accuracy"] for row in rows]).all()
    assert len(STUDY.summarise(Table.of(rows))) == len(rows)


def by_hand(ranks: tuple[int, int, int], most: int = 40) -> Table:
    rows: list[dict[str, Any]] = []
    for moment, lost in (("start", 3), ("trained", 0)):
        for points, rank in zip((1, 8, 16), ranks, strict=True):
            row = {"images": "digits", "network": "cnn", "run": 0, "moment": moment, "points": points}
            found = max(10, rank - lost)
            rows.append(row | {"rows": 10 * points, "rank": found, "most": most, "share": found / most})
    return Table.of(rows)


def test_claims() -> None:
    verdicts = {v.claim: v.holds for v in STUDY.judge(by_hand((10, 40, 40)))}
    assert verdicts == {"full-at-first": True, "stops": True, "only-symmetries": True, "training-raises": True}
    verdicts = {v.claim: v.holds for v in STUDY.judge(by_hand((9, 35, 38)))}
    assert verdicts["stops"] is False and verdicts["only-symmetries"] is False


def test_options() -> None:
    with pytest.raises(InputError, match="option images"):
        STUDY.tasks("quick", {"images": ["faces"]})
    with pytest.raises(InputError, match="option runs"):
        STUDY.tasks("quick", {"runs": 0})
