"""How far apart the fixed parts hold the neurons, and the inputs: the gaps and the rates that are predicted for
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from fiberscope.neurons.projected import ProjectedLayer
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result

BLOCK_BYTES = 1 << 25
"""Memory of the distances that are held at once."""


@dataclass(frozen=True, slots=True)
class Gap(Result):
    """A smallest displacement over all transpositions, where it is attained, and its predicted order of growth.

    ``rate`` is the expression inside ``Theta``: its constant is not known, so it is compared across widths, not with
    ``value``.
    """

    value: float
    pair: tuple[int, int] | None
    rate: float


def gap_out(layer: ProjectedLayer) -> Gap:
    """``gamma_out = sqrt(2) min |v_i - v_j|`` and the rate ``sigma sqrt(k) m^(-2/k)`` of Theorem C.12.

    ``sigma`` is the root mean square of all entries of ``F``, zeros included: where only a share ``p`` of them is
    fixed, the theorem's constant holds ``sqrt(2p - p^2)``.
    """
    value, pair = nearest(layer.centers)
    m, k = len(layer), layer.rank
    return Gap(float(np.sqrt(2.0)) * value, pair, _scale(layer) * float(np.sqrt(k)) * m ** (-2 / k))


def gap_in(layer: ProjectedLayer) -> Gap:
    """``gamma_in = min |F_b - F_a| |U_b - U_a|`` over columns and rows, and ``sigma sqrt(m) min |U_a - U_b|``
    (Theorem C.15).
    """
    value, pair, closest = np.inf, None, np.inf
    for start, stop in blocks(len(layer.basis)):
        diagonal = np.arange(stop - start), np.arange(start, stop)
        rows = cdist(layer.basis[start:stop], layer.basis)
        moves = cdist(layer.fixed.T[start:stop], layer.fixed.T) * rows
        rows[diagonal] = moves[diagonal] = np.inf
        closest = min(closest, float(rows.min(initial=np.inf)))
        at = np.unravel_index(int(np.argmin(moves)), moves.shape)
        if not moves[at] >= value:  # argmin finds NaN first; it must not pass for a gap
            value, pair = float(moves[at]), (int(at[0]) + start, int(at[1]))
    rate = _scale(layer) * float(np.sqrt(len(layer))) * closest if pair else np.inf
    return Gap(value, pair, rate)


def nearest(points: FloatArray) -> tuple[float, tuple[int, int] | None]:
    """Smallest distance between two of the points ``(n, k)`` and where; infinite for fewer than two.

    >>> nearest(np.array([[0.0], [3.0], [5.0]]))
    (2.0, (1, 2))
    """
    value, pair = np.inf, None
    for start, stop in blocks(len(points)):
        distances = cdist(points[start:stop], points)
        distances[np.arange(stop - start), np.arange(start, stop)] = np.inf
        at = np.unravel_index(int(np.argmin(distances)), distances.shape)
        if not distances[at] >= value:  # as above
            value, pair = float(distances[at]), (int(at[0]) + start, int(at[1]))
    return value, pair


def blocks(size: int) -> Iterator[tuple[int, int]]:
    """Rows of a ``size x size`` table, as many as fit into the memory."""
    step = max(1, BLOCK_BYTES // (8 * max(1, size)))
    for start in range(0, size, step):
        yield start, min(start + step, size)


def _scale(layer: ProjectedLayer) -> float:
    return float(np.sqrt(np.mean(layer.fixed**2)))
