"""The bottleneck rung: exact where it says exact, agreed with regions in the plane, replayed without the search."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from fiber_cases import with_signs
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.equality.bottlenecks.exact_transport import ExactNet, check_exact, find_exact, tails_differ
from fiberscope.equality.bottlenecks.rounded_transport import check_rounded, find_rounded
from fiberscope.equality.bottlenecks.transport import Transport
from fiberscope.equality.ladder import equivalent
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.bottleneck import TailsDiffer, by_bottleneck, is_bottleneck
from fiberscope.equality.rungs.regions import by_regions
from fiberscope.equality.verdict import Verdict
from fiberscope.equality.verify import verify
from fiberscope.errors import InputError
from fiberscope.fibers.hidden_hyperplanes import flip, lower_bound, translate
from fiberscope.fibers.members import reflected
from fiberscope.fibers.one_layer.representation import form_of, primitive
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Dense
from fiberscope.testing import fraction_values

KINDS = ["any", "hidden", "single", "linear", "dead"]


def whole(rng, *shape):
    """Small integers other than zero."""
    return rng.integers(1, 5, shape) * rng.choice([-1.0, 1.0], shape)


def small(rng, kind, n0=2, n1=2, n2=2, m=1):
    """A bottleneck of small integers; numbers stay exact under all that is done to it."""
    n2 = 1 if kind == "single" else n2
    rows = whole(rng, n2, n1 + 1)
    if kind in ("hidden", "single"):
        rows = -np.abs(rows)
        rows[:, 0] = 2.0 ** rng.integers(0, 2, n2)  # flips divide by it
    elif kind == "linear":
        rows[0] = np.abs(rows[0])
    elif kind == "dead":
        rows[-1] = -np.abs(rows[-1])
    while True:
        W = whole(rng, n1, n0)
        if np.linalg.matrix_rank(W) == n1:
            return Network([W, rows[:, :-1], whole(rng, m, n2)], [whole(rng, n1), rows[:, -1], whole(rng, m)])


def member(net, kind, rng):
    """The same real function: moved and reflected where the net hides, permuted, rescaled by integers."""
    weights, biases = net.weights, net.biases
    if kind in ("hidden", "single"):
        if kind == "single" and rng.random() < 0.7:
            weights, biases = flip(weights, biases, 0, 0, [k for k in range(1, net.widths[1]) if rng.random() < 0.7])
        bound = lower_bound(weights[1], biases[1], 0)
        weights, biases = translate(weights, biases, 0, 0, float(np.ceil(bound * 4 * rng.random()) / 4))
    scales = [2.0 ** rng.integers(-3, 4, n) for n in net.widths[1:-1]]
    return Symmetry([rng.permutation(n) for n in net.widths[1:-1]], scales)(Network(weights, biases))


@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.booleans(), st.sampled_from([None, 0.0, 0.5]))
@settings(max_examples=80, deadline=None)
def test_the_rung_agrees_with_regions_in_the_plane(kind, seed, same, tolerance):
    rng = np.random.default_rng(seed)
    a = small(rng, kind)
    b = member(a, kind, rng)
    if not same:
        weights, biases = [w.copy() for w in b.weights], [x.copy() for x in b.biases]
        part = [*weights, *biases][rng.integers(6)]
        part.flat[rng.integers(part.size)] += rng.choice([-1.0, 1.0, 0.5, 2.0**-30])
        b = Network(weights, biases)
    found = by_bottleneck(Question.of(a, b, None, tolerance, None, 0))
    truth = by_regions(Question.of(a, b, None, tolerance, None, 0))
    if same:
        assert found is not None and found.equal is True and found.exact
    if found is not None and truth is not None and found.equal is not None:
        assert found.equal is truth.equal, (found, truth)
    if found is not None and found.equal is False and found.counterexample is not None:
        gaps = [fraction_values(net, found.counterexample.x)[-1] for net in (a, b)]
        assert max(abs(p - q) for p, q in zip(*gaps, strict=True)) > (tolerance or 0)


@given(st.sampled_from(KINDS), st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_different_is_decided_as_real_functions(kind, seed):
    """One weight of one network is a last bit away: the polynomial-time decision says no, by an input."""
    rng = np.random.default_rng(seed)
    a = small(rng, kind, 6, 4, 3, 2)
    b = member(a, kind, rng)
    assert find_exact(ExactNet.of(a), ExactNet.of(b)) is not None
    weights = [w.copy() for w in b.weights]
    layer = int(rng.integers(2))
    i = int(rng.integers(weights[layer].size))
    weights[layer].flat[i] = np.nextafter(weights[layer].flat[i], 99)
    other = Network(weights, b.biases)
    found = by_bottleneck(Question.of(a, other, None, 0.0, None, 0))
    dead = form_of(weights[1], b.biases[1], b.weights[2], b.biases[2], True) == ExactNet.of(b).tail
    if layer == 0 or not dead:
        assert found is not None and found.equal is False
        assert found.counterexample is not None and found.counterexample.difference > 0


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_one_first_layer_neuron_is_decided_with_its_mirror_image(seed, same):
    rng = np.random.default_rng(seed)
    n2 = int(rng.integers(1, 4))
    # slopes that are powers of two: the mirror image divides by the last of them
    W2, b2 = -(2.0 ** rng.integers(0, 2, (n2, 1))), rng.integers(1, 5, n2).astype(float)
    a = Network([whole(rng, 1, 2), W2, whole(rng, 1, n2)], [whole(rng, 1), b2, whole(rng, 1)])
    weights, biases = reflected(([*a.weights], [*a.biases]), list(range(n2)))
    if not same:
        biases[1][0] += 0.5
    b = Network(weights, biases)
    found = by_bottleneck(Question.of(a, b, None, 0.0, None, 0))
    line = np.arange(-40, 41) / 4  # all kinks are at multiples of 1/2 along the row
    points = [(z - a.biases[0][0]) * a.weights[0][0] / (a.weights[0][0] @ a.weights[0][0]) for z in line]
    gaps = [fraction_values(a, x)[-1][0] - fraction_values(b, x)[-1][0] for x in points]
    # the points are rounded, so equal networks of small integers are exactly equal at them all the same
    assert found is not None and found.equal is not any(gaps)
    if same:
        assert found.exact and found.witness.transport.line


def test_the_rung_stands_in_the_ladder_and_gives_the_promised_witness():
    net = with_signs(6, [[1, -1, -1, -1]], 2, 0)
    moved = translate(*flip(net.weights, net.biases, 0, 0, (1, 2)), 0, 0, 0.5)
    other = Symmetry.random(net.widths, 1)(Network(*moved))
    found = equivalent(net, other)
    assert found.equal is True and found.method == "bottleneck" and found.bound is None
    witness = found.witness
    assert witness.flips == (1, 2) and witness.translation == pytest.approx(0.5)
    assert witness.permutations[0].shape == witness.scales[0].shape == (3,)
    rows = [np.column_stack([n.weights[0], n.biases[0]]) for n in (Network(*moved), other)]
    np.testing.assert_allclose(rows[0][witness.permutations[0]] * witness.scales[0][:, None], rows[1], rtol=1e-12)
    # rounding made two real functions of them, and the ladder says so
    exact = equivalent(net, other, tolerance=0)
    assert exact.equal is False and exact.counterexample is not None
    assert equivalent(net, net, tolerance=0).witness.flips == ()


def test_equality_as_real_functions_holds_on_every_domain_and_for_every_tolerance():
    rng = np.random.default_rng(3)
    a = small(rng, "single", 6, 4, 1, 2)
    b = Network(*translate(*flip(a.weights, a.biases, 0, 0, (1, 3)), 0, 0, 0.75))
    for domain, tolerance in ((None, 0), (fs.Box.cube(6), 0), (fs.Orthant(6), 1e-9), (None, None), (None, 1e-3)):
        found = equivalent(a, b, domain, tolerance)
        assert found.equal is True and found.exact and found.method == "bottleneck"


CASES = {
    "exact": lambda rng: (small(rng, "single", 5, 3), 0.0),
    "rounded": lambda rng: (with_signs(5, [[1, -1, -1, -1]], 2, rng), None),
    "several": lambda rng: (with_signs(5, [[1, -1, -1, -1]] * 3, 2, rng), None),
}


def certificate(name, tmp_path):
    rng = np.random.default_rng(1)
    net, tolerance = CASES[name](rng)
    moved = translate(net.weights, net.biases, 0, 0, 0.25)
    if net.widths[2] == 1:
        moved = flip(*moved, 0, 0, [2])
    other = Symmetry.random(net.widths, 1)(Network(*moved))
    verdict = equivalent(net, other, tolerance=tolerance)
    assert verdict.equal is True and verdict.method == "bottleneck"
    path = tmp_path / "proof.json"
    verdict.save(path)
    return path


@pytest.mark.parametrize("name", CASES)
def test_certificates_are_replayed_and_forged_ones_are_not_believed(name, tmp_path, monkeypatch):
    path = certificate(name, tmp_path)
    for module in ("rungs.bottleneck", "bottlenecks.exact_transport"):  # no search
        for searcher in ("find_exact", "find_rounded"):
            monkeypatch.setattr(f"fiberscope.equality.{module}.{searcher}", None, raising=False)
    assert verify(path).ok
    good = json.loads(path.read_text())
    forged = [
        {"translation": "5/1"},
        {"translation": "-100"},
        {"permutation": [0, 2, 1]},
        {"permutation": [0, 0, 1]},
        {"permutation": []},
        {"hidden": None},
        {"hidden": 1},
        {"hidden": 7},
        {"flips": [1]},
        {"flips": [0]},
        {"flips": [9]},
        {"exact": name != "exact"},
        {"line": True},
        {"translation": "1e999999999"},
        {"translation": "1/0"},
        {"translation": 0.5},
        {"permutation": "x"},
        {"flips": None},
        {"scales": ["x"]},
    ]
    for change in forged:
        found = json.loads(json.dumps(good))
        found["evidence"] |= change
        path.write_text(json.dumps(found))
        try:
            replay = verify(path)
        except InputError:
            continue
        assert not replay.ok, change
    for missing in good["evidence"]:
        found = json.loads(json.dumps(good))
        del found["evidence"][missing]
        path.write_text(json.dumps(found))
        with pytest.raises(InputError):
            verify(path)
        if missing == "line":  # which the third format could leave out
            path.write_text(json.dumps(found | {"format": "fiberscope certificate 3"}))
            assert verify(path).ok
    found = json.loads(json.dumps(good)) | {"evidence": 3}
    path.write_text(json.dumps(found))
    with pytest.raises(InputError):
        verify(path)


def test_a_rounded_transport_proves_no_exact_equality(tmp_path):
    path = certificate("rounded", tmp_path)
    found = json.loads(path.read_text())
    found["claim"] |= {"tolerance": 0.0, "precision": None}
    path.write_text(json.dumps(found))
    assert not verify(path).ok


def test_different_layers_behind_matched_ones_need_no_input(tmp_path):
    rng = np.random.default_rng(0)
    a = small(rng, "any", 3, 3, 3)
    weights = [w.copy() for w in a.weights]
    weights[2][0, 0] += 2.0**-40
    b = Network(weights, a.biases)
    assert tails_differ(ExactNet.of(a), ExactNet.of(b)) and not tails_differ(ExactNet.of(a), ExactNet.of(a))
    path = tmp_path / "proof.json"
    Verdict(False, "bottleneck", fs.Space(3), 0.0, TailsDiffer(), networks=(a, b)).save(path)
    assert verify(path).ok
    Verdict(False, "bottleneck", fs.Space(3), 0.0, TailsDiffer(), networks=(a, a)).save(path)
    assert not verify(path).ok


def test_what_a_transport_needs_is_checked():
    net = small(np.random.default_rng(0), "hidden", 3, 3, 2)
    exact, one = ExactNet.of(net), np.ones(3)
    with pytest.raises(InputError, match="hidden"):
        check_exact(exact, exact, Transport((0, 1, 2), one, (), 1))
    with pytest.raises(InputError, match="translation"):
        check_exact(exact, exact, Transport((0, 1, 2), one, (), 0, Fraction(-100)))
    with pytest.raises(InputError, match="one neuron"):
        check_exact(exact, exact, Transport((0, 1, 2), one, (1,), 0))
    with pytest.raises(InputError, match="hidden"):
        check_exact(exact, exact, Transport((0, 1, 2), one, (), None, Fraction(1)))
    assert check_exact(exact, exact, Transport((0, 1, 2), one))[0]
    assert not check_exact(exact, exact, Transport((1, 0, 2), one))[0]
    assert "moved by" in Transport((0,), one, (), 0, Fraction(1)).text


def test_affine_maps_in_a_row_inside_of_a_bottleneck_are_multiplied_out():
    """Two affine maps between the hidden layers, whose product is exact: no chain, and yet a bottleneck."""
    rng = np.random.default_rng(0)
    a = small(rng, "any", 4, 3, 3)
    nodes = [a.nodes[0], a.nodes[1], Affine(2, Dense(2.0 * np.eye(3))), Affine(3, Dense(a.weights[1] / 2), a.biases[1])]
    nodes += [replace(node, source=node.source + 1) for node in a.nodes[3:]]
    b = Network.from_nodes(nodes, (4,))
    assert not b.is_chain and equivalent(a, b, tolerance=0).equal is True
    moved = Network(a.weights, [a.biases[0], a.biases[1] + 0.5, a.biases[2]])
    found = by_bottleneck(Question.of(moved, b, tolerance=0.0))
    assert found.equal is False and found.counterexample is not None


def test_who_is_a_bottleneck():
    assert is_bottleneck(Network.random((3, 2, 4, 1), 0))
    assert not is_bottleneck(Network.random((2, 3, 4, 1), 0))
    assert not is_bottleneck(Network.random((3, 2, 1), 0))
    assert not is_bottleneck(Network([np.ones((2, 3)), np.ones((1, 2)), [[1.0]]], [np.zeros(2), [0.0], [0.0]]))
    a, b = Network.random((3, 2, 4, 1), 0), Network.random((3, 1, 4, 1), 0)
    assert by_bottleneck(Question.of(a, b, None, 0.0, None, 0)).equal is False
    assert find_rounded(a, b) is None
    assert check_rounded(a, a, Transport((0,), np.ones(1), exact=False)) is None


def test_forms_are_hyperplane_representations():
    assert primitive([Fraction(0), Fraction(0)]) == ((0, 0), 1)
    # relu(x - y) shared by three neurons of both orientations, one of them twice as long, on the orthant
    W = np.array([[1.0, -1.0], [2.0, -2.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, 0.0]])
    found = form_of(W, np.zeros(5), np.array([[1.0, 1.0, 4.0, 5.0, 9.0]]), np.zeros(1), True)
    assert found.planes == {(1, -1, 0): (7,)}
    assert found.affine == ((5 - 4, 5 + 4, 0),)
    cancelled = form_of(W[:3], np.zeros(3), np.array([[1.0, 1.0, -3.0]]), np.zeros(1), True)
    assert not cancelled.planes and cancelled.affine == ((3, -3, 0),)


def test_a_huge_translation_does_not_hide_another_direction():
    """Beside a bias of 2^60 all weights are small; rows must agree entry by entry all the same."""
    rng = np.random.default_rng(0)
    net = with_signs(5, [[1, -1, -1, -1]] * 2, 1, 0)
    far = translate(net.weights, net.biases, 0, 0, 2.0**60)
    weights, biases = [w.copy() for w in far[0]], far[1]
    weights[0][0] += rng.normal(size=5)
    other = Network(weights, biases)
    found = find_rounded(net, other)
    assert found is None or check_rounded(net, other, found) is None or not check_rounded(net, other, found).equal
    X = rng.normal(size=(2000, 5)) * 2.0**40
    assert np.abs(net(X) - other(X)).max() > 2.0**30
    assert equivalent(net, other, time_limit=5).equal is not True


@pytest.mark.parametrize("exponent", [-20, 0, 20, 45])
def test_translations_of_all_sizes_are_found(exponent):
    net = with_signs(5, [[1, -1, -1, -1]], 1, 0)
    bound = lower_bound(net.weights[1], net.biases[1], 0)
    t = bound * (1 - 2.0**exponent) if exponent < 0 else 2.0**exponent
    other = Network(*translate(*flip(net.weights, net.biases, 0, 0, (2,)), 0, 0, t))
    found = find_rounded(net, other)
    assert found.flips == (2,) and float(found.translation) == pytest.approx(t, rel=1e-9)


def test_constants_are_equal_whatever_the_first_layer_does(tmp_path):
    """Two second-layer neurons that cancel exactly: nothing of the first layer is seen."""
    rng = np.random.default_rng(0)
    nets = [
        Network(
            [rng.normal(size=(n, 4)), np.tile(-whole(rng, 1, n), (2, 1)), [[2.0, -2.0]]],
            [rng.normal(size=n), [1.0, 1.0], [c]],
        )
        for n, c in ((2, 3.0), (3, 3.0), (2, 4.0))
    ]
    same = by_bottleneck(Question.of(nets[0], nets[1], None, 0.0, None, 0))
    assert same.equal is True and same.exact and "constant" in same.reason and same.witness.permutations[0].size == 0
    equivalent(nets[0], nets[1], tolerance=0).save(tmp_path / "proof.json")
    assert verify(tmp_path / "proof.json").ok
    assert equivalent(nets[0], nets[2], tolerance=0).equal is False
    assert not check_exact(*(ExactNet.of(nets[k]) for k in (0, 2)), same.witness.transport)[0]
