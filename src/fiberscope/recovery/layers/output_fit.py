"""The outputs as a linear function of what is known, and the kinks beside which they are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fiberscope.numerics.cutoffs import (
    FITTED,
    LEAST,
    NOT_ZERO,
    ORACLE_NOISE,
    REGRESSION,
)
from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.recovery.pool import FARTHEST, NEAREST, Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.probes import locate, normal_of
from fiberscope.recovery.telling import draw_telling
from fiberscope.recovery.tilts import tilted

FIT_POINTS = 4000

HALVED = 16
"""How often the way to such a place is halved."""


@dataclass(frozen=True)
class Fit:
    """The outputs as a linear map of features, ``(features, outputs)``.

    ``residual`` says how far it is off at the points ``X``, where the values are ``Y``.
    """

    prefix: Prefix | FreeLayer
    coefficients: FloatArray
    X: FloatArray
    Y: FloatArray
    residual: FloatArray
    tolerance: float

    @property
    def holds(self) -> BoolArray:
        return np.asarray(self.residual <= self.tolerance)

    def off(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """How far the outputs are from the fit."""
        return np.asarray(np.abs(Y - self.prefix.features(X) @ self.coefficients).max(axis=1))


def fit_outputs(pool: Pool, prefix: Prefix | FreeLayer, robust: bool, silent: Sequence[int] = (),
                at: tuple[FloatArray, FloatArray] | None = None) -> Fit:  # fmt: skip
    """The last layer by linear regression on the points that were asked; robustly where neurons are missing.

    ``at`` are points and values that are used instead of those.

    Only points where the neurons ``silent`` of the last layer but one are off are used; there may be none.
    """
    oracle = pool.oracle
    # the log is dense on few lines, so that some fresh points are needed
    need = prefix.num_features * 3 // 2 + 50
    known = prefix.inner if isinstance(prefix, FreeLayer) else prefix
    many = need * 4 ** min(len(silent), 5)
    fresh = _where_off(prefix, draw_telling(pool.place, known, pool.rng, many), silent)
    fresh = fresh[pool.rng.permutation(len(fresh))[:need]]
    X, Y = at or oracle.log()
    if silent:
        kept = _is_off(prefix, X, silent)
        X, Y = X[kept], Y[kept]
    values = oracle.values(fresh)
    if len(X) > FIT_POINTS and at is None:
        pick = pool.rng.choice(len(X), FIT_POINTS, replace=False)
        X, Y = X[pick], Y[pick]
    X, Y = np.concatenate([X, fresh]), np.concatenate([Y, values])
    features = prefix.features(X)
    if not len(X):
        return Fit(prefix, np.zeros((features.shape[1], Y.shape[1])), X, Y, np.zeros(0), 0.0)
    tolerance = FITTED * max(oracle.scale, float(np.abs(Y).max())) * max(1.0, oracle.noise / ORACLE_NOISE) ** 0.5
    least = LEAST * oracle.noise * max(oracle.scale, float(np.abs(Y).max()))
    coefficients = least_squares(features, Y)
    off = np.abs(Y - features @ coefficients).max(axis=1)
    if robust:
        for turn in range(40):
            floor = max(least, float(np.median(off)) * 0.5**turn)
            weights = 1 / np.maximum(off, floor)
            coefficients = least_squares(features * weights[:, None], Y * weights[:, None])
            off = np.abs(Y - features @ coefficients).max(axis=1)
        holds = off <= max(100 * float(np.median(off)), least)
        if holds.sum() > features.shape[1]:
            coefficients = least_squares(features[holds], Y[holds])
            off = np.abs(Y - features @ coefficients).max(axis=1)
    if robust:  # neurons are known better than that, and what is missing may be small
        tolerance = min(tolerance, max(100 * float(np.median(off)), least))
    return Fit(prefix, coefficients, X, Y, off, tolerance)


def _is_off(prefix: Prefix | FreeLayer, X: FloatArray, off: Sequence[int]) -> BoolArray:
    if not off or isinstance(prefix, FreeLayer):
        return np.ones(len(X), dtype=bool)
    return np.asarray((prefix.preactivations(X)[-2][:, list(off)] <= 0).all(axis=1))


def _where_off(prefix: Prefix | FreeLayer, X: FloatArray, off: Sequence[int]) -> FloatArray:
    return X[_is_off(prefix, X, off)]


def least_squares(A: FloatArray, B: FloatArray) -> FloatArray:
    """The solution with columns of one size."""
    scale = np.linalg.norm(A, axis=0)
    scale[scale == 0] = 1.0
    solved, *_ = np.linalg.lstsq(A / scale, B, rcond=REGRESSION)
    return np.asarray(solved / scale[:, None])


@dataclass(frozen=True)
class FreeLayer:
    """Neurons over the features of known layers, before the signs of those are known.

    Its own features are ``(|z|, features of the known layers)``: the outputs are linear in them whatever the signs are.
    """

    inner: Prefix
    matrix: FloatArray

    @property
    def num_features(self) -> int:
        return len(self.matrix) + self.inner.num_features

    def features(self, X: FloatArray) -> FloatArray:
        inner = self.inner.features(X)
        return np.concatenate([np.abs(inner @ self.matrix.T), inner], axis=1)


class Judge(Protocol):
    """What is known so far, as something that values can be compared with."""

    @property
    def tolerance(self) -> float: ...

    def off(self, X: FloatArray, Y: FloatArray) -> FloatArray: ...


def edge(pool: Pool, fit: Judge, good: FloatArray, bad: FloatArray, known: Prefix | None = None) -> (
    tuple[FloatArray, FloatArray] | None
):  # fmt: skip
    """A kink between a point where the fit holds and one where it does not, and its normal.

    None where that is a kink of the neurons ``known``, whose coefficient was not told where the fit was made.
    """
    low, high = 0.0, 1.0
    for _ in range(HALVED):
        middle = (low + high) / 2
        x = (good + middle * (bad - good))[None]
        holds = fit.off(x, pool.oracle.values(x))[0] <= fit.tolerance
        low, high = (middle, high) if holds else (low, middle)
    length = float(np.linalg.norm(bad - good))
    u = (bad - good) / length
    x = good + (low + high) / 2 * (bad - good)
    if known is not None:
        cell = known.cell(known.pattern(x))
        far = np.abs(cell.folds @ x + cell.heights) / np.maximum(np.linalg.norm(cell.folds, axis=1), NOT_ZERO)
        if far.min() <= length * 2.0 ** (1 - HALVED):
            return None
    for w in (1e-2, 1e-3, 1e-1):
        met = locate(pool.oracle, x, u, w * pool.place.size / 10)
        if met is not None:
            break
    else:
        return None
    x = x + met[0] * u
    step = w * pool.place.size / 20
    before, after = (pool.gradients.at(x + s * step * u, step / 4) for s in (-1.0, 1.0))
    if before is None or after is None:
        return None
    n = normal_of(before, after)[0]
    size = pool.place.size
    tilt = tilted(pool.oracle, x, n, NEAREST * size, FARTHEST * size, pool.rng) if pool.crude else None
    return (x, n) if tilt is None else (tilt.x, tilt.n)
