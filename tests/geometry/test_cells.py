"""Vertices of cells: gathered facet by facet they are those of all pairs, in order."""

from __future__ import annotations

import time

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.geometry import cells
from fiberscope.geometry.cells import Cells


def by_sets(found: Cells, k: int) -> list[list[int]]:
    """The vertices of every cell from those of its facets, by definition."""
    if k == 0:
        return [[v] for v in range(len(found.points))]
    inner = by_sets(found, k - 1)
    return [sorted({v for f in found.boundary[k - 1][c].tolist() for v in inner[f]}) for c in range(found.count(k))]


@pytest.mark.parametrize("many", [-1, 1 << 40])
@pytest.mark.parametrize(
    ("net", "domain"),
    [
        (fs.Network.random((3, 5, 4, 1), 0), fs.Box.cube(3)),
        (fs.Network.random((4, 5, 1), 1), fs.Box.cube(4)),
        (fs.Network.random((5, 6, 1), 2), fs.Box.cube(5)),
        (fs.Network.random((3, 4, 1), 3), fs.Space(3)),
        (fs.Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), [0.0]]), fs.Orthant(3)),
    ],
)
def test_vertices_of_cells(net: fs.Network, domain: fs.Box, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "_MANY", many)
    found = fs.regions(net, domain).structure
    found._vertex_cache.clear()
    for k in range(3, found.dimension + 1):
        inside = found.vertices_of(k)
        assert [inside[c].tolist() for c in range(len(inside))] == by_sets(found, k)


def test_a_check_in_eight_dimensions_keeps_its_time() -> None:
    """The vertices of all cells were sorted as one list: twenty seconds in front of a limit of a tenth."""
    found = fs.regions(fs.Network.random((8, 8, 1), 39869), fs.Box.cube(8))
    taken = []
    for _ in range(3):  # the first one compiles
        start = time.process_time()
        found.verify(time_limit=0.1)
        taken.append(time.process_time() - start)
    assert min(taken) < 1.1 and sorted(taken)[1] < 3
