"""Shortest ways on meshes against closed forms and unrolled sheets, and distances to boundaries within surfaces."""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from fiberscope.errors import InputError, NotGenericError, OutOfTimeError
from fiberscope.geometry.distances.geodesics import geodesic_distance
from fiberscope.geometry.domains import Box
from fiberscope.geometry.regions import regions
from fiberscope.geometry.surfaces.generated import GeneratorSurface
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.regions_on import regions_on
from fiberscope.geometry.surfaces.round_regions import round_regions
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.geometry.surfaces.unfolding import Unfolding
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray

CUBE = Mesh(
    [[x, y, z] for x in (0.0, 1.0) for y in (0.0, 1.0) for z in (0.0, 1.0)],
    [[0, 1, 3], [0, 3, 2], [4, 7, 5], [4, 6, 7], [0, 5, 1], [0, 4, 5], [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4],
     [1, 5, 7], [1, 7, 3]],
)  # fmt: skip


def test_a_cube_unfolded_by_hand() -> None:
    """Opposite corners: over two faces, the root of 5. Middles of opposite faces: 2. And a spider and a fly."""
    way = geodesic_distance(CUBE, [[0.0, 0.0, 0.0], [0.5, 0.5, 0.0]], [[1.0, 1.0, 1.0], [0.5, 0.5, 1.0]])
    np.testing.assert_allclose(way.distance, [5**0.5, 2.0], rtol=1e-14)
    assert way.kind == "exact"
    room = Mesh(CUBE.vertices * [30.0, 12.0, 12.0], CUBE.triangles)  # Dudeney's room: 40 feet over five walls
    fly = geodesic_distance(room, [[0.0, 6.0, 1.0]], [[30.0, 6.0, 11.0]])
    np.testing.assert_allclose(fly.distance, [40.0], rtol=1e-14)


def test_around_a_hole_and_over_a_saddle() -> None:
    """A square ring: ways bend at the corners of the hole. The corner of three walls and a table has too much angle."""
    corners = [[x, y] for x in range(4) for y in range(4)]
    cells = [(i, j) for i in range(3) for j in range(3) if (i, j) != (1, 1)]
    triangles = [t for i, j in cells for a in [4 * i + j] for t in ([a, a + 4, a + 5], [a, a + 5, a + 1])]
    ring = Mesh(np.array(corners, dtype=float), triangles)
    assert Unfolding.of_mesh(ring).bent.nonzero()[0].tolist() == [5, 6, 9, 10]
    way = geodesic_distance(ring, [[0.5, 1.5], [1.0, 0.5]], [[2.5, 1.5], [2.0, 2.5]]).distance
    around = np.hypot(0.5, 0.5) * 2 + 1, np.hypot(1, 0.5) + np.hypot(0, 1.5)
    np.testing.assert_allclose(way, around, rtol=1e-14)


def test_meshes_in_more_dimensions_and_units() -> None:
    """Only lengths within triangles enter: isometric meshes have the same ways, in any space and unit."""
    rng = np.random.default_rng(4)
    bumpy = Mesh(
        Sphere(resolution=1).mesh.vertices * (1 + 0.3 * rng.random((42, 1))), Sphere(resolution=1).mesh.triangles
    )
    frame = np.linalg.qr(rng.normal(size=(7, 7)))[0][:3]
    a, b = (([3, 17, 50], rng.dirichlet(np.ones(3), 3)) for _ in range(2))
    plain = geodesic_distance(bumpy, a, (np.array([60, 2, 9]), b[1])).distance
    for unit in (1.0, 1e200, 1e-200):
        moved = Mesh(unit * (bumpy.vertices @ frame), bumpy.triangles)
        found = geodesic_distance(moved, a, (np.array([60, 2, 9]), b[1])).distance
        np.testing.assert_allclose(found / unit, plain, rtol=1e-12)
    back = geodesic_distance(bumpy, (np.array([60, 2, 9]), b[1]), a).distance
    np.testing.assert_allclose(back, plain, rtol=1e-13)


def test_the_values_of_an_exact_library() -> None:
    """From pygeodesic 0.1.11 (Mitchell, Mount, Papadimitriou), between vertices of a mesh with saddles."""
    rng = np.random.default_rng(1)
    heights = np.round(3 * rng.random((6, 6, 1)), 3)
    g = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0), indexing="ij"), axis=2)
    hill = Mesh.grid(np.concatenate([g, heights], axis=2))
    found = geodesic_distance(hill, hill.vertices[[0, 5, 3, 14]], hill.vertices[[35, 30, 32, 0]]).distance
    np.testing.assert_allclose(
        found, [7.647151949519869, 9.02474784063962, 8.030114590437933, 2.8966774702977096], rtol=1e-13
    )


def test_torus_by_closed_forms_and_second_order() -> None:
    """Meridians and the outer equator are geodesics; the mesh comes near them with the square of its width."""
    gaps = []
    for resolution in (4, 5):
        torus = Torus(radius=1.0, tube=0.4, resolution=resolution)
        a = [[1.4, 0.0, 0.0], [1.4, 0.0, 0.0]]
        b = [[0.6, 0.0, 0.0], [1.4 * np.cos(0.7), 1.4 * np.sin(0.7), 0.0]]
        found = geodesic_distance(torus, a, b)
        assert found.kind == "exact on the mesh"
        gaps.append(np.abs(found.distance - [0.4 * pi, 1.4 * 0.7]))
    assert (gaps[0] < 0.02).all() and (gaps[1] < gaps[0] / 2.5).all()


def test_never_longer_than_along_edges_and_symmetric() -> None:
    mesh = Torus(resolution=2).mesh
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, len(mesh.vertices), (2, 20))
    found = geodesic_distance(mesh, mesh.vertices[i], mesh.vertices[j]).distance
    a, b = mesh.edges.T
    size = np.linalg.norm(mesh.vertices[a] - mesh.vertices[b], axis=1)
    edges = dijkstra(coo_array((size, (a, b)), shape=(len(mesh.vertices),) * 2).tocsr(), directed=False)[i, j]
    assert (found <= edges * (1 + 1e-12)).all() and (
        found >= np.linalg.norm(mesh.vertices[i] - mesh.vertices[j], axis=1) * (1 - 1e-12)
    ).all()


def test_a_search_keeps_its_time() -> None:
    torus = Torus(resolution=4)
    with pytest.raises(OutOfTimeError):
        geodesic_distance(torus, [[1.4, 0.0, 0.0]] * 200, [[-0.7, 0.0, 0.3]] * 200, time_limit=0.05)


# --- to the boundaries of regions ---------------------------------------------------------------------------------


def to_segments(X: FloatArray, ends: FloatArray) -> FloatArray:
    a, b = ends[:, 0], ends[:, 1]
    w = b - a
    t = np.clip(((X[:, None] - a) * w).sum(axis=2) / (w * w).sum(axis=1), 0, 1)
    return np.asarray(np.linalg.norm(X[:, None] - a - t[..., None] * w, axis=2).min(axis=1, initial=np.inf))


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**20), steps=st.integers(2, 5), visible=st.booleans())
def test_on_a_flat_mesh_it_is_the_distance_to_segments(seed: int, steps: int, visible: bool) -> None:
    net = Network.random((2, 4, 3, 1), seed)
    rng = np.random.default_rng(seed)
    # the triangles do not matter, nor where their corners lie
    g = np.stack(np.meshgrid(np.linspace(-1, 1, steps), np.linspace(-1, 1, 3), indexing="ij"), axis=2)
    g[1:-1, 1] += rng.uniform(-0.1, 0.1, g[1:-1, 1].shape)
    X = rng.uniform(-1, 1, (8, 2))
    found = regions_on(net, Mesh.grid(g)).distance(X, visible=visible)
    flat = regions(net, Box.cube(2))
    facets = flat.facets
    rows = np.flatnonzero(facets.visible if visible else (facets.regions >= 0).all(axis=1))
    ends = flat.structure.points[flat.structure.boundary[0].indices.reshape(-1, 2)[facets.cell[rows]]]
    np.testing.assert_allclose(found, to_segments(X, ends), atol=1e-13)


def test_on_a_fine_sphere_it_tends_to_great_circles() -> None:
    net = Network.random((3, 5, 4, 1), 3)
    X = np.random.default_rng(1).normal(size=(20, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    truth = round_regions(net, Sphere()).distance(X)
    rough, fine = (np.abs(regions_on(net, Sphere(resolution=r)).distance(X) - truth).max() for r in (2, 4))
    assert fine < 3e-3 and fine < rough / 6


def test_on_an_upright_cylinder_against_its_unrolled_sheet() -> None:
    """As a mesh of many flat strips the cylinder is nearly itself; and planes have closed forms."""
    tall = Cylinder([1.0, 1.0, 2.0], [0.0, 0.0, -1.0])
    slanted = Network([[[0.5, 0.0, 1.0]], [[1.0]]], [[0.0], [0.0]])  # z = -cos t / 2
    t, z = np.array([0.0, 0.4, pi, -2.0]), np.array([0.5, -0.9, 0.3, 0.0])
    X = np.stack([np.cos(t), np.sin(t), z], axis=1)
    fine = np.linspace(-3 * pi, 3 * pi, 600_001)
    truth = [np.hypot(fine - a, -np.cos(fine) / 2 - b).min() for a, b in zip(t, z, strict=True)]
    np.testing.assert_allclose(round_regions(slanted, tall).distance(X), truth, atol=1e-9)
    for seed in range(2):
        net = Network.random((3, 5, 3, 1), seed)
        rim = np.linspace(-pi, pi, 193)
        strip = [[[np.cos(a), np.sin(a), b] for b in (-1.0, 0.0, 1.0)] for a in rim[:-1]]
        grid = Mesh.grid([*strip, strip[0]])
        closed = Mesh(grid.vertices[:-3], np.where(grid.triangles >= 576, grid.triangles - 576, grid.triangles))
        exact, mesh = (
            round_regions(net, tall).distance(X, visible=True),
            regions_on(net, closed).distance(X, visible=True),
        )
        np.testing.assert_allclose(mesh, exact, atol=2e-3)


def test_surfaces_through_generators() -> None:
    """A flat generator: the distances of the plane, whatever the coordinates; a bent one is not nearer than space."""
    rng = np.random.default_rng(2)
    frame = np.linalg.qr(rng.normal(size=(5, 2)))[0]
    flat = Network([frame], [np.zeros(5)])
    net = Network.random((5, 6, 3, 1), 4)
    surface = GeneratorSurface(flat, [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0])
    st_ = rng.uniform(-1, 1, (10, 2))
    found = regions_on(net, surface).distance(st_ @ frame.T)
    plane = Network([net.weights[0] @ frame, *net.weights[1:]], list(net.biases))
    cells = regions(plane, Box.cube(2))
    rows = np.flatnonzero((cells.facets.regions >= 0).all(axis=1))
    ends = cells.structure.points[cells.structure.boundary[0].indices.reshape(-1, 2)[cells.facets.cell[rows]]]
    np.testing.assert_allclose(found, to_segments(st_, ends), atol=1e-12)
    bent = regions_on(net, GeneratorSurface(Network.random((2, 6, 5), 1), [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]))
    assert bent.collapsed  # where only one neuron of the six is active, or none
    with pytest.raises(NotGenericError, match="flattens"):
        bent.distance(bent.surface([[0.5, 0.5]]))
    bent = regions_on(net, GeneratorSurface(Network.random((2, 12, 5), 1), [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]))
    places = bent.surface(rng.random((10, 2)))
    near = to_segments(places, bent.vertices[bent.structure.boundary[0].indices.reshape(-1, 2)[bent.boundary]])
    assert (bent.distance(places) >= near - 1e-12).all()


def test_no_boundary_and_what_is_refused() -> None:
    still = Network([[[1.0, 0.0, 0.0]], [[1.0]]], [[5.0], [0.0]])
    assert np.isinf(regions_on(still, Sphere(resolution=1)).distance([[1.0, 0.0, 0.0]])).all()
    assert np.isinf(round_regions(still, Cylinder([1.0, 1.0, 1.0])).distance([[1.0, 0.0, 0.0]])).all()
    cases: list[tuple[Any, Any, str]] = [
        (Ellipsoid([1.0, 2.0, 3.0]), [[0.0, 0.0, 0.0]], "got the centre"),
        (Cylinder([[1.0, 0, 0], [0, 1, 0], [0.5, 0, 1]]), [[1.0, 0.0, 0.0]], "right angles"),
        (Cylinder([1.0, 1.0, 1.0]), [[0.0, 0.0, 0.5]], "off the axis"),
    ]
    net = Network([[[1.0, 0.0, 0.0]], [[1.0]]], [[0.1], [0.0]])
    for surface, points, message in cases:
        with pytest.raises(InputError, match=message):
            round_regions(net, surface).distance(points)
