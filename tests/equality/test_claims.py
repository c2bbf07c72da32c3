"""The claim of a certificate: which two models, where, and which kind of equality."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import fiberscope as fs
from fiberscope.cli.app import app
from fiberscope.equality.certificates.claims import content_hash, domain_text
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.regions import by_regions
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.testing import CASES, case

NET = Network.random((2, 4, 1), 0)
OTHER = Symmetry.random(NET.widths, 1)(NET)


@pytest.fixture
def files(tmp_path):
    for name, net in (("a.onnx", NET), ("b.npz", OTHER), ("c.onnx", Network.random((2, 4, 1), 5))):
        fs.save(net, tmp_path / name)
    loaded = [fs.load(tmp_path / name) for name in ("a.onnx", "b.npz")]
    fs.equivalent(*loaded, fs.Box.cube(2, -0.001, 0.001), tolerance=0.5).save(tmp_path / "proof.json")
    return tmp_path


def test_the_claim_names_the_models_the_domain_and_the_kind(files):
    replay = fs.verify(files / "proof.json")
    assert replay.ok
    assert replay.claim == "equal within 0.5 on the box [-0.001, 0.001]^2"
    assert [m.file for m in replay.models] == ["a.onnx", "b.npz"]
    digests = [hashlib.sha256((files / name).read_bytes()).hexdigest() for name in ("a.onnx", "b.npz")]
    assert [m.sha256 for m in replay.models] == digests
    assert all(m.compared is None and "not compared" in m.text for m in replay.models)


def test_files_are_compared_by_bytes_and_by_weights(files):
    proof = files / "proof.json"
    assert all(m.compared for m in fs.verify(proof, files / "a.onnx", files / "b.npz").models)
    assert fs.verify(proof, files / "a.onnx", files / "b.npz").ok
    assert not fs.verify(proof, files / "b.npz", files / "a.onnx").ok
    assert not fs.verify(proof, files / "c.onnx", files / "b.npz").ok
    replay = fs.verify(proof, files / "c.onnx")
    assert not replay and replay.models[0].compared is False and "a is not the model" in replay.evidence
    # a model in memory has no bytes
    assert fs.verify(proof, NET, OTHER).ok
    assert not fs.verify(proof, OTHER, NET).ok
    # the same numbers in another file are another file
    fs.save(NET, files / "a.npz")
    assert not fs.verify(proof, files / "a.npz").ok


def test_numbers_in_a_file_beside_the_model_are_part_of_the_claim(tmp_path):
    """The bytes of an ONNX file say nothing of the weights that it keeps elsewhere."""
    fs.save(Network.random((2, 300, 1), 0), tmp_path / "whole.onnx")
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(onnx.load(tmp_path / "whole.onnx"), tmp_path / "a.onnx", **options)
    proof, data = tmp_path / "proof.json", tmp_path / "weights.bin"
    fs.equivalent(tmp_path / "a.onnx", tmp_path / "a.onnx").save(proof)
    model = fs.verify(proof).models[0]
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    assert model.data == (("weights.bin", digest),) and f"with weights.bin, sha256 {digest}" in model.text
    assert fs.verify(proof, tmp_path / "a.onnx").ok
    found = json.loads(proof.read_text())
    for file in (m["file"] for m in found["claim"]["models"]):
        file["data"]["weights.bin"] = 64 * "0"
    proof.write_text(json.dumps(found))
    assert not fs.verify(proof, tmp_path / "a.onnx").ok
    data.write_bytes(bytes(len(data.read_bytes())))
    fs.equivalent(tmp_path / "whole.onnx", tmp_path / "whole.onnx").save(proof)
    assert not fs.verify(proof, tmp_path / "a.onnx").ok


def test_a_certificate_for_other_weights_with_the_hash_of_a_file_is_not_believed(files):
    """Whoever writes the hash of your file beside other networks proves nothing of your file."""
    zero = Network([[[0.0, 0.0]]], [[0.0]])
    fs.equivalent(zero, zero).save(files / "forged.json")
    found = json.loads((files / "forged.json").read_text())
    for model, name in zip(found["claim"]["models"], ("a.onnx", "c.onnx"), strict=True):
        digest = hashlib.sha256((files / name).read_bytes()).hexdigest()
        model["file"] = {"name": name, "sha256": digest}
    (files / "forged.json").write_text(json.dumps(found))
    assert fs.verify(files / "forged.json").ok  # of the zero network, and it says that no file was compared
    assert not fs.verify(files / "forged.json", files / "a.onnx", files / "c.onnx").ok


def test_the_command_prints_the_claim_and_compares(files):
    run = CliRunner()
    proof = str(files / "proof.json")
    shown = run.invoke(app, ["verify", proof])
    assert shown.exit_code == 0
    assert "holds: the two models are equal within 0.5 on the box [-0.001, 0.001]^2" in shown.output
    assert "a.onnx, sha256" in shown.output and "not compared" in shown.output
    good = run.invoke(app, ["verify", proof, str(files / "a.onnx"), str(files / "b.npz")])
    assert good.exit_code == 0 and "compared, the same" in good.output
    bad = run.invoke(app, ["verify", proof, str(files / "a.onnx"), str(files / "c.onnx")])
    assert bad.exit_code == 1 and "NOT the same" in bad.output
    found = json.loads(run.invoke(app, ["verify", proof, "--json"]).output)
    assert found["domain"]["low"] == [-0.001, -0.001] and found["precision"] is None
    assert found["models"][0]["weights"] == content_hash(NET)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("precision", ["float32", "float8", 7]),
        ("tolerance", [-1.0, "x", True]),
        ("models", [None, [], [{}, {}], [{"weights": 3}] * 2]),
        ("domain", [None, {"kind": "box"}, {"kind": "space", "dimension": 3}]),
    ],
)
def test_a_claim_that_is_none_is_refused(files, key, values):
    found = json.loads((files / "proof.json").read_text())
    for value in values:
        (files / "broken.json").write_text(json.dumps(found | {"claim": found["claim"] | {key: value}}))
        with pytest.raises(fs.InputError):
            fs.verify(files / "broken.json")


def test_a_wider_claim_than_the_evidence(files):
    """Precision, tolerance and domain of a claim are verified with the evidence at hand."""
    net = Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    near = Network([[[1.0]], [[1.0 + 2.0**-22]]], [[0.0], [0.0]])
    both = [n.with_source(fs.load(nn.Linear(1, 1)).source) for n in (net, near)]
    verdict = fs.equivalent(*both)
    assert verdict.equal and verdict.precision == "float32"
    verdict.save(files / "p.json")
    assert fs.verify(files / "p.json").claim == "equal up to float32 rounding on all of R^1"
    found = json.loads((files / "p.json").read_text())
    for change in ({"precision": "float64"}, {"precision": None, "tolerance": 0.0}):
        (files / "q.json").write_text(json.dumps(found | {"claim": found["claim"] | change}))
        assert not fs.verify(files / "q.json").ok


def test_regions_say_that_they_were_listed_again(tmp_path):
    other = Network.random((2, 3, 1), 4)
    verdict = replace(by_regions(Question.of(NET, other, fs.Box.cube(2), 50.0)), networks=(NET, other))
    assert verdict.method == "regions"
    verdict.save(tmp_path / "p.json")
    assert "no shorter proof" in fs.verify(tmp_path / "p.json").evidence


def test_domains_in_words():
    assert domain_text(fs.Box([0.1], [0.3])) == "the box [0.1, 0.3]"
    assert domain_text(fs.Box([0.0, 0.0], [1.0, 0.1 + 0.2])) == "the box [0.0, 1.0] x [0.0, 0.30000000000000004]"
    many = [fs.Box(np.zeros(9), high) for high in (np.arange(1.0, 10.0), np.arange(1.0, 10.0) + np.eye(9)[8])]
    assert domain_text(many[0]) != domain_text(many[1])  # what is not printed is hashed


def test_programs_have_their_own_hashes():
    hashes = {content_hash(case(name)) for name in CASES}
    assert len(hashes) == len(CASES)
    net = fs.load(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).double())
    moved = [w.copy() for w in net.weights]
    moved[1][0, 0] = np.nextafter(moved[1][0, 0], 9.0)
    assert content_hash(net) != content_hash(Network(moved, net.biases))
    assert content_hash(net) == content_hash(Network(net.weights, net.biases))


def test_modules_are_bound_by_their_weights(tmp_path):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    fs.equivalent(module, module).save(tmp_path / "p.json")
    assert fs.verify(tmp_path / "p.json", module, module).ok
    with torch.no_grad():
        module[0].weight[0, 0] += 1
    assert not fs.verify(tmp_path / "p.json", module).ok
