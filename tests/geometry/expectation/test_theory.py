"""Constants, bounds and the table: what holds, what is vacuous, and what a manifold cannot change."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve import Circle, Segment, Tractrix
from fiberscope.geometry.domains import Box
from fiberscope.geometry.expectation.constants import DISTANCE_CONSTANT, gradients_at, theory_constants
from fiberscope.geometry.expectation.ensemble import Ensemble, Law
from fiberscope.geometry.expectation.manifolds import Manifold
from fiberscope.geometry.expectation.theory import region_theory
from fiberscope.geometry.surfaces.generated import GeneratorSurface
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.shapes import Sphere, Torus
from fiberscope.network.network import Network


def test_first_layer_has_a_closed_form() -> None:
    found = theory_constants(Ensemble.of((3, 40, 1)), Circle.random_plane(3, 0), samples=4000)
    assert found.gradient == pytest.approx(sqrt(2), rel=0.02)  # E|w|^2 = 3 * 2/3
    assert found.bias == pytest.approx(1 / sqrt(2 * pi * 2 / 3))
    # the mean of |t w| is that of one coordinate, that of |w| a Maxwell law
    assert found.projected == pytest.approx(sqrt(2 / 3) * sqrt(2 / pi), rel=0.02)
    assert found.full == pytest.approx(sqrt(2 / 3) * sqrt(8 / pi), rel=0.02)


@pytest.mark.parametrize("manifold", [Circle(), Tractrix(), Segment([0.0, 0.0], [1.0, 2.0]), Box.cube(2)])
def test_the_constant_of_the_manifold_is_one(manifold: Circle) -> None:
    found = theory_constants(Ensemble.of((2, 4, 1)), manifold, samples=50)
    assert found.manifold == pytest.approx(1.0, abs=1e-12)
    assert found.curvature == DISTANCE_CONSTANT


def test_the_exponent_of_the_paper_breaks_its_own_bound() -> None:
    small = Ensemble((2, 10, 1), (Law.normal(0.01), Law.normal(1.0)), (Law.normal(0.01),) * 2)
    found = region_theory(small, Segment([-1.0, 0.0], [1.0, 0.0]), networks=40)
    assert found.density < found.bound_density
    assert found.density > 10 * 2 * found.constants.gradient_paper * found.constants.bias


def test_gradients_are_those_of_the_networks() -> None:
    ensemble, x = Ensemble.of((2, 3, 4, 1)), np.array([0.3, -0.4])
    (first, second) = gradients_at(ensemble, x, np.random.default_rng(5), 1)
    net = ensemble.draw(np.random.default_rng(5))
    np.testing.assert_allclose(first[0], net.weights[0].T)
    active = net.weights[0] @ x + net.biases[0] > 0
    np.testing.assert_allclose(second[0], (net.weights[1] @ (active[:, None] * net.weights[0])).T)


def test_table_on_a_circle() -> None:
    calls: list[int] = []
    found = region_theory(
        Ensemble.of((2, 10, 16, 1)),
        Circle(),
        networks=20,
        samples=2000,
        progress=lambda done, total, text: calls.append(done),
    )
    assert found.expected is not None and found.distance is not None and found.bound_distance is not None
    error = np.hypot(found.measured.standard_error, found.expected.standard_error)
    assert abs(found.measured.value - found.expected.value) < 4 * error
    assert found.density < found.bound_density and found.distance.value > found.bound_distance
    text = found.table()
    for word in ("Theorem 1", "Theorem 2", "Theorem 3", "C_grad", "C_M,kappa", "note: C_M"):
        assert word in text
    assert calls == list(range(20))
    assert found.to_dict()["constants"]["curvature"] == DISTANCE_CONSTANT


def test_vacuous_without_a_density() -> None:
    found = region_theory(Ensemble.of((2, 5, 1), "xavier"), Circle(), networks=3)
    assert found.expected is None and found.bound_density == np.inf and found.bound_distance == 0.0
    assert any("no density" in text for text in found.remarks) and "no density" in repr(found)


def ridge() -> GeneratorSurface:
    """Two flat sheets that meet in a line."""
    first = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    last = [[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0], [1.0, 1.0, 0.0, 0.0]]
    return GeneratorSurface(Network([first, last], [np.zeros(4), np.zeros(3)]), [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0])


@pytest.mark.parametrize(
    "manifold",
    [Sphere(), Torus(resolution=2), Cylinder([1.0, 1.0, 2.0], [0.0, 0.0, -1.0]), Box.cube(3), ridge()],
    ids=lambda shape: type(shape).__name__,
)
def test_the_third_theorem_on_surfaces_and_boxes(manifold: Manifold) -> None:
    """The bound is proven at single points, so it holds on every manifold."""
    found = region_theory(Ensemble.of((3, 4, 1)), manifold, networks=6, samples=100)
    assert found.distance is not None and found.distance.value > found.bound_distance_sharp > 0
    assert found.bound_distance_sharp == 2 * found.bound_distance
    assert any("curvature does not enter" in text for text in found.remarks)
    with pytest.raises(InputError, match="networks"):
        region_theory(Ensemble.of((3, 4, 1)), manifold, networks=1)


def test_the_bound_at_a_point_by_its_law() -> None:
    """One neuron w x + b at a point: P(|w x + b| <= e |w|) is below 2 e E|w| C_bias, and near to it for small e."""
    rng = np.random.default_rng(0)
    w, b = rng.normal(size=(200_000, 2)), rng.normal(size=200_000)
    near = np.abs(w @ [0.1, 0.0] + b) <= 0.05 * np.linalg.norm(w, axis=1)
    bound = 2 * 0.05 * sqrt(pi / 2) / sqrt(2 * pi)
    assert 0.9 * bound < near.mean() < bound * 1.02


def test_no_distance_where_ways_are_not_known() -> None:
    oblique = Cylinder([[1.0, 0, 0], [0, 1, 0], [0.5, 0, 1]])
    found = region_theory(Ensemble.of((3, 4, 1)), oblique, networks=3, samples=100)
    assert found.distance is None and found.bound_distance > 0
    assert any("not measured" in text for text in found.remarks)
    found = region_theory(Ensemble.of((3, 4, 1)), Ellipsoid([1.0, 2.0, 0.5]), networks=3, samples=100)
    assert found.distance is not None and found.distance.value > found.bound_distance


def test_smooth_generators_are_meshes_first() -> None:
    smooth = GeneratorSurface(lambda Z: np.tanh(Z @ np.ones((2, 3))), [0.0, 0.0], [1.0, 0.0], [0.0, 1.0])
    with pytest.raises(InputError, match="piecewise linear generator"):
        region_theory(Ensemble.of((3, 4, 1)), smooth)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"k": 0}, "k: expected 1 to 1"), ({"k": 1.5}, "k: expected 1 to 1"), ({"samples": 1}, "at least 2")],
)
def test_bad_questions_about_constants(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        theory_constants(Ensemble.of((2, 4, 1)), Circle(), **options)
    with pytest.raises(InputError, match=r"expected one in R\^3, got R\^2"):
        theory_constants(Ensemble.of((3, 4, 1)), Circle())
