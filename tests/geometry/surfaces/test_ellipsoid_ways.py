"""Shortest ways on ellipsoids: closed forms, another program's numbers, meshes inside, sampled boundaries, laws."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.errors import InputError, OutOfTimeError, TooLargeError
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray

PAIRS = [
    (40.6, -73.8, 51.6, -0.5, 5551759.4003186785),
    (0.0, 0.0, 0.5, 179.5, 19936288.578965314),
    (-30.0, 10.0, 45.0, -120.0, 15380689.701943098),
    (89.0, 0.0, -89.0, 30.0, 19788156.90469305),
    (10.0, 20.0, 10.001, 20.001, 155.73962832974087),
]
"""Latitudes and longitudes in degrees, and distances in metres."""


def planes(rows: list[list[float]]) -> Network:
    table = np.array(rows, dtype=float)
    return Network([table[:, :3], np.ones((1, len(table)))], [table[:, 3], np.zeros(1)])


def unit(seed: int, count: int) -> FloatArray:
    x = np.random.default_rng(seed).normal(size=(count, 3))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def meridian(wide: float, tall: float, low: float, high: float) -> float:
    """Length of ``(wide cos t, tall sin t)`` between two heights of the unit sphere."""

    def speed(t: mpmath.mpf) -> mpmath.mpf:
        return mpmath.sqrt((wide * mpmath.sin(t)) ** 2 + (tall * mpmath.cos(t)) ** 2)

    return float(mpmath.quad(speed, mpmath.linspace(mpmath.asin(low), mpmath.asin(high), 9)))


def test_a_sphere_has_great_circles() -> None:
    a, b = unit(0, 6), unit(1, 6)
    ball = fs.geodesic_distance(fs.Ellipsoid([2.0, 2.0, 2.0]), a, 3 * b)
    same = fs.geodesic_distance(fs.Sphere(radius=2.0), a, 3 * b)
    np.testing.assert_allclose(ball.distance, same.distance, rtol=1e-13)
    np.testing.assert_allclose(ball.moved, same.moved, rtol=1e-12)
    assert (ball.lower <= ball.distance).all() and (ball.lower > ball.distance * (1 - 1e-11)).all()
    net = Network.random((3, 5, 4, 1), 1)
    np.testing.assert_allclose(
        fs.round_regions(net, fs.Ellipsoid([1.0, 1.0, 1.0])).distance(a),
        fs.round_regions(net, fs.Sphere()).distance(a),
        rtol=1e-11,
    )
    opposite = fs.geodesic_distance(fs.Ellipsoid([1.0, 1.0, 1.0]), a[:1], -a[:1])
    assert opposite.distance[0] == pytest.approx(np.pi, rel=1e-12) and 3.1 < opposite.lower[0] <= np.pi


@pytest.mark.parametrize("tall", [0.25, 3.0])
def test_ellipsoids_of_revolution(tall: float) -> None:
    """To a pole and to a circle around the axis the shortest ways are meridians."""
    shape = fs.Ellipsoid([1.0, 1.0, tall])
    found = fs.round_regions(planes([[0.0, 0.0, 1.0, -0.5 * tall]]), shape)
    heights = [-0.75, 0.25, 0.96875]
    points = np.array([[np.sqrt(1 - z * z) * 0.6, np.sqrt(1 - z * z) * 0.8, tall * z] for z in heights])
    pole = np.array([[0.0, 0.0, tall]] * 3)
    truth = [meridian(1.0, tall, z, 1.0) for z in heights]
    for a, b in ((points, pole), (pole, points)):
        np.testing.assert_allclose(fs.geodesic_distance(shape, a, b).distance, truth, rtol=1e-13)
    ring = [abs(meridian(1.0, tall, z, 0.5)) for z in heights]
    np.testing.assert_allclose(found.distance(points), ring, rtol=1e-11)
    low, high = found.distance_range(pole[:1])  # all directions are as near
    assert high[0] == pytest.approx(meridian(1.0, tall, 0.5, 1.0), rel=1e-11) and 0.95 * high[0] < low[0] <= high[0]


def test_points_of_the_earth() -> None:
    """Distances by Karney's series (geographiclib 2.1, WGS 84), one pair of points nearly opposite."""
    a, f = 6378137.0, 1 / 298.257223563
    pairs = np.array(PAIRS)
    b = a * (1 - f)
    x = []
    for lat, lon in (pairs[:, :2].T, pairs[:, 2:4].T):
        phi, lam = np.radians(lat), np.radians(lon)
        down = np.arctan2((1 - f) * np.sin(phi), np.cos(phi))
        x.append(np.stack([a * np.cos(down) * np.cos(lam), a * np.cos(down) * np.sin(lam), b * np.sin(down)], axis=1))
    found = fs.geodesic_distance(fs.Ellipsoid([a, a, b]), *x)
    np.testing.assert_allclose(found.distance, pairs[:, 4], rtol=1e-13, atol=2e-7)


@pytest.mark.parametrize("axes", [np.diag([1.0, 2.0, 0.5]), [[1.0, 0.5, 0.0], [0.0, 2.0, 0.0], [0.25, 0.0, 0.5]]])
def test_meshes_inside_have_shorter_ways(axes: FloatArray) -> None:
    """Nearest points of a convex body are no farther from each other: ways on an inscribed mesh are lower bounds."""
    axes = np.asarray(axes)
    round_mesh = fs.Sphere(resolution=3).mesh
    mesh = fs.Mesh(round_mesh.vertices @ axes, round_mesh.triangles)
    i, j = np.random.default_rng(2).integers(len(mesh.vertices), size=(2, 12))
    inside = fs.geodesic_distance(mesh, mesh.vertices[i], mesh.vertices[j]).distance
    found = fs.geodesic_distance(fs.Ellipsoid(axes), mesh.vertices[i], mesh.vertices[j])
    assert (inside <= found.distance * (1 + 1e-12)).all() and (found.distance <= inside * 1.02).all()
    net = Network.random((3, 5, 4, 1), 3)
    points = unit(3, 4) @ axes
    on_mesh = fs.regions_on(net, mesh).distance(points)
    np.testing.assert_allclose(fs.round_regions(net, fs.Ellipsoid(axes)).distance(points), on_mesh, rtol=0.1, atol=2e-3)


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.booleans())
def test_boundaries_by_their_points(seed: int, visible: bool) -> None:
    """The way to a boundary is the least of ways to points of it; no way leaves the region before that."""
    rng = np.random.default_rng(seed)
    shape = fs.Ellipsoid(rng.uniform(0.5, 2.0, 3))
    net = Network.random((3, 4, 3, 1), seed)
    found = fs.round_regions(net, shape)
    asked = found.inner & found.visible if visible else found.inner
    at = unit(seed + 1, 1)
    low, high = found.distance_range(at @ shape.axes, visible=visible)
    normal, height, start, angle = (part[asked] for part in found.arcs)
    if not len(normal):
        assert np.isinf(high).all()
        return
    samples = []
    for n, h, begin, turn in zip(normal, height, start, angle, strict=True):
        t, u = np.linspace(0, turn, 400)[:, None], begin - h * n
        samples.append(h * n + np.cos(t) * u + np.sin(t) * np.cross(n, u))
    on = np.concatenate(samples) @ shape.axes
    near = on[np.argsort(np.linalg.norm(on - at @ shape.axes, axis=1))[:12]]
    ways = fs.geodesic_distance(shape, np.repeat(at @ shape.axes, 12, axis=0), near).distance
    assert low[0] <= high[0] and high[0] <= ways.min() * (1 + 1e-9)
    if high[0] > np.linalg.norm(near[-1] - at @ shape.axes):  # then the nearest is among the samples
        assert high[0] == pytest.approx(ways.min(), rel=1e-3)
    assert np.linalg.norm(on - at @ shape.axes, axis=1).min() <= high[0] * (1 + 1e-9) + 1e-2


@settings(max_examples=8)
@given(st.integers(0, 10**6))
def test_laws_of_a_metric(seed: int) -> None:
    """Both ways are as long; corners are no short cuts; units, turns, other spaces and other axes change nothing."""
    rng = np.random.default_rng(seed)
    shape = fs.Ellipsoid(rng.normal(size=(3, 3)))
    a, b, c = (unit(seed + k, 1) @ shape.axes for k in range(3))
    ab, ba, bc, ac = (fs.geodesic_distance(shape, p, q).distance[0] for p, q in ((a, b), (b, a), (b, c), (a, c)))
    assert ab == pytest.approx(ba, rel=1e-10) and ac <= (ab + bc) * (1 + 1e-11)
    assert ab >= np.linalg.norm(a - b) * (1 - 1e-12)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    frame, _ = np.linalg.qr(rng.normal(size=(5, 3)))
    other = fs.Ellipsoid(1e100 * turn @ shape.axes @ frame.T)
    moved = fs.geodesic_distance(other, 1e100 * a @ frame.T, 1e100 * b @ frame.T).distance[0]
    assert moved == pytest.approx(1e100 * ab, rel=1e-9)


def test_corners_stand_out() -> None:
    """The boundary that bends is a quarter of a circle; from beyond its end the way leads to that end."""
    net = Network([np.eye(3)[:2], [[1.0, 1.0]], [[1.0]]], [[0.0, 0.0], [-0.5], [0.0]])
    found = fs.round_regions(net, fs.Ellipsoid([1.0, 1.0, 1.0]))
    same = fs.round_regions(net, fs.Sphere())
    points = unit(5, 8)
    np.testing.assert_allclose(found.distance(points, visible=True), same.distance(points, visible=True), rtol=1e-9)


@pytest.mark.parametrize("depth", [1e-3, 1e-9, 1e-13])
def test_tiny_caps(depth: float) -> None:
    """Planes that almost touch: nearly all directions miss the cap, and its border is far from the pole on the way."""
    net = planes([[0.0, 0.0, 1.0, depth - 1.0]])
    points = [[0.6, 0.0, 0.8], [0.0, 0.0, 1.0]]
    _, high = fs.round_regions(net, fs.Ellipsoid([1.0, 1.0, 1.0])).distance_range(points)
    np.testing.assert_allclose(
        high, fs.round_regions(net, fs.Sphere()).distance(points), rtol=1e-2 * depth**0.5 + 1e-6, atol=4e-8
    )


def test_what_is_refused() -> None:
    shape = fs.Ellipsoid([1.0, 1.0, 2.0])
    found = fs.round_regions(planes([[1.0, 0.0, 0.0, 0.0]]), shape)
    with pytest.raises(InputError, match="points: expected points other than the centre of the ellipsoid"):
        found.distance([[0.0, 0.0, 0.0]])
    with pytest.raises(InputError, match="a: expected points other than the centre of the ellipsoid"):
        fs.geodesic_distance(shape, [[0.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]])
    with pytest.raises(OutOfTimeError):
        found.distance([[0.5, 0.5, 0.5]] * 1000, time_limit=1e-6)
    none = fs.round_regions(planes([[1.0, 0.0, 0.0, 9.0]]), shape)
    assert np.isinf(none.distance([[1.0, 0.0, 0.0]])).all()
    assert found.distance([[0.0, 0.6, 1.6]])[0] == 0.0
    same = fs.geodesic_distance(shape, [[1.0, 0.0, 0.0]], [[2.0, 0.0, 0.0]])
    assert same.distance[0] == 0.0 and same.moved.tolist() == [[0.0, 1.0]]
    flat = fs.round_regions(planes([[0.0, 0.0, 1.0, -0.02]]), fs.Ellipsoid([1.0, 1.0, 0.04]))
    with pytest.raises(TooLargeError, match=r"is known between .* only, since too many directions"):
        flat.distance([[0.0, 0.0, 0.04]])


def test_cylinders_unrolled() -> None:
    """Along an ellipse and up: arc length by an elliptic integral, the shorter way around."""
    shape = fs.Cylinder([2.0, 1.0, 3.0])
    around = float(4 * 2 * mpmath.ellipe(mpmath.mpf(3) / 4))
    way = fs.geodesic_distance(shape, [[2.0, 0.0, 0.0]] * 3, [[0.0, 1.0, 3.0], [0.0, -1.0, 3.0], [-4.0, 0.0, 5.0]])
    truth = np.hypot([around / 4, around / 4, around / 2], 3.0)
    np.testing.assert_allclose(way.distance, truth, rtol=1e-13)
    assert way.kind == "exact" and way.moved[2].round(12).tolist() == [0.0, round(8**0.5, 12)]
    with pytest.raises(InputError, match="right angles"):
        fs.geodesic_distance(fs.Cylinder([[1.0, 0, 0], [0, 1, 0], [1, 0, 1]]), [[1.0, 0, 0]], [[0.0, 1, 0]])
    with pytest.raises(InputError, match="off the axis"):
        fs.geodesic_distance(shape, [[0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0]])
