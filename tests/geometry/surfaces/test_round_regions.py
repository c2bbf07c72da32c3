"""Regions on round spheres: exact counts against arrangements of circles, areas against 4 pi, laws, refusals."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, permutations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ellipeinc, ellipkinc

import fiberscope as fs
from fiberscope.errors import InputError, NotGenericError
from fiberscope.network.network import Network


def planes(rows: list[list[float]]) -> Network:
    """Neurons ``n x + h`` in one layer, a row ``(n, h)`` each."""
    table = np.array(rows, dtype=float)
    return Network([table[:, :3], np.ones((1, len(table)))], [table[:, 3], np.zeros(1)])


def circles_of(rows: list[list[float]]) -> int | None:
    """How many parts circles cut a sphere into, in fractions; None if two of them touch or three meet."""
    exact = [[Fraction(v) for v in row] for row in rows]
    own = [row for row in exact if row[3] ** 2 < sum(v * v for v in row[:3])]
    if any(row[3] ** 2 == sum(v * v for v in row[:3]) for row in exact):
        return None
    parent = list(range(len(own)))

    def root(i: int) -> int:
        return i if parent[i] == i else root(parent[i])

    points = 0
    for i, j in combinations(range(len(own)), 2):
        (a, b, c, h), (d, e, f, k) = own[i], own[j]
        n = (b * f - c * e, c * d - a * f, a * e - b * d)
        m = (h * d - k * a, h * e - k * b, h * f - k * c)
        gap = sum(v * v for v in n) - sum(v * v for v in m)
        if gap == 0:
            return None
        if gap > 0:
            points += 2
            parent[root(i)] = root(j)
    return 1 + len({root(i) for i in range(len(own))}) + points


@settings(max_examples=12, deadline=None)
@given(st.lists(st.lists(st.integers(-64, 64), min_size=4, max_size=4), min_size=1, max_size=6))
def test_counts_are_those_of_circles(rows: list[list[int]]) -> None:
    given_rows = [[float(v) for v in row[:3]] + [row[3] / 2 + 1 / 256] for row in rows if any(row[:3])]
    truth = circles_of(given_rows)
    if truth is None or not given_rows:
        return
    try:
        found = fs.round_regions(planes(given_rows), fs.Sphere())
    except NotGenericError:
        return  # three circles through one point, which the oracle does not see
    assert found.num_regions == truth
    assert np.isclose(found.areas.sum(), 4 * np.pi)
    assert (found.areas > 0).all()


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([(3, 5, 1), (3, 6, 4, 1), (3, 4, 4, 3, 1)]), st.sampled_from(range(6)))
def test_turning_and_refining(seed: int, widths: tuple[int, ...], turn: int) -> None:
    net = Network.random(widths, seed)
    found = fs.round_regions(net, fs.Sphere())
    turned = np.eye(3)[list(list(permutations(range(3)))[turn])] * np.array([1, -1, 1])[:, None]
    again = fs.round_regions(Network([net.weights[0] @ turned, *net.weights[1:]], net.biases), fs.Sphere())
    assert (found.num_regions, found.num_arcs, found.num_circles) == (
        again.num_regions,
        again.num_arcs,
        again.num_circles,
    )
    assert np.isclose(found.areas.sum(), 4 * np.pi) and np.isclose(found.boundary_length, again.boundary_length)
    first = np.vstack([net.weights[0], [[1.0, 2.0, -3.0]]])
    second = np.hstack([net.weights[1], np.zeros((widths[2], 1))])
    more = Network([first, second, *net.weights[2:]], [np.append(net.biases[0], 0.5), *net.biases[1:]])
    assert fs.round_regions(more, fs.Sphere()).num_regions >= found.num_regions
    X = np.random.default_rng(seed).normal(size=(500, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    seen = {row.tobytes() for row in net.signs(X).signs}
    assert seen <= {row.tobytes() for row in found.patterns}


def test_agrees_with_a_fine_mesh() -> None:
    for seed in (0, 3):
        net = Network.random((3, 8, 8, 1), seed)
        found, mesh = fs.round_regions(net, fs.Sphere()), fs.regions_on(net, fs.Sphere(resolution=5))
        assert (found.num_regions, found.num_patterns) == (mesh.num_regions, mesh.num_patterns)
        assert 0 < found.boundary_length - mesh.boundary_length < 1e-3 * found.boundary_length
        assert found.visible_length == pytest.approx(mesh.visible_length, rel=1e-3)


def test_caps_bands_and_needles() -> None:
    cap = fs.round_regions(planes([[0, 0, 1, -0.999]]), fs.Sphere())
    assert (cap.num_regions, cap.num_circles) == (2, 1)
    assert cap.boundary_length == pytest.approx(2 * np.pi * np.sqrt(1 - 0.999**2), rel=1e-9)
    assert sorted(cap.areas) == pytest.approx([2 * np.pi * 0.001, 2 * np.pi * 1.999], rel=1e-9)
    band = fs.round_regions(planes([[0, 0, 1, -0.5], [0, 0, 1, 0.25]]), fs.Sphere(radius=1.0))
    assert sorted(band.areas) == pytest.approx(sorted(2 * np.pi * np.array([0.5, 0.75, 0.75])))
    needle = fs.round_regions(
        planes([[1, 0, 0, 0.125], [1, 0, 0, -0.125], [0, 1, 0, 0.125], [0, 1, 0, -0.125]]), fs.Sphere()
    )
    assert (needle.num_regions, needle.num_patterns, sorted(needle.counts)) == (10, 9, [1] * 8 + [2])
    assert needle.areas.sum() == pytest.approx(4 * np.pi)


def test_without_a_boundary_there_is_one_region() -> None:
    for height in (-1.125, -1.0, 2.0):  # beside, touching, far
        for axis in range(3):
            row = [0.0, 0.0, 0.0, height]
            row[axis] = 1.0
            found = fs.round_regions(planes([row]), fs.Sphere())
            assert (found.num_regions, found.num_arcs, found.num_circles) == (1, 0, 0)
            assert found.areas == pytest.approx([4 * np.pi])
            assert np.isinf(found.distance([[0.0, 0.0, 1.0]])).all()


def test_a_corner_on_the_sphere_is_no_answer() -> None:
    with pytest.raises(NotGenericError, match=r"lies on the sphere, at .1, 0, 0.: .* undecided"):
        fs.round_regions(planes([[0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, -1]]), fs.Sphere())
    with pytest.raises(NotGenericError, match="touches the sphere"):
        fs.round_regions(
            planes([[0.0, 1, 0, 0], [1, 0.5, 0.25, -1]]), fs.Ellipsoid([[1, 0, 0], [0, 1, 0], [-0.25, 0, 1]])
        )
    # one unit in the last place beside it there is one
    near = np.nextafter(1.0, 2.0)
    beside = fs.round_regions(planes([[0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, -near]]), fs.Sphere())
    assert beside.num_regions == circles_of([[0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, -near]]) == 8
    assert beside.exact_decisions > 0


def test_great_circle_distances() -> None:
    net = Network.random((3, 6, 4, 1), 5)
    found = fs.round_regions(net, fs.Sphere(radius=2.0))
    normal, height, start, angle = found.arcs
    samples = []
    for n, h, begin, turn in zip(normal, height, start, angle, strict=True):
        t, u = np.linspace(0, turn, 2000)[:, None], begin - h * n
        samples.append(h * n + np.cos(t) * u + np.sin(t) * np.cross(n, u))
    points = np.concatenate(samples)
    assert np.allclose(np.linalg.norm(points, axis=1), 1.0)
    assert np.abs(net.as_mlp().weights[0] @ (2 * samples[0].T) + net.biases[0][:, None]).min(axis=0).max() < 1.0
    X = np.random.default_rng(0).normal(size=(40, 3))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    brute = 2 * np.arccos(np.clip(unit @ points.T, -1, 1)).min(axis=1)
    assert np.allclose(found.distance(2 * unit), brute, atol=5e-3)
    # a step shorter than the distance changes no sign
    aside = np.cross(unit, [0.3, -0.5, 0.8])
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    way = (found.distance(2 * unit) / 2 * 0.999)[:, None]
    moved = 2 * (np.cos(way) * unit + np.sin(way) * aside)
    assert (net.signs(2 * unit).signs == net.signs(moved).signs).all()


def test_other_places_and_ellipsoids() -> None:
    net = Network.random((5, 6, 4, 2), 2)
    frame = np.eye(3, 5)[:, [1, 4, 0, 2, 3]]
    found = fs.round_regions(net, fs.Sphere([0.5, 0, 0.25, 0, 0], 2.0, frame=frame))
    assert found.vertices.shape == (found.num_vertices, 5)
    assert np.allclose(np.linalg.norm(found.vertices - found.surface.center, axis=1), 2.0)
    assert found.areas.sum() == pytest.approx(16 * np.pi)
    solid = Network.random((3, 6, 4, 1), 4)
    scales = np.array([2.0, 0.5, 1.0])
    wide = fs.round_regions(solid, fs.Ellipsoid(scales))
    same = fs.round_regions(Network([solid.weights[0] * scales, *solid.weights[1:]], solid.biases), fs.Sphere())
    assert (wide.num_regions, wide.num_arcs) == (same.num_regions, same.num_arcs)
    assert wide.to_dict()["boundary_length"] == pytest.approx(wide.boundary_length)


# --- sizes on ellipsoids -----------------------------------------------------------------------------------------


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.sampled_from([0.25, 0.5, 1.0, 1.5, 3.0]), min_size=3, max_size=3))
def test_sizes_of_ellipsoids(seed: int, half: list[float]) -> None:
    """Areas add up to that of the ellipsoid, by its own elliptic integrals; lengths lie in proven bounds."""
    net = Network.random((3, 4, 3, 1), seed)
    found = fs.round_regions(net, fs.Ellipsoid(half))
    assert found.areas.sum() == pytest.approx(ellipsoid_area(half), rel=1e-9)
    assert (found.areas > -1e-9).all()
    low, high = found.length_bounds()
    assert low <= found.boundary_length * (1 + 1e-12) and found.boundary_length <= high * (1 + 1e-12)
    assert high - low <= 1e-6 * (1 + high)


def ellipsoid_area(half: list[float]) -> float:
    a, b, c = sorted(half, reverse=True)
    if a == c:
        return 4 * np.pi * a**2
    phi = np.arccos(c / a)
    k = a**2 * (b**2 - c**2) / (b**2 * (a**2 - c**2))
    inner = ellipeinc(phi, k) * np.sin(phi) ** 2 + ellipkinc(phi, k) * np.cos(phi) ** 2
    return float(2 * np.pi * c**2 + 2 * np.pi * a * b / np.sin(phi) * inner)


def test_an_ellipsoid_that_is_a_sphere_and_one_against_a_mesh() -> None:
    net = Network.random((3, 6, 4, 1), 1)
    ball, same = fs.round_regions(net, fs.Sphere(radius=2.0)), fs.round_regions(net, fs.Ellipsoid(2 * np.eye(3)))
    assert np.allclose(ball.lengths, same.lengths) and np.allclose(ball.areas, same.areas)
    low, high = same.length_bounds()
    assert low <= ball.boundary_length * (1 + 1e-12) <= high * (1 + 1e-11) and high - low < 1e-7
    axes = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, 0.0], [0.25, 0.0, 0.5]])
    mesh = fs.Sphere(resolution=5).mesh
    fine = fs.regions_on(net, fs.Mesh(mesh.vertices @ axes, mesh.triangles))
    skew = fs.round_regions(net, fs.Ellipsoid(axes))
    assert skew.num_regions == fine.num_regions
    assert skew.boundary_length == pytest.approx(fine.boundary_length, rel=2e-3)
    assert skew.visible_length == pytest.approx(fine.visible_length, rel=2e-3)
    for pattern, area in zip(skew.patterns, skew.areas, strict=True):
        own = (fine.sign_vectors == pattern).all(axis=1)
        assert area == pytest.approx(fine.areas[own].sum(), rel=5e-3, abs=1e-3)
    cap = fs.round_regions(planes([[0, 0, 1, -0.999]]), fs.Sphere())
    low, high = cap.length_bounds()
    assert low <= 2 * np.pi * np.sqrt(1 - 0.999**2) <= high and high - low < 1e-9 and round(low, 3) == 0.281


# --- cylinders ----------------------------------------------------------------------------------------------------


def test_planes_on_a_cylinder() -> None:
    def on(rows: list[list[float]], axes: object = (1.0, 1.0, 2.0)) -> fs.RoundRegions:
        return fs.round_regions(planes(rows), fs.Cylinder(axes))

    assert on([[0, 0, 1, -3.0]]).num_regions == on([[1, 0, 0, -1.125]]).num_regions == 1
    assert on([[0, 0, 1, -3.0]]).areas == pytest.approx([4 * np.pi]) and on([[0, 0, 1, 4.0]]).boundary_length == 0
    ring = on([[0, 0, 1, -0.5]])
    assert (ring.num_regions, ring.num_circles) == (2, 3) and ring.boundary_length == pytest.approx(2 * np.pi)
    assert sorted(ring.areas) == pytest.approx([np.pi, 3 * np.pi])
    upright = on([[1, 0, 0, -0.5]])
    assert upright.num_regions == 2 and upright.boundary_length == pytest.approx(4.0)
    assert sorted(upright.areas) == pytest.approx([4 * np.pi / 3, 8 * np.pi / 3])
    both = on([[1, 0, 0, -0.5], [0, 0, 1, -0.5]])
    assert both.num_regions == 4 and both.areas.sum() == pytest.approx(4 * np.pi)
    tilted = on([[1, 0, 2, -2.25]])  # within the cylinder: an ellipse
    assert tilted.num_regions == 2
    assert tilted.boundary_length == pytest.approx(4 * np.sqrt(1.25) * ellipeinc(np.pi / 2, 0.2))
    assert tilted.areas.sum() == pytest.approx(4 * np.pi)
    twice = on([[4, 0, 1, -1.25]])  # leaves at both ends: two strips
    assert twice.num_regions == 2 and twice.num_circles == 0
    cross = on([[2, 0, 1, -1.25], [-2, 0, 1, -1.25]])
    assert (cross.num_regions, cross.num_patterns) == (6, 4) and cross.areas.sum() == pytest.approx(4 * np.pi)
    with pytest.raises(NotGenericError, match="on the cylinder"):
        on([[1, 0, 0, 0], [0, 0, 1, -0.5], [0, 1, 2, -2.0]])
    low, high = ring.length_bounds()
    assert low <= ring.boundary_length * (1 + 1e-12) and ring.boundary_length * (1 - 1e-12) <= high
    with pytest.raises(InputError, match="got a Cylinder, which has ellipses"):
        _ = ring.arcs


def cylinder_mesh(axes: np.ndarray, center: np.ndarray, around: int, up: int) -> fs.Mesh:
    t = np.arange(around) * 2 * np.pi / around
    s = np.linspace(0, 1, up + 1)
    u = np.stack(np.broadcast_arrays(np.cos(t)[:, None], np.sin(t)[:, None], s[None]), axis=2).reshape(-1, 3)
    i, j = (x.reshape(-1) for x in np.meshgrid(np.arange(around), np.arange(up), indexing="ij"))
    a, b, c, d = (((i + di) % around) * (up + 1) + j + dj for di, dj in ((0, 0), (1, 0), (1, 1), (0, 1)))
    return fs.Mesh(center + u @ axes, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)]))


@pytest.mark.parametrize("seed", range(3))
def test_cylinders_agree_with_fine_meshes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = Network.random((4, 5, 4, 1), seed)
    axes, center = rng.normal(size=(3, 4)), 0.3 * rng.normal(size=4)
    found = fs.round_regions(net, fs.Cylinder(axes, center))
    fine = fs.regions_on(net, cylinder_mesh(axes, center, 384, 12))
    assert (found.num_regions, found.num_patterns) == (fine.num_regions, fine.num_patterns)
    assert found.boundary_length == pytest.approx(fine.boundary_length, rel=2e-3)
    for pattern, area in zip(found.patterns, found.areas, strict=True):
        own = (fine.sign_vectors == pattern).all(axis=1)
        assert area == pytest.approx(fine.areas[own].sum(), rel=5e-3, abs=2e-3)
    turn = np.array([[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])  # another start of the angle
    again = fs.round_regions(net, fs.Cylinder(turn @ axes, center))
    assert again.num_regions == found.num_regions
    assert again.boundary_length == pytest.approx(found.boundary_length, rel=1e-6)
    assert sorted(again.areas) == pytest.approx(sorted(found.areas), rel=1e-6, abs=1e-9)


def test_bad_input() -> None:
    net = Network.random((3, 4, 1), 0)
    with pytest.raises(InputError, match="expected a Sphere, an Ellipsoid or a Cylinder, got Torus"):
        fs.round_regions(net, fs.Torus())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected one in R\\^3"):
        fs.round_regions(net, fs.Ellipsoid(np.eye(3, 4)))
    with pytest.raises(InputError, match="independent"):
        fs.Ellipsoid([[1.0, 0, 0], [0, 1, 0], [1, 1, 0]])
    with pytest.raises(InputError, match="axes: expected three numbers"):
        fs.Ellipsoid([1.0, 2.0])
    with pytest.raises(InputError, match="center: expected 3"):
        fs.Ellipsoid([1.0, 2.0, 3.0], [0.0, 0.0])
    with pytest.raises(InputError, match="got the centre"):
        fs.round_regions(net, fs.Sphere()).distance([[0.0, 0.0, 0.0]])
    with pytest.raises(fs.TooLargeError):
        fs.round_regions(net, fs.Sphere(), limit=2)


@pytest.mark.parametrize("height", [-0.9, 0.0, 0.5, 0.999])
def test_proven_areas_of_caps_and_octants(height: float) -> None:
    """2 pi R (R - h) by Archimedes, in 40 digits."""
    cap = Network([[[0.0, 0.0, 1.0]], [[1.0]]], [[-height], [0.0]])
    found = fs.round_regions(cap, fs.Sphere(radius=2.0))
    low, high = found.area_bounds()
    with mpmath.workdps(40):
        truth = 2 * mpmath.pi * 2 * (2 - mpmath.mpf(height))
        k = int(np.flatnonzero(found.patterns[:, 0] > 0)[0])
        assert mpmath.mpf(low[k]) <= truth <= mpmath.mpf(high[k]) and high[k] - low[k] < 1e-9
        octants = Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
        low, high = fs.round_regions(octants, fs.Sphere()).area_bounds()
        assert all(mpmath.mpf(a) <= mpmath.pi / 2 <= mpmath.mpf(b) for a, b in zip(low, high, strict=True))
        assert (high - low).max() < 1e-10


def test_proven_areas_hold_floats_and_sum_to_the_sphere() -> None:
    for seed in range(3):
        found = fs.round_regions(Network.random((3, 5, 4, 1), seed), fs.Sphere(radius=1.5))
        low, high = found.area_bounds()
        assert (low <= found.areas * (1 + 1e-14)).all() and (found.areas * (1 - 1e-14) <= high).all()
        assert low.sum() <= 9 * np.pi <= high.sum() and (high - low).max() < 1e-6
    still = fs.round_regions(Network([[[1.0, 0.0, 0.0]], [[1.0]]], [[5.0], [0.0]]), fs.Sphere())
    low, high = still.area_bounds()
    assert low[0] <= 4 * np.pi <= high[0]


def test_proven_lengths_on_cylinders() -> None:
    """A slanted plane: half-axes 1 and the root of 1 + s^2; an upright one; and floats within bounds."""
    tall = fs.Cylinder([1.0, 1.0, 4.0], [0.0, 0.0, -2.0])
    slanted = Network([[[-0.5, 0.0, 1.0]], [[1.0]]], [[0.0], [0.0]])
    low, high = fs.round_regions(slanted, tall).length_bounds()
    with mpmath.workdps(40):
        truth = 4 * mpmath.sqrt(mpmath.mpf(5) / 4) * mpmath.ellipe(mpmath.mpf(1) / 5)
        assert mpmath.mpf(low) <= truth <= mpmath.mpf(high) and high - low < 1e-10
    upright = Network([[[1.0, 0.0, 0.0]], [[1.0]]], [[-0.25], [0.0]])
    low, high = fs.round_regions(upright, tall).length_bounds()
    with mpmath.workdps(40):  # that its normal is level is found in fractions
        assert mpmath.mpf(low) <= 8 <= mpmath.mpf(high) and high - low < 1e-10
    for seed in range(3):
        found = fs.round_regions(
            Network.random((3, 5, 3, 1), seed), fs.Cylinder([[1.0, 0.2, 0], [0, 1.3, 0.1], [0.3, 0, 2]])
        )
        low, high = found.length_bounds()
        assert low <= found.boundary_length * (1 + 1e-13) and found.boundary_length * (1 - 1e-13) <= high
        assert high - low < 1e-4
