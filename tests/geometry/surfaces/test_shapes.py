"""Meshes, spheres and tori: what they are, and which ones are refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.geometry.cells import Incidence
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.geometry.surfaces.sizes import polygon_areas

CORNERS = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]

BAD = [
    (CORNERS, [[0, 1, 1]], "three different vertices, got \\[0, 1, 1\\]"),
    (CORNERS, [[0, 1, 5]], "from 0 to 4, got \\[0, 1, 5\\]"),
    (CORNERS, [[0, 1, -1]], "from 0 to 4"),
    (CORNERS, [[0.0, 1.0, 2.0]], "expected integers, got float64"),
    (CORNERS, [[0, 1]], "expected \\(count, 3\\)"),
    (CORNERS, np.zeros((0, 3), dtype=int), "at least one row"),
    (CORNERS, [[0, 1, 2], [0, 1]], "ragged"),
    (CORNERS, [[0, 1, 2], [0, 1, 3], [0, 1, 4]], "edge \\(0, 1\\): expected at most two triangles, got 3"),
    ([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], [[0, 1, 2]], "area that is not zero"),
    ([[0.1, 0.1], [0.1, 0.1], [2.0, 3.0]], [[0, 1, 2]], "area that is not zero"),
    ([[0.1, 0.3], [0.2, 0.6], [0.4, 1.2]], [[0, 1, 2]], "area that is not zero"),
    ([[0.0, 0.0], [5e-324, 0.0], [1e-323, 0.0]], [[0, 1, 2]], "area that is not zero"),
    ([[0.0, np.nan], [1.0, 1.0], [2.0, 0.0]], [[0, 1, 2]], "finite numbers"),
    ([[0.0], [1.0], [2.0]], [[0, 1, 2]], "n >= 2"),
]


@pytest.mark.parametrize(("vertices", "triangles", "message"), BAD)
def test_bad_meshes_are_refused(vertices, triangles, message):
    with pytest.raises(InputError, match=message):
        Mesh(vertices, triangles)


def test_an_area_is_zero_only_if_it_is_zero():
    """One ulp off the line, products that underflow, and huge coordinates: all of them triangles."""
    Mesh([[0.1, 0.3], [0.2, 0.6], [0.4, np.nextafter(1.2, 2)]], [[0, 1, 2]])
    Mesh([[0.0, 0.0], [5e-324, 0.0], [0.0, 5e-324]], [[0, 1, 2]])
    Mesh([[-1e308, 0.0], [1e308, 0.0], [0.0, 1e308]], [[0, 1, 2]])
    with pytest.raises(InputError, match="not zero"):
        Mesh([[-1e308, -1e308], [1e308, 1e308], [0.0, 0.0]], [[0, 1, 2]])


@pytest.mark.parametrize("resolution", [0, 1, 2, 4])
def test_sphere(resolution):
    sphere = Sphere(center=[1.0, 2.0, 3.0], radius=2.0, resolution=resolution)
    mesh = sphere.mesh
    assert len(mesh.triangles) == 20 * 4**resolution
    assert mesh.euler_characteristic == 2 and not mesh.border.any()
    np.testing.assert_allclose(np.linalg.norm(mesh.vertices - sphere.center, axis=1), 2.0)
    # all triangles are seen counter-clockwise from outside
    a, b, c = (mesh.vertices[mesh.triangles[:, i]] - sphere.center for i in range(3))
    assert (np.einsum("ti,ti->t", np.cross(b - a, c - a), a) > 0).all()
    inside = 2.0 - np.linalg.norm((a + b + c) / 3, axis=1)
    assert inside.max() <= sphere.deviation + 1e-12 < 0.45
    assert mesh.area < sphere.round_area


def test_finer_spheres_come_closer():
    spheres = [Sphere(resolution=k) for k in range(5)]
    gaps = [s.round_area - s.mesh.area for s in spheres]
    assert all(b < a / 3 for a, b in pairwise(gaps))
    assert spheres[-1].deviation < 0.002


def test_torus():
    torus = Torus(center=[0.0, 0.0, 1.0], radius=2.0, tube=0.5, resolution=5)
    x, y, z = (torus.mesh.vertices - torus.center).T
    np.testing.assert_allclose((np.hypot(x, y) - 2.0) ** 2 + z**2, 0.25)
    assert torus.mesh.euler_characteristic == 0 and not torus.mesh.border.any()
    assert torus.mesh.area == pytest.approx(torus.round_area, rel=0.01)
    middles = torus.mesh.vertices[torus.mesh.triangles].mean(axis=1) - torus.center
    off = np.abs(np.hypot(np.hypot(middles[:, 0], middles[:, 1]) - 2.0, middles[:, 2]) - 0.5)
    assert off.max() <= torus.deviation


def test_frames_are_made_orthonormal():
    frame = np.random.default_rng(0).normal(size=(3, 7))
    sphere = Sphere(center=np.ones(7), frame=frame, resolution=1)
    np.testing.assert_allclose(sphere.frame @ sphere.frame.T, np.eye(3), atol=1e-12)
    assert np.linalg.matrix_rank(np.concatenate([sphere.frame, frame])) == 3
    np.testing.assert_allclose(np.linalg.norm(sphere.mesh.vertices - 1.0, axis=1), 1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sphere(radius=0.0), "positive radius"),
        (lambda: Sphere(radius=float("nan")), "positive radius"),
        (lambda: Sphere(center=[0.0, 0.0]), "at least 3 dimensions"),
        (lambda: Sphere(resolution=-1), "integer from 0"),
        (lambda: Sphere(resolution=1.5), "integer from 0"),
        (lambda: Sphere(resolution=12), "at most"),
        (lambda: Sphere(frame=[[1.0, 0, 0], [2.0, 0, 0], [0, 0, 1.0]]), "independent"),
        (lambda: Sphere(frame=[[1.0, 0, 0], [0, 1.0, 0], [1.0, 1.0, 0]]), "independent"),
        (lambda: Sphere(frame=np.eye(2)), "at least 3|shape"),
        (lambda: Sphere(center=np.zeros(4), frame=np.eye(3)), "shape"),
        (lambda: Torus(tube=2.0), "tube < radius"),
        (lambda: Torus(resolution=1), "integer from 2"),
        (lambda: Mesh.grid(np.zeros((1, 3, 2))), "2 x 2"),
    ],
)
def test_bad_shapes_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_areas_of_polygons_do_not_depend_on_where_they_lie():
    rng = np.random.default_rng(1)
    angles = np.sort(rng.uniform(0, 2 * np.pi, (30, 6)), axis=1)
    flat = np.stack([np.cos(angles), np.sin(angles)], axis=2)
    x, y = flat[..., 0], flat[..., 1]
    expected = (x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1) / 2
    axes = np.linalg.qr(rng.normal(size=(9, 2)))[0].T
    polygons = Incidence(np.arange(0, 181, 6), np.arange(180))
    np.testing.assert_allclose(polygon_areas(polygons, flat.reshape(-1, 2) @ axes + 100.0), expected, rtol=1e-9)
    assert polygon_areas(Incidence(np.array([0, 3]), np.array([0, 0, 0])), np.ones((1, 4))).tolist() == [0.0]
