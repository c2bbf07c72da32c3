"""Values behind the first layer of a wide network: neighbouring vertices differ in few active neurons.

In the plane the first layer is an arrangement of lines. Let ``F (m, 3)`` be its rows, ``W (n, m)`` and ``b`` the next
layer. At a vertex with active set ``S`` the preactivations of the next layer are ``M (x, y, 1)`` with ``M = [0 0 b] +
sum_{i in S} W_i F_i``. From a vertex to one beside it a neuron or two change, so ``M`` changes by a rank or two: some
``n`` operations instead of the ``m n`` of a product, and the values of the first layer are needed at no vertex. Any
order of the vertices is right; one that goes from neighbour to neighbour is fast.

Bounds. ``M`` is a sum of at most ``4 m`` terms since it was last made anew. A term and every partial sum are at most
``|W_j| |F_k|`` in entry ``(j, k)``, apart from rounding, since every partial sum belongs to some set of neurons. So the
error of a value is at most ``gamma |W_j| |F| |(x, y, 1)|``, of the form ``c[v] r[j]`` of :mod:`.tracked`; errors of
the rows ``F`` and of the vertex come in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.geometry.engines.planar.tracked import (
    Tracked,
    plane_rows,
    row_norms,
    spectral_of,
)
from fiberscope.network.layout import Layout
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.numerics.compiling.kernels import sums
from fiberscope.numerics.floats import (
    ENTRY_FLOOR,
    UP,
    FloatArray,
    IntArray,
    SignArray,
    gamma,
    length,
    norms,
)

LARGE = 2.0**64
"""Coordinates up to this do not lift what underflows in ``M`` above the floor of an entry's bound."""

WIDE = 48
"""From so many neurons on the updates are faster than a product."""

_AGAIN = 3
"""After so many updates per neuron ``M`` is made anew, so that its error stays in proportion to the width."""

_BITS = 16
"""Finer than that, vertices are taken in any order; few of them in coarser squares, some sixteen for each."""

_ONES = np.uint64(0x0101010101010101)


@dataclass(frozen=True, slots=True, eq=False)
class Flips:
    """The first layer of a network on a plane, and the dense layer that alone reads it."""

    rows: FloatArray
    """The first layer, ``(m, 3)``: its rows ``(a, b, c)`` for ``a x + b y + c``."""
    spread: float
    """Not below the Frobenius norm of the errors of ``rows``."""
    layer: Affine
    """The next layer."""
    index: int
    """Its number among the nodes."""

    @classmethod
    def of(cls, layout: Layout) -> Flips | None:
        """For a program that begins so: perhaps the map of a plane, a dense layer, a ReLU, a dense layer."""
        if len(layout.places) < 2 or layout.pooled.any():
            return None  # nothing comes behind, or windows want to know which values are zero
        match layout.nodes[:4]:
            case (Affine() as plane, Affine() as first, PiecewiseLinear() as relu, Affine() as layer):
                return cls._of(layout, (plane, first), relu, layer)
            case (Affine() as first, PiecewiseLinear() as relu, Affine() as layer, *_):
                return cls._of(layout, (first,), relu, layer)
        return None

    @classmethod
    def _of(cls, layout: Layout, maps: Sequence[Affine], relu: PiecewiseLinear, layer: Affine) -> Flips | None:
        index = len(maps) + 1
        alone = layout.last_use[: index + 1] == tuple(range(index + 1))
        dense = all(node.operator.stored_matrix is not None for node in (*maps, layer))
        if not alone or not dense or relu.slopes.any() or relu.slopes.size < WIDE:
            return None
        rows, error = plane_rows(maps[0] if len(maps) == 2 else None, maps[-1])
        return cls(rows, float(np.hypot.reduce(error, axis=None)) * UP, layer, index)

    def values(self, points: Tracked, signs: SignArray, tight: bool) -> Tracked:
        """The preactivations of the next layer at the vertices, by the certified ``signs`` of the first.

        ``tight`` bounds the spectral norm, too, which pays where more layers follow.
        """
        matrix, offset = self.layer.operator.stored_matrix, self.layer.offset
        assert matrix is not None
        own, bias = row_norms(self.layer.operator), np.zeros(len(matrix)) if offset is None else offset
        out, alive = np.empty((len(points.z), len(matrix))), np.empty(len(points.z), dtype=bool)
        room = np.empty((3, len(matrix)))
        limit = _AGAIN * len(self.rows)
        across = np.ascontiguousarray(matrix.T)
        words = signs.view(np.uint64)
        _walk(_near_order(points.z), points.z, words, self.rows, across, bias, limit, room, out, alive)

        r = np.hypot(own, bias) * UP
        size = np.hypot(norms(points.z), 1.0) * UP
        steep = float(np.hypot.reduce(self.rows[:, :2], axis=None)) * UP
        whole = float(np.hypot.reduce(self.rows, axis=None)) * UP
        before = (points.e2 * steep + self.spread * size) * UP
        # 2 roundings for each of the terms of M, and some for M (x, y, 1)
        rounding = gamma(2 * (limit + len(self.rows)) + 16) * np.hypot(whole * size, 1.0) * UP
        c = np.where(alive, (before + rounding) * UP, 0.0)  # where all are dead the bias is the value
        frobenius = length(r)
        e2 = c * frobenius
        if tight:
            e2 = np.minimum(e2, before * min(frobenius, spectral_of(self.layer.operator)) + rounding * frobenius)
        return Tracked(out, c, np.where(c == 0, 0.0, e2 * UP + len(r) * ENTRY_FLOOR), r)


def _near_order(z: FloatArray) -> IntArray:
    """The points ``(V, 2)`` in the order of Hilbert's curve: the next one is near."""
    if len(z) == 0:
        return np.zeros(0, dtype=np.int64)
    low, size = z.min(axis=0), np.ptp(z, axis=0)
    bits = min(_BITS, len(z).bit_length() // 2 + 2)
    x, y = ((z - low) * ((2**bits - 1) / np.where(size > 0, size, 1.0))).astype(np.int64).T
    place = np.zeros(len(z), dtype=np.int64)
    for side in (1 << np.arange(bits))[::-1].tolist():  # of four squares, which one, and how the curve lies in it
        right, upper = (x & side) > 0, (y & side) > 0
        place = 4 * place + np.where(upper, 1 + right, 3 * right)
        turned = right & ~upper
        x, y = (np.where(turned, side - 1 - (k & (side - 1)), k & (side - 1)) for k in (x, y))
        x, y = np.where(upper, x, y), np.where(upper, y, x)
    return np.argsort(place)


@sums
def _walk(
    order: Any, z: Any, words: Any, rows: Any, W: Any, bias: Any, limit: int, M: Any, out: Any, alive: Any
) -> None:
    """``out[v] = M (x, y, 1)`` for the vertices in ``order``, with ``M (3, n)`` updated from one to the next.

    ``words (V, w)`` holds eight signs a word, one a byte: 01 positive, 00 and ff not; padding is positive everywhere.
    ``W (m, n)`` is the next layer's matrix, transposed. Invariant: ``M = [0, 0, bias] + sum W_i F_i`` over the neurons
    that are positive at the vertex ``last``, ``active`` in number, made of at most ``limit + m`` terms.
    """
    m, n = W.shape
    steps, last, active = limit + 1, 0, 0
    for v in order:
        anew = steps > limit
        if anew:
            steps, active = 0, 0
            for j in range(n):
                M[0, j] = M[1, j] = 0.0
                M[2, j] = bias[j]
        for k in range(words.shape[1]):
            w, p = words[v, k], words[last, k]
            on = w & ~(w >> np.uint64(1)) & _ONES
            change = on if anew else on ^ (p & ~(p >> np.uint64(1)) & _ONES)
            i = 8 * k
            while change and i < m:
                if change & np.uint64(1):
                    f = 1.0 if on & np.uint64(1) else -1.0
                    a, b, c = f * rows[i, 0], f * rows[i, 1], f * rows[i, 2]
                    for j in range(n):
                        M[0, j] += a * W[i, j]
                        M[1, j] += b * W[i, j]
                        M[2, j] += c * W[i, j]
                    active += 1 if f > 0.0 else -1
                    steps += 1
                change >>= np.uint64(8)
                on >>= np.uint64(8)
                i += 1
        last, alive[v] = v, active > 0
        x, y = z[v, 0], z[v, 1]
        for j in range(n):
            out[v, j] = M[0, j] * x + M[1, j] * y + M[2, j] if active > 0 else bias[j]
