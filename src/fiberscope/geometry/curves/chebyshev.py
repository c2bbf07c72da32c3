"""Piecewise Chebyshev interpolants of a function to machine precision, and all zeros of a Chebyshev series.

A panel is halved until the last coefficients of its interpolant are down to rounding (L. N. Trefethen, *Approximation
Theory and Approximation Practice*, 2013, chapters 3 and 18). The zeros of a series are eigenvalues of its colleague
matrix (I. J. Good, Quart. J. Math. 12, 1961).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev as cheb

from fiberscope.errors import InputError
from fiberscope.numerics.cutoffs import JUMP, REAL_ROOT, SERIES_TAIL
from fiberscope.numerics.floats import FloatArray, IntArray

NODES = 24
"""Coefficients of a panel."""

_ANGLES = (np.arange(NODES) + 0.5) * np.pi / NODES
_POINTS = np.cos(_ANGLES)
_TO_SERIES = 2.0 / NODES * np.cos(np.outer(np.arange(NODES), _ANGLES))
_TO_SERIES[0] /= 2
_BETWEEN = np.array([-0.97, -0.31, 0.0, 0.43, 0.89])

MOST_PANELS = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class Panels:
    """Series ``(panels, NODES, n)`` between the ``edges``, and the largest distance from the function that was seen."""

    edges: FloatArray
    series: FloatArray
    residual: float

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
        return Panels(self.edges, np.moveaxis(cheb.chebder(self.series, axis=1), 0, 0) * 2 / width, 0.0)


def interpolate(function: Callable[[FloatArray], FloatArray], interval: tuple[float, float]) -> Panels:
    """A piecewise interpolant to machine precision; raises :class:`InputError` where the function is not continuous."""
    lo, hi = interval
    todo, edges, series = [(lo, hi)], [lo], []
    scale, residual = 0.0, 0.0
    while todo:
        a, b = todo.pop()
        middle, half = 0.5 * (a + b), 0.5 * (b - a)
        values = _sampled(function, middle + half * _POINTS)
        own = _TO_SERIES @ values
        scale = max(scale, float(np.abs(own).max()))
        if np.abs(own[-3:]).max() <= SERIES_TAIL * scale:
            apart = np.abs(cheb.chebval(_BETWEEN, own).T - _sampled(function, middle + half * _BETWEEN)).max()
            if apart <= JUMP * scale:
                residual = max(residual, float(apart))
                edges.append(b)
                series.append(own)
                continue
        if not a < middle < b or half < 8 * np.spacing(max(abs(a), abs(b))) or len(series) + len(todo) > MOST_PANELS:
            raise InputError(
                f"function: expected a continuous curve, got a jump or endless wiggles near t = {middle:.12g}"
            )
        todo += [(middle, b), (a, middle)]
    found = Panels(np.array(edges), np.stack(series), max(residual, float(np.finfo(float).eps) * scale))
    _check_joints(found, scale)
    return found


def _check_joints(panels: Panels, scale: float) -> None:
    """Neighbouring panels must meet: a jump between two of them is seen by neither."""
    signs = (-1.0) ** np.arange(NODES)
    ends = panels.series[:-1].sum(axis=1)
    starts = np.einsum("k,pkn->pn", signs, panels.series[1:])
    apart = np.abs(ends - starts).max(axis=1, initial=0.0)
    if len(apart) and apart.max() > JUMP * scale:
        where = float(panels.edges[1 + int(apart.argmax())])
        raise InputError(f"function: expected a continuous curve, got a jump of {apart.max():.3g} at t = {where:.12g}")


def _sampled(function: Callable[[FloatArray], FloatArray], t: FloatArray) -> FloatArray:
    values = function(t)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise InputError(f"function: expected finite points, got {values[bad[0]].tolist()} at t = {t[bad[0]]:.12g}")
    return values


def colleague_roots(series: FloatArray) -> list[FloatArray]:
    """Real zeros in [-1, 1] of every series ``(count, NODES)``, sorted: eigenvalues of colleague matrices.

    Series of one degree go into one batched eigenvalue problem. A pair that rounding split into complex numbers close
    to the axis counts as one double zero.

    >>> [z.round(12).tolist() for z in colleague_roots(np.array([[0.0, 0.0, 1.0]]))]  # T_2 = 2 x^2 - 1
    [[-0.707106781187, 0.707106781187]]
    """
    size = np.abs(series).max(axis=1, keepdims=True)
    kept = np.abs(series) > SERIES_TAIL * size
    degree = np.where(kept.any(axis=1), series.shape[1] - 1 - kept[:, ::-1].argmax(axis=1), 0)
    roots: list[FloatArray] = [np.zeros(0) for _ in series]
    for d in np.unique(degree[degree > 0]).tolist():
        rows = np.flatnonzero(degree == d)
        matrices = np.stack([cheb.chebcompanion(series[i, : d + 1]) for i in rows])
        for i, values in zip(rows.tolist(), np.linalg.eigvals(matrices), strict=True):
            near = (np.abs(values.imag) <= REAL_ROOT) & (np.abs(values.real) <= 1 + REAL_ROOT)
            real = np.sort(values.real[near])
            double = np.append(np.diff(real) <= REAL_ROOT, False) if len(real) else np.zeros(0, dtype=bool)
            roots[i] = np.clip(real[~double], -1.0, 1.0)
    return roots
