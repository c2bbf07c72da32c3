"""Which points, and which way of polishing, sharpen the parameters that a search has found."""

from __future__ import annotations

import numpy as np

from fiberscope.numerics.cutoffs import CRUDE, WELL_KNOWN
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.recovery.isolation import isolated, looked_at_again
from fiberscope.recovery.polish import Parameters, damped, forward, polish, polish_at_once, standard_error, weighty
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.telling import draw_telling
from fiberscope.run import Run

DENSE, AT_ONCE = 700, 5000
"""Parameters up to which all are polished together, and up to which that is done with one Jacobian.

Beyond, the first layer is measured again and then fixed.
"""

FRESH = 1.1
"""Points per parameter that are asked for it."""

POINTS = 2.5
"""Equations per parameter that polishing uses, of those that were asked."""

POINTS_CRUDE = 8.0
"""The same where values are noisy: errors fall with the root of their number."""

CONFIDENT = 10.0
"""Standard errors that a parameter is said to be known to."""

ASKED_AGAIN = 4
"""Times that more is asked where values are noisy and a parameter is not well known."""

CANDIDATES = 2000
"""Points of which those are asked that tell most about the parameters, and as many near those that were asked."""

NEAR = (0.003, 0.01, 0.03)
"""How near, in parts of the place."""

AGAIN, LATEST = 3000, 300
"""Points that were asked, of which those are used again that tell most: so many random ones, and the latest."""

WEIGHED = 2000
"""Parameters up to which these are looked for."""


def sharpened(pool: Pool, theta: Parameters, slope: float) -> tuple[Parameters, float | None]:
    """Polished parameters, and how well they are known where all were polished together and are not too many."""
    oracle, rng = pool.oracle, pool.rng
    count = sum(a.size for a in theta)
    large = count > DENSE
    alone = isolated(oracle, pool.place, theta) if large and len(theta) == 4 and not slope else None
    if alone is not None:
        return alone, None
    if large and count <= AT_ONCE:
        return together(pool, theta, slope), None
    if large:
        theta = looked_at_again(oracle, pool.place, theta, rng, slope)
        count -= theta[0].size + theta[1].size
    most = int((POINTS if oracle.noise <= CRUDE else POINTS_CRUDE) * count / oracle.outputs) + 50
    known = hidden(theta, slope)
    X, Y = oracle.log()
    if len(X) > most:
        pick = telling(theta, X, most, rng, slope)
        X, Y = X[pick], Y[pick]
    need = int(FRESH * count / oracle.outputs) + 50 if large else CANDIDATES
    noise, accuracy = oracle.noise * oracle.scale, None
    for _ in range(1 if large or oracle.noise <= CRUDE else ASKED_AGAIN):
        more = draw_telling(pool.place, known, rng, need)
        if not large:  # what those points say least about is asked
            more = np.concatenate([more, near_asked(pool)])
            more = more[weighty(theta, X, more, most // 3, slope)]
        X, Y = np.concatenate([X, more]), np.concatenate([Y, oracle.values(more)])
        theta = polish(theta, X, Y, pool.run, int(large), slope, noise)
        accuracy = None if large else CONFIDENT * standard_error(theta, X, Y, slope, noise)
        if accuracy is not None and accuracy <= WELL_KNOWN:
            break
    return theta, accuracy


def hidden(theta: Parameters, slope: float) -> Prefix:
    """The hidden layers, with their signs."""
    return Prefix(tuple(theta[:-2:2]), tuple(theta[1:-2:2]), slope, True)


def together(pool: Pool, theta: Parameters, slope: float) -> Parameters:
    """Many parameters polished at once, on fresh points and some of those that were asked."""
    oracle, count = pool.oracle, sum(a.size for a in theta)
    X, Y = oracle.log()
    pick = telling(theta, X, min(len(X), count // oracle.outputs), pool.rng, slope)
    need, known = int(FRESH * count / oracle.outputs), hidden(theta, slope)
    fresh = draw_telling(pool.place, known, pool.rng, need)
    if count <= WEIGHED:  # half of them those that tell most; and of those that were asked, too
        more = np.concatenate([draw_telling(pool.place, known, pool.rng, CANDIDATES), near_asked(pool)])
        fresh = np.concatenate([fresh[: need - need // 2], more[weighty(theta, X[pick], more, need // 2, slope)]])
        rest = np.setdiff1d(pool.rng.permutation(len(X))[:AGAIN], pick)
        rest = np.union1d(rest, np.arange(max(len(X) - LATEST, 0), len(X)))  # the last were asked for a single weight
        told = weighty(theta, np.concatenate([X[pick], fresh]), X[rest], min(need // 4, len(rest)), slope)
        pick = np.union1d(pick, rest[told])
    X, Y = np.concatenate([X[pick], fresh]), np.concatenate([Y[pick], oracle.values(fresh)])
    return polish_at_once(theta, X, Y, pool.run, slope, oracle.noise * oracle.scale)


def near_asked(pool: Pool) -> FloatArray:
    """Points near those that were asked: many of these lie where rare neurons are on, which random ones seldom do."""
    place, rng, (X, _) = pool.place, pool.rng, pool.oracle.log()
    steps = rng.normal(size=(CANDIDATES, X.shape[1])) * (place.high - place.low) * rng.choice(NEAR, (CANDIDATES, 1))
    return place.pulled(place.clip(X[rng.integers(len(X), size=CANDIDATES)] + steps))


def freed(pool: Pool, known: Parameters, coefficients: FloatArray,
          at: tuple[FloatArray, FloatArray] | None = None) -> tuple[Parameters, FloatArray]:  # fmt: skip
    """Layers ``known`` and outputs over ``(|z|, a, 1)``, polished together before the signs of the last one are known.

    Noisy rows are too wrong to tell them. ``at`` are points and values, else some are taken that were asked.
    """
    oracle = pool.oracle
    X, Y = at or oracle.log()
    count = int(POINTS_CRUDE * (sum(a.size for a in known) + coefficients.size))
    pick = telling([*known, coefficients[: len(known[-1])].T, coefficients[-1]], X, count, pool.rng, 0.0)
    return fit_freely(known, coefficients, X[pick], Y[pick], pool.run, 0, oracle.noise * oracle.scale)[:2]


def fit_freely(known: Parameters, coefficients: FloatArray, X: FloatArray, Y: FloatArray, run: Run, fixed: int,
               goal: float, sizes: FloatArray | None = None) -> tuple[Parameters, FloatArray, float]:  # fmt: skip
    """The same at the points ``X``, the first ``fixed`` layers staying as they are; and the size of the residuals.

    ``|z| = 2 relu(z) - z``, so that the outputs are those of a network with one more neuron for each of them, which is
    always on and adds what is linear in ``a``.
    """
    *before, W, b = known
    n, u, constant = len(W), coefficients[: len(W)].T, coefficients[-1]
    q = coefficients[n:-1].T - u @ W
    lift = np.abs(forward([*before, q, np.zeros(len(q))], X)[0]).max(axis=0) * 2 + 1.0
    theta = [*before, np.concatenate([W, q]), np.concatenate([b, lift]),
             np.concatenate([2 * u, np.eye(len(q))], axis=1), constant - u @ b - lift]  # fmt: skip
    theta, size = damped(theta, X, Y, run, fixed, 0.0, goal, sizes)
    *before, both, offsets, out, constant = theta
    u, more = out[:, :n] / 2, out[:, n:]
    q, constant = more @ both[n:] + u @ both[:n], constant + more @ offsets[n:] + u @ offsets[:n]
    return [*before, both[:n], offsets[:n]], np.concatenate([u.T, q.T, constant[None]]), size


def telling(theta: Parameters, X: FloatArray, count: int, rng: np.random.Generator,
            slope: float) -> IntArray:  # fmt: skip
    """Points for polishing: random ones, and for every neuron some on the side that is rarer."""
    _, activations = forward(theta, X, slope)
    order = rng.permutation(len(X))
    chosen = [order[:count]]
    for a in activations[1:-1]:
        on = a[order] > 0
        rarer = np.where(on.mean(axis=0) > 0.5, ~on, on)
        chosen += [order[np.flatnonzero(side)[: 2 * a.shape[1]]] for side in rarer.T]
    return np.unique(np.concatenate(chosen))
