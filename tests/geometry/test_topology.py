"""Betti numbers of level sets: known shapes, the sequence of Mayer and Vietoris, and labels of fine grids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import label

import fiberscope as fs
from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.testing.strategies import chains


def largest(net: Network, count: int) -> Network:
    """The largest of so many outputs, none of them negative: ``max(a, b) = a + relu(b - a)``."""
    weights, biases = list(net.weights), list(net.biases)
    while count > 1:
        rows = np.zeros((count, count))
        rows[0, 0], rows[1, 1], rows[1, 0] = 1.0, 1.0, -1.0
        rows[2:, 2:] = np.eye(count - 2)
        join = np.zeros((count - 1, count))
        join[0, :2] = 1.0
        join[1:, 2:] = np.eye(count - 2)
        weights, biases = (
            [*weights[:-1], rows @ weights[-1], join],
            [*biases[:-1], rows @ biases[-1], np.zeros(count - 1)],
        )
        count -= 1
    return Network(weights, biases)


def sizes(d: int) -> Network:
    """``|x_1|, ..., |x_d|``."""
    first = np.concatenate([np.eye(d), -np.eye(d)])
    return Network([first, np.concatenate([np.eye(d), np.eye(d)], axis=1)], [np.zeros(2 * d), np.zeros(d)])


def torus() -> Network:
    """``max(|max(|x|, |y|) - 1|, |z|)``."""
    first = np.concatenate([np.eye(3), -np.eye(3)])
    second = np.array([[1, 0, 0, 1, 0, 0], [-1, 1, 0, -1, 1, 0], [0, 0, 1, 0, 0, 1.0]])  # |x|, |y| - |x|, |z|
    third = np.array([[1, 1, 0], [-1, -1, 0], [0, 0, 1.0]])  # m - 1, 1 - m, |z|
    fourth = np.array([[1, 1, 0], [-1, -1, 1.0]])  # |m - 1|, |z| - |m - 1|
    zeros = [np.zeros(6), np.zeros(3), np.array([-1.0, 1.0, 0.0]), np.zeros(2), np.zeros(1)]
    return Network([first, second, third, fourth, np.ones((1, 2))], zeros)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_spheres_of_the_largest_coordinate(d: int) -> None:
    net, box = largest(sizes(d), d), fs.Box.cube(d, -2.0, 2.0)
    found = fs.level_topology(net, box, 1.0)
    hole = [0] * (d + 1)
    hole[d - 1] = 1
    sphere = tuple(np.array(hole) + np.eye(d + 1, dtype=int)[0])
    assert found.boundary == found.above == sphere
    assert found.below == (1, *[0] * d)
    assert found.euler_characteristic == 1 + (-1) ** (d - 1)
    assert fs.level_topology(net, box, -1.0).boundary == (0,) * (d + 1) == fs.level_topology(net, box, -1.0).below


def test_a_torus_and_its_levels() -> None:
    box = fs.Box.cube(3, -2.0, 2.0)
    found = fs.level_topology(torus(), box, 0.5)
    assert found.boundary == (1, 2, 1, 0) and found.below == (1, 1, 0, 0) and found.above == (1, 1, 1, 0)
    core = fs.level_topology(torus(), box, 0.0)  # through vertices: the square in its middle
    assert core.boundary == core.below == (1, 1, 0, 0) and core.above == (1, 0, 0, 0)


def test_flat_regions_and_corners_have_answers() -> None:
    box = fs.Box.cube(2)
    ramp = Network([[[1.0, 0.0]], [[1.0]]], [[0.0], [0.0]])
    flat = fs.level_topology(ramp, box, 0.0)
    assert flat.boundary == flat.below == flat.above == (1, 0, 0) and flat.num_cells[2] > 0
    saddle = Network([[[1.0, 0], [-1, 0], [0, 1], [0, -1]], [[1.0, 1, -1, -1]]], [np.zeros(4), [0.0]])  # |x| - |y|
    cross = fs.level_topology(saddle, box, 0.0)
    assert cross.boundary == (1, 0, 0) and cross.euler_characteristic == 1
    near = fs.level_topology(saddle, box, 5e-324)
    assert near.boundary == (2, 0, 0) and near.above == (2, 0, 0) and near.below == (1, 0, 0)


@settings(max_examples=15, deadline=None)
@given(chains(inputs=st.just(2), max_width=4, max_hidden=2), st.integers(-4, 4), st.booleans())
def test_mayer_and_vietoris(net: Network, level: int, at_vertex: bool) -> None:
    """On a box: ``b_k(=) = b_k(<=) + b_k(>=)`` for k >= 1, and one piece less for k = 0, unless a side is empty."""
    box = fs.Box.cube(2)
    value = float(net(fs.regions(net, box).vertices[:1])[0, 0]) if at_vertex else level / 4
    found = fs.level_topology(net, box, value)
    holes = np.array(found.below) + np.array(found.above) - np.array(found.boundary)
    assert holes.tolist() == [1, 0, 0]
    euler = sum((-1) ** k * b for k, b in enumerate(found.boundary))
    assert euler == found.euler_characteristic


@pytest.mark.parametrize("seed", range(4))
def test_pieces_and_holes_of_a_fine_grid(seed: int) -> None:
    net = Network.random((2, 8, 6, 1), seed)
    t = np.linspace(-2, 2, 801)
    X = np.stack(np.meshgrid(t, t, indexing="ij"), axis=2).reshape(-1, 2)
    values = net(X).reshape(801, 801)
    level = float(np.quantile(values, 0.6)) + 1e-5
    found = fs.level_topology(net, fs.Box.cube(2, -2.0, 2.0), level)
    assert found.below[0] == label(values <= level)[1]
    assert found.above[0] == label(values >= level)[1]


def test_on_a_plane_of_many_inputs_and_bad_input() -> None:
    net = Network.random((5, 6, 3), 1)
    a, b, c = np.random.default_rng(0).normal(size=(3, 5))
    found = fs.level_topology(net, fs.Plane.through(a, b, c), 0.25, 2)
    assert found.output == 2 and found.below[0] + found.above[0] - found.boundary[0] == 1
    assert found.to_dict()["level"] == 0.25
    box = fs.Box.cube(5)
    with pytest.raises(InputError, match="output: expected an index from 0 to 2"):
        fs.level_topology(net, box, output=3)
    with pytest.raises(InputError, match="level"):
        fs.level_topology(net, box, np.nan)
    with pytest.raises(fs.TooLargeError):
        fs.level_topology(Network.random((2, 6, 1), 0), fs.Box.cube(2), limit=2)
    with pytest.raises(InputError, match="bounded"):
        fs.level_topology(Network.random((2, 3, 1), 0), fs.Space(2))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["square", "cube", "plane", "sphere", "torus"])
def test_persistence_counts_what_the_levels_have(kind: str, seed: int) -> None:
    """At levels between those of vertices the holes alive are the Betti numbers, on boxes, planes and meshes."""
    n = {"square": 2, "plane": 5}.get(kind, 3)
    net = Network.random((n, 6, 3, 1), seed)
    domain = {
        "square": fs.Box.cube(2),
        "cube": fs.Box.cube(3),
        "plane": fs.Plane.through(*np.random.default_rng(seed).normal(size=(3, 5))) if n == 5 else None,
        "sphere": fs.Sphere(resolution=0),
        "torus": fs.Torus(resolution=2),
    }[kind]
    assert domain is not None
    found = fs.level_persistence(net, domain)
    levels = np.unique(np.concatenate([pairs.ravel() for pairs in found.pairs]))
    levels = levels[np.isfinite(levels)]
    for level in [levels[0] - 1.0, *((levels[1:] + levels[:-1]) / 2)[:3], levels[-1] + 1.0]:
        assert found.betti(float(level)) == fs.level_topology(net, domain, float(level)).below


def test_both_ways_to_persistence_agree() -> None:
    pytest.importorskip("gudhi", reason="an extra: pip install fiberscope[topology]")
    from fiberscope.geometry import persistence
    from fiberscope.geometry.topology import cells_on
    from fiberscope.run import ENDLESS

    net = Network.random((3, 6, 4, 1), 3)
    cells, points = cells_on(net, fs.Box.cube(3), ENDLESS, None)
    heights = [net(points)[:, 0]]
    for inside in cells.boundary:
        heights.append(np.maximum.reduceat(heights[-1][inside.indices], inside.indptr[:-1]))
    for ours, theirs in zip(
        persistence._by_reduction(cells, heights, ENDLESS), persistence._by_gudhi(cells, heights, ENDLESS), strict=True
    ):
        kept = [sorted(map(tuple, p[p[:, 0] < p[:, 1]].tolist())) for p in (ours, theirs)]
        assert kept[0] == kept[1]


def test_surfaces_of_another_space_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected one in R\^2"):
        fs.level_topology(Network.random((2, 3, 1), 0), fs.Sphere(resolution=0))
