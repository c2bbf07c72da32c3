"""Curves of a latent space on their way through a generator: images of plane curves, and enclosures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.geometry.curves.breakpoints import Breaks
from fiberscope.geometry.curves.curve import Circle, Path, Planar, Polyline
from fiberscope.geometry.measures import ellipse_arcs
from fiberscope.network.network import Network
from fiberscope.network.walk import choices_of, output
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.algebra.floating import FLOAT_ROWS
from fiberscope.numerics.floats import TINY, FloatArray, IntArray, U, gamma, round_up
from fiberscope.numerics.smooth_functions import LIBRARY

_ROWS = 1 << 22
"""Numbers of images that are held at a time."""


class PlanarImage:
    """The image of a circle or tractrix under a piecewise linear network; lengths in floats.

    Between two breakpoints it is an affine image of the plane curve, so that its speed is the square root of a
    quadratic form of the plane curve's velocity.
    """

    def __init__(self, net: Network, path: Planar, breaks: Breaks) -> None:
        self.net, self.path = net, path
        low, high = path.interval
        self.marks = np.concatenate([[low], breaks.t[: len(breaks.t) - breaks.closes], [high]])
        self.grams = np.empty((len(self.marks) - 1, 2, 2))
        step = max(1, _ROWS // (3 * net.out_size))
        for start in range(0, len(self.grams), step):
            rows = self.axes(np.arange(start, min(start + step, len(self.grams))))
            self.grams[start : start + step] = rows @ rows.swapaxes(1, 2)
        parts = self._length(np.arange(len(self.grams)), self.marks[1:])
        self.before = np.concatenate([[0.0], np.cumsum(parts)])

    def axes(self, pieces: IntArray) -> FloatArray:
        """Images of the plane's two axes on some pieces, ``(pieces, 2, n)``."""
        signs = self.net.signs(self.path((self.marks[pieces] + self.marks[pieces + 1]) / 2)).signs
        rows = np.concatenate([self.path.axes, self.path.center[None]])
        start = np.repeat(rows[None], len(pieces), axis=0)
        return np.asarray(output(self.net.layout, start, FLOAT_ROWS, choices_of(self.net.layout, signs))[:, :2])

    def _piece(self, t: FloatArray) -> IntArray:
        return np.clip(np.searchsorted(self.marks, t, side="right") - 1, 0, len(self.grams) - 1)

    def derivative(self, t: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("pk,pkn->pn", self.path.flat_derivative(t), self.axes(self._piece(t))))

    def arc_length(self, t: FloatArray) -> FloatArray:
        piece = self._piece(t)
        return np.asarray(self.before[piece] + self._length(piece, t))

    def _length(self, piece: IntArray, t: FloatArray) -> FloatArray:
        """From the start of pieces to parameters of theirs."""
        if isinstance(self.path, Circle):
            return ellipse_arcs(self.grams[piece], self.marks[piece], t)
        direction = np.linalg.eigh(self.grams[piece])[1]
        # the speed may vanish at the cusp and where the velocity has the direction that is shortened most
        x, y = direction[:, 0, 0], direction[:, 1, 0]
        shortest = np.arcsinh(np.clip(-x / np.where(np.abs(y) > TINY, y, TINY), -(2.0**500), 2.0**500))
        return np.array(
            [
                self._by_quadrature(int(p), self.marks[p], end, (0.0, turn))
                for p, end, turn in zip(piece.tolist(), t.tolist(), shortest.tolist(), strict=True)
            ]
        )

    def _by_quadrature(self, piece: int, start: float, end: float, turns: tuple[float, float]) -> float:
        def speed(t: float) -> float:
            velocity = self.path.flat_derivative(np.array([t]))[0]
            return float(np.sqrt(max(velocity @ self.grams[piece] @ velocity, 0.0)))

        marks = sorted({start, end, *(x for x in turns if start < x < end)})
        return float(sum(scipy.integrate.quad(speed, a, b)[0] for a, b in pairwise(marks)))


@dataclass(frozen=True, slots=True)
class LatentEnclosure:
    """A latent curve of several smooth pieces; ``edges (pieces + 1,)`` are the parameters between them.

    ``at(piece, middle, radius)`` gives the values at parameters ``middle`` of pieces, and enclosures of the derivative
    on all parameters within ``radius``. ``slack`` is how far the ends of the curve may be from the given floats.
    """

    edges: FloatArray
    at: Callable[[IntArray, FloatArray, FloatArray], tuple[Bounded, Bounded]]
    slack: float


def latent_enclosure(path: Path) -> LatentEnclosure | None:
    """Of segments, polylines, circles and tractrices; an interpolant has none."""
    if isinstance(path, Polyline):
        return LatentEnclosure(np.arange(len(path.points), dtype=np.float64), _straight(path), 0.0)
    if isinstance(path, Planar):
        low, high = path.interval
        slack = 8 * U * (max(abs(low), abs(high)) + 8)
        return LatentEnclosure(np.array([low, high]), _planar(path, slack), slack)
    return None


def _straight(path: Polyline) -> Callable[[IntArray, FloatArray, FloatArray], tuple[Bounded, Bounded]]:
    def at(piece: IntArray, middle: FloatArray, radius: FloatArray) -> tuple[Bounded, Bounded]:
        a, b = path.points[piece], path.points[piece + 1]
        s = (middle - piece)[:, None]
        way = b - a
        slope = Bounded(way, np.asarray(round_up(gamma(1) * np.abs(way), 1)))
        # the local parameter of a long chain is rounded as well: by units of the whole parameter
        size = np.abs(a) + np.abs(s) * np.abs(way) + np.abs(middle)[:, None] * np.abs(way)
        return Bounded(a + s * way, np.asarray(round_up(gamma(4) * size, 4))), slope

    return at


def _planar(path: Planar, slack: float) -> Callable[[IntArray, FloatArray, FloatArray], tuple[Bounded, Bounded]]:
    """Both coordinates of the unit curves have a second derivative of at most 1."""
    size = np.abs(path.axes).sum(axis=0)

    def at(piece: IntArray, middle: FloatArray, radius: FloatArray) -> tuple[Bounded, Bounded]:
        wide = (4 + np.abs(middle)) * LIBRARY
        value = path.center + path.flat(middle) @ path.axes
        terms = np.abs(path.center) + (2 + np.abs(middle))[:, None] * size
        slip = (wide + 2 * slack)[:, None] * size + gamma(4) * terms
        slope = path.flat_derivative(middle) @ path.axes
        spread = (wide + radius + slack)[:, None] * size + gamma(4) * 2 * size
        return Bounded(value, np.asarray(round_up(slip, 4))), Bounded(slope, np.asarray(round_up(spread, 4)))

    return at
