"""The picture of regions shows all of them, each in its place."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection

import fiberscope as fs
from fiberscope.plot.complexes import regions as draw
from fiberscope.testing import CASES, case


@pytest.mark.parametrize("color", ["mosaic", "value", "slope"])
def test_every_region_and_inner_edge_is_drawn(color):
    complex = fs.regions(fs.Network.random((2, 6, 5, 1), 0), fs.Box.cube(2))
    ax = draw(complex, color=color, points=np.zeros((1, 2)))
    faces = next(c for c in ax.collections if isinstance(c, PolyCollection))
    lines = next(c for c in ax.collections if isinstance(c, LineCollection))
    assert len(faces.get_paths()) == complex.num_regions
    assert len(lines.get_segments()) == int((~complex.facets.boundary).sum())
    if color != "mosaic":
        assert len(faces.get_array()) == complex.num_regions


def test_value_is_the_network_at_the_middle():
    net = fs.Network.random((2, 6, 5, 2), 1)
    complex = fs.regions(net, fs.Box.cube(2))
    faces = next(c for c in draw(complex, color="value", output=1).collections if isinstance(c, PolyCollection))
    np.testing.assert_allclose(faces.get_array(), net(complex.points)[:, 1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n]().in_size == 2])
def test_degenerate_networks_can_be_drawn(name):
    draw(fs.regions(case(name), fs.Box.cube(2)))


def test_a_plane_through_a_cnn_can_be_drawn():
    net = case("convolutional")
    u, v = np.random.default_rng(0).normal(size=(2, net.in_size))
    draw(fs.regions(net, fs.Plane(np.zeros(net.in_size), u, v)), color="value")


@pytest.mark.parametrize(
    ("domain", "options", "message"),
    [
        (fs.Box.cube(2), {"color": "pink"}, "color: expected one of"),
        (fs.Box.cube(2), {"output": 3}, "output: expected 0 to 0"),
        (fs.Space(2), {}, "bounded domain"),
    ],
)
def test_bad_questions(domain, options, message):
    with pytest.raises(fs.InputError, match=message):
        draw(fs.regions(fs.Network.random((2, 3, 1), 0), domain), **options)


def test_only_two_dimensions():
    with pytest.raises(fs.InputError, match="2 dimensions, got 3"):
        draw(fs.regions(fs.Network.random((3, 3, 1), 0), fs.Box.cube(3)))
