"""Rows of a cell behind a bottleneck: fewer neurons of a layer are alive there than the input has dimensions.

Where d of the neurons of a layer are alive and ``d < n``, all later preactivations are functions of these d numbers u,
so most multipliers that prove a row redundant are zero *by structure*. Floats in the coordinates x cannot see that: a
zero known up to rounding may as well be negative, and on an unbounded cell then proves nothing. In the coordinates u
the zeros do not occur, the rows of the layer are unit vectors, and those of the next one are the weights as they stand.

What is proven in u holds in x: from ``h_i = const + sum y_k h_k`` as functions of u it follows as functions of x. If
``const > 0``, row i vanishes nowhere on the cell. If ``const = 0`` exactly, row i vanishes on a facet only if the rows
with ``y_k > 0`` do; of all rows that vanish on one facet, those on extreme rays of the cone they span (pointed, since
all are positive at an inner point) are no such sums, so one of them at least is never dismissed. With bottlenecks in
several layers the same holds from layer to layer: what holds in the coordinates of a later one holds in an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fiberscope.geometry.engines.traversal import kernels
from fiberscope.geometry.engines.traversal.rows import onward
from fiberscope.geometry.engines.watched import Workers
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.floats import BoolArray, FloatArray, SignArray


def dismiss_behind_bottlenecks(
    net: Network, signs: SignArray, heights: FloatArray, kinds: SignArray, state: SignArray, workers: Workers
) -> None:
    """Settle open rows that are no facets, in the coordinates of bottlenecks; ``state`` is changed in place.

    ``signs`` is ``(cells, num_signs)``; ``heights``, ``kinds`` and ``state`` have a column for every neuron at least:
    the values ``|f_k|`` at the inner points, what is asked, and what is known (see :mod:`.kernels`). Rows
    that turn out to be facets in these coordinates stay open, since rows from before the layer may cut them off.
    """
    for index, first in _cuts(net):
        node = net.nodes[index]
        assert isinstance(node, PiecewiseLinear)
        here = slice(first, first + node.num_signs)
        asked = (state[:, first : net.num_signs] == kernels.OPEN).any(axis=1)
        alive = (signs[:, here] > 0) | (node.slopes != 0)
        count = alive.sum(axis=1)
        for d in range(1, net.in_size + 1):
            cells = np.flatnonzero(asked & (count == d))
            if len(cells):
                own = signs[cells]
                H, E = _rows(net, own, index, here, alive[cells])
                wanted = _wanted(kinds[cells, first : net.num_signs], state[cells, first : net.num_signs])
                wanted[:, : node.num_signs][~alive[cells]] = kernels.OFF
                U = (heights[cells, here] * own[:, here])[alive[cells]].reshape(len(cells), d)
                found, behind = np.empty_like(wanted), np.empty((*wanted.shape, 2 * d))
                far = np.full(d, np.inf)
                workers.call(kernels.cells, H, E, wanted, U, -far, far, False, found, behind)
                cell, row = np.nonzero(found == kernels.ABSENT)
                state[cells[cell], first + row] = kernels.ABSENT


def _cuts(net: Network) -> Iterator[tuple[int, int]]:
    """Activations that everything later reads through, but the last: their node, and where their signs begin."""
    start = 0
    for index, node in enumerate(net.nodes):
        if isinstance(node, PiecewiseLinear):
            stop = start + node.num_signs
            if stop < net.num_signs and all(s > index for later in net.nodes[index + 1 :] for s in later.sources):
                yield index, start
            start = stop


def _rows(net: Network, signs: SignArray, index: int, here: slice, alive: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Oriented rows of the layer and of all later ones in the d coordinates of each cell, with their errors."""
    node = net.nodes[index]
    assert isinstance(node, PiecewiseLinear)
    cells, size = alive.shape
    d = int(alive[0].sum())
    cell, neuron = np.nonzero(alive)
    place = np.tile(np.arange(d), cells)
    after = np.zeros((cells, d + 1, size))
    after[cell, place, neuron] = np.where(signs[:, here] > 0, 1.0, node.slopes)[cell, neuron]
    unit = Bounded(after.reshape(-1, size), np.zeros((cells * (d + 1), size)))
    later = onward(net, signs, [unit] * (index + 2), here.stop)
    H, E = np.zeros((cells, size + later.value.shape[1], d + 1)), np.zeros((cells, size + later.value.shape[1], d + 1))
    H[cell, neuron, place] = 1.0
    H[:, size:], E[:, size:] = later.value, later.error
    H *= signs[:, here.start :, None]
    return H, E


def _wanted(kinds: SignArray, state: SignArray) -> SignArray:
    """What to ask of rows: only what is still open, all others being constraints as before."""
    asked = np.where(state == kernels.OPEN, kernels.WANTED, kernels.SKIP)
    return np.where(kinds == kernels.OFF, kernels.OFF, asked).astype(np.int8)
