"""Relaxed costs: the closed form against the quadratic problem, descent below it, and both towards the hard cost."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.errors import InputError
from fiberscope.neurons.activations import ACTIVATIONS
from fiberscope.neurons.descent import minimise
from fiberscope.neurons.normalisation import Normalisation
from fiberscope.neurons.relaxed import projected_bounds

from .cases import random_layer


def quadratic_oracle(f: np.ndarray, d: np.ndarray, u: np.ndarray, sigma: np.ndarray, alpha: float) -> float:
    """Formula (253) as it stands."""
    r, D = u - f, np.diag(d)
    inner = np.linalg.inv(np.eye(len(f)) + alpha * D @ sigma @ D)
    return float(alpha * r @ sigma @ r - alpha**2 * r @ sigma @ D @ inner @ D @ sigma @ r)


@given(
    st.integers(0, 10**6),
    st.sampled_from(["w", "syre", "sparse", "plain", "starved", "mixed"]),
    st.sampled_from([1.0, 0.1, 0.01]),
    st.sampled_from(["relu", "gelu", "tanh"]),
)
@settings(max_examples=40)
def test_closed_form_and_descent(seed: int, scheme: str, beta: float, activation: str) -> None:
    F, D, W, _ = random_layer(seed, 3, 5, 5, scheme)
    X = np.random.default_rng(seed).normal(size=(30, 5))
    found = fs.relaxed_cost((F, D, W), X, beta=beta, activation=activation, steps=60)
    alpha = ACTIVATIONS[activation].lipschitz ** 2 / beta
    U = F + D * W
    expected = [quadratic_oracle(F[i], D[i], U[j], X.T @ X / 30, alpha) for i, j in found.pairs]
    assert np.allclose(found.quadratic, expected, rtol=1e-6, atol=1e-7)
    assert found.optimised is not None and found.errors is not None
    assert (found.optimised <= found.quadratic * (1 + 1e-12) + 1e-12).all()
    # a neuron can always keep its own weights, without an error
    own = found.pairs[:, 0] == found.pairs[:, 1]
    assert (found.optimised[own] <= (W**2).sum(axis=1) * (1 + 1e-12)).all()
    assert (found.errors >= 0).all() and (found.errors <= beta * found.optimised + 1e-12).all()


def test_identity_activation_attains_the_bound() -> None:
    F, D, W, _ = random_layer(1, 4, 6, 6, "w")
    X = np.random.default_rng(2).normal(size=(50, 6))
    found = fs.relaxed_cost((F, D, W), X, beta=0.05, activation="identity")
    assert found.converged is not None and found.converged.all()
    assert np.allclose(found.optimised, found.quadratic, rtol=1e-9)


@pytest.mark.parametrize("scheme", ["w", "syre"])
def test_ridgeless_limit(scheme: str) -> None:
    """Inputs on a subspace of three directions: as beta falls, the bound rises to the hard cost."""
    F, D, W, basis = random_layer(5, 4, 12, 3, scheme)
    X = np.random.default_rng(0).normal(size=(200, 3)) @ basis.T
    hard = fs.neuron_classes((F, D, W), X, energy=1.0).costs.squares.ravel()
    previous = np.zeros(16)
    for beta in (1.0, 1e-2, 1e-4, 1e-6):
        values = fs.relaxed_cost((F, D, W), X, beta=beta, optimise=False).quadratic
        assert (previous <= values * (1 + 1e-9)).all() and (values <= hard * (1 + 1e-7)).all()
        previous = values
    assert np.allclose(previous, hard, rtol=1e-4)


def test_ridgeless_limit_of_what_is_out_of_reach_grows_without_end() -> None:
    F, D, W = np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros((2, 2)), np.zeros((2, 2))
    X = np.random.default_rng(0).normal(size=(20, 2))
    values = [fs.relaxed_cost((F, D, W), X, [[0, 1]], beta=b, optimise=False).quadratic[0] for b in (1e-2, 1e-4)]
    assert np.isclose(values[1], 100 * values[0])


def test_corollary_on_the_projected_model() -> None:
    F, D, W, _ = random_layer(7, 4, 8, 8, "w")
    X = np.random.default_rng(3).normal(size=(300, 8)) * np.array([3.0, 3.0, 2.0, 2.0, 0.1, 0.1, 0.1, 0.1])
    classes = fs.neuron_classes((F, D, W), X, rank=4)
    bounds = projected_bounds(classes, 0.1)
    found = fs.relaxed_cost((F, D, W), X, beta=0.1, steps=50)
    assert found.optimised is not None and np.isfinite(bounds).all()
    assert (found.optimised <= bounds.ravel() * (1 + 1e-12)).all()
    exact = np.mean(((X - X @ classes.basis @ classes.basis.T) ** 2).sum(axis=1))
    assert np.isclose(classes.tail_energy, exact)
    assert (bounds > classes.costs.squares).all()


def test_running_statistics_are_an_affine_map() -> None:
    F, D, W, _ = random_layer(2, 3, 5, 5, "w")
    X = np.random.default_rng(1).normal(size=(40, 5))
    norm = torch.nn.BatchNorm1d(3)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0, 0.5]))
        norm.bias.copy_(torch.tensor([0.1, 0.0, -0.3]))
    norm(torch.tensor(X @ (F + D * W).T, dtype=torch.float32))
    norm.eval()
    found = fs.relaxed_cost((F, D, W), X, [[0, 1], [2, 2]], beta=0.05, normalisation=norm)
    assert found.optimised is not None and (found.optimised <= found.quadratic + 1e-12).all()
    with torch.no_grad():
        values = torch.relu(norm(torch.tensor(X @ (F + D * W).T, dtype=torch.float32))).double().numpy()
        start = torch.relu(norm(torch.tensor(X @ (F + D * W[1]).T, dtype=torch.float32))).double().numpy()
    # the first of the two starts: neuron 0 with the weights of neuron 1
    assert found.optimised[0] <= ((values[:, 1] - start[:, 0]) ** 2).mean() / 0.05 + (W[1] ** 2).sum() + 1e-4
    assert found.optimised[1] <= (W[2] ** 2).sum() + 1e-4


def test_statistics_of_the_batch() -> None:
    """No bound; the scale of the weights is free, so descent shrinks them where nothing is fixed."""
    rng = np.random.default_rng(0)
    F, D, W = np.zeros((2, 4)), np.ones((2, 4)), rng.normal(size=(2, 4))
    X = rng.normal(size=(60, 4))
    norm = Normalisation(np.ones(2), np.zeros(2), eps=1e-8)
    found = fs.relaxed_cost((F, D, W), X, [[0, 1]], beta=1e-3, normalisation=norm)
    assert np.isnan(found.quadratic).all() and found.optimised is not None and found.errors is not None
    assert found.optimised[0] < 0.1 * (W[1] ** 2).sum()
    assert found.errors[0] < 1e-3


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "tanh", "silu", "sigmoid", "leaky_relu"])
def test_gradients(frozen: bool, activation: str) -> None:
    from fiberscope.neurons.activations import activation_of
    from fiberscope.neurons.layers import from_arrays
    from fiberscope.neurons.relaxed import _Problem

    rng = np.random.default_rng(0)
    F, D, W, _ = random_layer(4, 3, 4, 4, "syre")
    norm = None if frozen else Normalisation(np.array([1.0, 2.0, 0.5]), np.array([0.0, 0.3, -1.0]))
    pairs = np.array([[0, 1], [2, 1], [1, 1]])
    problem = _Problem.of(from_arrays(F, D, W), rng.normal(size=(20, 4)), pairs, activation_of(activation), 0.1, norm)
    w, rows = rng.normal(size=(3, 4)), np.arange(3)
    values, slopes = problem(w, rows)
    for index in range(4):
        step = np.zeros(4)
        step[index] = 1e-6
        numeric = (problem(w + step, rows)[0] - problem(w - step, rows)[0]) / 2e-6
        assert np.allclose(slopes[:, index], numeric, rtol=1e-4, atol=1e-4)
    one, _ = problem(w[1:2], rows[1:2])
    assert np.isclose(one[0], values[1])


def test_descent_solves_badly_scaled_quadratics_side_by_side() -> None:
    scales = np.array([[1.0, 100.0, 10.0], [1.0, 1.0, 1.0], [1e-2, 1.0, 30.0]])
    found = minimise(lambda w, rows: ((scales[rows] * w**2).sum(axis=1), 2 * scales[rows] * w), np.ones((3, 3)))
    assert found.converged.all() and found.steps < 60 and (found.values < 1e-10).all()


def test_swaps_need_all_four_costs() -> None:
    F, D, W, _ = random_layer(1, 3, 4, 4, "w")
    X = np.random.default_rng(2).normal(size=(30, 4))
    found = fs.relaxed_cost((F, D, W), X, [[0, 1], [1, 0], [0, 0], [1, 1], [2, 1]], optimise=False)
    pairs, quadratic, optimised = found.swaps()
    assert pairs.tolist() == [[0, 1]] and optimised is None
    assert np.isclose(quadratic[0], found.quadratic[0] + found.quadratic[1] - found.quadratic[2] - found.quadratic[3])
    assert found.to_dict()["optimised"] is None


def test_bad_input() -> None:
    F, D, W, _ = random_layer(1, 3, 4, 4, "w")
    X = np.random.default_rng(2).normal(size=(30, 4))
    for keywords, message in (
        ({"beta": 0.0}, "positive"),
        ({"activation": "maxout"}, "expected one of"),
        ({"normalisation": torch.nn.LayerNorm(3)}, "fc1.*batch normalisation"),
        ({"normalisation": torch.nn.BatchNorm1d(7)}, "fc1.*of 3 neurons"),
        ({"pairs": [[0, 5]]}, "neurons 0..2"),
        ({"inputs": np.zeros((3, 4))}, "fc1.*rank zero"),
        ({"inputs": None}, "fc1.*recorded inputs"),
    ):
        inputs = keywords.pop("inputs", X)  # type: ignore[attr-defined]
        with pytest.raises(InputError, match=message):
            fs.relaxed_cost((F, D, W), inputs, name="fc1", **keywords)  # type: ignore[arg-type]
