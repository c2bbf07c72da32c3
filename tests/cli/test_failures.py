"""How a command ends when something goes wrong: one line, the right exit code, and a traceback only on demand."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

import fiberscope as fs
from fiberscope.cli import inspect as command
from fiberscope.errors import OutOfTimeError

Run = Callable[..., CompletedProcess[str]]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.npz"
    fs.save(fs.Network.random((2, 3, 1), seed=0), path)
    return path


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(command.fs, "load", fail)
    monkeypatch.setattr(command.fs, "inspect", fail)


CASES: list[tuple[BaseException, int, str]] = [
    (fs.InputError("weights: expected numbers, got [letters]"), 2, "error: weights: expected numbers, got [letters]"),
    (fs.TooLargeError("two\nlines"), 2, "error: two lines"),
    (OutOfTimeError("the time is up; [more]"), 3, "undecided: the time is up; [more]"),
    (OSError(errno.ENOSPC, "No space left on device", "out/[a].json"), 2, "error: out/[a].json: No space left"),
    (OSError(errno.EACCES, "Permission denied"), 2, "error: Permission denied"),
    (OSError("no number"), 2, "error: no number"),
    (MemoryError("Unable to allocate 8 TiB"), 2, "error: not enough memory (Unable to allocate 8 TiB)"),
    (ZeroDivisionError("division by zero"), 70, "error: unforeseen ZeroDivisionError: division by zero; this is a"),
    (AssertionError(), 70, "error: unforeseen AssertionError: without a message; this is a defect"),
    (RecursionError("maximum\ndepth"), 70, "error: unforeseen RecursionError: maximum depth;"),
    (KeyboardInterrupt(), 130, "interrupted"),
]


@pytest.mark.parametrize(("error", "code", "line"), CASES, ids=lambda case: type(case).__name__)
@pytest.mark.parametrize("debug", [False, True])
def test_every_failure_is_one_line_with_its_code(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str, debug: bool
) -> None:
    failing(monkeypatch, error)
    done = run("inspect", model, *(["--debug"] if debug else []))
    assert done.returncode == code
    lines = done.stderr.splitlines()
    assert lines[-1].startswith(line)
    assert done.stdout == ""
    if debug:
        assert lines[0].startswith("Traceback") and type(error).__name__ in done.stderr
    else:
        assert len(lines) == 1
        assert ("--debug" in lines[0]) == (code == 70)


def test_debug_may_stand_anywhere_but_not_behind_two_dashes(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--debug", "inspect", model).returncode == 0
    assert run("inspect", "--debug", model, "--json").returncode == 0
    done = run("inspect", "--", "--debug")
    assert done.returncode == 2 and "--debug" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["inspect", "--no-such-option"], "error: No such option: --no-such-option"),
        (["equal", "a.onnx", "b.onnx", "--jobs", "-1"], "error: Invalid value for '--jobs'"),
        (["equal", "a.onnx", "b.onnx", "--time-limit", "nan"], "error: Invalid value for '--time-limit'"),
        (["equal", "a.onnx"], "error: Missing argument 'b'"),
        (["no-such-command"], "error: No such command 'no-such-command'"),
    ],
)
def test_a_command_that_is_put_wrongly_is_told_so_in_one_line(run: Run, arguments: list[str], line: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(line) and " --help" in done.stderr


def test_help_is_shown_where_it_is_asked_for_or_nothing_is(run: Run) -> None:
    assert "--tolerance" in run("equal").stdout
    shown = run("--help")
    assert shown.returncode == 0
    text = " ".join(shown.stdout.split())
    for code in ("2 bad input (or a full disk)", "3 undecided", "70 an unforeseen failure", "130 interrupted"):
        assert code in text


@pytest.mark.parametrize("width", [60, 110])
def test_help_flows_at_any_width(run: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """No line of a paragraph ends early because a line of the docstring did; examples keep lines of their own."""
    monkeypatch.setenv("COLUMNS", str(width))
    lines = [line.strip() for line in run("regions", "--help").stdout.splitlines()]
    first = next(i for i, line in enumerate(lines) if line.startswith("Ctrl-C ends"))
    paragraph = lines[first : lines.index("", first)]
    for line, following in itertools.pairwise(paragraph):
        assert len(line) + 1 + len(following.split()[0]) > width - 4
    assert "fiberscope regions wide.onnx --count --jobs 2" in lines


def test_the_page_documents_every_exit_code() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for code in (0, 1, 2, 3, 70, 130):
        assert f"\n| {code} | " in page
    for name in [registered.name for registered in _commands()]:
        assert f"`{name}`" in page


def _commands() -> list[Any]:
    return list(sys.modules["fiberscope.cli.app"].app.registered_commands)


# -- a full disk -------------------------------------------------------------------------------------------------------

STUDY = ("reproduce", "initialisation", "--jobs", 1, "--set", "seeds=2", "--set", 'batches=["segment"]')
STUDY += ("--set", "widths=[5]")


def test_a_disk_that_is_full_at_any_write_ends_in_one_line_and_is_resumed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full from some write of the study on; what was finished stays, and the table comes out the same."""
    whole = run(*STUDY, "--out", tmp_path / "whole")
    assert whole.returncode == 0
    table = (tmp_path / "whole" / "table.csv").read_bytes()
    sync, failures = os.fsync, 0
    while True:
        calls = 0

        def full(handle: int, last: int = failures) -> None:
            nonlocal calls
            calls += 1
            if calls > last:  # full from here on
                raise OSError(errno.ENOSPC, "No space left on device")
            sync(handle)

        out = tmp_path / f"at-{failures}"
        monkeypatch.setattr(os, "fsync", full)
        done = run(*STUDY, "--out", out, "--json")
        monkeypatch.setattr(os, "fsync", sync)
        if done.returncode == 0:
            break
        assert done.returncode == 2, done.stderr
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1 and "No space left on device" in lines[0] and str(tmp_path) in lines[0]
        if failures > 3:
            assert run(*STUDY, "--out", out).returncode == 0
            assert (out / "table.csv").read_bytes() == table
        failures = max(failures + 1, failures * 3 // 2)
    assert failures > 8


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
def test_a_real_limit_of_the_system_is_one_line(tmp_path: Path) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000));"
        "from fiberscope.cli import main; main()"
    )
    arguments = [str(part) for part in (*STUDY, "--out", tmp_path / "out", "--json")]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")  # matplotlib may complain of its cache before
