"""Pictures of fold-sets show every facet, and of graphs every vertex and edge."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box, Space
from fiberscope.geometry.folds.dependency import dependency_graph
from fiberscope.geometry.folds.fold_set import fold_set
from fiberscope.network.network import Network
from fiberscope.plot.fold_sets import dependency_graph as draw_graph
from fiberscope.plot.fold_sets import fold_set as draw

NET = Network.random((2, 8, 8, 1), 1)
SQUARE = Box.cube(2, -3, 3)


@pytest.mark.parametrize("color", ["order", "layer"])
def test_every_facet_is_drawn_in_its_colour(color: str) -> None:
    found = fold_set(NET, SQUARE)
    assert not found.is_surface  # so that the rest is drawn, too
    lines = [c for c in draw(found, color=color).collections if isinstance(c, LineCollection)]
    assert sum(len(c.get_segments()) for c in lines) == len(found.facets)
    counts = [len(c.get_segments()) for c in lines]
    if color == "order":
        assert counts == np.unique(found.facet_order, return_counts=True)[1].tolist()
    else:
        layer = np.where(found.complex.facets.neuron[found.facets] < 8, 1, 2)
        assert counts == np.unique(layer, return_counts=True)[1].tolist()


def test_every_piece_and_edge_is_drawn() -> None:
    graph = dependency_graph(fold_set(NET, SQUARE, surface="units"))
    ax = draw_graph(graph)
    dots = [c for c in ax.collections if isinstance(c, PathCollection)]
    lines = [c for c in ax.collections if isinstance(c, LineCollection)]
    assert len(dots) == graph.number_of_nodes()
    assert sum(len(c.get_segments()) for c in lines) == graph.number_of_edges()
    assert [t.get_text() for t in ax.get_yticklabels()] == ["order 1", "order 2"]


def test_empty_and_bad() -> None:
    flat = fold_set(Network([[[1.0, 2.0]]], [[0.5]]), SQUARE)
    draw(flat)
    draw_graph(dependency_graph(flat))
    with pytest.raises(InputError, match="2 dimensions"):
        draw(fold_set(Network.random((3, 3, 1), 0), Box.cube(3)))
    with pytest.raises(InputError, match="bounded"):
        draw(fold_set(NET, Space(2)))
    with pytest.raises(InputError, match="color"):
        draw(flat, color="size")
