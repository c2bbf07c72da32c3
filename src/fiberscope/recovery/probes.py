"""Local measurements: the gradient at a point, the place of one kink on a short segment."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fiberscope.numerics.cutoffs import ORACLE_CLEAR
from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.recovery.oracle import Oracle

SHRINK, TRIES = 0.25, 6

BESIDE = 2.0**-6
"""Part of a segment, to either side of a kink, at which the two lines are checked."""


@dataclass
class Gradients:
    """Gradients ``(outputs, n)`` by differences; all directions in which none was ever seen are asked at once.

    ``basis`` spans all gradients so far. Behind a narrow first layer its rank stays that of the layer, and a gradient
    costs that many values and three more: the centre, one direction outside the span, and one point that must lie on
    the plane through the others. A direction that was seen as a small part of a gradient is known less well than
    others: where that shows, the span is taken anew from all that were ``seen`` whole, in units of their errors.
    """

    oracle: Oracle
    rng: np.random.Generator
    basis: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    fresh: bool = True
    seen: list[FloatArray] = field(default_factory=list, repr=False)

    def at(self, x: FloatArray, radius: float) -> FloatArray | None:
        """The gradient at ``x``, or None where no ball is found in which the function is affine."""
        n = len(x)
        if not self.basis.size:
            self.basis = np.zeros((n, 0))
        for _ in range(TRIES):
            found = self._affine(x, radius)
            if found is not None:
                return found
            radius *= SHRINK
        return None

    def _affine(self, x: FloatArray, radius: float) -> FloatArray | None:
        n, known = len(x), self.basis.shape[1]
        if self.fresh and known < n:  # the last gradient was new, so this one may be
            self.fresh = False
            return self._full(x, radius)
        out = self._outside(n)
        inner = np.column_stack([self.basis, out]) if out is not None else self.basis
        spread = self.rng.normal(size=inner.shape[1])
        spread /= np.linalg.norm(spread)
        steps = np.column_stack([np.zeros(n), inner, inner @ spread]).T * radius
        if not self.oracle.allowed(x + steps):
            return None
        Y = self.oracle.values(x + steps)
        slopes = (Y[1:-1] - Y[0]) / radius
        error = self._error(Y)
        if np.abs(Y[-1] - Y[0] - radius * (spread @ slopes)).max() > error * (1 + np.abs(spread).sum()):
            return None
        if out is None or np.abs(slopes[known]).max() <= 4 * error / radius:
            return np.asarray((inner @ slopes).T)
        return self._full(x, radius)

    def _error(self, Y: FloatArray) -> float:
        return ORACLE_CLEAR * self.oracle.noise * max(self.oracle.scale, float(np.abs(Y).max()))

    def _outside(self, n: int) -> FloatArray | None:
        """A random unit vector orthogonal to the basis, None if it spans everything."""
        if self.basis.shape[1] >= n:
            return None
        v = self.rng.normal(size=n)
        for _ in range(2):
            v = v - self.basis @ (self.basis.T @ v)
        return np.asarray(v / np.linalg.norm(v))

    def _full(self, x: FloatArray, radius: float) -> FloatArray | None:
        """The same along all coordinates; the span grows by what is new."""
        n = len(x)
        spread = self.rng.normal(size=n)
        spread /= np.linalg.norm(spread)
        points = x + np.concatenate([np.zeros((1, n)), np.eye(n), spread[None]]) * radius
        if not self.oracle.allowed(points):
            return None
        Y = self.oracle.values(points, n < 200)
        slopes, error = (Y[1:-1] - Y[0]) / radius, self._error(Y)
        if np.abs(Y[-1] - Y[0] - radius * (spread @ slopes)).max() > error * (1 + np.abs(spread).sum()):
            return None
        known = self.basis.shape[1]
        for row in slopes.T:
            self.seen.append(row * radius / error)
            left = row - self.basis @ (self.basis.T @ row)
            left = left - self.basis @ (self.basis.T @ left)
            size = np.linalg.norm(left)
            if size > 64 * error / radius * np.sqrt(n):
                self.basis = np.column_stack([self.basis, left / size])
                self.fresh = True
        if 0 < known == self.basis.shape[1] < n:
            self.basis = np.linalg.svd(np.array(self.seen), full_matrices=False)[2][:known].T
        return np.asarray(slopes.T)


def normal_of(before: FloatArray, after: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The unit normal of a kink between two gradients, and the jump of every output along it."""
    jump = after - before
    _, _, V = np.linalg.svd(jump, full_matrices=False)
    return V[0], np.asarray(jump @ V[0])


def locate(oracle: Oracle, x: FloatArray, u: FloatArray, w: float) -> tuple[float, bool] | None:
    """Where on ``x + s u``, ``-w <= s <= w``, the only kink is, and whether the function is flat on one of its sides.

    None if it is not just one kink.
    """
    met = locate_all(oracle, x[None], u, w)
    return (float(met.at[0]), bool(met.flat[0])) if met.found[0] else None


@dataclass(frozen=True)
class Kinks:
    """One entry per segment: whether it has just one kink, where, its jump of slopes, and if one side is flat."""

    found: BoolArray
    at: FloatArray
    jump: FloatArray
    flat: BoolArray


def locate_all(oracle: Oracle, X: FloatArray, u: FloatArray, w: float) -> Kinks:
    """The only kinks on the segments ``x + s u``, ``-w <= s <= w``, for the rows ``x`` of ``X``.

    ``u`` is one direction for all of them, or one for each.

    Six values each: two on either side, and one on either line close to where the lines meet. A value at the meeting
    point alone proves nothing: behind two kinks of opposite signs the lines meet outside of both.
    """
    none = np.zeros(len(X))
    found, flat, at, jump = none > 0, none > 0, none.copy(), none.copy()
    s, U = np.array([-1.0, -0.6, 0.6, 1.0]) * w, np.broadcast_to(u, X.shape)[:, None]
    ask = np.array([k for k, x in enumerate(X) if oracle.allowed(x + s[:, None] * U[k])], dtype=np.int64)
    if not len(ask) or not w > 0:
        return Kinks(found, at, jump, flat)
    f = oracle.along((X[ask, None] + s[:, None] * U[ask]).reshape(-1, X.shape[1])).reshape(-1, 4)
    error = ORACLE_CLEAR * oracle.noise * np.maximum(oracle.scale, np.abs(f).max(axis=1))
    left, right = (f[:, 1] - f[:, 0]) / (s[1] - s[0]), (f[:, 3] - f[:, 2]) / (s[3] - s[2])
    blur = 4 * error / (0.4 * w)
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = (f[:, 0] - left * s[0] - f[:, 3] + right * s[3]) / (right - left)
    one = (np.abs(right - left) > 4 * blur) & (np.abs(meet) < 0.6 * w)
    if one.any():
        beside = meet[one, None] + np.array([-BESIDE, BESIDE]) * w
        lines = np.stack(
            [f[one, 0] + left[one] * (beside[:, 0] - s[0]), f[one, 3] + right[one] * (beside[:, 1] - s[3])]
        )
        values = oracle.along((X[ask[one], None] + beside[:, :, None] * U[ask[one]]).reshape(-1, X.shape[1])).reshape(
            -1, 2
        )
        fits = (np.abs(values - lines.T) <= (2 * error + blur * w)[one, None]).all(axis=1)
        kept = ask[np.flatnonzero(one)[fits]]
        found[kept], at[kept], jump[kept] = True, meet[one][fits], (right - left)[one][fits]
        flat[kept] = (np.minimum(np.abs(left), np.abs(right)) <= blur)[one][fits]
    return Kinks(found, at, jump, flat)
