"""Streamed moments, subspaces, layers as matrices, and what bad input is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

import fiberscope as fs
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.neurons.layers import layer_arrays
from fiberscope.neurons.subspace import Moments, moments, subspace


@given(st.integers(1, 6), st.integers(1, 40), st.floats(0.05, 1.0), st.integers(0, 10**6))
@example(3, 1, 1.0, 1)
def test_fewest_directions_that_hold_the_energy(d: int, n: int, energy: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.01, 1.0, d) + rng.choice([0.0, 1.0])
    found = subspace(moments(X, d), energy=energy)
    values = np.linalg.svd(X, compute_uv=False) ** 2 / n
    shares = np.cumsum(values) / values.sum()
    expected = int(np.argmax(shares >= energy - 1e-9)) + 1 if energy < 1 else np.linalg.matrix_rank(X)
    assert found.rank == min(expected, np.linalg.matrix_rank(X))
    assert np.allclose(found.basis.T @ found.basis, np.eye(found.rank))
    rest = X - X @ found.basis @ found.basis.T
    assert np.isclose(found.tail_energy, (rest**2).sum(axis=1).mean(), atol=1e-9)


def test_centred_components() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5)) * np.array([3.0, 1.0, 0.5, 0.1, 0.1]) + np.array([0.0, 0.0, 0.0, 0.0, 50.0])
    found = fs.neuron_classes(nn.Linear(5, 2), X, centred=True).subspace
    away = X - X.mean(axis=0)
    values = np.linalg.svd(away, compute_uv=False) ** 2 / 80
    assert found.rank == int(np.argmax(np.cumsum(values) >= 0.9 * values.sum())) + 1 == 2
    assert np.allclose(found.eigenvalues, values) and np.isclose(found.energy, values[:2].sum() / values.sum())
    assert np.isclose(found.tail_energy, ((X - X @ found.basis @ found.basis.T) ** 2).sum(axis=1).mean())
    assert fs.neuron_classes(nn.Linear(5, 2), X).rank == 1  # the mean holds it all
    with pytest.raises(InputError, match="mean"):
        subspace(Moments(np.eye(2), 3), centred=True)


@pytest.mark.parametrize("bias", [False, True])
def test_every_form_of_inputs_gives_the_same_moments(bias: bool) -> None:
    X = np.random.default_rng(0).normal(size=(50, 4))
    wide = np.hstack([X, np.ones((50, 1))]) if bias else X
    expected = wide.T @ wide / 50
    recorded = fs.record_inputs(nn.Sequential(nn.Linear(4, 2)).double(), None, X)["0"]
    forms = {
        "array": X,
        "tensor": torch.tensor(X),
        "list": X.tolist(),
        "batches": [X[:20], X[20:]],
        "loader": [(torch.tensor(X[:7]), torch.zeros(7)), (torch.tensor(X[7:]), torch.zeros(43))],
        "generator": (X[i : i + 10] for i in range(0, 50, 10)),
        "tokens": X.reshape(5, 10, 4),
        "images": X.reshape(50, 1, 2, 2),
        "recorded": recorded,
    }
    for name, inputs in forms.items():
        found = moments(inputs, 4, bias=bias)
        assert found.count == 50 and np.allclose(found.second_moment, expected), name
        assert found.non_negative is False, name


def test_large_inputs_come_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).random((100, 3), dtype=np.float32)
    whole = moments(X, 3)
    monkeypatch.setattr("fiberscope.neurons.subspace.CHUNK_BYTES", 200)
    assert np.allclose(moments(X, 3).second_moment, whole.second_moment) and whole.non_negative


def test_broken_layers_are_read() -> None:
    torch.manual_seed(0)
    plain = nn.Linear(6, 4)
    net = fs.break_symmetry(nn.Sequential(plain), "w", architecture_seed=3, fixed=2, sigma=1.5)
    arrays = layer_arrays(net[0], "fc")
    assert np.allclose(arrays.effective, net[0].weight.detach().numpy()) and (arrays.D == 0).sum() == 8
    assert np.array_equal(arrays.F != 0, arrays.D == 0)
    unbroken = layer_arrays(plain)
    assert unbroken.name == "Linear" and (unbroken.F == 0).all() and (unbroken.D == 1).all()
    X = np.random.default_rng(0).normal(size=(30, 6))
    with_bias = fs.neuron_classes(plain, X, energy=1.0, bias=True)
    assert with_bias.layer.width == 7 and np.allclose(with_bias.layer.W[:, -1], plain.bias.detach().numpy())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1},
        {"dilation": 2, "padding": "same"},
        {"padding": (1, 0), "padding_mode": "circular"},
        {"padding": 1, "padding_mode": "reflect"},
        {"padding": "valid"},
    ],
)
def test_convolutions_see_patches(options: dict[str, object]) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, (3, 2), **options).double()  # type: ignore[arg-type]
    X = torch.randn(4, 2, 7, 6, dtype=torch.float64)
    arrays = layer_arrays(layer, "conv")
    assert arrays.rows is not None
    rows = arrays.rows(X.numpy())
    expected = layer(X).detach().permute(0, 2, 3, 1).reshape(-1, 3).numpy()
    assert np.allclose(rows @ arrays.effective.T + layer.bias.detach().numpy(), expected)
    classes = fs.neuron_classes(layer, X, name="conv")
    recorded = fs.record_inputs(nn.Sequential(layer), None, X)["0"]
    assert np.allclose(classes.swap_costs(), fs.neuron_classes(layer, recorded).swap_costs())
    assert np.allclose(classes.swap_costs(), fs.neuron_classes(layer, rows).swap_costs())


def test_the_basis_does_not_matter_only_its_span() -> None:
    rng = np.random.default_rng(0)
    F, D, W = rng.normal(size=(3, 5, 7))
    basis = np.linalg.qr(rng.normal(size=(7, 3)))[0]
    turned = basis @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    first, second = (fs.NeuronClasses.from_arrays(F, D, W, u) for u in (basis, turned))
    assert np.allclose(first.swap_costs(), second.swap_costs()) and np.isclose(first.coherence, second.coherence)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (None, "fc1: expected recorded inputs, got none"),
        ([], "fc1: expected at least one input"),
        (np.zeros((5, 4)), "fc1.*rank zero"),
        (np.ones((5, 3)), "fc1: expected inputs with 4 coordinates"),
        (np.full((5, 4), np.nan), "fc1.*finite"),
        (Moments(np.eye(4), 0), "fc1: expected moments of at least one input"),
        (Moments(np.eye(3), 5), r"fc1: expected second moments of shape \(4, 4\)"),
        (7, "fc1: expected an array"),
        (np.ones(4), "fc1: expected inputs with at least two axes"),
    ],
)
def test_bad_inputs_name_the_layer(inputs: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fs.neuron_classes(nn.Linear(4, 2), inputs, name="fc1")


def test_bad_layers_and_settings() -> None:
    X = np.ones((5, 4))
    with pytest.raises(InputError, match=r"fc1: expected a rank between 1 and 1.*got 2"):
        fs.neuron_classes(nn.Linear(4, 2), X, rank=2, name="fc1")
    with pytest.raises(InputError, match="energy"):
        fs.neuron_classes(nn.Linear(4, 2), X, 1.5)
    with pytest.raises(InputError, match=r"fc1.*bias"):
        fs.neuron_classes(nn.Linear(4, 2, bias=False), X, bias=True, name="fc1")
    with pytest.raises(UnsupportedModelError, match=r"fc1.*ReLU"):
        fs.neuron_classes(nn.ReLU(), X, name="fc1")
    with pytest.raises(UnsupportedModelError, match=r"fc1.*groups=1"):
        fs.neuron_classes(nn.Conv2d(4, 4, 1, groups=2), np.ones((2, 4, 3, 3)), name="fc1")
    spectral = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
    with pytest.raises(UnsupportedModelError, match=r"fc1.*F and D"):
        fs.neuron_classes(spectral, X, name="fc1")
    with pytest.raises(InputError, match="three matrices"):
        fs.neuron_classes((X, X), X)
    with pytest.raises(InputError, match="keys F, D and W"):
        fs.neuron_classes({"F": X}, X)
    with pytest.raises(InputError, match="mean"):
        fs.neuron_classes(nn.Linear(4, 2), Moments(np.eye(4), 5), bias=True)
