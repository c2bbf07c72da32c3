"""Proven areas on ellipsoids and cylinders, against Carlson's integrals, quadrature and Gauss and Bonnet."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray

OCTANTS = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]


def planes(rows: list[list[float]]) -> Network:
    table = np.array(rows, dtype=float)
    return Network([table[:, :3], np.ones((1, len(table)))], [table[:, 3], np.zeros(1)])


def whole(half: list[float]) -> mpmath.mpf:
    """The area of an ellipsoid, by Carlson's symmetric integral."""
    a, b, c = (mpmath.mpf(x) ** 2 for x in half)
    return 4 * mpmath.pi * mpmath.elliprg(a * b, a * c, b * c)


def cap(axes: FloatArray, normal: FloatArray, height: float) -> float:
    """Area of the ellipsoid beyond a plane, by a tensor rule about the plane's normal; good to 1e-13."""
    n = axes @ normal
    size = np.linalg.norm(n)
    n, h = n / size, height / size
    east = np.cross(n, np.eye(3)[np.abs(n).argmin()])
    east /= np.linalg.norm(east)
    nodes, weights = np.polynomial.legendre.leggauss(120)
    theta = np.arccos(h) * (nodes + 1) / 2
    phi = np.arange(400) * np.pi / 200
    u = np.cos(theta)[:, None, None] * n + np.sin(theta)[:, None, None] * (
        np.cos(phi)[:, None] * east + np.sin(phi)[:, None] * np.cross(n, east)
    )
    gram = axes @ axes.T
    value = np.sqrt(np.einsum("pqi,ij,pqj->pq", u, np.linalg.inv(gram), u)).mean(axis=1) * 2 * np.pi
    return float((value * np.sin(theta)) @ weights * np.arccos(h) / 2 * np.sqrt(np.linalg.det(gram)))


@pytest.mark.parametrize(
    "half",
    [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 1e-3, 1e3], [1.0, 1.0, 1e-4], [1e-150, 2e-150, 3e-150], [1e100] * 3],
)
def test_octants_are_eighths(half: list[float]) -> None:
    """All of the poles lie on boundaries, and corners on poles."""
    found = fs.round_regions(planes(OCTANTS), fs.Ellipsoid(half))
    low, high = found.area_bounds()
    with mpmath.workdps(30):
        truth = whole(half) / 8
        assert all(mpmath.mpf(a) <= truth <= mpmath.mpf(b) for a, b in zip(low, high, strict=True))
        assert all(abs(mpmath.mpf(a) - truth) < truth * 1e-11 for a in found.areas.tolist())
    assert (high - low).max() < 1e-11 * high.max()


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.floats(-0.95, 0.95))
def test_caps_against_quadrature(seed: int, height: float) -> None:
    rng = np.random.default_rng(seed)
    axes = np.eye(3) + 0.25 * rng.uniform(-1, 1, (3, 3))
    normal = rng.normal(size=3)
    height *= float(np.linalg.norm(axes @ normal))
    center = rng.normal(size=3)
    found = fs.round_regions(planes([[*normal, -height - center @ normal]]), fs.Ellipsoid(axes, center))
    low, high = found.area_bounds()
    inner = int(np.flatnonzero(found.patterns[:, 0] > 0)[0])
    truth = cap(axes, normal, height)
    assert low[inner] - 1e-10 <= truth <= high[inner] + 1e-10 and (high - low).max() < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_a_sphere_as_an_ellipsoid_and_sums(seed: int) -> None:
    net = Network.random((3, 5, 4, 1), seed)
    round_low, round_high = fs.round_regions(net, fs.Sphere()).area_bounds()
    low, high = fs.round_regions(net, fs.Ellipsoid([1.0, 1.0, 1.0])).area_bounds()
    assert (low <= round_high).all() and (round_low <= high).all() and (high - low).max() < 1e-7
    half = [3.0, 1.0, 0.5]
    low, high = fs.round_regions(net, fs.Ellipsoid(half)).area_bounds()
    with mpmath.workdps(30):
        assert mpmath.mpf(low.sum()) * (1 - 1e-14) <= whole(half) <= mpmath.mpf(high.sum()) * (1 + 1e-14)
    assert (low > 0).all() and (high - low).max() < 1e-6


@pytest.mark.parametrize("place", [0.86, 0.8660254, 0.8660254037844, float(np.sqrt(0.75))])
@pytest.mark.parametrize("surface", [fs.Sphere(), fs.Ellipsoid([1.0, 1.0, 1.0])])
def test_planes_that_almost_touch(place: float, surface: fs.Sphere | fs.Ellipsoid) -> None:
    """A lens between z = 1/2 and x = place, in 40 digits: corners of floats do not tell it from nothing."""
    found = fs.round_regions(planes([[0.0, 0.0, 1.0, -0.5], [1.0, 0.0, 0.0, -place]]), surface)
    low, high = found.area_bounds()
    with mpmath.workdps(40):
        top, far = mpmath.sqrt(mpmath.mpf(3) / 4), mpmath.mpf(place)
        lens = mpmath.quad(lambda x: 2 * mpmath.acos(min(1, 1 / mpmath.sqrt(4 - 4 * x * x))), [far, top])
        truth = {(1, 1): lens, (1, -1): mpmath.pi - lens, (-1, 1): 2 * mpmath.pi * (1 - far) - lens}
        truth[-1, -1] = 4 * mpmath.pi - sum(truth.values())
        for pattern, least, most in zip(found.patterns.tolist(), low, high, strict=True):
            area = truth[pattern[0], pattern[1]]
            assert mpmath.mpf(least) <= area <= mpmath.mpf(most) and most - least < 1e-9


def test_tiny_caps_and_no_boundary() -> None:
    for axes in ([1.0, 1.0, 1.0], [1.0, 2.0, 1.0]):
        found = fs.round_regions(planes([[0.0, 0.0, 1.0, -(1 - 2.0**-40)]]), fs.Ellipsoid(axes))
        low, high = found.area_bounds()
        inner = int(np.flatnonzero(found.patterns[:, 0] > 0)[0])
        truth = 2.0**-39 * np.pi * axes[1]  # but for a share of 2^-40
        assert low[inner] <= truth * (1 + 1e-9) and truth * (1 - 1e-9) <= high[inner] <= low[inner] + 1e-13
    low, high = fs.round_regions(planes([[0.0, 0.0, 1.0, -7.0]]), fs.Ellipsoid([1.0, 2.0, 3.0])).area_bounds()
    with mpmath.workdps(30):
        assert mpmath.mpf(low[0]) <= whole([1.0, 2.0, 3.0]) <= mpmath.mpf(high[0])


def test_cylinders() -> None:
    """A slanted plane halves; a section that is an ellipse; upright planes and such that almost are."""
    tall = fs.Cylinder([1.0, 1.0, 4.0], [0.0, 0.0, -2.0])
    low, high = fs.round_regions(planes([[-0.5, 0.0, 1.0, 0.0]]), tall).area_bounds()
    with mpmath.workdps(30):
        assert all(mpmath.mpf(a) <= 4 * mpmath.pi <= mpmath.mpf(b) for a, b in zip(low, high, strict=True))
        assert (high - low).max() < 1e-11
        wide = fs.Cylinder([2.0, 1.0, 3.0])
        low, high = fs.round_regions(planes([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, -0.75]]), wide).area_bounds()
        around = 8 * mpmath.ellipe(mpmath.mpf(3) / 4)
        for share in (around * 3 / 8, around * 9 / 8):
            assert sum(mpmath.mpf(a) <= share <= mpmath.mpf(b) for a, b in zip(low, high, strict=True)) == 2
    for steep in (0.0, 1e-300, 1e-14, -1e-5):
        rows = [[3.0, 2.0, steep, 0.1], [1.0, 0.0, 1.0, -0.5]]
        found = fs.round_regions(planes(rows), fs.Cylinder([1.0, 1.0, 1.0]))
        low, high = found.area_bounds()
        assert low.sum() <= 2 * np.pi <= high.sum() and (high - low).max() < 1e-6
        assert np.isclose(found.areas.sum(), 2 * np.pi)
        least, most = found.length_bounds()
        assert least <= found.boundary_length * (1 + 1e-9) and found.boundary_length * (1 - 1e-9) <= most


@pytest.mark.parametrize("seed", range(3))
def test_cylinders_against_samples(seed: int) -> None:
    axes = np.array([[1.0, 0.2, 0.0], [0.0, 1.3, 0.1], [0.3, 0.0, 2.0]])
    net = Network.random((3, 5, 3, 1), seed)
    found = fs.round_regions(net, fs.Cylinder(axes))
    low, high = found.area_bounds()
    t, s = (np.arange(600) + 0.5) * 2 * np.pi / 600, (np.arange(300) + 0.5) / 300
    points = (np.cos(t)[:, None] * axes[0] + np.sin(t)[:, None] * axes[1])[:, None] + s[:, None] * axes[2]
    tangent = -np.sin(t)[:, None] * axes[0] + np.cos(t)[:, None] * axes[1]
    element = np.linalg.norm(np.cross(tangent, axes[2]), axis=1) * (2 * np.pi / 600 / 300)
    signs = net.signs(points.reshape(-1, 3)).signs
    for pattern, least, most in zip(found.patterns, low, high, strict=True):
        inside = (signs == pattern).all(axis=1).reshape(600, 300)
        assert least - 0.05 <= float(element @ inside.sum(axis=1)) <= most + 0.05
    assert (high - low).max() < 1e-6
