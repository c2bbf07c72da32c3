"""Eigenfunctions of the tangent kernel: orthonormal on the data, continued to other points, drawn."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from torch import nn

import fiberscope as fs
from fiberscope.errors import InputError
from fiberscope.plot.spectra import eigenfunctions

X = np.linspace(-2, 2, 30)[:, None]


def test_they_are_orthonormal_eigenvectors_of_the_operator() -> None:
    net = fs.Network.random((2, 5, 3), 0)
    points = np.random.default_rng(0).normal(size=(20, 2))
    found = fs.kernel_eigenfunctions(net, points, count=4)
    K = fs.ntk(net, points)
    flat = found.values.reshape(4, -1)
    np.testing.assert_allclose(flat @ flat.T / 20, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(flat @ K / 20, found.eigenvalues[:, None] * flat, atol=1e-9 * found.trace)
    np.testing.assert_allclose(found.eigenvalues, np.linalg.eigvalsh(K)[::-1][:4] / 20)
    assert found.values.shape == (4, 20, 3)
    assert np.isclose(found.trace, np.trace(K) / 20)
    assert (found.errors < 1e-12 * found.trace).all() and (found.gaps > found.errors).all()


def test_they_continue_to_other_points() -> None:
    net = fs.Network.random((1, 6, 1), 1)
    found = fs.kernel_eigenfunctions(net, X, count=3)
    np.testing.assert_allclose(found.at(X), found.values, atol=1e-9)
    between = found.at((X[:-1] + X[1:]) / 2)
    assert between.shape == (3, 29, 1)
    # On a piece of the network an eigenfunction is affine, as the kernel is.
    ends = found.at([[5.0], [6.0], [7.0]])[:, :, 0]
    np.testing.assert_allclose(ends[:, 0] + ends[:, 2], 2 * ends[:, 1], atol=1e-9)
    with pytest.raises(InputError, match="fewer eigenfunctions"):
        fs.kernel_eigenfunctions(net, X, count=30).at(X)


def test_coefficients_of_targets() -> None:
    net = fs.Network.random((1, 6, 1), 1)
    found = fs.kernel_eigenfunctions(net, X, count=30)
    y = np.sin(X)
    assert np.isclose((found.coefficients(y) ** 2).sum(), (y**2).mean())
    with pytest.raises(InputError, match="targets: expected 30 numbers"):
        found.coefficients(y[:5])
    with pytest.raises(InputError, match="count: expected 1 to 30"):
        fs.kernel_eigenfunctions(net, X, count=31)


def test_of_a_module_that_is_no_network() -> None:
    module = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    found = fs.kernel_eigenfunctions(module, X, count=2)
    np.testing.assert_allclose(found.at(X), found.values, atol=1e-8)


def test_pictures() -> None:
    ax = eigenfunctions(fs.kernel_eigenfunctions(fs.Network.random((1, 6, 1), 1), X, count=3))
    assert len(ax.lines) == 3
    plane = np.random.default_rng(0).normal(size=(20, 2))
    flat = fs.kernel_eigenfunctions(fs.Network.random((2, 6, 1), 1), plane, count=3)
    assert "2" in eigenfunctions(flat, which=1).get_title()
    with pytest.raises(InputError, match="which"):
        eigenfunctions(flat, which=3)
    with pytest.raises(InputError, match="one or two inputs"):
        eigenfunctions(fs.kernel_eigenfunctions(fs.Network.random((3, 6, 1), 1), np.zeros((4, 3)), count=1))
    plt.close("all")
