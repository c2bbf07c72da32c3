"""Arc lengths to breakpoints, and geodesic distances on the built-in manifolds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_sphere_is_exact_and_its_mesh_near() -> None:
    rng = np.random.default_rng(0)
    sphere = Sphere(radius=2.0, resolution=3)
    a, b = (2 * x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.normal(size=(2, 20, 3)))
    exact = geodesic_distance(sphere, a, b)
    np.testing.assert_allclose(exact.distance, 2 * np.arccos(np.einsum("ij,ij->i", a, b) / 4), rtol=1e-9)
    rough = geodesic_distance(sphere.mesh, a, b)
    assert exact.kind == rough.kind == "exact"
    # chords of the inscribed mesh are a little shorter than arcs
    assert (rough.distance >= 0.98 * exact.distance).all() and (rough.distance <= exact.distance).all()
    assert geodesic_distance(sphere, a, -a).distance == pytest.approx(2 * np.pi)


def folded(widths: list[float], angles: list[float], height: float) -> tuple[Mesh, np.ndarray]:
    """A strip of paper folded along parallel lines, and the places of its lines in the plane."""
    lines = np.concatenate([[0.0], np.cumsum(widths)])
    turn = np.concatenate([[0.0], np.cumsum(angles)])[: len(widths)]
    steps = np.stack([np.cos(turn), np.sin(turn)], axis=1) * np.array(widths)[:, None]
    xz = np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
    rows = [[[x, y, z] for y in (0.0, height)] for x, z in xz]
    return Mesh.grid(rows), lines


def on_strip(mesh: Mesh, lines: np.ndarray, flat: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Points of the plane on the folded strip: in space, and as triangles with barycentric weights."""
    height = float(mesh.vertices[:, 1].max())
    k = np.clip(np.searchsorted(lines, flat[:, 0], side="right") - 1, 0, len(lines) - 2)
    s, u = (flat[:, 0] - lines[k]) / (lines[k + 1] - lines[k]), flat[:, 1] / height
    # the square has corners a = (0, 0), b = (1, 0), c = (1, 1), d = (0, 1) and triangles abc, acd
    low = s >= u
    weights = np.where(low[:, None], np.stack([1 - s, s - u, u], axis=1), np.stack([1 - u, s, u - s], axis=1))
    triangle = 2 * k + ~low
    return np.einsum("pc,pcn->pn", weights, mesh.vertices[mesh.triangles[triangle]]), (triangle, weights)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_ways_on_a_folded_strip(data: st.DataObject) -> None:
    folds = data.draw(st.integers(1, 5))
    widths = data.draw(st.lists(st.sampled_from([0.01, 0.3, 1.0, 2.0]), min_size=folds + 1, max_size=folds + 1))
    # right angles, sharp ones, and sheets that lie on each other
    angles = data.draw(
        st.lists(st.sampled_from([np.pi, -np.pi, 3.0, 2.0, -0.7, np.pi / 2]), min_size=folds, max_size=folds)
    )
    mesh, lines = folded(widths, angles, data.draw(st.sampled_from([0.05, 1.0])))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    for _ in range(data.draw(st.integers(0, 2))):
        mesh = mesh.refined() if data.draw(st.booleans()) else mesh
    plain, _ = folded(widths, angles, float(mesh.vertices[:, 1].max()))
    high = float(plain.vertices[:, 1].max())
    a, b = (np.stack([rng.random(6) * lines[-1], rng.random(6) * high], axis=1) for _ in range(2))
    a[0, 0], b[1] = lines[1], a[1]  # on a fold; the same point
    truth = np.linalg.norm(a - b, axis=1)
    (x, at_x), (y, at_y) = on_strip(plain, lines, a), on_strip(plain, lines, b)
    by_point, by_weight = geodesic_distance(mesh, x, y), geodesic_distance(plain, at_x, at_y)
    for found in (by_point, by_weight):
        assert found.kind == "exact" and found.moved.max() < 1e-12
        assert (found.distance >= truth * (1 - 1e-12) - 1e-14).all()  # sheets on each other: of the farther one
    np.testing.assert_allclose(by_weight.distance, truth, rtol=1e-12, atol=1e-14)


def test_a_point_belongs_to_a_triangle_and_not_to_the_nearest_vertex() -> None:
    """A U of paper: the other sheet is .01 away, and its vertices nearer than those of the own one."""
    lower = [[[x, y, 0.0] for y in (0.0, 0.2)] for x in (0.0, 0.94)]
    upper = [[[x, y, 0.01] for y in (0.0, 0.2)] for x in np.linspace(0.94, 0.0, 40)]
    found = geodesic_distance(Mesh.grid([*lower, *upper]), [[0.0235, 0.0, 0.0]], [[0.0235, 0.0, 0.01]])
    assert found.distance[0] >= 2 * (0.94 - 0.0235) + 0.01
    between = geodesic_distance(Mesh.grid([*lower, *upper]), [[0.0, 0.1, 0.0]], [[0.0, 0.1, 0.005]])
    assert between.distance[0] >= 1.88  # it may mean either sheet, and the bound holds for both
    assert between.moved[0, 1] == pytest.approx(0.005) and "moved by up to 0.005" in repr(between)


def test_sheets_that_are_not_joined_are_infinitely_far() -> None:
    two = Mesh([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2], [3, 4, 5]])
    assert (
        geodesic_distance(two, (np.array([0]), [[1.0, 0.0, 0.0]]), (np.array([1]), [[1.0, 0, 0]])).distance[0] == np.inf
    )
    near = geodesic_distance(two, (np.array([0]), [[0.5, 0.5, 0.0]]), (np.array([0]), [[0.0, 0.5, 0.5]]))
    assert near.distance[0] == pytest.approx(0.5)


def test_torus_and_flat_mesh() -> None:
    torus = Torus(radius=1.0, tube=0.25, resolution=4)
    way = geodesic_distance(torus, [[1.25, 0.0, 0.0]], [[-1.25, 0.0, 0.0]]).distance[0]
    assert 0.75 * np.pi * 0.98 <= way <= 1.25 * np.pi
    square = Mesh([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[0, 1, 2], [1, 3, 2]])
    assert geodesic_distance(square, [[0.0, 0.0]], [[1.0, 1.0]]).distance[0] == pytest.approx(np.sqrt(2))


def test_bad_input() -> None:
    with pytest.raises(InputError, match="found"):
        distance_along("no result", [0.0])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="shape"):
        geodesic_distance("sphere", [[0.0]], [[0.0]])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="as many"):
        geodesic_distance(Sphere(), np.eye(3), np.eye(3)[:1])
    with pytest.raises(InputError, match="centre"):
        geodesic_distance(Sphere(), np.zeros((1, 3)), np.eye(3)[:1])
    mesh = Sphere().mesh
    with pytest.raises(InputError, match="a: expected points on or near the mesh, got point 1 at the distance 2"):
        geodesic_distance(mesh, [[1.0, 0.0, 0.0], [3.0, 0.0, 0.0]], np.eye(3)[:2])
    for triangles, weights, text in (
        ([0], [[0.5, 0.5]], "weights"),
        ([9999], [[1.0, 0.0, 0.0]], "triangles 0 to"),
        ([0], [[0.7, 0.7, -0.4]], "from 0 on that add up to 1"),
        ([0.5], [[1.0, 0.0, 0.0]], "numbers of triangles"),
    ):
        with pytest.raises(InputError, match=text):
            geodesic_distance(mesh, (np.array(triangles), weights), np.eye(3)[:1])
    with pytest.raises(InputError, match="3 parts"):
        geodesic_distance(mesh, ([0], [1], [2]), np.eye(3)[:1])
