"""``fiberscope reproduce all``: every study, one index page; and what happens when it is interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fiberscope.cli import app as command
from fiberscope.errors import InputError
from fiberscope.studies.lab import registry
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study


def rows(task: Any) -> list[dict[str, Any]]:
    if task.settings["stop"]:
        raise KeyboardInterrupt
    return [{"x": task.settings["x"], "y": 2 * task.settings["x"]}]


def study(name: str, stop: bool = False) -> Study:
    return Study(
        name,
        f"The study {name}",
        "A paper",
        "figure 1",
        lambda scale, options: [{"x": x, "stop": stop and x == 2} for x in range(3)],
        rows,
        (Claim("twice", "y is twice x.", "section 1", lambda table: Finding(True, "it is")),),
        {"quick": 1.0, "paper": 1.0},
        pictures=(Picture(f"{name}-line", "A line", "x", "y"),),
    )


def broken(scale: str, options: Any) -> Any:
    raise InputError("data: expected files, got none")


@pytest.fixture
def studies(monkeypatch: pytest.MonkeyPatch) -> dict[str, Study]:
    known = {"one": study("one"), "two": study("two")}
    monkeypatch.setattr(registry, "all_studies", lambda: known)
    return known


def run(*arguments: str) -> Any:
    return CliRunner().invoke(command.app, ["reproduce", *arguments])


def test_every_claim_and_figure_is_on_one_page(studies: dict[str, Study], tmp_path: Path) -> None:
    three = study("three")
    studies["three"] = Study(**{**{f: getattr(three, f) for f in three.__dataclass_fields__}, "plan": broken})
    done = run("all", "--jobs", "1", "--out", str(tmp_path), "--json")
    assert done.exit_code == 1, done.output  # one study could not be run
    told = json.loads(done.stdout)
    assert told["failed"] == {"three": "data: expected files, got none"} and len(told["studies"]) == 2
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count("y is twice x.") == 2 and page.count("data:image/png;base64") == 2
    assert 'href="one-quick/index.html"' in page and (tmp_path / "one-quick" / "index.html").is_file()
    assert "expected files, got none" in page
    again = json.loads(run("all", "--jobs", "1", "--out", str(tmp_path), "--json").stdout)
    assert [one["reused"] for one in again["studies"]] == [3, 3]


def test_a_defect_of_one_study_stops_no_other(studies: dict[str, Study], tmp_path: Path) -> None:
    bad = study("bad")
    pictures = (Picture("words", "No number", "x", "word"),)  # a column that is not there
    studies.update({"bad": Study(**{**{f: getattr(bad, f) for f in bad.__dataclass_fields__}, "pictures": pictures})})
    studies["last"] = study("last")
    done = run("all", "--jobs", "1", "--out", str(tmp_path), "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert list(told["failed"]) == ["bad"] and len(told["studies"]) == 3


def test_ctrl_c_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "all_studies", lambda: {"stopped": study("stopped", stop=True)})
    done = run("stopped", "--jobs", "1", "--out", str(tmp_path))
    assert done.exit_code == 130
    assert "run again to resume" in done.output
    assert len(list((tmp_path / "tasks").iterdir())) == 2


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(studies: dict[str, Study], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("all", "--out", str(tmp_path / "file" / "below"))
    assert isinstance(done.exception, InputError) and "can be written" in str(done.exception)


def test_options_of_one_study_are_refused_for_all(studies: dict[str, Study], tmp_path: Path) -> None:
    assert "expected none with all" in str(run("all", "--set", "seeds=3", "--out", str(tmp_path)).exception)
