"""Piecewise Chebyshev interpolants of a function, as exact as its values are.

A panel is halved until the last coefficients of its interpolant are down to the noise of the values (L. N. Trefethen,
*Approximation Theory and Approximation Practice*, 2013, chapters 3 and 18). That noise is measured: on stretches so
short that a smooth function has only a few coefficients, what the high ones hold is rounding, of float64, of float32,
or of a parameter that a steep function magnifies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev as cheb

from fiberscope.errors import InputError
from fiberscope.numerics.cutoffs import JUMP, NOISY, SERIES_TAIL
from fiberscope.numerics.floats import FloatArray, IntArray, U

NODES = 24
"""Coefficients of a panel."""


def _cosines(parts: IntArray) -> FloatArray:
    """``cos(pi parts / (2 NODES))``, of the angle's rest in the first quarter: large ones would be rounded."""
    turn = np.abs((parts + 2 * NODES) % (4 * NODES) - 2 * NODES)  # between 0 and pi
    rest = np.minimum(turn, 2 * NODES - turn)
    unit = np.pi / (2 * NODES)
    found = np.where(rest * 2 <= NODES, np.cos(rest * unit), np.sin((NODES - rest) * unit))
    return np.asarray(np.where(turn == rest, found, -found))


_ODD = 2 * np.arange(NODES) + 1
_POINTS = _cosines(_ODD)
_TO_SERIES = 2.0 / NODES * _cosines(np.outer(np.arange(NODES), _ODD))
_TO_SERIES[0] /= 2
_BETWEEN = _cosines(2 * np.arange(NODES + 1))  # the middles of all gaps, and the ends: no corner hides between nodes
_BASIS = cheb.chebvander(_BETWEEN, NODES - 1)

MOST_PANELS = 1 << 14

_PROBES = 32
"""Stretches on which the noise is measured; the few largest are left out, they may hold corners or jumps."""

_LEFT_OUT = 3

_STRETCH = 2.0**-12
"""Their length, as a part of the interval."""

_FEW = 16
"""Coefficients that a smooth function has on one of them."""

_ABOVE = 16
"""Interpolants between their nodes are off by so many times the noise at most: the Lebesgue constant is below 4."""


@dataclass(frozen=True, slots=True, eq=False)
class Panels:
    """Series ``(panels, NODES, n)`` between the ``edges``.

    ``off`` ``(panels,)`` estimates the largest distance of every coordinate from the function: three times what was
    seen between the nodes, the last coefficients, the noise, and the gaps to the neighbours.
    """

    edges: FloatArray
    series: FloatArray
    off: FloatArray

    @property
    def residual(self) -> float:
        """The largest of all."""
        return float(self.off.max())

    def local(self, t: FloatArray) -> tuple[IntArray, FloatArray]:
        """The panel of every parameter and the place in it, between -1 and 1."""
        index = np.clip(np.searchsorted(self.edges, t, side="right") - 1, 0, len(self.series) - 1)
        return index, self.within(index, t)

    def within(self, index: IntArray, t: FloatArray) -> FloatArray:
        """The place of parameters in given panels."""
        a, b = self.edges[index], self.edges[index + 1]
        return np.asarray(np.clip(((t - a) - (b - t)) / (b - a), -1.0, 1.0))

    def values(self, index: IntArray, s: FloatArray) -> FloatArray:
        """Values ``(len(s), n)`` at places ``s`` of given panels."""
        basis = cheb.chebvander(s, self.series.shape[1] - 1)
        return np.asarray(np.einsum("pk,pkn->pn", basis, self.series[index]))

    def derivative(self) -> Panels:
        """The interpolant's derivative."""
        width = (self.edges[1:] - self.edges[:-1])[:, None, None]
        return Panels(self.edges, cheb.chebder(self.series, axis=1) * 2 / width, np.zeros(len(self.off)))


Batched = Callable[[FloatArray], FloatArray]


def interpolate(function: Batched, interval: tuple[float, float]) -> Panels:
    """A piecewise interpolant to the noise of the values; raises :class:`InputError` where the function jumps."""
    low, high = interval
    noise = _noise(function, interval)
    scale, done = 0.0, _Done()
    a, b = np.array([low]), np.array([high])
    while len(a):
        middle, half = 0.5 * (a + b), 0.5 * (b - a)
        values = _sampled(function, middle[:, None] + half[:, None] * _POINTS)
        own = np.einsum("kj,pjn->pkn", _TO_SERIES, values)
        scale = max(scale, float(np.abs(own).max()))
        between = _sampled(function, middle[:, None] + half[:, None] * _BETWEEN)
        apart = np.abs(np.einsum("jk,pkn->pjn", _BASIS, own) - between).max(axis=(1, 2))
        tail = np.abs(own[:, -3:]).max(axis=(1, 2))
        rough = SERIES_TAIL * scale
        fine = (tail <= max(rough, 2 * noise)) & (apart <= max(_ABOVE * rough, _ABOVE * noise))
        least = np.maximum(8 * np.spacing(np.maximum(np.abs(a), np.abs(b))), U * (high - low) / 8)
        short = ~((a < middle) & (middle < b)) | (half < least)
        allowed = max(JUMP * scale, 4 * _ABOVE * noise)
        jumps = np.flatnonzero(short & ~fine & ~(np.maximum(apart, tail) <= allowed))
        fine |= short
        more = np.flatnonzero(~fine)
        if len(jumps) or done.count + 2 * len(more) > MOST_PANELS:
            bad = int(jumps[0] if len(jumps) else more[0])
            seen = np.concatenate([values[bad], between[bad]])
            what = f"a jump of {np.ptp(seen, axis=0).max():.3g}" if len(jumps) else "endless wiggles"
            raise InputError(f"function: expected a continuous curve, got {what} near t = {middle[bad]:.12g}")
        # Between a node and the middle of a gap a corner may be three times as far off.
        off = 3 * apart + 4 * np.abs(own[:, -3:]).sum(axis=1).max(axis=1) + 2 * noise
        done.add(a[fine], b[fine], own[fine], (off + 8 * U * np.abs(own).sum(axis=1).max(axis=1))[fine])
        a, b = np.stack([a[more], middle[more]]).T.reshape(-1), np.stack([middle[more], b[more]]).T.reshape(-1)
    return done.panels(max(JUMP * scale, 4 * _ABOVE * noise))


class _Done:
    """Panels that are finished, in any order."""

    def __init__(self) -> None:
        self.parts: list[tuple[FloatArray, ...]] = []
        self.count = 0

    def add(self, *arrays: FloatArray) -> None:
        self.parts.append(arrays)
        self.count += len(arrays[0])

    def panels(self, allowed: float) -> Panels:
        """In order; a jump between neighbours is seen by neither of them."""
        a, b, series, off = (np.concatenate(x) for x in zip(*self.parts, strict=True))
        order = np.argsort(a)
        a, b, series, off = a[order], b[order], series[order], off[order]
        signs = (-1.0) ** np.arange(NODES)
        gap = np.abs(series[:-1].sum(axis=1) - np.einsum("k,pkn->pn", signs, series[1:])).max(axis=1, initial=0.0)
        if len(gap) and not gap.max() <= allowed:
            size, where = float(gap.max()), float(b[int(gap.argmax())])
            raise InputError(f"function: expected a continuous curve, got a jump of {size:.3g} at t = {where:.12g}")
        off[:-1], off[1:] = np.maximum(off[:-1], gap), np.maximum(off[1:], gap)
        return Panels(np.append(a, b[-1]), series, off)


def _noise(function: Batched, interval: tuple[float, float]) -> float:
    """How far values are off a smooth function, as measured on short stretches."""
    low, high = interval
    width = (high - low) * _STRETCH
    starts = low + (high - low - width) * ((np.arange(_PROBES) + 0.5) / _PROBES)
    values = _sampled(function, starts[:, None] + 0.5 * width * (1 + _POINTS))
    own = np.einsum("kj,pjn->pkn", _TO_SERIES, values)
    own[:, :_FEW] = 0.0
    rest = np.einsum("jk,pkn->pjn", cheb.chebvander(_POINTS, NODES - 1), own)
    noise = 2 * float(np.sort(np.abs(rest).max(axis=(1, 2)))[-1 - _LEFT_OUT])
    if not noise <= NOISY * float(np.abs(values).max()):
        raise InputError(f"function: expected a continuous curve, got values that jump by about {noise:.2g} everywhere")
    return noise


def _sampled(function: Batched, t: FloatArray) -> FloatArray:
    """Values ``(panels, nodes, n)`` at parameters ``(panels, nodes)``."""
    flat = t.reshape(-1)
    values = function(flat)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise InputError(f"function: expected finite points, got {values[bad[0]].tolist()} at t = {flat[bad[0]]:.12g}")
    return values.reshape(*t.shape, -1)
