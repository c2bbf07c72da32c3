"""``fiberscope dimension`` and the picture of a spectrum."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import fiberscope as fs
from fiberscope.cli.app import app
from fiberscope.dimension.functional import functional_dimension
from fiberscope.errors import InputError, OutOfTimeError
from fiberscope.network.network import Network
from fiberscope.plot.spectra import spectrum
from fiberscope.plot.style import png


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setitem(fs._NAMES, "functional_dimension", "dimension.functional")
    monkeypatch.setitem(fs._NAMES, "kernel_spectrum", "dimension.kernels.spectrum")
    fs.save(Network.random((2, 6, 5, 1), 0), tmp_path / "model.npz")
    fs.save(Network.random((6, 3, 3, 1), 0), tmp_path / "wide.npz")
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(30, 2)))

    def invoke(model, *arguments):
        return CliRunner().invoke(app, ["dimension", str(tmp_path / model), *map(str, arguments)])

    return invoke, tmp_path


def test_prints_ranks_bounds_and_neurons(run):
    invoke, folder = run
    done = invoke("model.npz", "--data", folder / "X.npy")
    assert done.exit_code == 0, done.output
    for text in ("exact", "numerical (float64)", "paper (float32)", "regions refined", "orbit", "switching"):
        assert text in done.stdout


def test_only_what_is_asked(run):
    invoke, folder = run
    done = invoke("model.npz", "--data", folder / "X.npy", "--rank", "exact", "--parameters", "2.*")
    assert done.exit_code == 0, done.output
    assert "exact" in done.stdout and "numerical" not in done.stdout and "35 parameters" in done.stdout
    assert isinstance(invoke("model.npz", "--rank", "numeric").exception, InputError)
    assert isinstance(invoke("model.npz", "--parameters", "none.*").exception, InputError)


def test_the_kernel_is_explained(run):
    invoke, folder = run
    done = invoke("model.npz", "--data", folder / "X.npy", "--explain")
    assert done.exit_code == 0, done.output
    shown = " ".join(done.stdout.split())
    assert "directions change the outputs" in shown and "rescaling" in shown and "adjacent layers" in shown
    data = json.loads(invoke("model.npz", "--data", folder / "X.npy", "--explain", "--json").stdout)
    assert sum(part["dimension"] for part in data["parts"]) == data["nullity"]


def test_json(run):
    invoke, folder = run
    result = json.loads(invoke("model.npz", "--data", folder / "X.npy", "--json").stdout)
    assert result["num_points"] == 30
    assert result["exact"] <= result["upper"]
    assert {b["name"] for b in result["bounds"]} >= {"orbit", "regions"}


def test_decisive_set_and_samples(run):
    invoke, _ = run
    assert "points in each of the" in invoke("model.npz").stdout
    sampled = invoke("wide.npz", "--json")
    result = json.loads(sampled.stdout)
    assert not result["decisive"]
    assert sampled.exit_code == (0 if result["certified"] else 3)


def test_a_lower_bound_is_called_one(run):
    invoke, folder = run
    net = Network.random((5, 12, 8, 6, 1), 0)
    fs.save(net, folder / "sampled.npz")
    done = invoke("sampled.npz")
    result = functional_dimension(net)
    assert result.exact is None
    assert done.exit_code == 3
    assert f"at least {result.lower}" in done.stdout
    assert "on samples only" in " ".join(done.stdout.split())
    data = json.loads(invoke("sampled.npz", "--json").stdout)
    assert data["exact"] is None and data["lower"] == result.lower


@pytest.mark.parametrize(
    ("weights", "X", "text"),
    [
        ([[[1.0]], [[2.0]]], [[1.0], [2.0], [3.0]], "gap"),
        ([[[1.0]], [[0.0]]], [[-1.0], [-2.0]], "infinite gap: all that was dropped is zero"),
        ([[[1.0]], [[2.0]]], [[1.0]], "nothing dropped"),
    ],
)
def test_the_gap_is_said_in_words(run, weights, X, text):
    invoke, folder = run
    fs.save(Network(weights, [[0.5], [0.0]]), folder / "small.npz")
    np.save(folder / "few.npy", np.array(X))
    shown = " ".join(invoke("small.npz", "--data", folder / "few.npy").stdout.split())
    assert text in shown
    assert "no gap" not in shown


def test_kinks_are_named(run):
    invoke, folder = run
    fs.save(Network([[[1.0]], [[2.0]]], [[0.0], [0.0]]), folder / "small.npz")
    np.save(folder / "few.npy", np.array([[0.0], [1.0], [0.0], [0.0], [0.0]]))
    shown = " ".join(invoke("small.npz", "--data", folder / "few.npy").stdout.split())
    assert "4 points lie exactly on a kink" in shown
    assert "point 0: neuron 0 of hidden layer 1" in shown
    assert "and 1 more" in shown


def test_spectrum(run):
    invoke, folder = run
    done = invoke("model.npz", "--data", folder / "X.npy", "--spectrum", 3)
    assert "effective rank" in done.stdout
    result = json.loads(invoke("model.npz", "--data", folder / "X.npy", "--spectrum", 3, "--json").stdout)
    assert len(result["eigenvalues"]) == 3
    assert isinstance(invoke("model.npz", "--spectrum", 3).exception, InputError)


def test_bad_data(run):
    invoke, folder = run
    (folder / "bad.npy").write_text("no array")
    np.save(folder / "wrong.npy", np.zeros((3, 7)))
    for name in ("bad.npy", "wrong.npy", "missing.npy"):
        assert isinstance(invoke("model.npz", "--data", folder / name).exception, InputError)


def test_picture_shows_cutoffs_and_rank():
    net = Network.random((1, 10, 10, 10, 1), 0)
    result = functional_dimension(net, np.linspace(0, 1, 60)[:, None])
    ax = spectrum(result)
    lines = [line.get_ydata() for line in ax.get_lines()]
    assert any(np.allclose(y, result.cutoff) for y in lines)
    assert any(np.allclose(y, result.paper_cutoff) for y in lines)
    assert any(f"exact rank {result.exact}" in text.get_text() for text in ax.get_legend().get_texts())
    assert any("gap" in text.get_text() for text in ax.texts)
    assert png(ax.figure).startswith(b"\x89PNG")
    # no singular value at all above zero, and no exact rank
    flat = functional_dimension(Network([[[1.0]]], [[0.0]]), [[1.0]], exact=False)
    spectrum(flat)


@pytest.mark.parametrize("more", [(), ("--explain",), ("--spectrum", 2)])
def test_the_time_is_up_in_one_line(run, more):
    invoke, folder = run
    done = invoke("model.npz", "--data", folder / "X.npy", *more, "--time-limit", 1e-6)
    assert isinstance(done.exception, OutOfTimeError), done.output
