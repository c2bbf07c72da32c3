"""The standalone checker: on nothing but Python, on every kind of evidence, and against what is not true."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.equality import checker
from fiberscope.equality.bounding.programs import ProgramPair
from fiberscope.equality.certificates.claims import content_hash, plain_program
from fiberscope.equality.ladder import equivalent
from fiberscope.equality.verify import KINDS
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.testing import CASES, case, fraction_values

FILE = Path(checker.__file__)
NET = Network.random((2, 6, 4, 2), 0)
NOISY = Network([w + 1e-3 for w in NET.weights], NET.biases)
BOX = fs.Box.cube(2)


def alone(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Python without site packages, environment or working folder, on a copy of the file."""
    copy = folder / "alone" / "checker.py"
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(FILE.read_text())
    command = [sys.executable, "-I", "-S", str(copy), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": ""}, cwd=copy.parent, check=False)


def test_it_imports_the_standard_library_only():
    for node in ast.walk(ast.parse(FILE.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        assert all(name.split(".")[0] in sys.stdlib_module_names for name in names), names


def test_it_knows_every_kind_of_evidence():
    assert {name: kind.equal for name, kind in KINDS.items()} == {name: kind[0] for name, kind in checker.KINDS.items()}


def test_it_runs_where_nothing_is_installed(tmp_path):
    fs.save(NET, tmp_path / "a.npz")
    fs.save(NOISY, tmp_path / "b.npz")
    a, b = fs.load(tmp_path / "a.npz"), fs.load(tmp_path / "b.npz")
    proof = tmp_path / "proof.json"
    equivalent(a, b, BOX, tolerance=0.5).save(proof)
    found = alone(proof, tmp_path / "a.npz", tmp_path / "b.npz", folder=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert "HOLDS" in found.stdout and "your file has this hash" in found.stdout and "trusted:" in found.stdout
    assert alone(proof, folder=tmp_path).returncode == 0
    swapped = alone(proof, tmp_path / "b.npz", tmp_path / "a.npz", folder=tmp_path)
    assert swapped.returncode == 1 and "another one" in swapped.stdout
    (tmp_path / "broken.json").write_text("{")
    for bad in (tmp_path / "broken.json", tmp_path / "missing.json", tmp_path / "a.npz"):
        answer = alone(bad, folder=tmp_path)
        assert answer.returncode == 2 and answer.stderr.count("\n") == 1
    old = json.loads(proof.read_text()) | {"format": "fiberscope certificate 3"}
    proof.write_text(json.dumps(old))
    answer = alone(proof, folder=tmp_path)
    assert answer.returncode == 3 and "fiberscope verify" in answer.stdout


@pytest.mark.parametrize("name", CASES)
def test_programs_are_hashed_alike(name):
    net = case(name)
    found = checker.program_of(json.loads(json.dumps(plain_program(net))))
    assert found.digest == content_hash(net)
    x = np.random.default_rng(0).integers(-8, 9, net.in_size) / 4.0
    rows = [{checker.ONE: Fraction(float(v))} for v in x]
    assert checker.evaluate(found, rows) == [Fraction(v) for v in fraction_values(net, x)[-1]]


def saved(tmp_path, verdict):
    verdict.save(tmp_path / "proof.json")
    return json.loads((tmp_path / "proof.json").read_text())


def test_boxes_classes_and_flat_boxes(tmp_path):
    flat = fs.Box([-1.0, 0.5], [1.0, 0.5])
    for verdict in (
        equivalent(NET, NOISY, BOX, tolerance=0.5),
        equivalent(NET, NOISY, flat, tolerance=0.5),
        equivalent(NET, NOISY, flat, tolerance=0),
        equivalent(NET, NOISY, BOX, criterion="argmax", margin=0.5),
        equivalent(NET, Network.random((2, 3, 2), 1), BOX, criterion="argmax"),
        equivalent(NET, NET, BOX, criterion="argmax"),
    ):
        assert verdict.equal is not None
        found = saved(tmp_path, verdict)
        checker.check(found)
        found["claim"]["equal"] = not found["claim"]["equal"]
        with pytest.raises(checker.Malformed):
            checker.check(found)


@pytest.mark.parametrize("domain", [fs.Space(2), fs.Orthant(2)])
def test_copies_that_are_exact_are_within_any_tolerance_anywhere(tmp_path, domain):
    other = Symmetry([[1, 0, 2, 5, 4, 3], [3, 1, 2, 0]], [[2.0] * 6, [0.5] * 4])(NET)
    found = saved(tmp_path, equivalent(NET, other, domain, tolerance=0.25))
    assert found["evidence"]["kind"] == "symmetry" and "exactly" in checker.check(found)[2]
    found["evidence"]["scales"][0][0] = 4.0
    with pytest.raises(checker.Fails):
        checker.check(found)


def test_a_tree_that_leaves_something_out_is_refused(tmp_path):
    found = saved(tmp_path, equivalent(NET, Network.random((2, 5, 2), 7), BOX, tolerance=40.0))
    found["evidence"] = {"kind": "split_boxes", "tree": [[0, 0.0], None, None], "method": "single", "matching": None}
    checker.check(found)
    for tree in (
        [[0, 0.0], None],
        [],
        [None, None],
        [[0, 1.0], None, None],
        [[2, 0.0], None, None],
        [[0, "0"], None, None],
    ):
        found["evidence"]["tree"] = tree
        with pytest.raises(checker.Malformed):
            checker.check(found)
    found["evidence"]["tree"] = [None]
    found["claim"]["tolerance"] = 1e-6
    with pytest.raises((checker.Fails, checker.TooLarge)):
        checker.check(found)


def spans(one, bounding, box):
    """Between what the differences of the outputs are on a box."""
    cover = checker.Cover(one, bounding, 0)
    seen = cover.look(box, cover.program)[1]
    return [(Fraction(p, 2**seen.bits), Fraction(q, 2**seen.bits)) for p, q in seen.spans]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 40), st.sampled_from(["pair", "single"]))
def test_bounds_hold_at_points(seed, size, method):
    """The forms of all outputs contain the exact values, for pairs and one by one."""
    rng = np.random.default_rng(seed)
    a = Network.random((2, 4, 3, 2), rng)
    b = Network([w + rng.normal(0, 2.0**-size, w.shape) for w in a.weights], a.biases)
    low = rng.uniform(-1, 0.5, 2)
    high = low + 2.0 ** -rng.integers(0, 6)
    programs = [checker.program_of(json.loads(json.dumps(plain_program(net)))) for net in (a, b)]
    place = checker.place_of({"kind": "box", "low": low.tolist(), "high": high.tolist()}, 2)
    one = checker.Case(*programs, place, True, Fraction(1), Fraction(1, 2**53), Fraction(0), 16, {})
    if method == "pair":
        matches = [(k, k, list(range(n)), [Fraction(1)] * n) for k, n in ((1, 4), (2, 3))]
        gates = [checker.gates(one, program, True) for program in programs]
        bounding = checker.paired(checker.Matched(*gates, matches))
    else:
        bounding = checker.unpaired(one)
    ends = spans(one, bounding, place.box())
    for x in rng.uniform(low, high, (20, 2)):
        gaps = [
            Fraction(p) - Fraction(q) for p, q in zip(*(fraction_values(net, x)[-1] for net in (a, b)), strict=True)
        ]
        assert all(e[0] <= gap <= e[1] for e, gap in zip(ends, gaps, strict=True))


def pooled(rows: np.ndarray, shift: np.ndarray, out: np.ndarray) -> Network:
    """The largest of the first two and of the last three of four affine functions."""
    pool = MaxPool(1, (1, 1, 4), (1, 1), (1, 1), table=np.array([[0, 1, -1], [1, 2, 3]]))
    return Network.from_nodes([Affine(0, Dense(rows), shift), pool, Affine(2, Dense(out))], (2,))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 6))
def test_bounds_of_maxima_hold_at_points(seed, size):
    rng = np.random.default_rng(seed)
    rows, shift, out = rng.normal(size=(4, 2)), rng.normal(0, 2.0, 4), rng.normal(size=(2, 2))
    a, b = pooled(rows, shift, out), pooled(rows + rng.normal(0, 2.0**-size, rows.shape), shift, out)
    low = rng.uniform(-1, 0.5, 2)
    high = low + 2.0 ** -rng.integers(0, 6)
    programs = [checker.program_of(json.loads(json.dumps(plain_program(net)))) for net in (a, b)]
    place = checker.place_of({"kind": "box", "low": low.tolist(), "high": high.tolist()}, 2)
    one = checker.Case(*programs, place, True, Fraction(1), Fraction(1, 2**53), Fraction(0), 16, {})
    gates = [checker.gates(one, program, True) for program in programs]
    bounding = checker.paired(checker.Matched(*gates, checker.in_place(one, None, True)))
    ends = spans(one, bounding, place.box())
    most = ProgramPair.of(a, b, None).bounds(low[None], high[None]).high[0]  # the library's own
    for x in rng.uniform(low, high, (20, 2)):
        pairs = zip(*(fraction_values(net, x)[-1] for net in (a, b)), strict=True)
        gaps = [Fraction(p) - Fraction(q) for p, q in pairs]
        assert all(e[0] <= gap <= e[1] for e, gap in zip(ends, gaps, strict=True))
        assert max(map(abs, gaps)) <= Fraction(most)


def test_what_never_is_the_largest_may_change(tmp_path):
    """The last of four functions is below another one on all of the box, in both networks."""
    rows, shift = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]]), np.array([0.0, 0.0, 0.0, -9.0])
    other = rows.copy()
    other[3] = 2.0, 3.0
    verdict = equivalent(pooled(rows, shift, np.eye(2)), pooled(other, shift, np.eye(2)), BOX, 2.0**-10)
    assert verdict.equal is True
    verdict.save(tmp_path / "proof.json")
    checker.check(json.loads((tmp_path / "proof.json").read_text()))


def test_what_it_cannot_see_is_not_called_wrong(tmp_path):
    """Two outputs of ``a`` tie everywhere, exactly: its bounds are off by a rounding, which refutes nothing."""
    a = Network([[[1.0], [-1.0]], [[1.0, 0.5], [1.0, 0.5]]], [[0.1, 0.3], [0.25, 0.25]])
    b = Network([[[1.0], [-1.0]], [[1.0, 0.5], [1.0, 0.75]]], [[0.1, 0.3], [0.25, 0.25]])
    programs = [checker.program_of(json.loads(json.dumps(plain_program(net)))) for net in (a, b)]
    place = checker.place_of({"kind": "box", "low": [-1.0], "high": [1.0]}, 1)
    evidence = {"kind": "split_boxes", "tree": [None], "method": "pair", "matching": None}

    def claimed(margin, tolerance=Fraction(0)):
        one = checker.Case(*programs, place, True, tolerance, Fraction(1, 2**53), Fraction(0), 16, evidence, margin)
        return checker.by_boxes(one)

    with pytest.raises(checker.TooLarge, match="closer"):
        claimed(Fraction(0))
    with pytest.raises(checker.Fails, match="wrong"):
        claimed(None, Fraction(1, 8))
    programs.reverse()  # a has a class now, and b puts the other one level with it
    with pytest.raises(checker.TooLarge, match="closer"):
        claimed(Fraction(0))
    worse = Network([[[1.0], [-1.0]], [[1.0, 0.5], [1.0, 0.25]]], [[0.1, 0.3], [0.25, 0.25]])
    programs[1] = checker.program_of(json.loads(json.dumps(plain_program(worse))))
    with pytest.raises(checker.Fails, match="wrong"):
        claimed(Fraction(0))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(["box", "space", "orthant", "polytope"]))
def test_cells_cover_the_domain_once(seed, kind):
    """A point is in a cell whose affine map has its exact value; cells of a box have its volume together."""
    rng = np.random.default_rng(seed)
    net = Network.random((2, 4, 3, 1), rng)
    domain = {
        "box": {"kind": "box", "low": [-1.0, -0.5], "high": [1.0, 0.75]},
        "space": {"kind": "space", "dimension": 2},
        "orthant": {"kind": "orthant", "dimension": 2},
        "polytope": {"kind": "polytope", "A": [[1.0, 1.0], [-1.0, 0.5], [0.0, -1.0]], "b": [1.0, 0.5, 0.25]},
    }[kind]
    place = checker.place_of(domain, 2)
    program = checker.program_of(json.loads(json.dumps(plain_program(net))))
    cells = [(cell, ends[0]) for cell, ends, _ in checker.pieces(place, [program])]
    for x in rng.uniform(-0.2, 0.7, (6, 2)):
        exact = [Fraction(float(v)) for v in x]
        try:
            start = place.at(exact)
        except checker.Fails:
            continue
        value = checker.evaluate(program, start)[0]
        near = ((Fraction(1), *exact), 0)
        assert value in {checker.at_ray(ends[0], near) for _, ends in cells}
    if kind == "box":
        assert sum(_area([ray[0] for ray in cell]) for cell, _ in cells) == Fraction(2) * Fraction(5, 4)


def _area(corners):
    points = [(c[1], c[2]) for c in corners]
    middle = tuple(sum(p[k] for p in points) / len(points) for k in (0, 1))
    points.sort(key=lambda p: np.arctan2(float(p[1] - middle[1]), float(p[0] - middle[0])))
    pairs = zip(points, [*points[1:], points[0]], strict=True)
    return abs(sum(p[0] * q[1] - p[1] * q[0] for p, q in pairs)) / 2


@pytest.mark.parametrize("method", ["ranges", "single", "pair"])
@pytest.mark.parametrize("far", [1e300, 1.0])
def test_coefficients_below_the_floats_are_not_forgotten(tmp_path, method, far):
    """``1e-200 (1e-200 x)`` is ``1e-100`` at ``1e300``: a coefficient that becomes 0 in floats bounds nothing."""

    def chain(weight):
        nodes = [
            Affine(0, Dense([[weight]])),
            Affine(1, Dense([[1e-200]])),
            PiecewiseLinear(2, np.zeros(1), (1,)),
            Affine(3, Dense([[1.0]])),
        ]
        return Network.from_nodes(nodes, (1,))

    found = saved(tmp_path, equivalent(chain(1e-200), chain(2e-200), fs.Box([-1.0], [1.0]), tolerance=1e-150))
    found["claim"]["domain"] |= {"low": [-far], "high": [far]}
    found["evidence"] = {"kind": "split_boxes", "tree": [None], "method": method, "matching": None}
    if method == "ranges":
        found["evidence"] = {"kind": "output ranges"}
    if far == 1:
        checker.check(found)
    else:
        with pytest.raises(checker.Fails):
            checker.check(found)


def test_what_overflows_is_not_forgotten(tmp_path):
    """A second output that does not differ must not hide a first one that is beyond the floats."""
    first, second = 1e199 * np.array([[5.6, 4.9], [-6.6, 4.4]]), 1e199 * np.array([[-2.0, -6.0], [9.0, 5.0]])
    a, b = (Network([first, second], [[0.0, 0.0], [d, 0.0]]) for d in (1.0, 0.0))
    found = saved(tmp_path, equivalent(a, b, fs.Box.cube(2), tolerance=2.0))
    assert found["claim"]["equal"]
    found["claim"]["tolerance"] = 0.5
    for method in ("single", "pair"):
        found["evidence"] = {"kind": "split_boxes", "tree": [None], "method": method, "matching": None}
        with pytest.raises((checker.Fails, checker.TooLarge)):
            checker.check(found)
