"""Loops of arcs that bound a cell's part of a sphere or cylinder."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from fiberscope.geometry.complex import Complex
from fiberscope.geometry.surfaces.ball_cut import BallCut
from fiberscope.numerics.floats import IntArray


def loops_of(cut: BallCut, space: Complex, cells: IntArray) -> tuple[IntArray, IntArray]:
    """How many loops of arcs the cells have, and into how many parts the sphere cuts their faces within the ball."""
    arcs: dict[int, list[list[int]]] = defaultdict(list)
    for face, ends in zip(cut.arc_face.tolist(), cut.arcs.tolist(), strict=True):
        arcs[face].append(ends)
    circles = set(cut.circle_face.tolist())
    faces_of, edges_of = space.structure.boundary[2], space.structure.boundary[1]
    found = []
    for cell in cells.tolist():
        points, walls, whole = _Sets(), _Sets(), 0
        for face in faces_of[cell][cut.meets_face[faces_of[cell]]].tolist():
            walls.add(-1 - face)  # faces below zero, edges above
            whole += face in circles
            for one, two in arcs.get(face, ()):
                points.join(one, two)
            for edge in edges_of[face][cut.meets_edge[edges_of[face]]].tolist():
                walls.join(-1 - face, edge)
        found.append((points.count + whole, walls.count))
    loops, parts = np.array(found, dtype=np.int64).reshape(-1, 2).T
    return loops, parts


class _Sets:
    """Disjoint sets of numbers."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}
        self.count = 0

    def add(self, x: int) -> int:
        if x not in self._parent:
            self._parent[x] = x
            self.count += 1
        while self._parent[x] != x:
            self._parent[x] = self._parent[self._parent[x]]
            x = self._parent[x]
        return x

    def join(self, x: int, y: int) -> None:
        one, two = self.add(x), self.add(y)
        if one != two:
            self._parent[one] = two
            self.count -= 1
