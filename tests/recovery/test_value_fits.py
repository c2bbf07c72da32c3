"""Noisy values: a first layer through the kinks of many lines, its signs, and neurons fitted to values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import distance, random_network
from test_noisy import single

import fiberscope as fs
from fiberscope.recovery.black_box import Search, conclude
from fiberscope.recovery.layers.many_kinks import hyperplanes
from fiberscope.recovery.layers.sides import told_sides
from fiberscope.recovery.layers.value_fit import ValueFit, layer_from_values
from fiberscope.recovery.oracle import Oracle, settle
from fiberscope.recovery.place import place_of
from fiberscope.recovery.polish import damped, forward, polish
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.unresolved import Unresolved
from fiberscope.run import Run


def noisy(net, seed=0):
    place, rng = place_of(None, net.widths[0]), np.random.default_rng(seed)
    oracle = Oracle(single(net), net.widths[0])
    settle(oracle, place, rng)
    return Pool.begin(oracle, place, rng, Run())


def up_to_sign(net, seed):
    """The first layer of a network with rows of norm one, each with a random sign, and these signs."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], net.widths[1])
    sizes = signs / np.linalg.norm(net.weights[0], axis=1)
    return Prefix((net.weights[0] * sizes[:, None],), (net.biases[0] * sizes,)), signs


@pytest.mark.parametrize(("widths", "seed"), [((6, 5, 4, 1), 0), ((8, 8, 6, 2), 1), ((20, 15, 15, 1), 2)])
def test_signs_of_a_first_layer_are_told_by_single_preactivations(widths, seed):
    net = random_network(widths, seed)
    prefix, signs = up_to_sign(net, seed)
    told = told_sides(noisy(net), prefix)
    assert np.array_equal(told.weights[0], signs[:, None] * prefix.weights[0])
    assert np.array_equal(told.biases[0], signs * prefix.biases[0]) and told.oriented


@pytest.mark.parametrize("seed", range(3))
def test_signs_of_a_layer_that_lacks_a_neuron_or_has_a_wrong_one_are_not_told(seed):
    net = random_network((8, 6, 5, 1), seed)
    prefix, _ = up_to_sign(net, seed)
    (W,), (b,) = prefix.weights, prefix.biases
    pool = noisy(net)
    assert told_sides(pool, prefix) is not None
    assert told_sides(pool, Prefix((W[1:],), (b[1:],))) is None
    wrong = np.random.default_rng(seed).normal(size=8)
    assert told_sides(pool, Prefix((np.concatenate([W[1:], wrong[None]]),), (b,))) is None
    assert told_sides(pool, Prefix((W[:0],), (b[:0],))) is None
    wide = random_network((4, 6, 5, 1), seed)
    assert told_sides(noisy(wide), up_to_sign(wide, seed)[0]) is None  # rows depend on each other


def gaps(net, prefix, rows):
    """How far every row of the second layer is from the nearest one found, both over the unit rows of the first."""
    truth = np.column_stack([net.weights[1] * np.linalg.norm(net.weights[0], axis=1), net.biases[1]])
    truth /= np.linalg.norm(truth, axis=1)[:, None]
    return np.abs(np.concatenate([rows, -rows])[:, None] - truth).max(axis=2).min(axis=0)


@pytest.mark.parametrize(("widths", "seed"), [((6, 5, 4, 1), 0), ((8, 8, 6, 2), 1), ((9, 7, 10, 1), 3)])
def test_neurons_are_fitted_to_values(widths, seed):
    net = random_network(widths, seed)
    pool, (prefix, signs) = noisy(net), up_to_sign(net, seed)
    layer = layer_from_values(pool, prefix, widths[2])
    assert np.array_equal(layer.signs, signs) and len(layer.rows) == widths[2]
    assert gaps(net, prefix, layer.matrix).max() < 1e-3
    assert pool.oracle.spent < 15_000
    X, Y = layer.points
    assert np.array_equal(Y, pool.oracle.uncounted(X))


def test_neurons_are_begun_where_everything_is_explained():
    net = random_network((6, 5, 4, 1), 0)
    fit = whole_fit(net, np.zeros((0, 6)))
    linear = replace(fit, Y=np.zeros_like(fit.Y))
    assert linear.begun(3).rows.shape == (3, 6) and linear.begun(0).rows.shape == (0, 6)


def test_values_that_no_neurons_explain_are_not_fitted():
    net = random_network((6, 5, 8, 1), 0)
    pool, (prefix, _) = noisy(net), up_to_sign(net, 0)
    assert layer_from_values(pool, prefix, 4) is None


def whole_fit(net, rows, count=1500):
    pool, (prefix, _) = noisy(net), up_to_sign(net, 0)
    known = told_sides(pool, prefix)
    X = pool.place.draw(pool.rng, count)
    return ValueFit(pool, known, X, pool.oracle.values(X), rows)


def test_neurons_that_others_make_up_for_are_left_out():
    net = random_network((6, 5, 4, 1), 0)
    truth = np.column_stack([net.weights[1] * np.linalg.norm(net.weights[0], axis=1), net.biases[1]])
    truth /= np.linalg.norm(truth, axis=1)[:, None]
    rng = np.random.default_rng(0)
    twin = truth[1] + 0.02 * rng.normal(size=6)
    fit = whole_fit(net, np.concatenate([truth, twin[None], rng.normal(size=(2, 6))])).fitted()
    thin = fit.thinned(4)
    assert len(fit.rows) == 7 and len(thin.rows) == 4 and thin.off <= 1e-5
    assert gaps(net, None, thin.rows).max() < 1e-3
    assert len(whole_fit(net, truth).fitted().thinned(4).rows) == 4


def test_neurons_with_few_values_on_one_side_are_seen():
    net = random_network((6, 5, 4, 1), 0)
    rows = np.column_stack([net.weights[1] * np.linalg.norm(net.weights[0], axis=1), net.biases[1]])
    fit = whole_fit(net, rows)
    assert not len(fit.unsupported())
    z = fit.features @ rows[0]
    high = np.sort(z)[-3:].mean()
    rare = np.append(rows[0, :-1], rows[0, -1] - high)  # on at two points
    more = fit.with_rows(rare[None]).unsupported()
    assert len(more) and ((fit.known.features(more) @ rare > 0).mean() > 0.3)


@pytest.mark.parametrize("seed", [7000, 7002, 7005])
def test_a_first_layer_goes_through_the_kinks_of_many_lines(seed):
    net = random_network((20, 15, 15, 1), 1_000_000 + seed)
    pool = noisy(net, seed)
    W, b = hyperplanes(pool, 15)
    rows = np.column_stack([net.weights[0], net.biases[0]]) / np.linalg.norm(net.weights[0], axis=1)[:, None]
    found = np.column_stack([W, b])
    off = np.abs(np.concatenate([rows, -rows])[:, None] - found).max(axis=2)
    assert len(b) == 15 and off.min(axis=0).max() < 2e-4 and pool.oracle.spent < 40_000


def test_a_damped_fit_comes_from_farther_away():
    rng = np.random.default_rng(2)
    net = random_network((5, 6, 4, 2), 2)
    theta = [a for pair in zip(net.weights, net.biases, strict=True) for a in pair]
    start = [*theta[:2], *(a + 0.3 * rng.normal(size=a.shape) for a in theta[2:])]
    X = 2 * rng.normal(size=(800, 5))
    found, size = damped(start, X, net(X), Run(), fixed=1, goal=1e-12)
    off = np.abs(forward(found, X)[0] - net(X))
    assert size <= 1e-10 and off.max() < 1e-9
    assert all(np.array_equal(a, c) for a, c in zip(theta[:2], found[:2], strict=True))
    assert np.abs(forward(polish(start, X, net(X), Run(), 1), X)[0] - net(X)).max() > 1e-3
    _, weighted = damped(theta, X, net(X) + 1.0, Run(), fixed=2, sizes=np.full(800, 4.0), goal=np.inf)
    assert weighted == pytest.approx(0.25)  # in parts of the sizes


@pytest.mark.parametrize("whole", [True, False])
def test_choices_of_signs_do_not_give_a_function_that_the_network_is_not(whole):
    net, other = random_network((4, 5, 3, 1), 0), random_network((4, 5, 3, 1), 1)
    search = Search(noisy(net), net.widths, list(other.weights), list(other.biases))
    search.unresolved = [Unresolved(2, None, "3 choices of signs give this function; one of them was taken")]
    found = conclude(search, whole, None, Run())
    assert not found.recovered
    assert not any("signs give this function" in item.reason for item in found.unresolved)
    assert "3 choices of signs fit equally well, but what was found does not give this function" in str(found)
    right = Search(noisy(net), net.widths, list(net.weights), list(net.biases))
    right.unresolved = [Unresolved(2, None, "3 choices of signs give this function; one of them was taken")]
    assert "signs give this function" in conclude(right, True, None, Run()).unresolved[0].reason


@pytest.mark.parametrize("seed", [0, 1])
def test_a_neuron_too_many_is_named_and_not_fitted(seed):
    net = random_network((6, 5, 4, 1), 1_000_000 + seed)
    found = fs.recover(single(net), (6, 5, 5, 1), seed=seed)
    assert not found.recovered and found.residual <= 1e-4
    assert [(item.layer, item.neuron) for item in found.unresolved] == [(2, 4)]


@pytest.mark.parametrize(("accuracy", "recovered"), [(5.0, False), (1e-5, True)])
def test_parameters_that_values_do_not_tell_are_not_recovered(accuracy, recovered):
    net = random_network((4, 5, 3, 1), 0)
    search = Search(noisy(net), net.widths, list(net.weights), list(net.biases), accuracy=accuracy)
    found = conclude(search, True, None, Run())
    assert found.recovered == recovered == (not found.unresolved)
    assert recovered or "the values tell parameters to about 5e+00 only" in str(found.unresolved[0])


def test_a_wider_network_comes_back_from_few_values():
    truth = random_network((20, 15, 15, 1), 1_007_004)
    found = fs.recover(single(truth), truth.widths, seed=7004)
    assert found.recovered and found.queries < 60_000 and found.accuracy <= 1e-4
    assert distance(truth, found.network) <= found.accuracy + 1e-7
