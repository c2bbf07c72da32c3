"""``fiberscope regions --on`` and ``--slice`` as a user runs them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fiberscope as fs


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    fs.save(fs.Network.random((2, 4, 1), 0), folder / "flat.npz")
    fs.save(fs.Network.random((3, 8, 8, 1), 0), folder / "solid.npz")
    fs.save(fs.Network.random((64, 8, 8, 1), 0), folder / "digits.npz")
    np.save(folder / "center.npy", np.array([0.5, 0.0, 0.0]))
    np.save(folder / "image.npy", fs.load_dataset("digits").flat_inputs[5])
    return folder


def test_a_sphere_with_a_picture(run, models, tmp_path):
    picture = tmp_path / "sphere.png"
    done = run("regions", models / "solid.npz", "--on", "sphere", "--resolution", 2, "--plot", picture)
    assert done.returncode == 0, done.stderr
    found = fs.regions_on(fs.load(models / "solid.npz"), fs.Sphere(resolution=2))
    assert f"{found.num_regions} regions" in done.stdout and "exact for the mesh" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_surfaces_without_a_mesh(run, models, tmp_path):
    net, picture = fs.load(models / "solid.npz"), tmp_path / "cylinder.png"
    done = run("regions", models / "solid.npz", "--on", "cylinder", "--plot", picture)
    found = fs.round_regions(net, fs.Cylinder([1.0, 1.0, 2.0], [0.0, 0.0, -1.0]))
    assert done.returncode == 0, done.stderr
    assert f"{found.num_regions} regions" in done.stdout and picture.read_bytes().startswith(b"\x89PNG")
    result = json.loads(run("regions", models / "solid.npz", "--on", "round-sphere", "--radius", 2, "--json").stdout)
    assert result["num_regions"] == fs.round_regions(net, fs.Sphere(radius=2.0)).num_regions
    assert sum(result["areas"]) == pytest.approx(16 * np.pi)
    done = run("regions", models / "solid.npz", "--on", "cylinder", "--resolution", 2)
    assert done.returncode == 2 and "there is no mesh" in " ".join(done.stderr.split())


def test_a_torus_as_json(run, models):
    options = ("--on", "torus", "--radius", 2, "--center", models / "center.npy", "--json")
    result = json.loads(run("regions", models / "solid.npz", *options).stdout)
    found = fs.regions_on(fs.load(models / "solid.npz"), fs.Torus([0.5, 0.0, 0.0], 2.0, 0.8))
    assert result["num_regions"] == found.num_regions and result["triangles"] == 2304
    assert result["area"] == pytest.approx(found.area)


def test_a_limit_is_a_lower_bound(run, models):
    done = run("regions", models / "solid.npz", "--on", "sphere", "--limit", 10)
    assert done.returncode == 3 and "at least" in done.stdout


def test_a_slice_through_images_of_a_data_set_and_of_a_file(run, models):
    points = ("digits:0", "digits:1", models / "image.npy")
    result = json.loads(run("regions", models / "digits.npz", "--slice", *points, "--count", "--json").stdout)
    images = fs.load_dataset("digits").flat_inputs
    plane = fs.Plane.through(images[0], images[1], images[5])
    assert result["regions"] == fs.count_regions(fs.load(models / "digits.npz"), plane)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("solid", ("--on", "cube"), "one of sphere, torus, round-sphere, cylinder"),
        ("flat", ("--on", "sphere"), "at least 3 inputs"),
        ("solid", ("--on", "sphere", "--axes", 0, 1), "no --axes with it"),
        ("solid", ("--on", "sphere", "--resolution", -1), "integer from 0"),
        ("solid", ("--on", "sphere", "--plot", "a.pdf"), "ends in .png"),
        ("solid", ("--on", "sphere", "--count", "--plot", "a.png"), "no --plot with it"),
        ("solid", ("--on", "sphere", "--color", "value"), "no --color with it"),
        ("solid", ("--slice", "digits:0", "digits:1", "digits:2"), "3 numbers"),
        ("digits", ("--slice", "digits:0", "digits:1", "digits:99999"), "index below"),
        ("digits", ("--slice", "digits:0", "digits:1", "digits:x"), "DATASET:INDEX"),
        ("digits", ("--slice", "digits:0", "digits:1", "absent.npy"), "cannot be read"),
        ("digits", ("--slice", "digits:0", "digits:1", "digits:2", "--axes", 0, 1), "--axes"),
    ],
)
def test_bad_options(run, models, model, options, message):
    done = run("regions", models / f"{model}.npz", *options)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
