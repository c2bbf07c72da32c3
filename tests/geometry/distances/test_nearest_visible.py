"""The nearest kink of the function, against the visible edges of the complex and against dense lines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.geometry.distances.nearest_visible import least_distance, visible_boundary_distance
from fiberscope.geometry.domains import Box
from fiberscope.geometry.regions import regions
from fiberscope.network.network import Network
from fiberscope.testing.cases import case, degenerate
from fiberscope.testing.strategies import chains


def visible_edges(net: Network, box: Box) -> np.ndarray:
    """End points ``(edges, 2, 2)`` of the visible edges of the complex on a box."""
    found = regions(net, box)
    seen = np.flatnonzero(found.facets.visible)
    ends = found.structure.boundary[0].indices.reshape(-1, 2)[found.facets.cell[seen]]
    return np.asarray(found.vertices[ends])


def distance_to_edges(x: np.ndarray, edges: np.ndarray) -> float:
    if not len(edges):
        return float("inf")
    a, way = edges[:, 0], edges[:, 1] - edges[:, 0]
    t = np.einsum("ej,ej->e", x - a, way) / np.maximum(np.einsum("ej,ej->e", way, way), 1e-300)
    return float(np.linalg.norm(a + np.clip(t, 0, 1)[:, None] * way - x, axis=1).min())


def assert_agrees_with_complex(net: Network, X: np.ndarray, box: Box) -> None:
    found = visible_boundary_distance(net, X)
    edges = visible_edges(net, box)
    for row, x in enumerate(X):
        room = float(np.minimum(x - box.low, box.high - x).min())
        true = distance_to_edges(x, edges)
        assert found.lower[row] <= true * (1 + 1e-6) + 1e-9 or true > room
        if found.ended[row] and min(true, found.distance[row]) < room:
            assert found.distance[row] == pytest.approx(true, rel=1e-6, abs=1e-8)


@given(chains(inputs=st.just(2)), st.integers(0, 1000))
def test_agrees_with_the_complex(net: Network, seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(3, 2))
    if max(np.abs(w).max() for w in (*net.weights, *net.biases)) < 1e3:
        assert_agrees_with_complex(net, X, Box.cube(2, -20.0, 20.0))


@pytest.mark.parametrize("kind", ["dead_layer", "opposite_neurons", "equal_neurons", "integer", "zero_rows"])
def test_degenerate_networks(kind: str) -> None:
    assert_agrees_with_complex(degenerate(kind), np.random.default_rng(0).normal(size=(8, 2)), Box.cube(2, -30.0, 30.0))


def test_narrow_layers_hide_much() -> None:
    searched = finished = 0
    for seed in range(10):
        net = Network.random((2, 4, 2, 2, 1), seed)
        X = np.random.default_rng(seed).normal(size=(4, 2))
        assert_agrees_with_complex(net, X, Box.cube(2, -40.0, 40.0))
        found = visible_boundary_distance(net, X)
        searched += int((found.regions > 1).sum())
        assert (found.distance >= found.nearest.distance * (1 - 1e-9)).all()
        finished += int(found.ended.sum())
    assert finished == 40
    assert searched > 2  # otherwise this tests nothing


def test_reports_both_and_which_neuron() -> None:
    net = Network([[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], [[1.0, -1.0, 1.0]]], [[0.0, 0.0, -2.0], [0.0]])
    found = visible_boundary_distance(net, [[0.5, 0.0], [0.0, 0.0]])
    assert found.nearest.distance.tolist() == [0.5, 0.0] and not found.nearest.visible.any()
    assert found.distance.tolist() == [2.0, 2.0] and found.neuron.tolist() == [2, 2]
    assert found.point[0] == pytest.approx([0.5, 2.0])
    assert found.to_dict()["nearest"]["neuron"][0] in (0, 1) and "2 have" in repr(found)


def test_no_kink_at_all() -> None:
    found = visible_boundary_distance(degenerate("dead_layer"), [[0.3, -0.7]], limit=5000)
    assert found.distance[0] == np.inf and found.neuron[0] == -1
    assert found.ended[0] and not found.complete[0] and found.regions[0] > 5
    assert visible_boundary_distance(Network.random((3, 2), 0), [[0.0, 0.0, 0.0]]).distance[0] == np.inf


def test_the_limit_is_honest() -> None:
    net = degenerate("dead_layer")
    found = visible_boundary_distance(net, [[0.3, -0.7]], limit=2)
    assert not found.ended[0] and found.regions[0] == 2
    assert found.nearest.distance[0] <= found.searched[0] < np.inf
    with pytest.raises(InputError, match="limit"):
        visible_boundary_distance(net, [[0.0, 0.0]], limit=0)


@pytest.mark.parametrize("far", [2.0**20, 7 / 9.75461721420288e-17])
def test_a_search_in_floats_proves_nothing_about_what_lies_beyond(far: float) -> None:
    """``x + relu(x - far)``: the kink at 0 cancels, the next one is far away; no proven number may lie beyond it."""
    net = Network([[[1.0], [-1.0], [1.0]], [[1.0, -1.0, 1.0]]], [[0.0, 0.0, -far], [0.0]])
    found = visible_boundary_distance(net, [[1.25]])
    assert found.lower[0] <= far - 1.25
    assert not found.complete[0] or found.distance[0] == pytest.approx(far - 1.25)


def test_max_pooling_and_residuals() -> None:
    calls = []
    for name in ("convolutional", "residual"):
        net = case(name)
        X = np.random.default_rng(3).normal(size=(3, net.in_size))
        found = visible_boundary_distance(net, X, limit=2, progress=lambda *args: calls.append(args))
        gradient = [net.affine_at(x).matrix for x in X]
        for row in np.flatnonzero(np.isfinite(found.distance) & found.ended):
            way = (found.point[row] - X[row]) / found.distance[row]
            same, other = X[row] + way * found.distance[row] * 0.999, X[row] + way * found.distance[row] * 1.001
            np.testing.assert_allclose(net.affine_at(same).matrix, gradient[row], atol=1e-9)
            assert np.abs(net.affine_at(other).matrix - gradient[row]).max() > 1e-9
    assert calls  # some nearest boundary was invisible


def test_least_distance_against_random_search() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        G, h = rng.normal(size=(4, 3)), rng.normal(size=4)
        u = least_distance(G, h)
        if u is None:
            continue
        assert (G @ u >= h - 1e-9).all()
        others = u + rng.normal(size=(3000, 3)) * rng.uniform(0, 1, (3000, 1))
        inside = others[(others @ G.T >= h).all(axis=1)]
        assert not len(inside) or np.linalg.norm(inside, axis=1).min() >= np.linalg.norm(u) - 1e-9
