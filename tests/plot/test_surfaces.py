"""The picture of a surface: one face per piece, colours by region, both kinds of boundaries."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import fiberscope as fs
from fiberscope.errors import InputError
from fiberscope.geometry.surfaces.regions_on import regions_on
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere
from fiberscope.network.network import Network
from fiberscope.plot.style import figure_png
from fiberscope.plot.surfaces import surface


def test_a_sphere_is_drawn_by_regions():
    net = Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
    found = regions_on(net, Sphere(resolution=1))
    ax = surface(found)
    faces, *lines = ax.collections
    assert len(faces.get_facecolor()) == found.num_pieces
    assert lines
    assert figure_png(ax, dpi=40).startswith(b"\x89PNG")
    assert figure_png(ax, dpi=40) == figure_png(surface(found), dpi=40)
    assert len(surface(found, lines=False).collections) == 1


def test_flat_and_large_spaces_and_given_axes():
    flat = Mesh([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[0, 1, 2]])
    axes = Figure().add_subplot(projection="3d")
    assert surface(regions_on(Network.random((2, 3, 1), 0), flat), ax=axes) is axes
    wide = Mesh(np.random.default_rng(0).normal(size=(6, 9)), [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]])
    assert figure_png(surface(regions_on(Network.random((9, 5, 1), 0), wide)), dpi=30)
    with pytest.raises(InputError, match="3d"):
        surface(regions_on(Network.random((2, 3, 1), 0), flat), ax=Figure().add_subplot())


def test_a_round_sphere_has_colours_and_arcs() -> None:
    found = fs.round_regions(Network.random((3, 4, 3, 1), 0), fs.Sphere())
    axes = fs.plot.round_regions(found, pixels=40)
    assert len(axes.lines) == found.num_arcs + found.num_circles
    assert found.plot(pixels=20).images


def test_a_cylinder_is_unrolled() -> None:
    found = fs.round_regions(Network.random((3, 4, 3, 1), 0), fs.Cylinder([1.0, 1.0, 2.0], [0.0, 0.0, -1.0]))
    axes = found.plot(pixels=40)
    assert len(axes.lines) == found.inner.sum() > 0 and axes.get_xlim() == (-np.pi, np.pi)
