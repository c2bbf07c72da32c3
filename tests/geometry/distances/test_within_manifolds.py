"""Arc lengths to breakpoints, and geodesic distances on the built-in manifolds."""

from __future__ import annotations

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Circle, Polyline, Segment, Tractrix
from fiberscope.geometry.distances.along_curve import distance_along
from fiberscope.geometry.distances.distance import boundary_distance
from fiberscope.geometry.distances.geodesics import geodesic_distance
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.network.network import Network

CURVES = [Circle(), Tractrix(), Segment([-2.0, 0.3], [1.5, -1.0]), Polyline([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]])]


@pytest.mark.parametrize("curve", CURVES, ids=repr)
@pytest.mark.parametrize("visible", [False, True])
def test_distance_along_against_all_breakpoints(curve: Circle, visible: bool) -> None:
    for seed in range(5):
        net = Network.random((2, 4, 2, 1), seed)
        found = regions_along(net, curve)
        marks = found.breakpoints[found.visible] if visible else found.breakpoints
        t = np.linspace(*curve.interval, 41)[1:-1]
        near = distance_along(found, t, visible=visible)
        for row, place in enumerate(t):
            ways = [float(curve.geodesic([place], [mark])[0]) for mark in marks]
            assert near.nearest[row] == pytest.approx(min(ways, default=np.inf), abs=1e-9)
        if not visible:
            np.testing.assert_allclose(near.nearest, found.distance(t), atol=1e-12)
        assert (near.neuron >= 0).all() == bool(len(marks))


def test_both_directions_and_round_the_circle() -> None:
    """One neuron ``y``: the circle crosses it at 0 and pi."""
    net = Network([[[0.0, 1.0]], [[1.0]]], [[-0.5], [0.0]])
    near = distance_along(regions_along(net, Circle()), [0.0])
    up = np.arcsin(0.5)
    assert near.after[0] == pytest.approx(up)
    assert near.before[0] == pytest.approx(np.pi + up)
    assert "1 places" in repr(near) and near.to_dict()["neuron"] == [0]


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_never_nearer_than_through_space(curve: Circle) -> None:
    net = Network.random((2, 6, 5, 1), 3)
    t = np.linspace(*curve.interval, 101)[1:-1]
    along = distance_along(regions_along(net, curve), t).nearest
    assert (along >= boundary_distance(net, curve(t)).lower * (1 - 1e-9)).all()


def test_sphere_is_exact_and_meshes_are_upper_bounds() -> None:
    rng = np.random.default_rng(0)
    sphere = Sphere(radius=2.0, resolution=3)
    a, b = (2 * x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.normal(size=(2, 20, 3)))
    exact = geodesic_distance(sphere, a, b)
    np.testing.assert_allclose(exact.distance, 2 * np.arccos(np.einsum("ij,ij->i", a, b) / 4), rtol=1e-9)
    rough = geodesic_distance(sphere.mesh, a, b)
    assert exact.kind == "exact" and rough.kind == "upper bound"
    # chords of the inscribed mesh are a little shorter than arcs
    assert (rough.distance >= 0.99 * exact.distance).all() and (rough.distance <= 1.3 * exact.distance + 0.5).all()
    assert geodesic_distance(sphere, a, -a).distance == pytest.approx(2 * np.pi)


def test_torus_and_flat_mesh() -> None:
    torus = Torus(radius=1.0, tube=0.25, resolution=4)
    way = geodesic_distance(torus, [[1.25, 0.0, 0.0]], [[-1.25, 0.0, 0.0]]).distance[0]
    assert 0.75 * np.pi * 0.98 <= way <= 1.25 * np.pi
    square = Mesh([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[0, 1, 2], [1, 3, 2]])
    assert geodesic_distance(square, [[0.0, 0.0]], [[1.0, 1.0]]).distance[0] == pytest.approx(2.0)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="found"):
        distance_along("no result", [0.0])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="shape"):
        geodesic_distance("sphere", [[0.0]], [[0.0]])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="as many"):
        geodesic_distance(Sphere(), np.eye(3), np.eye(3)[:1])
    with pytest.raises(InputError, match="centre"):
        geodesic_distance(Sphere(), np.zeros((1, 3)), np.eye(3)[:1])
