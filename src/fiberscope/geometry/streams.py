"""Regions in batches, for boxes and planes that have more of them than fit into memory.

The box is cut as for a count in pieces (:mod:`fiberscope.geometry.tiling`). A region that a cut divides is found on
both sides of it and given below the cut: above it, whatever the cut meets is left out. Regions are told apart by their
signs: those with the same ones make up a convex set, so they are one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fiberscope.backends import choose_backend
from fiberscope.errors import InputError, NotGenericError
from fiberscope.geometry.domains import Box, Domain, View, view_of
from fiberscope.geometry.engines.choose import cells_on
from fiberscope.geometry.tiling import (
    PORTION,
    Counted,
    Node,
    Tile,
    Tiling,
    begin_tiles,
    cut_further,
    done_by,
    met_by,
    root_box,
    solid,
    within_memory,
)
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.numerics.floats import BoolArray, FloatArray, SignArray
from fiberscope.results import Result, hidden
from fiberscope.run import STOPPED, Progress, Run

MOST_OF_A_BATCH = 1 << 17
"""A piece with more regions than that is cut further."""


@dataclass(frozen=True, slots=True)
class RegionBatch(Result):
    """Some regions: the piece of the domain in which they were found, their signs, and a point inside of each."""

    piece: Box
    signs: SignArray = field(repr=False, metadata=hidden())
    points: FloatArray = field(repr=False, metadata=hidden())

    told = ("num_regions",)

    @property
    def num_regions(self) -> int:
        return len(self.signs)


class RegionStream:
    """Batches of regions, to be gone through once; every region of the domain is in one of them.

    ``num_regions`` counts what has been given; ``complete`` is False until all have been, and stays so when the time is
    up or Ctrl-C was pressed. ``tiling`` is then the evidence of the count, as of :func:`~fiberscope.count_regions`.
    """

    def __init__(self, view: View, run: Run, jobs: int | None, cluster: str | None, most: int) -> None:
        self._view, self._run, self._most = view, run, most
        self._backend = choose_backend(jobs, cluster)
        self._root, self._places = begin_tiles(view, self._backend)
        self._walls: dict[Node, tuple[Node, ...]] = {}
        self._met: dict[Node, set[bytes]] = {}
        self.num_regions, self.complete = 0, False
        self.tiling: Tiling | None = None
        self._batches = self._found()

    def __iter__(self) -> Iterator[RegionBatch]:
        return self

    def __next__(self) -> RegionBatch:
        return next(self._batches)

    def __repr__(self) -> str:
        return f"RegionStream({self.num_regions} regions given, complete={self.complete})"

    def _found(self) -> Iterator[RegionBatch]:
        waiting, pending = deque(self._cut_first(self._root)), list[Node]()
        self._note_walls(self._root, ())
        made, done = len(waiting), 0
        try:
            while waiting:
                now = [waiting.popleft() for _ in range(min(len(waiting), PORTION * self._places))]
                for node in done_by(listed, self._view.net, now, self._run, self._backend, self._most):
                    if node.found.regions is None:
                        cut_further(node, root_box(self._view), made)
                        self._note_walls(node, self._walls.pop(node, ()))
                        waiting.extendleft(reversed(list(self._cut_first(node))))
                        made += sum(1 for _ in node.leaves())
                        continue
                    done += 1
                    if node in self._walls:
                        pending.append(node)
                    else:
                        self._met[node] = set(_keys(node.found.signs))
                        node.found = Counted(node.found.regions)
                    self._run.step(done, made, f"{self.num_regions} regions")
                later = []
                for node in pending:
                    met = [self._met_by(wall) for wall in self._walls[node]]
                    if any(keys is None for keys in met):
                        later.append(node)
                    elif (batch := self._batch(node, [keys for keys in met if keys is not None])).num_regions:
                        yield batch
                pending = later
        except STOPPED:
            return
        self._end()

    def _end(self) -> None:
        count, complete = self._root.count()
        if not complete or count != self.num_regions:  # cannot be: both come from the same sets
            raise NotGenericError(f"regions in pieces: expected {count}, as the pieces say, got {self.num_regions}")
        self.complete, box = True, root_box(self._view)
        counts = tuple(leaf.found.regions for leaf in self._root.leaves())
        self.tiling = Tiling(self._view.net, box, count, True, tuple(self._root.cuts()), counts)

    def _batch(self, node: Node, met: list[set[bytes]]) -> RegionBatch:
        signs, points = node.found.signs, node.found.points
        node.found = Counted(node.found.regions)
        assert signs is not None and points is not None
        own: BoolArray = np.array([not any(key in keys for keys in met) for key in _keys(signs)], dtype=bool)
        self.num_regions += int(own.sum())
        return RegionBatch(Box(*node.span), signs[own], self._view.lift(points[own]))

    def _cut_first(self, node: Node) -> Iterator[Node]:
        """The leaves of a box, those of cuts before those of the sides."""
        if not node.parts:
            yield node
            return
        below, above, cut = node.parts
        for part in (cut, below, above):
            yield from self._cut_first(part)

    def _note_walls(self, node: Node, walls: tuple[Node, ...]) -> None:
        """For every solid leaf below a node the cuts that it is above of."""
        if not node.span.free.all():
            return
        if not node.parts:
            self._walls[node] = walls
            return
        below, above, cut = node.parts
        self._note_walls(below, walls)
        self._note_walls(above, (*walls, cut))

    def _met_by(self, cut: Node) -> set[bytes] | None:
        """What a cut meets, None if that is not known yet."""
        if cut not in self._met and cut.parts:
            sides = [self._met_by(part) for part in cut.parts[:2]]  # whatever meets the cut of a cut, meets both sides
            known = [keys for keys in sides if keys is not None]
            if len(known) == len(sides):
                self._met[cut] = set[bytes]().union(*known)
        return self._met.get(cut)


def _keys(signs: SignArray | None) -> list[bytes]:
    """Every row as a word that stands for it alone."""
    assert signs is not None
    packed = np.packbits(np.concatenate([signs > 0, signs < 0], axis=1), axis=1)
    return [row.tobytes() for row in packed]


def iter_regions(
    net: NetworkLike,
    domain: Domain,
    *,
    progress: Progress | None = None,
    time_limit: float | None = None,
    jobs: int | None = 1,
    cluster: str | None = None,
    most: int = MOST_OF_A_BATCH,
) -> RegionStream:
    """All regions of a box or a plane, in batches that fit into memory; each region once.

    Parameters
    ----------
    net
        A network with as many inputs as the domain has dimensions (``plane.ambient`` for a plane).
    domain
        A box of at most six dimensions, or a plane through any input space.
    progress, time_limit
        As of :func:`~fiberscope.regions`; a stream that is stopped ends, and its ``complete`` is False.
    jobs, cluster
        Pieces are listed by so many processes, or on a cluster (``"dask://HOST:PORT"``, or any joblib backend).
    most
        Regions of a batch, at most; pieces with more are cut further.

    Examples
    --------
    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, -1.0], [0.0]])
    >>> stream = iter_regions(net, Box.cube(2))
    >>> sorted(tuple(signs) for batch in stream for signs in batch.signs.tolist())
    [(-1, -1, -1), (-1, 1, -1), (1, -1, -1), (1, 1, -1), (1, 1, 1)]
    >>> stream.complete, stream.tiling.verify().ok
    (True, True)
    """
    if isinstance(most, bool) or not most >= 1:
        raise InputError(f"most: expected a positive number of regions, got {most}")
    return RegionStream(view_of(as_network(net), domain), Run.begin(progress, time_limit), jobs, cluster, int(most))


def listed(tile: Tile) -> Counted:
    """What a worker does: the signs of the regions that meet a box, flat or not, and points inside of them."""
    return within_memory(tile, _listed)


def _listed(tile: Tile, run: Run) -> Counted:
    if not tile.span.free.all():
        signs = np.unique(met_by(tile.net, tile.span, run), axis=0)
        signs = signs[solid(tile.net, signs, run)]
        return Counted(len(signs), signs=signs)
    cells = cells_on(View(tile.net, Box(*tile.span)), Run(deadline=run.deadline, limit=tile.most))
    if not cells.complete or cells.count(cells.dimension) > tile.most:
        run.check()
        return Counted(None, 4.0, f"more than {tile.most} regions")
    corners = cells.vertices_of(cells.dimension)
    sums = np.add.reduceat(cells.points[corners.indices], corners.indptr[:-1], axis=0)
    return Counted(len(corners), signs=cells.top_signs, points=sums / np.diff(corners.indptr)[:, None])
