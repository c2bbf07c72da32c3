"""Values in single precision: what comes back says how well it is known, and that is true."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from planted import distance, random_network

import fiberscope as fs
from fiberscope.recovery.layers.bent_surfaces import Equations, Row, Walk
from fiberscope.recovery.layers.first_layer import first_layer, taken_over
from fiberscope.recovery.layers.later_layers import KNOWN, Layer, explain_again, note
from fiberscope.recovery.oracle import Oracle, settle
from fiberscope.recovery.place import place_of
from fiberscope.recovery.polish import forward, standard_error, unit_rows
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.probes import locate, locate_all
from fiberscope.recovery.signs import signs_from_values
from fiberscope.recovery.tilts import refitted, tilted
from fiberscope.run import Run


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


def noisy_pool(seed):
    """A pool that takes values for noisy, of a network in single precision, and its parameters."""
    net = random_network((20, 15, 15, 1), seed)
    place, rng = place_of(None, 20), np.random.default_rng(seed)
    oracle = Oracle(single(net), 20)
    settle(oracle, place, rng)
    return net, Pool.begin(oracle, place, rng, Run(), effort=1)


@pytest.mark.parametrize("seed", [1_003_001, 1_003_003, 1_005_001])
def test_a_first_layer_is_whole_although_kinks_drown_in_noise(seed):
    net, pool = noisy_pool(seed)
    W, b = first_layer(pool, 15)
    rows = np.column_stack([net.weights[0], net.biases[0]]) / np.linalg.norm(net.weights[0], axis=1)[:, None]
    found = np.column_stack([W, b])
    gaps = np.abs(np.concatenate([rows, -rows])[:, None] - found).max(axis=2)
    assert len(b) == 15 and gaps.min(axis=0).max() < 1e-4
    again = Pool.begin(pool.oracle, pool.place, pool.rng, Run(), effort=2)
    taken, _ = taken_over(again, pool)
    assert len(again.lines) > len(pool.lines) and np.array_equal(taken, W)


@pytest.mark.parametrize("seed", range(6))
def test_signs_by_values_are_those_of_a_slow_search(seed):
    rng = np.random.default_rng(seed)
    n, k = 3 + seed, 1 + seed % 2
    Z, s, V = rng.normal(size=(200, n)), rng.choice([-1.0, 1.0], n), rng.normal(size=(n, k))
    Y = np.maximum(Z * s, 0) @ V + 0.5 + 1e-3 * rng.normal(size=(200, k))
    found = signs_from_values(Z, Y)
    off = {}
    for t in itertools.product([1.0, -1.0], repeat=n):
        A = np.column_stack([np.maximum(Z * t, 0), np.ones(200)])
        off[t] = np.linalg.norm(Y - A @ np.linalg.lstsq(A, Y, rcond=None)[0])
    assert tuple(found.values) == min(off, key=off.get) == tuple(s)
    assert found.choices == sum(value <= 2 * min(off.values()) for value in off.values()) == 1


def test_signs_that_values_do_not_tell_are_counted():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(200, 4))
    Y = np.maximum(Z[:, :3], 0) @ np.ones((3, 1)) + 1e-3 * rng.normal(size=(200, 1))
    assert signs_from_values(Z, Y).choices == 2  # nobody reads the last one
    assert signs_from_values(np.zeros((2, 30)), np.zeros((2, 1))) is None


def test_a_known_neuron_and_a_twin_are_no_new_neurons():
    net, pool = noisy_pool(1_003_002)
    pool.search(*pool.place.lines(pool.rng, 30))
    prefix = Prefix((net.weights[0],), (net.biases[0],), 0.0, True)
    explain_again(pool, prefix, Layer())
    walk = Walk(pool.oracle, pool.place, prefix, pool.rng)

    def noted(layer, row):
        return note(pool, prefix, layer, walk, Row(Equations(np.eye(16), np.asarray(row) / np.linalg.norm(row))))

    layer = Layer()
    assert not noted(layer, np.eye(16)[4] + 1e-4) and KNOWN in layer.refused
    row = np.append(net.weights[1][9], net.biases[1][9])
    assert noted(layer, row) and len(layer.rows) == 1
    rough = row + 0.02 * np.linalg.norm(row) * np.random.default_rng(0).normal(size=16)
    assert Row(Equations(np.eye(16), rough)).ratio(layer.rows[0], pool.same) is None
    assert not noted(layer, rough) and len(layer.rows) == 1
    assert layer.rows[0].ratio(Row(Equations(np.eye(16), row)), 1e-3) is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2000, 3001, 3002, 3003, 5000, 7000, 7008])
def test_wider_layers_in_single_precision_come_back(seed):
    truth = random_network((20, 15, 15, 1), 1_000_000 + seed)
    found = fs.recover(single(truth), truth.widths, seed=seed)
    assert found.recovered and found.accuracy <= 1e-4
    assert distance(truth, found.network) <= found.accuracy + 1e-7
