"""The Jacobian against rational dual numbers, finite differences and torch, in floats and modulo a prime."""

from __future__ import annotations

import numpy as np
import pytest

from fiberscope.dimension.jacobian import jacobian, rows_in_ring
from fiberscope.dimension.kinks import kinks
from fiberscope.errors import InputError, TooLargeError, UnsupportedModelError
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.algebra.floating import FloatAlgebra
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.testing import CASES, case

PRIME = 2**61 - 1


def points(net, count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, net.in_size))


@pytest.mark.parametrize("name", sorted(CASES))
def test_floats_agree_with_rational_derivatives(name, rational_jacobian):
    net = case(name)
    X = points(net, 2)
    expected = np.array([[float(v) for v in row] for row in rational_jacobian(net, X)])
    found = jacobian(net, X)
    assert found.shape == (2 * net.out_size, net.num_parameters)
    scale = np.abs(expected).max(initial=1.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * scale)


@pytest.mark.parametrize("name", sorted(CASES))
def test_residues_are_those_of_the_rational_derivatives(name, rational_jacobian):
    net = case(name)
    X = points(net, 2, seed=1)
    signs = net.signs(X).signs
    found = rows_in_ring(net, X, ModularAlgebra(PRIME), signs)
    rows = rational_jacobian(net, X)
    expected = [[v.numerator * pow(v.denominator, -1, PRIME) % PRIME for v in row] for row in rows]
    assert found.tolist() == expected


@pytest.mark.parametrize("name", ["chain", "leaky", "mixed_linear", "convolutional", "residual"])
def test_finite_differences_in_the_documented_order(name):
    net = case(name)
    X = points(net, 3, seed=2)
    assert not kinks(net, X, net.signs(X).signs).any()
    found, column, h = jacobian(net, X), 0, 1e-6
    for key, value in net.parameters.items():
        for place in np.ndindex(value.shape):
            step = np.zeros(value.shape)
            step[place] = h
            change = net.with_parameters({key: value + step})(X) - net.with_parameters({key: value - step})(X)
            np.testing.assert_allclose(found[:, column], change.reshape(-1) / (2 * h), atol=1e-7)
            column += 1
    assert column == found.shape[1]


def test_float32_is_computed_in_float32():
    net = case("deep")
    X = points(net, 5)
    found = rows_in_ring(net, X, FloatAlgebra(np.float32), None)
    error = np.abs(found - jacobian(net, X)).max()
    assert found.dtype == np.float32
    assert 1e-9 < error < 1e-4


def test_constants_have_no_column():
    weight = np.array([[1.0, -2.0]])
    nodes = [
        Affine(0, Dense(np.eye(2)), np.array([3.0, 4.0]), "w", None),  # a bias that is a constant
        PiecewiseLinear(1, np.zeros(2), (2,)),
        Affine(2, Dense(weight), np.array([1.0]), "v", "c"),
    ]
    net = Network.from_nodes(nodes, (2,))
    assert list(net.parameters) == ["w", "v", "c"]
    np.testing.assert_array_equal(jacobian(net, [[1.0, 1.0]]), [[1.0, 1.0, -2.0, -2.0, 4.0, 5.0, 1.0]])


def test_parameters_without_influence_have_zero_columns():
    nodes = [
        Affine(0, Dense([[2.0]]), None, "unused"),
        Affine(0, Dense([[3.0]]), None, "used"),
    ]
    assert jacobian(Network.from_nodes(nodes, (1,)), [[5.0]]).tolist() == [[0.0, 5.0]]


def test_unrolled_views_are_refused():
    for name in ("convolutional", "residual"):
        with pytest.raises(UnsupportedModelError, match="parameters are the model's own"):
            jacobian(case(name).as_mlp(), np.zeros((1, case(name).in_size)))


def test_bad_input():
    net = case("chain")
    for bad, text in [
        (np.zeros((0, 2)), "at least one point"),
        (np.zeros((3, 3)), "shape"),
        (np.array([[np.nan, 0.0]]), "finite"),
        (np.zeros((3, 2), dtype=int), "floating-point"),
    ]:
        with pytest.raises(InputError, match=text):
            jacobian(net, bad)
    with pytest.raises(InputError, match="expected a Network, a torch module"):
        jacobian(3, np.zeros((1, 2)))


def test_too_large_gives_the_estimate_and_the_way_around():
    net = Network.random((100, 200, 10), 0)
    with pytest.raises(TooLargeError, match=r"10000 x 22210 Jacobian needs 1\.7 GiB.*kernel_spectrum"):
        jacobian(net, np.zeros((1000, 100)), memory=1 << 30)
