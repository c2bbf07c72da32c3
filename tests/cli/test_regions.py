"""``fiberscope regions`` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.testing import case


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    fs.save(fs.Network.random((2, 8, 8, 1), 0), folder / "flat.npz")
    fs.save(fs.Network.random((3, 5, 4, 1), 0), folder / "solid.npz")
    fs.save(case("convolutional"), folder / "cnn.npz")
    np.save(folder / "points.npy", np.random.default_rng(0).normal(size=72))
    np.save(folder / "other.npy", np.random.default_rng(1).normal(size=72))
    np.save(folder / "zero.npy", np.zeros(72))
    return folder


def test_count_f_vector_certificate_and_picture(run, models, tmp_path):
    picture = tmp_path / "regions.png"
    done = run("regions", models / "flat.npz", "--box", -2, 2, "--plot", picture, "--save", tmp_path / "complex.npz")
    assert done.returncode == 0, done.stderr
    count = fs.regions(fs.load(models / "flat.npz"), fs.Box.cube(2, -2, 2)).num_regions
    for text in (f"{count} regions", "f-vector", "Certificate", "witnesses", "holds"):
        assert text in done.stdout
    assert "fails" not in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "complex.npz").exists()


def test_json_and_the_plain_count_agree(run, models):
    built = json.loads(run("regions", models / "solid.npz", "--json").stdout)
    counted = json.loads(run("regions", models / "solid.npz", "--count", "--json").stdout)
    assert built["regions"] == counted["regions"]
    assert built["certificate"]["ok"] is True
    assert len(built["f_vector"]) == 4
    assert counted["complete"] is True


def test_slices_of_a_cnn(run, models):
    points = [models / f"{name}.npy" for name in ("zero", "points", "other")]
    through = json.loads(run("regions", models / "cnn.npz", "--plane", *points, "--json").stdout)
    along = json.loads(
        run("regions", models / "cnn.npz", "--axes", 3, 4, "--at", points[1], "--count", "--json").stdout
    )
    assert through["certificate"]["ok"] is True
    assert through["regions"] > 1
    assert along["regions"] >= 1


def test_a_limit_gives_a_lower_bound_and_exit_code_three(run, models):
    done = run("regions", models / "solid.npz", "--limit", 3, "--count")
    assert done.returncode == 3
    assert "at least" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flat.npz", "--box", 1, -1], "expected low <= high"),
        (["flat.npz", "--axes", 0, 0], "two different coordinates"),
        (["flat.npz", "--axes", 0, 1, "--plane", "zero.npy", "zero.npy", "zero.npy"], "expected one of them"),
        (["cnn.npz", "--plane", "zero.npy", "missing.npy", "zero.npy"], "cannot be read"),
        (["cnn.npz", "--axes", 0, 1, "--at", "flat.npz"], "expected an .npy file"),
        (["solid.npz", "--plot", "out.png"], "expected 2 dimensions, got 3"),
        (["flat.npz", "--plot", "out.jpg"], "ends in .png"),
        (["flat.npz", "--plot", "out.png", "--color", "pink"], "color: expected one of"),
    ],
)
def test_bad_input(run, models, tmp_path, arguments, message):
    given = [models / a if str(a).endswith((".npz", ".npy")) else a for a in arguments]
    given = [tmp_path / a if str(a).startswith("out.") else a for a in given]
    done = run("regions", *given)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def interrupted(hook: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which sends itself a real SIGINT inside the function ``hook``."""
    script = """
        import os, signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever was started in the background ignores it
        from fiberscope.cli import main
        {hook}
        sys.argv = ["fiberscope", "regions", *sys.argv[1:]]
        main()
    """
    command = [sys.executable, "-c", dedent(script).replace("{hook}", dedent(hook)), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


SPLIT = """
from fiberscope.geometry.engines.planar.engine import Engine
split = Engine.split
def cut(self, *rest, **more):
    finer = split(self, *rest, **more)
    if len(finer.signs) == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return finer
Engine.split = cut
"""

LABELS = """
from fiberscope.geometry import verify
labels, partial = verify._CHECKS["labels"]
def stopped(complex, run):
    os.kill(os.getpid(), signal.SIGINT)
    return labels(complex, run)
verify._CHECKS["labels"] = stopped, partial
"""


def test_an_interrupted_count_is_a_lower_bound(tmp_path):
    net = fs.Network.random((2, 8, 8, 8, 1), 0)
    fs.save(net, tmp_path / "deep.npz")
    done = interrupted(SPLIT, tmp_path / "deep.npz", "--count", "--json")
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert not found["complete"]
    # the second layer was cut when the signal came, so what is known for certain are the polygons of the first
    first = fs.Network(list(net.weights[:2]), list(net.biases[:2]))
    assert found["regions"] == int(fs.count_regions(first, fs.Box.cube(2)))
    assert found["regions"] < int(fs.count_regions(net, fs.Box.cube(2)))


def test_an_interrupted_complex_and_certificate_are_shown(models):
    done = interrupted(SPLIT, models / "flat.npz")
    assert done.returncode == 3 and "at least" in done.stdout, done.stderr
    done = interrupted(LABELS, models / "flat.npz", "--json")
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert found["complete"] and found["certificate"]["ok"] is None
    outcomes = {check["name"]: check["ok"] for check in found["certificate"]["checks"]}
    assert outcomes["witnesses"] is True and outcomes["labels"] is None and outcomes["balance"] is None
    shown = interrupted(LABELS, models / "flat.npz")
    assert shown.returncode == 3 and "undecided" in shown.stdout and "fails" not in shown.stdout


def test_seconds_leave_out_loading_and_compiling(run, models):
    found = json.loads(run("regions", models / "flat.npz", "--json").stdout)
    steps = found["seconds_by_step"]
    assert found["seconds"] == steps["regions"]
    assert {"loading", "regions", "certificate", "facets", "compiling"} == set(steps)
    assert all(value >= 0 for value in steps.values())
