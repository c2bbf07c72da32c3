"""Chord deviations against their definition, their bounds, and where the Gaussian bounds fail."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fiberscope as fs
from fiberscope.errors import InputError
from fiberscope.neurons.activations import ACTIVATIONS
from fiberscope.neurons.chord import ChordSums, LayerChord, path_points
from fiberscope.neurons.classes import NeuronClasses
from fiberscope.neurons.exactness import exactness
from fiberscope.neurons.layers import from_arrays

from .cases import random_layer


def measured(F: np.ndarray, D: np.ndarray, A: np.ndarray, B: np.ndarray, X: np.ndarray, activation: str) -> LayerChord:
    sums = ChordSums(from_arrays(F, D, A), from_arrays(F, D, B), activation, path_points(21))
    sums.add(X[: len(X) // 2])
    sums.add(X[len(X) // 2 :])
    return sums.result()


@given(st.integers(0, 10**6), st.sampled_from(sorted(ACTIVATIONS)), st.sampled_from(["w", "syre", "plain", "starved"]))
@settings(max_examples=60)
def test_definition_and_the_bound_for_any_inputs(seed: int, activation: str, scheme: str) -> None:
    F, D, A, _ = random_layer(seed, 4, 5, 5, scheme)
    rng = np.random.default_rng(seed)
    B, X = rng.normal(size=A.shape), rng.normal(size=(40, 5)) + rng.choice([0.0, 3.0])
    found = measured(F, D, A, B, X, activation)
    eta = ACTIVATIONS[activation].value

    def layer(W: np.ndarray) -> np.ndarray:
        return eta(X @ (F + D * W).T)

    for t, deviation in zip(found.t, found.deviations, strict=True):
        xi = layer((1 - t) * A + t * B) - ((1 - t) * layer(A) + t * layer(B))
        assert np.isclose(deviation, np.sqrt((xi**2).sum(axis=1).mean()), atol=1e-12)
    assert found.worst <= found.any_inputs * (1 + 1e-9) + 1e-12
    sigma = X.T @ X / 40
    norms = [[np.sqrt(r @ sigma @ r) for r in rows] for rows in (F, D * A, D * B)]
    if all(f > 0 for f in norms[0]):
        assert np.isclose(found.q, max(max(a, b) / f for f, a, b in zip(*norms, strict=True)))
        assert np.isclose(found.fixed, np.sqrt(np.trace(F @ sigma @ F.T)))
    assert (found.bound == np.inf) == (found.q >= 1)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "gelu", "tanh"])
@pytest.mark.parametrize("q", [0.05, 0.3, 0.9])
def test_gaussian_inputs_keep_the_theorems(activation: str, q: float) -> None:
    rng = np.random.default_rng(0)
    F, D = rng.normal(size=(6, 8)), np.ones((6, 8))
    X = rng.normal(size=(20_000, 8)) * rng.uniform(0.2, 2.0, 8)
    A, B = rng.normal(size=(2, 6, 8))
    sigma = X.T @ X / len(X)
    # scale the rows to the ratio q, the worst case that the theorem allows
    A, B = (W * (q * np.sqrt(np.diag(F @ sigma @ F.T) / np.diag(W @ sigma @ W.T)))[:, None] for W in (A, B))
    found = measured(F, D, A, B, X, activation)
    assert np.isclose(found.q, q) and found.worst <= found.bound
    assert found.mean_share < 0.01 and found.theorem in str(found) and "Gaussian" in str(found)


@pytest.mark.parametrize("q", [1e-4, 1e-2])
def test_inputs_on_two_axes_exceed_the_gaussian_bound_by_as_much_as_one_likes(q: float) -> None:
    """The centre ignores half of the inputs; there the deviation is of order q. The other bound is attained."""
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    found = measured(np.array([[0.0, 1.0]]), np.ones((1, 2)), np.array([[q, 0.0]]), np.array([[-q, 0.0]]), X, "relu")
    assert np.isclose(found.q, q) and found.mean_share == 0
    assert np.isclose(found.worst, q / np.sqrt(8)) and np.isclose(found.worst, found.any_inputs)
    assert np.isclose(found.worst / found.bound, 1 / (np.sqrt(8 * np.pi**2 / 3) * (1 + q) * np.sqrt(q)))
    assert found.worst > 1.9 * found.bound


def small_net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).double()


def test_network_layers_and_loss() -> None:
    a, b = small_net(0), small_net(1)
    X, y = torch.randn(60, 4, dtype=torch.float64), torch.arange(60) % 3
    found = fs.chord_deviation(a, b, (X, y), loss="cross_entropy", points=9)
    with torch.no_grad():
        for t, deviation in zip(found.t, found.deviations, strict=True):
            middle = fs.interpolate(a, b, float(t))(X)
            xi = middle - ((1 - t) * a(X) + t * b(X))
            assert np.isclose(deviation, float((xi**2).sum(dim=1).mean().sqrt()), atol=1e-12)
        hidden = a[:2](X).numpy()
    assert [layer.activation for layer in found.layers] == ["relu", "relu", "identity"]
    assert found.layers[2].worst < 1e-12
    by_hand = ChordSums(*(from_arrays(*_augmented(net[2])) for net in (a, b)), "relu", found.t)
    by_hand.add(np.hstack([hidden, np.ones((60, 1))]))
    assert np.allclose(by_hand.result().deviations, found.layers[1].deviations)
    bounds, excess = found.loss_bounds, found.excess
    assert bounds is not None and excess is not None and (excess <= bounds + 1e-12).all()
    assert np.isclose(found.lipschitz or 0.0, np.sqrt(2)) and excess[0] == 0 == excess[-1]
    assert "Proposition D.3" in found.table() and found.table().count("\n") == 3
    assert found.to_dict()["layers"][0]["assumption"].startswith("inputs Gaussian")


def _augmented(layer: nn.Module) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    W = np.hstack([layer.weight.detach().numpy(), layer.bias.detach().numpy()[:, None]])
    return np.zeros_like(W), np.ones_like(W), W


def test_symmetry_broken_models_and_convolutions() -> None:
    torch.manual_seed(0)
    base = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GELU(), nn.Flatten(), nn.Linear(4 * 25, 2)).double()
    a = fs.break_symmetry(base, "w", architecture_seed=0, fixed=3, sigma=1.0)
    b = copy.deepcopy(a)
    with torch.no_grad():
        for value in b.parameters():
            value.add_(0.1 * torch.randn_like(value))
    found = fs.chord_deviation(a, b, torch.randn(7, 2, 5, 5, dtype=torch.float64), activation="gelu", points=3)
    assert found.layers[0].theorem == "Theorem D.2" and found.layers[0].worst > 0
    assert found.layers[0].worst <= found.layers[0].any_inputs and found.worst > 0


def test_bad_input() -> None:
    a, X = small_net(0), torch.randn(5, 4, dtype=torch.float64)
    with pytest.raises(InputError, match=r"layer 0\.weight: expected equal shapes"):
        fs.chord_deviation(a, nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 6)).double(), X, layers=["0"])
    with pytest.raises(InputError, match="layer 7"):
        fs.chord_deviation(a, small_net(1), X, layers=["7"])
    with pytest.raises(InputError, match=r"layer 2.*activation"):
        fs.chord_deviation(a, small_net(1), X, activation={"0": "relu"})
    with pytest.raises(InputError, match="points"):
        fs.chord_deviation(a, small_net(1), X, points=1)
    with pytest.raises(InputError, match="one fixed part"):
        ones = np.ones((1, 2))
        ChordSums(from_arrays(ones, ones, ones), from_arrays(0 * ones, ones, ones), "relu", path_points(3))


def test_costs_are_exact_where_active_inputs_span() -> None:
    """Non-negative inputs: the paper's assumption fails, and yet most functions determine their preactivation."""
    rng = np.random.default_rng(0)
    X = np.maximum(rng.normal(size=(500, 6)), 0.0)
    W = np.vstack([rng.normal(size=(5, 6)), -np.ones((1, 6))])  # the last neuron is never active
    classes = fs.neuron_classes((np.zeros((6, 6)), np.ones((6, 6)), W), X, energy=1.0)
    found = exactness(classes, X)
    # the first neuron is active on eight inputs only, in two directions
    assert found.exact.tolist() == [False, True, True, True, True, False]
    assert found.active_ranks.tolist() == [np.linalg.matrix_rank(X[X @ w > 0]) for w in W] == [2, 6, 6, 6, 6, 0]
    assert found.non_negative and "upper bounds" in str(found) and found.to_dict()["rank"] == 6
    assert exactness(classes, X, "tanh").exact.all()
    # and indeed the dead neuron is cheaper than its preactivation: weights 0 give the same function
    assert classes.realization_costs[-1] > 0
    few = X[:4]  # four inputs cannot span six directions
    assert not exactness(classes, few, "tanh").exact.any()


def test_exactness_speaks_of_the_projected_inputs() -> None:
    F, D, W, basis = random_layer(0, 3, 6, 2, "w")
    classes = NeuronClasses.from_arrays(F, D, W, basis)
    assert exactness(classes, np.random.default_rng(0).normal(size=(100, 6))).exact.all()


def test_a_loss_without_targets_gives_its_bound_and_no_measurement() -> None:
    a, b = small_net(0), small_net(1)
    X = torch.randn(6, 4, dtype=torch.float64)
    found = fs.chord_deviation(a, b, X, loss="cross_entropy", points=3)
    assert found.excess is None
    assert found.loss_bounds is not None
    batches = [(X, torch.tensor([0, 1, 2, 0, 1, 2]))]
    once, again = (fs.chord_deviation(a, b, data, loss="cross_entropy", points=3) for data in (iter(batches), batches))
    assert once.excess is not None and again.excess is not None
    assert np.array_equal(once.excess, again.excess)
