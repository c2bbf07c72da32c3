"""Segments and polylines: exact counts against bisection, rational oracles, laws, degenerate networks."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.geometry.curves import straight
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.breakpoints import Breaks
from fiberscope.geometry.curves.chain import polyline_breaks
from fiberscope.geometry.curves.curve import Polyline, Segment
from fiberscope.geometry.curves.firm import straight_breaks
from fiberscope.geometry.curves.straight import NearLines
from fiberscope.geometry.engines.planar.tracked import Tracked
from fiberscope.network.action.chain import permute, rescale
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.testing import strategies as nets
from fiberscope.testing.cases import CASES, case

QUICK = settings(max_examples=60, deadline=None)


def fact_network(widths: tuple[int, ...], seed: int) -> tuple[Network, Segment]:
    """The recipe of the measured facts: numbers rounded to float32."""
    net = Network.random(widths, seed)
    rng = np.random.default_rng(10000 + seed)
    ends = [rng.normal(size=widths[0]).astype(np.float32).astype(np.float64) for _ in range(2)]
    weights, biases = ([x.astype(np.float32).astype(np.float64) for x in y] for y in (net.weights, net.biases))
    return Network(weights, biases), Segment(*ends)


def chain_zeros(net: Network, a: FloatArray, b: FloatArray) -> list[Fraction]:
    """The slow oracle: all breakpoints of a chain in rational arithmetic, layer by layer, by definition."""
    points = [Fraction(0), Fraction(1)]
    ends = [[Fraction(float(v)) for v in x] for x in (a, b)]
    values = [[x + t * (y - x) for x, y in zip(*ends, strict=True)] for t in points]
    marked: set[Fraction] = set()
    for index, (W, bias) in enumerate(zip(net.weights[:-1], net.biases[:-1], strict=True)):
        slopes = [Fraction(float(s)) for s in net.switches[index].slopes]  # type: ignore[union-attr]
        z = [[sum(Fraction(float(w)) * v for w, v in zip(row, x, strict=True)) + Fraction(float(c))
              for row, c in zip(W, bias, strict=True)] for x in values]  # fmt: skip
        new = set(points)
        for (s, t), (p, q) in zip(pairwise(points), pairwise(z), strict=True):
            for x, y, slope in zip(p, q, slopes, strict=True):
                if slope != 1 and x != y and (x <= 0 <= y or y <= 0 <= x):
                    root = s + (t - s) * x / (x - y)
                    new.add(root)
                    marked.add(root)
        order = sorted(new)
        place = [max(k for k, s in enumerate(points[:-1]) if s <= t) for t in order]
        z = [[x + (t - points[k]) / (points[k + 1] - points[k]) * (y - x) for x, y in zip(z[k], z[k + 1], strict=True)]
             for t, k in zip(order, place, strict=True)]  # fmt: skip
        values = [[v if v > 0 else s * v for v, s in zip(x, slopes, strict=True)] for x in z]
        points = order
    return sorted(marked - {Fraction(0), Fraction(1)})


@QUICK
@given(st.data())
def test_breakpoints_are_those_of_rational_arithmetic(data: st.DataObject) -> None:
    net = data.draw(nets.chains(max_width=4, max_hidden=3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    a, b = rng.integers(-3, 4, (2, net.in_size)) / 2.0 if rng.random() < 0.5 else rng.normal(size=(2, net.in_size))
    if (a == b).all():
        return
    found = regions_along(net, Segment(a, b))
    expected = chain_zeros(net, a, b)
    assert [found.exact_breakpoint(i) for i in range(found.num_regions - 1)] == expected
    assert found.certified
    box = [(Fraction(float(lo)), Fraction(float(hi))) for lo, hi in found.enclosures]
    assert all(lo <= t <= hi for (lo, hi), t in zip(box, expected, strict=True))


def bisected(net: Network, curve: Segment, samples: int) -> int:
    """Sign changes between samples, each interval with a change halved until it is short: a lower bound."""
    t = np.linspace(*curve.interval, samples)
    for _ in range(30):
        signs = net.signs(curve(t)).signs
        split = np.flatnonzero((signs[1:] != signs[:-1]).sum(axis=1) > 1)
        if not len(split):
            break
        t = np.sort(np.concatenate([t, 0.5 * (t[split] + t[split + 1])]))
    signs = net.signs(curve(t)).signs
    return int((signs[1:] != signs[:-1]).any(axis=1).sum()) + 1


@pytest.mark.parametrize("seed", range(8))
def test_generic_counts_equal_bisection(seed: int) -> None:
    net = Network.random((3, 8, 8, 1), seed)
    curve = Segment(*np.random.default_rng(seed).normal(size=(2, 3)))
    assert regions_along(net, curve).num_regions == bisected(net, curve, 2001)


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_kind_of_network(name: str) -> None:
    net = case(name)
    rng = np.random.default_rng(5)
    for ends in (rng.normal(size=(2, net.in_size)), rng.integers(-2, 3, (2, net.in_size)) * 1.0 + [[0.0], [0.5]]):
        curve = Segment(*ends)
        found = regions_along(net, curve)
        middles = found.intervals.mean(axis=1)
        long_enough = np.diff(found.intervals)[:, 0] > 1e-9
        assert (net.signs(curve(middles)).signs == found.signs)[long_enough].all()
        matrices, _ = found.affine_maps
        kinks = np.abs(np.diff(matrices, axis=0)).max(axis=(1, 2), initial=0.0) > 1e-9
        assert (kinks == found.visible).all()
        assert found.num_pieces == kinks.sum() + 1
        assert np.isclose(found.lengths.sum(), curve.length)
        t = curve.interval[0] + np.diff(curve.interval) * rng.random(40)
        for k, x in zip(found.region_at(t).tolist(), curve(t), strict=True):
            assert np.allclose(found.affine_map(k)([x]), net([x]))


def test_weights_are_those_of_the_facets() -> None:
    net = Network([[[3.0, 4.0]], [[2.0]]], [[-5.0], [0.0]])
    found = regions_along(net, Segment([0.0, 0.0], [3.0, 0.0]))
    assert found.neurons == ((0,),)
    assert np.allclose(found.weights, [[10.0]])  # 2 |(3, 4)|, however the segment meets the line
    back = regions_along(net, Segment([3.0, 0.0], [0.0, 0.0]))
    assert np.allclose(back.weights, [[10.0]])


@QUICK
@given(st.data())
def test_a_polyline_is_its_segments(data: st.DataObject) -> None:
    net = data.draw(nets.chains(max_width=4, max_hidden=2))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    points = rng.integers(-3, 4, (5, net.in_size)) / 2.0
    points = points[np.append(True, (np.diff(points, axis=0) != 0).any(axis=1))]
    if len(points) < 3:
        return
    whole = regions_along(net, Polyline(points))
    inner = [i for i in range(whole.num_regions - 1) if whole.exact_breakpoint(i).denominator != 1]
    parts = [regions_along(net, Segment(a, b)) for a, b in pairwise(points)]
    exact = [k + part.exact_breakpoint(i) for k, part in enumerate(parts) for i in range(part.num_regions - 1)]
    assert [whole.exact_breakpoint(i) for i in inner] == exact
    zeros = net.signs(points).signs == 0
    for i in set(range(whole.num_regions - 1)) - set(inner):
        assert set(whole.neurons[i]) <= set(np.flatnonzero(zeros[int(whole.exact_breakpoint(i))]).tolist())


@QUICK
@given(st.data())
def test_counts_survive_permutation_and_rescaling(data: st.DataObject) -> None:
    net = data.draw(nets.chains(max_width=4, max_hidden=2))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    ends = rng.normal(size=(2, net.in_size))
    curve = Segment(*ends)
    orders = [rng.permutation(n) for n in net.widths[1:-1]]
    scales = [2.0 ** rng.integers(-3, 4, n) for n in net.widths[1:-1]]
    expected = regions_along(net, curve)
    for other in (permute(net, orders), rescale(net, scales)):
        found = regions_along(other, curve)
        assert found.num_regions == expected.num_regions
        assert found.num_pieces == expected.num_pieces
        exact = [[x.exact_breakpoint(i) for i in range(x.num_regions - 1)] for x in (found, expected)]
        assert exact[0] == exact[1]


def test_counts_of_the_facts() -> None:
    net, curve = fact_network((784, 256, 64, 1), 0)
    assert regions_along(net, curve).num_regions == 177


@pytest.mark.parametrize(("seed", "count"), [(0, 790), (1, 747)])
def test_counts_of_the_large_facts(seed: int, count: int) -> None:
    found = regions_along(*fact_network((784, 512, 512, 512, 10), seed))
    assert found.num_regions == count
    assert found.certified


def test_neurons_that_vanish_on_the_whole_segment() -> None:
    net = Network([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    found = regions_along(net, Segment([-1.0, 0.0], [1.0, 0.0]))
    assert found.signs.tolist() == [[0, -1], [0, 1]]
    assert found.neurons == ((1,),)


def test_deep_networks_use_tight_bounds() -> None:
    net = Network.random((4, *[24] * 10, 1), 3)
    curve = Segment(*np.random.default_rng(3).normal(size=(2, 4)) * 2)
    found = regions_along(net, curve)
    assert found.num_regions >= bisected(net, curve, 2001)


def test_bad_input() -> None:
    net = Network.random((3, 4, 1), 0)
    with pytest.raises(InputError, match="length zero"):
        Segment([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(InputError, match=r"R\^3 for this network, got R\^2"):
        regions_along(net, Segment([0.0, 0.0], [1.0, 0.0]))
    with pytest.raises(InputError, match="points 1 and 2 equal"):
        Polyline([[0.0], [1.0], [1.0]])
    with pytest.raises(InputError, match="finite"):
        Segment([0.0, np.nan], [1.0, 0.0])
    with pytest.raises(InputError, match="one size"):
        Segment([0.0, 1.0], [1.0])
    with pytest.raises(InputError, match="expected a Segment"):
        regions_along(net, [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least two points"):
        Polyline([[0.0, 1.0]])
    with pytest.raises(InputError, match="parameters in"):
        Segment([0.0], [1.0])([1.5])


@pytest.mark.parametrize("seed", range(5))
def test_the_short_way_is_the_general_one(seed: int) -> None:
    net = Network.random((5, 20, 20, 20, 2), seed)
    curve = Segment(*np.random.default_rng(seed).normal(size=(2, 5)) * 2)
    short, general = polyline_breaks(net, curve), straight_breaks(net, curve)
    assert short.by_exact == 0 and len(short.t) > 10
    assert np.allclose(short.t, general.t, atol=1e-12)
    assert short.neurons.indices.tolist() == general.neurons.indices.tolist()
    assert short.neurons.indptr.tolist() == general.neurons.indptr.tolist()


def test_a_kink_met_together_with_an_invisible_one_across_it_is_visible() -> None:
    # relu(y), and a neuron x that nobody listens to: through the origin both vanish, and x is the first.
    net = Network([np.eye(2), [[0.0, 1.0]]], [[0.0, 0.0], [0.0]])
    found = regions_along(net, Segment([-1.0, -1.0], [1.0, 1.0]))
    assert found.neurons == ((0, 1),)
    assert found.visible.tolist() == [True]
    assert found.num_pieces == 2


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_lengths_whose_squares_leave_the_floats(scale: float) -> None:
    net = Network([np.eye(2), np.ones((1, 2))], [np.zeros(2), np.zeros(1)])
    found = regions_along(net, Segment([-3 * scale, -4 * scale], [3 * scale, 4 * scale]))
    assert np.allclose(found.lengths / scale, [5.0, 5.0])
    assert np.allclose(found.distance([0.25]) / scale, 2.5)


def test_places_outside_of_the_curve_have_no_region() -> None:
    found = regions_along(Network.random((2, 3, 1), 0), Segment([0.0, 0.0], [1.0, 1.0]))
    for t in (1.5, np.nan):
        with pytest.raises(InputError, match="t: expected"):
            found.region_at([t])


def test_a_list_is_no_network() -> None:
    with pytest.raises(InputError, match=r"net: expected a Network, .* got list"):
        regions_along([], Segment([0.0], [1.0]))


def told(breaks: Breaks) -> tuple:
    exact = [breaks.exact(i) for i in range(len(breaks.t))]
    low, high = [Fraction(x) for x in breaks.lower.tolist()], [Fraction(x) for x in breaks.upper.tolist()]
    assert all(a <= x <= b for a, x, b in zip(low, exact, high, strict=True))
    return exact, [breaks.neurons[i].tolist() for i in range(len(exact))], breaks.signs().tolist()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_pairs_of_floats_decide_as_integers(seed: int, blind: bool) -> None:
    """Doubled and tripled neurons, twins one unit apart, kinks that meet; with ``blind`` floats decide nothing."""
    rng = np.random.default_rng(seed)
    widths = (2, 4, 4, 1)
    weights = [rng.integers(-3, 4, (b, a)) * rng.choice([1.0, 0.1, 1 / 3]) for a, b in pairwise(widths)]
    biases = [rng.integers(-2, 3, b) * rng.choice([1.0, 0.1]) for b in widths[1:]]
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        factor = rng.choice([1.0, -1.0, 2.0, 3.0])
        w[1], b[1] = factor * w[0], factor * b[0]
        b[1] = rng.choice([b[1], np.nextafter(b[1], 9.0)])
        w[3, 0] = np.nextafter(w[3, 0], 9.0)
    net = Network(weights, biases)
    curve = Polyline(rng.integers(-2, 3, (3, 2)) + np.array([[0.0, 0.0], [0.5, 0.1], [7.0, 7.0]]))

    def unsure(z: FloatArray) -> Tracked:
        return Tracked(z, np.full(len(z), 1e3), np.full(len(z), 1e3), np.ones(z.shape[1]))

    with pytest.MonkeyPatch.context() as patch:
        if blind:
            patch.setattr(straight, "Tracked", SimpleNamespace(exact=unsure))
        near = told(straight_breaks(net, curve))
        patch.setattr(straight, "NearLines", lambda *_: None)
        assert told(straight_breaks(net, curve)) == near


def test_one_functional_is_a_preactivation() -> None:
    net, curve = fact_network((5, 7, 6, 3), 1)
    x = 0.75 * curve.points[0] + 0.25 * curve.points[1]
    values = [z[0] for z in net.preactivations(x[None])]
    signs = [np.sign(z).astype(np.int8) for z in values]
    near = NearLines(net, curve.points)
    for layer, value in enumerate(values):
        for j in range(len(value)):
            a, b, c = near.functional(signs[:layer], 0, j).high[:, 0]
            assert 0.75 * a + 0.25 * b + c == pytest.approx(value[j])


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_counts_do_not_depend_on_the_parametrisation(seed: int) -> None:
    """Backwards, or with more vertices: the same breakpoints at other parameters; more neurons lose none."""
    rng = np.random.default_rng(seed)
    shapes = [(6, 2), (5, 6), (1, 5)]
    weights = [np.round(4 * rng.normal(size=shape)) / 4 for shape in shapes]
    biases = [np.round(4 * rng.normal(size=len(w))) / 4 for w in weights]
    net, ends = Network(weights, biases), np.round(2 * rng.normal(size=(2, 2)))
    ends[1] += (ends[0] == ends[1]).all()
    middle = ends.mean(axis=0)  # of whole numbers: exact
    places = exact_places(net, ends)
    assert exact_places(net, ends[::-1])[::-1] == [1 - t for t in places]  # type: ignore[operator]
    halves = exact_places(net, np.array([ends[0], middle, ends[1]]))
    assert [t / 2 for t in halves] == places  # type: ignore[operator]
    weights[0], biases[0] = np.vstack([weights[0], rng.normal(size=2)]), np.append(biases[0], 0.5)
    weights[1] = np.hstack([weights[1], np.zeros((5, 1))])
    assert set(places) <= set(exact_places(Network(weights, biases), ends))


def exact_places(net: Network, points: FloatArray) -> list[object]:
    found = straight_breaks(net, Polyline(points))
    assert found.exact is not None
    return [found.exact(i) for i in range(len(found.t))]
