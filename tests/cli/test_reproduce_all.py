"""``fiberscope reproduce all``: every study, one index page, one archive; and what happens when it is interrupted."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fiberscope as fs
from fiberscope.cli import app as command
from fiberscope.errors import InputError
from fiberscope.studies.lab import registry
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study


def rows(task: Any) -> list[dict[str, Any]]:
    if task.settings["stop"]:
        raise KeyboardInterrupt
    if task.settings["fail"]:
        raise RuntimeError("never works")
    return [{"x": task.settings["x"], "y": 2 * task.settings["x"]}]


def study(name: str, stop: bool = False, fail: bool = False) -> Study:
    return Study(
        name,
        f"The study {name}",
        "A paper",
        "figure 1",
        lambda scale, options: [{"x": x, "stop": stop and x == 2, "fail": fail and x == 2} for x in range(3)],
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


# -- the archive -------------------------------------------------------------------------------------------------------


def hashes(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def altered(path: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """A copy of an archive with other files in it."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    copy = path.with_name("altered.zip")
    with zipfile.ZipFile(copy, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return copy


def test_an_archive_has_everything_with_its_hash_and_the_same_bytes_again(
    studies: dict[str, Study], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(scale: str, options: Any) -> Any:
        raise InputError(f"data: expected files in {tmp_path}/data, got none")

    three = study("three")
    studies["three"] = Study(**{**{f: getattr(three, f) for f in three.__dataclass_fields__}, "plan": lost})
    studies["four"] = study("four", fail=True)
    monkeypatch.setattr(registry, "broken_studies", lambda: {"not_there": "ImportError: no"})
    (first, second), out = (tmp_path / "a.zip", tmp_path / "b.zip"), str(tmp_path / "out")
    told = run("all", "--jobs", "1", "--out", out, "--archive", str(first), "--json")
    assert told.exit_code == 1 and json.loads(told.stdout)["archive"] == str(first)
    run("all", "--jobs", "1", "--out", out, "--archive", str(second), "--json")
    assert first.read_bytes() == second.read_bytes()

    found = hashes(first)
    assert list(found) == sorted(found)
    with zipfile.ZipFile(first) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        listed = dict(line.split("  ")[::-1] for line in archive.read("SHA256SUMS").decode().splitlines())
        assert {info.date_time[0] for info in archive.infolist()} == {1980}
        assert not any(str(tmp_path).encode() in archive.read(name) for name in found)
    digests = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    assert digests == {name: found[name] for name in found if name not in ("manifest.json", "SHA256SUMS")}
    assert listed == {name: digest for name, digest in found.items() if name != "SHA256SUMS"}
    for name in ("table.csv", "summary.csv", "verdicts.json", "study.json", "index.html", "one-line.png"):
        assert f"one-quick/{name}" in found, name
    assert "index.html" in found and not any(name.endswith(("log.jsonl", "lock")) for name in found)
    assert manifest["failed"] == {
        "not-there": "cannot be loaded: ImportError: no",
        "three": "data: expected files in .../data, got none",
    }
    by_name = {entry["study"]: entry for entry in manifest["studies"]}
    assert list(by_name) == ["four", "one", "two"] and by_name["one"]["complete"] and not by_name["four"]["complete"]
    expected = [(task.key, task.seed) for task in studies["one"].tasks("quick", {})]
    assert [(task["key"], task["seed"]) for task in by_name["one"]["tasks"]] == expected
    assert [task["settings"]["x"] for task in by_name["four"]["tasks"] if "failed" in task] == [2]
    assert by_name["one"]["verdicts"] == [{"claim": "twice", "verdict": "holds"}]
    assert manifest["versions"]["numpy"] == np.__version__ and manifest["versions"]["fiberscope"] == fs.__version__
    assert run("--check", str(first)).exit_code == 0


def test_an_unpacked_archive_is_a_folder_that_needs_no_work(studies: dict[str, Study], tmp_path: Path) -> None:
    run("one", "--jobs", "1", "--out", str(tmp_path / "out"), "--archive", str(tmp_path / "one.zip"))
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    again = run("one", "--jobs", "1", "--out", str(tmp_path / "unpacked" / "one-quick"), "--json")
    assert (json.loads(again.stdout)["computed"], json.loads(again.stdout)["reused"]) == (0, 3)


def test_a_damaged_archive_is_found_out(studies: dict[str, Study], tmp_path: Path) -> None:
    path = tmp_path / "one.zip"
    assert run("one", "--jobs", "1", "--out", str(tmp_path / "out"), "--archive", str(path)).exit_code == 0
    changes: dict[str, Callable[[dict[str, bytes]], object]] = {
        "one-quick/table.csv: damaged": lambda files: files.update({"one-quick/table.csv": b"x,y\n"}),
        "one-quick/table.csv: missing": lambda files: files.pop("one-quick/table.csv"),
        "other.txt: not of this archive": lambda files: files.update({"other.txt": b""}),
        "manifest.json: not the one of SHA256SUMS": lambda files: files.pop("SHA256SUMS"),
    }
    for message, change in changes.items():
        done = run("--check", str(altered(path, change)))
        assert done.exit_code == 1 and message in done.output and "NOT whole" in done.output
    twice = altered(path, lambda files: None)
    with zipfile.ZipFile(twice, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("one-quick/table.csv", "x,y\n")
    assert json.loads(run("--check", str(twice), "--json").stdout)["wrong"] == [
        "one-quick/table.csv: damaged",
        "one-quick/table.csv: twice",
    ]
    data = bytearray(path.read_bytes())
    data[data.index(b"one-quick/index.html") + 40] ^= 1  # within the packed bytes
    (tmp_path / "flipped.zip").write_bytes(data)
    assert "one-quick/index.html: damaged" in run("--check", str(tmp_path / "flipped.zip")).output


@pytest.mark.parametrize("content", [None, b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "some.zip"
    if content is not None:
        path.write_bytes(content)
    error = run("--check", str(path)).exception
    assert isinstance(error, InputError) and str(path) in str(error) and "\n" not in str(error)


def test_an_archive_without_a_place_is_refused_before_the_work(studies: dict[str, Study], tmp_path: Path) -> None:
    (tmp_path / "there.zip").write_text("mine")
    (tmp_path / "dangling.zip").symlink_to(tmp_path / "nowhere")
    for name in ("there.zip", "dangling.zip", "no folder/a.zip", "there.zip/a.zip"):
        for which in ("all", "one"):
            done = run(which, "--out", str(tmp_path / "out"), "--archive", str(tmp_path / name))
            assert isinstance(done.exception, InputError) and "archive: expected a new file" in str(done.exception)
    assert (tmp_path / "there.zip").read_text() == "mine" and not (tmp_path / "out").exists()


def test_an_interrupted_run_leaves_no_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "all_studies", lambda: {"stopped": study("stopped", stop=True)})
    for which in ("all", "stopped"):
        done = run(which, "--jobs", "1", "--out", str(tmp_path / which), "--archive", str(tmp_path / "a.zip"))
        assert done.exit_code == 130 and not list(tmp_path.glob("*.zip*")) and not list(tmp_path.glob(".*"))
