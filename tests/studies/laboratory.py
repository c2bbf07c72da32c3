"""Studies made for tests: fast ones, failing ones, ones that kill their worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fiberscope.studies.lab.study import Claim, Finding, Study, Task
from fiberscope.studies.lab.table import Table


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{**options, "index": index} for index in range(options["count"])]


def numbers(task: Task) -> list[dict[str, Any]]:
    """Floats that come from products large enough for threads to matter, and every kind of cell."""
    time.sleep(task.settings["sleep"])
    trace(task)
    rng = np.random.default_rng(task.seed)
    a = rng.normal(size=(120, 120))
    b = torch.from_numpy(a)
    return [
        {
            "index": task.settings["index"],
            "numpy": float((a @ a).sum()),
            "torch": float((b @ b.T).sum()),
            "special": [float("nan"), float("inf"), None, 0.1][task.settings["index"] % 4],
            "word": "one, two",
            "flag": task.settings["index"] % 2 == 0,
        }
    ]


def trace(task: Task) -> None:
    """Leave a mark for every execution, to count repetitions."""
    folder = task.settings["trace"]
    if folder:
        with (Path(folder) / f"{task.settings['index']}").open("a") as file:
            file.write("x")


def failing(task: Task) -> list[dict[str, Any]]:
    trace(task)
    index = task.settings["index"]
    if index == 1:
        raise RuntimeError("this one never works\nsecond line")
    if index == 2 and len((Path(task.settings["trace"]) / "2").read_text()) == 1:
        raise ValueError("this one works the second time")
    if index == 3:
        return []
    return [{"index": index}]


def deadly(task: Task) -> list[dict[str, Any]]:
    trace(task)
    if task.settings["index"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"index": task.settings["index"]}]


def positive(table: Table) -> Finding:
    return Finding(min(table.column("index")) >= 0, f"{len(table)} rows")


def study(run_task: Any = numbers, count: int = 6, name: str = "numbers", version: int = 1) -> Study:
    return Study(
        name=name,
        title="a study for tests",
        paper="none",
        figure="none",
        plan=plan,
        run_task=run_task,
        claims=(
            Claim("positive", "All indices are positive.", "nowhere", positive),
            Claim(
                "absent", "A column that is not there.", "nowhere", lambda table: Finding(True, table.column("no")[0])
            ),
        ),
        cost={"quick": 1.0, "paper": 2.0},
        options={"count": count, "sleep": 0.0, "trace": ""},
        version=version,
    )
