"""Regions on surfaces: a slow oracle triangle by triangle, laws on flat and bent meshes, degenerate networks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, NotGenericError
from fiberscope.geometry.domains import Box, Plane, Polytope
from fiberscope.geometry.engines.planar.engine import planar_cells
from fiberscope.geometry.regions import count_regions, regions
from fiberscope.geometry.surfaces import mesh_engine as surface_engine
from fiberscope.geometry.surfaces.regions_on import regions_on
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.geometry.surfaces.sizes import polygon_areas
from fiberscope.geometry.surfaces.surface_regions import SurfaceRegions
from fiberscope.network.action.chain import permute, rescale
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, behind
from fiberscope.network.operators import Dense
from fiberscope.testing import CASES, case, convolutional, fraction_signs
from fiberscope.testing.strategies import chains

SQUARE = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


def flat_square(steps: int, axes: np.ndarray | None = None, origin: np.ndarray | None = None) -> Mesh:
    """The square [-1, 1]^2, or its image under two axes, cut into ``2 steps^2`` triangles with exact corners."""
    t = np.linspace(-1, 1, steps + 1)
    grid = np.stack(np.meshgrid(t, t, indexing="ij"), axis=2)
    if axes is not None:
        grid = origin + grid @ axes
    return Mesh.grid(grid)


def tetrahedron() -> Mesh:
    """A closed surface with integer corners: every triangle is bent against its neighbours."""
    corners = [[4.0, 4.0, 4.0], [4.0, -4.0, -4.0], [-4.0, 4.0, -4.0], [-4.0, -4.0, 4.0]]
    return Mesh(corners, [[0, 1, 2], [0, 3, 1], [0, 2, 3], [1, 3, 2]])


# --- the slow oracle: every triangle by itself ---------------------------------------------------------------------


def on_triangle(net: Network, corners: np.ndarray) -> Network:
    """The network as a function of two coordinates; exact for integer corners."""
    a, b, c = corners
    lift = Affine(0, Dense(np.stack([b - a, c - a], axis=1)), a)
    return Network.from_nodes([lift, *behind(net.nodes, 1)], (2,))


def edge_patterns(net: Network, a: np.ndarray, b: np.ndarray) -> set[tuple[int, ...]]:
    """Sign vectors of the pieces of an edge: of a strip over it on which nothing depends on the second coordinate."""
    lift = Affine(0, Dense(np.stack([b - a, np.zeros_like(a)], axis=1)), a)
    strip = Network.from_nodes([lift, *behind(net.nodes, 1)], (2,))
    return set(map(tuple, planar_cells(strip, Box([0.0, 0.0], [1.0, 1.0])).top_signs.tolist()))


def oracle(net: Network, mesh: Mesh) -> tuple[dict[tuple[int, tuple[int, ...]], float], int]:
    """Area of every pattern in every triangle, and the number of regions on the surface.

    In a triangle a pattern has one piece, which is convex. So two triangles share a region across an edge exactly
    if the pattern occurs in both and on the edge.
    """
    half = Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.0, 0.0, 1.0])
    found: dict[tuple[int, tuple[int, ...]], float] = {}
    for t, corners in enumerate(mesh.vertices[mesh.triangles]):
        cells = planar_cells(on_triangle(net, corners), half)
        sizes = polygon_areas(cells.vertices_of(2), cells.points) * 2 * mesh.areas[t]
        for label, size in zip(map(tuple, cells.top_signs.tolist()), sizes.tolist(), strict=True):
            found[t, label] = size
    parent = {key: key for key in found}

    def root(key):
        while parent[key] != key:
            key = parent[key]
        return key

    for e, (a, b) in enumerate(mesh.edges.tolist()):
        beside = np.flatnonzero((mesh.triangle_edges == e).any(axis=1)).tolist()
        if len(beside) == 2:
            for label in edge_patterns(net, mesh.vertices[a], mesh.vertices[b]):
                one, two = ((t, label) for t in beside)
                if one in found and two in found:
                    parent[root(one)] = root(two)
    return found, len({root(key) for key in found})


def check(found: SurfaceRegions, euler: int) -> None:
    """What must hold of every result."""
    assert found.complete
    assert found.euler_characteristic == euler
    assert found.areas.sum() == pytest.approx(found.surface.mesh.area, rel=1e-9)
    assert found.visible_length <= found.boundary_length * (1 + 1e-12)
    assert found.num_patterns <= found.num_regions <= found.num_pieces
    for r in range(found.num_regions):
        assert (found.piece_signs[found.pieces_of[r]] == found.sign_vectors[r]).all()
    one, two = found.region_of[found.sides[found.boundary]].T
    assert (one != two).all() or (found.sign_vectors[one] == found.sign_vectors[two]).all(axis=1)[one == two].all()


def compare(net: Network, mesh: Mesh) -> SurfaceRegions:
    found = regions_on(net, mesh)
    expected, count = oracle(net, mesh)
    mine = {
        (int(t), tuple(s)): a
        for t, s, a in zip(found.triangle, found.piece_signs.tolist(), found.piece_areas.tolist(), strict=True)
    }
    assert set(mine) == set(expected)
    for key, size in expected.items():
        assert mine[key] == pytest.approx(size, rel=1e-6, abs=1e-10)
    assert found.num_regions == count
    check(found, mesh.euler_characteristic)
    return found


# --- against the oracle --------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(chains(inputs=st.just(3), max_width=4, max_hidden=3))
def test_random_and_degenerate_networks_on_a_tetrahedron(net):
    compare(net, tetrahedron())


def test_slivers_beside_nearly_parallel_lines_have_their_size():
    """A vertex known to a tenth of its edge only made a sliver a sixth too large."""
    first = [[-1.2243291655609434e-07, -5.95278612512127e-06, -15537722522.443684]]
    first += [[3.2801520592687553e-10, 1070209.7497467264, -6.935181895910654e-07]]
    first += [[-0.027281271736978436, -1.3333343127993595e-08, -1075276989.5355687]]
    second = [[1.6823566500866523e-09, -2265943666.7283216, 0.0006021733660776978]]
    second += [[-63.92975530392017, -554108.2850344321, 1.4403633162369147e-11]]
    second += [[-0.005233773798485537, -2.1312437619204446e-10, 3.060004296536873e-06]]
    biases = [[1.3355566004139953e-09, -4.431814152196325e-12, 44531.27831220881]]
    biases += [[30477.634460600595, -2067327.5279026502, 5.700378025927628e-07], [0.0]]
    net = Network([first, second, [[1.0, 1.0, 1.0]]], biases)
    heights = np.array([[0.0, 0.0, 1.0], [2.0, -2.0, -2.0], [2.0, 2.0, -1.0]])
    x, y = np.meshgrid(np.arange(3.0), np.arange(3.0), indexing="ij")
    mesh = Mesh.grid(np.stack([x - 1, y - 1, heights], axis=2))
    compare(net, mesh)
    corners = mesh.vertices[mesh.triangles[1]]
    half = Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.0, 0.0, 1.0])
    cells = planar_cells(on_triangle(net, corners), half)
    sliver = cells.top_signs.tolist().index([1, -1, 1, 1, -1, 1])
    size = polygon_areas(cells.vertices_of(2), cells.points)[sliver] * 2 * mesh.areas[1]
    assert size == pytest.approx(1.8735250242551908e-09, rel=1e-5)


@settings(max_examples=30)
@given(chains(inputs=st.just(3), max_width=3, max_hidden=2), st.integers(0, 2**32 - 1))
def test_random_meshes_in_space(net, seed):
    rng = np.random.default_rng(seed)
    heights = rng.integers(-2, 3, (3, 3)).astype(float)
    x, y = np.meshgrid(np.arange(3.0), np.arange(3.0), indexing="ij")
    compare(net, Mesh.grid(np.stack([x - 1, y - 1, heights], axis=2)))


@pytest.mark.parametrize("name", sorted(set(CASES) - {"width_one"}))  # which has one input only
def test_every_kind_of_network(name):
    net = case(name)
    rng = np.random.default_rng(3)
    corners = rng.integers(-3, 4, (4, net.in_size)) / 8.0 ** (net.in_size > 4)
    compare(net, Mesh(corners, [[0, 1, 2], [1, 0, 3]]))


def test_pooling_on_a_closed_surface():
    net = convolutional(1)
    corners = np.random.default_rng(5).integers(-2, 3, (4, net.in_size)) / 8.0
    compare(net, Mesh(corners, [[0, 1, 2], [0, 3, 1], [0, 2, 3], [1, 3, 2]]))


def test_signs_agree_with_fractions_at_points_of_the_pieces():
    net = Network.random((3, 6, 5, 1), 7)
    found = regions_on(net, Sphere(resolution=1, center=[0.2, 0.0, -0.1], radius=1.5))
    fat = np.flatnonzero(found.piece_areas > 1e-6)[::7]
    middles = found.lifted(found._middles)[fat]
    for row, point in zip(found.piece_signs[fat], middles, strict=True):
        np.testing.assert_array_equal(fraction_signs(net, point), row)


def test_a_neuron_that_touches_an_edge_parts_the_regions_invisibly():
    """z = height over the edge of a roof: positive on both sides, zero on the ridge."""
    roof = Mesh(
        [[0, -1, -1], [1, -1, -1], [0, 0, 0], [1, 0, 0], [0, 1, -1], [1, 1, -1]],
        [[0, 1, 2], [1, 3, 2], [2, 3, 4], [3, 5, 4]],
    )
    below = Network([[[0.0, 0.0, -1.0]], [[1.0]]], [[0.0], [0.0]])
    found = compare(below, roof)
    assert (found.num_regions, found.num_patterns) == (2, 1)
    assert (found.boundary_length, found.visible_length) == (1.0, 0.0)


def test_a_neuron_that_vanishes_on_a_triangle_has_sign_zero_there():
    step = Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]], [[0, 1, 2], [1, 3, 2]])
    net = Network([[[0.0, 0.0, 1.0]], [[1.0]]], [[0.0], [0.0]])
    found = compare(net, step)
    assert sorted(found.sign_vectors.tolist()) == [[0], [1]]
    assert found.visible_length == pytest.approx(np.sqrt(2))


# --- laws ------------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(chains(inputs=st.just(2), max_width=5, max_hidden=3), st.sampled_from([1, 2, 4]))
def test_a_flat_mesh_has_the_regions_of_the_box(net, steps):
    found = regions_on(net, flat_square(steps))
    complex = regions(net, Box.cube(2))
    assert found.num_regions == complex.num_regions == count_regions(net, Box.cube(2))
    order, other = np.lexsort(found.sign_vectors.T), np.lexsort(complex.sign_vectors.T)
    np.testing.assert_array_equal(found.sign_vectors[order], complex.sign_vectors[other])
    if net.num_signs:
        np.testing.assert_allclose(found.areas[order], complex.volumes[other], rtol=1e-6, atol=1e-10)
    inner = complex.facets.regions[:, 1] >= 0
    sizes = complex.wall_sizes[complex.facets.cell]
    assert found.boundary_length == pytest.approx(sizes[inner].sum(), rel=1e-9, abs=1e-9)
    assert found.visible_length == pytest.approx(sizes[complex.facets.visible].sum(), rel=1e-9, abs=1e-9)
    check(found, 1)


@pytest.mark.parametrize("ambient", [4, 12])
def test_a_flat_mesh_in_a_large_space_has_the_regions_of_the_plane(ambient):
    rng = np.random.default_rng(ambient)
    net = Network.random((ambient, 8, 8, 2), rng)
    origin, u, v = rng.integers(-2, 3, (3, ambient)).astype(float)
    found = regions_on(net, flat_square(2, np.stack([u, v]), origin))
    assert found.num_regions == count_regions(net, Plane(origin, u, v))
    assert found.basis.shape == (2, ambient)
    np.testing.assert_allclose(found.areas.sum(), found.surface.area)


@settings(max_examples=25)
@given(chains(inputs=st.just(3), max_width=4, max_hidden=2))
def test_refining_a_mesh_changes_nothing(net):
    mesh = tetrahedron()
    coarse, fine = regions_on(net, mesh), regions_on(net, mesh.refined())
    assert coarse.num_regions == fine.num_regions
    assert coarse.num_patterns == fine.num_patterns
    keys = [np.lexsort((np.round(r.areas, 6), *r.sign_vectors.T)) for r in (coarse, fine)]
    np.testing.assert_allclose(coarse.areas[keys[0]], fine.areas[keys[1]], rtol=1e-6, atol=1e-9)
    assert coarse.boundary_length == pytest.approx(fine.boundary_length, rel=1e-9, abs=1e-9)
    assert coarse.visible_length == pytest.approx(fine.visible_length, rel=1e-9, abs=1e-9)


@settings(max_examples=25)
@given(chains(inputs=st.just(3), max_width=4, max_hidden=2), st.integers(0, 2**32 - 1))
def test_permutations_and_power_of_two_scales_change_nothing(net, seed):
    rng = np.random.default_rng(seed)
    widths = net.widths[1:-1]
    moved = permute(net, [rng.permutation(n) for n in widths])
    moved = rescale(moved, [2.0 ** rng.integers(-3, 4, n) for n in widths])
    mesh = Sphere(resolution=1).mesh
    one, two = regions_on(net, mesh), regions_on(moved, mesh)
    assert (one.num_regions, one.num_patterns, one.num_pieces) == (two.num_regions, two.num_patterns, two.num_pieces)
    np.testing.assert_allclose(np.sort(one.areas), np.sort(two.areas), rtol=1e-9, atol=1e-12)
    assert one.boundary_length == pytest.approx(two.boundary_length, rel=1e-9)
    assert one.visible_length == pytest.approx(two.visible_length, rel=1e-9)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_never_fewer_regions_than_samples_see(seed):
    rng = np.random.default_rng(seed)
    net = Network.random((3, 8, 6, 1), rng)
    mesh = Torus(resolution=3).mesh
    found = regions_on(net, mesh)
    corners = mesh.vertices[mesh.triangles[rng.integers(len(mesh.triangles), size=2000)]]
    points = np.einsum("pk,pkn->pn", rng.dirichlet(np.ones(3), 2000), corners)
    seen = np.unique(net.pattern(points), axis=0)
    known = {tuple(row) for row in (found.sign_vectors > 0).tolist()}
    # a point is rounded, so it may lie a little off its triangle; on the mesh itself nothing is missed
    assert sum(tuple(row) not in known for row in seen.tolist()) <= 2
    assert found.num_patterns >= len(seen) - 2
    check(found, 0)


def test_orientation_does_not_matter():
    net = Network.random((3, 10, 10, 1), 1)
    mesh = Sphere(resolution=1).mesh
    turned = mesh.triangles.copy()
    turned[::2] = turned[::2, ::-1]
    one, two = regions_on(net, mesh), regions_on(net, Mesh(mesh.vertices, turned))
    assert one.num_regions == two.num_regions and one.num_pieces == two.num_pieces
    np.testing.assert_allclose(np.sort(one.areas), np.sort(two.areas))


def test_a_moebius_strip():
    u, v = np.meshgrid(np.arange(12) * np.pi / 6, np.linspace(-0.5, 0.5, 3), indexing="ij")
    out = 1 + v * np.cos(u / 2)
    points = np.stack([out * np.cos(u), out * np.sin(u), v * np.sin(u / 2)], axis=2).reshape(-1, 3)
    quads = [(3 * i + j, 3 * i + j + 1, 3 * i + j + 4, 3 * i + j + 3) for i in range(11) for j in range(2)]
    quads += [(33 + j, 34 + j, 1 - j, 2 - j) for j in range(2)]  # glued with a half turn
    strip = Mesh(points, [t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])
    assert strip.euler_characteristic == 0 and strip.border.any()
    check(regions_on(Network.random((3, 8, 8, 1), 2), strip), 0)


def test_parts_that_do_not_touch_and_unused_vertices():
    one, two = Sphere(resolution=0).mesh, Sphere(resolution=0, center=[5.0, 0.0, 0.0]).mesh
    both = Mesh(
        np.concatenate([[[9.0, 9.0, 9.0]], one.vertices, two.vertices]),
        np.concatenate([1 + one.triangles, 13 + two.triangles]),
    )
    net = Network.random((3, 5, 5, 1), 3)
    assert regions_on(net, both).num_regions == sum(regions_on(net, m).num_regions for m in (one, two))


def test_embedding_in_a_large_space():
    rng = np.random.default_rng(0)
    frame = np.linalg.qr(rng.normal(size=(20, 3)))[0].T
    sphere = Sphere(center=rng.normal(size=20), resolution=2, frame=frame)
    found = regions_on(Network.random((20, 12, 12, 1), 0), sphere)
    assert found.basis.shape == (3, 20)
    assert found.vertices.shape[1] == 20
    check(found, 2)
    np.testing.assert_allclose(np.linalg.norm(sphere.mesh.vertices - sphere.center, axis=1), 1.0)


# --- other answers ---------------------------------------------------------------------------------------------------


def test_regions_of_points_and_triangles():
    net = Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
    found = regions_on(net, Sphere(resolution=2))
    np.testing.assert_array_equal(net.signs(found.points).signs, found.sign_vectors)
    assert [found.region(p) for p in found.points] == list(range(8))
    assert sum(map(len, found.triangles)) >= 320
    assert set(np.concatenate(found.triangles).tolist()) == set(range(320))
    with pytest.raises(InputError, match="does not occur"):
        found.region([1.0, 0.0, 0.0])
    with pytest.raises(InputError, match="point: expected points on or near the mesh"):
        found.region([0.0, 0.0, 0.0])
    assert json.loads(json.dumps(found.to_dict()))["num_regions"] == 8
    assert repr(found).startswith("SurfaceRegions(8 regions on Sphere(")


def test_a_point_lies_on_the_sheet_whose_triangle_it_is_in() -> None:
    """A U of paper cut at x = 1/2: its two ends have one sign vector, and the finer one has a nearer middle."""
    lower = [[[x, y, 0.0] for y in (0.0, 0.2)] for x in (0.0, 0.94)]
    upper = [[[x, y, 0.01] for y in (0.0, 0.2)] for x in np.linspace(0.94, 0.0, 40)]
    net = Network([[[1.0, 0.0, 0.0]], [[1.0]]], [[-0.5], [0.0]])
    found = regions_on(net, Mesh.grid([*lower, *upper]))
    assert found.num_regions == 3
    one, two = found.region([0.02, 0.1, 0.0]), found.region([0.02, 0.1, 0.01])
    assert one != two and one == found.region([0.4, 0.15, 0.0]) and two == found.region([0.4, 0.05, 0.01])
    assert found.region([0.9, 0.1, 0.0]) == found.region([0.9, 0.1, 0.01])


def test_a_network_without_neurons():
    found = regions_on(Network([np.ones((2, 3))], [np.zeros(2)]), Sphere(resolution=1))
    assert found.num_regions == 1 and found.num_patterns == 1 and found.boundary_length == 0


def test_an_interrupt_and_a_limit_leave_a_lower_bound():
    net = Network.random((3, 12, 12, 12, 1), 0)
    whole = regions_on(net, Sphere(resolution=1))

    def stop(done, total, text):
        if done == 2:
            raise KeyboardInterrupt

    for part in (
        regions_on(net, Sphere(resolution=1), progress=stop),
        regions_on(net, Sphere(resolution=1), limit=100),
    ):
        assert not part.complete
        assert 1 <= part.num_regions < whole.num_regions
        assert part.areas.sum() == pytest.approx(whole.areas.sum())
        assert repr(part).startswith("SurfaceRegions(at least")
        with pytest.raises(NotGenericError):
            _ = part.visible


def test_refused():
    net = Network.random((3, 4, 1), 0)
    with pytest.raises(InputError, match=r"R\^3 for this network, got R\^4"):
        regions_on(net, Sphere(center=np.zeros(4)))
    with pytest.raises(InputError, match="expected a Mesh, Sphere, Torus or GeneratorSurface"):
        regions_on(net, Box.cube(3))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="limit"):
        regions_on(net, Sphere(), limit=0)


def test_exact_decisions_reach_neighbouring_charts(monkeypatch):
    """Planes through the corners of a mesh: the oracle must carry points from one triangle to another."""
    calls = []
    real = surface_engine.ChartOracle.seen_from

    def watched(self, chart, point, own):
        found = real(self, chart, point, own)
        calls.append(chart != own)
        a, b = self.surface.triangles[[own, chart]]
        for corners, (x, y, w) in ((a, point), (b, found)):
            weights = np.array([int(x), int(y), int(w - x - y)]) / int(w)
            calls.append(tuple(weights @ self.surface.vertices[corners]))
        assert calls[-1] == pytest.approx(calls[-2])
        return found

    rng = np.random.default_rng(1)
    net = Network(
        [rng.integers(-2, 3, (6, 3)).astype(float), rng.integers(-2, 3, (6, 6)).astype(float), np.ones((1, 6))],
        [np.zeros(6), rng.integers(-1, 2, 6).astype(float), np.zeros(1)],
    )
    monkeypatch.setattr(surface_engine.ChartOracle, "seen_from", watched)
    found = compare(net, tetrahedron().refined())
    assert True in calls and found.structure.exact_decisions > 0


@pytest.mark.parametrize("scale", [1e-120, 1e120, 1e200])
def test_sizes_whose_squares_leave_the_floats(scale: float) -> None:
    net = Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
    one = regions_on(net, Sphere(resolution=1))
    found = regions_on(net, Sphere(radius=scale, resolution=1))
    assert np.isclose(found.boundary_length / scale, one.boundary_length)
    assert found.area == np.inf if scale > 1e150 else np.isclose(found.area / scale / scale, one.area)


def test_edges_between_pieces_thinner_than_rounding() -> None:
    # x > 0, then x > 2^-60, then x < 2^-59: two kinks beside pieces whose middles round onto their edges
    net = Network([[[1.0, 0.0]], [[1.0]], [[-1.0]], [[1.0]]], [[-0.5], [-(2.0**-60)], [2.0**-60], [0.0]])
    found, complex = regions_on(net, flat_square(1)), regions(net, Box.cube(2))
    sizes = complex.wall_sizes[complex.facets.cell]
    assert found.num_regions == 4
    assert np.isclose(found.visible_length, sizes[complex.facets.visible].sum())
    assert np.isclose(found.visible_length, 4.0)
