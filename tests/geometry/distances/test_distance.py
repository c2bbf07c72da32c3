"""Distances to boundaries: against derivatives of torch, exact arithmetic, and steps that must not change a sign."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.geometry.affine_forms import neuron_gradients
from fiberscope.geometry.distances.distance import boundary_distance
from fiberscope.geometry.distances.gradients import gradient_norms, has_boundary, switch_margins
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.testing.cases import CASES, DEGENERATE
from fiberscope.testing.strategies import batches, chains


def pooled_net(seed: int, inputs: int = 4) -> Network:
    """A dense layer, a maximum over windows of its values (some of them cut off by a ReLU), and an output."""
    rng = np.random.default_rng(seed)
    nodes: list[Node] = [
        Affine(0, Dense(rng.normal(size=(8, inputs))), rng.normal(size=8)),
        PiecewiseLinear(1, np.repeat([0.0, 1.0], 4), (8,)),
        MaxPool(2, (2, 2, 2), (2, 2), (1, 1), (0, 0, 1, 0)),
        Affine(3, Dense(rng.normal(size=(3, 4))), rng.normal(size=3)),
        PiecewiseLinear(4, np.zeros(3), (3,)),
        Affine(5, Dense(rng.normal(size=(1, 3)))),
    ]
    return Network.from_nodes(nodes, (inputs,))


NETWORKS = {**CASES, "pooled": lambda: pooled_net(0)}


def points_for(net: Network, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, net.in_size))


def slow_distances(net: Network, x: np.ndarray) -> np.ndarray:
    """By definition, from numerical derivatives of every margin in a neighbourhood far smaller than the distance."""
    signs = net.signs(x[None]).signs
    step = 1e-7
    moved = np.concatenate([x + step * np.eye(len(x)), x - step * np.eye(len(x))])
    z = switch_margins(net, moved, np.repeat(signs, len(moved), axis=0)).value
    gradient = (z[: len(x)] - z[len(x) :]) / (2 * step)
    value = switch_margins(net, x[None], signs).value[0]
    length = np.linalg.norm(gradient, axis=0)
    boundary = has_boundary(net, signs)[0] & (length > 1e-6)
    return np.where(boundary, np.abs(value) / np.where(length > 0, length, 1.0), np.inf)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "affine"])
def test_agrees_with_finite_differences(name: str) -> None:
    net = NETWORKS[name]()
    X = points_for(net, 12)
    found = boundary_distance(net, X)
    for row, x in enumerate(X):
        slow = slow_distances(net, x)
        if slow.min() < 1e-5:
            continue  # the differences would cross the boundary
        assert found.distance[row] == pytest.approx(slow.min(), rel=1e-4)
        if np.isfinite(slow.min()):
            assert slow[found.neuron[row]] == pytest.approx(slow.min(), rel=1e-4)


def test_agrees_with_autograd_neuron_by_neuron() -> None:
    net = Network.random((3, 7, 6, 5, 2), 4)
    X = points_for(net, 20)
    found = boundary_distance(net, X)
    layers = [(torch.tensor(w), torch.tensor(b)) for w, b in zip(net.weights, net.biases, strict=True)]
    for row, point in enumerate(X):
        x = torch.tensor(point, requires_grad=True)
        a, quotients = x, []
        for weight, bias in layers[:-1]:
            z = weight @ a + bias
            for k in range(len(z)):
                (gradient,) = torch.autograd.grad(z[k], x, retain_graph=True)
                length = gradient.norm().item()
                quotients.append(abs(z[k].item()) / length if length else np.inf)
            a = torch.relu(z)
        assert found.distance[row] == pytest.approx(min(quotients), rel=1e-12)
        assert found.neuron[row] == int(np.argmin(quotients))


@pytest.mark.parametrize("name", NETWORKS)
def test_foot_point_lies_in_the_closure_of_the_region_and_behind_it_the_sign_changes(name: str) -> None:
    net = NETWORKS[name]()
    X = points_for(net, 30, seed=1)
    found = boundary_distance(net, X)
    signs = net.signs(X).signs
    for row in np.flatnonzero(np.isfinite(found.distance) & (found.distance > 1e-6)):
        direction = (found.point[row] - X[row]) / found.distance[row]
        assert np.linalg.norm(direction) == pytest.approx(1, abs=1e-6)
        just_before = X[row] + found.distance[row] * (1 - 1e-7) * direction
        just_behind = X[row] + found.distance[row] * (1 + 1e-7) * direction
        before, behind = net.signs(np.stack([just_before, just_behind])).signs
        assert (before == signs[row]).all()
        assert behind[found.neuron[row]] != signs[row, found.neuron[row]]


def moved_within(x: np.ndarray, direction: np.ndarray, reach: float) -> np.ndarray | None:
    """A float point whose exact distance from ``x`` is below ``reach``, or None."""
    y = x + direction * (0.999 * reach / np.linalg.norm(direction))
    step = sum((Fraction(float(b)) - Fraction(float(a))) ** 2 for a, b in zip(x, y, strict=True))
    return y if np.isfinite(y).all() and step < Fraction(reach) ** 2 else None


@given(st.data())
def test_a_shorter_step_never_changes_the_pattern(data: st.DataObject) -> None:
    net = data.draw(st.one_of(chains(), st.integers(0, 50).map(pooled_net)))
    X = data.draw(batches(net))
    found = boundary_distance(net, X)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    assert (found.lower <= found.distance).all() and (found.distance <= found.upper).all()
    for row, x in enumerate(X):
        reach = min(float(found.lower[row]), 1e6)
        towards = found.point[row] - x
        for direction in (rng.normal(size=len(x)), towards):
            if reach <= 0 or not np.isfinite(direction).all() or not np.linalg.norm(direction) > 0:
                continue
            y = moved_within(x, direction, reach)
            if y is not None:
                assert (net.signs(y[None]).signs == net.signs(x[None]).signs).all()


@given(st.data())
def test_bounds_enclose_the_exact_distance(data: st.DataObject) -> None:
    net = data.draw(chains())
    X = data.draw(batches(net))
    found = boundary_distance(net, X)
    for row, x in enumerate(X):
        square = exact_square(net, x)
        if square is None:
            assert found.lower[row] == np.inf and found.neuron[row] == -1
        else:
            assert Fraction(float(found.lower[row])) ** 2 <= square <= Fraction(float(found.upper[row])) ** 2
            assert (square == 0) == (found.distance[row] == 0)
            assert found.upper[row] <= found.lower[row] * (1 + 1e-5) + 1e-300  # the bounds say something


def exact_square(net: Network, x: np.ndarray) -> Fraction | None:
    """The square of the distance in rational arithmetic."""
    value = [Fraction(float(v)) for v in x]
    rows = [[Fraction(int(i == j)) for j in range(len(x))] for i in range(len(x))]
    best: Fraction | None = None
    for weight, bias, node in zip(net.weights[:-1], net.biases[:-1], net.switches, strict=True):
        w = [[Fraction(float(v)) for v in row] for row in weight]
        z = [
            sum((a * v for a, v in zip(row, value, strict=True)), Fraction(float(b)))
            for row, b in zip(w, bias, strict=True)
        ]
        g = [[sum((a * r[j] for a, r in zip(row, rows, strict=True)), Fraction(0)) for j in range(len(x))] for row in w]
        slopes = [Fraction(float(s)) for s in node.slopes]
        for height, gradient in zip(z, g, strict=True):
            square = sum(v * v for v in gradient)
            if square:
                quotient = height * height / square
                best = quotient if best is None or quotient < best else best
        value = [v if v > 0 else s * v for v, s in zip(z, slopes, strict=True)]
        rows = [r if v > 0 else [s * c for c in r] for v, s, r in zip(z, slopes, g, strict=True)]
    return best


def test_zero_on_a_boundary_and_only_there() -> None:
    net = Network([[[1.0]], [[1.0]]], [[-0.1], [0.0]])
    found = boundary_distance(net, [[0.1], [np.nextafter(0.1, 1)]])
    assert found.distance[0] == 0 and found.lower[0] == 0 == found.upper[0]
    assert 0 < found.lower[1] <= found.distance[1] == np.nextafter(0.1, 1) - 0.1


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_networks(name: str) -> None:
    net = CASES[name]()
    found = boundary_distance(net, points_for(net, 10))
    assert found.decided.all()
    if name == "all_zero":
        assert (found.distance == np.inf).all() and (found.neuron == -1).all() and np.isnan(found.point).all()
        assert (found.layer == 0).all()
    if name == "dead_layer":
        assert not found.visible.any()


def test_a_neuron_that_repeats_another_behind_its_relu() -> None:
    """``relu(relu(x))``: the second neuron is zero, and flat, on the other side."""
    found = boundary_distance(Network([[[1.0]], [[1.0]], [[1.0]]], [[0.0], [0.0], [0.0]]), [[2.0], [-3.0]])
    assert found.distance.tolist() == [2.0, 3.0] and found.tied.tolist() == [2, 1]
    assert found.decided.all() and found.visible.all()


@pytest.mark.parametrize("name", NETWORKS)
def test_visible_is_whether_the_slope_changes(name: str) -> None:
    net = NETWORKS[name]()
    X = points_for(net, 40, seed=5)
    found = boundary_distance(net, X)
    assert found.decided.all()
    for row in np.flatnonzero(np.isfinite(found.distance) & (found.distance > 1e-5)):
        way = (found.point[row] - X[row]) / found.distance[row]
        before, behind = (net.affine_at(found.point[row] + step * way).matrix for step in (-1e-8, 1e-8))
        assert found.visible[row] == (np.abs(before - behind).max() > 1e-9)


def test_opposite_neurons_hide_each_other() -> None:
    """``relu(x) - relu(-x) = x``: a boundary of signs at 0, and no kink."""
    hidden = boundary_distance(Network([[[1.0], [-1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.0]]), [[0.5], [-2.0], [0.0]])
    assert hidden.distance.tolist() == [0.5, 2.0, 0.0]
    assert hidden.tied.tolist() == [2, 2, 2]
    assert hidden.decided.all() and not hidden.visible.any()
    shown = boundary_distance(Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]]), [[0.5]])
    assert shown.visible.all()


@pytest.mark.parametrize("name", ["chain", "convolutional", "pooled", "residual"])
def test_little_memory_gives_the_same_answer(name: str) -> None:
    net = NETWORKS[name]()
    X = points_for(net, 7)
    full, little = boundary_distance(net, X), boundary_distance(net, X, memory=2000)
    np.testing.assert_allclose(little.distance, full.distance, rtol=1e-9)
    assert (little.neuron == full.neuron).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_lengths_forward_and_gradients_backward_agree(name: str) -> None:
    net = NETWORKS[name]()
    signs = net.signs(points_for(net, 5)).signs
    found = gradient_norms(net, signs)
    for entry in range(net.num_signs):
        length = np.linalg.norm(neuron_gradients(net, signs, np.full(5, entry)), axis=1)
        boundary = has_boundary(net, signs)[:, entry]
        assert (np.abs(found.value[:, entry] - length) <= found.error[:, entry] + 1e-12)[boundary].all()


def test_result_is_readable_and_plain() -> None:
    found = fs.boundary_distance(CASES["chain"](), points_for(CASES["chain"](), 3))
    assert "3 points" in repr(found) and len(found) == 3
    assert set(found.to_dict()) >= {"distance", "neuron", "point", "visible", "layer"}


def test_bad_input() -> None:
    net = CASES["chain"]()
    for X in ([[1.0, np.nan]], [[1.0]], np.zeros((0, 2))):
        with pytest.raises(fs.InputError):
            boundary_distance(net, X)
    with pytest.raises(fs.InputError, match="memory"):
        boundary_distance(net, [[0.0, 0.0]], memory=0)
