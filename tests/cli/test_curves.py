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


def test_arcs_polylines_and_generators(run, models, tmp_path):
    flat, deep = fs.load(models / "flat.npz"), fs.load(models / "deep.npz")
    arc = json.loads(run("regions", models / "flat.npz", "--along", "circle", "--arc", 0, 3, "--json").stdout)
    assert arc["num_regions"] == fs.regions_along(flat, fs.Circle(interval=(0.0, 3.0))).num_regions
    images = np.random.default_rng(1).normal(size=(6, 1, 5))
    np.save(tmp_path / "images.npy", images)
    chain = run("regions", models / "deep.npz", "--polyline", tmp_path / "images.npy", "--count", "--json")
    assert json.loads(chain.stdout)["num_regions"] == fs.regions_along(deep, fs.Polyline(images)).num_regions
    decoder = fs.Network.random((2, 6, 5), 3)
    fs.save(decoder, tmp_path / "decoder.npz")
    options = ("--generator", tmp_path / "decoder.npz", "--along", "circle", "--radius", 2)
    done = run("regions", models / "deep.npz", *options)
    found = fs.regions_along(deep, fs.GeneratorCurve.along(decoder, fs.Circle(radius=2.0)))
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert f"{found.num_regions_closed} regions of the loop" in said
    assert f"{found.latent_regions} latent regions" in said
    wrong = run("regions", models / "flat.npz", *options)
    assert wrong.returncode == 2 and "--generator: expected 2 outputs" in " ".join(wrong.stderr.split())


def test_distances_and_theory(run, models, tmp_path):
    X = np.random.default_rng(0).normal(size=(7, 5))
    np.save(tmp_path / "X.npy", X)
    deep = fs.load(models / "deep.npz")
    plain = json.loads(run("distance", models / "deep.npz", "--data", tmp_path / "X.npy", "--json").stdout)
    assert plain["distance"] == fs.boundary_distance(deep, X).distance.tolist()
    seen = run("distance", models / "deep.npz", "--data", tmp_path / "X.npy", "--visible")
    assert seen.returncode == 0 and "7 points" in seen.stdout and "quantiles" in seen.stdout
    table = run("theory", "2-5-1", "--networks", 3, "--samples", 50)
    assert table.returncode == 0 and "bound of Theorem 3" in table.stdout and "C_bias" in table.stdout
    result = json.loads(run("theory", "3-4-1", "--on", "box", "--networks", 2, "--samples", 50, "--json").stdout)
    assert result["networks"] == 2
    for words, message in (
        (("theory", "2x3"), "numbers with dashes"),
        (("theory", "2-3-1", "--on", "sphere"), "at least 3 inputs"),
        (("theory", "2-3-1", "--on", "cube"), "one of circle"),
    ):
        done = run(*words)
        assert done.returncode == 2 and message in " ".join(done.stderr.split())


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
        ("flat", ("--arc", 0, 1), "--arc: expected --along with it"),
        ("flat", ("--generator", "a.npy"), "--generator: expected --segment, --along or --polyline with it"),
        ("flat", ("--along", "circle", "--polyline", "a.npy"), "--along and --polyline: expected one of them"),
        ("flat", ("--polyline", "a.npy"), "points (count, ...) of 2 numbers, got (5,)"),
        ("deep", ("--segment", "a.npy", "b.npy", "--arc", 0, 1), "--segment: expected no --arc with it"),
        ("flat", ("--resolution", 2), "--resolution: expected --on with it"),
    ],
)
def test_bad_options(run, models, model, options, message):
    options = [models / x if str(x).endswith(".npy") else x for x in options]
    done = run("regions", models / f"{model}.npz", *options)
    assert done.returncode == 2 and message in " ".join(done.stderr.split())


def test_a_generator_as_its_training_saves_it(run, models, tmp_path):
    made = fs.train_generator(np.random.default_rng(0).random((6, 5)), epochs=1, latent=5, widths=(4,))
    made.save(tmp_path / "made.pt")
    options = ("--generator", tmp_path / "made.pt", "--segment", models / "a.npy", models / "b.npy", "--json")
    done = run("regions", models / "deep.npz", *options)
    a, b = (np.load(models / name) for name in ("a.npy", "b.npy"))
    found = fs.regions_along(fs.load(models / "deep.npz"), fs.GeneratorCurve(made.network(), a, b))
    assert json.loads(done.stdout)["num_regions"] == found.num_regions
