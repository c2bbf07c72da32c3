"""Pictures of distances and of projected gradients."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from fiberscope import plot
from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve import Circle, Segment
from fiberscope.geometry.distances.distance import boundary_distance
from fiberscope.geometry.expectation.projection import projected_gradients
from fiberscope.network.network import Network

NET = Network.random((2, 4, 3, 1), 0)
GRID = np.stack(np.meshgrid(np.linspace(-1, 1, 8), np.linspace(0, 1, 5)), axis=2).reshape(-1, 2)


def test_a_grid_becomes_an_image_with_the_values_in_their_places() -> None:
    found = boundary_distance(NET, GRID)
    ax = plot.boundary_distance(found, GRID, feet=3)
    image = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(image.reshape(-1), found.distance)
    ways = [c for c in ax.collections if isinstance(c, LineCollection)]
    assert len(ways[0].get_segments()) == 3


def test_scattered_points_become_dots() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    ax = plot.boundary_distance(boundary_distance(NET, X), X)
    assert not ax.images and len(ax.collections[0].get_offsets()) == 30


def test_projections_lie_along_the_tangents() -> None:
    found = projected_gradients(NET, Circle(), places=12)
    ax = plot.projected_gradients(found, neuron=5)
    whole, shadow = (c.get_segments() for c in ax.collections)
    assert len(whole) == len(shadow) == 12
    for way, point, tangent in zip(shadow, found.points, found.tangents, strict=True):
        step = way[1] - way[0]
        np.testing.assert_allclose(way[0], point)
        assert abs(step[0] * tangent[1] - step[1] * tangent[0]) < 1e-12
    assert found.mean_projected < found.mean_length and "12 places" in repr(found)
    assert len(found.to_dict()["gradients"]) == 7


def test_bad_input() -> None:
    found = boundary_distance(NET, GRID)
    with pytest.raises(InputError, match="points"):
        plot.boundary_distance(found, GRID[:3])
    none = Network.random((2, 1), 0)
    with pytest.raises(InputError, match="infinite"):
        plot.boundary_distance(boundary_distance(none, GRID), GRID)
    with pytest.raises(InputError, match="neuron"):
        plot.projected_gradients(projected_gradients(NET, Circle()), neuron=9)
    deep = projected_gradients(Network.random((3, 2, 1), 0), Segment([0.0] * 3, [1.0] * 3))
    with pytest.raises(InputError, match="plane"):
        plot.projected_gradients(deep)
    with pytest.raises(InputError, match="curve"):
        projected_gradients(NET, "circle")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="places"):
        projected_gradients(NET, Circle(), places=0)
    with pytest.raises(InputError, match="neurons"):
        projected_gradients(NET, Circle(), neurons=[7])
