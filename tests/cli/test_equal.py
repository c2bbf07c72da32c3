"""``equal``, ``verify``, ``canon`` and ``simplify`` as commands: what they print and write, and their exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import fiberscope as fs
from fiberscope.cli.canon import canon
from fiberscope.cli.equal import equal
from fiberscope.cli.simplify import simplify
from fiberscope.cli.verify import verify
from fiberscope.errors import FiberscopeError
from fiberscope.fibers.hidden_hyperplanes import flip, translate
from fiberscope.network.action.chain import Symmetry

NAMES = {
    "canonical": "fibers.canonical.form",
    "equivalent": "equality.ladder",
    "simplify": "fibers.simplify.simplify",
    "verify": "equality.verify",
}


@pytest.fixture(autouse=True)
def public_names(monkeypatch):
    for name, module in NAMES.items():
        if name not in fs._NAMES:
            monkeypatch.setitem(fs._NAMES, name, module)


def run(command, *arguments):
    """Exit code and output; a named error is exit code 2, as in the main program."""
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(result.exception, FiberscopeError):
        return 2, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def models(tmp_path):
    net = fs.Network.random((3, 8, 8, 2), 0)
    copy = Symmetry.random(net.widths, 1)(net)
    weights = [w.copy() for w in net.weights]
    weights[1][2, 3] += 0.25
    changed = fs.Network(weights, net.biases)
    paths = {}
    for name, model in (("net", net), ("copy", copy), ("changed", changed), ("other", fs.Network.random((2, 3, 2), 0))):
        paths[name] = tmp_path / f"{name}.npz"
        fs.save(model, paths[name])
    return paths


def test_equal_models_exit_zero_and_the_certificate_holds(models, tmp_path):
    proof = tmp_path / "proof.json"
    code, out = run(equal, models["net"], models["copy"], "--tolerance", 0, "--certificate", proof)
    assert code == 0 and "equal" in out and "symmetry" in out
    assert run(verify, proof)[0] == 0
    code, out = run(verify, proof, "--json")
    assert json.loads(out)["ok"] is True


def test_different_models_exit_one_with_a_counterexample(models, tmp_path):
    proof = tmp_path / "proof.json"
    code, out = run(equal, models["net"], models["changed"], "--box", -1, 1, "--json", "--certificate", proof)
    found = json.loads(out)
    assert code == 1 and found["equal"] is False
    x = np.array([found["counterexample"]["x"]])
    assert (np.abs(x) <= 1).all()
    gap = np.abs(fs.load(models["net"])(x) - fs.load(models["changed"])(x)).max()
    assert gap == pytest.approx(found["counterexample"]["difference"])
    assert run(verify, proof)[0] == 0


def test_undecided_exits_three(tmp_path):
    a = fs.Network.random((6, 12, 12, 1), 0)
    rng = np.random.default_rng(0)
    b = fs.Network([w * (1 + 1e-9 * rng.normal(size=w.shape)) for w in a.weights], a.biases)
    for name, net in (("a", a), ("b", b)):
        fs.save(net, tmp_path / f"{name}.npz")
    code, out = run(equal, tmp_path / "a.npz", tmp_path / "b.npz", "--tolerance", 1e-3, "--time-limit", 2)
    assert code == 3 and "undecided" in out


def test_bad_input_exits_two(models, tmp_path):
    assert run(equal, models["net"], models["other"])[0] == 2
    assert run(equal, models["net"], tmp_path / "missing.npz")[0] == 2
    assert run(equal, models["net"], models["copy"], "--box", 1, -1)[0] == 2
    assert run(equal, models["net"], models["copy"], "--tolerance", -1)[0] == 2
    text = tmp_path / "text.json"
    text.write_text("{}")
    assert run(verify, text)[0] == 2


def test_a_tampered_certificate_does_not_hold(models, tmp_path):
    proof = tmp_path / "proof.json"
    run(equal, models["net"], models["changed"], "--certificate", proof)
    found = json.loads(proof.read_text())
    found["claim"]["equal"] = True
    found["evidence"] = {"kind": "normal form", "signs": [[0] * 16, [0] * 16], "hyperplanes": 0, "ulps": 0}
    proof.write_text(json.dumps(found))
    assert run(verify, proof)[0] == 1


def test_canon_writes_the_same_file_for_a_copy(models, tmp_path):
    for name in ("net", "copy"):
        assert run(canon, models[name], tmp_path / f"{name}_canonical.npz")[0] == 0
    a, b = (fs.load(tmp_path / f"{name}_canonical.npz") for name in ("net", "copy"))
    assert fs.identical(a, b)
    assert "already" in run(canon, tmp_path / "net_canonical.npz", tmp_path / "again.npz")[1]


def test_simplify_writes_a_smaller_model_and_its_proof(tmp_path):
    net = fs.Network(
        [[[1.0, 2.0], [2.0, 4.0], [0.0, 0.0], [1.0, -1.0]], [[1.0, 1.0, 5.0, 2.0]]], [[0.5, 1.0, -1.0, 0.0], [0.0]]
    )
    fs.save(net, tmp_path / "net.npz")
    small, proof = tmp_path / "small.npz", tmp_path / "proof.json"
    code, out = run(simplify, tmp_path / "net.npz", small, "--certificate", proof)
    assert code == 0 and "2-2-1" in out and "dead" in out
    assert fs.load(small).widths == (2, 2, 1)
    assert run(verify, proof)[0] == 0
    assert run(equal, tmp_path / "net.npz", small, "--tolerance", 0)[0] == 0


def test_a_moved_hyperplane_is_proven_replayed_and_described(tmp_path):
    """A bottleneck that hides a hyperplane, and a copy in which it is moved and another one reflected."""
    net = fs.Network(
        [np.eye(4)[:3] + 0.25, [[1.0, -2.0, -0.5]], [[3.0], [1.0]]], [[0.5, -1.0, 0.25], [-2.0], [0.25, 0.0]]
    )
    other = fs.Network(*translate(*flip(net.weights, net.biases, 0, 0, (2,)), 0, 0, 1.75))
    paths = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for model, path in zip((net, other), paths, strict=True):
        fs.save(model, path)
    proof = tmp_path / "proof.json"
    code, out = run(equal, *paths, "--tolerance", 0, "--certificate", proof)
    assert code == 0 and "bottleneck" in out and "moved by 1.75" in out and "neuron 2 of layer 1 reflected" in out
    code, out = run(verify, proof)
    assert code == 0 and "holds" in out and "moved by 1.75" in out
    found = json.loads(run(equal, *paths, "--json")[1])["witness"]
    assert (
        found["kind"] == "bottleneck"
        and found["flips"] == [2]
        and found["translation"] == "7/4"
        and found["exact"] is True
    )
    broken = json.loads(proof.read_text())
    broken["evidence"]["translation"] = "2"
    proof.write_text(json.dumps(broken))
    assert run(verify, proof)[0] == 1
