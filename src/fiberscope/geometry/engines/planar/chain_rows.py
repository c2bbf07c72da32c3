"""Rows of all pieces of a chain at once, in pairs of floats, for the decisions that floats leave open by hundreds.

Behind some twenty layers the bounds of floats leave most signs open. One functional by itself is composed from the
first layer on; here the rows of every piece in front of a switch come from those of the piece that it was cut from, in
front of the switch before: one product for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import flint
import numpy as np

from fiberscope.geometry.engines.planar.exact import BITS, balls
from fiberscope.network.nodes import Affine
from fiberscope.numerics.algebra import float_pairs as pairs
from fiberscope.numerics.algebra.twofold import TwofoldAlgebra
from fiberscope.numerics.compensated import Twofold
from fiberscope.numerics.floats import TINY, FloatArray, IntArray, SignArray, U, round_up
from fiberscope.numerics.points import Triple

ALONE = 1 << 19
"""Multiplications of a product that take as long as one decision by itself."""

MOST = 1 << 25
"""Numbers that all rows may be."""


class Cut(Protocol):
    """A chain cut by an activation: the old piece of every new one, their ends, and the signs on them."""

    parent: IntArray
    new_ends: IntArray

    def piece_signs(self, pieces: IntArray) -> SignArray:
        """``(pieces, num_signs)``."""


class PieceRows:
    """The rows ``(1 - t, t, 1)`` of the functionals of a ReLU chain on all pieces, stage by stage.

    Stage ``k`` is what is in front of activation ``k``; rows ``3 p`` to ``3 p + 2`` are those of its piece ``p``.
    """

    def __init__(self, layers: Sequence[Affine], points: FloatArray) -> None:
        self.layers, self.points = layers, points
        self.algebra = TwofoldAlgebra(every=3)
        self.stages: list[Twofold] = []

    def _first(self) -> Twofold:
        node, points = self.layers[0], self.points
        begin = np.zeros((len(points) - 1, 3, points.shape[1]))
        begin[:, 0], begin[:, 1] = points[:-1], points[1:]
        return self.algebra.affine(node.operator, node.offset, Twofold.exact(begin.reshape(-1, points.shape[1])))

    def is_worth(self, cuts: Sequence[Cut], decisions: int) -> bool:
        """Whether the rows behind all ``cuts`` fit, and those that are not there yet are less work than so many
        decisions one by one."""
        pieces = [len(self.points) - 1, *(len(cut.new_ends) for cut in cuts)]
        sizes = [node.operator.out_size * count for node, count in zip(self.layers, pieces, strict=False)]
        work = [3 * node.operator.in_size * size for node, size in zip(self.layers, sizes, strict=False)]
        return sum(work[len(self.stages) :]) <= ALONE * decisions and 9 * sum(sizes) <= MOST

    def has(self, stage: int) -> bool:
        """Whether the rows in front of a stage are there."""
        return stage < len(self.stages)

    def rows(self, stage: int, cuts: Sequence[Cut]) -> Twofold:
        """The rows in front of a stage, for the ``cuts`` before it."""
        if not self.stages:
            self.stages.append(self._first())
        for k in range(len(self.stages), stage + 1):
            cut, node = cuts[k - 1], self.layers[k]
            active = cut.piece_signs(np.arange(len(cut.new_ends))) > 0
            gate = cut.parent, active[:, : node.operator.in_size]
            self.stages.append(self.algebra.behind(node.operator, node.offset, self.stages[-1], gate))
        return self.stages[stage]

    def line(self, stage: int, cuts: Sequence[Cut], piece: int, j: int) -> Triple:
        """One functional on one piece, in balls."""
        return balls(self.rows(stage, cuts).rows(3 * piece + np.arange(3)), j)

    def signs(
        self,
        stage: int,
        cuts: Sequence[Cut],
        entries: tuple[IntArray, IntArray],
        points: FloatArray,
        at: IntArray,
    ) -> SignArray:
        """Signs of functionals, given by ``(pieces, columns)``, at points; 0 where pairs of floats do not tell.

        ``points`` are the parts of ``(X, Y, W)``, each ``(3, points)``; ``at`` says which one belongs to each entry.
        """
        pieces, columns = entries
        rows, index = self.rows(stage, cuts), 3 * pieces + np.arange(3)[:, None]
        total = Twofold.exact(np.zeros(len(at)))
        with np.errstate(all="ignore"):
            for k in range(3):
                one = Twofold(*(part[index[k], columns] for part in (rows.high, rows.low, rows.error)))
                total = pairs.plus(total, pairs.times(one, Twofold(*points[:, k, at])))
            known = np.abs(total.high) > round_up(np.abs(total.low) + total.error, 2)
        return np.where(known, np.sign(total.high), 0.0).astype(np.int8)


def pair_of(number: Any) -> tuple[float, float, float]:
    """A ball, or an integer, as a pair of floats and a bound of its error.

    >>> pair_of(flint.arb(1) / 3)[0] == 1 / 3, pair_of(1)
    (True, (1.0, 0.0, 0.0))
    """
    if not isinstance(number, flint.arb):
        high = float(int(number))
        low = float(int(number) - int(high))
        return high, low, 0.0 if int(high) + int(low) == int(number) else 2 * U * abs(low)
    with flint.ctx.workprec(BITS):
        middle = number.mid()
        high = float(middle)
        low = float(middle - high)
        rest = float((middle - high - low).abs_upper()) + float(number.rad())
    return high, low, rest * (1 + 8 * U) + TINY
