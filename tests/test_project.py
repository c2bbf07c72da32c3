"""The files around the code agree with it: one version, extras that are named, workflows that run what exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

import fiberscope as fs
from fiberscope.extras import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def names(requirements: list[str]) -> set[str]:
    """The packages that requirements are about, without versions and extras."""
    found = [re.match(r"[\w.-]+", text) for text in requirements]
    return {match[0].lower() for match in found if match}


def test_one_version() -> None:
    assert "version" not in PROJECT["project"] and PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/fiberscope/__init__.py"
    cited = yaml.safe_load(read("CITATION.cff"))
    assert str(cited["version"]) == fs.__version__
    assert "fiberscope" in cited["title"] and date.fromisoformat(str(cited["date-released"])) >= date(2026, 1, 1)
    elsewhere = [p for p in (ROOT / "src").rglob("*.py") if re.search(r"^__version__ *=", p.read_text(), re.MULTILINE)]
    assert [path.name for path in elsewhere] == ["__init__.py"]


def test_torch_is_an_extra_and_so_is_what_may_be_absent() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    assert "torch" not in names(project["dependencies"])
    libraries = {"sklearn": "scikit-learn"}
    for library, extra in EXTRAS.items():
        assert libraries.get(library, library) in names(extras[extra]), library
    assert "fiberscope[torch," in extras["dev"][0]


def test_every_requirement_is_pinned_for_our_own_runs() -> None:
    pinned = {line.split("==")[0].lower() for line in read("constraints.txt").splitlines() if "==" in line}
    every = [*PROJECT["project"]["dependencies"]]
    for requirements in PROJECT["project"]["optional-dependencies"].values():
        every += requirements
    assert names(every) - pinned == {"fiberscope"}


def test_a_commit_and_ci_use_the_same_ruff() -> None:
    pinned = re.search(r"^ruff==(.*)$", read("constraints.txt"), re.MULTILINE)
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert pinned is not None
    assert hooks[0]["rev"] == f"v{pinned[1]}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_and_templates_are_yaml_and_run_targets_that_exist(path: Path) -> None:
    content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    for job in content.get("jobs", {}).values():
        for step in job["steps"]:
            called = re.findall(r"^make ([a-z]+)", step.get("run", ""), re.MULTILINE)
            assert set(called) <= targets


def test_the_matrix_has_every_python_that_the_package_claims() -> None:
    claimed = re.findall(r"Python :: (3\.\d+)", read("pyproject.toml"))
    matrix = yaml.safe_load(read(".github/workflows/tests.yml"))["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == claimed
    assert matrix["os"] == ["ubuntu-latest", "macos-latest"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_commands(shell: str) -> None:
    """What the completion scripts ask for when somebody has typed ``fiberscope re`` and a tab."""
    asked = {
        "bash": {"COMP_WORDS": "fiberscope re", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "fiberscope re"},
        "fish": {"_TYPER_COMPLETE_ARGS": "fiberscope re", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    code = "import sys; sys.argv = ['fiberscope']; from fiberscope.cli import main; main()"
    environment = os.environ | asked[shell] | {"_FIBERSCOPE_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    for command in ("regions", "report", "reproduce", "recover"):
        assert command in done.stdout, done.stderr
    assert "inspect" not in done.stdout
