"""Centres as random features: every part gives its rows, and claims can fail."""

from __future__ import annotations

import pytest

from fiberscope.errors import InputError
from fiberscope.studies import feature_learning as study
from fiberscope.studies.lab.table import Table


def test_every_part_and_its_claims() -> None:
    tasks = study.STUDY.tasks("quick", {"draws": 1, "dimensions": [3, 6]})
    assert [task.settings["part"] for task in tasks] == ["stability", "hardness", "hardness", "projection"]
    rows = [row for task in tasks for row in study.run_task(task)]
    table = Table.of(rows)
    assert study.stable(table).holds and study.projected(table).holds
    shown = study.summarise(table)
    parts = shown.column("part")
    assert [parts.count(name) for name in ("stability", "hardness", "projection")] == [
        len(study.RATIOS),
        2 * 2 * len(study.FACTORS),
        len(study.RANKS),
    ]
    with pytest.raises(InputError, match="option dimensions"):
        study.STUDY.tasks("quick", {"dimensions": [1]})


def test_claims_fail() -> None:
    stability = Table.of([{"part": "stability", "neuron_share": 0.9, "network_share": 0.1}])
    assert not study.stable(stability).holds
    rows = [
        {"part": "hardness", "factor": 16, "bias": 0.0, "dimension": d, "error": e, "relative": e}
        for d, e in ((5, 0.3), (10, 0.1))
    ]
    assert not study.hard(Table.of(rows)).holds and not study.grows(Table.of(rows)).holds
    assert not study.projected(Table.of([{"part": "projection", "share": 1.5}])).holds
