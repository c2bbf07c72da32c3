"""From the folds of a function back to its parameters, in fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs


def value(layers, slope, x):
    """The network at a point, in fractions: the obvious oracle."""
    a = [Fraction(v) for v in x]
    for k, (W, b) in enumerate(layers):
        a = [
            sum((Fraction(w) * v for w, v in zip(row, a, strict=True)), Fraction(c))
            for row, c in zip(W, b, strict=True)
        ]
        if k < len(layers) - 1:
            a = [v if v > 0 else Fraction(slope) * v for v in a]
    return a


def same_at_points(found, truth, slope=0.0, seed=0):
    given_ = [(W.tolist(), b.tolist()) for W, b in zip(truth.weights, truth.biases, strict=True)]
    X = np.random.default_rng(seed).uniform(-1, 1, (12, truth.widths[0]))
    return all(value(given_, slope, x) == value(found.rational, slope, x) for x in X.tolist())


@pytest.mark.parametrize(
    ("widths", "seed"),
    [((2, 2, 2, 1), 0), ((2, 2, 2, 2, 2, 1), 1), ((3, 3, 2, 1), 0), ((3, 3, 3, 2, 1), 2), ((4, 4, 3, 2, 1), 1),
     ((4, 4, 4, 4, 1), 0), ((5, 4, 3, 2, 1), 0), ((6, 5, 4, 3, 1), 0)],
)  # fmt: skip
def test_every_network_of_the_construction_comes_back_in_fractions(widths, seed):
    box = fs.Box.cube(widths[0])
    truth = fs.identifiable_network(widths, box, seed)
    found = fs.recover(fs.regions(truth, box))
    assert found.recovered and found.proof and found.unresolved == () and found.queries == 0
    assert found.residual == 0.0 and same_at_points(found, truth)
    X = box.sample(1000, 0)
    np.testing.assert_allclose(found.network(X), truth(X), rtol=0, atol=1e-9 * np.abs(truth(X)).max())


def test_leaky_neurons_come_back_with_their_signs():
    box = fs.Box.cube(3)
    plain = fs.identifiable_network((3, 3, 2, 1), box, 0)
    truth = fs.Network(plain.weights, plain.biases, "leaky_relu", slope=0.125)
    found = fs.recover(fs.regions(truth, box))
    assert found.recovered and found.slope == 0.125 and same_at_points(found, truth, 0.125)
    np.testing.assert_allclose(found.network(box.sample(50, 0)), truth(box.sample(50, 0)), atol=1e-12)


def test_the_answer_depends_on_the_function_alone():
    """Other parameters of the same function give the same rows: nothing is read off the network itself."""
    box = fs.Box.cube(3)
    truth = fs.identifiable_network((3, 3, 2, 1), box, 1)
    W, b = [w.copy() for w in truth.weights], [v.copy() for v in truth.biases]
    order, scale = [2, 0, 1], np.array([0.5, 4.0, 2.0])
    W[0], b[0] = scale[:, None] * W[0][order], scale * b[0][order]
    W[1] = W[1][:, order] / scale
    one, two = fs.recover(fs.regions(truth, box)), fs.recover(fs.fold_set(fs.Network(W, b), box))
    rows = [{(tuple(row), c) for row, c in zip(*found.rational[0], strict=True)} for found in (one, two)]
    assert one.recovered and two.recovered and rows[0] == rows[1]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(3, 3, 1), (2, 2, 2, 1), (3, 3, 2, 1), (4, 3, 2, 2), (3, 2, 2, 2, 1)]))
def test_a_random_network_comes_back_or_is_refused_with_the_reason(seed, widths):
    truth = fs.Network.random(widths, seed)
    found = fs.recover(fs.regions(truth, fs.Box.cube(widths[0], -3.0, 3.0)))
    if found.recovered:
        assert same_at_points(found, truth, seed=seed)
    else:
        assert found.unresolved and found.unresolved[0].reason and found.proof is None


@pytest.mark.parametrize(
    ("widths", "word"),
    [
        ((3, 2, 2, 1), "expected 2"),
        ((3, 3, 1), "no linear function"),
        ((3, 4, 2, 1), "wider"),
        ((3, 3, 2, 2, 1), "chain of 2"),
    ],
)
def test_wrong_widths_are_refused(widths, word):
    box = fs.Box.cube(3)
    found = fs.recover(fs.regions(fs.identifiable_network((3, 3, 2, 1), box), box), widths)
    assert not found.recovered and found.network is None and word in found.unresolved[0].reason


def test_a_dead_neuron_is_no_fold():
    box = fs.Box.cube(2)
    truth = fs.Network([[[1.0, 0.5], [0.0, 1.0]], [[1.0, 2.0]]], [[0.1, -5.0], [0.0]])
    found = fs.recover(fs.regions(truth, box))
    assert not found.recovered and "1 folds start a chain of 0 bends, expected 2" in found.unresolved[0].reason


def test_bad_input():
    box = fs.Box.cube(3)
    complex = fs.regions(fs.Network.random((3, 3, 1), 0), box)
    for arguments in (
        {"domain": box},
        {"max_queries": 5},
        {"slope": 0.1},
        {"widths": (2, 3, 1)},
        {"widths": (3, 3, 2)},
    ):
        with pytest.raises(fs.InputError, match="expected"):
            fs.recover(complex, **arguments)
    mixed = fs.Network.random((3, 3, 1), 0)
    plane = fs.Plane([0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
    with pytest.raises(fs.InputError, match="interior"):
        fs.recover(fs.regions(mixed, plane))
    with pytest.raises(fs.InputError, match="widths: expected those"):
        fs.recover(mixed)


def test_regions_that_hold_no_float_are_read_by_their_vertices():
    """Far from zero, as behind some ten layers, there may be no float inside of a region: signs were a neighbour's."""
    box = fs.Box([2.0**44] * 2, [2.0**44 + 1] * 2)
    net = fs.identifiable_network((2, 2, 2, 2, 2, 1), box, seed=0)
    complex = fs.regions(net, box)
    assert not (net.signs(complex.points).signs == complex.sign_vectors).all()
    found = fs.recover(complex)
    assert found.recovered and found.proof and not found.unresolved


@pytest.mark.slow
def test_twenty_layers_of_two_come_back_in_fractions():
    net = fs.identifiable_network((2,) * 21 + (1,), fs.Box.cube(2), seed=0)
    assert fs.recover(fs.regions(net, fs.Box.cube(2))).recovered
    assert fs.identifiability(net, fs.Box.cube(2)).identifiable is True
