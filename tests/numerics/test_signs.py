"""Certified signs against rational arithmetic, above all where a float cannot tell."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.network.walk import all_values, switch_values
from fiberscope.numerics.algebra.ball import EXACT, BallAlgebra, ball_signs, balls
from fiberscope.numerics.algebra.bounded import BoundedAlgebra
from fiberscope.testing import CASES, fraction_signs, fraction_values
from fiberscope.testing.strategies import batches, chains


def signs(net: fs.Network, X) -> np.ndarray:
    return net.signs(np.atleast_2d(np.asarray(X, dtype=float))).signs


def oracle(net: fs.Network, X) -> np.ndarray:
    return np.array([fraction_signs(net, x) for x in np.atleast_2d(X)])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_signs_equal_rational_arithmetic_on_random_chains(data):
    net = data.draw(chains())
    X = data.draw(batches(net))
    assert np.array_equal(signs(net, X), oracle(net, X))


@pytest.mark.parametrize("name", CASES)
def test_signs_equal_rational_arithmetic_on_every_case(name):
    net = CASES[name]()
    rng = np.random.default_rng(7)
    X = np.concatenate(
        [rng.integers(-2, 3, (3, net.in_size)), rng.normal(size=(2, net.in_size)), np.zeros((1, net.in_size))]
    )
    assert np.array_equal(signs(net, X), oracle(net, X))


def test_on_and_one_ulp_beside_a_first_layer_hyperplane():
    # 0.1 x - 0.01 is not zero at x = 0.1 in real arithmetic, although its float value may be.
    net = fs.Network([[[0.1]], [[1.0]]], [[-0.01], [0.0]])
    for x in (0.1, np.nextafter(0.1, 0), np.nextafter(0.1, 1)):
        assert signs(net, [[x]]) == fraction_signs(net, [x])
    exact = fs.Network([[[1.0, 1.0]], [[1.0]]], [[-0.75], [0.0]])
    assert signs(exact, [[0.5, 0.25]]).item() == 0
    assert signs(exact, [[0.5, np.nextafter(0.25, 1)]]).item() == 1
    assert signs(exact, [[np.nextafter(0.5, 0), 0.25]]).item() == -1


def test_where_many_hyperplanes_meet():
    # Ten lines through (1/4, -1/2), all with float weights that make the products inexact.
    rng = np.random.default_rng(0)
    weights = rng.integers(-(2**40), 2**40, (10, 2)) * 2.0**-40
    biases = -(weights @ np.array([0.25, -0.5]))  # exact: 42 bits at most
    net = fs.Network([weights, np.ones((1, 10))], [biases, np.zeros(1)])
    assert (signs(net, [[0.25, -0.5]]) == 0).all()
    beside = signs(net, [[np.nextafter(0.25, 1), -0.5]])[0]
    assert np.array_equal(beside, np.sign(weights[:, 0]))


@pytest.mark.parametrize("depth", [2, 5, 12])
def test_zero_and_one_ulp_beside_it_in_a_deep_layer(depth):
    # Each layer computes relu(3 a) and relu(a); the last one subtracts what makes it vanish at x = 0.1.
    weights = [np.array([[1.0], [3.0]])] + [np.array([[1.0, 1.0], [0.5, 0.25]])] * (depth - 1)
    biases = [np.array([0.1, 0.3])] + [np.array([0.7, 0.1])] * (depth - 1)
    head = fs.Network([*weights, [[1.0, -1.0]]], [*biases, [0.0]])
    value = fraction_values(head, [0.1])[-1][0]
    bias = -float(value)
    net = fs.Network([*weights, [[1.0, -1.0]], [[1.0]]], [*biases, [bias], [0.0]])
    for b in (bias, np.nextafter(bias, -np.inf), np.nextafter(bias, np.inf)):
        here = fs.Network([*weights, [[1.0, -1.0]], [[1.0]]], [*biases, [b], [0.0]])
        assert np.array_equal(signs(here, [[0.1]]), oracle(here, [[0.1]]))
    assert net.signs([[0.1]]).by_float < net.num_signs


def test_an_exact_zero_deep_down_needs_exact_arithmetic():
    # Two equal paths of twelve inexact products each cancel exactly; the values have over 600 bits.
    depth = 12
    weights = [np.full((2, 1), 1 / 3)] + [0.1 * np.eye(2)] * depth + [np.array([[1.0, -1.0]]), np.ones((1, 1))]
    biases = [np.full(2, 0.1)] + [np.full(2, 0.2)] * depth + [np.zeros(1), np.zeros(1)]
    net = fs.Network(weights, biases)
    found = net.signs([[0.7]])
    assert found.signs[0, -1] == 0
    assert found.by_exact >= 1
    assert found.zeros.tolist() == [[0, net.num_signs - 1]]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_float_error_bound_contains_the_truth(data):
    net = data.draw(chains())
    X = data.draw(batches(net, max_points=2))
    bounded = BoundedAlgebra()
    values = all_values(net.layout, bounded.take(X), bounded)
    for row, x in enumerate(X):
        for value, truth in zip(values, fraction_values(net, x), strict=True):
            for v, e, t in zip(value.value[row], value.error[row], truth, strict=True):
                assert abs(Fraction(float(v)) - t) <= Fraction(float(e))


@pytest.mark.parametrize("name", ["convolutional", "residual", "leaky", "deep"])
def test_balls_contain_the_truth_and_become_exact(name):
    net = CASES[name]()
    X = np.random.default_rng(1).normal(size=(1, net.in_size))
    truth = fraction_values(net, X[0])[-1]
    for precision in (64, EXACT):
        balls_ = BallAlgebra(precision)
        with balls_.working():
            out = all_values(net.layout, balls_.take(X), balls_)[-1][0]
        with BallAlgebra(EXACT).working():
            for ball, t in zip(out, truth, strict=True):
                assert ball.contains(flint.arb(flint.fmpq(t.numerator, t.denominator)))
                assert precision < EXACT or ball.is_exact()


def test_working_precision_is_restored():
    before = flint.ctx.prec
    fs.Network.random((2, 3, 1), 0).signs([[0.0, 0.0]])
    assert flint.ctx.prec == before


def test_ball_signs_tell_zero_from_unknown():
    wide = flint.arb(0, 1)
    assert ball_signs(np.array([flint.arb(0), wide, flint.arb(2), flint.arb(-2)], dtype=object)).tolist() == [
        0,
        2,
        1,
        -1,
    ]
    assert balls(np.array([0.1]))[0].is_exact()


def test_overflow_is_decided_by_balls():
    net = fs.Network([[[1e300]], [[1e300]], [[1.0]]], [[0.0], [-1.0], [0.0]])
    assert signs(net, [[1e300]]).tolist() == [[1, 1]]


def test_underflow_is_not_taken_for_zero():
    net = fs.Network([[[1e-300]], [[1e-300]], [[1.0]]], [[0.0], [0.0], [0.0]])
    assert signs(net, [[1e-10]]).tolist() == [[1, 1]]
    assert signs(net, [[0.0]]).tolist() == [[0, 0]]


def test_a_large_weight_on_a_subnormal_value_is_not_lost_in_the_bound():
    weight = [[2.2501084333286362e294, -1.031698773988266e295, -1.4068107462989543e295]]
    net = fs.Network([weight, [[1.0]]], [[0.0], [0.0]])
    x = [1.5e-322, -3.1e-322, 2.5e-322]
    assert signs(net, [x]).item() == fraction_signs(net, x).item() == 1


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_subnormal_values_and_huge_weights_agree_with_rational_arithmetic(seed):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(3, 3)) * 2.0 ** rng.integers(960, 980), rng.normal(size=(1, 3))]
    net = fs.Network(weights, [np.zeros(3), np.zeros(1)])
    x = rng.integers(-60, 60, 3) * 5e-324
    assert np.array_equal(signs(net, [x]), oracle(net, [x]))


def test_a_product_that_overflows_without_a_bias_proves_nothing():
    nodes = [
        Affine(0, Dense(np.array([[1.0, 1.0, -2.5]]))),
        PiecewiseLinear(1, np.zeros(1), (1,)),
        Affine(2, Dense(np.ones((1, 1)))),
    ]
    net = fs.Network.from_nodes(nodes, (3,))
    assert signs(net, [[1e308, 1e308, 1e308]]).item() == -1


def test_rows_of_zeros_are_decided_without_balls():
    net = CASES["zero_rows"]()
    found = net.signs(np.random.default_rng(0).normal(size=(50, 2)))
    assert (found.signs[:, 0] == 0).all()
    assert found.by_ball == found.by_exact == 0


def test_max_pool_ties_between_dead_inputs_are_zeros_found_by_the_float_bound():
    net = CASES["convolutional"]()
    found = net.signs(np.random.default_rng(0).normal(size=(20, net.in_size)))
    assert len(found.zeros) > 0
    assert found.by_ball == found.by_exact == 0


def test_linear_neurons_are_always_active():
    net = CASES["mixed_linear"]()
    found = signs(net, np.random.default_rng(0).normal(size=(30, 2)))
    assert (found[:, [0, 2]] == 1).all()
    assert {-1, 1} <= set(found[:, 1].tolist())


def test_plain_and_bounded_values_agree():
    net = CASES["convolutional"]()
    X = np.random.default_rng(3).normal(size=(4, net.in_size))
    bounded = BoundedAlgebra()
    for plain, value in zip(net.preactivations(X), switch_values(net.layout, bounded.take(X), bounded), strict=True):
        assert np.array_equal(plain, value.value)


def test_report_counts_every_entry_once():
    net = CASES["integer"]()
    found = net.signs(np.random.default_rng(0).integers(-2, 3, (20, 2)).astype(float))
    assert found.by_float + found.by_ball + found.by_exact == found.signs.size
    assert "zeros" in repr(found)
    assert found.to_dict()["by_float"] == found.by_float
