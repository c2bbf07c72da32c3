"""Single functionals of a ReLU chain along a segment, in pairs of floats.

What a float with its bound leaves open is seldom close to zero in 106 bits. One functional on one piece reads the
active neurons of the layers before it and nothing else: products with parts of matrices, and no matrix in integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiberscope.network.network import Network
from fiberscope.numerics.compensated import Twofold
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray


class NearLines:
    """Functionals as rows of ``1 - t``, ``t`` and 1 on the segments between ``points``; those of layers are kept.

    >>> near = NearLines(Network([[[1.0]], [[1.0]]], [[-1.0], [0.0]]), np.array([[0.0], [4.0]]))
    >>> near.functional([], 0, 0).high.ravel()
    array([ 0.,  4., -1.])
    """

    def __init__(self, net: Network, points: FloatArray) -> None:
        self.layers = net.layout.affine
        self.points = points
        self._known: dict[bytes, tuple[IntArray, Twofold]] = {}

    def functional(self, signs: Sequence[SignArray], segment: int, j: int) -> Twofold:
        """Entry ``j`` behind as many activations as signs are given, ``(3, 1)``."""
        active, value = self._behind(signs, segment)
        return self._times(len(signs), np.array([j]), active, value)

    def _behind(self, signs: Sequence[SignArray], segment: int) -> tuple[IntArray, Twofold]:
        """The active neurons behind the activations, and their rows."""
        if not signs:
            rows = np.concatenate([self.points[segment : segment + 2], np.zeros((1, self.points.shape[1]))])
            return np.arange(rows.shape[1]), Twofold.exact(rows)
        key = segment.to_bytes(8, "little") + b"".join(part.tobytes() for part in signs)
        if key not in self._known:
            active = np.flatnonzero(signs[-1][: self.layers[len(signs) - 1].operator.out_size] > 0)
            found = self._times(len(signs) - 1, active, *self._behind(signs[:-1], segment))
            self._known = {k: v for k, v in self._known.items() if key.startswith(k)} | {key: (active, found)}
        return self._known[key]

    def _times(self, layer: int, rows: IntArray, columns: IntArray, value: Twofold) -> Twofold:
        """Some rows of a layer applied to the neurons that are not zero."""
        node = self.layers[layer]
        matrix = node.operator.dense()
        start = np.zeros((3, len(rows)))
        if node.offset is not None:
            start[2] = node.offset[rows]
        return value.times(np.ascontiguousarray(matrix[np.ix_(rows, columns)].T), start)
