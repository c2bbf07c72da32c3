"""``fiberscope inspect`` as a user runs it: what it prints, its JSON, its exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.testing import case


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.npz"
    fs.save(case("equal_neurons"), path)
    return path


def test_prints_architecture_roles_and_symmetries(run, model):
    done = run("inspect", model)
    assert done.returncode == 0, done.stderr
    for text in ("2-6-5-2", "65 parameters", "11 hidden neurons", "switching", "free positive scales", "shared hyper"):
        assert text in done.stdout


def test_json_is_complete(run, model):
    done = run("inspect", model, "--json", "--points", 50)
    result = json.loads(done.stdout)
    assert result["num_parameters"] == 65
    assert result["coincident_hyperplanes"] == [{"layer": 1, "groups": [[0, 3], [1, 4], [2, 5]]}]
    assert result["symmetry"]["rescalings"] == 11
    assert result["roles_on_samples"]["samples"] == "50 points of N(0, 1)"


def test_bad_files_are_one_line_and_exit_code_two(run, tmp_path):
    text = tmp_path / "README.md"
    text.write_text("# not a model")
    empty = tmp_path / "empty.onnx"
    empty.write_bytes(b"")
    broken = tmp_path / "broken.npz"
    fs.save(case("chain"), broken)
    broken.write_bytes(broken.read_bytes()[:200])
    nan = tmp_path / "nan.npz"
    np.savez(nan, **{"0.weight": np.array([[np.nan]]), "0.bias": np.zeros(1)})
    for path in (text, empty, broken, nan, tmp_path / "missing.onnx", tmp_path):
        done = run("inspect", path)
        assert done.returncode == 2, path
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert "Traceback" not in done.stderr


def test_unknown_options_exit_with_two(run, model):
    assert run("inspect", model, "--nonsense").returncode == 2
    assert run("nonsense").returncode == 2


def test_help_has_examples_and_version_prints(run):
    done = run("inspect", "--help")
    assert "fiberscope inspect model.onnx" in done.stdout
    assert run("--version").stdout.strip() == fs.__version__


def test_inspection_of_every_kind_of_network():
    for name in ("convolutional", "residual", "affine", "all_zero", "leaky"):
        result = fs.inspect(case(name), points=10)
        assert result.num_parameters == case(name).num_parameters
        json.dumps(result.to_dict())
        assert result.architecture in repr(result)


@pytest.mark.parametrize("size", [1e200, 1e-200, 5e-324, 0.0])
def test_norms_of_numbers_whose_squares_are_no_floats(size):
    layer = fs.inspect(fs.Network([[[3.0 * size, 4.0 * size]]], [[0.0]])).layers[0]
    assert layer.norm == pytest.approx(5.0 * size, rel=1e-15) and layer.largest == 4.0 * size
