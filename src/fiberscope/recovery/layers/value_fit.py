"""The last hidden layer from values alone, where these are noisy: neurons are fitted, not followed.

Behind a layer that is known with its signs the outputs are ``sum_j u_j |n_j a + c_j| + q a + k`` in its activations
``a``: one hidden layer, whose neurons least squares find from anywhere near, and often from nowhere (Levenberg and
Marquardt), with a few neurons more than there are. Neurons that the others make up for are left out, new ones are begun
where the outputs are not explained, and more values are asked there. Whether the fit succeeded is told by the residual.

A neuron that is on, or off, at few of the points may have been fitted to the values there, whatever it is. So more are
asked on its rarer side, also with inputs on that were off there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fiberscope.numerics.cutoffs import NOT_ZERO, REGRESSION, VALUES_MET
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.recovery.layers.bent_surfaces import Equations, Row
from fiberscope.recovery.layers.later_layers import Layer
from fiberscope.recovery.layers.output_fit import least_squares
from fiberscope.recovery.layers.sides import told_sides, usual_sizes
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.sharpening import fit_freely
from fiberscope.recovery.telling import draw_telling

POINTS, MORE = 12, 1.4
"""Points for each parameter, and neurons that are fitted for each of those that are wanted."""

TURNS, KEPT = 12, 0.85
"""Fits that are begun, each with the best neurons of the one before: so many, in parts of those that are wanted."""

DRAWN = 20
"""Hyperplanes that are drawn for each one that is taken."""

WORST, BESIDE, NEAR = 10, 20, (0.003, 0.01, 0.03)
"""Points that are explained worst, how many are asked beside each, and how near, in parts of the place."""

NEEDED, CHEAPEST, ALIKE = 1e-2, 4, 1.5
"""Neurons without which residuals were this part of the values, with all other rows unchanged, are needed unless there
are too many; of so many of the others one is left out if after a further fit residuals are larger by less than the last
factor. Two that stand for one may each be worth much beside the noise."""

SUPPORT, SUPPORT_EACH = 3.0, 4
"""Points for each coefficient of a neuron that are asked on either side of its hyperplane, and those of them at which
each of its inputs must be on."""

RARE = 0.25
"""Neurons of which more points are on the rarer side are supported."""

SLIGHTLY = 1e-3
"""How little neurons are on that were off, in parts of usual preactivations."""

PEAK = 30.0
"""How much larger than usual no residual is where no neuron is missing."""


@dataclass(frozen=True, eq=False)
class ValueFit:
    """Neurons ``rows`` ``(k, n + 1)`` behind ``known`` layers, fitted to the values ``Y`` at ``X``.

    ``features`` are ``(a, 1)`` at these points, and ``sizes`` how large values are there about: small where activations
    are usual. ``off`` is the size of the residuals in parts of them, and of the outputs.
    """

    pool: Pool
    known: Prefix
    X: FloatArray
    Y: FloatArray
    rows: FloatArray
    off: float = np.inf

    @cached_property
    def features(self) -> FloatArray:
        return self.known.features(self.X)

    @cached_property
    def sizes(self) -> FloatArray:
        a = self.features[:, :-1]
        return np.asarray(1 + (a / usual_sizes(a)).max(axis=1))

    def columns(self) -> FloatArray:
        """What the outputs are linear in, in parts of the sizes."""
        B = self.features
        return np.asarray(np.column_stack([np.abs(B @ self.rows.T), B]) / self.sizes[:, None])

    def left(self) -> FloatArray:
        """What linear outputs do not explain, in the same parts."""
        A, Y = self.columns(), self.Y / self.sizes[:, None]
        return np.asarray(Y - A @ least_squares(A, Y))

    def fitted(self, goal: float = 0.0) -> ValueFit:
        """The same after a fit of all neurons together, which may end where residuals are as small as ``goal``."""
        A, Y = self.columns(), self.Y / self.sizes[:, None]
        layers = [a for pair in zip(self.known.weights, self.known.biases, strict=True) for a in pair]
        theta = [*layers, self.rows[:, :-1], self.rows[:, -1]]
        scale = float(np.sqrt((Y**2).mean()))
        theta, _, off = fit_freely(theta, least_squares(A, Y), self.X, self.Y, self.pool.run, len(layers) // 2,
                                   max(goal, self.pool.oracle.noise) * scale, self.sizes)  # fmt: skip
        rows = np.column_stack(theta[-2:])
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), NOT_ZERO)
        return replace(self, rows=rows, off=off / scale)

    def costs(self) -> FloatArray:
        """By how much the size of the residuals would grow without each of the neurons, all others unchanged."""
        A, Y = self.columns(), self.Y / self.sizes[:, None]
        scale = np.maximum(np.linalg.norm(A, axis=0), NOT_ZERO)
        inverse = np.linalg.pinv((A / scale).T @ (A / scale), rcond=REGRESSION, hermitian=True)
        x = (least_squares(A, Y) * scale[:, None])[: len(self.rows)]
        lost = (x**2).sum(axis=1) / np.maximum(np.diag(inverse)[: len(self.rows)], NOT_ZERO)
        return np.asarray(np.sqrt(lost / max(float((self.left() ** 2).sum()), NOT_ZERO)))

    def with_rows(self, rows: FloatArray) -> ValueFit:
        return replace(self, rows=rows, off=np.inf)

    def begun(self, count: int) -> ValueFit:
        """The same with new neurons, which switch where much is left over and explain as much as possible of it."""
        rng, B, left = self.pool.rng, self.features, self.left()
        share = (left**2).sum(axis=1) + NOT_ZERO
        at = B[rng.choice(len(B), DRAWN * count, p=share / share.sum())]
        drawn = rng.normal(size=at.shape) / np.append(usual_sizes(B[:, :-1]), 1.0)
        drawn -= at * ((drawn * at).sum(axis=1) / (at * at).sum(axis=1))[:, None]
        basis, _ = np.linalg.qr(self.columns())
        new = np.abs(B @ drawn.T) / self.sizes[:, None]
        new -= basis @ (basis.T @ new)
        told = ((new.T @ left) ** 2).sum(axis=1) / np.maximum((new**2).sum(axis=0), NOT_ZERO)
        rows = drawn[np.argsort(-told)[:count]]
        return self.with_rows(np.concatenate([self.rows, rows / np.linalg.norm(rows, axis=1, keepdims=True)]))

    def asked(self, X: FloatArray) -> ValueFit:
        """The same with more values."""
        Y = self.pool.oracle.values(X)
        return replace(self, X=np.concatenate([self.X, X]), Y=np.concatenate([self.Y, Y]), off=np.inf)

    def near(self, chosen: IntArray, count: int) -> FloatArray:
        """Points near some of those that were asked."""
        place, rng = self.pool.place, self.pool.rng
        steps = rng.normal(size=(count, self.X.shape[1])) * rng.choice(NEAR, (count, 1))
        return place.held(self.X[rng.choice(chosen, count)] + steps * (place.high - place.low))

    def switched(self, chosen: IntArray, i: int, count: int) -> FloatArray:
        """Some of those points, moved to where neuron ``i`` of the known layer is on, by little or much."""
        rng, z = self.pool.rng, self.known.preactivations(self.X)[0]
        pick, back = rng.choice(chosen, count), np.linalg.pinv(self.known.weights[0])[:, i]
        goal = np.exp(rng.uniform(np.log(SLIGHTLY), 0.0, count)) * usual_sizes(z)[i]
        return self.pool.place.held(self.X[pick] + np.outer(goal - z[pick, i], back))

    def worst(self) -> FloatArray:
        """Points near those that are explained worst."""
        return self.near(np.argsort(-np.abs(self.left()).max(axis=1))[:WORST], BESIDE * WORST)

    def unsupported(self) -> FloatArray:
        """Points that are asked on the side of neurons where too few were, and with inputs on that were off at most.

        A neuron could be fitted to as many values as it has coefficients, whatever these are, and has any coefficient
        for an input that is off wherever it switches.
        """
        need, B, found = int(SUPPORT * self.rows.shape[1]), self.features, [np.zeros((0, self.X.shape[1]))]
        for row, on in zip(self.rows, (B @ self.rows.T > 0).T, strict=True):
            side = 2 * on.sum() <= len(on)
            at = np.flatnonzero(on == side)
            if not len(at) or len(at) > RARE * len(on):
                continue
            off = np.flatnonzero((B[at, :-1] > 0).sum(axis=0) < SUPPORT_EACH)
            drawn = [(self.switched(at, int(i), DRAWN), SUPPORT_EACH) for i in off]
            drawn += [(self.near(at, DRAWN * need), need)] if len(at) < need else []
            for X, most in drawn:
                same = (self.known.features(X) @ row > 0) == side
                found += [X[same][:most], X[~same][: most // 2]]
        return np.concatenate(found)

    def even(self) -> bool:
        """Whether no point is explained much worse than others."""
        off = np.abs(self.left()).max(axis=1)
        return bool(off.max() <= PEAK * np.sqrt((off**2).mean()))

    def thinned(self, width: int) -> ValueFit:
        """Without the neurons that others make up for."""
        now, least = self, self.off
        while len(now.rows) > 1:
            costs = now.costs()
            enough = len(costs) <= width
            if enough and costs.min() * now.off > NEEDED:
                break
            goal = max(ALIKE * least, VALUES_MET / 10)
            for i in np.argsort(costs)[: CHEAPEST // 2 if enough else CHEAPEST]:
                fewer = now.with_rows(np.delete(now.rows, i, axis=0)).fitted(goal)
                if fewer.off <= goal:
                    break
            else:
                break
            now = fewer
        return now


def layer_from_values(pool: Pool, prefix: Prefix, width: int) -> Layer | None:
    """The ``width`` neurons behind a first layer, and its signs; None where no fit explains the values."""
    known = told_sides(pool, prefix)
    if known is None:
        return None
    features = known.num_features
    X = draw_telling(pool.place, known, pool.rng, POINTS * width * features)
    fit = ValueFit(pool, known, X, pool.oracle.values(X), np.zeros((0, features)))
    for _ in range(TURNS):
        fit = fit.begun(max(int(MORE * width), width + 1) - len(fit.rows)).fitted()
        pool.run.step(pool.oracle.spent, pool.oracle.limit, f"layer 2: values to {fit.off:.0e}")
        more = fit.worst()
        if fit.off <= VALUES_MET:
            fit = fit.thinned(width)
            few = fit.unsupported()
            if len(fit.rows) <= width and fit.even() and not len(few):
                break
            more = few if len(few) else more
        whole = fit.off <= VALUES_MET and len(fit.rows) <= width
        kept = np.argsort(-fit.costs())[: width if whole else int(KEPT * width)]
        fit = fit.with_rows(fit.rows[kept]).asked(more)
    fit = fit.fitted()
    if not fit.off <= VALUES_MET or len(fit.rows) > width:
        return None
    signs = np.sign((known.weights[0] * prefix.weights[0]).sum(axis=1))
    rows = [Row(Equations(np.eye(features), row)) for row in fit.rows]
    return Layer(rows, signs=signs, points=(fit.X, fit.Y))
