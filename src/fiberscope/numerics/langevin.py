"""Draws from ``exp(-U)`` by Langevin's method, several chains at once, with or without the correction of Metropolis.

A move goes half a step down the gradient and adds noise: ``u' = u - (h/2) grad U(u) + sqrt(h) xi``. Taken as it is
(SGLD, where the gradient may be that of a part of the data) the draws are those of a slightly wrong distribution: of a
Gaussian with precision ``a`` the variance comes out as ``1 / (a (1 - h a / 4))``. With the correction (MALA) moves are
refused so that nothing is wrong but the number of draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fiberscope.numerics.cutoffs import ACCEPTED
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import ENDLESS, Run

SCALES = 100.0
"""Ratio of the largest to the smallest step of a corrected chain."""

Potential = Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]
"""From positions ``(chains, size)`` to ``U``, its gradients, and a number that is recorded, each for every chain."""


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """What was recorded and how far from the start squared, ``(chains, draws)``; accepted moves, and the step used."""

    recorded: FloatArray
    distances: FloatArray
    acceptance: float
    step: float


def langevin(
    potential: Potential,
    start: FloatArray,
    *,
    draws: int,
    burn_in: int,
    step: float,
    adjusted: bool,
    rng: np.random.Generator,
    run: Run = ENDLESS,
) -> Draws:
    """Chains from ``start``, ``(chains, size)``; with the correction the step is adapted while they burn in.

    A standard Gaussian in three dimensions has ``E |u|^2 = 3``:

    >>> def gauss(u):
    ...     lengths = (u**2).sum(axis=1)
    ...     return lengths / 2, u, lengths
    >>> found = langevin(gauss, np.zeros((50, 3)), draws=200, burn_in=50, step=0.5, adjusted=True,
    ...                  rng=np.random.default_rng(0))
    >>> bool(abs(found.recorded.mean() - 3) < 0.2)
    True
    """
    at, total = start.copy(), burn_in + draws
    value, slope, told = potential(at)
    recorded, distances = np.empty((len(start), draws)), np.empty((len(start), draws))
    taken = 0.0
    for k in range(total):
        run.step(k, total, "draws")
        noise = rng.normal(size=at.shape)
        # Narrow and wide places want different steps: one is drawn for every move, whatever the place.
        h = step * SCALES ** -rng.random((len(at), 1)) if adjusted else np.full((len(at), 1), step)
        with np.errstate(over="ignore", invalid="ignore"):
            to = at - h / 2 * slope + np.sqrt(h) * noise
            there, back, seen = potential(to)
            # The logarithm of the chance to come back, over that to go there.
            return_way = ((at - to + h / 2 * back) ** 2).sum(axis=1)
            gain = value - there + (noise**2).sum(axis=1) / 2 - return_way / (2 * h[:, 0])
        if adjusted:
            chance = rng.random(len(at))
            # What is not a number is refused.
            accept = np.log(chance) < gain
        else:
            accept = np.ones(len(at), dtype=bool)
        at, slope = np.where(accept[:, None], to, at), np.where(accept[:, None], back, slope)
        value, told = np.where(accept, there, value), np.where(accept, seen, told)
        if k >= burn_in:
            recorded[:, k - burn_in] = told
            distances[:, k - burn_in] = ((at - start) ** 2).sum(axis=1)
            taken += accept.mean()
        elif adjusted:
            share = float(np.exp(np.minimum(0.0, np.nan_to_num(gain, nan=-np.inf))).mean())
            step *= float(np.exp((share - ACCEPTED) / np.sqrt(1 + k / 8)))
    return Draws(recorded, distances, taken / draws, step)


def between_and_within(recorded: FloatArray) -> float:
    """Ratio of the deviation of all draws to that within halves of chains; near 1 where chains have met.

    A. Gelman, D. B. Rubin: Inference from iterative simulation using multiple sequences. Statist. Sci. 7, 1992.

    >>> between_and_within(np.array([[0.0, 1.0, 0.0, 1.0], [9.0, 8.0, 9.0, 8.0]])) > 5
    True
    """
    half = recorded.shape[1] // 2
    parts = np.concatenate([recorded[:, :half], recorded[:, half : 2 * half]])
    within = float(parts.var(axis=1, ddof=1).mean()) if half > 1 else 0.0
    between = float(parts.mean(axis=1).var(ddof=1))
    if within == 0:
        return 1.0 if between == 0 else float("inf")
    return float(np.sqrt((half - 1) / half + between / within))
