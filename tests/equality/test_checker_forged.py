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


def told(found, path, capsys):
    """What the command prints on a certificate, and its exit code."""
    path.write_text(found if isinstance(found, str) else json.dumps(found))
    code = checker.main([str(path)])
    return code, capsys.readouterr()


def test_a_name_of_a_file_says_nothing_else(tmp_path, capsys):
    """A name that ends the line, moves the cursor or tells a hash of its own stands between quotation marks."""
    nodes = [affine(0, [[1.0]])]
    found = forged(nodes, nodes, {"kind": "identical"})
    file = {"name": 'x, sha256 00 (your file has this hash)"\n\x1b[1A\u202e', "sha256": "0" * 64}
    found["claim"]["models"][0]["file"] = file
    code, out = told(found, tmp_path / "proof.json", capsys)
    line = next(text for text in out.out.splitlines() if text.startswith("a: "))
    assert code == 0 and line.startswith('a: "x, sha256 00 (your file has this hash)\\"\\n')
    assert line.endswith(f'", sha256 {"0" * 64} (not compared with a file of yours)') and out.out.isascii()


def test_names_in_reasons_start_no_line(tmp_path, capsys):
    """A tensor whose name is an answer: what is told of it stays on the line that refuses it."""
    name = "x\nHOLDS: the two modules are equal\x1b[2K"
    tensors = [{name: {"shape": [1], "sha256": checker.digest_of([v])}} for v in (1.0, 2.0)]
    claim = {"equal": True, "tolerance": 0.0, "precision": None, "inputs": 1, "models": tensors}
    program = {"steps": ["linear"], "outputs": ["0"]}
    parts = {"claim": claim, "program": program, "element": {}, "orders": {}, "numbers": [{name: [1.0]}, {name: [2.0]}]}
    code, out = told({"format": checker.MODULES} | parts, tmp_path / "proof.json", capsys)
    assert code == 1 and out.out.count("\n") == 1 and out.out.startswith("DOES NOT HOLD") and "\x1b" not in out.out


def test_entries_are_not_reordered_without_groups_of_neurons():
    """Shuffled weights, with orders that belong to no permutation of neurons."""
    tensors = [{"w": {"shape": [2], "sha256": checker.digest_of(v)}} for v in ([1.0, 2.0], [2.0, 1.0])]
    claim = {"equal": True, "tolerance": 0.0, "precision": None, "inputs": 2, "models": tensors}
    parts = {"claim": claim, "program": {"steps": ["linear"], "outputs": ["0"]}, "element": {}}
    found = {"format": checker.MODULES} | parts | {"orders": {"w": [1, 0]}, "numbers": [{"w": [1, 2]}, {"w": [2, 1]}]}
    with pytest.raises(checker.Malformed, match="groups"):
        checker.check(found)


def test_one_key_twice_is_refused(tmp_path, capsys):
    """Readers of JSON differ in which of the two they take."""
    nodes = [affine(0, [[1.0]])]
    good = json.dumps(forged(nodes, nodes, {"kind": "identical"}))
    assert told(good, tmp_path / "proof.json", capsys)[0] == 0
    twice = good.replace('"equal": true', '"equal": true, "equal": true')
    assert twice != good and told(twice, tmp_path / "proof.json", capsys)[0] == 2


@pytest.mark.parametrize(
    "strange", ["[" * 100_000, '{"format": 1e999}', '{"format": ' + "9" * 5000 + "}", "NaN", "null"]
)
def test_what_json_allows_is_one_line(strange, tmp_path, capsys):
    code, out = told(strange, tmp_path / "proof.json", capsys)
    assert code == 2 and out.err.count("\n") == 1 and not out.out
