"""``fiberscope fiber``: what it prints and writes, and its exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import fiberscope as fs
from fiberscope.cli.app import app
from fiberscope.errors import FiberscopeError


@pytest.fixture(autouse=True)
def public_name(monkeypatch):
    if "fiber" not in fs._NAMES:
        monkeypatch.setitem(fs._NAMES, "fiber", "fibers.fiber")


def run(*arguments):
    """Exit code and output; a named error is exit code 2, as in the main program."""
    result = CliRunner().invoke(app, ["fiber", *map(str, arguments)])
    if isinstance(result.exception, FiberscopeError):
        return 2, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def models(tmp_path):
    rng = np.random.default_rng(0)
    first = rng.normal(size=(2, 3))
    nets = {
        "hidden": fs.Network([first, [[1.0, -2.0]], [[1.0]]], [[0.5, 0.25], [-1.0], [0.0]]),
        "plain": fs.Network.random((2, 3, 1), 0),
        "deep": fs.Network.random((2, 3, 3, 3, 1), 6),
        "idle": fs.Network.random((2, 3, 3, 3, 1), 0),
    }
    for name, net in nets.items():
        fs.save(net, tmp_path / f"{name}.npz")
    return {name: tmp_path / f"{name}.npz" for name in nets}


def test_exit_codes_and_words(models):
    code, out = run(models["hidden"])
    assert code == 1 and "hidden" in out and "not identifiable" in out and "modulo rescaling: at least 1" in out
    code, out = run(models["plain"])
    assert code == 0 and "identifiable" in out
    code, out = run(models["deep"], "--json")
    assert code == 3 and json.loads(out)["identifiability"]["identifiable"] is None
    code, out = run(models["idle"], "--json")
    assert code == 1 and json.loads(out)["identifiability"]["identifiable"] is False


def test_members_are_written_and_are_the_same_function(models, tmp_path):
    out = tmp_path / "members"
    code, text = run(models["hidden"], "--sample", 10, "--out", out, "--json")
    assert code == 0
    paths = sorted(out.glob("*.npz"))
    assert len(paths) == 10 and sorted(json.loads(text)["members"]) == [str(p) for p in paths]
    net = fs.load(models["hidden"])
    x = np.random.default_rng(1).normal(size=(200, 3)) * 5
    values = [fs.load(p) for p in paths]
    assert all(np.abs(v(x) - net(x)).max() < 1e-10 for v in values)
    assert len({v.biases[1][0] for v in values}) == 10


def test_bad_input_exits_two(models, tmp_path):
    code, out = run(models["hidden"], "--sample", 3)
    assert code == 2 and "--out" in out
    assert run(tmp_path / "missing.npz")[0] == 2
