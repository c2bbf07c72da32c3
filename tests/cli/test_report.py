"""``fiberscope report``: what it writes and prints, and its exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fiberscope as fs


@pytest.fixture
def model(tmp_path):
    net = fs.Network.random((2, 5, 3), 0)
    fs.save(net, tmp_path / "model.npz")
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(20, 2)))
    np.save(tmp_path / "y.npy", (np.arange(20) % 3).astype(np.uint8))
    return tmp_path / "model.npz"


def test_a_page_for_a_file(run, model, tmp_path):
    out = tmp_path / "page.html"
    done = run(
        "report", model, "--data", tmp_path / "X.npy", "--labels", tmp_path / "y.npy", "--against", model, "--out", out
    )
    assert done.returncode == 0, done.stderr
    assert "Is the other model the same function?" in done.stdout
    assert "fs.load(&#34;model.npz&#34;)" in out.read_text()


def test_json_for_machines(run, model, tmp_path):
    done = run("report", model, "--out", tmp_path / "page.html", "--json")
    found = json.loads(done.stdout)
    assert found["path"] == str(tmp_path / "page.html")
    assert found["complete"] is True


def test_bad_input_is_one_line_and_nothing_is_written(run, model, tmp_path):
    before = sorted(tmp_path.iterdir())
    np.save(tmp_path / "half.npy", np.full(20, 0.5))
    before.append(tmp_path / "half.npy")
    for arguments in (
        ("--out", tmp_path),
        ("--data", tmp_path / "X.npy", "--labels", tmp_path / "half.npy", "--out", tmp_path / "p.html"),
        ("--data", tmp_path / "none.npy", "--out", tmp_path / "p.html"),
    ):
        done = run("report", model, *arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == sorted(before)
