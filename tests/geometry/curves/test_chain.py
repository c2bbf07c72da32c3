"""The short way: everything that floats say is within the stated bound of the exact values at the exact breakpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.geometry.curves import chain
from fiberscope.geometry.curves.chain import polyline_breaks
from fiberscope.geometry.curves.curve import Polyline, Segment
from fiberscope.geometry.curves.firm import straight_breaks
from fiberscope.network.convolutions import Convolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import ENTRY_FLOOR, FloatArray, gamma

Rows = list[list[Fraction]]


def exact_layers(net: Network, points: FloatArray) -> Iterator[tuple[list[Fraction], Rows]]:
    """Parameters of all points so far and the exact preactivations there, layer by layer, by definition."""
    t = [Fraction(i) for i in range(len(points))]
    values = [[Fraction(x) for x in row] for row in points.tolist()]
    for W, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        rows = [[Fraction(x) for x in row] for row in W.tolist()]
        offset = [Fraction(x) for x in b.tolist()]
        z = [
            [sum((w * x for w, x in zip(row, v, strict=True)), c) for row, c in zip(rows, offset, strict=True)]
            for v in values
        ]
        yield t, z
        places = {}
        for k, (one, two) in enumerate(pairwise(z)):
            for x, y in zip(one, two, strict=True):
                if x * y < 0:
                    share = x / (x - y)
                    new = [p + share * (q - p) for p, q in zip(one, two, strict=True)]
                    places[t[k] + share * (t[k + 1] - t[k])] = new
        places |= dict(zip(t, z, strict=True))
        t = sorted(places)
        values = [[max(x, Fraction(0)) for x in places[x]] for x in t]


@contextmanager
def watched(net: Network, points: FloatArray, layers: list[int], spoil: float = 0.0) -> Iterator[None]:
    """Every layer that floats decide is compared with the exact one."""
    exact = exact_layers(net, points)
    scan = chain.scan

    def compared(z: Any, e2: Any, norm: Any, rounding: Any, r: Any, floor: float, c: Any, counts: Any) -> int:
        if layers:
            z[1, 0] *= 1 + spoil
        new = int(scan(z, e2, norm, rounding, r, floor, c, counts))
        if new >= 0:
            t, told = next(exact)
            assert len(t) == len(z)
            for v, row in enumerate(told):
                for j, x in enumerate(row):
                    bound = Fraction(float(c[v])) * Fraction(float(r[j])) + Fraction(ENTRY_FLOOR)
                    assert abs(Fraction(float(z[v, j])) - x) <= bound
            layers.append(new)
        return new

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "scan", compared)
        yield


def network(rng: np.random.Generator, widths: tuple[int, ...], kind: str) -> Network:
    """Random rows; opposite and nearly equal ones, rows of different sizes, or neurons that hardly change."""
    weights, biases = [], []
    for fan_in, width in pairwise(widths):
        W, b = rng.normal(size=(width, fan_in)), rng.normal(size=width) / 2
        match kind:
            case "twins":
                W[1::2], b[1::2] = -W[: width // 2 * 2 : 2], -b[: width // 2 * 2 : 2] * (1 + 1e-7)
            case "uneven":
                sizes = 10.0 ** rng.integers(-6, 7, width)
                W, b = W * sizes[:, None], b * sizes
            case "flat":
                W[::2] *= 1e-9
        weights.append(W)
        biases.append(b)
    return Network(weights, biases)


@settings(max_examples=40)
@given(
    st.integers(0, 10**6), st.sampled_from(["plain", "twins", "uneven", "flat"]),
    st.sampled_from([1.0, 2.0**-40, 2.0**60]), st.integers(2, 4),
)  # fmt: skip
def test_values_are_within_their_bounds_of_the_exact_ones(seed: int, kind: str, scale: float, count: int) -> None:
    rng = np.random.default_rng(seed)
    net = network(rng, (3, 7, 6, 5, 4, 1), kind)
    points = rng.normal(size=(count, 3)) * 2 * scale
    with watched(net, points, []):
        polyline_breaks(net, Polyline(points))


@settings(max_examples=300)
@given(st.integers(0, 10**6), st.sampled_from([1e-1, 1e-3, 1e-6]))
def test_bounds_between_old_points_hold_for_errors_as_large_as_they_may_be(seed: int, error: float) -> None:
    """The kernels alone, with errors far above rounding: true values anywhere within theirs."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(3, 6)) * rng.choice([1.0, 0.1, 10.0], 6)
    z[:, :2] = z[:1, :2] + z[:, :2] * 0.3  # these change little: their zeros are badly known
    r, c = np.abs(z).max(axis=0) * rng.uniform(0.2, 1, 6) + 1e-3, error * rng.uniform(0, 1, 3)
    true = z + c[:, None] * r * rng.choice([-1.0, 1.0], z.shape)
    if not (np.abs(z) > c[:, None] * r * 1.01).all():
        return
    counts = ((z[1:] > 0) != (z[:-1] > 0)).sum(axis=1)
    total = 3 + int(counts.sum())
    t, bad, part, slip, e2, norm = np.zeros((6, total))
    maker, room = np.empty(total, dtype=np.int64), (np.empty((2, 6)), np.empty((2, 6), dtype=np.int64))
    start = (np.arange(3.0), np.zeros(3), np.full(3, -1))
    if not chain.cut(z, c, r, 0.0, counts, *start, 0, *room[0], *room[1], t, bad, maker, part, slip):
        return
    out = np.empty_like(z)
    whole = np.linalg.norm(true - z, axis=1) * (1 + 1e-12)  # as small as it may be
    chain.follow(z, c, whole, r, 1 / r, counts, maker, 0, slip, out, e2, norm)
    assert (out == np.maximum(z, 0)).all()
    W, b = rng.normal(size=(4, 6)), rng.normal(size=4)
    made, size = np.empty((total, 4)), np.hypot(norm, 1)
    rounding = gamma(12) * size
    columns = np.ascontiguousarray(W[:, maker[maker >= 0]].T)
    chain.fill(z, counts, maker, 0, part, out @ W.T + b, columns, size, made, rounding, np.empty((2, 4)))
    row = 0
    for v in range(3):
        here = [(row, np.maximum(z[v], 0), np.maximum(true[v], 0))]
        inside = range(row + 1, row + 1 + (int(counts[v]) if v < 2 else 0))
        for k in inside:
            x, y = z[v], z[v + 1]
            order = {int(maker[m]): m for m in inside}
            awake = [(x[j] > 0) if j not in order else order[j] != k and (order[j] < k) == (y[j] > 0) for j in range(6)]
            own = int(maker[k])
            share = true[v, own] / (true[v, own] - true[v + 1, own])
            exact = true[v] + share * (true[v + 1] - true[v])
            exact[own] = 0.0
            here.append((k, np.where(awake, x + part[k] * (y - x), 0.0), np.maximum(exact, 0)))
        for k, floats, exact in here:
            assert np.linalg.norm(floats - exact) <= e2[k] * (1 + 1e-9) + 1e-14
            assert np.linalg.norm(floats) <= norm[k]
            sizes = np.hypot(np.linalg.norm(W, axis=1), b)
            assert (np.abs(made[k] - (W @ floats + b)) <= 2 * rounding[k] * sizes).all()
            assert rounding[k] < 1e-12 * (1 + norm[k])
        row += len(here)


def test_layers_are_really_compared_and_a_wrong_value_is_noticed() -> None:
    net = Network.random((3, 12, 8, 6, 1), 0)
    points = np.array([[-2.0, -1.0, 1.0], [1.0, 2.0, -1.0]])
    layers: list[int] = []
    with watched(net, points, layers):
        found = polyline_breaks(net, Polyline(points))
    assert len(layers) == 3 and layers[0] > 3 and sum(layers) == len(found.t)
    with watched(net, points, layers, spoil=1e-12), pytest.raises(AssertionError):
        polyline_breaks(net, Polyline(points))


def convolutional(rng: np.random.Generator, groups: int, stride: int, padding: int) -> Network:
    """Two convolutions with ReLUs on 1 x 5 x 5 pixels."""
    one = Convolution(rng.normal(size=(4, 1, 3, 3)), (1, 5, 5), (1, 1), (padding,) * 4)
    two = Convolution(
        rng.normal(size=(2 * groups, 4 // groups, 2, 2)),
        one.out_shape,
        (stride, stride),
        (0, padding, 0, 0),
        (1, 1),
        groups,
    )
    three = Dense(rng.normal(size=(1, two.out_size)))
    nodes: list[Any] = []
    for operator in (one, two):
        bias = rng.normal(size=(operator.out_shape[0], 1, 1)) / 4
        nodes.append(Affine(len(nodes), operator, bias))
        nodes.append(PiecewiseLinear(len(nodes), np.zeros(operator.out_size), operator.out_shape))
    return Network.from_nodes([*nodes, Affine(len(nodes), three, np.zeros(1))], (1, 5, 5))


@pytest.mark.parametrize("groups, stride, padding", [(1, 1, 0), (2, 1, 1), (4, 2, 1), (1, 2, 0)])
def test_convolutions_are_their_matrices(groups: int, stride: int, padding: int) -> None:
    rng = np.random.default_rng(groups + stride)
    net = convolutional(rng, groups, stride, padding)
    points, layers = rng.normal(size=(3, 25)), []
    with watched(net.as_mlp(), points, layers):
        found = polyline_breaks(net, Polyline(points))
    general = chain.straight_breaks(net, Polyline(points))
    assert len(layers) == 2 and found.by_exact == 0
    assert np.allclose(found.t, general.t, atol=1e-12)
    assert found.neurons.indices.tolist() == general.neurons.indices.tolist()


def test_neurons_that_vanish_where_others_do_are_not_decided_in_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal zeros of one layer, a zero of the second layer at one of the first, and one at an end."""
    asked = []
    slow = chain.straight_breaks
    monkeypatch.setattr(chain, "straight_breaks", lambda *a: asked.append(a) or slow(*a))
    one, two = [[1.0], [2.0]], [[1.0], [1.0]]
    for W, b, second, c in [
        (one, [-0.5, -1.0], [[1.0, 1.0]], [1.0]),
        (two, [-0.25, -0.5], [[1.0, -1.0]], [-0.25]),
        (two, [0.0, -0.5], [[1.0, -1.0]], [1.0]),
    ]:
        net = Network([W, second, [[1.0]]], [b, c, [0.0]])
        found = polyline_breaks(net, Segment([0.0], [1.0]))
        assert found.undecided == 0
    assert len(asked) == 3


@pytest.mark.parametrize("scale", [2.0**-400, 2.0**-560, 2.0**-1000])
def test_points_whose_squares_vanish_are_not_taken_for_zero(scale: float) -> None:
    """Preactivations that cancel are rounding there, too, and floats do not know their signs."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        points = rng.normal(size=(3, 6)) * scale
        rows = rng.normal(size=(3, 6))
        rows[:, -1] = -(rows[:, :-1] @ points[0, :-1]) / points[0, -1]
        net = Network([rows, np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
        with watched(net, points, []):
            found = polyline_breaks(net, Polyline(points))
        assert len(found.t) == len(chain.straight_breaks(net, Polyline(points)).t)


@pytest.mark.parametrize("width", [19, 700])
@pytest.mark.parametrize("rows", range(1, 8))
def test_thin_products_and_columns(rows: int, width: int) -> None:
    rng = np.random.default_rng(rows)
    net = Network.random((37, width, 1), rows)
    X, W, b = rng.normal(size=(rows, 37)), net.weights[0], net.biases[0]
    layers = chain._prepared(net)
    assert layers is not None and (layers[0].across is None) == (width == 700)
    bound = gamma(39) * np.hypot(np.linalg.norm(X, axis=1), 1)[:, None] * np.hypot(np.linalg.norm(W, axis=1), b)
    assert (np.abs(layers[0].product(X) - (X @ W.T + b)) <= 2 * bound).all()
    label = rng.integers(0, 37, 11)
    assert (layers[0].columns(label) == W[:, label].T).all()


def test_large_layers_are_within_their_bounds_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "LARGE", 0)
    test_layers_are_really_compared_and_a_wrong_value_is_noticed()


@pytest.mark.parametrize("depth", [4, 8, 12])
def test_deep_chains_take_the_short_way(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Frobenius norms alone the bounds leave signs open behind seven layers."""
    net = Network.random((64, *(64,) * depth, 1), 0)
    points = np.random.default_rng(0).uniform(-1, 1, (2, 64))
    long = straight_breaks(net, Polyline(points))
    monkeypatch.setattr(chain, "straight_breaks", None)
    found = chain.polyline_breaks(net, Polyline(points))
    assert ((found.lower <= long.upper) & (long.lower <= found.upper)).all()
    assert np.array_equal(found.neurons.indices, long.neurons.indices)
