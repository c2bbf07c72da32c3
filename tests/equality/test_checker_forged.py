"""Certificates made by hand of claims that are false, which the standalone checker must not prove."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

import fiberscope as fs
from fiberscope.equality import checker
from fiberscope.equality.ladder import equivalent
from fiberscope.network.network import Network

LINE = {"kind": "box", "low": [-1.0], "high": [1.0]}
BOXES = {"kind": "split_boxes", "tree": [None], "matching": None, "method": "pair"}


def affine(source, *stages, offset=None):
    made = [{"inputs": len(rows[0]), "rows": rows} for rows in stages]
    return {"kind": "affine", "sources": [source], "stages": made, "offset": offset}


def bent(source, *slopes):
    return {"kind": "piecewise", "sources": [source], "slopes": list(slopes)}


def forged(a, b, evidence, equal=True, domain=LINE, **kind):
    """A certificate about two lists of nodes with one input."""
    programs = [{"inputs": 1, "nodes": nodes} for nodes in (a, b)]
    found = [checker.program_of(program) for program in programs]
    models = [{"weights": p.digest, "file": None, "inputs": p.inputs, "outputs": p.outputs} for p in found]
    claim = {"equal": equal, "tolerance": 0.0, "precision": None, "domain": domain, "models": models} | kind
    parts = {"claim": claim, "method": "", "networks": None, "programs": programs, "evidence": evidence}
    return json.loads(json.dumps({"format": checker.FORMAT} | parts))


CLASS = {"tolerance": None, "precision": "float64", "criterion": "argmax", "margin": 0.0}


def test_a_sign_of_what_is_no_switch_is_not_believed():
    """The first of two equal neurons has slope 1, so that no cell shows its sign; the second one is ``relu(x)``."""
    a = [affine(0, [[1.0], [1.0]]), bent(1, 1.0, 0.0), affine(2, [[0.0, 1.0]])]
    signs = {"kind": "normal form", "signs": [[1, 0], []], "hyperplanes": 0, "ulps": 0}
    with pytest.raises(checker.Fails):
        checker.check(forged(a, [affine(0, [[1.0]])], signs))


@pytest.mark.parametrize("kind", ["hyperplane representations differ", "layers behind differ"])
def test_functions_that_differ_may_have_one_class(tmp_path, kind):
    """``x`` and ``2 x`` against zero."""
    a, b = [affine(0, [[1.0], [0.0]])], [affine(0, [[2.0], [0.0]])]
    with pytest.raises(checker.Fails):
        checker.check(forged(a, b, {"kind": kind}, equal=False, **CLASS))
    nets = [Network([[[w], [0.0]]], [[0.0, 0.0]]) for w in (1.0, 2.0)]
    path = tmp_path / "proof.json"
    equivalent(*nets, fs.Box([-1.0], [1.0]), tolerance=0).save(path)
    found = json.loads(path.read_text())
    found["claim"] |= CLASS
    path.write_text(json.dumps(found | {"evidence": {"kind": kind}}))
    assert not fs.verify(path).ok


def test_numbers_are_those_that_are_hashed():
    """Integers between two floats are hashed as those, and would make programs that differ less."""
    twins = [[affine(0, [[float(2**60 + k)]])] for k in (127, 129)]
    assert checker.check(forged(*twins, {"kind": "output ranges"}, tolerance=257.0))
    found = forged(*twins, {"kind": "output ranges"}, tolerance=2.5)
    for k, program in zip((127, 129), found["programs"], strict=True):
        program["nodes"][0]["stages"][0]["rows"] = [[2**60 + k]]
    with pytest.raises(checker.Malformed):
        checker.check(found)
    a, b = [affine(0, [[1.0]])], [affine(0, [[0.0]], offset=[2.0**53])]
    beyond = {"kind": "box", "low": [2**53], "high": [2**53 + 1]}
    with pytest.raises(checker.Malformed):
        checker.check(forged(a, b, {"kind": "output ranges"}, tolerance=0.5, domain=beyond))


@pytest.mark.parametrize("slope", [2.0**-17, 2.0**-20])
@pytest.mark.parametrize("partner", [1.0, 2.0**19])
@pytest.mark.parametrize("turn", [1.0, -1.0])
def test_a_slope_that_is_rounded_to_one_still_bends(slope, partner, turn):
    """One neuron is below zero and its partner is above it: the difference is bent although both weights are one."""

    def net(rate, shift):
        return [affine(0, [[rate]], offset=[shift]), bent(1, 1.0 + slope), affine(2, [[1.0]])]

    nets = [net(-(2.0**19), -(2.0**19) - 1), net(1.0, partner + 1)][:: int(turn)]
    plain = Fraction(2**20 + 1) + Fraction(partner) + 2
    most = plain + (2**20 + 1) * Fraction(slope)
    assert checker.check(forged(*nets, BOXES, tolerance=float(most) * (1 + 2.0**-15)))
    with pytest.raises((checker.Fails, checker.TooLarge)):
        checker.check(forged(*nets, BOXES, tolerance=float(plain + (most - plain) * Fraction(3, 5))))


def test_lines_do_not_forget_coefficients_below_the_floats():
    """``1e40 relu(2^-1080 relu(2^1000 x))`` is above ``1e12``: the coefficient between is no float."""
    nodes = [affine(0, [[2.0**1000]]), bent(1, 0.0), affine(2, [[2.0**-540]], [[2.0**-540]]), bent(3, 0.0)]
    nodes.append(affine(4, [[0.0], [1e40]], offset=[0.0, -1e12]))
    evidence = {"kind": "split_neurons", "own": 0, "trees": [[[[[], []]]]] * 2}
    program = checker.program_of({"inputs": 1, "nodes": nodes})
    first, second = checker.evaluate(program, [{checker.ONE: Fraction(1)}])
    assert first < second
    with pytest.raises(checker.Fails):
        checker.check(forged(nodes, nodes, evidence, **CLASS))
    nodes[-1] = affine(4, [[0.0], [1.0]], offset=[0.0, -1e12])
    assert checker.check(forged(nodes, nodes, evidence, **CLASS))
