"""Witnesses that underflow, overflow or round: nothing is proven with them that is not true, judged by fractions."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.equality import checker
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.gradients import climb
from fiberscope.equality.rungs.symmetry import Carried, difference_bound
from fiberscope.equality.verdict import Verdict
from fiberscope.fibers.canonical.matching import carries, residual_of
from fiberscope.geometry.ranges.intervals import ranges
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear
from fiberscope.testing import fraction_values
from fiberscope.testing.hostile import hostile_chains, programs

scales = st.one_of(
    st.integers(-1074, 1023).map(lambda e: 2.0**e),
    st.floats(min_value=5e-324, allow_infinity=False),
    st.sampled_from([1.0, 3.0, 1 / 3, 0.1, 5e-324, 1.7976931348623157e308]),
)


def carried_by_fractions(element: Symmetry, a: Network, b: Network) -> bool:
    """The definition, entry by entry."""
    before = [(j, Fraction(1)) for j in range(a.in_size)]
    for layer, (w, bias) in enumerate(zip(a.weights, a.biases, strict=True)):
        last = layer == len(element.scales)
        rows = (
            [(i, Fraction(1)) for i in range(len(bias))]
            if last
            else [
                (int(p), Fraction(float(s)))
                for p, s in zip(element.permutations[layer], element.scales[layer], strict=True)
            ]
        )
        for i, (p, s) in enumerate(rows):
            if Fraction(float(bias[p])) * s != Fraction(float(b.biases[layer][i])):
                return False
            for j, (q, t) in enumerate(before):
                if Fraction(float(w[p, q])) * s / t != Fraction(float(b.weights[layer][i, j])):
                    return False
        before = rows
    return True


@st.composite
def claimed(draw):
    """A chain, an element of the group, and the chain that it gives in floats, possibly with one entry changed."""
    a = draw(hostile_chains(max_width=2, max_hidden=2))
    widths = a.widths[1:-1]
    element = Symmetry(
        [draw(st.permutations(range(n))) for n in widths],
        [draw(st.lists(scales, min_size=n, max_size=n)) for n in widths],
    )
    weights, biases, before = [], [], (np.arange(a.in_size), np.ones(a.in_size))
    with np.errstate(all="ignore"):
        for layer, (w, bias) in enumerate(zip(a.weights, a.biases, strict=True)):
            hidden = layer < len(widths)
            rows = np.array(element.permutations[layer]) if hidden else np.arange(len(bias))
            s = element.scales[layer] if hidden else np.ones(len(bias))
            weights.append(np.nan_to_num(w[np.ix_(rows, before[0])] / before[1] * s[:, None]))
            biases.append(np.nan_to_num(bias[rows] * s))
            before = (rows, s)
    if draw(st.booleans()):
        layer = draw(st.integers(0, len(weights) - 1))
        i, j = (draw(st.integers(0, n - 1)) for n in weights[layer].shape)
        weights[layer][i, j] = draw(st.sampled_from([0.0, float(np.nextafter(weights[layer][i, j], 0.0)), 1.0]))
    slopes = [node.slopes for node in a.nodes[1::2]]
    slope = float(slopes[0][0])
    return a, element, Network(weights, biases, "leaky_relu" if slope else "relu", slope=slope)


@settings(max_examples=300)
@given(claimed())
def test_a_symmetry_carries_what_it_carries_as_fractions(case):
    a, element, b = case
    truth = carried_by_fractions(element, a, b)
    assert carries(element, a, b) == truth
    assert not truth or residual_of(element, a, b) < 4


@settings(max_examples=60)
@given(claimed())
def test_forged_symmetries_are_refused(tmp_path_factory, case):
    a, element, b = case
    path = tmp_path_factory.mktemp("forged") / "proof.json"
    forged = Verdict(True, "symmetry", fs.Space(a.in_size), 0.0, Carried(element), bound=0.0, networks=(a, b))
    forged.save(path)
    assert fs.verify(path).ok == carried_by_fractions(element, a, b)


def test_a_scale_that_underflows_on_the_way(tmp_path):
    a = Network([[[1.0]], [[2.0**-60]], [[2.0**60]]], [[0.0]] * 3)
    b = Network([[[2.0**1023]], [[0.0]], [[2.0**-940]]], [[0.0]] * 3)
    element = Symmetry([[0], [0]], [[2.0**1023], [2.0**1000]])
    assert element.is_dyadic
    Verdict(True, "symmetry", fs.Space(1), 0.0, Carried(element), networks=(a, b)).save(tmp_path / "c.json")
    assert not fs.verify(tmp_path / "c.json")
    assert fs.equivalent(a, b, tolerance=0).equal is False


def test_a_subnormal_bias_that_rounds():
    a, b = Network([[[1.0]], [[1.0]]], [[15e-324], [0.0]]), Network([[[0.5]], [[2.0]]], [[10e-324], [0.0]])
    verdict = fs.equivalent(a, b, tolerance=0)
    assert verdict.equal is False and verdict.counterexample is not None


@pytest.mark.parametrize("factor", [2.0, 1 + 2.0**-30])
def test_values_beyond_the_floats_are_not_equal(factor):
    a, b = Network([[[1e200]], [[1e200]]], [[0.0]] * 2), Network([[[1e200]], [[factor * 1e200]]], [[0.0]] * 2)
    for tolerance in (None, 0.0, 1.0):
        assert fs.equivalent(a, b, tolerance=tolerance).equal is False
    assert fs.equivalent(a, Network([[[2e200]], [[5e199]]], [[0.0]] * 2)).equal is True


@st.composite
def boxed(draw):
    """A hostile program, a box around one of its points, and some points of the box."""
    net = draw(programs(max_width=3, max_blocks=2))
    n = net.in_size
    centre = np.array([draw(st.sampled_from([0.0, 1.0, -0.3, 1e-310, 5e-324, 1e100, 1e300])) for _ in range(n)])
    radius = draw(st.sampled_from([5e-324, 1e-310, 1e-3, 1.0, 1e150]))
    with np.errstate(over="ignore"):
        low, high = centre - radius, centre + radius
    low, high = np.minimum(low, np.nextafter(centre, -np.inf)), np.maximum(high, np.nextafter(centre, np.inf))
    share = np.array([[draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])) for _ in range(n)] for _ in range(3)])
    return net, fs.Box(low, high), np.clip(low * (1 - share) + high * share, low, high)


@settings(max_examples=200)
@given(boxed())
def test_ranges_hold_the_exact_values(case):
    net, box, points = case
    found = ranges(net, box)
    for x in points:
        for value, known in zip(fraction_values(net, x), found, strict=True):
            for v, low, high in zip(value, known.low.tolist(), known.high.tolist(), strict=True):
                assert low == -np.inf or Fraction(low) <= v
                assert high == np.inf or v <= Fraction(high)


def test_a_sum_that_overflows_on_the_way_has_no_sign():
    net = Network([[[1.5e308, 1.5e308, -1.7e308, -1.7e308]], [[1.0]]], [[0.0], [0.0]])
    box = fs.Box(np.full(4, 1 - 1e-12), np.full(4, 1 + 1e-12))
    assert not ranges(net, box)[1].low[0] >= 0
    assert not fs.roles(net, box).nonnegative.any()


@settings(max_examples=100)
@given(claimed(), st.sampled_from([1e-300, 1e-3, 1.0, 1e200]))
def test_bounds_of_matched_networks_bound(case, radius):
    a, element, b = case
    box = fs.Box(np.full(a.in_size, -radius), np.full(a.in_size, radius))
    bound = difference_bound(a, b, element, box)
    for share in (-1.0, -0.5, 0.0, 1.0):
        x = np.full(a.in_size, share * radius)
        gaps = [abs(p - q) for p, q in zip(fraction_values(a, x)[-1], fraction_values(b, x)[-1], strict=True)]
        assert bound == np.inf or max(gaps) <= Fraction(bound)


SLOPES = (0.0, 0.0, 0.01, 0.5, 1.0, 3.0, -1.0, -2.0)


def with_slopes(net, rng):
    """A copy whose neurons bend otherwise, some of them more steeply below zero than above."""
    nodes = [
        PiecewiseLinear(node.source, rng.choice(SLOPES, len(node.slopes)), node.shape)
        if isinstance(node, PiecewiseLinear)
        else node
        for node in net.nodes
    ]
    return Network.from_nodes(nodes, net.input_shape)


@settings(max_examples=100)
@given(claimed(), st.sampled_from([1e-3, 1.0, 1e200]), st.integers(0, 2**32 - 1))
def test_bounds_of_matched_networks_count_their_slopes(case, radius, seed):
    """Steep activations pass more on than they are given, and neurons that are matched may bend otherwise."""
    a, element, b = case
    rng = np.random.default_rng(seed)
    a, b = with_slopes(a, rng), with_slopes(b, rng)
    box = fs.Box(np.full(a.in_size, -radius), np.full(a.in_size, radius))
    bound = difference_bound(a, b, element, box)
    for share in (-1.0, -0.5, 0.0, 1.0):
        x = np.full(a.in_size, share * radius)
        gaps = [abs(p - q) for p, q in zip(fraction_values(a, x)[-1], fraction_values(b, x)[-1], strict=True)]
        assert bound == np.inf or max(gaps) <= Fraction(bound)


@pytest.mark.parametrize("slopes", [(0.0, 0.5), (0.5, 0.0), (0.01, 0.0), (3.0, -1.0)])
@pytest.mark.parametrize("tolerance", [1e-3, 0.1, 0.4])
def test_other_activations_are_another_function(tmp_path, slopes, tolerance):
    """The same weights, and slopes that nobody compared: called equal within whatever was asked."""
    weights, biases = [[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]]
    a, b = (Network(weights, biases, "leaky_relu", slope=s) for s in slopes)
    apart = abs(slopes[0] - slopes[1])
    verdict = fs.equivalent(a, b, fs.Box([-1.0], [1.0]), tolerance)
    assert verdict.equal is (apart <= tolerance)
    assert verdict.interval.high >= apart * (1 - 1e-12)
    verdict.save(tmp_path / "proof.json")
    checker.check(json.loads((tmp_path / "proof.json").read_text()))  # raises where it does not hold


@settings(max_examples=150)
@given(hostile_chains(max_width=3, max_hidden=2), st.integers(0, 2**32 - 1))
def test_simplification_of_hostile_chains(net, seed):
    """Refused in words, or the same function: exactly where it says so."""
    try:
        small = fs.simplify(net, time_limit=0.5)
    except fs.FiberscopeError:
        return
    if not small.exact:
        return
    rng = np.random.default_rng(seed)
    for x in rng.normal(size=(3, net.in_size)) * 10.0 ** rng.integers(-300, 300, (3, 1)):
        assert fraction_values(net, x)[-1] == fraction_values(small.network, x)[-1]


@settings(max_examples=150)
@given(
    hostile_chains(inputs=st.just(2), max_width=2, max_hidden=2),
    hostile_chains(inputs=st.just(2), max_width=2, max_hidden=2),
    st.sampled_from([None, 0.0, 1e-3]),
    st.booleans(),
    st.booleans(),
)
def test_verdicts_on_hostile_pairs(a, b, tolerance, boxed_in, twin):
    """Points judge: equal ones do not differ by more than is allowed, and counterexamples are ones."""
    if twin:
        weights = [w.copy() for w in a.weights]
        weights[-1][0, 0] = np.nextafter(weights[-1][0, 0], 1.0)
        b = Network(weights, a.biases, "leaky_relu", slope=float(a.nodes[1].slopes[0]))
    if a.out_size != b.out_size:
        return
    box = fs.Box.cube(2, -1, 1) if boxed_in else None
    verdict = fs.equivalent(a, b, box, tolerance, time_limit=3)
    if verdict.equal is False and verdict.counterexample is not None:
        x = verdict.counterexample.x
        gap = max(abs(p - q) for p, q in zip(fraction_values(a, x)[-1], fraction_values(b, x)[-1], strict=True))
        assert gap > (0 if tolerance is None else Fraction(tolerance))
    if verdict.equal is True and tolerance is not None:
        for x in np.random.default_rng(0).uniform(-1, 1, (4, 2)):
            gap = max(abs(p - q) for p, q in zip(fraction_values(a, x)[-1], fraction_values(b, x)[-1], strict=True))
            assert gap <= Fraction(tolerance)
            assert verdict.bound is None or gap <= Fraction(verdict.bound)


@st.composite
def hostile_pairs(draw):
    """Two programs with the same numbers of inputs and outputs, or one twice."""
    a, b = draw(programs()), draw(programs())
    return (a, b) if (a.in_size, a.out_size) == (b.in_size, b.out_size) else (a, a)


@pytest.mark.filterwarnings("error")
@given(hostile_pairs(), st.sampled_from(["box", "wide", "orthant", "space"]), st.integers(0, 2**32 - 1))
def test_inputs_improved_along_gradients_are_points_of_the_domain(pair, kind, seed):
    """Slopes and steps beyond the floats show no way, and are no reason to refuse the question."""
    a, b = pair
    n = a.in_size
    domain = {
        "box": fs.Box.cube(n),
        "wide": fs.Box.cube(n, -1.7e308, 1.7e308),
        "orthant": fs.Orthant(n),
        "space": fs.Space(n),
    }[kind]
    question = Question.of(a, b, domain, seed=seed)
    for x in domain.sample(4, question.rng)[:4]:
        found = climb(question, x)
        assert np.isfinite(found).all()
        assert domain.contains(found[None])[0]
