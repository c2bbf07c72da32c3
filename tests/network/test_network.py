"""The network: construction, evaluation, its affine pieces, and the dense view."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.network.mlp import without_pooling
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.testing import CASES, case, fraction_map, fraction_values
from fiberscope.testing.hostile import hostile_batches, programs
from fiberscope.testing.strategies import batches, chains


def points(net: fs.Network, count: int = 6) -> np.ndarray:
    return np.random.default_rng(11).normal(size=(count, net.in_size))


@pytest.mark.parametrize("name", CASES)
def test_evaluation_equals_rational_arithmetic(name):
    net = case(name)
    X = points(net, 2)
    expected = [[float(v) for v in fraction_values(net, x)[-1]] for x in X]
    np.testing.assert_allclose(net(X), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_affine_map_is_the_network_near_the_point(name):
    net = case(name)
    for x in points(net, 3):
        matrix, offset = net.affine_at(x)
        near = x + 1e-9 * np.random.default_rng(0).normal(size=(4, x.size))
        scale = 1 + np.abs(net(near)).max()
        assert np.abs(near @ matrix.T + offset - net(near)).max() <= 1e-12 * scale
        assert net.affine_at(x).boundary == tuple(np.flatnonzero(net.signs(x[None]).signs[0] == 0))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("last", "slope"),
    # what overflows on the way vanishes behind a zero weight, comes back into range, or is itself beyond it
    [(0.0, 0.0), (1e-300, 1e100), (1.0, np.inf), (-1.0, -np.inf)],
)
def test_affine_map_of_a_network_that_overflows_on_the_way(last, slope):
    net = fs.Network([[[1e200]], [[1e200]], [[last]]], [[0.0], [0.0], [3.0]])
    matrix, offset = net.affine_at([1.0])
    assert (matrix.tolist(), offset.tolist()) == ([[slope]], [3.0])


@pytest.mark.filterwarnings("error")
@given(st.data())
def test_affine_maps_are_numbers_and_infinite_only_beyond_the_floats(data):
    net = data.draw(programs())
    for x in data.draw(hostile_batches(net, max_points=2)):
        signs = net.signs(x[None]).signs[0]
        matrix, offset = net.affine_at(x)
        for row, shift, form in zip(matrix, offset, fraction_map(net, signs.tolist()), strict=True):
            for got, exact in zip([*row, shift], form, strict=True):
                assert np.isfinite(got) or (abs(exact) > np.finfo(float).max and (got > 0) == (exact > 0))


@pytest.mark.parametrize("name", CASES)
def test_dense_view_has_the_same_function(name):
    net = case(name)
    chain = net.as_mlp()
    assert chain.is_chain
    X = points(net)
    np.testing.assert_allclose(chain(X), net(X), rtol=1e-11, atol=1e-11)


def test_dense_view_keeps_the_names_of_untouched_layers_only():
    net = case("convolutional")
    assert set(net.as_mlp().parameters) <= {"fc.weight", "fc.bias"}
    assert net.as_mlp().num_parameters < net.num_parameters
    shifted = fs.Network.from_nodes(
        [
            Affine(0, Dense(np.eye(2)), np.array([0.0, 0.0])),
            Affine(1, Dense(np.ones((3, 2))), np.ones(3), "w", "b"),
            PiecewiseLinear(2, np.zeros(3), (3,)),
            Affine(3, Dense(np.ones((1, 3))), np.ones(1), "v", "c"),
        ],
        (2,),
    )
    assert set(shifted.as_mlp().parameters) == {"w", "b", "v", "c"}
    assert shifted.as_mlp().widths == (2, 3, 1)


def test_dense_view_that_is_too_large_is_refused_with_an_estimate():
    with pytest.raises(fs.TooLargeError, match=r"widths 72-108-.* GiB, the limit is 0\.00 GiB"):
        case("convolutional").as_mlp(memory=1000)


@settings(max_examples=40, deadline=None)
@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    size=st.tuples(st.integers(3, 6), st.integers(3, 6)),
    ceil=st.booleans(),
)
def test_pooling_as_activations_is_exact(kernel, stride, size, ceil):
    pool = MaxPool(0, (2, *size), kernel, stride, ceil=ceil)
    net = fs.Network.from_nodes([pool], (2, *size))
    X = np.random.default_rng(0).integers(-9, 10, (5, net.in_size)).astype(float)
    np.testing.assert_array_equal(without_pooling(net)(X), net(X))


def test_max_pool_windows_by_definition():
    pool = MaxPool(0, (1, 3, 3), (2, 2), (2, 2), padding=(1, 1, 0, 0))
    net = fs.Network.from_nodes([pool], (1, 3, 3))
    image = np.arange(9.0).reshape(1, 3, 3)
    assert net(image[None]).tolist() == [[0.0, 2.0, 6.0, 8.0]]
    assert net.num_hidden == 0
    assert net.num_signs == 16


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_pattern_is_the_positive_part_of_the_signs(data):
    net = data.draw(chains())
    X = data.draw(batches(net))
    assert np.array_equal(net.pattern(X), net.signs(X).signs > 0)
    assert [z.shape for z in net.preactivations(X)] == [(len(X), n) for n in net.widths[1:-1]]


def test_sizes():
    net = fs.Network.random((3, 5, 4, 2), 0)
    assert net.num_parameters == 5 * 4 + 4 * 6 + 2 * 5
    assert net.num_hidden == net.num_signs == 9
    shared = case("residual")
    assert shared.num_parameters == 16 + 4 + 16 + 3 + np.count_nonzero(shared.parameters["sparse.weight"])
    assert "3-5-4-2" in repr(net)


def test_networks_are_frozen():
    net = fs.Network.random((2, 3, 1), 0)
    with pytest.raises(AttributeError, match="frozen"):
        net.nodes = ()
    with pytest.raises(ValueError, match="read-only"):
        net.weights[0][0, 0] = 1.0


def test_random_follows_the_documented_order_and_scale():
    rng = np.random.default_rng(5)
    net = fs.Network.random((2, 3, 1), 5)
    first = rng.normal(0, 1, (3, 2))
    np.testing.assert_array_equal(net.weights[0], first)
    np.testing.assert_array_equal(net.biases[0], rng.normal(0, 1, 3))
    for init in ("he_uniform", "xavier", "xavier_uniform", "lecun", "torch", "orthogonal"):
        fs.Network.random((4, 6, 2), 0, init)
    orthogonal = fs.Network.random((4, 6, 2), 0, "orthogonal").weights[0]
    np.testing.assert_allclose(orthogonal.T @ orthogonal, np.eye(4), atol=1e-12)


def test_with_parameters_replaces_by_name_and_shares():
    net = case("residual")
    doubled = net.with_parameters({"shared.weight": 2 * net.parameters["shared.weight"]})
    nodes = [node for node in doubled.nodes if isinstance(node, Affine) and node.weight_name == "shared.weight"]
    assert len(nodes) == 2
    assert all((node.operator.coefficients == 2 * net.parameters["shared.weight"]).all() for node in nodes)
    assert fs.identical(net, net.with_parameters(net.parameters))
    assert not fs.identical(net, doubled)
    with pytest.raises(fs.InputError, match="expected one of"):
        net.with_parameters({"nothing": np.zeros(1)})
    with pytest.raises(fs.InputError, match="expected shape"):
        net.with_parameters({"shared.weight": np.zeros(1)})


@pytest.mark.parametrize("name", CASES)
def test_identical_tells_one_ulp(name):
    net = case(name)
    assert fs.identical(net, case(name))
    if net.num_parameters:
        key = next(iter(net.parameters))
        value = net.parameters[key].copy()
        value.flat[0] = np.nextafter(value.flat[0], 7)
        assert not fs.identical(net, net.with_parameters({key: value}))


def test_a_bias_of_zeros_is_not_identical_to_none():
    without = fs.Network.from_nodes([Affine(0, Dense(np.eye(2)))], (2,))
    zeros = fs.Network.from_nodes([Affine(0, Dense(np.eye(2)), np.zeros(2))], (2,))
    assert not fs.identical(without, zeros)
    assert not fs.identical(zeros, without)
    assert fs.identical(without, without)


def test_images_and_flat_batches_are_the_same():
    net = case("convolutional")
    X = points(net)
    np.testing.assert_array_equal(net(X), net(X.reshape(-1, 2, 6, 6)))


def test_only_chains_have_widths():
    with pytest.raises(fs.UnsupportedModelError, match="as_mlp"):
        _ = case("residual").widths


W, B = [np.ones((3, 2)), np.ones((1, 3))], [np.ones(3), np.ones(1)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: fs.Network([], []), "at least one"),
        (lambda: fs.Network(None, None), "weights: expected a list of arrays"),
        (lambda: fs.Network.random((2, 1), -1), "seed: expected a non-negative integer"),
        (lambda: fs.Network(W, B[:1]), "as many as biases"),
        (lambda: fs.Network([W[0], np.ones((1, 4))], B), "weight 2: expected 3 columns, got shape"),
        (lambda: fs.Network(W, [np.ones(2), B[1]]), "bias 1: expected 3 entries"),
        (lambda: fs.Network([np.ones(3)], [np.ones(3)]), "weight 1: expected 2 axes, got shape"),
        (lambda: fs.Network([W[0] * np.inf, W[1]], B), "weight 1: expected finite numbers, got inf"),
        (lambda: fs.Network([W[0].astype(int), W[1]], B), "floating-point array, got int64"),
        (lambda: fs.Network([[[1.0], [1.0, 2.0]]], [[0.0, 0.0]]), "ragged"),
        (lambda: fs.Network(W, B, "tanh"), "expected 'relu' or 'leaky_relu', got 'tanh'"),
        (lambda: fs.Network(W, B, linear=[]), "expected 1 masks"),
        (lambda: fs.Network(W, B, linear=[[0, 1, 0]]), "boolean mask of 3"),
        (lambda: fs.Network.random((2,), 0), "at least two"),
        (lambda: fs.Network.random((2, 0, 1), 0), "positive integers"),
        (lambda: fs.Network.random((2, 1), 0, "magic"), "init: expected one of"),
        (lambda: fs.Network.from_nodes([], (2,)), "at least one node"),
        (lambda: fs.Network.from_nodes([Affine(1, Dense(np.eye(2)))], (2,)), "expected sources"),
        (lambda: fs.Network.from_nodes([Affine(0, Dense(np.eye(3)))], (2,)), "expected 3 inputs, got 2"),
        (lambda: fs.Network.from_nodes([Add((0, 0), (3,))], (2,)), "add: expected two or more"),
        (lambda: fs.Network.from_nodes([Concat((0, 0), ((2,), (3,)))], (2,)), "do not fit"),
        (lambda: MaxPool(0, (4,), (2, 2), (2, 2)), "channels, height, width"),
        (lambda: MaxPool(0, (1, 1, 1), (2, 2), (2, 2)), "does not fit"),
        (lambda: PiecewiseLinear(0, np.ones(3), (2,)), "slope: expected shape"),
    ],
)
def test_bad_networks(build, message):
    with pytest.raises(fs.InputError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((0, 2)), "at least one point, got an empty batch"),
        (np.zeros((3, 3)), r"expected a batch of shape \(points, 2\), got \(3, 3\)"),
        (np.zeros(2), r"expected a batch of shape \(points, 2\), got \(2,\)"),
        (np.zeros((3, 2), dtype=int), "floating-point array, got int64"),
        (np.array([[0.0, np.nan]]), r"got nan at index \(0, 1\)"),
        (np.zeros((1, 2), dtype=np.longdouble), "float64 or narrower"),
        ([["a", "b"]], "floating-point array"),
    ],
)
def test_bad_batches(X, message):
    net = fs.Network(W, B)
    for ask in (net, net.preactivations, net.signs, net.pattern):
        with pytest.raises(fs.InputError, match=message):
            ask(X)


def test_bad_point():
    with pytest.raises(fs.InputError, match="one point of 2 coordinates"):
        fs.Network(W, B).affine_at([1.0])


def test_two_nodes_cannot_give_one_parameter_two_values():
    nodes = [Affine(0, Dense(np.eye(2)), None, "w"), Affine(1, Dense(2 * np.eye(2)), None, "w")]
    with pytest.raises(fs.InputError, match="parameter w: shared by nodes with different values"):
        fs.Network.from_nodes(nodes, (2,))
