"""Barriers of transformers after each kind of alignment: groups by what they are, claims on tables made by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fiberscope.connectivity.structure import permutation_structure
from fiberscope.errors import InputError
from fiberscope.studies import transformer_symmetries as study
from fiberscope.studies.lab.table import Table


def test_groups_by_what_they_are() -> None:
    net = study.transformer(8, 0)
    parts = study.parts_of(permutation_structure(net, torch.zeros(1, 64)))
    sizes = {part: [group.size for group in found.groups] for part, found in parts.items()}
    assert sizes["stream"] == [8] and sizes["feed-forward"] == [16] * study.DEPTH
    assert sizes["heads"][0] == study.HEADS and len(sizes["heads"]) == 3 * study.DEPTH


def test_a_task_measures_every_path() -> None:
    (task,) = study.STUDY.tasks("quick", {"pairs": 1, "epochs": 1, "size": 8, "steps": 2})
    rows = study.run_task(task)
    assert [row["path"] for row in rows] == list(study.PATHS)
    assert len({round(row["accuracy"], 3) for row in rows}) == 1  # the ends are the same functions on every path
    with pytest.raises(InputError, match="option steps"):
        study.STUDY.tasks("quick", {"steps": 0})


def table(**values: float) -> Table:
    rows: list[dict[str, Any]] = [
        {"path": path, "barrier": values.get(path.replace(" ", "_"), 1.0), "test_barrier": values.get("test", 1.0)}
        for path in study.PATHS
    ]
    rows[0]["test_barrier"] = 1.0
    return Table.of(rows)


def test_claims_hold_and_fail() -> None:
    assert study.permuted(table(permutations=0.5)).holds
    assert not study.permuted(table(permutations=0.05)).holds and not study.permuted(table()).holds
    assert study.rotated(table(procrustes=0.5)).holds and not study.rotated(table()).holds
    assert study.learned(table(learned=0.01)).holds and not study.learned(table(learned=0.2)).holds
    assert study.generalises(table(test=0.05)).holds and not study.generalises(table()).holds
