"""Products with the Jacobian that is never formed, leading eigenvalues and effective rank with their errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fiberscope.dimension.jacobian import jacobian
from fiberscope.dimension.kernels.kernel import effective_rank, ntk
from fiberscope.dimension.kernels.spectrum import kernel_spectrum, lanczos
from fiberscope.dimension.kernels.tangent import TangentMap, kernel_diagonal
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.network import Network
from fiberscope.testing import CASES, case


@pytest.mark.parametrize("name", sorted(CASES))
def test_products_are_those_of_the_jacobian(name):
    net, rng = case(name), np.random.default_rng(0)
    X = rng.normal(size=(6, net.in_size))
    J, tangent = jacobian(net, X), TangentMap(net, X)
    v, w = rng.normal(size=J.shape[0]), rng.normal(size=J.shape[1])
    scale = max(1.0, float(np.abs(J).max()))
    assert tangent.shape == J.shape
    np.testing.assert_allclose(tangent.transposed(v), J.T @ v, atol=1e-11 * scale)
    np.testing.assert_allclose(tangent.direct(w), J @ w, atol=1e-11 * scale)
    np.testing.assert_allclose(tangent.gram(v), J @ (J.T @ v), atol=1e-11 * scale**2)
    np.testing.assert_allclose(kernel_diagonal(net, X), (J**2).sum(axis=1), atol=1e-11 * scale**2)


@pytest.mark.parametrize("seed", range(3))
def test_errors_and_bounds_hold(seed):
    net = Network.random((6, 20, 20, 3), seed)
    X = np.random.default_rng(seed).normal(size=(80, 6))
    K = ntk(net, X)
    true = np.linalg.eigvalsh(K)[::-1]
    result = kernel_spectrum(net, X, count=6, steps=12, seed=seed)
    # each value lies within its error of some eigenvalue, and the errors mean something
    distances = np.abs(true[:, None] - result.eigenvalues[None]).min(axis=0)
    assert (distances <= result.errors).all()
    assert result.errors[0] < 1e-3 * true[0]
    full = kernel_spectrum(net, X, count=6, seed=seed, probes=8)
    np.testing.assert_allclose(full.eigenvalues, true[:6], rtol=1e-6)
    exact = effective_rank(K)
    assert full.trace == pytest.approx(np.trace(K))
    assert full.lower <= exact <= full.upper
    assert abs(full.effective_rank - exact) < 5 * full.standard_error + 0.02 * exact
    np.testing.assert_allclose(full.singular_values**2, full.eigenvalues)


def test_copies_of_multiple_eigenvalues_are_found_where_the_kernel_has_low_rank():
    net, X = case("affine"), np.random.default_rng(0).normal(size=(50, 3))
    true = np.linalg.eigvalsh(ntk(net, X))[::-1]  # every one twice: one copy for each output
    result = kernel_spectrum(net, X, count=8)
    np.testing.assert_allclose(result.eigenvalues, true[:8], rtol=1e-9)
    assert result.lower == pytest.approx(result.upper) == pytest.approx(effective_rank(ntk(net, X)))


def test_zero_kernel():
    nothing = kernel_spectrum(Network([np.zeros((1, 1))], [np.zeros(1)]), np.zeros((3, 1)), count=2)
    assert nothing.trace == 3  # the bias


def test_lanczos_on_a_known_matrix():
    values = np.array([9.0, 4.0, 1.0, 0.0])
    run = lanczos(lambda v: values * v, np.ones(4), 4)
    found, vectors, errors = run.ritz(3)
    np.testing.assert_allclose(found, values[:3], atol=1e-12)
    np.testing.assert_allclose(np.abs(vectors), np.eye(4)[:3], atol=1e-7)
    assert (errors < 1e-10).all()


def test_bad_input():
    with pytest.raises(InputError, match="count"):
        kernel_spectrum(case("chain"), np.zeros((2, 2)), count=0)
    with pytest.raises(InputError):
        kernel_spectrum(case("chain"), np.zeros((2, 3)))
    with pytest.raises(UnsupportedModelError):
        kernel_spectrum(case("convolutional").as_mlp(), np.zeros((1, 72)))


def test_kernels_beyond_floats_are_refused():
    net = Network([[[1e200]], [[1e200]]], [[0.0], [0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match="exceeds the range of floats"):
            kernel_spectrum(net, [[1.0], [2.0]])
