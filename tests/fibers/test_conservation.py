"""Conserved quantities: derivative identities by independent oracles, exact step laws, and what is not conserved."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.fibers.canonical.matching import same_up_to_symmetry
from fiberscope.fibers.conservation import (
    conservation_drift,
    conserved_quantities,
    drift_order,
    translation_obstruction,
)
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import FloatArray
from fiberscope.training.track import track

Arrays = list[Any]


def loss(net: Network, X: FloatArray, Y: FloatArray) -> float:
    return float(np.mean((net(X) - Y) ** 2))


def gradient(net: Network, X: FloatArray, Y: FloatArray) -> tuple[Arrays, Arrays]:
    """By hand: backpropagation of the mean squared error, nothing of the package but the numbers."""
    slopes = [node.slopes for node in net.nodes if isinstance(node, PiecewiseLinear)]
    values, passed = [X], []
    for k, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        z = values[-1] @ w.T + b
        last = k + 1 == len(net.weights)
        passed.append(np.ones_like(z) if last else np.where(z > 0, 1.0, slopes[k]))
        values.append(z * passed[-1])
    delta = 2 * (values[-1] - Y) / Y.size
    weights: Arrays = []
    biases: Arrays = []
    for k in range(len(net.weights) - 1, -1, -1):
        delta = delta * passed[k]
        weights.insert(0, delta.T @ values[k])
        biases.insert(0, delta.sum(axis=0))
        delta = delta @ net.weights[k]
    return weights, biases


def step(net: Network, X: FloatArray, Y: FloatArray, h: float, decay: float = 0.0) -> Network:
    weights, biases = gradient(net, X, Y)
    return rebuilt(
        net,
        [w - h * (g + decay * w) for w, g in zip(net.weights, weights, strict=True)],
        [b - h * (g + decay * b) for b, g in zip(net.biases, biases, strict=True)],
    )


def rebuilt(net: Network, weights: Arrays, biases: Arrays) -> Network:
    names = [f"{2 * k}.{kind}" for k in range(len(weights)) for kind in ("weight", "bias")]
    arrays = [array for pair in zip(weights, biases, strict=True) for array in pair]
    return net.with_parameters(dict(zip(names, arrays, strict=True)))


def descend(net: Network, X: FloatArray, Y: FloatArray, h: float, time: float, decay: float = 0.0) -> list[Network]:
    nets = [net]
    for _ in range(round(time / h)):
        nets.append(step(nets[-1], X, Y, h, decay))
    return nets


def problem(seed: int = 0, points: int = 30) -> tuple[Network, FloatArray, FloatArray]:
    """A network with neurons 0 and 1 of both hidden layers active on all inputs, others not."""
    rng = np.random.default_rng(seed)
    net = Network.random((2, 5, 4, 1), rng)
    biases = [b.copy() for b in net.biases]
    biases[0][:2] = 2.0
    biases[1][:2] = 4.0
    weights = [0.5 * w for w in net.weights]
    X = rng.uniform(-1, 1, (points, 2))
    Y = np.sin(3 * X[:, :1]) + X[:, 1:] ** 2
    biases[2] = biases[2] + (Y - Network(weights, biases)(X)).mean(axis=0)
    return Network(weights, biases), X, Y


def test_values_against_loops() -> None:
    net, X, _ = problem()
    found = conserved_quantities(net, X)
    for layer, values in enumerate(found.neurons):
        for i, value in enumerate(values):
            row, column = net.weights[layer][i], net.weights[layer + 1][:, i]
            plus = sum(Fraction(x) ** 2 for x in [*row.tolist(), float(net.biases[layer][i])])
            minus = sum(Fraction(x) ** 2 for x in column.tolist())
            assert abs(float(plus - minus) - value) < 1e-12 * (1 + abs(value))
    active = [np.asarray((z > 0).all(axis=0)) for z in net.preactivations(X)]
    assert [block.layer for block in found.blocks] == [1, 2]
    for block, mask in zip(found.blocks, active, strict=True):
        assert block.neurons == tuple(np.flatnonzero(mask).tolist())
        assert len(block.neurons) >= 2
        for a, i in enumerate(block.neurons):
            for b, j in enumerate(block.neurons):
                k = block.layer - 1
                value = net.weights[k][i] @ net.weights[k][j] + net.biases[k][i] * net.biases[k][j]
                value -= net.weights[k + 1][:, i] @ net.weights[k + 1][:, j]
                assert np.isclose(block.matrix[a, b], value, rtol=1e-12, atol=1e-12)


def moved(net: Network, layer: int, i: int, j: int, t: float) -> Network:
    """``I + t E_ij`` acting on hidden layer ``layer`` (from 0), taken back by the next one."""
    matrix = np.eye(net.widths[layer + 1])
    matrix[i, j] += t
    weights, biases = list(net.weights), list(net.biases)
    weights[layer], biases[layer] = matrix @ weights[layer], matrix @ biases[layer]
    weights[layer + 1] = weights[layer + 1] @ np.linalg.inv(matrix)
    return rebuilt(net, weights, biases)


@pytest.mark.parametrize("seed", range(4))
def test_gradients_are_orthogonal_to_the_symmetries(seed: int) -> None:
    """<grad, infinitesimal symmetry> = 0, by backpropagation and by finite differences of the loss."""
    net, X, Y = problem(seed)
    grads, bias_grads = gradient(net, X, Y)
    active = [np.asarray((z > 0).all(axis=0)) for z in net.preactivations(X)]
    scale = max(np.abs(g).max() for g in grads)
    broken = 0
    for k in range(2):
        n = net.widths[k + 1]
        for i in range(n):
            for j in range(n):
                inner = grads[k][i] @ net.weights[k][j] + bias_grads[k][i] * net.biases[k][j]
                inner -= grads[k + 1][:, j] @ net.weights[k + 1][:, i]
                t = 1e-6
                central = (loss(moved(net, k, i, j, t), X, Y) - loss(moved(net, k, i, j, -t), X, Y)) / (2 * t)
                assert abs(central - inner) < 1e-5 * scale
                if i == j or (active[k][i] and active[k][j]):
                    assert abs(inner) < 1e-12 * scale
                elif abs(inner) > 1e-3 * scale:
                    broken += 1
    assert broken > 3, "without activity the identity fails: the test can tell the difference"


@pytest.mark.parametrize("slope", [0.0, 0.1])
def test_one_step_changes_the_quantities_by_those_of_the_gradient(slope: float) -> None:
    """``Q(theta - h g) = Q(theta) + h^2 Q(g)``, for the neurons and for the blocks, also for leaky units."""
    plain, X, Y = problem(7)
    net = Network(plain.weights, plain.biases, "leaky_relu", slope=slope)
    h = 0.01
    weights, biases = gradient(net, X, Y)
    before, after = conserved_quantities(net, X), conserved_quantities(step(net, X, Y, h), X)
    of_gradient = rebuilt(net, weights, biases)
    for a, b, g in zip(before.neurons, after.neurons, conserved_quantities(of_gradient).neurons, strict=True):
        assert np.abs(b - a - h**2 * g).max() < 1e-12
    assert [block.neurons for block in before.blocks] == [block.neurons for block in after.blocks]
    for one, two in zip(before.blocks, after.blocks, strict=True):
        part = np.ix_(one.neurons, one.neurons)
        rows = np.column_stack([weights[one.layer - 1], biases[one.layer - 1]])
        form = (rows @ rows.T - weights[one.layer].T @ weights[one.layer])[part]
        assert np.abs(two.matrix - one.matrix - h**2 * form).max() < 1e-12


def test_drift_is_linear_in_the_step() -> None:
    net, X, Y = problem(3)
    steps = [0.02 / 2**k for k in range(5)]
    drifts = {h: conservation_drift(descend(net, X, Y, h, 1.0), X) for h in steps}
    for name in ("neurons", "blocks", "off_diagonal"):
        order = drift_order({h: getattr(drift, name) for h, drift in drifts.items()})
        assert abs(order.local[-1] - 1) < 0.05, (name, order)
    finest = drifts[steps[-1]]
    assert finest.neurons < 0.01 * finest.moved
    assert min(finest.active) >= 2
    # Richardson: extrapolated to step zero, the change of the quantity itself vanishes to second order.
    ends = [conserved_quantities(descend(net, X, Y, h, 1.0)[-1]).neurons[0] for h in steps[-2:]]
    start = conserved_quantities(net).neurons[0]
    assert np.abs(2 * ends[1] - ends[0] - start).max() < 0.05 * np.abs(ends[1] - start).max()


def test_entries_outside_of_the_blocks_are_not_conserved() -> None:
    net, X, Y = problem(3)
    coarse, fine = (conservation_drift(descend(net, X, Y, h, 1.0), X) for h in (0.02, 0.00125))
    assert fine.others is not None and coarse.others is not None
    assert fine.others > 0.5 * coarse.others
    assert fine.others > 20 * fine.neurons


def test_weight_decay_shrinks_the_quantities_at_twice_its_rate() -> None:
    net, X, Y = problem(1)
    ratios = [conservation_drift(descend(net, X, Y, h, 1.0, decay=0.3), X).final for h in (0.004, 0.001)]
    errors = [abs(float(ratio or 0) - np.exp(-0.6)) for ratio in ratios]
    assert errors[1] < 0.01 and errors[1] < errors[0]


@given(st.integers(0, 10**6), st.floats(0.1, 10))
@settings(max_examples=25, deadline=None)
def test_quantities_under_the_group(seed: int, scale: float) -> None:
    """A permutation permutes them; a rescaling by c changes in- and outgoing norms as it should."""
    net = Network.random((3, 4, 2), seed)
    order = np.random.default_rng(seed).permutation(4)
    mixed = Network([net.weights[0][order], net.weights[1][:, order]], [net.biases[0][order], net.biases[1]])
    values = conserved_quantities(net).neurons[0]
    assert np.allclose(conserved_quantities(mixed).neurons[0], values[order])
    scaled = Network([scale * net.weights[0], net.weights[1] / scale], [scale * net.biases[0], net.biases[1]])
    assert same_up_to_symmetry(net, scaled)
    incoming = (net.weights[0] ** 2).sum(axis=1) + net.biases[0] ** 2
    outgoing = (net.weights[1] ** 2).sum(axis=0)
    assert np.allclose(conserved_quantities(scaled).neurons[0], scale**2 * incoming - outgoing / scale**2)


# -- the translation -----------------------------------------------------------------------------------------------


def hiding(seed: int) -> Network:
    """Every neuron of the second layer hides the hyperplane of neuron 0."""
    rng = np.random.default_rng(seed)
    w2 = -rng.uniform(0.2, 1, (2, 3))
    w2[:, 0] *= -1
    weights = [rng.normal(size=(3, 3)), w2, rng.normal(size=(1, 2))]
    return Network(weights, [rng.normal(size=3), -rng.uniform(0.1, 0.5, 2), rng.normal(size=1)])


@pytest.mark.parametrize("seed", range(5))
def test_translation_is_a_symmetry_and_conserves_nothing(seed: int) -> None:
    net = hiding(seed)
    X = np.random.default_rng(seed).normal(size=(200, 3)) * 3
    found = translation_obstruction(net, 0, X)
    assert found.along < 1e-14
    assert found.curl > 1e-3
    # The other hyperplanes are seen: moving them is no symmetry.
    assert min(translation_obstruction(net, i, X).along for i in (1, 2)) > 1e-3


def test_curl_against_finite_differences_of_the_form() -> None:
    """``dv(g, g') = D_g v . g' - D_g' v . g`` with the form as a function of the parameters."""
    net = hiding(2)
    X = np.random.default_rng(0).normal(size=(40, 3)) * 3

    def vectors(x: FloatArray) -> FloatArray:
        weights, biases = gradient(net, x[None], net(x[None]) - 0.5)  # the gradient of the output itself
        return np.concatenate([np.concatenate([w.reshape(-1), b]) for w, b in zip(weights, biases, strict=True)])

    def form(theta: FloatArray) -> FloatArray:
        v = np.zeros_like(theta)
        v[9] = 1.0  # b_1[0] stands behind the nine weights of layer 1
        v[18:20] = -theta[[12, 15]]  # b_2 stands behind W_2, whose column 0 has entries 12 and 15
        return v

    theta = np.concatenate([np.concatenate([w.reshape(-1), b]) for w, b in zip(net.weights, net.biases, strict=True)])
    rows = np.stack([vectors(x) for x in X])
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    largest = max(
        abs((form(theta + g) - form(theta)) @ other - (form(theta + other) - form(theta)) @ g)
        for g in rows
        for other in rows
    )
    assert np.isclose(translation_obstruction(net, 0, X).curl, largest, rtol=1e-9)


# -- degenerate and bad ----------------------------------------------------------------------------------------------


def test_degenerate_networks() -> None:
    zero = Network([np.zeros((2, 1)), np.zeros((1, 2))], [np.zeros(2), np.zeros(1)])
    found = conserved_quantities(zero, [[1.0]])
    assert found.neurons[0].tolist() == [0.0, 0.0] and found.blocks == ()  # on the kink is not active
    drift = conservation_drift([zero, zero], [[1.0]])
    assert (drift.neurons, drift.moved, drift.final, drift.blocks, drift.off_diagonal) == (0.0, 0.0, None, None, None)
    linear = Network([[[2.0]]], [[1.0]])
    assert conserved_quantities(linear).neurons == () and conserved_quantities(linear, [[1.0]]).blocks == ()
    by_itself = Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]], linear=[np.array([True, True])])
    assert conserved_quantities(by_itself).blocks[0].matrix.tolist() == [[0.0, 1.0], [1.0, 3.0]]
    leaky = Network([[[1.0], [1.0], [1.0]], [[1.0, 1.0, 1.0]]], [[9.0, -9.0, 0.0], [0.0]], "leaky_relu", slope=0.1)
    blocks = conserved_quantities(leaky, [[-1.0], [1.0]]).blocks
    assert sorted(block.neurons for block in blocks) == [(0,), (1,)]
    dead = Network([[[1.0]], [[1.0]]], [[-9.0], [0.0]])
    assert conserved_quantities(dead, [[1.0]]).blocks == ()
    assert "1 neurons" in repr(conserved_quantities(dead)) and conserved_quantities(dead).to_dict()["blocks"] == []


def test_a_neuron_that_switches_in_between_leaves_the_block() -> None:
    a = Network([[[1.0], [1.0]], [[1.0, 1.0]]], [[2.0, 2.0], [0.0]])
    b = Network([[[1.0], [1.0]], [[1.0, 1.0]]], [[-2.0, 2.0], [0.0]])
    assert conservation_drift([a, a], [[0.0]]).active == (2,)
    assert conservation_drift([a, b, a], [[0.0]]).active == (1,)


def test_bad_input() -> None:
    net = Network.random((2, 3, 1), 0)
    for trajectory in ([], [net], [net, Network.random((2, 4, 1), 0)], [net, 3]):
        with pytest.raises(InputError, match="trajectory"):
            conservation_drift(trajectory)
    with pytest.raises(InputError, match="hidden"):
        conservation_drift([Network.random((2, 1), 0)] * 2)
    with pytest.raises(InputError):
        conserved_quantities(net, [[1.0, np.nan]])
    with pytest.raises(InputError):
        conserved_quantities(net, [[1.0]])
    with pytest.raises(UnsupportedModelError, match="constants"):
        nodes: list[Node] = [
            Affine(0, Dense(np.eye(2))),
            PiecewiseLinear(1, np.zeros(2), (2,)),
            Affine(2, Dense(np.ones((1, 2)))),
        ]
        conserved_quantities(Network.from_nodes(nodes, (2,)))
    with pytest.raises(UnsupportedModelError, match="shared"):
        tied: list[Node] = [
            Affine(0, Dense(np.eye(2)), None, "w"),
            PiecewiseLinear(1, np.zeros(2), (2,)),
            Affine(2, Dense(np.eye(2)), None, "w"),
        ]
        conserved_quantities(Network.from_nodes(tied, (2,)))
    for drifts in ({0.1: 1.0}, {0.1: 0.0, 0.2: 1.0}, {-0.1: 1.0, 0.2: 1.0}, {0.1: np.nan, 0.2: 1.0}):
        with pytest.raises(InputError, match="drifts"):
            drift_order(drifts)
    with pytest.raises(InputError, match="two hidden"):
        translation_obstruction(net, 0, [[0.0, 0.0]])
    with pytest.raises(InputError, match="neuron"):
        translation_obstruction(hiding(0), 3, np.zeros((1, 3)))


def test_a_tracker_records_them() -> None:
    net, X, _ = problem()
    record = track(net, X, quantities=["conserved_quantities"])(0)
    assert record is not None
    assert record.values["conserved_quantities"] == conserved_quantities(net, X).to_dict()
