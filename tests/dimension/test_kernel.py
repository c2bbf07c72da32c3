"""The tangent kernel is the Gram matrix of the Jacobian; effective rank."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fiberscope.dimension.jacobian import jacobian, offsets
from fiberscope.dimension.kernels import kernel, small
from fiberscope.dimension.kernels.kernel import effective_rank, kernel_alignment, ntk
from fiberscope.errors import InputError, TooLargeError
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.testing import CASES, case
from fiberscope.testing.strategies import batches, chains


def assert_gram(net, X, Y):
    J, other = jacobian(net, X), jacobian(net, Y)
    scale = max(1e-300, float(np.abs(J).max(initial=0) * np.abs(other).max(initial=0)))
    np.testing.assert_allclose(ntk(net, X, Y), J @ other.T, rtol=0, atol=1e-12 * scale * J.shape[1])
    K = ntk(net, X)
    np.testing.assert_allclose(K, J @ J.T, rtol=0, atol=1e-12 * max(1e-300, np.abs(J).max() ** 2) * J.shape[1])
    assert np.array_equal(K, K.T)


@pytest.mark.parametrize("name", sorted(CASES))
def test_kernel_is_the_gram_matrix_of_the_jacobian(name):
    net, rng = case(name), np.random.default_rng(0)
    assert_gram(net, rng.normal(size=(7, net.in_size)), rng.normal(size=(4, net.in_size)))


@given(data=st.data())
@settings(max_examples=60)
def test_kernel_is_the_gram_matrix_for_any_chain(data):
    net = data.draw(chains())
    assert_gram(net, data.draw(batches(net)), data.draw(batches(net)))


@pytest.mark.parametrize("outputs", [1, 3])
def test_strips_of_all_kinds_agree(outputs, monkeypatch):
    net = Network.random((5, 70, 6, 6, outputs), 0)  # wide and narrow layers
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(45, 5)), rng.normal(size=(31, 5))
    monkeypatch.setattr(kernel, "MOST_POINTS", 0)
    monkeypatch.setattr(kernel, "_TALL", 40)
    monkeypatch.setattr(kernel, "_STRIP_BYTES", 1)
    assert_gram(net, X, Y)


def test_shared_layer_sums_over_pairs_of_uses_also_with_the_last_layer():
    rng = np.random.default_rng(0)
    shared, bias = Dense(rng.normal(size=(2, 2))), rng.normal(size=2)
    nodes = [
        Affine(0, shared, bias, "w", "b"),
        PiecewiseLinear(1, np.array([0.0, 0.5]), (2,)),
        Affine(2, shared, bias, "w", "b"),
        Add((3, 0), (2,)),
        PiecewiseLinear(4, np.zeros(2), (2,)),
        Affine(5, shared, np.array([1.0, 2.0]), "w", "c"),
    ]
    net = Network.from_nodes(nodes, (2,))
    assert net.num_parameters == 8
    assert_gram(net, rng.normal(size=(9, 2)), rng.normal(size=(5, 2)))


def test_a_bias_alone_is_a_parameter():
    nodes = [
        Affine(0, Dense([[2.0], [1.0]]), np.array([1.0, -1.0]), None, "b"),
        Affine(1, Dense([[1.0, 3.0]]), None, "w"),
    ]
    net = Network.from_nodes(nodes, (1,))
    assert_gram(net, np.array([[1.0], [2.0]]), np.array([[0.5]]))
    parts = [Affine(0, Dense(np.eye(1)), None, "v"), Affine(1, Dense([[2.0], [1.0]]), np.array([1.0, -1.0]), None, "b")]
    last = Network.from_nodes(parts, (1,))
    X = np.array([[1.0], [2.0]])
    through_v = np.outer([2.0, 1.0, 4.0, 2.0], [2.0, 1.0, 4.0, 2.0])
    np.testing.assert_array_equal(ntk(last, X), np.tile(np.eye(2), (2, 2)) + through_v)


def test_block_layout_with_several_outputs():
    net, rng = Network.random((2, 4, 3), 0), np.random.default_rng(0)
    X = rng.normal(size=(5, 2))
    K = ntk(net, X).reshape(5, 3, 5, 3)
    for o in range(3):
        for p in range(3):
            rows = jacobian(net, X).reshape(5, 3, -1)
            np.testing.assert_allclose(K[:, o, :, p], rows[:, o] @ rows[:, p].T)


def test_bad_input():
    net = case("chain")
    with pytest.raises(InputError, match="Y: expected a batch"):
        ntk(net, np.zeros((2, 2)), np.zeros((2, 5)))
    with pytest.raises(TooLargeError, match="kernel needs"):
        ntk(net, np.zeros((1000, 2)), memory=1 << 20)


def test_effective_rank():
    assert effective_rank(np.eye(5)) == pytest.approx(5)
    assert effective_rank(np.diag([1.0, 0.0])) == pytest.approx(1)
    assert effective_rank(np.zeros((3, 3))) == 0
    shares = np.array([0.5, 0.25, 0.25])
    assert effective_rank(np.diag(shares)) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    assert effective_rank(1e-3 * np.ones((4, 4))) == pytest.approx(1, abs=1e-6)
    for bad in (np.ones((2, 3)), np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([[np.nan]]), np.zeros((0, 0))):
        with pytest.raises(InputError):
            effective_rank(bad)


@pytest.mark.parametrize("name", ["chain", "convolutional", "residual"])
def test_kernels_of_layers_add_up(name):
    net = case(name)
    X, Y = np.random.default_rng(1).normal(size=(2, 5, net.in_size))
    for other in (None, Y):
        for by in ("layer", "parameter"):
            parts = ntk(net, X, other, by=by)
            np.testing.assert_allclose(sum(parts.values()), ntk(net, X, other), atol=1e-10)
        J, K = jacobian(net, X), ntk(net, X, by="parameter")
        starts = offsets(net)
        for parameter, value in net.parameters.items():
            own = J[:, starts[parameter] : starts[parameter] + value.size]
            np.testing.assert_allclose(K[parameter], own @ own.T, atol=1e-10)


def test_kernels_of_the_layers_of_a_module():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)).double()
    X = torch.randn(5, 3, dtype=torch.float64)
    parts = ntk(module, X, by="layer")
    assert list(parts) == ["0", "2"]
    torch.testing.assert_close(parts["0"] + parts["2"], ntk(module, X))
    with pytest.raises(InputError, match="by: expected"):
        ntk(module, X, by="neuron")


def test_alignment():
    net = case("chain")
    X = np.random.default_rng(2).normal(size=(6, net.in_size))
    K, y = ntk(net, X), np.random.default_rng(3).normal(size=(6, net.out_size))
    outer = np.outer(y.ravel(), y.ravel())
    want = np.sum(K * outer) / np.linalg.norm(K) / np.linalg.norm(outer)
    assert kernel_alignment(K, y) == pytest.approx(want)
    assert kernel_alignment(outer, y) == pytest.approx(1.0)
    with pytest.raises(InputError, match="targets: expected"):
        kernel_alignment(K, y[:2])
    with pytest.raises(InputError, match="other than zero"):
        kernel_alignment(K, 0 * y)


@pytest.mark.parametrize("widths", [(1, 1), (3, 4, 1), (1, 10, 10, 10, 10, 10, 1), (5, 1, 7, 1)])
def test_few_points_of_a_plain_chain_are_summed_as_all_others(
    widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    net, X = Network.random(widths, 3), np.random.default_rng(0).normal(size=(9, widths[0]))
    assert small.plain_chain(net) is not None
    short = ntk(net, X)
    assert (short == short.T).all()
    monkeypatch.setattr(kernel, "MOST_POINTS", 0)
    assert np.allclose(short, ntk(net, X), rtol=1e-12, atol=0)
    J = jacobian(net, X)
    assert np.allclose(short, J @ J.T, rtol=1e-11, atol=0)


def test_chains_that_are_not_plain_take_the_general_way() -> None:
    W = [[1.0, 2.0], [3.0, 4.0]]
    nodes = [Affine(0, Dense(W), np.ones(2), "w", "b"), PiecewiseLinear(1, 0.0, (2,)), Affine(2, Dense(W), None, "w")]
    shared = Network.from_nodes(
        [*nodes, PiecewiseLinear(3, 0.0, (2,)), Affine(4, Dense([[1.0, 1.0]]), None, "v")], (2,)
    )
    one = Network.from_nodes([*nodes[:2], Affine(2, Dense([[1.0, 1.0]]), np.ones(()), "v", "c")], (2,))
    leaky = Network([W, [[1.0, 1.0]]], [[1.0, 1.0], [0.0]], "leaky_relu")
    two = Network.random((2, 3, 2), 0)
    for net in (shared, one, leaky, two):
        assert small.plain_chain(net) is None
        J = jacobian(net, [[1.0, -2.0], [0.5, 0.25]])
        assert np.allclose(ntk(net, [[1.0, -2.0], [0.5, 0.25]]), J @ J.T)


def test_few_points_keep_their_limits() -> None:
    net = Network.random((2, 3, 1), 0)
    with pytest.raises(TooLargeError):
        ntk(net, np.zeros((9, 2)), memory=8 * 80)
    assert np.isfinite(ntk(net, np.zeros((9, 2)), memory=8 * 81)).all()
