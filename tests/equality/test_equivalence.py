"""Equality: never True for different functions, never False for equal ones; witnesses and counterexamples that hold."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plant import add_dead, arrays, build, duplicate, flip, identity_layer

import fiberscope as fs
from fiberscope.equality.counterexample import confirmed
from fiberscope.equality.ladder import equivalent
from fiberscope.equality.question import Question
from fiberscope.fibers.canonical.matching import match_chains
from fiberscope.fibers.normal_form.program_forms import normal_form
from fiberscope.fibers.normal_form.table import Table
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.chains import split, with_arrays
from fiberscope.network.network import Network
from fiberscope.network.source import MEMORY
from fiberscope.numerics.algebra.ball import BallAlgebra
from fiberscope.run import Run
from fiberscope.testing import CASES, case, fraction_values
from fiberscope.testing.strategies import chains

seeds = st.integers(0, 2**32 - 1)
tolerances = st.sampled_from([None, 0.0, 1e-3])


def exact_gap(a, b, x):
    return max(abs(p - q) for p, q in zip(fraction_values(a, x)[-1], fraction_values(b, x)[-1], strict=True))


def check_counterexample(a, b, verdict):
    """Its difference is real, by the oracle, and more than is allowed."""
    example = verdict.counterexample
    gap = exact_gap(a, b, example.x)
    assert gap > 0 and float(gap) == example.difference
    assert gap > example.allowed or verdict.tolerance == 0


@settings(max_examples=80)
@given(chains(max_hidden=2), seeds, tolerances)
def test_planted_equality_is_never_denied(net, seed, tolerance):
    rng = np.random.default_rng(seed)
    other = net
    for _ in range(int(rng.integers(1, 4))):
        layer = int(rng.integers(len(other.weights) - 1))
        step = int(rng.integers(4))
        if step == 0:
            other = add_dead(other, layer, rng)
        elif step == 1:
            other = duplicate(other, layer, rng)
        elif step == 2:
            other = Symmetry.random(other.widths, rng)(other)
        elif not any(n.slopes.any() for n in other.nodes[1::2]):
            other = identity_layer(other, layer)
    verdict = equivalent(net, other, tolerance=tolerance, time_limit=5)
    assert verdict.equal is True, verdict
    assert verdict.exact


@settings(max_examples=80)
@given(chains(max_hidden=2), chains(max_hidden=2), st.sampled_from([None, 0.0]), st.booleans())
def test_two_networks_are_judged_as_points_judge_them(a, b, tolerance, boxed):
    if a.in_size != b.in_size or a.out_size != b.out_size:
        with pytest.raises(fs.InputError):
            equivalent(a, b)
        return
    domain = fs.Box.cube(a.in_size) if boxed else None
    verdict = equivalent(a, b, domain, tolerance, time_limit=5)
    place = domain or fs.Space(a.in_size)
    gaps = [exact_gap(a, b, x) for x in place.sample(12, 0)]
    if verdict.equal is True and verdict.exact:
        assert not any(gaps)
    elif verdict.equal is False:
        if verdict.counterexample is not None:
            check_counterexample(a, b, verdict)
    else:
        assert verdict.equal is not True or max(gaps) < 1e-6 * (1 + max(abs(w).max() for w in a.weights))


@settings(max_examples=60)
@given(chains(inputs=st.just(2), max_hidden=2), seeds, st.booleans())
def test_one_ulp_makes_another_real_function(net, seed, boxed):
    """In the plane everything is decided; the oracle is the exact difference on the regions."""
    rng = np.random.default_rng(seed)
    weights, biases, slopes = arrays(net)
    layer = int(rng.integers(len(weights)))
    i = int(rng.integers(len(biases[layer])))
    biases[layer][i] = np.nextafter(biases[layer][i], np.inf)
    other = build(weights, biases, slopes)
    domain = fs.Box.cube(2) if boxed else None
    verdict = equivalent(net, other, domain, tolerance=0, time_limit=10)
    if verdict.equal is False and verdict.counterexample is not None:
        check_counterexample(net, other, verdict)
    if layer == len(weights) - 1:
        assert verdict.equal is False
    points = (domain or fs.Space(2)).sample(40, rng)
    if verdict.equal is True:
        assert not any(exact_gap(net, other, x) for x in points)
    if boxed:
        assert verdict.equal is not None, verdict


@settings(max_examples=60)
@given(chains(max_hidden=1), seeds)
def test_one_hidden_layer_is_always_decided(net, seed):
    rng = np.random.default_rng(seed)
    if not net.nodes[1].slopes.any():
        assert equivalent(net, flip(net, int(rng.integers(net.widths[1]))), tolerance=0).exact
    weights, biases, slopes = arrays(net)
    k = int(rng.integers(net.widths[1]))
    weights[1][0, k] = np.nextafter(weights[1][0, k], np.inf)
    other = build(weights, biases, slopes)
    verdict = equivalent(net, other, tolerance=0)
    seen = weights[0][k].any() or biases[0][k] > 0 or (biases[0][k] and slopes[0][k])
    assert verdict.equal is (not seen), verdict


def test_hyperplane_representation_with_cancellation():
    # two hyperplanes that cancel, one in common: relu(z) - relu(z) + relu(y)
    a = Network([[[1.0, 2.0], [2.0, 4.0], [1.0, 0.0]], [[2.0, -1.0, 3.0]]], [[1.0, 2.0, 0.0], [0.0]])
    b = Network([[[4.0, 0.0]], [[0.75]]], [[0.0], [0.0]])
    verdict = equivalent(a, b, tolerance=0)
    assert verdict.exact and verdict.method == "one hidden layer"
    table = Table(2)
    left, right = normal_form(a, table)[0], normal_form(b, table)[0]
    assert table.same(left, right) and set(left.terms) == {4}  # one hyperplane is left of three


def test_what_differs_only_outside_the_box():
    a = Network([[[1.0]], [[1.0]]], [[3.0], [0.0]])
    b = Network([[[1.0]]], [[3.0]])
    assert equivalent(a, b, fs.Box([-1], [1]), tolerance=0).exact
    verdict = equivalent(a, b, tolerance=0)
    assert verdict.equal is False and verdict.counterexample.x[0] < -3


def test_three_kinds_of_equality_are_kept_apart():
    a = Network.random((3, 6, 6, 2), 0)
    copy = Symmetry.random(a.widths, 1, dyadic=False)(a)
    box = fs.Box.cube(3)
    assert equivalent(a, copy).equal is True and equivalent(a, copy).bound is None
    assert equivalent(a, copy, tolerance=0).equal is False
    near = equivalent(a, copy, box, tolerance=1e-9)
    assert near.equal is True and 0 < near.bound <= 1e-9
    assert equivalent(a, copy, tolerance=1e-9, time_limit=5).equal is not True  # far out they drift apart
    weights = [w.copy() for w in a.weights]
    weights[2][0] *= 1 + 1e-6
    scaled = Network(weights, a.biases)
    assert equivalent(a, scaled).equal is False
    assert equivalent(a, scaled, box, tolerance=1e-3).equal is True
    assert equivalent(a, scaled, box, tolerance=1e-12).equal is False


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_case_equals_itself_and_no_shifted_copy(name):
    net = case(name)
    verdict = equivalent(net, net, tolerance=0)
    assert verdict.exact
    last = net.nodes[-1]
    bias = np.zeros(net.out_size) if last.offset is None else last.offset.copy()
    bias[0] += 2.0**-40
    nodes = [*net.nodes[:-1], type(last)(last.source, last.operator, bias)]
    other = Network.from_nodes(nodes, net.input_shape)
    shifted = equivalent(net, other, tolerance=0)
    assert shifted.equal is False and shifted.counterexample.difference == pytest.approx(2.0**-40)


def test_a_network_and_its_dense_view():
    for name in ("residual", "convolutional"):
        net = case(name)
        verdict = equivalent(net, net.as_mlp(), time_limit=30)
        assert verdict.equal is True and verdict.method == "normal form", verdict


def test_regions_decide_what_other_methods_do_not():
    # max(x, y) + max(-x, -y) = |x - y|, written as tournaments of different depth
    a = Network([[[1.0, -1.0], [-1.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    b = Network(
        [
            [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]],
            [[1.0, -1.0, -1.0, 1.0], [-1.0, 1.0, 1.0, -1.0]],
            [[1.0, 1.0]],
        ],
        [np.zeros(4), np.zeros(2), [0.0]],
    )
    assert equivalent(a, b, tolerance=0).exact
    # x on [0, 1] as a two-layer zigzag that folds back
    fold = Network([[[1.0], [1.0]], [[2.0, -4.0]], [[0.5], [0.0]]][:2], [[0.0, -0.5], [0.0]])
    bent = Network([[[2.0], [-2.0]], [[-1.0, -1.0]], [[-1.0]]], [[-1.0, 1.0], [1.0], [1.0]])
    deep = equivalent(fold, bent, fs.Box([0], [1]), tolerance=0)
    gap = max(exact_gap(fold, bent, np.array([t])) for t in np.linspace(0, 1, 33))
    assert deep.equal is (gap == 0)


def test_within_a_tolerance_by_regions():
    a = Network.random((2, 8, 8, 1), 0)
    b = Network.random((2, 8, 8, 1), 1)
    box = fs.Box.cube(2)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 60)] * 2), axis=-1).reshape(-1, 2)
    most = float(np.abs(a(grid) - b(grid)).max())
    assert equivalent(a, b, box, tolerance=0.95 * most).equal is False
    above = equivalent(a, b, box, tolerance=1.3 * most)
    assert above.equal is True and above.method in ("regions", "branch and bound")


def test_on_a_plane():
    a = Network.random((6, 8, 2), 0)
    weights = [w.copy() for w in a.weights]
    weights[0][:, 5] += 1.0
    b = Network(weights, a.biases)
    flat = fs.Plane.along(6, (0, 1))
    assert equivalent(a, b, flat, tolerance=0).exact
    across = equivalent(a, b, fs.Plane.along(6, (0, 5)), tolerance=0)
    assert across.equal is False and across.counterexample.x.shape == (2,)


def test_on_a_box_with_fixed_coordinates(tmp_path):
    """A change of one column that the bias makes up for at one value of its coordinate."""
    rng = np.random.default_rng(0)
    weights = [rng.integers(-8, 9, shape) / 4 for shape in ((6, 4), (2, 6))]
    biases = [rng.integers(-8, 9, 6) / 8, [0.0, 1.0]]
    a = Network(weights, biases)
    changed = weights[0].copy()
    changed[:, 2] += 1.0
    b = Network([changed, weights[1]], [biases[0] - 0.25, biases[1]])
    flat, thick = fs.Box([-1, -1, 0.25, -1], [1, 1, 0.25, 1]), fs.Box([-1, -1, 0.25, -1], [1, 1, 0.5, 1])
    same = equivalent(a, b, flat, tolerance=0)
    assert same.exact
    same.save(tmp_path / "same.json")
    assert fs.verify(tmp_path / "same.json", a, b)
    assert equivalent(a, b, flat).equal and equivalent(a, b, flat, tolerance=0.5).equal
    assert equivalent(a, b, thick, tolerance=0).equal is False
    other = equivalent(a, b, fs.Box([-1, -1, 0.5, -1], [1, 1, 0.5, 1]), tolerance=0)
    x = other.counterexample.x
    assert other.equal is False and x.shape == (4,) and x[2] == 0.5
    assert np.abs(a(x[None]) - b(x[None])).max() == pytest.approx(other.counterexample.difference)
    other.save(tmp_path / "other.json")
    assert fs.verify(tmp_path / "other.json", a, b)
    text = json.loads((tmp_path / "other.json").read_text())
    for wanted, coordinates in ((True, x[[0, 1, 3]]), (False, x + np.eye(4)[2])):
        # the free coordinates alone, as certificates had them; outside of the domain
        (tmp_path / "changed.json").write_text(json.dumps(with_point(text, coordinates.tolist())))
        assert bool(fs.verify(tmp_path / "changed.json", a, b)) is wanted
    (tmp_path / "changed.json").write_text(json.dumps(with_point(text, [0.0, 0.0])))
    with pytest.raises(fs.InputError, match="expected 4 coordinates, got 2"):
        fs.verify(tmp_path / "changed.json", a, b)


def with_point(certificate, x):
    """The certificate with another counterexample."""
    if isinstance(certificate, dict):
        return {key: x if key == "x" else with_point(value, x) for key, value in certificate.items()}
    return certificate


def test_what_takes_longer_than_the_time_that_is_left_is_not_begun():
    a, b = Network.random((2, 1200, 1200, 1), 0), Network.random((2, 1200, 1200, 1), 1)
    question = Question.of(a, b, time_limit=0.5)
    assert confirmed(question, np.ones(2)) is None and "in the time that is left" in question.notes[0]


def test_on_a_polytope_and_an_orthant():
    a = Network([[[1.0, 1.0]], [[1.0]]], [[1.0], [0.0]])
    line = Network([[[1.0, 1.0]]], [[1.0]])
    assert equivalent(a, line, fs.Orthant(2), tolerance=0).exact
    triangle = fs.Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.25, 0.25, 1.0])
    assert equivalent(a, line, triangle, tolerance=0).exact
    larger = fs.Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.75, 0.75, 1.0])
    assert equivalent(a, line, larger, tolerance=0).equal is False


def test_bad_input():
    a = Network.random((2, 3, 1), 0)
    for other in (Network.random((3, 3, 1), 0), Network.random((2, 3, 2), 0)):
        with pytest.raises(fs.InputError, match="same inputs and outputs"):
            equivalent(a, other)
    with pytest.raises(fs.InputError, match="finite"):
        Network([[[np.nan, 0.0]]], [[0.0]])
    for wrong in (3, None):
        with pytest.raises(fs.InputError, match="b: expected a Network, a torch module"):
            equivalent(a, wrong)
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(fs.InputError, match="tolerance"):
            equivalent(a, a, tolerance=wrong)
    with pytest.raises(fs.InputError, match="low <= high"):
        equivalent(a, a, fs.Box([2, 1], [1, 2]))
    with pytest.raises(fs.InputError, match="dimension"):
        equivalent(a, a, fs.Box.cube(3))
    with pytest.raises(fs.InputError, match="time_limit"):
        equivalent(a, a, time_limit=0)


def test_collision_avoidance_networks(shared_nets):
    a = fs.load(shared_nets / "acasxu_1_1.onnx")
    widths = split(a).tail.widths
    copy = Symmetry.random(widths, 1)(a)
    perturbed = fs.load(shared_nets / "acasxu_1_1_perturbed.onnx")
    equivalent(a, copy), equivalent(a, perturbed)
    times = []
    for other, answer in ((copy, True), (perturbed, False)):
        best = np.inf
        for _ in range(5):
            start = time.process_time()
            verdict = equivalent(a, other)
            best = min(best, time.process_time() - start)
        assert verdict.equal is answer
        times.append(best)
    assert times[0] < 0.02 and times[1] < 0.05, times
    weights = [w.copy() for w in split(a).tail.weights]
    weights[3][7, 9] = np.nextafter(weights[3][7, 9], 9)
    ulp = split(a).joined(with_arrays(split(a).tail, weights, split(a).tail.biases))
    assert equivalent(a, ulp).equal is True
    assert equivalent(a, ulp, tolerance=0).equal is False


def test_a_split_network_is_near_but_not_equal(shared_nets):
    a, b = (fs.load(shared_nets / f"mnist_256x4{name}.onnx") for name in ("", "_split"))
    stored = equivalent(a, b)
    assert stored.equal is True and stored.precision == "float32"  # as which both were stored
    assert equivalent(*(net.with_source(MEMORY) for net in (a, b))).equal is False


@pytest.mark.slow
def test_a_split_network_is_near_on_its_box(shared_nets):
    a, b = (fs.load(shared_nets / f"mnist_256x4{name}.onnx") for name in ("", "_split"))
    near = equivalent(a, b, fs.Box.cube(784, 0, 1), tolerance=1e-3)
    assert near.equal is True and near.bound < 1e-3 and near.method == "matched bounds"


def test_matched_neurons_bound_the_difference():
    """Biases that differ a little, behind a permutation: neither the same nor far apart."""
    rng, a = np.random.default_rng(0), Network.random((20, 24, 24, 24, 24, 4), 0)
    moved = fs.permute(a, [rng.permutation(24) for _ in range(4)])
    b = Network(moved.weights, [bias + 1e-7 * rng.normal(size=bias.shape) for bias in moved.biases])
    box = fs.Box.cube(20, 0, 1)
    near = equivalent(a, b, box, tolerance=1e-3)
    assert near.equal is True and near.bound < 1e-3 and near.method == "matched bounds"
    x = box.sample(200, rng)
    assert 0 < np.abs(a(x) - b(x)).max() <= near.bound


@pytest.mark.parametrize("widths", [(3, 20, 9, 1), (2, 40, 40, 40, 1)])
def test_the_deadline_reaches_every_loop(widths):
    """Listing regions and estimating their number went on for a minute behind a limit of a second."""
    a = Network.random(widths, 0)
    rng = np.random.default_rng(0)
    b = Network([w * (1 + 1e-13 * rng.normal(size=w.shape)) for w in a.weights], a.biases)
    for tolerance in (None, 1e-6):
        verdict = equivalent(a, b, tolerance=tolerance, time_limit=1)
        assert verdict.equal is not False and verdict.seconds < 6, verdict


def near_copy(widths):
    """A copy with other weights in its first layer: every row has to be compared with all others."""
    net = Network.random(widths, 0)
    moved = Symmetry.random(widths, 1)(net)
    weights = [w.copy() for w in moved.weights]
    weights[0] += 0.01
    return net, Network(weights, moved.biases)


@pytest.mark.parametrize("loose", [False, True])
@pytest.mark.parametrize("pair", [near_copy((2, 4, 3, 1)), (Network.random((2, 3, 1), 0),) * 2])
def test_a_match_looks_at_the_clock(pair, loose):
    match_chains(*pair, loose=loose)
    with pytest.raises(fs.OutOfTimeError):
        match_chains(*pair, loose=loose, run=Run(deadline=0.0))


def test_the_match_of_wide_layers_keeps_the_time_limit():
    equivalent(*near_copy((2, 4, 3, 1)), fs.Box.cube(2), tolerance=1e-3)  # what is compiled is compiled now
    a, b = near_copy((4, 1000, 1000, 1))
    begin = time.process_time()
    equivalent(a, b, fs.Box.cube(4), tolerance=1e-3, time_limit=0.2)
    assert time.process_time() - begin < 2.0  # it took nine


def test_the_same_class_of_copies_takes_no_time():
    """One real function has one class: that is asked before any search that takes long."""
    net = Network.random((2, 6, 4, 2), 0)
    for copy, how in ((net, "identical"), (Symmetry.random(net.widths, 1)(net), "symmetry")):
        verdict = fs.equivalent(net, copy, fs.Box.cube(2), criterion="argmax", time_limit=60)
        assert verdict.equal is True and how in verdict.method and verdict.seconds < 30


def test_no_exact_evaluation_is_begun_that_takes_longer_than_the_time_that_is_left(monkeypatch):
    """Two million products take a second or two in exact numbers."""
    net = fs.Network.random((2, 150, 600, 1500, 3), 0)
    other = fs.Network([net.weights[0] + 1e-7, *net.weights[1:]], net.biases)

    def refuse(*_):
        raise AssertionError("an exact evaluation was begun")

    monkeypatch.setattr(BallAlgebra, "apply", refuse)
    assert fs.equivalent(net, other, fs.Box.cube(2), 0.0, time_limit=0.3).equal is None
