"""Where the function does not determine the parameters, what comes back is a fiber that holds the truth."""

from __future__ import annotations

import numpy as np
from planted import random_network

import fiberscope as fs


def hidden_hyperplane(widths, seed):
    """A three-layer network whose second layer hides hyperplane 0 of the first one."""
    n0, n1, n2, n3 = widths
    rng = np.random.default_rng(seed)
    second = -rng.uniform(0.2, 1.0, (n2, n1))
    second[:, 0] = rng.uniform(0.5, 1.5, n2)
    weights = [rng.normal(size=(n1, n0)) / np.sqrt(n0), second, rng.normal(size=(n3, n2))]
    return fs.Network(weights, [rng.normal(size=n1) * 0.3, -rng.uniform(0.1, 0.5, n2), rng.normal(size=n3)])


def test_a_dead_neuron_is_named_and_its_fiber_holds_the_truth():
    truth = random_network((3, 4, 1), 0)
    weights, biases = [w.copy() for w in truth.weights], [b.copy() for b in truth.biases]
    weights[0][2], biases[0][2] = 0.0, -1.0
    truth = fs.Network(weights, biases)
    found = fs.recover(truth, (3, 4, 1))
    assert not found.recovered and [item.neuron for item in found.unresolved] == [3]
    assert found.residual <= 1e-12 * found.size
    assert found.fiber.dimension >= 1
    assert found.fiber.contains(found.network)
    assert fs.equivalent(found.network, truth, tolerance=1e-9, domain=fs.Box.cube(3)).equal is not False


def test_two_equal_neurons_are_one_kink():
    truth = random_network((3, 4, 1), 1)
    weights, biases = [w.copy() for w in truth.weights], [b.copy() for b in truth.biases]
    weights[0][3], biases[0][3] = 2 * weights[0][1], 2 * biases[0][1]
    truth = fs.Network(weights, biases)
    found = fs.recover(truth, (3, 4, 1))
    assert not found.recovered and found.residual <= 1e-12 * found.size
    assert [item.neuron for item in found.unresolved] == [3]
    # the neuron of zeros can take any share of its twin: so says the fiber of what was found
    assert found.fiber.dimension >= 1


def test_a_hidden_hyperplane_is_never_given_a_place_as_if_it_were_known():
    widths = (6, 4, 3, 1)
    truth = hidden_hyperplane(widths, 0)
    assert "hidden" in repr(fs.identifiability(truth))
    found = fs.recover(truth, widths, seed=0)
    assert not found.recovered and found.unresolved
    assert found.network is None or found.residual > 1e-9 or found.fiber.dimension == 1
