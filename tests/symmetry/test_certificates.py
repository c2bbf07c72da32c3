"""Certificates: what is written can be replayed, and what is forged or broken is not believed."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from plant import duplicate

import fiberscope as fs
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.symmetry.certificates import verify
from fiberscope.symmetry.encoding import content_hash
from fiberscope.symmetry.equivalence.ladder import equivalent
from fiberscope.symmetry.simplify import simplify
from fiberscope.testing import CASES, case

NET = Network.random((2, 6, 4, 1), 0)


def pairs():
    box = fs.Box.cube(2)
    shifted = Network(NET.weights, [NET.biases[0] + 1e-9, *NET.biases[1:]])
    fold = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    return {
        "identical": equivalent(NET, NET),
        "symmetry": equivalent(NET, Symmetry.random(NET.widths, 1)(NET), tolerance=0),
        "rounded": equivalent(NET, Symmetry.random(NET.widths, 1, dyadic=False)(NET)),
        "bounds": equivalent(NET, shifted, box, tolerance=1e-3),
        "duplicated": equivalent(NET, duplicate(NET, 0, np.random.default_rng(0)), tolerance=0),
        "refuted": equivalent(NET, shifted, box, tolerance=0),
        "one layer": equivalent(fold, Network([[[1.0]]], [[0.0]]), fs.Box([0], [1]), tolerance=0),
        "simplified": simplify(NET, box).verdict,
        "plane": equivalent(case("chain"), case("chain"), fs.Plane.along(2, (0, 1))),
        "regions": equivalent(NET, Network.random((2, 5, 1), 3), box, tolerance=50.0),
        "convolution": equivalent(case("convolutional"), case("convolutional")),
    }


PAIRS = pairs()


@pytest.mark.parametrize("name", PAIRS)
def test_a_certificate_holds(name, tmp_path):
    verdict = PAIRS[name]
    assert verdict.equal is not None
    path = tmp_path / "proof.json"
    verdict.save(path)
    replay = verify(path)
    assert replay.ok, replay.evidence
    assert replay.equal == verdict.equal
    # the contrary has no evidence
    found = json.loads(path.read_text())
    found["claim"]["equal"] = not verdict.equal
    path.write_text(json.dumps(found))
    with contextlib.suppress(fs.InputError):
        assert not verify(path).ok


@pytest.mark.parametrize("name", ["symmetry", "rounded", "bounds", "duplicated", "refuted", "simplified"])
def test_another_network_is_not_believed(name, tmp_path):
    path = tmp_path / "proof.json"
    PAIRS[name].save(path)
    found = json.loads(path.read_text())
    found["networks"][1] = found["networks"][0]
    path.write_text(json.dumps(found))
    with pytest.raises(fs.InputError, match="hash"):
        verify(path)
    found["claim"]["models"][1] = found["claim"]["models"][0]
    if name == "simplified":
        found["networks"].reverse()
        found["claim"]["models"].reverse()
    path.write_text(json.dumps(found))
    if name in ("rounded", "symmetry", "refuted"):
        assert not verify(path).ok
    found["claim"]["models"][0]["weights"] = "0" * 64
    path.write_text(json.dumps(found))
    with pytest.raises(fs.InputError, match="hash"):
        verify(path)


def test_malformed_files_raise_input_errors(tmp_path):
    path = tmp_path / "proof.json"
    PAIRS["refuted"].save(path)
    good = json.loads(path.read_text())
    broken = ["", "[]", "{}", "nonsense", '{"format": "other"}', "[" * 10000]
    for key in good:
        broken.append(json.dumps({k: v for k, v in good.items() if k != key}))
        for value in (None, 7, "x", [], {}):
            broken.append(json.dumps(good | {key: value}))
    for text in broken:
        path.write_text(text)
        try:
            replay = verify(path)
        except fs.InputError:
            continue
        assert not replay.ok or json.loads(text)["counterexample"] == good["counterexample"]
    with pytest.raises(fs.InputError):
        verify(tmp_path / "missing.json")


def test_malformed_evidence_raises_input_errors(tmp_path):
    path = tmp_path / "proof.json"
    for name, part in (("symmetry", "witness"), ("duplicated", "witness"), ("refuted", "counterexample")):
        PAIRS[name].save(path)
        good = json.loads(path.read_text())
        for key in good[part]:
            for value in (None, "x", [], [[]], [[0, 0]], {"a": 1}, 1e400):
                path.write_text(json.dumps(good | {part: good[part] | {key: value}}))
                try:
                    replay = verify(path)
                except fs.InputError:
                    continue
                used = {"refuted": {"x"}, "symmetry": {"permutations", "scales"}, "duplicated": {"signs"}}[name]
                assert not replay.ok or key not in used


def test_a_forged_sign_is_not_believed(tmp_path):
    net = Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    zero = Network([[[0.0]]], [[0.0]])
    path = tmp_path / "proof.json"
    equivalent(net, zero, fs.Box([-2], [-1]), tolerance=0).save(path)
    assert verify(path).ok
    found = json.loads(path.read_text())
    found["claim"]["domain"]["high"] = [1.0]
    path.write_text(json.dumps(found))
    assert not verify(path).ok


def test_networks_by_path(tmp_path):
    other = Symmetry.random(NET.widths, 1)(NET)
    names = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for net, name in zip((NET, other), names, strict=True):
        fs.save(net, name)
    path = tmp_path / "proof.json"
    equivalent(NET, other).save(path, models=(names[0], names[1]))
    assert "base64" not in path.read_text()
    assert verify(path).ok
    fs.save(NET, names[1])
    with pytest.raises(fs.InputError, match="hash"):
        verify(path)


def test_undecided_verdicts_are_no_certificates(tmp_path):
    a = Network.random((6, 12, 12, 1), 0)
    b = Network([w + 1e-9 for w in a.weights], a.biases)
    verdict = equivalent(a, b, tolerance=1e-3, time_limit=1)
    assert verdict.equal is None
    with pytest.raises(fs.InputError, match="undecided"):
        verdict.save(tmp_path / "proof.json")
    assert not (tmp_path / "proof.json").exists()


def test_hashes_tell_networks_apart():
    nets = [CASES[name]() for name in CASES]
    assert len({content_hash(net) for net in nets}) == len(nets)
    assert content_hash(case("chain")) == content_hash(case("chain"))
