"""Vertices and edges alone: what the whole lattice has, and a refusal where general position fails."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, NotGenericError
from fiberscope.geometry.domains import Box, Plane, Polytope, Space
from fiberscope.geometry.engines.lattice.engine import lattice_cells, start_cells
from fiberscope.geometry.engines.lattice.skeleton import count_by_skeleton, skeleton
from fiberscope.geometry.engines.lattice.start import box_start
from fiberscope.network.network import Network
from fiberscope.run import Run
from fiberscope.testing.cases import CASES
from fiberscope.testing.strategies import chains


def sorted_rows(signs: np.ndarray) -> list[tuple[int, ...]]:
    return sorted(map(tuple, signs.tolist()))


@pytest.mark.parametrize(
    "widths", [(1, 5, 4, 1), (2, 9, 8, 1), (3, 9, 8, 2), (4, 8, 7, 1), (5, 7, 6, 1), (2, 70, 40, 1)]
)
def test_the_same_vertices_and_edges_as_the_lattice(widths: tuple[int, ...]) -> None:
    net = Network.random(widths, 3)
    box = Box.cube(widths[0])
    found, cells = skeleton(net, box_start(box)), lattice_cells(net, box)
    assert len(found.points) == cells.count(0)
    assert len(found.edges) == cells.count(1)
    assert sorted_rows(found.vertex_signs) == sorted_rows(cells.vertex_signs)
    assert sorted_rows(found.edge_signs) == sorted_rows(cells.signs(1))
    assert count_by_skeleton(net, box_start(box)) == (cells.count(widths[0]), True)


def test_other_networks_and_domains() -> None:
    net = CASES["residual"]()
    simplex = Polytope(np.concatenate([-np.eye(4), np.ones((1, 4))]), np.array([0.0, 0, 0, 0, 1]))
    plane = Plane(*np.random.default_rng(0).normal(size=(3, 4)))
    for view in (Box.cube(4).view(net), simplex.view(net), plane.view(net)):
        found, cells = skeleton(view.net, start_cells(view.net, view.domain)), lattice_cells(view.net, view.domain)
        assert (len(found.points), len(found.edges)) == (cells.count(0), cells.count(1))
        assert sorted_rows(found.edge_signs) == sorted_rows(cells.signs(1))
        assert count_by_skeleton(view.net, start_cells(view.net, view.domain)) == (cells.count(cells.dimension), True)


@given(chains(inputs=st.integers(1, 3), max_width=4, max_hidden=2))
@settings(max_examples=80)
def test_right_or_refused(net: Network) -> None:
    box = Box.cube(net.in_size)
    cells = lattice_cells(net, box)
    try:
        found = skeleton(net, box_start(box))
    except NotGenericError:
        zeros = (cells.vertex_signs == 0).sum(axis=1) + (cells.domain_signs == 0).sum(axis=1)
        assert (zeros != net.in_size).any()
        return
    assert sorted_rows(found.vertex_signs) == sorted_rows(cells.vertex_signs)
    assert sorted_rows(found.edge_signs) == sorted_rows(cells.signs(1))
    assert count_by_skeleton(net, box_start(box)) == (cells.count(net.in_size), True)


def test_interruption_counts_what_was_reached() -> None:
    net = Network.random((3, 6, 6, 1), 2)

    def stop(done: int, total: int, text: str) -> None:
        if done >= 8:
            raise KeyboardInterrupt

    part = lattice_cells(net, Box.cube(3), Run(stop))
    assert count_by_skeleton(net, box_start(Box.cube(3)), Run(stop)) == (part.count(3), False)


def test_refusals() -> None:
    crossing = Network([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, 0.0], [0.0]])
    with pytest.raises(NotGenericError, match="skeleton"):
        skeleton(crossing, box_start(Box.cube(2)))
    # dead neurons vanish everywhere: every edge lies on all of them
    dead = Network([np.concatenate([np.zeros((40, 2)), [[1.0, 0.5]]]), np.ones((1, 41))], [np.zeros(41), np.zeros(1)])
    with pytest.raises(NotGenericError, match="skeleton"):
        skeleton(dead, box_start(Box.cube(2)))
    with pytest.raises(InputError, match="bounded"):
        skeleton(dead, start_cells(Network.random((2, 3, 1), 0), Space(2)))
