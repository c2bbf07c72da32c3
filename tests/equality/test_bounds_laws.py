"""Bounds of differences hold at every input: against exact values at points, and against all regions where those can be
listed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.equality.bounding.chains import ChainPair, layers_of
from fiberscope.equality.bounding.lines import uppers
from fiberscope.equality.bounding.programs import ProgramPair
from fiberscope.equality.counterexample import exact_outputs
from fiberscope.errors import OutOfTimeError
from fiberscope.network.commute import pools_first
from fiberscope.network.compose import difference_network
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, MaxPool, PiecewiseLinear, moved
from fiberscope.network.operators import Dense, Gather, Scale
from fiberscope.run import Run
from fiberscope.testing import cases
from fiberscope.testing.hostile import NUMBERS, TAME, hostile_chains, programs

NOISE: dict[str, Any] = {
    "none": lambda rng, x: x,
    "small": lambda rng, x: x + 1e-3 * rng.normal(size=x.shape),
    "relative": lambda rng, x: x * (1 - 1e-2 * rng.random(x.shape)),
    "ulp": lambda rng, x: np.nextafter(x, x + rng.choice([-1.0, 1.0], x.shape)),
    "one": lambda rng, x: np.where(np.arange(x.size).reshape(x.shape) == rng.integers(x.size), x + 0.5, x),
    "large": lambda rng, x: x + rng.normal(size=x.shape),
    "zero": lambda rng, x: np.zeros_like(x),
}


def noisy(net: Network, kind: str, seed: int) -> Network:
    """A copy whose numbers are others."""
    rng, nodes = np.random.default_rng(seed), []
    for node in net.nodes:
        if isinstance(node, Affine) and not any(isinstance(s, Gather) for s in node.operator.stages()):
            coefficients = _finite(NOISE[kind](rng, node.operator.coefficients))
            bias = None if node.bias is None else _finite(NOISE[kind](rng, node.bias))
            node = Affine(node.source, node.operator.with_coefficients(coefficients), bias)  # noqa: PLW2901
        nodes.append(node)
    return Network.from_nodes(nodes, net.input_shape)


def _finite(x: Any) -> Any:
    return np.where(np.isfinite(x), x, 0.0)


def boxes(seed: int, size: int) -> fs.Box:
    """Ordinary, thin, flat in some coordinates, subnormal, large."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=size) * rng.choice([0.0, 1.0, 1e-300, 1e6])
    width = np.abs(rng.normal(size=size)) * rng.choice([1e-12, 1e-3, 1.0, 10.0, 1e-310])
    width = np.where(rng.random(size) < 0.2, 0.0, width)
    width[0] = max(width[0], 1e-300)
    low, high = centre - width, centre + width
    high[0] = max(high[0], np.nextafter(low[0], np.inf))
    return fs.Box(low, high)


def points_of(box: fs.Box, seed: int, more: Any = None) -> Any:
    found = box.sample(12, seed)
    return found if more is None else np.concatenate([found, more])


def check(a: Network, b: Network, box: fs.Box, pair: Any, seed: int) -> None:
    """The exact difference at points is never above the bound, nor is a class beaten where none should be."""
    found = pair.bounds(box.low[None], box.high[None])
    assert not np.isnan(found.high).any()
    assert found.dimension[0] == -1 or box.low[found.dimension[0]] < box.high[found.dimension[0]]
    bound = float(found.high[0])
    if bound == np.inf:
        return
    for x in points_of(box, seed, found.points):
        left, right = exact_outputs(a, x), exact_outputs(b, x)
        if pair.margin is None:
            assert max(abs(p - q) for p, q in zip(left, right, strict=True)) <= Fraction(bound)
        elif bound <= 0:
            own = max(range(len(left)), key=lambda k: left[k])
            ahead = left[own] - max(v for k, v in enumerate(left) if k != own)
            assert not (ahead > 0 and ahead >= pair.margin and max(right) > right[own])


def pairs(a: Network, b: Network, margin: float | None) -> list[Any]:
    tried = [
        ChainPair.of(a, b, None, margin) if margin is None else ChainPair.of(a, b, margin=margin),
        ProgramPair.of(a, b, margin),
        ProgramPair.of(a, b, margin, paired=False),
    ]
    return [pair for pair in tried if pair is not None]


@given(hostile_chains(), st.sampled_from(sorted(NOISE)), st.integers(0, 10**6))
@settings(max_examples=60)
def test_bounds_of_hostile_chains(net, kind, seed):
    other, box = noisy(net, kind, seed), boxes(seed, net.in_size)
    found = pairs(net, other, None)
    assert len(found) >= 2
    for pair in found:
        check(net, other, box, pair, seed)
    if net.out_size > 1:
        for pair in pairs(net, other, 0.25 * (seed % 2)):
            check(net, other, box, pair, seed)


@given(programs(), st.sampled_from(sorted(NOISE)), st.integers(0, 10**6))
@settings(max_examples=60)
def test_bounds_of_hostile_programs(net, kind, seed):
    other, box = noisy(net, kind, seed), boxes(seed, net.in_size)
    for pair in pairs(net, other, None):
        check(net, other, box, pair, seed)


FACTORS = (1.0, 0.5, 1.0 + 2.0**-52, 0.999, -1.0, 1e-3)


def with_scales(net: Network, seed: int, some: Any = FACTORS, shifts: Any = (0.0, 1e-3, 2.0**-1074, 0.3)) -> Network:
    """A copy that scales and shifts behind some of its affine maps, as batch normalisation does that is not folded."""
    rng, nodes, place = np.random.default_rng(seed), [], [0]
    for node in net.nodes:
        nodes.append(moved(node, tuple(place[s] for s in node.sources)))
        if isinstance(node, Affine) and rng.random() < 0.7:
            shape = node.shape
            factors, shift = rng.choice(some, int(np.prod(shape))), rng.choice(shifts, shape)
            nodes.append(
                Affine(len(nodes), Scale(factors.reshape(shape), shape), shift if rng.random() < 0.7 else None)
            )
        place.append(len(nodes))
    return Network.from_nodes(nodes, net.input_shape)


@given(programs(), st.sampled_from(sorted(NOISE)), st.integers(0, 10**6))
@settings(max_examples=60)
def test_bounds_where_affine_maps_are_cut_elsewhere(net, kind, seed):
    one, other, box = with_scales(net, seed + 1), with_scales(noisy(net, kind, seed), seed), boxes(seed, net.in_size)
    assert ProgramPair.of(one, other, None) is not None
    for margin in (None, 0.25 * (seed % 2)) if net.out_size > 1 else (None,):
        for pair in pairs(one, other, margin):
            check(one, other, box, pair, seed)


def test_what_is_not_folded_corresponds_all_the_same():
    net = cases.convolutional(0)
    other = with_scales(noisy(net, "small", 1), 3, [1.0, 0.999], [0.0])
    assert len(other.nodes) > len(net.nodes)
    box = fs.Box.cube(net.in_size, 0.0, 1.0)
    paired, folded = ProgramPair.of(net, other, None), ProgramPair.of(net, pools_first(other), None)
    alone = ProgramPair.of(net, other, None, paired=False)
    assert paired is not None and folded is not None and alone is not None
    bounds = [float(pair.bounds(box.low[None], box.high[None]).high[0]) for pair in (paired, folded, alone)]
    assert 10 * bounds[0] < bounds[2] and 10 * bounds[1] < bounds[2]


@pytest.mark.parametrize("kind", sorted(NOISE))
@pytest.mark.parametrize("name", ["convolutional", "residual"])
def test_bounds_of_convolutions_and_residuals(name, kind):
    net = getattr(cases, name)(0)
    other = noisy(net, kind, 1)
    low = np.random.default_rng(2).normal(size=net.in_size)
    box = fs.Box(low, low + 0.1)
    found = pairs(net, other, None)
    assert len(found) == 2
    for pair in found:
        check(net, other, box, pair, 3)
    both = [pair.bounds(box.low[None], box.high[None]).high[0] for pair in found]
    if kind in ("none", "small", "ulp"):
        assert both[0] < both[1]  # what both do alike is not bounded twice
    if kind == "none":
        assert both[0] == 0


@given(st.integers(0, 10**6), st.sampled_from(["small", "one", "large", "relative"]))
@settings(max_examples=25)
def test_bounds_are_above_the_maximum_over_all_regions(seed, kind):
    rng = np.random.default_rng(seed)
    style = TAME[seed % len(TAME)]
    shapes = [(4, 2), (4, 4), (2, 4)]
    net = Network([NUMBERS[style](rng, s) for s in shapes], [NUMBERS[style](rng, s[:1]) for s in shapes])
    other = noisy(net, kind, seed)
    box = fs.Box.cube(2)
    found = fs.regions(difference_network(net, other), box)
    corners = np.clip(found.vertices, -1.0, 1.0)
    most = float(np.abs(net(corners) - other(corners)).max())
    for pair in pairs(net, other, None):
        assert float(pair.bounds(box.low[None], box.high[None]).high[0]) >= most * (1 - 1e-9)


def branches(*layers: tuple[Any, Any]) -> Network:
    """A sum of one-layer networks ``V relu(W x)``, each with an activation of its own."""
    nodes: list[Any] = []
    for first, second in layers:
        nodes += [
            Affine(0, Dense(first)),
            PiecewiseLinear(len(nodes) + 1, 0.0, (len(first),)),
            Affine(len(nodes) + 2, Dense(second)),
        ]
    ends = tuple(range(3, 3 * len(layers) + 1, 3))
    return Network.from_nodes([*nodes, Add(ends, (len(layers[0][1]),))], (layers[0][0].shape[1],))


@given(st.integers(0, 10**6), st.integers(2, 3))
@settings(max_examples=20)
def test_branches_do_not_take_each_others_generators_for_their_own(seed, count):
    rng = np.random.default_rng(seed)
    a, b = (
        branches(*((rng.integers(-2, 3, (2, 2)) * 1.0, rng.integers(-2, 3, (1, 2)) * 1.0) for _ in range(count)))
        for _ in range(2)
    )
    corners = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    most = float(np.abs(a(corners) - b(corners)).max())
    for pair in pairs(a, b, None):
        assert pair.bounds(np.full((1, 2), -1.0), np.full((1, 2), 1.0)).high[0] >= most


def test_relu_of_a_sum_minus_relu_of_a_difference():
    """Both errors are at most 1/2 around half of their argument; taken for one error they cancelled: 1 instead of 2."""
    one = np.array([[1.0]])
    a = branches((np.array([[1.0, 1.0]]), one), (np.array([[1.0, -1.0]]), -one))
    b = branches((np.array([[1.0, 1.0]]), 0 * one), (np.array([[1.0, -1.0]]), 0 * one))
    for pair in pairs(a, b, None):
        assert 2.0 <= pair.bounds(np.full((1, 2), -1.0), np.full((1, 2), 1.0)).high[0] <= 2.001


def test_numbers_beyond_the_floats_prove_nothing():
    big = 1e300
    a = Network([[[big]], [[big]]], [[0.0], [0.0]])
    b = Network([[[big]], [[-big]]], [[0.0], [0.0]])
    for pair in pairs(a, b, None):
        assert pair.bounds(np.array([[-1.0]]), np.array([[1.0]])).high[0] == np.inf


def test_noise_is_bounded_closely():
    net = Network.random((5, 20, 20, 1), seed=0)
    other = noisy(net, "small", 0)
    pair = ChainPair.of(net, other)
    assert pair is not None
    box = fs.Box(np.full(5, -0.05), np.full(5, 0.05))
    bound = float(pair.bounds(box.low[None], box.high[None]).high[0])
    points = box.sample(2000, 0)
    assert np.abs(net(points) - other(points)).max() <= bound <= 3 * np.abs(net(points) - other(points)).max()


def test_bounds_of_wide_programs_look_at_the_clock():
    a, b = Network.random((3, 20, 20, 1), 0), Network.random((3, 20, 20, 1), 1)
    for paired in (True, False):
        bounder = ProgramPair.of(a, b, None, paired, Run.begin(time_limit=1e-9))
        with pytest.raises(OutOfTimeError):
            bounder.bounds(-np.ones((1, 3)), np.ones((1, 3)))


@pytest.mark.parametrize("difference", [5e-324, 1e-300, 1e-10, 1.0])
@pytest.mark.parametrize("margin", [None, 0.0])
def test_an_output_that_overflows_is_not_forgotten_for_one_that_does_not_differ(difference, margin):
    """A bound that is not a number was replaced by that of the next output: a false proof."""
    first = 1e199 * np.array([[5.6, 4.9, 1.6], [-6.6, 4.4, -14.3]])
    second = 1e199 * np.array([[-2.0, -6.0], [9.0, 5.0]])
    a, b = (Network([first, second], [[0.0, 0.0], [d, 0.0]]) for d in (difference, 0.0))
    pair = ChainPair.of(a, b, margin=margin)
    assert pair is not None
    bound = pair.bounds(np.array([[-1.1, 0.0, -2.0]]), np.array([[-0.8, 0.3, -1.7]])).high[0]
    assert bound == np.inf


def test_coefficients_below_the_floats_are_not_forgotten():
    """Going back to the input, ``1e-200 * 1e-200`` became 0 before an input of 1e300: an open neuron was called off."""
    first, second = (
        Network([[[1e-200]], [[1e-200]], [[w]]], [[1e101], [-1e-99 - 5e-101], [0.0]]) for w in (1e100, 0.0)
    )
    pair = ChainPair.of(first, second)
    assert pair is not None
    found = pair.bounds(np.array([[-1e300]]), np.array([[1e300]])).high[0]
    x = np.array([1e300])
    assert Fraction(found) >= abs(exact_outputs(first, x)[0] - exact_outputs(second, x)[0]) > Fraction(4, 10)


@pytest.mark.parametrize("tolerance", [None, 0.0, 1e-3, 10.0])
def test_weights_whose_difference_overflows_are_no_bad_input(tolerance):
    """``A - B`` is beyond the floats where A and B are not; what is asked about them is answered, or undecided."""

    def pool(weight):
        nodes = [
            Affine(0, Dense([[weight], [1.0]])),
            MaxPool(1, (1, 1, 2), (1, 2), (1, 2)),
            Affine(2, Dense([[1e-308]])),
        ]
        return Network.from_nodes(nodes, (1,))

    a, b, box = pool(1.7e308), pool(-1.7e308), fs.Box([0.5], [1.0])
    verdict = fs.equivalent(a, b, box, tolerance=tolerance)
    assert verdict.equal in (tolerance == 10, None)
    assert verdict.interval.high >= 1.69


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_large_weights_do_not_meet_lost_roundings(seed, bias):
    """Inputs or constants below the normal floats: what their products round is as large as weights make it."""
    rng = np.random.default_rng(seed)
    tiny = rng.integers(1, 2**40, 2) * 2.0**-1074
    weight = 2.0**1000 * rng.random()
    second = np.array([[weight, -np.nextafter(weight, 2 * weight), 2.0**-30]])
    if bias:
        first, offset, x = np.diag([0.0, 0.0, 1.0]), [*tiny, 0.0], np.zeros(3)
    else:
        first, offset, x = np.eye(3), [0.0, 0.0, 0.0], np.array([*tiny, 0.0])
    a, b = (Network([first, rows], [offset, [0.0]]) for rows in (second, np.zeros((1, 3))))
    low, high = x.copy(), x.copy()
    high[2] = 2.0**-40
    gap = abs(exact_outputs(a, x)[0] - exact_outputs(b, x)[0])
    for pair in (ChainPair.of(a, b), ProgramPair.of(a, b, None, True), ProgramPair.of(a, b, None, False)):
        assert pair is not None
        assert Fraction(pair.bounds(low[None], high[None]).high[0]) >= gap


def test_activations_steeper_below_zero_have_no_line_through_zero_below_them():
    """``min(x, 2 x)`` is concave: a neuron behind it was called active, and what it adds was proven to be nothing."""
    steep = np.array([2.0, 0.0])

    def net(last: list[float]) -> Network:
        affine = [
            (np.array([[1.0], [0.0]]), np.zeros(2)),
            (np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([1.5, 8.5])),
            (np.array([last]), np.array([-10.0 * last[1]])),
        ]
        nodes: list[Any] = []
        for k, (matrix, offset) in enumerate(affine):
            nodes.append(Affine(2 * k, Dense(matrix), offset))
            if k < 2:
                nodes.append(PiecewiseLinear(2 * k + 1, steep if k == 0 else np.zeros(2), (2,)))
        return Network.from_nodes(nodes, (1,))

    a, b = net([1.0, 1.0]), net([0.0, 0.0])  # relu(z) - z with z = min(x, 2 x) + 3/2, and zero
    for pair in pairs(a, b, None):
        assert pair.bounds(np.array([[-1.0]]), np.array([[2.0]])).high[0] >= 0.5
    assert fs.equivalent(a, b, fs.Box([-1.0], [2.0]), 0.25).equal is False


@given(hostile_chains(), st.integers(0, 10**6))
def test_lines_are_above_the_outputs(net, seed):
    """Upper bounds of combinations of the outputs, against exact values at points."""
    layers = layers_of(net)
    if layers is None or layers[-1].slopes is not None:
        return
    box, rng = boxes(seed, net.in_size), np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (3, net.out_size)) * 1.0
    tops = uppers(layers, box.low, box.high, rows)
    for x in [box.low, box.high, *box.sample(4, rng)]:
        values = [Fraction(v) for v in exact_outputs(net, x)]
        for row, top in zip(rows, tops, strict=True):
            exact = sum(Fraction(w) * v for w, v in zip(row, values, strict=True))
            assert top == np.inf or exact <= Fraction(top)


def test_lines_are_close_where_no_sign_is_open():
    net = Network.random((40, 20, 20, 3), seed=0)
    box = fs.Box(np.full(40, 0.5), np.full(40, 0.5 + 1e-6))
    tops = uppers(layers_of(net), box.low, box.high, np.eye(3))
    values = net(box.sample(50, 0)).max(axis=0)
    assert (values <= tops).all() and (tops <= values + 1e-3).all()
