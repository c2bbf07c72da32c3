"""Along segments: pools behind ReLU, residuals, decimals, twins one ulp apart, all scales; compared with fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Polyline, Segment
from fiberscope.geometry.curves.firm import straight_breaks
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import FloatArray

from .oracle import along

MANY = settings(max_examples=150, deadline=None)
STYLES = ("decimal", "twins", "integer", "normal", "wild", "tiny", "huge")


def numbers(rng: np.random.Generator, shape: tuple[int, ...], style: str) -> FloatArray:
    """Numbers that floats do not hold, or hold badly."""
    if style == "integer":
        return rng.integers(-2, 3, shape).astype(np.float64)
    if style == "normal":
        return rng.normal(size=shape)
    decimals = np.round(rng.normal(size=shape), 1)
    if style == "wild":
        return np.asarray(decimals * 10.0 ** rng.integers(-18, 19, shape))
    if style in ("tiny", "huge"):
        return np.asarray(decimals * (1e-200 if style == "tiny" else 1e150))
    return decimals


def layer(rng: np.random.Generator, rows: int, columns: int, style: str) -> tuple[FloatArray, FloatArray]:
    W, b = numbers(rng, (rows, columns), style), numbers(rng, (rows,), style)
    if style == "twins" and rows > 1:  # two neurons that differ by one unit in the last place
        W[1], b[1] = W[0], b[0]
        k = int(rng.integers(columns))
        W[1, k] = np.nextafter(W[1, k], rng.choice([-np.inf, np.inf]))
    return W, b


@st.composite
def programs(draw: Any, inputs: int | None = None) -> Network:
    """Affine, ReLU and pool, with a residual or a concatenation in front of the pool, and more behind it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    style = draw(st.sampled_from(STYLES))
    n, width = inputs or draw(st.integers(1, 4)), draw(st.integers(2, 4))
    slope = draw(st.sampled_from([0.0, 0.0, 0.0, 0.25]))
    W, b = layer(rng, width, n, style)
    nodes: list[Node] = [Affine(0, Dense(W), b), PiecewiseLinear(1, np.full(width, slope), (width,))]
    kind = draw(st.sampled_from(["plain", "sum", "side", "deep"]))
    if kind in ("sum", "side"):
        V, c = layer(rng, width, n, style)
        nodes += [Affine(0, Dense(V), c), PiecewiseLinear(3, np.zeros(width), (width,))]
        nodes.append(Add((2, 4), (width,)) if kind == "sum" else Concat((2, 4), ((width,), (width,))))
    elif kind == "deep":
        V, c = layer(rng, width, width, style)
        nodes += [Affine(2, Dense(V), c), PiecewiseLinear(3, np.zeros(width), (width,))]
    size = 2 * width if kind == "side" else width
    window = draw(st.integers(2, min(3, size)))
    nodes.append(MaxPool(len(nodes), (1, 1, size), (1, window), (1, draw(st.integers(1, 2)))))
    pooled = int(np.prod(nodes[-1].shape))
    if draw(st.booleans()):
        nodes += [
            Affine(len(nodes), Dense(*layer(rng, 2, pooled, style)[:1])),
            PiecewiseLinear(len(nodes) + 1, np.zeros(2), (2,)),
        ]
    return Network.from_nodes(nodes, (n,))


def ends(rng: np.random.Generator, count: int, n: int) -> FloatArray:
    style = rng.choice(["integer", "decimal", "normal", "wild"])
    return numbers(rng, (count, n), str(style))


def check(net: Network, points: FloatArray) -> None:
    chain = Polyline(points)
    truth = along(net, points)
    closing = [Fraction(len(points) - 1)] if truth.closing else []
    for found in (regions_along(net, chain).found, straight_breaks(net, chain)):
        assert found.exact is not None and found.undecided == 0
        assert [found.exact(i) for i in range(len(found.t))] == truth.t + closing
        assert [tuple(found.neurons[i].tolist()) for i in range(len(found.t))] == truth.makers + [truth.closing] * len(
            closing
        )
        assert found.signs().tolist() == [list(s) for s in truth.signs]


@MANY
@given(st.data())
def test_programs_with_pools_along_segments_are_those_of_fractions(data: st.DataObject) -> None:
    net = data.draw(programs())
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    points = ends(rng, data.draw(st.integers(2, 3)), net.in_size)
    if (points[1:] == points[:-1]).all(axis=1).any():
        return
    check(net, points)


def test_a_positive_neuron_that_rounds_to_zero_is_not_dead() -> None:
    rows = [[0.3, 0.5, -0.3, 0.4], [0.1, -0.2, -0.1, 0.9], [0.1, -0.20000000000000004, -0.1, 0.9]]
    nodes = [
        Affine(0, Dense(np.array(rows)), np.array([-0.7, 0.2, 0.2])),
        PiecewiseLinear(1, np.zeros(3), (3,)),
        MaxPool(2, (1, 1, 3), (1, 3), (1, 1)),
    ]
    net = Network.from_nodes(nodes, (4,))
    found = regions_along(net, Segment([-0.6, 1.2, 1.2, -1.0], [0.2, -1.7, 1.6, 1.9]))
    assert found.num_regions == 4 and found.certified
    check(net, np.array([[-0.6, 1.2, 1.2, -1.0], [0.2, -1.7, 1.6, 1.9]]))


def test_an_active_neuron_that_rounds_to_zero_between_its_ends_has_an_error() -> None:
    # x rounds to 0 where y vanishes; there it is 10, and the next neuron x - 5 still positive
    net = Network([np.eye(2), [[1.0, 0.0]], [[1.0]]], [[0.0, 0.0], [-5.0], [0.0]])
    points = np.array([[1e18, 1e17], [1e-3, -1.0]])
    check(net, points)
    assert regions_along(net, Segment(*points)).neurons == ((1,), (2,))


@pytest.mark.parametrize("scale", [1e16, 1.0, 1e-16])
def test_one_scale_of_pooled_decimals_is_like_another(scale: float) -> None:
    rng = np.random.default_rng(7)
    for seed in range(40):
        draw = np.random.default_rng(seed)
        W, b = layer(draw, 3, 2, "twins")
        nodes = [
            Affine(0, Dense(W * scale), b * scale),
            PiecewiseLinear(1, np.zeros(3), (3,)),
            MaxPool(2, (1, 1, 3), (1, 3), (1, 1)),
        ]
        check(Network.from_nodes(nodes, (2,)), np.round(rng.normal(size=(2, 2)) * 2, 1))


def test_a_normal_that_floats_lost_is_no_proof_of_invisibility() -> None:
    # the second neuron vanishes alone, with a gradient of 1e-400
    net = Network([[[1e-200]], [[1e-200]], [[1.0]]], [[0.0], [-1e-310], [0.0]])
    found = regions_along(net, Segment([1.0], [1e100]))
    assert found.neurons == ((1,),)
    assert found.visible.tolist() == [True]
