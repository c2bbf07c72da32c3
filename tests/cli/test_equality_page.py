"""The auditor's tutorial and the recipe for continuous integration in ``docs/equality.md``, followed literally."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

import fiberscope as fs

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "equality.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\b[0-9a-f]{8,}\b(\.\.\.)?|\b[0-9a-f]{8}\.\.\.|-?\b\d+(\.\d+)?(e-?\d+)?")
CODES = {"equal": 0, "different": 1, "undecided": 3, "HOLDS:": 0}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``python examples/audit.py FOLDER`` leaves, and what it says: nothing but its answers."""
    folder = tmp_path_factory.mktemp("audit")
    script = [sys.executable, str(ROOT / "examples" / "audit.py"), str(folder)]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr == "" and len(done.stdout.splitlines()) == 5
    return folder


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Every command of a part of the page, with the lines that stand below it."""
    found: list[tuple[str, list[str]]] = []
    for kind, block in FENCE.findall(text):
        for line in block.splitlines() if kind == "console" else ():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def part(start: str, end: str) -> str:
    return PAGE[PAGE.index(start) : PAGE.index(end)]


TUTORIAL = commands(part("## The auditor's tutorial", "## Each output within its own"))
CHECKS = [(line, want) for line, want in commands(part("## Certificates", "## Quantised")) if "checker.py" in line]


def fits(want: list[str], got: list[str]) -> bool:
    """Whether lines say the same but for their numbers; ``...`` stands for more words, or for more lines."""
    if not want:
        return not got
    if want[0] == "...":
        return any(fits(want[1:], got[k:]) for k in range(len(got) + 1))
    if not got:
        return False
    pattern, text = (NUMBER.sub("#", line) for line in (want[0], got[0]))
    same = text.startswith(pattern.removesuffix("...")) if pattern.endswith("...") else text == pattern
    return same and fits(want[1:], got[1:])


def test_the_tutorial_has_the_commands_that_it_promises() -> None:
    assert len(TUTORIAL) == 7 and len(CHECKS) == 1
    assert fits(["a 1.5 ms", "...", "b 2..."], ["a 22 ms", "x", "b 3 and more"]) and not fits(["a"], ["a", "b"])
    assert not fits(["equal within 2"], ["undecided within 2"])


@pytest.mark.parametrize(("line", "want"), TUTORIAL, ids=lambda part: part if isinstance(part, str) else "")
def test_every_command_of_the_tutorial_prints_what_the_page_says(
    line: str, want: list[str], models: Path, run: Callable[..., CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models)
    done = run(*shlex.split(line)[1:])
    assert done.returncode == CODES[want[0].split()[0]] and done.stderr == ""
    assert fits(want, done.stdout.splitlines()), done.stdout


@pytest.mark.parametrize(("line", "want"), CHECKS)
def test_the_certificate_of_the_tutorial_holds_where_nothing_is_installed(
    line: str, want: list[str], models: Path, run: Callable[..., CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models)
    assert run(*shlex.split(TUTORIAL[0][0])[1:]).returncode == 0
    shutil.copy(ROOT / "src" / "fiberscope" / "equality" / "checker.py", models)
    command = [sys.executable, *shlex.split(line)[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={})
    assert done.returncode == CODES[want[0].split()[0]] and done.stderr == ""
    assert fits(want, done.stdout.splitlines()), done.stdout
    assert run("verify", "proof.json", "model.onnx", "legacy.onnx").returncode == 0


# -- continuous integration --------------------------------------------------------------------------------------------


def steps() -> list[str]:
    """The commands of the workflow that ask something, as the server would run them."""
    (recipe,) = (block for kind, block in FENCE.findall(PAGE) if kind == "yaml")
    workflow = yaml.safe_load(recipe)
    return [step["run"] for step in workflow["jobs"]["export"]["steps"] if "fiberscope equal" in step.get("run", "")]


def served(step: str, folder: Path) -> CompletedProcess[str]:
    """A step in the shell of GitHub's runners."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    command = tools / "fiberscope"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fiberscope "$@"\n')
    command.chmod(0o755)
    path = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step]
    return subprocess.run(shell, capture_output=True, text=True, check=False, cwd=folder, env=path)


def test_the_recipe_fails_a_build_whose_export_changed_the_function(tmp_path: Path) -> None:
    """Equal passes; a function that changed, and one of which nothing is known, fail, each in its own way."""
    (step,) = steps()
    net = fs.Network.random((5, 8, 8, 2), 0)
    fs.save(net, tmp_path / "checkpoint.onnx")
    moved = fs.Network(net.weights, [bias + 0.25 for bias in net.biases])
    unknown = f"{step} --tolerance 1e9 --time-limit 0.5"
    allowing = " ".join(re.search(r"write\s+`(\|\| .*?)` behind", PAGE).group(1).split())  # type: ignore[union-attr]
    for model, line, code, answer in (
        (net, step, 0, "system-out"),
        (moved, step, 1, "failure"),
        (moved, unknown, 3, "error"),
        (moved, f"{unknown} {allowing}", 0, "error"),
        (moved, f"{step} {allowing}", 1, "failure"),
    ):
        fs.save(model, tmp_path / "model.onnx")
        for name in ("equal.xml", "proof.json"):
            (tmp_path / name).unlink(missing_ok=True)
        done = served(line, tmp_path)
        assert done.returncode == code, done.stderr
        suite = ElementTree.parse(tmp_path / "equal.xml").getroot()
        assert suite[0][0].tag == answer
        assert [int(suite.attrib[word]) for word in ("failures", "errors")] == [answer == "failure", answer == "error"]
        assert (tmp_path / "proof.json").exists() == (answer != "error")
    (tmp_path / "model.onnx").write_text("no model")
    assert served(step, tmp_path).returncode == 2


def test_an_example_without_the_exporter_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setattr(sys, "argv", ["audit.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="pip install onnxscript"):
        runpy.run_path(str(ROOT / "examples" / "audit.py"), run_name="__main__")
    assert not np.size(list(tmp_path.iterdir()))
