"""The parts of the search against obvious oracles: kinks on lines, signs, features, polishing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from planted import random_network

import fiberscope as fs
from fiberscope.numerics.cutoffs import SIGN_OFF
from fiberscope.recovery.black_box import Search, held_out
from fiberscope.recovery.layers.bent_surfaces import State, Walk
from fiberscope.recovery.lines import BESIDE, scan
from fiberscope.recovery.oracle import Oracle, settle
from fiberscope.recovery.place import place_of
from fiberscope.recovery.polish import forward, polish
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.signs import _matched, solve_signs
from fiberscope.run import Run


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(2, 4, 1), (5, 8, 4, 1), (4, 4, 4, 4, 2)]))
@example(838, (2, 4, 1))  # two kinks of opposite signs, .004 apart, whose tangents meet beside both
def test_kinks_on_a_line_are_those_of_the_exact_engine(seed, widths):
    net, place = random_network(widths, seed), place_of(None, widths[0])
    oracle, rng = Oracle(net, widths[0]), np.random.default_rng(seed)
    settle(oracle, place, rng)
    (line,) = scan(oracle, *place.lines(rng, 1), Run())
    exact = np.asarray(fs.regions_along(net, fs.Segment(line.start, line.end)).breakpoints, dtype=float)
    gaps = np.abs(np.subtract.outer(line.kinks, exact))
    # no kink is invented; one may stand for two that are nearer to each other than the checks beside it
    assert ((gaps <= 1e-8).any(axis=1) | ((gaps <= BESIDE).sum(axis=1) >= 2)).all()


def test_no_line_is_a_point():
    """A point that was clipped into a corner, with a direction out of the box."""
    starts, ends = place_of(None, 5).lines(np.random.default_rng(0), 4000)
    assert (np.abs(starts - ends).max(axis=1) > 0).all()


def test_known_kinks_are_all_found():
    kinks = np.array([0.1, 0.35, 0.4, 0.77])
    oracle = Oracle(lambda X: (np.abs(X - kinks) * [1, -2, 3, 0.5]).sum(axis=1), 1)
    settle(oracle, place_of(fs.Box([0.0], [1.0]), 1), np.random.default_rng(0))
    (line,) = scan(oracle, np.zeros((1, 1)), np.ones((1, 1)), Run())
    np.testing.assert_allclose(line.kinks, kinks, atol=1e-12)
    np.testing.assert_allclose(line.jumps, [2, -4, 6, 1], atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(2, 7), st.integers(2, 5))
def test_signs_are_those_of_a_search_over_all(seed, k, n, p):
    rng = np.random.default_rng(seed)
    U, W, s = rng.normal(size=(k, n)), rng.normal(size=(n, p)), rng.choice([-1.0, 1.0], n)
    found = solve_signs(U, W, (U * s) @ W)
    fits = [t for t in itertools.product([1.0, -1.0], repeat=n) if np.allclose((U * t) @ W, (U * s) @ W, atol=1e-6)]
    assert found is not None and tuple(found.values) in fits


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 9), st.integers(1, 3))
def test_matched_halves_are_all_choices(seed, q, more):
    rng = np.random.default_rng(seed)
    free, s = rng.normal(size=(q + more, q)), rng.choice([-1.0, 1.0], q + more)
    start = s + free @ rng.normal(size=q)
    pivots = np.arange(q)
    found = {tuple(t) for t in _matched(start, free, pivots)}
    fits = set()
    for t in itertools.product([1.0, -1.0], repeat=q):
        y = np.linalg.solve(free[:q], np.array(t) - start[:q])
        if np.abs(np.abs(start + free @ y) - 1).max() <= SIGN_OFF:
            fits.add(t)
    assert found == fits and tuple(s[:q]) in found


@pytest.mark.parametrize("n", [24, 30])
def test_signs_of_a_wide_layer_by_halves(n):
    """One output, few inputs: of 30 signs 25 follow from nothing but that all are +1 or -1."""
    rng = np.random.default_rng(n)
    U, W, s = rng.normal(size=(1, n)), rng.normal(size=(n, 5)), rng.choice([-1.0, 1.0], n)
    found = solve_signs(U, W, (U * s) @ W)
    assert found is not None
    assert np.abs((U * found.values) @ W - (U * s) @ W).max() < 0.02 * np.abs((U * s) @ W).max()
    assert found.choices > 1 or (found.values == s).all()


def test_no_signs_fit_what_is_not_there():
    rng = np.random.default_rng(0)
    assert solve_signs(rng.normal(size=(2, 3)), rng.normal(size=(3, 4)), rng.normal(size=(2, 4))) is None


def test_turns_are_the_change_of_features_behind_a_fold():
    net = random_network((4, 5, 3, 1), 0)
    prefix = Prefix(tuple(net.weights[:2]), tuple(net.biases[:2]))
    pattern = prefix.pattern(np.array([0.3, -0.2, 0.5, 0.1]))
    cell = prefix.cell(pattern)
    for fold in range(8):
        flipped = [s.copy() for s in pattern]
        part, index = (0, fold) if fold < 5 else (1, fold - 5)
        flipped[part][index] *= -1
        change = prefix.cell(flipped).slopes - cell.slopes
        np.testing.assert_allclose(change, np.outer(cell.turns[fold], cell.folds[fold]), atol=1e-12)


def test_polishing_takes_small_errors_away():
    net, rng = random_network((4, 6, 5, 2), 1), np.random.default_rng(0)
    theta = [a for pair in zip(net.weights, net.biases, strict=True) for a in pair]
    X = rng.normal(size=(400, 4))
    near = polish([a + 1e-6 * rng.normal(size=a.shape) for a in theta], X, net(X), Run())
    fresh = rng.normal(size=(1000, 4))
    assert np.abs(forward(near, fresh)[0] - net(fresh)).max() <= 1e-11


@pytest.mark.parametrize(
    "domain", [None, fs.Orthant(3), fs.Box.cube(3), fs.Polytope(np.vstack([-np.eye(3), np.ones(3)]), [0, 0, 0, 1.0])]
)
def test_places_stay_inside(domain):
    place, rng = place_of(domain, 3), np.random.default_rng(0)
    starts, ends = place.lines(rng, 5)
    for X in (place.draw(rng, 50), (starts + ends) / 2):
        assert domain is None or domain.contains(X).all()


@pytest.mark.parametrize("seed", range(4))
def test_signs_where_every_next_neuron_is_known_in_part(seed):
    """The two surfaces behind this layer do not meet all of its folds: the equations that there are tell its signs."""
    net = fs.Network.random((4, 5, 3, 1), 0)
    weights, biases = net.weights, net.biases
    truth = fs.Network([weights[0], weights[1][1:], weights[2][:, 1:]], [biases[0], biases[1][1:], biases[2]])
    found = fs.recover(truth, truth.widths, seed=seed)
    assert found.recovered and found.residual < 1e-12
    X = np.random.default_rng(seed).normal(size=(10_000, 4)) * 10
    np.testing.assert_allclose(found.network(X), truth(X), rtol=0, atol=1e-10)


def test_parameters_that_are_not_numbers_are_never_close():
    oracle, place = Oracle(lambda X: X[:, :1], 2), place_of(None, 2)
    rng = np.random.default_rng(0)
    settle(oracle, place, rng)
    search = Search(Pool.begin(oracle, place, rng, Run()), (2, 1, 1))
    residual, _ = held_out(search, [np.full((1, 2), np.nan), np.zeros(1), np.ones((1, 1)), np.zeros(1)], Run())
    assert np.isnan(residual)


def test_later_folds_of_leaky_networks_are_drawn_where_they_are():
    planes = ((np.eye(2), np.zeros(2)), (np.ones((1, 2)), np.array([-1.0])))
    found = fs.Recovery((2, 2, 1, 1), None, np.inf, 0.0, 0.0, 0, 0, (), False, None, planes, slope=0.5)
    ax = fs.plot.recovered(found, reach=3.0, resolution=201)
    points = ax.collections[-1].get_paths()[0].vertices
    value = np.where(points > 0, points, 0.5 * points).sum(axis=1) - 1
    assert points.min() < -2 and np.abs(value).max() < 1e-2


def test_a_surface_that_is_a_fold_is_not_followed_behind_it():
    """A point of it has no side of the fold."""
    net = fs.Network([np.eye(2), [[1.0, 1.0]], [[1.0]]], [[0.0, 0.0], [-1.0], [0.0]])
    walk = Walk(
        Oracle(net, 2), place_of(None, 2), Prefix((np.eye(2),), (np.zeros(2),), 0.0, True), np.random.default_rng(0)
    )
    x = np.array([0.0, 2.0])
    state = State(x, np.array([1.0, 0.0]), walk.prefix.cell(walk.prefix.pattern(x)))
    assert walk.near(state, np.array([0.0, 1.5]), 0) is None
