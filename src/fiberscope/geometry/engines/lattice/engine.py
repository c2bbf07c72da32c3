"""The canonical polyhedral complex with cells of every dimension, by splitting a face lattice neuron by neuron.

The only geometric question is the sign of a neuron at a vertex, and every such sign is certified: by a float value
with an error bound, or exactly. All else is combinatorics. A cell is split iff the neuron is positive at one of its
vertices and negative at another; a vertex, edge or facet inside the zero set, coincident neurons, and neurons that
vanish identically are cases like any other. (Neuron by neuron as in J. A. Grigsby and K. Lindsey, *On transversality
of bent hyperplane arrangements and the topological expressiveness of ReLU neural networks*, 2022; that only signs at
vertices matter is also the idea of A. Berzins, *Polyhedral complex extraction from ReLU networks using edge
subdivision*, 2023, which keeps vertices and edges alone and needs generic parameters.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import flint
import numpy as np

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Box, Orthant, Solid, Space
from fiberscope.geometry.engines.lattice import kernels, splitting
from fiberscope.geometry.engines.lattice.exact import Start
from fiberscope.geometry.engines.lattice.layers import LayerStep, LayerWalk, deferred_interrupt, never
from fiberscope.geometry.engines.lattice.levels import Levels
from fiberscope.geometry.engines.lattice.pools import coarsened, compared
from fiberscope.geometry.engines.lattice.splitter import Splitter
from fiberscope.geometry.engines.lattice.start import box_start, fan_start, sides_network
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.cutoffs import COORDINATE_ERROR
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, U
from fiberscope.run import ENDLESS, Run


def lattice_cells(net: Network, domain: Solid, run: Run = ENDLESS) -> Cells:
    """All cells of the canonical complex of ``net`` on ``domain``, of every dimension.

    The result is not ``complete`` when interrupted or out of time, or when there are more regions than the limit of
    the ``run``: then it is the complex of the neurons that were reached, and the signs of the others are given as 0.
    Max pooling is taken on bounded domains; on the way cells are also split where inputs of a window that lose change
    places, and a limit counts those too.

    >>> net = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> cells = lattice_cells(net, Box([-1, -1], [1, 1]))
    >>> [cells.count(k) for k in range(3)], cells.complete
    ([9, 12, 4], True)
    """
    fine, pools = compared(net)
    start = None if pools and isinstance(domain, Orthant | Space) else start_cells(fine, domain)
    if start is None or (pools and not start.bounded):
        raise UnsupportedModelError(f"max pooling: expected a bounded domain in n dimensions, got {domain}")
    builder = LatticeBuilder(fine if pools else net, start)
    with deferred_interrupt() as interrupted:
        builder.walk(run, interrupted)
    cells = builder.cells()
    return coarsened(cells, net, pools, builder.reached - builder.sides) if pools else cells


def start_cells(net: Network, domain: Solid) -> Start:
    if isinstance(domain, Box):
        return box_start(domain)
    start = fan_start(net, domain)
    if not (start.domain_signs > 0).any():
        return start
    sides = LatticeBuilder(sides_network(domain), start)
    sides.walk(ENDLESS, lambda: False)
    return _inside(sides, domain)


def _inside(sides: LatticeBuilder, domain: Solid) -> Start:
    """What is left of a fan where no side of the domain is positive."""
    cells = sides.cells()
    keep: list[BoolArray] = [np.asarray(~(cells.signs(k) > 0).any(axis=1)) for k in range(cells.dimension + 1)]
    if not keep[-1].any():
        raise InputError(f"domain: expected a set with interior points, got {domain}, which has none")
    # Only faces of the remaining top cells belong to the domain (a face may touch it from outside).
    for k in range(cells.dimension, 0, -1):
        below = np.zeros(cells.count(k - 1), dtype=bool)
        for c in np.flatnonzero(keep[k]):
            below[cells.boundary[k - 1][int(c)]] = True
        keep[k - 1] &= below
    number = [np.cumsum(mask) - 1 for mask in keep]
    boundary = tuple(
        tuple(
            tuple(int(number[k - 1][f]) for f in cells.boundary[k - 1][int(c)] if keep[k - 1][f])
            for c in np.flatnonzero(keep[k])
        )
        for k in range(1, cells.dimension + 1)
    )
    vertices = np.flatnonzero(keep[0])
    points = tuple(sides.exact.point(int(v)) for v in vertices)
    return Start(points, boundary, cells.vertex_signs[vertices])


class LatticeBuilder(LayerWalk):
    """The lattice under construction."""

    def __init__(self, net: Network, start: Start) -> None:
        super().__init__(net, start)
        self.levels = Levels.of(start.boundary)
        self._spare = Levels(len(start.boundary))
        self._splitter = Splitter(len(start.boundary))
        self._last: tuple[IntArray, LayerStep, tuple[int, int, int]] | None = None

    @property
    def regions(self) -> int:
        return int(self.levels.made[-1])

    @property
    def status(self) -> str:
        return f"{self.regions} regions"

    @property
    def size(self) -> int:
        return self.regions

    def reset_carriers(self) -> None:
        self.levels.carrier = self.levels.carrier[:0]

    # -- neurons -----------------------------------------------------------------------------------------------

    def split_layer(self, layer: LayerStep) -> Iterator[int]:
        """Split block by block; the neurons of a block are done together, and reported one by one."""
        signs = self.signs[: self.num_vertices, layer.begin : layer.end]
        # A neuron with one sign at all vertices of the complex has it everywhere.
        rest = np.flatnonzero((signs > 0).any(axis=0) & (signs < 0).any(axis=0)) + layer.begin
        while len(rest):
            # A neuron at most doubles the regions: no block but one of a single neuron exceeds the limit.
            limit = self.run.limit
            room = splitting.BLOCK if limit is None else max(1, (limit // self.regions).bit_length() - 1)
            block, rest = np.split(rest, [min(room, splitting.BLOCK)])
            layer = self.without_done(layer, int(block[0]) - layer.begin)
            before = self.num_vertices, self.exact_decisions, self.float_decisions
            if not self._split_block(block, layer, carriers=len(rest) > 0):
                self.num_vertices = before[0]
                self.drop_from(int(block[0]))
                return
            self._last = block, layer, before
            yield from block.tolist()
            self._last = None

    def _split_block(self, block: IntArray, layer: LayerStep, carriers: bool) -> bool:
        """Split every cell that a neuron of the block crosses; False if interrupted, and then nothing is split."""
        count = self.num_vertices
        if not self._splitter.split(self, self.levels, self._spare, block, layer, carriers):
            return False
        self.levels, self._spare = self._spare, self.levels
        self.float_decisions += self.num_vertices - count
        return True

    def drop_from(self, column: int) -> None:
        """The complex is that of the neurons before this column: the last block is done again, with fewer of them."""
        if self._last is not None:
            block, layer, before = self._last
            self.levels, self._spare = self._spare, self.levels
            self.num_vertices, self.exact_decisions, self.float_decisions = before
            self.exact.cut(self.num_vertices)
            self.paused, self._last = never, None
            if (block < column).any():
                self._split_block(block[block < column], layer, carriers=False)
        super().drop_from(column)

    # -- result ------------------------------------------------------------------------------------------------

    def cells(self) -> Cells:
        """The finished complex; what was needed to make it is let go of, and then there is room for the answer."""
        del self._splitter, self._spare
        self.inputs = Bounded(self.inputs.value.copy(), self.inputs.error.copy())  # they were columns of a large table
        rays = errors = None
        if self.t is None:
            points, errors = self._sharpened()
        else:
            rays = self._rays()
            points = self._finite(self.inputs.value, rays, self.t)
        boundary, count = self.levels.boundary(), self.num_vertices
        if len(boundary) == 2:
            kernels.around_polygons(boundary[1].indptr, boundary[1].indices, boundary[0].indices)
        return Cells(
            points=points,
            vertex_signs=self.signs[:count, self.sides :].copy(),
            boundary=boundary,
            point_errors=errors,
            rays=rays,
            exact_decisions=self.exact_decisions,
            float_decisions=self.float_decisions,
            domain_signs=self.signs[:count, : self.sides].copy(),
            complete=self.complete,
        )

    def _sharpened(self) -> tuple[FloatArray, FloatArray]:
        """Coordinates of the vertices, made anew where rounding has spoilt them, and bounds of their errors."""
        value, error = self.inputs.value.copy(), self.inputs.error.max(axis=1, initial=0.0)
        size = np.abs(value).max(axis=1, initial=1.0)
        for v in np.flatnonzero(~(error <= COORDINATE_ERROR * size)):
            *x, scale = self.exact.point(int(v))
            value[v] = [float(flint.arb(a) / scale) for a in x]
            error[v] = 4 * U * np.abs(value[v]).max()
        return value, error

    def _finite(self, points: FloatArray, rays: BoolArray, t: Bounded) -> FloatArray:
        """Points from homogeneous coordinates; exactly where t is lost in its error."""
        sure = (t.value > 4 * t.error)[:, 0]
        divisor = np.where(rays | ~sure, 1.0, t.value[:, 0])
        points = points / divisor[:, None]
        for v in np.flatnonzero(~sure & ~rays):
            *x, scale = self.exact.point(int(v))
            points[v] = [float(flint.arb(a) / scale) for a in x]
        return points

    def _rays(self) -> Any:
        """Which vertices are at infinity: those cut from an edge with both ends there."""
        rays = np.zeros(self.num_vertices, dtype=bool)
        assert self.t is not None
        for v, (a, b, _) in enumerate(self.parents[: self.num_vertices]):
            rays[v] = (rays[a] and rays[b]) if a >= 0 else self.exact.point(v)[-1] == 0
        return rays
