r"""Products with values behind a ReLU on a chain, without a product for points that the ReLU has just made.

Between two neighbours ``A``, ``B`` of a chain the activations of a layer are affine in all neurons but those that
change sign there. Neuron ``m`` of these, with preactivations ``x`` at ``A`` and ``y`` at ``B``, lies off the straight
line between its own activations by ``t u`` before its zero and by ``(1 - t) v`` behind it, with ``u, v = -y, x`` if it
wakes up and ``y, -x`` if it falls asleep. So for a new point ``p = A + t (B - A)``

.. math:: W a_p = W a_A + t (W a_B - W a_A) + t \sum_{m \text{ later}} u_m W_m
                  + (1 - t) \sum_{m \text{ earlier}} v_m W_m,

and the two sums change by one column of ``W`` from zero to zero: two columns for a point, instead of all. What the
floats of this differ from those of ``W a_p`` is bounded by :meth:`Bends.roundings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.floats import INFLATE, FloatArray, IntArray, gamma

WORTH = 1 << 24
"""Multiplications of products for all new points; where there are fewer, arrays cost more than they save."""


def is_worth(new: int, width: int) -> bool:
    """Whether to spare the products of so many new points, behind a layer of this width."""
    return new * width * width > WORTH


@dataclass(frozen=True, slots=True, eq=False)
class Bends:
    """Which rows of the values are new, and what bends there.

    ``old`` are rows that are multiplied as ever: those of old points. New point ``k`` is row ``row[k]``, between the
    rows ``left[k]`` and ``right[k]`` of old ones, at ``t[k]``. Gap ``g`` has the points from ``points[g]`` to
    ``points[g + 1]``, in order, and in it the neurons ``label[neurons[g]:neurons[g + 1]]`` change sign: in the order of
    their zeros, which are points ``rank`` of the gap, from preactivations ``x`` to ``y``. The floats at both ends of a
    gap have the signs of all preactivations, none of which is zero.
    """

    old: IntArray
    row: IntArray
    left: IntArray
    right: IntArray
    t: FloatArray
    points: IntArray
    neurons: IntArray
    label: IntArray
    rank: IntArray
    x: FloatArray
    y: FloatArray

    def fill(self, matrix: FloatArray, z: FloatArray) -> None:
        """Rows of the new points of ``z = a @ matrix.T + offset``, from those of the old ones."""
        columns = np.empty((len(self.label), len(matrix)))
        gather(matrix, self.label, columns)
        room = np.empty((2, z.shape[1]))
        _fill(
            z, self.row, self.left, self.right, self.t, self.points, self.neurons, self.rank, self.x, self.y, columns,
            room,
        )  # fmt: skip

    def roundings(self, fan_in: int, size: FloatArray) -> FloatArray:
        """For every row a factor ``g`` with ``|z_j - (W a + b)_j| <= g |(W_j, b_j)|``, from the norms ``|(a, 1)|``.

        A product of old points rounds as ever, and interpolation passes that on; interpolation rounds four times, the
        activations of the new point have as many; sums over the neurons of a gap have two terms for each.
        """
        found = gamma(fan_in + 6) * size
        gap = np.repeat(np.arange(len(self.points) - 1), np.diff(self.points))
        bent = (_norms(self.x, self.neurons) + _norms(self.y, self.neurons))[gap]
        most = int(np.diff(self.neurons).max(initial=0))
        three = size[self.left] + size[self.right] + size[self.row]
        own = gamma(12) * three + 2 * gamma(2 * most + 16) * bent
        found[self.row] = (np.maximum(found[self.left], found[self.right]) + own) * INFLATE
        return found


def _norms(x: FloatArray, ptr: IntArray) -> FloatArray:
    """Not below the Euclidean norms of the parts; scaled, so that no square vanishes or overflows."""
    found = np.zeros(len(ptr) - 1)
    filled = np.flatnonzero(np.diff(ptr))
    if len(filled):
        begin = ptr[filled]
        largest = np.maximum.reduceat(np.abs(x), begin)
        scaled = x / np.repeat(largest, np.diff(ptr)[filled])
        found[filled] = largest * np.sqrt(np.add.reduceat(scaled * scaled, begin)) * INFLATE
    return found


@inner
def _move(later: Any, earlier: Any, column: Any, u: float, v: float) -> None:
    for h in range(column.shape[0]):
        later[h] -= u * column[h]
        earlier[h] += v * column[h]


@kernel
def _fill(
    z: Any, row: Any, left: Any, right: Any, t: Any, points: Any, neurons: Any, rank: Any, x: Any, y: Any, columns: Any,
    room: Any,
) -> None:  # fmt: skip
    """``room (2, width)`` are the two sums; a neuron goes from one to the other at its zero."""
    later, earlier = room[0], room[1]
    for g in range(points.shape[0] - 1):
        if points[g] == points[g + 1]:
            continue
        first, last = neurons[g], neurons[g + 1]
        for h in range(z.shape[1]):
            later[h] = earlier[h] = 0.0
        for m in range(first, last):
            u = -y[m] if x[m] < 0.0 else y[m]
            for h in range(z.shape[1]):
                later[h] += u * columns[m, h]
        asleep, awake = first, first  # the next neuron that falls asleep, and the next one that wakes up
        for k in range(points[g], points[g + 1]):
            own = k - points[g]
            while asleep < last and rank[asleep] <= own:  # at its zero it is asleep
                if x[asleep] > 0.0:
                    _move(later, earlier, columns[asleep], y[asleep], -x[asleep])
                asleep += 1
            while awake < last and rank[awake] < own:  # at its zero it is not yet awake
                if x[awake] < 0.0:
                    _move(later, earlier, columns[awake], -y[awake], x[awake])
                awake += 1
            a, b, v, tk = left[k], right[k], row[k], t[k]
            rest = 1.0 - tk
            for h in range(z.shape[1]):
                z[v, h] = z[a, h] + tk * (z[b, h] - z[a, h]) + (tk * later[h] + rest * earlier[h])


@kernel
def gather(matrix: Any, label: Any, columns: Any) -> None:
    """Columns of a matrix as rows: a few of its rows at a time, so that what is written stays near."""
    for first in range(0, matrix.shape[0], 8):
        last = min(first + 8, matrix.shape[0])
        for m in range(label.shape[0]):
            j = label[m]
            for h in range(first, last):
                columns[m, h] = matrix[h, j]
