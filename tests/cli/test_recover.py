"""``fiberscope recover``: what it prints and writes, and its exit codes."""

from __future__ import annotations

import json

import numpy as np

import fiberscope as fs


def test_a_model_is_recovered_and_written(run, tmp_path):
    truth = fs.Network.random((3, 4, 1), seed=0)
    fs.save(truth, tmp_path / "model.npz")
    out, picture = tmp_path / "found.npz", tmp_path / "folds.png"
    done = run("recover", tmp_path / "model.npz", "--widths", "3-4-1", "--out", out, "--plot", picture)
    assert done.returncode == 0, done.stderr
    assert "recovered with" in done.stdout and picture.stat().st_size > 1000
    X = np.random.default_rng(0).normal(size=(50, 3))
    np.testing.assert_allclose(fs.load(out)(X), truth(X), atol=1e-10)


def test_what_is_missing_is_named_and_undecided(run, tmp_path):
    fs.save(fs.Network.random((3, 4, 1), seed=0), tmp_path / "model.npz")
    done = run("recover", tmp_path / "model.npz", "--widths", "3-5-1", "--json")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert found["recovered"] is False and "no kink of it" in found["unresolved"][0]["reason"]
    done = run("recover", tmp_path / "model.npz", "--widths", "3-x-1")
    assert done.returncode == 2 and "--widths" in done.stderr


def test_a_limit_that_runs_out_and_other_inputs_have_their_codes(run, tmp_path):
    fs.save(fs.Network.random((3, 4, 2, 1), seed=3), tmp_path / "model.npz")
    picture = tmp_path / "folds.png"
    done = run(
        "recover", tmp_path / "model.npz", "--widths", "3-4-2-1", "--max-queries", "400", "--plot", picture, "--json"
    )
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert "the limit of 400 queries was reached" in found["unresolved"][0]["reason"] and found["queries"] <= 400
    assert not picture.exists() and "not drawn, no layer was found" in " ".join(done.stderr.split())
    for widths, words in (("4-4-2-1", "expected 3 inputs"), ("3-4-2-2", "expected 1 outputs"), ("3", "at least three")):
        done = run("recover", tmp_path / "model.npz", "--widths", widths)
        assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_a_time_that_is_up_is_undecided(run, tmp_path):
    fs.save(fs.Network.random((3, 4, 2, 1), seed=3), tmp_path / "model.npz")
    done = run("recover", tmp_path / "model.npz", "--widths", "3-4-2-1", "--time-limit", "0.0001")
    assert done.returncode == 3 and "undecided:" in done.stderr and "Traceback" not in done.stderr
