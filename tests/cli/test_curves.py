"""``fiberscope regions --along`` and ``--segment`` as a user runs them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fiberscope as fs


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    fs.save(fs.Network.random((2, 10, 16, 1), 0), folder / "flat.npz")
    fs.save(fs.Network.random((5, 8, 8, 1), 0), folder / "deep.npz")
    fs.save(fs.Network.random((1, 3, 1), 0), folder / "line.npz")
    rng = np.random.default_rng(0)
    np.save(folder / "a.npy", rng.normal(size=5))
    np.save(folder / "b.npy", rng.normal(size=5))
    return folder


def test_a_circle_with_a_picture(run, models, tmp_path):
    picture = tmp_path / "circle.png"
    done = run("regions", models / "flat.npz", "--along", "circle", "--plot", picture)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "34 regions of the loop" in said and "35 intervals of its parameter" in said and "certified" in said
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_tractrix_as_json(run, models):
    result = json.loads(run("regions", models / "deep.npz", "--along", "tractrix", "--radius", 2, "--json").stdout)
    found = fs.regions_along(fs.load(models / "deep.npz"), fs.Tractrix([0.0] * 5, 2.0))
    assert result["num_regions"] == found.num_regions and result["breakpoints"] == found.breakpoints.tolist()


def test_a_loop_that_starts_at_a_breakpoint(run, tmp_path):
    fs.save(fs.Network([[[0.0, 1.0]], [[1.0]]], [[0.0], [0.0]]), tmp_path / "y.npz")
    done = run("regions", tmp_path / "y.npz", "--along", "circle")
    said = " ".join(done.stdout.split())
    assert "2 regions of the loop" in said and "intervals" not in said and "2 affine pieces of the loop" in said
    result = json.loads(run("regions", tmp_path / "y.npz", "--along", "circle", "--count", "--json").stdout)
    assert (result["num_regions"], result["num_regions_closed"], result["closed"]) == (2, 2, True)


def test_a_segment(run, models, tmp_path):
    ends = (models / "a.npy", models / "b.npy")
    result = json.loads(run("regions", models / "deep.npz", "--segment", *ends, "--count", "--json").stdout)
    segment = fs.Segment(*(np.load(path) for path in ends))
    assert result["num_regions"] == fs.regions_along(fs.load(models / "deep.npz"), segment).num_regions
    assert "breakpoints" not in result
    picture = tmp_path / "bar.png"
    assert run("regions", models / "deep.npz", "--segment", *ends, "--plot", picture).returncode == 0
    assert picture.exists()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("flat", ("--along", "square"), "one of circle, tractrix"),
        ("line", ("--along", "circle"), "at least 2 inputs"),
        ("flat", ("--along", "circle", "--axes", 0, 1), "no --axes with it"),
        ("flat", ("--along", "circle", "--on", "sphere"), "no --on with it"),
        ("flat", ("--along", "circle", "--plot", "x.jpg"), "ends in .png"),
        ("flat", ("--segment", "a.npy", "b.npy"), "expected 2 numbers"),
        ("deep", ("--segment", "a.npy", "b.npy", "--radius", 2), "--segment: expected no --radius with it"),
        ("flat", ("--along", "circle", "--box", -5, 5), "--along: expected no --box with it"),
        ("flat", ("--radius", 2), "--radius: expected --on or --along with it"),
        ("flat", ("--resolution", 2), "--resolution: expected --on with it"),
    ],
)
def test_bad_options(run, models, model, options, message):
    options = [models / x if str(x).endswith(".npy") else x for x in options]
    done = run("regions", models / f"{model}.npz", *options)
    assert done.returncode == 2 and message in " ".join(done.stderr.split())
