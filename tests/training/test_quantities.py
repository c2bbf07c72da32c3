"""Quantities of the fiber on networks whose answers are known, and through a tracked training."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fiberscope.fibers.canonical.matching import same_up_to_symmetry
from fiberscope.fibers.identifiability import identifiability
from fiberscope.network.network import Network
from fiberscope.training.quantities import State, fiber_dimension, identifiable, neuron_kinds
from fiberscope.training.track import track

RIGID = Network([np.eye(2), [[1.0, -2.0], [-1.5, 1.0]], [[1.0, 3.0]]], [[0.5, 0.25], [0.5, 0.75], [0.0]])
DEAD = Network([np.eye(2), [[-1.0, -2.0], [-1.5, 1.0]], [[1.0, 2.0]]], [[0.5, 0.25], [-0.5, 0.75], [0.0]])
LINEAR = Network([np.eye(2), [[1.0, 2.0], [-1.5, 1.0]], [[1.0, 2.0]]], [[0.5, 0.25], [0.5, 0.75], [0.0]])
HIDDEN = Network([np.eye(2), [[1.0, -2.0], [1.5, -1.0]], [[1.0, 3.0]]], [[0.5, 0.25], [-0.5, -1.0], [0.0]])
DEEP = Network.random((2, 3, 3, 3, 1), 6)
IDLE = Network.random((2, 3, 3, 3, 1), 0)


def state_of(net: Network) -> State:
    return State(0, 0, net, np.zeros((2, net.in_size)), None, net)


@pytest.mark.parametrize(
    ("net", "answer", "dimension", "kinds"),
    [
        (RIGID, True, 0, {"dead": 0, "linear": 0, "hidden": 0, "rigid": 1}),
        # the dead neuron can lend itself: relu(x) = relu(x + t) + relu(t - relu(x + t)) - t moves a hyperplane
        (DEAD, False, None, {"dead": 0.25, "linear": 0, "hidden": 0, "rigid": None}),
        (LINEAR, False, 1, {"dead": 0, "linear": 0.25, "hidden": 0, "rigid": 1}),
        (HIDDEN, False, 1, {"dead": 0, "linear": 0, "hidden": 0.5, "rigid": 0.5}),
    ],
)
def test_kinds_of_neurons_by_hand(
    net: Network, answer: bool, dimension: int | None, kinds: dict[str, float | None]
) -> None:
    state = state_of(net)
    assert identifiable(state) is answer
    assert fiber_dimension(state) == dimension
    assert neuron_kinds(state) == kinds


def test_outside_of_the_theorems_nothing_is_claimed() -> None:
    state = state_of(DEEP)
    assert identifiable(state) is None
    assert fiber_dimension(state) is None
    assert neuron_kinds(state)["rigid"] is None


def test_outside_of_the_theorems_neurons_that_never_switch_are_proof() -> None:
    state = state_of(IDLE)
    assert identifiable(state) is False
    found = identifiability(IDLE)
    assert found.witness is not None and same_up_to_symmetry(IDLE, found.witness).same is False
    X = np.random.default_rng(0).normal(size=(1000, 2)) * 10
    np.testing.assert_allclose(found.witness(X), IDLE(X), rtol=0, atol=1e-12)


def test_of_a_parameter_that_is_not_generic_nothing_is_claimed() -> None:
    """The weights from neuron 1 of the first layer cancel where both neurons behind it are active: 1 * -2 + 2 * 1."""
    state = state_of(Network((*RIGID.weights[:2], np.array([[1.0, 2.0]])), RIGID.biases))
    assert identifiable(state) is None
    assert fiber_dimension(state) is None
    assert neuron_kinds(state)["rigid"] is None


def test_a_training_is_followed() -> None:
    torch.manual_seed(0)
    sizes = (3, 3, 2, 1)
    layers: list[torch.nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
    module = torch.nn.Sequential(*layers[:-1]).double()
    X = np.random.default_rng(0).normal(size=(20, 3))
    names = ["identifiable", "fiber_dimension", "neuron_kinds"]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with track(module, (X, np.sin(X[:, :1])), every=1, quantities=names, optimizer=optimizer) as tracker:
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(module(torch.tensor(X)), torch.sin(torch.tensor(X[:, :1]))).backward()
            optimizer.step()
    assert len(tracker.records) == 4
    for record in tracker.records:
        assert record.values["identifiable"] is (record.values["fiber_dimension"] == 0)
        assert set(record.values["neuron_kinds"]) == {"dead", "linear", "hidden", "rigid"}
