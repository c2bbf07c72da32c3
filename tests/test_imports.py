"""Importing costs nothing and does nothing; the lazy root and its stub say the same.

Every check runs in a fresh interpreter and looks at sets of modules and at audit events, never at a clock.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fiberscope

HEAVY = {"torch", "matplotlib", "onnx", "onnxruntime", "sklearn", "numba", "safetensors", "highspy"}

# Runs first in the interpreter under test: watches for files opened to write, sockets and processes.
WATCH = """
import atexit, json, os, random, sys, warnings
events = []
def watch(event, arguments):
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        if (mode and set(mode) & set("wxa+")) or (flags and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            events.append(f"{event} {arguments[0]}")
    elif event.split(".")[0] in {"socket", "subprocess"} or event in {"os.mkdir", "os.remove", "os.system"}:
        events.append(event)
sys.addaudithook(watch)
def report():
    print("REPORT" + json.dumps({
        "modules": sorted({name.split(".")[0] for name in sys.modules} - started),
        "events": events,
        "seed_kept": random.getstate() == state,
        "environment_kept": dict(os.environ) == environment,
        "filters_kept": warnings.filters == filters,
    }))
state, environment, filters = random.getstate(), dict(os.environ), list(warnings.filters)
started = {name.split(".")[0] for name in sys.modules}
atexit.register(report)
"""


def run(code: str, folder: Path) -> dict[str, Any]:
    """The report of a fresh interpreter that runs ``code`` in an empty folder, every warning an error."""
    command = [sys.executable, "-B", "-W", "error", "-c", WATCH + code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(folder.iterdir()) == []
    report: dict[str, Any] = json.loads(done.stdout.rpartition("REPORT")[2])
    return report


def test_import_does_no_work(tmp_path: Path) -> None:
    report = run("import fiberscope", tmp_path)
    foreign = set(report["modules"]) - set(sys.stdlib_module_names) - {"fiberscope"}
    assert foreign == set()
    assert report["events"] == []
    assert report["seed_kept"] and report["environment_kept"] and report["filters_kept"]


def test_listing_names_loads_nothing(tmp_path: Path) -> None:
    report = run("import fiberscope; dir(fiberscope); fiberscope.__all__", tmp_path)
    assert not HEAVY & set(report["modules"])


def test_help_of_the_command_line_is_light(tmp_path: Path) -> None:
    code = """
sys.argv = ["fiberscope", "--help"]
from fiberscope.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""
    report = run(code, tmp_path)
    assert not HEAVY & set(report["modules"])
    assert report["events"] == []


def test_errors_are_light(tmp_path: Path) -> None:
    assert not HEAVY & set(run("from fiberscope import InputError", tmp_path)["modules"])


def test_the_watch_can_fail(tmp_path: Path) -> None:
    """What the checks above look for is indeed seen when it is there."""
    assert "torch" in run("import torch", tmp_path)["modules"]
    assert not run("random.random()", tmp_path)["seed_kept"]
    assert not run("warnings.simplefilter('ignore')", tmp_path)["filters_kept"]
    assert run("open(os.devnull, 'w').close()", tmp_path)["events"]
    with pytest.raises(AssertionError):
        run("open('litter', 'w').close()", tmp_path)


def stub_names() -> tuple[dict[str, str], set[str]]:
    """Public names of the stub with the module that each comes from, and the subpackages it shows."""
    stub = Path(fiberscope.__file__).with_suffix(".pyi")
    names: dict[str, str] = {}
    subpackages: set[str] = set()
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("fiberscope")):
            for alias in node.names:
                assert alias.asname == alias.name, f"write `{alias.name} as {alias.name}` to re-export it"
                module = (node.module or "").removeprefix("fiberscope").lstrip(".")
                if module:
                    names[alias.name] = module
                else:
                    subpackages.add(alias.name)
    return names, subpackages


def test_stub_and_lazy_root_agree() -> None:
    names, subpackages = stub_names()
    assert names == fiberscope._NAMES
    assert subpackages == set(fiberscope._SUBPACKAGES)
    assert set(fiberscope.__all__) - {"__version__"} == set(fiberscope._NAMES)
    assert len(fiberscope.__all__) == len(set(fiberscope.__all__))


@pytest.mark.parametrize("name", sorted(fiberscope._NAMES))
def test_every_public_name_loads(name: str) -> None:
    assert name in dir(fiberscope)
    value = getattr(fiberscope, name)
    if isinstance(value, type) or callable(value):
        assert value.__name__ == name
        assert value.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("name", fiberscope._SUBPACKAGES)
def test_every_subpackage_loads_and_no_public_name_hides_it(name: str) -> None:
    assert getattr(fiberscope, name).__name__ == f"fiberscope.{name}"
    assert name in dir(fiberscope)
    assert name not in fiberscope._NAMES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = fiberscope.no_such_name
