"""What floats prove about the rows of many cells: facet or not; three attempts, each with a check of its own.

First the compiled kernel from the point at hand; then the coordinates of bottlenecks, where zeros by structure vanish;
then both again from a point deeper inside. What is open after that is left to rational arithmetic.

**Bottlenecks.** Behind a bottleneck fewer neurons of a layer are alive than the input has dimensions.

Where d of the neurons of a layer are alive and ``d < n``, all later preactivations are functions of these d numbers u,
so most multipliers that prove a row redundant are zero *by structure*. Floats in the coordinates x cannot see that: a
zero known up to rounding may as well be negative, and on an unbounded cell then proves nothing. In the coordinates u
the zeros do not occur, the rows of the layer are unit vectors, and those of the next one are the weights as they stand.

What is proven in u holds in x: from ``h_i = const + sum y_k h_k`` as functions of u it follows as functions of x. If
``const > 0``, row i vanishes nowhere on the cell. If ``const = 0`` exactly, row i vanishes on a facet only if the rows
with ``y_k > 0`` do; of all rows that vanish on one facet, those on extreme rays of the cone they span (pointed, since
all are positive at an inner point) are no such sums, so one of them at least is never dismissed. With bottlenecks in
several layers the same holds from layer to layer: what holds in the coordinates of a later one holds in an earlier one.

**Deep points**, inside cells and behind the middle of facets, are a second chance for floats before exact arithmetic.

The traversal names regions by the first point behind a facet that is certainly theirs. Now and then it lies so close to
the border that rounding hides the rest of the cell. A linear program finds a point that is far from all sides at once;
it is a proposal and nothing else, all that follows from it is checked as before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fiberscope.geometry.engines.traversal import kernels
from fiberscope.geometry.engines.traversal.rows import Sides, onward
from fiberscope.geometry.engines.watched import Workers
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.bounded import BOUNDED_ROWS
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.numerics.lp.programs import Polyhedron
from fiberscope.run import ENDLESS, Run

if TYPE_CHECKING:
    from fiberscope.network.layout import Layout, Place


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Cells with their sign vectors, oriented rows ``H`` and errors ``E``, what is asked, and inner points ``X``.

    The shapes are those of :func:`.kernels.prove_cells`.
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


def row_states(batch: Batch, workers: Workers) -> tuple[SignArray, FloatArray]:
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
    workers.all(kernels.prove_cells, [(H[p], E[p], kinds[p], X[p], *box, state[p], beyond[p]) for p in parts])
    if (state == kernels.OPEN).any():
        heights = np.einsum("ckn,cn->ck", H[:, :, :-1], X) + H[:, :, -1]
        dismiss_behind_bottlenecks(batch.net, batch.signs, heights, kinds, state, workers)
    return state, beyond


# --- bottlenecks ------------------------------------------------------------------------------------------------


def dismiss_behind_bottlenecks(
    net: Network, signs: SignArray, heights: FloatArray, kinds: SignArray, state: SignArray, workers: Workers
) -> None:
    """Settle open rows that are no facets, in the coordinates of bottlenecks; ``state`` is changed in place.

    ``signs`` is ``(cells, num_signs)``; ``heights``, ``kinds`` and ``state`` have a column for every neuron at least:
    the values ``|f_k|`` at the inner points, what is asked, and what is known (see :mod:`.kernels`). Rows
    that turn out to be facets in these coordinates stay open, since rows from before the layer may cut them off.
    """
    layout = net.layout
    for place in _cuts(layout):
        first, here, size = place.start, place.columns, place.node.num_signs
        asked = (state[:, first : net.num_signs] == kernels.OPEN).any(axis=1)
        alive = (signs[:, here] > 0) | (layout.slopes[here] != 0)
        count = alive.sum(axis=1)
        for d in range(1, net.in_size + 1):
            cells = np.flatnonzero(asked & (count == d))
            if len(cells):
                own = signs[cells]
                H, E = _rows(net, own, place, alive[cells])
                wanted = _wanted(kinds[cells, first : net.num_signs], state[cells, first : net.num_signs])
                wanted[:, :size][~alive[cells]] = kernels.OFF
                U = (heights[cells, here] * own[:, here])[alive[cells]].reshape(len(cells), d)
                found, behind = np.empty_like(wanted), np.empty((*wanted.shape, 2 * d))
                far = np.full(d, np.inf)
                workers.call(kernels.prove_cells, H, E, wanted, U, -far, far, False, found, behind)
                cell, row = np.nonzero(found == kernels.ABSENT)
                state[cells[cell], first + row] = kernels.ABSENT


def _cuts(layout: Layout) -> list[Place]:
    """Activations that everything later reads through, but the last."""
    return [place for place in layout.places[:-1] if max(layout.last_use[: place.index + 1]) <= place.index]


def _rows(net: Network, signs: SignArray, place: Place, alive: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Oriented rows of the layer and of all later ones in the d coordinates of each cell, with their errors."""
    here = place.columns
    cells, size = alive.shape
    d = int(alive[0].sum())
    cell, neuron = np.nonzero(alive)
    number = np.tile(np.arange(d), cells)
    after = np.zeros((cells, d + 1, size))
    after[cell, number, neuron] = np.where(signs[:, here] > 0, 1.0, net.layout.slopes[here])[cell, neuron]
    later = onward(net, signs, {place.index + 1: BOUNDED_ROWS.take(after)}, place.index + 1)
    H, E = np.zeros((cells, size + later.value.shape[1], d + 1)), np.zeros((cells, size + later.value.shape[1], d + 1))
    H[cell, neuron, number] = 1.0
    H[:, size:], E[:, size:] = later.value, later.error
    H *= signs[:, here.start :, None]
    return H, E


def _wanted(kinds: SignArray, state: SignArray) -> SignArray:
    """What to ask of rows: only what is still open, all others being constraints as before."""
    asked = np.where(state == kernels.OPEN, kernels.WANTED, kernels.SKIP)
    return np.where(kinds == kernels.OFF, kernels.OFF, asked).astype(np.int8)


# --- deep points ------------------------------------------------------------------------------------------------


def deep_points(H: FloatArray, kinds: SignArray, X: FloatArray, run: Run = ENDLESS) -> FloatArray:
    """A point deep inside every cell ``h_k >= 0``, the old one of ``X`` where none is found.

    ``H`` is ``(cells, m, n + 1)``, ``kinds`` as in :func:`.kernels.prove_cells`. Unbounded cells are cut off at
    some distance.

    >>> unit = np.array([[[1.0, 0.0], [-1.0, 1.0]]])  # x >= 0 and x <= 1
    >>> deep_points(unit, np.ones((1, 2), dtype=np.int8), np.array([[1e-9]])).round(6).tolist()
    [[0.5]]
    """
    points = [_inner_point(h[on], x, run) for h, on, x in zip(H, kinds != kernels.OFF, X, strict=True)]
    return np.array([x if p is None else p for p, x in zip(points, X, strict=True)]).reshape(X.shape)


def points_behind(H: FloatArray, kinds: SignArray, X: FloatArray, pairs: IntArray, run: Run = ENDLESS) -> FloatArray:
    """For facets ``(cell, row)`` a point behind the facet and one on it, both far from its rim, ``(pairs, 2 n)``.

    ``X`` are inner points of the cells. Where nothing is found these are given, which no check will accept.
    """
    own, back = np.unique(pairs[:, 0], return_inverse=True)
    deep = deep_points(H[own], kinds[own], X[own], run)[back]
    result = np.tile(X[pairs[:, 0]], 2)
    for k, (cell, row) in enumerate(pairs.tolist()):
        on = kinds[cell] != kernels.OFF
        flipped = H[cell].copy()
        flipped[row] *= -1.0
        x, far = deep[k], _inner_point(flipped[on], deep[k], run)
        if far is None:
            continue
        inside, outside = (float(H[cell, row, :-1] @ p + H[cell, row, -1]) for p in (x, far))
        if inside > 0.0 > outside:
            result[k] = np.concatenate([far, x + inside / (inside - outside) * (far - x)])
    return result


def _inner_point(rows: FloatArray, x: FloatArray, run: Run) -> FloatArray | None:
    run.check()
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(rows[:, :-1], axis=1)
        rows = rows[norms > 0.0] / norms[norms > 0.0, None]
        reach = 1.0 + float(np.abs(x).max())
        low, high = x - reach, x + reach
    if not (len(rows) and all(np.isfinite(part).all() for part in (rows, low, high))):
        return None
    return Polyhedron(-rows[:, :-1], rows[:, -1], lower=low, upper=high).interior().point
