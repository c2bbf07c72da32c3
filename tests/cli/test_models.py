"""How commands take models: what a file does not say is said by options, the same for every command."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import fiberscope as fs
from fiberscope.cli.app import app

COMMANDS = {
    "inspect": (),
    "regions": ("--count",),
    "distance": ("--data", "{folder}/points.npy"),
    "dimension": (),
    "equal": ("{model}",),
    "simplify": ("{folder}/small.npz",),
    "canon": ("{folder}/form.npz",),
    "fiber": (),
    "recover": ("--widths", "2-3-1"),
    "report": ("--out", "{folder}/report.html"),
}
WITHOUT = {"verify", "theory", "reproduce", "tour", "align", "apply", "barrier", "merge", "diff", "vnncomp", "explore"}
WITHOUT |= {"compile"}
"""Commands that take no model, those of a certificate, checkpoints as they are, the files of a query, or that stay
until they are stopped (tests/cli/test_explore.py)."""


def relu():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(relu().state_dict(), path)
    np.save(tmp_path / "points.npy", np.ones((2, 2)))
    return path


def arguments(name, model):
    return [text.format(model=model, folder=model.parent) for text in COMMANDS[name]]


def test_every_command_is_in_a_table():
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert names == set(COMMANDS) | WITHOUT


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_asks_for_an_architecture_and_takes_it(run, name, model):
    done = run(name, model, *arguments(name, model))
    assert done.returncode == 2
    assert "no architecture" in done.stderr and "--activation relu" in done.stderr and "--module" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    done = run(name, model, *arguments(name, model), "--activation", "relu", "--json")
    assert done.returncode in (0, 1, 3), done.stderr
    assert json.loads(done.stdout)


def test_numbers_of_tanh_are_not_called_equal_to_those_of_relu(run, model, tmp_path):
    other = tmp_path / "tanh.pt"
    torch.save(nn.Sequential(*relu()[:1], nn.Tanh(), *relu()[2:]).state_dict(), other)
    assert run("equal", other, model).returncode == 2
    done = run("equal", other, model, "--activation", "tanh")
    assert done.returncode == 2 and "'tanh' is not piecewise linear" in done.stderr


def test_options_are_for_the_models_that_need_them(run, model, tmp_path):
    onnx = tmp_path / "model.onnx"
    fs.save(fs.load(relu()), onnx)
    assert run("equal", model, onnx, "--activation", "relu").returncode == 0
    assert run("equal", onnx, model, "--activation", "relu").returncode == 0
    done = run("equal", onnx, onnx, "--activation", "relu")
    assert done.returncode == 2 and "activation: expected none for an ONNX file" in done.stderr
    done = run("inspect", onnx, "--key", "model")
    assert done.returncode == 2 and "key: expected none" in done.stderr


def test_a_module_by_its_name(run, model, tmp_path, monkeypatch):
    (tmp_path / "border_zoo.py").write_text(
        "from torch import nn\n"
        "def make(): return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))\n"
        "def image(): return nn.Sequential(nn.Conv2d(1, 1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1))\n"
        "def broken(): raise RuntimeError('two\\nlines')\n"
        "class Zoo:\n    make = staticmethod(make)\n"
    )
    monkeypatch.chdir(tmp_path)
    for name in ("border_zoo:make", "border_zoo:Zoo.make"):
        done = run("inspect", model, "--module", name, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["architecture"] == "2-3-1"
    torch.manual_seed(0)
    image = nn.Sequential(nn.Conv2d(1, 1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1))
    torch.save({"epoch": 3, "net": image.state_dict()}, tmp_path / "image.ckpt")
    asked = ("inspect", "image.ckpt", "--module", "border_zoo:image", "--json")
    assert "give input_shape" in run(*asked).stderr
    for shape in ("1,3,3", "1x3x3"):
        assert json.loads(run(*asked, "--input-shape", shape).stdout)["input_shape"] == [1, 3, 3]
    for name, message in (
        ("border_zoo", "expected package.file:factory"),
        ("border_zoo:", "expected package.file:factory"),
        ("border_zoo:none", "cannot be imported (AttributeError"),
        ("border_none:make", "cannot be imported (ModuleNotFoundError"),
        ("border_zoo:broken", "it cannot be made (RuntimeError: two lines)"),
    ):
        done = run("inspect", model, "--module", name)
        assert done.returncode == 2 and message in done.stderr, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert "expected sizes such as 3,32,32" in run(*asked, "--input-shape", "3 by 3").stderr


def test_keys_slopes_and_cuts(run, model, tmp_path):
    both = tmp_path / "both.pt"
    state = relu().state_dict()
    torch.save({"a": state, "b": {name: 2 * tensor for name, tensor in state.items()}}, both)
    done = run("inspect", both, "--activation", "relu")
    assert done.returncode == 2 and "got 2: 'a', 'b'; choose one by key= (--key)" in done.stderr
    assert run("equal", both, model, "--activation", "relu", "--key", "a").returncode == 2  # one file has no key
    assert run("inspect", both, "--activation", "relu", "--key", "a").returncode == 0
    assert "expected --activation leaky_relu" in run("inspect", model, "--slope", "0.1").stderr
    done = run("canon", model, tmp_path / "leaky.npz", "--activation", "leaky_relu", "--slope", "0.25")
    assert done.returncode == 0
    assert (fs.load(tmp_path / "leaky.npz").nodes[1].slopes == 0.25).all()
    net = fs.load(relu())
    fs.save(net, tmp_path / "net.onnx")
    done = run("inspect", tmp_path / "net.onnx", "--until", "relu", "--json")
    assert json.loads(done.stdout)["output_shape"] == [3]
    done = run("inspect", tmp_path / "net.onnx", "--until", "nowhere")
    assert done.returncode == 2 and "until: expected a node such as gemm, relu, gemm_1" in done.stderr, done.stderr


def test_certificates_of_models_that_need_options(run, model, tmp_path):
    """What was proven of a file and an activation is verified of the same file and the same activation."""
    small, proof = tmp_path / "small.npz", tmp_path / "proof.json"
    done = run("simplify", model, small, "--activation", "relu", "--certificate", proof)
    assert done.returncode == 0, done.stderr
    assert "no architecture" in run("verify", proof, model, small).stderr
    assert run("verify", proof, model, small, "--activation", "relu").returncode == 0
    assert run("verify", proof, model, small, "--activation", "leaky_relu").returncode == 1
    assert run("verify", proof).returncode == 0
