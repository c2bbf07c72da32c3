"""Values in single precision: what comes back says how well it is known, and that is true."""

from __future__ import annotations

import numpy as np
import pytest
from planted import distance, random_network

import fiberscope as fs
from fiberscope.recovery.oracle import Oracle, settle
from fiberscope.recovery.place import place_of
from fiberscope.recovery.polish import forward, standard_error, unit_rows
from fiberscope.recovery.probes import locate, locate_all
from fiberscope.recovery.tilts import refitted, tilted


def single(net):
    """The network evaluated in float32."""
    weights, biases = ([a.astype(np.float32) for a in arrays] for arrays in (net.weights, net.biases))

    def function(X):
        a = X.astype(np.float32)
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            a = np.maximum(a @ w.T + b, 0)
        return a @ weights[-1].T + biases[-1]

    return function


def checked(widths, seed):
    truth = random_network(widths, seed)
    found = fs.recover(single(truth), widths, seed=seed)
    assert (found.noise > 1e-9 and found.residual <= 1e-4 * found.size) or not found.recovered
    if found.recovered:
        assert distance(truth, found.network) <= found.accuracy + 1e-7
        assert "parameters to about" in repr(found)
    return found


@pytest.mark.parametrize(("widths", "seed"), [((4, 5, 1), 0), ((6, 5, 4, 1), 1), ((6, 5, 4, 1), 3)])
def test_a_network_in_single_precision_comes_back_as_well_as_it_says(widths, seed):
    found = checked(widths, seed)
    assert found.recovered and found.accuracy <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_single_precision_on_more_seeds(seed):
    checked((6, 5, 4, 2), seed)


def test_the_accuracy_of_exact_values_is_that_of_double_precision():
    truth = random_network((6, 5, 4, 2), 2)
    found = fs.recover(truth, truth.widths)
    assert found.recovered and distance(truth, found.network) <= found.accuracy <= 1e-8


def test_unit_rows_are_the_same_function_and_the_error_is_that_of_many_fits():
    rng = np.random.default_rng(0)
    net = random_network((2, 3, 1), 0)
    theta = unit_rows([a for pair in zip(net.weights, net.biases, strict=True) for a in pair])
    X = rng.normal(size=(60, 2))
    assert np.abs(forward(theta, X)[0] - net(X)).max() < 1e-12
    assert np.allclose(np.linalg.norm(np.column_stack(theta[:2]), axis=1), 1.0)
    one, two = (standard_error(theta, X, net(X), 0.0, noise) for noise in (1e-6, 1e-3))
    assert two == pytest.approx(1000 * one)


def noisy_plane(seed, bend):
    """A kink at a hyperplane, with rounding of float32, that bends at a second one or not."""
    rng = np.random.default_rng(seed)
    n, m = rng.normal(size=(2, 6))
    n /= np.linalg.norm(n)

    def function(X):
        z = X @ n - 0.3 + bend * np.maximum(X @ m - 0.5, 0)
        return (np.maximum(z, 0) + X @ np.ones(6)).astype(np.float32)

    oracle, place = Oracle(function, 6), place_of(None, 6)
    settle(oracle, place, rng)
    start = n + 0.02 * rng.normal(size=6)
    return oracle, place, n, 0.3 * n, start / np.linalg.norm(start), rng


@pytest.mark.parametrize("seed", range(3))
def test_a_normal_is_sharpened_from_afar(seed):
    oracle, place, n, x, start, rng = noisy_plane(seed, 0.0)
    found = tilted(oracle, x, start, 1e-3 * place.size, 0.1 * place.size, rng)
    assert np.abs(found.n - n).max() < 1e-5 < np.abs(start - n).max()
    assert abs(found.n @ found.x - 0.3) < 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_a_surface_that_bends_is_not_followed_beyond_its_bend(seed):
    oracle, place, n, x, start, rng = noisy_plane(seed, 1.0)
    found = tilted(oracle, x, start, 1e-3, 0.3 * place.size, rng)
    assert found is None or (found.reach < 3.0 and np.abs(found.n - n).max() < 1e-3)


def test_many_segments_at_once_are_what_single_ones_are():
    oracle, _place, n, x, _start, rng = noisy_plane(0, 1.0)
    X = x + 0.2 * rng.normal(size=(12, 6))
    many = locate_all(oracle, X, n, 0.5)
    for k, point in enumerate(X):
        alone = locate(oracle, point, n, 0.5)
        assert (alone is not None) == many.found[k]
        assert alone is None or alone[0] == many.at[k]
    assert not locate_all(oracle, X, n, 0.0).found.any()


def test_a_fit_through_kinks_ignores_those_of_others_and_needs_more_than_it_can_always_meet():
    rng = np.random.default_rng(1)
    row = np.array([1.0, -2.0, 0.5, 0.3])
    X = rng.normal(size=(40, 3))
    X[:30] -= np.outer((X[:30] @ row[:3] + row[3]) / (row[:3] @ row[:3]), row[:3])
    features, sizes = np.column_stack([X, np.ones(40)]), np.full(40, np.linalg.norm(row[:3]))
    found = refitted(features, row + 1e-3, sizes, np.full(40, 1e-9), 0.05)
    assert np.abs(found / found[0] - row / row[0]).max() < 1e-8
    assert refitted(features[:4], row, sizes[:4], np.full(4, 1e-9), 0.05) is None


@pytest.mark.parametrize("seed", [0, 1])
def test_the_construction_with_three_hidden_layers_comes_back_from_values(seed):
    truth = fs.identifiable_network((6, 5, 4, 3, 1), fs.Box.cube(6), seed=0)
    found = fs.recover(truth, truth.widths, seed=seed)
    assert found.recovered and found.residual <= 1e-10 * found.size
    assert distance(truth, found.network) <= 1e-8
