"""Features near their centres: closed forms against samples, and bounds that hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.neurons.features import feature_change, least_error, relu_products


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def test_closed_forms_agree_with_samples() -> None:
    rng = np.random.default_rng(0)
    F, W, alpha = rng.normal(size=(8, 4)), rng.normal(size=(8, 4)), rng.normal(size=8)
    X = rng.normal(size=(200_000, 4))
    np.testing.assert_allclose(relu_products(F, W), relu(X @ F.T).T @ relu(X @ W.T) / len(X), atol=0.03)
    change = feature_change(F, W, alpha)
    moved = relu(X @ (F + W).T) - relu(X @ F.T)
    np.testing.assert_allclose(change.neurons, np.sqrt(np.square(moved).mean(axis=0)), rtol=0.02)
    assert change.network == pytest.approx(np.sqrt(np.square(moved @ alpha).mean()), rel=0.02)
    for bias in (-1.0, 0.0, 1.5):
        v = np.array([1.0, -2.0, 0.5, 0.0])
        found, target = least_error(F, v, bias), relu(X @ v + bias)
        missed = relu(X @ F.T) @ found.coefficients - target
        assert found.error == pytest.approx(np.sqrt(np.square(missed).mean()), rel=0.03)
        assert found.target == pytest.approx(np.sqrt(np.square(target).mean()), rel=0.03)
        other = np.linalg.lstsq(relu(X @ F.T), target, rcond=None)[0]
        assert np.square(relu(X @ F.T) @ other - target).mean() == pytest.approx(found.error**2, rel=0.05)


@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-3, 0.1, 1.0, 30.0]), kind=st.sampled_from("rnpo"))
@settings(max_examples=60)
def test_the_lemmas_hold_and_by_symmetry_with_half_the_square(seed: int, scale: float, kind: str) -> None:
    """Weights at random, against their centres, along them, or where there is no centre."""
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(5, 3)) * (0.0 if kind == "o" else 1.0)
    W = scale * {"r": rng.normal(size=(5, 3)), "n": -F, "p": F, "o": rng.normal(size=(5, 3))}[kind]
    change = feature_change(F, W, rng.normal(size=5))
    room = 1e-7 * (1 + scale)
    assert (change.neurons <= change.neuron_bounds / np.sqrt(2) + room).all()
    assert change.network <= change.sharp + 10 * room


def test_a_feature_among_them_is_no_error() -> None:
    rng = np.random.default_rng(1)
    F = rng.normal(size=(6, 3))
    found = least_error(F, 3.0 * F[2])
    assert found.relative < 1e-6 and found.coefficients[2] == pytest.approx(3.0, rel=1e-5)
    assert least_error(F, F[0], -100.0).target == 0.0 or least_error(F, F[0], -100.0).error < 1e-6


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: relu_products([1.0], [[1.0]]), "U: expected a matrix"),
        (lambda: relu_products([[1.0]], [[1.0, 2.0]]), "V: expected rows of length 1"),
        (lambda: feature_change([[1.0]], [[1.0], [2.0]]), "W: expected the shape of F"),
        (lambda: feature_change([[1.0]], [[1.0]], [1.0, 2.0]), "alpha: expected 1 numbers"),
        (lambda: least_error([[1.0]], [0.0]), "v: expected 1 numbers that are not all zero"),
        (lambda: least_error([[1.0]], [1.0], np.inf), "bias: expected a finite number"),
    ],
)
def test_bad_input(call: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        call()  # type: ignore[operator]
