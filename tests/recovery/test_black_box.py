"""Planted networks are recovered from values alone, or what is missing is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import counted, distance, random_network

import fiberscope as fs
from fiberscope.recovery.recover import compared


@pytest.mark.parametrize(
    ("widths", "seed", "most"),
    [((1, 4, 1), 0, 400), ((2, 3, 2), 1, 800), ((10, 15, 1), 0, 2000), ((30, 20, 3), 0, 4000), ((6, 5, 4, 2), 2, 3000),
     ((10, 15, 15, 1), 0, 8000), ((10, 15, 15, 1), 1, 8000), ((20, 10, 10, 1), 1, 8000)],
)  # fmt: skip
def test_a_planted_network_comes_back(widths, seed, most):
    truth = random_network(widths, seed)
    found = fs.recover(truth, widths, seed=seed)
    assert found.recovered and found.unresolved == ()
    assert found.residual <= 1e-10 * found.size
    assert found.queries <= most
    assert found.network.widths == widths
    assert distance(truth, found.network) <= 1e-8


def test_the_residual_is_that_of_fresh_points_and_queries_are_counted():
    truth = random_network((3, 5, 4, 1), 3)
    function, asked = counted(truth)
    found = fs.recover(function, (3, 5, 4, 1))
    assert found.recovered
    assert sum(asked) == found.queries + found.held_out and found.held_out == 100_000
    X = np.random.default_rng(9).normal(size=(1000, 3))
    assert np.abs(truth(X) - found.network(X)).max() <= 2 * found.residual + 1e-13


def test_the_same_seed_gives_the_same_answer():
    truth = random_network((4, 6, 1), 0)
    one, two = (fs.recover(truth, (4, 6, 1), seed=5) for _ in range(2))
    assert one.queries == two.queries and fs.identical(one.network, two.network)


def test_a_box_is_never_left():
    truth, box = random_network((3, 4, 3, 1), 2), fs.Box.cube(3, -2.0, 2.0)
    outside = []

    def function(X):
        outside.append(int((~box.contains(X)).sum()))
        return truth(X)

    found = fs.recover(function, (3, 4, 3, 1), box)
    assert sum(outside) == 0
    assert found.network is None or np.isfinite(found.residual)


def test_the_limit_is_kept_and_what_was_found_is_returned():
    truth = random_network((10, 15, 15, 1), 0)
    function, asked = counted(truth)
    found = fs.recover(function, (10, 15, 15, 1), max_queries=3000)
    assert not found.recovered and found.network is None
    assert sum(asked) == found.queries <= 3000
    assert any("limit of 3000 queries" in item.reason for item in found.unresolved)
    W, _b = found.hyperplanes[0]
    true = truth.weights[0] / np.linalg.norm(truth.weights[0], axis=1, keepdims=True)
    assert len(W) == 15
    assert np.abs(np.abs(W @ true.T).max(axis=0) - 1).max() <= 1e-9


@pytest.mark.parametrize("widths", [(4, 4, 1), (4, 5, 3, 1)])
def test_too_narrow_widths_are_refused(widths):
    found = fs.recover(random_network((4, 6, 1), 0), widths)
    assert not found.recovered and found.unresolved


def test_a_neuron_too_many_is_named_and_not_invented():
    truth = random_network((4, 5, 1), 0)
    found = fs.recover(truth, (4, 6, 1))
    assert not found.recovered
    assert [(item.layer, item.neuron) for item in found.unresolved] == [(1, 5)]
    assert "no kink of it was found" in found.unresolved[0].reason
    assert not found.network.weights[0][5].any() and not found.network.weights[1][:, 5].any()
    assert found.residual <= 1e-10 * found.size


# -- what is no piecewise linear function -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda X: np.sin(X).sum(axis=1), "piecewise linear"),
        (lambda X: np.where(X[:, 0] > 0.2, np.nan, 1.0), "finite"),
        (lambda X: X[:, 0] + 1e-3 * np.random.default_rng().normal(size=len(X)), "same values"),
        (lambda X: np.maximum(X[:, 0], 0) + 1e-3 * np.sin(1e9 * X[:, 1]), "noisier"),
        (lambda X: X[:, :1].astype(complex), "real numbers"),
        (lambda X: np.ones(3), "one value or one row"),
        (lambda X: np.stack([X[:, 0], X[:, 1]], axis=1), "outputs"),
        (lambda X: np.where(X[:, 0] > 0.2, np.inf, 1.0), "finite"),
        (lambda X: np.maximum(X[:, 0], 0).astype(np.float16), "no noisier than float32, got float16"),
        (lambda X: [[1.0]] * (len(X) - 1) + [[1.0, 2.0]], "ValueError"),
        (lambda X: np.zeros((len(X), 0)), "one value or one row"),
        (lambda X: 1.0, "one value or one row"),
        (lambda X: None, "real numbers"),
        (lambda X: ["a"] * len(X), "real numbers"),
        (lambda X: X[:, 0] > 0, "real numbers, got bool"),
        (lambda X: {}[0], "KeyError"),
    ],
)
def test_bad_functions_are_refused_in_one_line(function, word):
    with pytest.raises(fs.InputError, match=word) as caught:
        fs.recover(function, (2, 3, 1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("function", [fs.Network.random((3, 4, 1), 0), lambda X: X[:, :5] @ np.ones(5)])
def test_another_number_of_inputs_is_refused_in_one_line(function):
    with pytest.raises(fs.InputError, match="inputs") as caught:
        fs.recover(function, (4, 3, 1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("calls", [20, 60])
def test_a_function_that_changes_later_is_seen(calls):
    net, asked = random_network((4, 5, 3, 1), 3), []

    def changes(X):
        asked.append(len(X))
        return net(X) * (1.0 if len(asked) < calls else 1.0001)

    with pytest.raises(fs.InputError, match="the same values for the same inputs"):
        fs.recover(changes, (4, 5, 3, 1))


def test_a_function_that_raises_is_quoted_in_one_line():
    def gone(X):
        raise RuntimeError("the server is gone\nand more")

    with pytest.raises(fs.InputError, match=r"RuntimeError: the server is gone$") as caught:
        fs.recover(gone, (2, 3, 1))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_function_that_writes_into_its_input_does_no_harm():
    truth = random_network((3, 4, 1), 0)

    def writes(X):
        Y = truth(X)
        X *= 0.0
        return Y

    assert fs.recover(writes, (3, 4, 1)).recovered


@pytest.mark.parametrize("most", [1, 30, 300])
def test_a_limit_that_runs_out_is_said(most):
    found = fs.recover(random_network((3, 4, 2, 1), 0), (3, 4, 2, 1), max_queries=most)
    assert not found.recovered and found.queries <= most
    assert f"the limit of {most} queries was reached" in found.unresolved[0].reason


@pytest.mark.parametrize("seed", [0, 1])
def test_leaky_networks_come_back(seed):
    plain = random_network((6, 5, 4, 1), seed)
    truth = fs.Network(plain.weights, plain.biases, "leaky_relu", slope=0.1)
    found = fs.recover(truth, (6, 5, 4, 1), seed=seed, slope=0.1)
    assert found.recovered and found.residual <= 1e-10 * found.size
    assert distance(truth, found.network) <= 1e-8
    assert not fs.recover(truth, (6, 5, 4, 1), seed=seed).recovered  # no network of ReLU is that function


def test_a_constant_has_no_kinks_and_its_neurons_are_not_invented():
    found = fs.recover(lambda X: np.full(len(X), 2.5), (3, 4, 1))
    assert not found.recovered and found.network is None
    assert "no kink" in found.unresolved[0].reason


@pytest.mark.parametrize(
    "arguments",
    [{"widths": (2, 1)}, {"widths": (2, 0, 1)}, {"widths": (2, 3, 1), "max_queries": 0}, {"widths": (1, 3, 3, 1)},
     {"widths": (2, 3, 1), "seed": -1}, {"widths": (2, 3, 1), "slope": 1.5},
     {"widths": (2, 3, 1), "domain": fs.Box.cube(3)}, {"widths": 5}, {"widths": (2.0, 3, 1)}, {"widths": (True, 3, 1)},
     {"widths": (2, 3, 1), "max_queries": 2.5}, {"widths": (2, 3, 1), "max_queries": "many"},
     {"widths": (2, 3, 1), "max_queries": float("nan")}, {"widths": (3, 3, 1)}],
)  # fmt: skip
def test_bad_arguments(arguments):
    with pytest.raises(fs.InputError, match="expected"):
        fs.recover(fs.Network.random((2, 3, 1), 0), **arguments)


def test_a_network_that_was_asked_is_compared_with_the_one_that_was_found():
    truth = random_network((10, 15, 15, 1), 1)
    found = fs.recover(truth, truth.widths, seed=1)
    assert found.recovered and "the difference is at most" in found.proof and "[-8, 8]" in found.proof
    assert fs.recover(counted(truth)[0], truth.widths, seed=1).proof is None  # nothing to compare with
    W = found.network.weights
    off = fs.Network([W[0] * (1 + 1e-6), *W[1:]], found.network.biases)
    now = compared(replace(found, network=off, proof=None), truth)
    assert not now.recovered and now.proof is None and "a point was found" in now.unresolved[-1].reason
