"""Circles, tractrices and functions: closed forms, dense samples, tangents, coincidences, certificates, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import chebyshev as cheb

from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.certify import CircleForm, Mark, TractrixForm, compare, rising
from fiberscope.geometry.curves.chebyshev import NODES
from fiberscope.geometry.curves.curve import Circle, Curve, Path, Planar, Segment, Tractrix
from fiberscope.geometry.curves.series_kernels import DEPTH, find_bands
from fiberscope.network.action.chain import permute, rescale
from fiberscope.network.network import Network
from fiberscope.testing import strategies as nets
from fiberscope.testing.cases import CASES, case

QUICK = settings(max_examples=50, deadline=None)


def sampled(net: Network, curve: Path, count: int) -> int:
    """Sign changes between dense samples, plus one: never more than there are regions."""
    signs = net.signs(curve(np.linspace(*curve.interval, count))).signs
    changing = signs[:, (signs != 0).any(axis=0)]
    away = changing[(changing != 0).all(axis=1)]  # a sample on a breakpoint belongs to no region
    return int((away[1:] != away[:-1]).any(axis=1).sum()) + 1


def one_layer(rows: list[list[float]]) -> Network:
    weights = np.array(rows)
    return Network([weights[:, :2], np.ones((1, len(rows)))], [weights[:, 2], np.zeros(1)])


@pytest.mark.parametrize("curve", [Circle(), Tractrix()], ids=["circle", "tractrix"])
@pytest.mark.parametrize("seed", range(6))
def test_counts_equal_dense_samples(curve: Planar, seed: int) -> None:
    net = Network.random((2, 10, 16, 1), seed)
    found = regions_along(net, curve)
    assert found.num_regions == sampled(net, curve, 100_001)
    assert found.certified
    assert (net.signs(curve(found.intervals.mean(axis=1))).signs == found.signs).all()
    near = np.abs(np.stack([z[:, :] for z in [np.concatenate(net.preactivations(found.points), axis=1)]])[0])
    assert near[np.arange(len(near)), found.neuron].max() < 1e-10
    assert np.isclose(found.lengths.sum(), curve.length)
    assert (np.diff(found.enclosures) >= 0).all() and (found.enclosures[1:, 0] >= found.enclosures[:-1, 1]).all()


@QUICK
@given(st.data())
def test_circle_zeros_agree_with_the_closed_form(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    rows = rng.normal(size=(4, 3))
    found = regions_along(one_layer(rows.tolist()), Circle())
    expected = []
    for A, B, C in rows:
        if abs(C) < np.hypot(A, B):
            middle, half = np.arctan2(B, A), np.arccos(-C / np.hypot(A, B))
            expected += [np.angle(np.exp(1j * (middle + turn * half))) for turn in (-1, 1)]
    assert np.allclose(found.breakpoints, np.sort(expected), atol=1e-9)


@QUICK
@given(st.data())
def test_certified_for_all_chains_and_never_below_samples(data: st.DataObject) -> None:
    net = data.draw(nets.chains(inputs=st.integers(2, 3), max_width=4, max_hidden=3))
    seed = data.draw(st.integers(0, 2**20))
    kind = data.draw(st.sampled_from([Circle, Tractrix]))
    curve = kind(center=np.zeros(net.in_size)) if data.draw(st.booleans()) else kind.random_plane(net.in_size, seed)
    found = regions_along(net, curve)
    assert found.certified
    assert found.num_regions >= sampled(net, curve, 400)
    wide = np.diff(found.intervals)[:, 0] > 1e-6
    assert (net.signs(curve(found.intervals.mean(axis=1))).signs == found.signs)[wide].all()
    assert found.num_pieces <= found.num_regions


@QUICK
@given(st.data())
def test_counts_survive_permutation_and_rescaling(data: st.DataObject) -> None:
    net = data.draw(nets.chains(inputs=st.just(2), max_width=4, max_hidden=2))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    orders = [rng.permutation(n) for n in net.widths[1:-1]]
    scales = [2.0 ** rng.integers(-3, 4, n) for n in net.widths[1:-1]]
    for curve in (Circle(), Tractrix()):
        expected = regions_along(net, curve)
        for other in (permute(net, orders), rescale(net, scales)):
            found = regions_along(other, curve)
            assert found.num_regions == expected.num_regions
            assert np.allclose(found.breakpoints, expected.breakpoints, atol=1e-9)


@pytest.mark.parametrize("name", sorted(name for name in CASES if case(name).in_size > 1))
def test_every_kind_of_network(name: str) -> None:
    net = case(name)
    for curve in (Circle.random_plane(net.in_size, 1), Tractrix.random_plane(net.in_size, 2, scale=2.0)):
        found = regions_along(net, curve)
        assert found.num_regions >= sampled(net, curve, 200)
        wide = np.diff(found.intervals)[:, 0] > 1e-6
        assert (net.signs(curve(found.intervals.mean(axis=1))).signs == found.signs)[wide].all()
        matrices, _ = found.affine_maps
        kinks = np.abs(np.diff(matrices, axis=0)).max(axis=(1, 2), initial=0.0) > 1e-9
        assert (kinks == found.visible).all()


# -- tangents and coincidences ------------------------------------------------------------------------------------


def test_a_tangent_is_a_breakpoint_that_is_not_visible() -> None:
    net = one_layer([[1.0, 0.0, -1.0]])  # x = 1 touches the circle at angle 0
    found = regions_along(net, Circle())
    assert (found.num_regions, found.num_pieces) == (2, 1)
    assert found.tangential.tolist() == [True]
    assert abs(found.breakpoints[0]) < 1e-15
    above = regions_along(one_layer([[1.0, 0.0, -float(np.nextafter(1.0, 2.0))]]), Circle())
    assert above.num_regions == 1
    below = regions_along(one_layer([[1.0, 0.0, -float(np.nextafter(1.0, 0.0))]]), Circle())
    assert (below.num_regions, below.num_pieces) == (3, 3)
    assert below.exact_decisions > 0 and below.certified


def test_lines_that_meet_on_the_circle_make_one_breakpoint() -> None:
    rows = [[1.0, 1.0, -1.0], [1.0, 0.0, 0.0], [4.0, 3.0, -3.0]]  # all through (0, 1); the first also through (1, 0)
    found = regions_along(one_layer(rows), Circle())
    top = [k for k, t in enumerate(found.breakpoints) if abs(t - np.pi / 2) < 1e-12]
    assert len(top) == 1 and found.neurons[top[0]] == (0, 1, 2)
    # (0, 1) three times; (1, 0); (0, -1); and (4 x + 3 y = 3) at (24/25, -7/25)
    assert found.num_regions == 5
    third = regions_along(one_layer([[0.1, 0.2, -0.3 / 3], [1.0, 2.0, -1.0]]), Circle())
    assert third.certified


def test_the_cusp_of_the_tractrix() -> None:
    rows = [[0.0, 1.0, -1.0], [1.0, 0.0, 0.0], [1.0, 1.0, -1.0]]
    found = regions_along(one_layer(rows), Tractrix())
    assert found.certified
    middle = [k for k, t in enumerate(found.breakpoints) if abs(t) < 1e-12]
    assert len(middle) == 1 and found.neurons[middle[0]] == (0, 1, 2)
    alone = regions_along(one_layer(rows[:1]), Tractrix())
    assert alone.tangential.tolist() == [True] and alone.num_pieces == 1


def test_ends_of_an_arc_are_no_breakpoints() -> None:
    net = one_layer([[0.0, 1.0, 0.0]])  # y = 0: at 0 and at pi
    full = regions_along(net, Circle())
    assert full.num_regions == 2 and full.num_regions_closed == 2
    assert regions_along(net, Circle(interval=(0.0, np.pi))).num_regions == 1
    assert regions_along(net, Circle(interval=(-1.0, 4.0))).num_regions == 3
    plain = one_layer([[1.0, 0.0, 0.0]])
    assert regions_along(plain, Circle()).num_regions == 3
    assert regions_along(plain, Circle()).num_regions_closed == 2
    touching = regions_along(one_layer([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), Circle())  # x = -1 touches where it closes
    assert touching.num_regions == touching.num_regions_closed == 3
    assert Circle()([-np.pi, np.pi / 2]).tolist() == [[-1.0, 0.0], [0.0, 1.0]]


def test_a_deeper_neuron_that_vanishes_at_a_breakpoint() -> None:
    net = Network([[[1.0, 0.3], [0.2, 1.0]], [[2.0, 0.0], [1.0, 1.0]], [[1.0, 1.0]]], [[0.1, -0.2], [0.0, 0.0], [0.0]])
    for curve in (Circle(), Tractrix()):
        found = regions_along(net, curve)
        assert found.certified
        for neurons in found.neurons:
            if 0 in neurons:  # 2 relu(z_0) vanishes where z_0 does
                assert 2 in neurons


def test_exact_numbers() -> None:
    circle = CircleForm((3, 4, 0))
    with_turns = [z for z in circle.zeros() if compare(z, Mark(-3.1)) > 0 > compare(z, Mark(3.1))]
    assert len(with_turns) == 2
    assert compare(with_turns[0], with_turns[0]) == 0
    twin = CircleForm((-6, -8, 0)).zeros()
    assert sum(compare(with_turns[0], z) == 0 for z in twin) == 1
    tractrix = TractrixForm((1, 2, -1), (-3.0, 3.0))
    for bits in rising():
        if bits > 1024:
            break
        for zero in tractrix.zeros():
            assert tractrix.value(zero.ball()).overlaps(zero.ball() * 0)
            assert float(zero.ball().rad()) < 2.0 ** (-bits // 3)


# -- functions ------------------------------------------------------------------------------------------------------

AS_FUNCTIONS = {
    "circle": (Circle(), Curve(lambda t: np.stack([np.cos(t), np.sin(t)], axis=1), (-np.pi, np.pi))),
    "tractrix": (Tractrix(), Curve(lambda t: np.stack([t - np.tanh(t), 1 / np.cosh(t)], axis=1), (-3.0, 3.0))),
}


@pytest.mark.parametrize("name", sorted(AS_FUNCTIONS))
@pytest.mark.parametrize("seed", range(5))
def test_interpolants_agree_with_the_certified_curves(name: str, seed: int) -> None:
    curve, same = AS_FUNCTIONS[name]
    net = Network.random((2, 8, 8, 2), 100 + seed)
    expected, found = regions_along(net, curve), regions_along(net, same)
    assert found.neurons == expected.neurons
    assert np.allclose(found.breakpoints, expected.breakpoints, atol=1e-10)
    assert np.allclose(found.lengths, expected.lengths, atol=1e-10)
    assert not found.certified and 0 < found.residual < 1e-13
    assert (found.signs == expected.signs).all()


def test_a_curve_in_a_large_space() -> None:
    rng = np.random.default_rng(0)
    axes = rng.normal(size=(3, 200))
    curve = Curve(lambda t: np.stack([np.cos(t), np.sin(2 * t), t], axis=1) @ axes, (0.0, 6.0))
    net = Network.random((200, 12, 8, 1), 0)
    found = regions_along(net, curve)
    assert found.num_regions == sampled(net, curve, 20_001)
    assert found.undecided == 0


def test_curves_with_corners() -> None:
    curve = Curve(lambda t: np.stack([np.abs(t - 0.3), t], axis=1), (-1.0, 1.0))
    net = Network.random((2, 8, 6, 1), 4)
    found = regions_along(net, curve)
    parts = [Segment(curve([a])[0], curve([b])[0]) for a, b in ((-1.0, 0.3), (0.3, 1.0))]
    assert found.num_regions == sum(regions_along(net, p).num_regions for p in parts) - 1


def colleague_roots(series: np.ndarray) -> np.ndarray:
    """Real zeros in [-1, 1] of a Chebyshev series: eigenvalues of its colleague matrix (I. J. Good, 1961)."""
    values = np.linalg.eigvals(cheb.chebcompanion(series))
    near = (np.abs(values.imag) <= 1e-7) & (np.abs(values.real) <= 1 + 1e-7)
    return np.sort(values.real[near])


@QUICK
@given(st.integers(0, 2**20), st.floats(0.4, 0.95), st.sampled_from([0.0, 1e-12, 1e-6, 1e-2]))
def test_bands_hold_the_eigenvalues(seed: int, decay: float, error: float) -> None:
    rng = np.random.default_rng(seed)
    series = (rng.normal(size=(6, NODES)) * decay ** np.arange(NODES)).T[None].copy()
    counts, out = np.zeros((1, 6), dtype=np.int64), np.empty((1, 6, NODES, 4))
    room = (np.empty((3, NODES)), np.empty((DEPTH, 2)), np.empty(4))
    find_bands(series, np.full((1, 6), error), np.array([[-1.0, 1.0]]), *room, out, counts, np.zeros(6, bool))
    fine = np.linspace(-1, 1, 4001)
    for j in range(6):
        place, low, high, sure = out[0, j, : counts[0, j]].T
        assert (low <= place).all() and (place <= high).all() and (high[:-1] < low[1:]).all()
        roots = colleague_roots(series[0, :, j])
        held = (roots[:, None] >= low - 1e-7) & (roots[:, None] <= high + 1e-7)
        assert held.any(axis=1).all()
        assert (held.sum(axis=0)[sure > 0] == 1).all()
        if error <= 1e-12:
            assert counts[0, j] == len(roots)
        # outside of the bands the series is above the error, inside of them not far above
        value = np.abs(cheb.chebval(fine, series[0, :, j]))
        inside = ((fine[:, None] >= low) & (fine[:, None] <= high)).any(axis=1)
        assert (value[~inside] > error).all()
        assert (value[inside] <= 8 * error + 1e-9).all()


SHAPES = {
    "cube": (lambda t, a: (t - a) ** 3, lambda a: [a]),
    "fifth": (lambda t, a: (t - a) ** 5 / 3, lambda a: [a]),
    "line": (lambda t, a: 4 * (t - a), lambda a: [a]),
    "touch": (lambda t, a: (t - a) ** 2, lambda a: [a]),
    "two": (lambda t, a: (t - a) ** 2 - 1e-10, lambda a: [a - 1e-5, a + 1e-5]),
    "sine": (lambda t, a: np.sin(40 * (t - a)), lambda a: [a + k * np.pi / 40 for k in range(-30, 31)]),
    "steep": (lambda t, a: np.sin(900 * (t - a)), lambda a: [a + k * np.pi / 900 for k in range(-700, 701)]),
    "kink": (lambda t, a: np.abs(t - a) - 0.05, lambda a: [a - 0.05, a + 0.05]),
    "corner": (lambda t, a: np.where(t < a, 3 * (t - a), t - a), lambda a: [a]),
    "shifted": (lambda t, a: 1e6 * (t - a) + 0 * t, lambda a: [a]),
}


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("name", sorted(SHAPES))
@settings(max_examples=12, deadline=None)
@given(place=st.floats(-0.9, 0.9), other=st.booleans())
def test_an_enclosure_encloses_the_zeros_of_the_function(name: str, kind: Any, place: float, other: bool) -> None:
    shape, zeros = SHAPES[name]
    a = float(np.float32(place))

    def function(t: np.ndarray) -> np.ndarray:
        x = t.astype(kind)
        return np.stack([x, shape(x, kind(a))] + [shape(x, kind(-a))] * other, axis=1).astype(kind)

    net = Network([[[0.0, 1.0] + [0.0] * other], [[1.0]]], [[0.0], [0.0]])
    curve = Curve(function, (-1.0, 1.0))
    found = regions_along(net, curve)
    low, high = found.enclosures.T
    roots = np.array([x for x in zeros(a) if -1 < x < 1])
    held = (roots[:, None] >= low) & (roots[:, None] <= high)
    # what cannot be told from zero up to an end of the interval is no breakpoint inside of it
    to_end = np.linspace(roots, np.where(roots < 0, -1.0, 1.0), 50)
    flat = np.abs(shape(to_end, a)).max(axis=0) <= 8 * curve.residual
    assert (held.any(axis=1) | flat).all()
    assert found.undecided or held.any(axis=1).all()
    assert (low <= found.breakpoints).all() and (found.breakpoints <= high).all()
    assert (high[:-1] < low[1:]).all()
    if not found.undecided:
        assert len(found.breakpoints) == len(roots)


def test_the_examples_of_noise() -> None:
    net = one_layer([[0.0, 1.0, 0.0]])
    cube = regions_along(net, Curve(lambda t: np.stack([t, t**3], axis=1), (-1.0, 1.0)))
    assert cube.num_regions == 2 and cube.enclosures[0, 0] < 0 < cube.enclosures[0, 1] < 1e-4
    for frequency in (200, 250, 300, 2000):
        wave = Curve(lambda t, w=frequency: np.stack([t, np.sin(w * t)], axis=1), (0.0, 1.0))
        assert wave.residual < 1e-11
        assert regions_along(net, wave).num_regions == int(frequency / np.pi) + 1
    single = Curve(lambda t: np.stack([t, np.sin(7 * t)], axis=1).astype(np.float32), (-1.0, 1.0))
    assert 1e-8 < single.residual < 1e-5
    assert regions_along(net, single).num_regions == 6


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(6))
def test_enclosures_hold_the_certified_breakpoints(seed: int, kind: Any) -> None:
    net = Network.random((2, 6, 5, 1), seed)
    start = float(np.random.default_rng(seed).uniform(-3, 0))
    ends = (start, start + 2 * np.pi)
    exact = regions_along(net, Circle(interval=ends))
    curve = Curve(lambda t: np.stack([np.cos(t), np.sin(t)], axis=1).astype(kind), ends)
    found = regions_along(net, curve)
    assert curve.closed
    low, high = found.enclosures.T
    held = (exact.breakpoints[:, None] >= low) & (exact.breakpoints[:, None] <= high)
    assert held.any(axis=1).all()
    if not found.undecided:
        assert found.neurons == exact.neurons and found.num_regions_closed == exact.num_regions_closed


def test_lengths_and_geodesics() -> None:
    for curve, same in AS_FUNCTIONS.values():
        t = np.linspace(*curve.interval, 9)
        assert np.allclose(curve.arc_length(t), same.arc_length(t), atol=1e-12)
        assert np.allclose(curve.derivative(t), same.derivative(t), atol=1e-9)
        assert np.allclose(curve.speed(t), np.linalg.norm(curve.derivative(t), axis=1))
    assert np.allclose(Circle().geodesic([-3.0], [3.0]), 2 * np.pi - 6)
    assert np.allclose(Tractrix().geodesic([-1.0], [1.0]), 2 * np.log(np.cosh(1)))
    assert AS_FUNCTIONS["circle"][1].closed and not AS_FUNCTIONS["tractrix"][1].closed
    found = regions_along(one_layer([[0.0, 1.0, -0.5]]), Circle())
    assert np.allclose(found.distance([np.pi / 2, -np.pi / 2]), [np.pi / 3, 2 * np.pi / 3])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_functions() -> None:
    with pytest.raises(InputError, match="jump of 1 near t = "):
        Curve(lambda t: np.stack([np.sign(t), t], axis=1), (-1.0, 1.0))
    with pytest.raises(InputError, match=r"near t = 0\.3"):
        Curve(lambda t: np.stack([np.sign(t - 0.3), t], axis=1), (-1.0, 1.0))
    with pytest.raises(InputError, match=r"jump by about .* everywhere"):
        Curve(lambda t: np.random.default_rng(0).normal(size=(len(t), 2)), (-1.0, 1.0))
    with pytest.raises(InputError, match="endless wiggles"):
        Curve(lambda t: np.stack([t, np.sin(1 / (t + 1 + 1e-9))], axis=1), (-1.0, 1.0))
    with pytest.raises(InputError, match="jump"):  # in float32 the parameter stands still for a while
        Curve(lambda t: np.stack([t, t], axis=1).astype(np.float32), (1e6, 1e6 + 1))
    with pytest.raises(InputError, match="finite points"):
        Curve(lambda t: np.stack([np.sqrt(t), t], axis=1), (-1.0, 1.0))
    with pytest.raises(InputError, match="points"):
        Curve(lambda t: "no", (0.0, 1.0))
    with pytest.raises(InputError, match="in order"):
        Curve(np.sin, (1.0, 0.0))
    with pytest.raises(InputError, match="a function of t"):
        Curve(3, (0.0, 1.0))  # type: ignore[arg-type]


def test_bad_planes() -> None:
    for kind in (Circle, Tractrix):
        with pytest.raises(InputError, match="positive size"):
            kind(None, -1.0)
        with pytest.raises(InputError, match="orthonormal"):
            kind(plane=[[1.0, 0.0], [1.0, 0.0]])
        with pytest.raises(InputError, match="expected 3 coordinates"):
            kind(center=[0.0, 0.0], plane=np.eye(2, 3))
        with pytest.raises(InputError, match="n >= 2"):
            kind(center=[0.0])
        with pytest.raises(InputError, match=r"R\^3 for this network, got R\^2"):
            regions_along(Network.random((3, 2, 1), 0), kind())
    with pytest.raises(InputError, match="one turn"):
        Circle(interval=(0.0, 7.0))
    with pytest.raises(InputError, match="-300"):
        Tractrix(interval=(-1.0, 1000.0))


def test_a_plane_whose_products_overflow_is_refused() -> None:
    with pytest.raises(InputError, match="expected two orthonormal rows"):
        Circle(plane=[[1e200, 1e200], [1e200, -1e200]])
