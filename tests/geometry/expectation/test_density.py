"""Theorem 1 by Monte Carlo: closed forms, and averages of exact counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Polyline, Segment
from fiberscope.geometry.distances.gradients import switch_rows
from fiberscope.geometry.domains import Box
from fiberscope.geometry.expectation.constants import theory_constants
from fiberscope.geometry.expectation.density import expected_boundary_volume, manifold_jacobian
from fiberscope.geometry.expectation.ensemble import Ensemble, Law
from fiberscope.geometry.expectation.exact import boundary_volume
from fiberscope.geometry.expectation.theory import region_theory
from fiberscope.geometry.surfaces.generated import GeneratorSurface
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.shapes import Sphere, Torus
from fiberscope.network.network import Network

UNIT = Ensemble((1, 1, 1, 1), (Law.constant(1.0),) * 3, (Law.uniform(1.0),) * 3)


def test_replaced_biases_and_not_the_sampled_ones() -> None:
    """On (1, 1, 1 | 1) with unit weights the first neuron counts 1/4; sampled biases would give .315."""
    found = expected_boundary_volume(UNIT, Box([-0.5], [0.5]), samples=40_000)
    assert found.by_neuron is not None
    assert found.by_neuron[0] == pytest.approx(0.25, abs=0.01)
    assert found.by_neuron[1] == pytest.approx(7 / 32, abs=0.01)
    counts = [boundary_volume(UNIT.draw(seed), Segment([-0.5], [0.5])) for seed in range(600)]
    assert np.mean(counts) == pytest.approx(15 / 32, abs=4 * np.std(counts) / np.sqrt(600))
    assert found.value == pytest.approx(15 / 32, abs=5 * found.standard_error)


def assert_agrees(ensemble: Ensemble, manifold: object, k: int, networks: int, samples: int = 6000) -> None:
    found = expected_boundary_volume(ensemble, manifold, k, samples=samples, seed=1)  # type: ignore[arg-type]
    measured = [boundary_volume(ensemble.draw(seed), manifold, k) for seed in range(networks)]  # type: ignore[arg-type]
    error = np.hypot(found.standard_error, np.std(measured, ddof=1) / np.sqrt(networks))
    assert abs(found.value - np.mean(measured)) < 4 * error
    assert error < 0.15 * found.value  # otherwise this says little


def polygon(count: int = 60) -> Polyline:
    t = np.linspace(-np.pi, np.pi, count)
    return Polyline(np.stack([np.cos(t), np.sin(t)], axis=1))


@pytest.mark.parametrize("init", ["he", "torch"])
def test_counts_along_a_segment_and_a_circle(init: str) -> None:
    ensemble = Ensemble.of((2, 6, 4, 1), init)
    assert_agrees(ensemble, Segment([-1.0, 0.5], [2.0, 0.0]), 1, 150)
    assert_agrees(ensemble, polygon(), 1, 60)


def test_weights_that_are_not_symmetric() -> None:
    """Positive weights and narrow layers, where the convention about the biases matters."""
    positive = Law("half normal", lambda rng, shape: np.abs(rng.normal(size=shape)), None, np.inf)
    ensemble = Ensemble((2, 2, 2, 2, 1), (positive,) * 4, (Law.normal(1.0),) * 4)
    assert_agrees(ensemble, Segment([-2.0, -1.0], [2.0, 1.0]), 1, 300)


def test_lengths_and_corners_in_the_plane() -> None:
    ensemble = Ensemble.of((2, 4, 2, 1))
    assert_agrees(ensemble, Box.cube(2, -1.5, 1.5), 1, 80)
    assert_agrees(ensemble, Box.cube(2, -1.5, 1.5), 2, 200, samples=15_000)


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2])
def test_lengths_and_corners_on_surfaces(k: int) -> None:
    """Round ones, meshes and surfaces through generators: Theorem 1 for k = 1 and 2."""
    ensemble = Ensemble.of((3, 4, 2, 1))
    tilted = Cylinder([[1.0, 0, 0], [0, 1, 0], [0.5, 0, 1]])
    through = GeneratorSurface(Network.random((2, 8, 3), 1), [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0])
    for surface in (Sphere(), Ellipsoid([1.0, 2.0, 0.5]), through) if k == 1 else (tilted, Torus(resolution=2)):
        assert_agrees(ensemble, surface, k, 50 if k == 1 else 80, samples=3000)


def test_many_neurons_are_sampled() -> None:
    wide = Ensemble.of((2, 30, 10, 1))
    box = Box.cube(2)
    rough = expected_boundary_volume(wide, box, 2, samples=300)
    assert rough.by_neuron is None and rough.standard_error < 0.2 * rough.value


def test_jacobian_is_the_area_of_the_projected_gradients() -> None:
    net = Network.random((3, 5, 4, 1), 0)
    X = np.random.default_rng(0).normal(size=(6, 3))
    full = manifold_jacobian(net, X, [1, 7], np.eye(3))
    for value, signs in zip(full, net.signs(X).signs, strict=True):
        a, b = switch_rows(net, signs)[[1, 7], :-1]
        assert value == pytest.approx(np.linalg.norm(np.cross(a, b)), abs=1e-12)
    # stretched or skewed bases of one tangent space give the same
    T = np.random.default_rng(1).normal(size=(2, 3))
    skew = np.array([[2.0, 0.3], [-1.0, 0.7]]) @ T
    np.testing.assert_allclose(manifold_jacobian(net, X, [0, 6], T), manifold_jacobian(net, X, [0, 6], skew), rtol=1e-9)
    first = manifold_jacobian(net, X, [2], T)
    Q = np.linalg.qr(T.T)[0]
    np.testing.assert_allclose(first, np.linalg.norm(net.weights[0][2] @ Q), rtol=1e-12)


def test_bad_input() -> None:
    box = Box.cube(2)
    for arguments, text in (
        ((Ensemble.of((2, 3, 1)), box, 3), "k"),
        ((Ensemble.of((3, 3, 1)), box, 1), "manifold"),
        ((Ensemble.of((2, 3, 1), "xavier"), box, 1), "density"),
        ((Ensemble.of((2, 3, 1)), "box", 1), "manifold"),
    ):
        with pytest.raises(InputError, match=text):
            expected_boundary_volume(*arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="init"):
        Ensemble.of((2, 3, 1), "no such law")
    with pytest.raises(InputError, match="neurons"):
        manifold_jacobian(Network.random((2, 3, 1), 0), [[0.0, 0.0]], [5], np.eye(2))


def test_no_visible_boundary_along_a_dead_network() -> None:
    net = Network([[[1.0]], [[-1.0]], [[1.0]]], [[0.0], [-1.0], [0.0]])
    assert regions_along(net, Segment([-1.0], [1.0])).num_regions == 2
    assert boundary_volume(net, Segment([-1.0], [1.0])) == 0


@pytest.mark.parametrize("ask", [expected_boundary_volume, theory_constants, region_theory])
def test_one_network_is_no_ensemble(ask: Any) -> None:
    net = Network.random((2, 3, 1), 0)
    with pytest.raises(InputError, match=r"expected an Ensemble of random networks, got one Network.*fs\.Ensemble\.of"):
        ask(net, Box.cube(2))
    with pytest.raises(InputError, match=r"expected an Ensemble, .* got tuple"):
        ask((2, 3, 1), Box.cube(2))
    with pytest.raises(InputError, match="manifold: expected a Box, curve or surface, got Network"):
        ask(Ensemble.of((2, 3, 1)), net)
