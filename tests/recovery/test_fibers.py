"""Where the function does not determine the parameters, what comes back is a fiber that holds the truth."""

from __future__ import annotations

import numpy as np
import pytest
from planted import distance, random_network

import fiberscope as fs


def hidden_hyperplane(widths, seed):
    """A three-layer network whose second layer hides hyperplane 0 of the first one."""
    n0, n1, n2, n3 = widths
    rng = np.random.default_rng(seed)
    second = -rng.uniform(0.2, 1.0, (n2, n1))
    second[:, 0] = rng.uniform(0.5, 1.5, n2)
    weights = [rng.normal(size=(n1, n0)) / np.sqrt(n0), second, rng.normal(size=(n3, n2))]
    return fs.Network(weights, [rng.normal(size=n1) * 0.3, -rng.uniform(0.1, 0.5, n2), rng.normal(size=n3)])


def changed(net, row, bias):
    """The network with another row in its first layer."""
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    weights[0][2], biases[0][2] = row, bias
    return fs.Network(weights, biases)


@pytest.mark.parametrize("seed", range(3))
def test_a_dead_neuron_is_named_and_its_fiber_holds_the_truth(seed):
    truth = changed(random_network((3, 4, 1), seed), 0.0, -1.0)
    found = fs.recover(truth, (3, 4, 1))
    assert not found.recovered and [item.neuron for item in found.unresolved] == [3]
    assert found.residual <= 1e-12 * found.size
    assert found.fiber.dimension >= 1 and found.fiber.complete
    assert found.fiber.contains(truth, tolerance=1e-9)
    other = fs.Network([truth.weights[0], 1.001 * truth.weights[1]], truth.biases)
    assert found.fiber.contains(other, tolerance=1e-9).contained is False


@pytest.mark.parametrize("seed", range(3))
def test_neurons_made_alike_are_one_kink_and_a_fiber_that_holds_the_truth(seed):
    truth = random_network((3, 4, 1), seed)
    truth = changed(truth, 2 * truth.weights[0][1], 2 * truth.biases[0][1])
    found = fs.recover(truth, (3, 4, 1))
    assert not found.recovered and found.residual <= 1e-12 * found.size
    assert [item.neuron for item in found.unresolved] == [3]
    # the neuron of zeros can take any share of its twin: so says the fiber of what was found
    assert found.fiber.dimension >= 1 and found.fiber.complete
    assert any(component.cell.assignment.visible.count((2, 0)) for component in found.fiber.components)
    assert found.fiber.contains(truth, tolerance=1e-9)


@pytest.mark.parametrize(("widths", "seed"), [((6, 4, 3, 1), 0), ((6, 4, 3, 1), 5), ((20, 10, 10, 1), 0)])
def test_a_hidden_hyperplane_comes_back_as_its_family(widths, seed):
    truth = hidden_hyperplane(widths, seed)
    found = fs.recover(truth, widths, seed=seed)
    (item,) = found.unresolved
    assert not found.recovered and item.layer == 1 and "hidden" in item.reason
    assert found.residual <= 1e-10 * found.size
    (family,) = found.fiber.components
    assert family.kind == "translation" and found.fiber.complete
    assert found.fiber.contains(truth, tolerance=1e-6)
    assert found.fiber.contains(hidden_hyperplane(widths, seed + 1), tolerance=1e-6).contained is False


def test_a_hidden_hyperplane_is_never_given_a_place_as_if_it_were_known():
    for seed in range(1, 4):
        found = fs.recover(hidden_hyperplane((6, 4, 3, 1), seed), (6, 4, 3, 1), seed=seed)
        assert not found.recovered and found.unresolved
        assert found.network is None or found.residual > 1e-9 or found.fiber.dimension == 1


@pytest.mark.parametrize("spoil", ["dead", "alike"])
def test_behind_two_layers_the_fiber_holds_a_truth_with_neurons_that_add_nothing(spoil):
    net = random_network((6, 5, 4, 1), 101)
    W, b = [w.copy() for w in net.weights], [c.copy() for c in net.biases]
    if spoil == "dead":
        W[0][0], b[0][0] = 0.0, -1.0
    else:
        W[0][-1], b[0][-1] = 1.5 * W[0][0], 1.5 * b[0][0]
    truth = fs.Network(W, b)
    found = fs.recover(truth, truth.widths, seed=101)
    assert not found.recovered and found.residual <= 1e-10 * found.size
    assert found.fiber.contains(truth, tolerance=1e-9)
    W[1] = W[1] + 1e-3
    assert found.fiber.contains(fs.Network(W, b), tolerance=1e-9).contained is False


@pytest.mark.parametrize(("widths", "seed"), [((6, 5, 4, 3, 1), 5), ((5, 4, 3, 2, 1), 2)])
def test_the_construction_comes_back_from_its_box(widths, seed):
    """Pieces of later surfaces are short there, and look straight on all lines that meet them."""
    truth = fs.identifiable_network(widths, fs.Box.cube(widths[0]), seed=seed)
    found = fs.recover(truth, widths, fs.Box.cube(widths[0]), seed=seed)
    assert found.recovered and found.residual <= 1e-12 * found.size
    assert distance(truth, found.network) <= found.accuracy <= 1e-7
