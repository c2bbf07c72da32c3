"""What floats prove about the rows of many cells: facet or not; three attempts, each with a check of its own.

First the compiled kernel from the point at hand; then the coordinates of bottlenecks, where zeros by structure vanish;
then both again from a point deeper inside. What is open after that is left to rational arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from fiberscope.geometry.engines.traversal import kernels
from fiberscope.geometry.engines.traversal.bottleneck import dismiss_behind_bottlenecks
from fiberscope.geometry.engines.traversal.inner_points import deep_points
from fiberscope.geometry.engines.traversal.rows import Sides
from fiberscope.geometry.engines.watched import Workers
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Cells with their sign vectors, oriented rows ``H`` and errors ``E``, what is asked, and inner points ``X``.

    The shapes are those of :func:`.kernels.cells`.
    """

    net: Network
    sides: Sides
    signs: SignArray
    H: FloatArray
    E: FloatArray
    kinds: SignArray
    X: FloatArray

    def part(self, cells: IntArray) -> Batch:
        """Some of the cells."""
        names = ("signs", "H", "E", "kinds", "X")
        return replace(self, **{name: getattr(self, name)[cells] for name in names})


def decide(batch: Batch, workers: Workers) -> tuple[SignArray, FloatArray]:
    """The state of every row, ``(cells, m)``, and points behind facets, ``(cells, m, 2 n)``, as the kernel has them."""
    state, beyond = _attempt(batch, workers)
    cells = np.flatnonzero((state == kernels.OPEN).any(axis=1))
    if len(cells):
        some, open_ = batch.part(cells), state[cells] == kernels.OPEN
        kinds = np.where((some.kinds == kernels.WANTED) & ~open_, np.int8(kernels.SKIP), some.kinds)
        deep = deep_points(some.H, some.kinds, some.X, workers.run)
        found, behind = _attempt(replace(some, kinds=kinds, X=deep), workers)
        cell, row = np.nonzero(open_ & (found != kernels.OPEN))
        state[cells[cell], row], beyond[cells[cell], row] = found[cell, row], behind[cell, row]
    return state, beyond


def _attempt(batch: Batch, workers: Workers) -> tuple[SignArray, FloatArray]:
    H, E, kinds, X, sides = batch.H, batch.E, batch.kinds, batch.X, batch.sides
    state = np.empty(kinds.shape, dtype=np.int8)
    beyond = np.empty((*kinds.shape, 2 * X.shape[1]))
    box = (sides.low, sides.high, sides.bounded)

    bounds = np.linspace(0, len(X), 4 * workers.count + 1).astype(int) if len(X) > 64 else np.array([0, len(X)])
    parts = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
    workers.all(kernels.cells, [(H[p], E[p], kinds[p], X[p], *box, state[p], beyond[p]) for p in parts])
    if (state == kernels.OPEN).any():
        heights = np.einsum("ckn,cn->ck", H[:, :, :-1], X) + H[:, :, -1]
        dismiss_behind_bottlenecks(batch.net, batch.signs, heights, kinds, state, workers)
    return state, beyond
