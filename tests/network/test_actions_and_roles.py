"""Group actions keep the function exactly; roles agree with brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.testing import CASES, assert_same_function, case, fraction_signs
from fiberscope.testing.hostile import hostile_batches, hostile_chains, programs
from fiberscope.testing.strategies import batches, chains


@st.composite
def moved(draw):
    """A chain, a batch, and a copy permuted and rescaled by powers of two."""
    net = draw(chains())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    orders = [rng.permutation(n) for n in net.widths[1:-1]]
    scales = [2.0 ** rng.integers(-5, 6, n) for n in net.widths[1:-1]]
    return net, draw(batches(net)), orders, scales


@settings(max_examples=80, deadline=None)
@given(moved())
def test_symmetries_keep_the_real_function(drawn):
    net, X, orders, scales = drawn
    assert_same_function(net, fs.rescale(fs.permute(net, orders), scales), X)


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from([1, 40, 900]), st.integers(0, 2**32 - 1))
def test_powers_of_two_keep_the_real_function_or_are_refused(data, reach, seed):
    net = data.draw(hostile_chains())
    rng = np.random.default_rng(seed)
    scales = [2.0 ** rng.integers(-reach, reach + 1, n) for n in net.widths[1:-1]]
    try:
        found = fs.rescale(net, scales)
    except fs.InputError as error:
        assert "products within the floats" in str(error)
    else:
        assert_same_function(net, found, data.draw(hostile_batches(net)))


@pytest.mark.parametrize(("weight", "scale"), [(3.0, 2.0**-1074), (3e-310, 2.0**-40), (1e300, 2.0**40)])
def test_a_product_beyond_the_floats_is_refused(weight, scale):
    net = fs.Network([[[weight]], [[1.0]]], [[0.0], [0.0]])
    with pytest.raises(fs.InputError, match="expected products within the floats, got"):
        fs.rescale(net, [[scale]])


@settings(max_examples=80, deadline=None)
@given(moved())
def test_signs_move_with_the_neurons(drawn):
    net, X, orders, scales = drawn
    starts = np.cumsum([0, *net.widths[1:-1]])
    index = np.concatenate([start + order for start, order in zip(starts, orders, strict=False)])
    assert np.array_equal(fs.rescale(fs.permute(net, orders), scales).signs(X).signs, net.signs(X).signs[:, index])


@settings(max_examples=60, deadline=None)
@given(moved())
def test_actions_invert(drawn):
    net, _, orders, scales = drawn
    back = fs.permute(fs.permute(net, orders), [np.argsort(order) for order in orders])
    assert fs.identical(back, net)
    if all(np.isfinite(w).all() and (np.abs(w[w != 0]) > 1e-280).all() for w in net.weights):
        again = fs.rescale(fs.rescale(net, scales), [1 / s for s in scales])
        assert fs.identical(again, net)


def test_none_leaves_a_layer_alone():
    net = fs.Network.random((2, 3, 4, 1), 0)
    assert fs.identical(fs.permute(net, [None, None]), net)
    assert fs.identical(fs.rescale(net, [None, np.ones(4)]), net)


@pytest.mark.parametrize(
    ("act", "argument", "message"),
    [
        (fs.permute, [[0, 1, 2]], "expected 2, one per hidden layer, got 1"),
        (fs.permute, [[0, 1, 1], None], "permutation of hidden layer 1: expected a permutation of 0 to 2"),
        (fs.permute, [[0.0, 1.0, 2.0], None], "permutation of 0 to 2"),
        (fs.rescale, [[1.0, 1.0, 0.0], None], "scales of hidden layer 1: expected 3 positive numbers"),
        (fs.rescale, [[1.0, 1.0, np.nan], None], "finite"),
        (fs.rescale, [], "expected 2, one per hidden layer, got 0"),
    ],
)
def test_bad_actions(act, argument, message):
    with pytest.raises(fs.InputError, match=message):
        act(fs.Network.random((2, 3, 4, 1), 0), argument)


def test_actions_need_a_chain():
    with pytest.raises(fs.UnsupportedModelError, match="plain chain"):
        fs.permute(case("convolutional"), [])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_roles_equal_brute_force(data):
    net = data.draw(chains())
    X = data.draw(batches(net))
    signs = np.array([fraction_signs(net, x) for x in X])
    slopes = np.concatenate([node.slopes for node in net.switches])
    found = fs.roles(net, X)
    dead = (signs <= 0).all(axis=0) & (slopes == 0)
    linear = ~dead & ((signs >= 0).all(axis=0) | (signs <= 0).all(axis=0))
    assert np.array_equal(found.dead, dead)
    assert np.array_equal(found.linear, linear)
    assert (found.dead.astype(int) + found.linear + found.switching == 1).all()
    assert sum(row["width"] for row in found.per_layer()) == net.num_hidden


@pytest.mark.parametrize("name", CASES)
def test_what_the_weights_prove_holds_on_every_batch(name):
    net = case(name)
    proven = fs.structural_roles(net)
    seen = fs.roles(net, 10 * np.random.default_rng(0).normal(size=(200, net.in_size)))
    assert (seen.dead | ~proven.dead).all()
    assert (seen.dead | seen.linear | ~proven.linear).all()
    assert np.array_equal(proven.layers, seen.layers)


def test_weights_prove_a_dead_and_a_linear_neuron():
    net = fs.Network(
        [[[1.0], [-1.0]], [[-1.0, -2.0], [1.0, 3.0], [1.0, -1.0]], [[1.0, 1.0, 1.0]]],
        [[0.0, 0.0], [-0.5, 0.5, 0.0], [0.0]],
    )
    found = fs.structural_roles(net)
    assert found.dead.tolist() == [False, False, True, False, False]
    assert found.linear.tolist() == [False, False, False, True, False]
    assert case("dead_layer").num_hidden == 11
    assert fs.structural_roles(case("dead_layer")).dead[6:].all()


def test_what_is_dead_reaches_nothing():
    # The first neuron of layer 2 is dead, so that layer 3 sees a bias alone; its second neuron sees the other one.
    weights = [[[1.0]], [[-1.0], [1.0]], [[1.0, 0.0], [9.0, -1.0]], [[1.0, 1.0]]]
    found = fs.structural_roles(fs.Network(weights, [[0.0], [-1.0, 0.0], [2.0, -1.0], [0.0]]))
    assert found.dead.tolist() == [False, True, False, False, True]
    assert found.linear.tolist() == [False, False, True, True, False]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_the_weights_of_programs_prove_holds_at_every_point(data):
    net = data.draw(programs())
    proven = fs.structural_roles(net)
    signs = np.array([fraction_signs(net, x) for x in data.draw(hostile_batches(net))])
    own = signs[:, ~net.layout.pooled]
    slopes = np.concatenate([n.slopes for n in net.switches if isinstance(n, PiecewiseLinear)] or [np.zeros(0)])
    assert (own[:, proven.dead] <= 0).all()
    kept = own[:, proven.linear & (slopes != 1)]
    assert ((kept >= 0).all(axis=0) | (kept <= 0).all(axis=0)).all()


def test_a_leaky_neuron_hands_negative_values_on():
    net = fs.Network([[[1.0]], [[1.0]], [[1.0]]], [[0.0], [0.0], [0.0]], "leaky_relu", slope=0.5)
    assert fs.structural_roles(net).switching.all()
    assert not fs.structural_roles(net).linear.any()


def test_a_negative_slope_makes_a_negative_value_positive():
    nodes = [
        Affine(0, Dense(np.zeros((1, 1))), np.array([-1.0])),
        PiecewiseLinear(1, np.array([-1.0]), (1,)),
        PiecewiseLinear(2, np.zeros(1), (1,)),
    ]
    net = fs.Network.from_nodes(nodes, (1,))
    assert net([[5.0]]).item() == 1.0
    assert not fs.structural_roles(net).dead.any()


def test_a_bounded_leaky_neuron_is_linear_not_dead():
    net = fs.Network([[[1.0]], [[1.0]]], [[-5.0], [0.0]], "leaky_relu", slope=0.5)
    assert fs.roles(net, [[0.0], [1.0]]).linear.tolist() == [True]


def test_roles_of_a_point_on_a_boundary_are_reported():
    net = fs.Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    assert fs.roles(net, [[0.0], [1.0]]).on_boundary == 1
    assert "1 linear" in repr(fs.roles(net, [[0.0], [1.0]]))
    assert fs.roles(net, [[0.0]]).to_dict()["dead"] == [0]
