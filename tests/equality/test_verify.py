"""Certificates: what is written can be replayed, and what is forged or broken is not believed."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evidence_laws import check_evidence
from plant import duplicate

import fiberscope as fs
from fiberscope.equality.certificates.claims import content_hash
from fiberscope.equality.counterexample import Counterexample
from fiberscope.equality.ladder import RUNGS, equivalent
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.bottleneck import TailsDiffer, Transported, by_bottleneck
from fiberscope.equality.rungs.channels import ChannelsAgree, by_channels
from fiberscope.equality.rungs.identical import SameProgram
from fiberscope.equality.rungs.normal_form import FormsDiffer, NormalForms
from fiberscope.equality.rungs.regions import RegionCount, by_regions
from fiberscope.equality.rungs.simplification import CarriedSimplified, by_simplification
from fiberscope.equality.rungs.split_boxes import SplitBoxes, by_split_boxes
from fiberscope.equality.rungs.structure import LayerOrder, by_structure
from fiberscope.equality.rungs.symmetry import Carried, by_symmetry
from fiberscope.equality.verify import KINDS, verify
from fiberscope.fibers.simplify.simplify import simplify
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.testing import CASES, case

NET = Network.random((2, 6, 4, 1), 0)


def pairs():
    box, other = fs.Box.cube(2), Network.random((2, 5, 1), 3)
    shifted = Network(NET.weights, [NET.biases[0] + 1e-9, *NET.biases[1:]])
    fold = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    return {
        "identical": equivalent(NET, NET),
        "symmetry": equivalent(NET, Symmetry.random(NET.widths, 1)(NET), tolerance=0),
        "rounded": equivalent(NET, Symmetry.random(NET.widths, 1, dyadic=False)(NET)),
        "bounds": replace(by_symmetry(Question.of(NET, shifted, box, 1e-3)), networks=(NET, shifted)),
        "duplicated": equivalent(NET, duplicate(NET, 0, np.random.default_rng(0)), tolerance=0),
        "refuted": equivalent(NET, shifted, box, tolerance=0),
        "one layer": equivalent(fold, Network([[[1.0]]], [[0.0]]), fs.Box([0], [1]), tolerance=0),
        "simplified": simplify(NET, box).verdict,
        "plane": equivalent(case("chain"), case("chain"), fs.Plane.along(2, (0, 1))),
        "regions": replace(by_regions(Question.of(NET, other, box, 50.0)), networks=(NET, other)),
        "convolution": equivalent(case("convolutional"), case("convolutional")),
        "boxes": replace(by_split_boxes(Question.of(NET, shifted, box, 1e-3)), networks=(NET, shifted)),
    }


PAIRS = pairs()


def one_of_every_kind():
    """Evidence of the kinds that rungs give, with what it answers."""
    rows = [[1.0, -2.0, -1.0]]
    hides = Network([np.eye(3), rows, [[1.0]]], [np.zeros(3), [-1.0], [0.0]])
    moved = Network([np.eye(3), rows, [[1.0]]], [[0.5, 0.0, 0.0], [-1.5], [0.0]])
    twice = Network([np.eye(3), rows, [[2.0]]], [np.zeros(3), [-1.0], [0.0]])
    fold = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    dead = Network([[[-2.0], [0.0], [2.0]], [[0.5, 1.0, 0.5]]], [[0.0, -1.0, 0.0], [0.0]])
    image, line = case("convolutional"), fs.Space(1)
    found = [(v.evidence, Question.of(*v.networks, v.domain, v.tolerance)) for v in PAIRS.values()]
    for rung, question in (
        (by_bottleneck, Question.of(hides, moved, None, 0.0)),
        (by_simplification, Question.of(fold, dead, line, 0.0)),
        (by_structure, Question.of(image, image)),
        (by_channels, Question.of(NET, duplicate(NET, 0, np.random.default_rng(0)), None, 0.0)),
    ):
        found.append((rung(question).evidence, question))
    found.append((TailsDiffer(), Question.of(hides, twice, None, 0.0)))
    found.append((FormsDiffer(), Question.of(fold, Network([[[1.0]]], [[0.0]]), line, 0.0)))
    return found


def test_evidence_is_written_read_and_checked():
    every = one_of_every_kind()
    kinds = {SameProgram, Carried, CarriedSimplified, LayerOrder, NormalForms, FormsDiffer}
    kinds |= {Transported, TailsDiffer, RegionCount, Counterexample, ChannelsAgree, SplitBoxes}
    assert {type(evidence) for evidence, _ in every} == kinds
    for evidence, question in every:
        check_evidence(evidence, question)


def test_every_kind_of_evidence_has_a_name_and_a_test():
    kinds = {kind for rung in RUNGS for kind in rung.evidence}
    assert set(KINDS.values()) == kinds  # no two have one name
    tests = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    for kind in kinds:
        assert kind.__name__ in tests, f"{kind.__name__}: no test calls check_evidence with it"


def test_evidence_of_equality_is_none_of_a_difference(tmp_path):
    path = tmp_path / "proof.json"
    for name in ("symmetry", "refuted"):
        PAIRS[name].save(path)
        found = json.loads(path.read_text())
        found["claim"]["equal"] = not found["claim"]["equal"]
        path.write_text(json.dumps(found))
        with pytest.raises(fs.InputError, match="expected evidence of"):
            verify(path)


def of_format_2(verdict, path):
    """What a certificate of the second format held."""
    verdict.save(path)
    found = json.loads(path.read_text())
    evidence = found.pop("evidence")
    kind = evidence.pop("kind")
    renamed = {"bottleneck": {"transport": evidence}, "layers": {"layers": evidence.get("order")}}
    found["witness"] = renamed.get(kind, evidence) if verdict.equal else None
    if kind == "simplified symmetry":
        found["witness"]["simplified"] = True
    found["counterexample"] = evidence if kind == "counterexample" else None
    path.write_text(json.dumps(found | {"format": "fiberscope certificate 2"}))


def test_certificates_of_the_second_format_are_read(tmp_path):
    path = tmp_path / "proof.json"
    for evidence, asked in one_of_every_kind():
        if isinstance(asked.domain, fs.Plane) or isinstance(evidence, ChannelsAgree | SplitBoxes):
            continue  # its networks are those of the slice; a kind that came later
        method = "bottleneck" if isinstance(evidence, TailsDiffer) else "another"
        pair = (asked.a, asked.b)
        verdict = fs.Verdict(evidence.equal, method, asked.domain, asked.tolerance, evidence, networks=pair)
        of_format_2(verdict, path)
        assert "evidence" not in json.loads(path.read_text())
        assert verify(path).ok, evidence
        found = json.loads(path.read_text())
        path.write_text(json.dumps(found | {"witness": 3, "counterexample": 3}))
        with pytest.raises(fs.InputError):
            verify(path)


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
    path.write_text(json.dumps(found))
    with pytest.raises(fs.InputError, match="hash"):  # of the plain program
        verify(path)
    found["programs"][1] = found["programs"][0]
    if name == "simplified":
        found["networks"].reverse()
        found["programs"].reverse()
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
        assert not replay.ok or json.loads(text)["evidence"] == good["evidence"]
    with pytest.raises(fs.InputError):
        verify(tmp_path / "missing.json")


def test_malformed_evidence_raises_input_errors(tmp_path):
    path = tmp_path / "proof.json"
    for name in ("symmetry", "duplicated", "refuted"):
        PAIRS[name].save(path)
        good = json.loads(path.read_text())
        for key in good["evidence"]:
            for value in (None, "x", [], [[]], [[0, 0]], {"a": 1}, 1e400):
                path.write_text(json.dumps(good | {"evidence": good["evidence"] | {key: value}}))
                try:
                    replay = verify(path)
                except fs.InputError:
                    continue
                used = {"refuted": {"x"}, "symmetry": {"permutations", "scales"}, "duplicated": {"signs"}}[name]
                assert not replay.ok or key not in used | {"kind"}


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
