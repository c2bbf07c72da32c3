"""Certificates that were changed somewhere: rejected by the standalone checker and by ``verify``, or still true.

What may be accepted is a changed certificate whose claim is true: one that says the same of a smaller domain, allows
more, or has other evidence that proves it as well. An independent judge (exact values at many points) looks at
every claim that is accepted, and the places at which nothing else than a rejection is right are counted.
"""

from __future__ import annotations

import contextlib
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from mutations import at, mutants

import fiberscope as fs
from fiberscope.equality import checker
from fiberscope.equality.bounding.phases import Split
from fiberscope.equality.certificates.claims import domain_from_dict
from fiberscope.equality.ladder import equivalent
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.bottleneck import TailsDiffer, by_bottleneck
from fiberscope.equality.rungs.channels import by_channels
from fiberscope.equality.rungs.normal_form import FormsDiffer, by_forms
from fiberscope.equality.rungs.regions import by_regions
from fiberscope.equality.rungs.simplification import by_simplification
from fiberscope.equality.rungs.split_neurons import SplitNeurons, searched
from fiberscope.equality.rungs.structure import by_structure
from fiberscope.errors import FiberscopeError
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.testing import fraction_values

NOTES = {("method",), ("claim", "models", 0, "file"), ("claim", "models", 1, "file")}
"""What no proof depends on: the name of a method, and the name and hash of a file that nobody compares here."""


def verdicts() -> dict[str, Any]:
    """One certificate of every kind, about networks as small as can be."""
    net = Network([[[1.0], [-2.0]], [[1.0, 0.5]]], [[0.25, 1.0], [0.5]])
    box = fs.Box([-1.0], [1.0])
    moved = Network(net.weights, [net.biases[0] + 2.0**-10, net.biases[1]])
    fold = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    dead = Network([[[-2.0], [0.0], [2.0]], [[0.5, 1.0, 0.5]]], [[0.0, -1.0, 0.0], [0.0]])
    line = Network([[[1.0]]], [[0.0]])
    two = Network([[[1.0], [-1.0]], [[1.0, 0.0], [0.0, 1.0]]], [[0.0, 0.0], [0.5, 0.0]])
    rows = [[1.0, -2.0, -1.0]]
    hides = Network([np.eye(3), rows, [[1.0]]], [np.zeros(3), [-1.0], [0.0]])
    shifted = Network([np.eye(3), rows, [[1.0]]], [[0.5, 0.0, 0.0], [-1.5], [0.0]])
    made: dict[str, Any] = {
        "identical": equivalent(net, net, box),
        "symmetry": equivalent(net, Symmetry([[1, 0]], [[2.0, 0.5]])(net), box, tolerance=0),
        "symmetry up to rounding": equivalent(net, Symmetry([[1, 0]], [[3.0, 0.7]])(net)),
        "symmetry within": equivalent(net, moved, box, tolerance=0.125),
        "counterexample": equivalent(net, moved, box, tolerance=0),
        "counterexample up to rounding": equivalent(net, moved, box),
        "normal form": equivalent(fold, dead, tolerance=0),
        "normal form on a box": equivalent(fold, line, fs.Box([0.0], [1.0]), tolerance=0),
        "output ranges": equivalent(fold, line, box, tolerance=4.0),
        "boxes": equivalent(net, Network([[[2.0]], [[1.0]]], [[1.0], [0.0]]), box, tolerance=3.0),
        "classes": equivalent(
            two, Network(two.weights, [two.biases[0], [0.5, 0.125]]), box, criterion="argmax", margin=0.5
        ),
        "another class": equivalent(two, Network(two.weights, [two.biases[0], [0.0, 0.5]]), box, criterion="argmax"),
    }
    for name, rung, question in (
        ("normal form", by_forms, Question.of(fold, dead, fs.Space(1), 0.0)),
        ("regions", by_regions, Question.of(net, moved, box, 0.125)),
        ("bottleneck", by_bottleneck, Question.of(hides, shifted, None, 0.0)),
        ("simplified symmetry", by_simplification, Question.of(fold, dead, fs.Space(1), 0.0)),
        ("layers", by_structure, Question.of(net, net, box)),
        ("channels", by_channels, Question.of(net, Symmetry([[1, 0]], [[2.0, 0.5]])(net), box, 0.0)),
    ):
        found = rung(question)
        kept = {"precision": question.precision, "networks": (question.a, question.b)}
        made[name] = fs.Verdict(found.equal, found.method, question.domain, question.tolerance, found.evidence, **kept)
    weights = [[[1.0], [-1.0]], [[1.0, 1.0], [1.0, 1.0]], [[0.0, 2.0], [1.0, 0.0]]]
    first, second = (Network(weights, [[0.0, 0.0], [0.0, -0.5], [c, 0.0]]) for c in (0.625, 0.75))
    question = Question.of(first, second, box, margin=0.0)
    kept = {"networks": (first, second), "margin": 0.0}
    leaf = searched(question, box, question.run).trees[0][0][0]
    tree = Split(0, 0), leaf._replace(factors=((0, 0, 0.0625),)), leaf
    evidence = SplitNeurons(0, ((tree,), ((leaf,),)))
    made["signs of neurons"] = fs.Verdict(True, "", box, None, evidence, **kept)
    made["hyperplanes differ"] = fs.Verdict(False, "", box, 0.0, FormsDiffer(), networks=(fold, moved))
    lower = Network([np.eye(3), rows, [[0.5]]], [np.zeros(3), [-1.0], [0.0]])
    made["layers behind differ"] = fs.Verdict(False, "", fs.Space(3), 0.0, TailsDiffer(), networks=(hides, lower))
    return made


VERDICTS = verdicts()


def accepted_by_checker(found: Any) -> bool:
    try:
        checker.check(json.loads(json.dumps(found), parse_constant=checker._no_constant))
    except (checker.Malformed, checker.Fails, checker.TooLarge, ValueError, OverflowError):
        return False
    return True


def accepted_by_verify(found: Any, path: Any) -> bool:
    path.write_text(json.dumps(found))
    try:
        return bool(fs.verify(path))
    except FiberscopeError:
        return False


def is_false(found: Any, nets: tuple[Network, Network]) -> bool:
    """Whether exact values refute a claim: of equality by one point, of a difference by none of many."""
    claim = found["claim"]
    if "criterion" in claim:
        return False  # classes have tests of their own
    domain = domain_from_dict(claim["domain"])
    points = domain.sample(200, 0)
    points = points[domain.contains(points)]
    gaps = [
        max(abs(Fraction(p) - Fraction(q)) for p, q in zip(*(fraction_values(net, x)[-1] for net in nets), strict=True))
        for x in points
    ]
    tolerance = claim["tolerance"]
    if claim["equal"]:
        return any(gap > Fraction(tolerance if tolerance is not None else 1e-6) for gap in gaps)
    return tolerance is not None and max(gaps) == 0


@pytest.mark.parametrize("name", VERDICTS)
def test_a_certificate_is_accepted_by_both(name, tmp_path):
    path = tmp_path / "proof.json"
    VERDICTS[name].save(path)
    found = json.loads(path.read_text())
    assert accepted_by_verify(found, path)
    checker.check(found)


@pytest.mark.parametrize("name", VERDICTS)
def test_what_is_changed_is_rejected_or_true(name, tmp_path):
    path = tmp_path / "proof.json"
    verdict = VERDICTS[name]
    verdict.save(path)
    good = json.loads(path.read_text())
    tried, asked, rejected, known = 0, 0, {"checker": 0, "verify": 0}, dict[str, bool]()
    for place, made in mutants(good, skip=("networks",)):
        if any(place[: len(note)] == note for note in NOTES):
            continue
        tried += 1
        judges = {"checker": accepted_by_checker(made)}
        if tried % (40 if place[0] == "programs" else 4) == 0:  # which reads files, and is slow
            asked += 1
            judges["verify"] = accepted_by_verify(made, path)
        for who, accepted in judges.items():
            if not accepted:
                rejected[who] += 1
                continue
            if (who, place, made.get("programs")) == ("verify", ("programs",), None) and "programs" in made:
                continue  # it reads the networks; the programs are for those who cannot
            if place[0] == "programs" and place[-1] == "offset":
                continue  # None for zeros is the same program, and has the same hash
            assert place[0] in ("claim", "evidence"), (who, place, at(good, place[:-1]), at(made, place[:-1]))
            assert place[:2] != ("claim", "models"), (who, place, at(made, place[:3]))
            claim = json.dumps(made["claim"])
            if claim not in known:
                known[claim] = is_false(made, verdict.networks)
            assert not known[claim], (who, place, made["claim"], made["evidence"])
    assert tried > 200
    for who, count in (("checker", tried), ("verify", asked)):
        assert rejected[who] > 0.7 * count, (who, rejected, tried, asked)


STRICT = {
    "symmetry": ("permutations", "scales"),
    "counterexample": ("a", "b", "difference", "allowed"),
    "normal form": ("hyperplanes", "ulps"),
    "regions": ("regions",),
    "layers": ("order",),
}
"""Fields of evidence in which no other value is right."""


@pytest.mark.parametrize("name", STRICT)
def test_evidence_that_tells_something_else_is_rejected(name, tmp_path):
    path = tmp_path / "proof.json"
    VERDICTS[name].save(path)
    good = json.loads(path.read_text())
    count = 0
    for place, made in mutants(good, skip=("networks", "programs", "claim", "format", "method")):
        if len(place) > 1 and place[1] in STRICT[name]:
            with contextlib.suppress(KeyError, IndexError):
                if at(good, place) == at(made, place):  # 1 for 1.0
                    continue
            count += 1
            assert not accepted_by_checker(made), (place, made["evidence"])
            assert not accepted_by_verify(made, path), (place, made["evidence"])
    assert count > 10


def test_networks_that_are_changed_are_rejected(tmp_path):
    path = tmp_path / "proof.json"
    VERDICTS["symmetry"].save(path)
    good = json.loads(path.read_text())
    for place, made in mutants(good, skip=("claim", "evidence", "programs", "format", "method")):
        if place[0] == "networks":
            assert not accepted_by_verify(made, path), place
