"""The constants of Theorems 2 and 3 of the paper on data geometry, and what they are worth.

- ``C_grad = sup_z sup_x E[ ||grad z(x)||^{2k} ]^{1/(2k)}``. The paper has the exponent ``1/k``: when the first
  weights are divided by s, the density falls like ``1/s`` and such a bound like ``1/s^2``, so that it fails for small
  weights.
- ``C_bias``, the supremum of the bias densities.
- ``C_M``, the norm of the projection onto the tangent space: 1, whatever the manifold.
- ``C_{M,kappa}``. The paper takes it from volumes of geodesic balls, with constants that it does not determine. On a
  curve a ball is an interval, the polynomial is ``zeta (1 - 2 zeta)``, and its supremum is 1/8 at 1/4. The same number
  holds on **every** manifold, point by point. A way within the manifold is not shorter than the distance in space, and
  that is not below the distance to the boundary of the region of x, the least of ``|z(x)| / ||grad z(x)||``. Given all
  but the bias of z, ``P(|z| <= e ||grad z||) <= 2 e ||grad z|| C_bias``; summed, ``P(d <= e) <= 2 e N C_grad C_bias``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from fiberscope.geometry.expectation.density import check_question
from fiberscope.geometry.expectation.ensemble import Ensemble
from fiberscope.geometry.expectation.manifolds import Manifold, tangent_sample
from fiberscope.network.network import Seed
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result
from fiberscope.run import ENDLESS, Progress, Run

DISTANCE_CONSTANT = 1 / 8
"""``C_{M,kappa}`` by Markov's inequality, as in the paper: the maximum of ``zeta (1 - 2 zeta)``."""

SHARP_DISTANCE_CONSTANT = 1 / 4
"""The same by integrating ``P(distance > e)`` instead of Markov's inequality: ``int (1 - 2 zeta)`` from 0 to 1/2."""

_POINTS = 8
"""Points of the manifold at which moments of gradients are compared."""

SAMPLES = 2000
"""Networks that are drawn at each of them by default, and at most at a time."""


@dataclass(frozen=True, slots=True)
class Constants(Result):
    """Estimates for one ensemble on one manifold.

    ``gradient`` is ``C_grad`` with its standard error, ``gradient_paper`` the same moment with the paper's exponent,
    ``bias`` is ``C_bias``, ``manifold`` is ``C_M`` as measured, ``curvature`` is ``C_{M,kappa}``, the same
    for all of them. ``projected`` is the mean length of the gradients projected onto the tangent
    space, ``full`` that of the whole gradients: their quotient is what a manifold really does to gradients, on average.
    """

    gradient: float
    gradient_error: float
    gradient_paper: float
    bias: float
    manifold: float
    curvature: float
    projected: float
    full: float


def theory_constants(
    ensemble: Ensemble,
    manifold: Manifold,
    k: int = 1,
    *,
    samples: int = SAMPLES,
    seed: Seed = 0,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Constants:
    """Estimate the constants; neurons of one layer are exchangeable, so that their moments are averaged.

    ``progress(done, total, text)`` is called now and then; after ``time_limit`` seconds there is an ``OutOfTimeError``.

    >>> from fiberscope.geometry.domains import Box
    >>> found = theory_constants(Ensemble.of((2, 50, 1)), Box.cube(2))
    >>> abs(found.gradient - 2**0.5) < 0.01, found.manifold, found.bias.__round__(3)
    (True, 1.0, 0.399)
    """
    return constants_within(ensemble, manifold, k, samples, seed, Run.begin(progress, time_limit))


def constants_within(ensemble: Ensemble, manifold: Manifold, k: int, samples: int, seed: Seed, run: Run) -> Constants:
    """:func:`theory_constants` as a part of a longer run."""
    check_question(ensemble, manifold, k, samples)
    rng = np.random.default_rng(seed)
    best = (0.0, 0.0)
    lengths, shadows, norms = [], [], []
    for done in range(_POINTS):
        at = tangent_sample(manifold, rng, 1)
        norms.append(float(np.linalg.norm(at.frames[0], 2)))
        parts = []
        for start in range(0, samples, SAMPLES):
            run.step(done * samples + start, _POINTS * samples, "gradients")
            own = min(SAMPLES, samples - start)
            parts.append([_moments(g, at.frames[0], k) for g in gradients_at(ensemble, at.points[0], rng, own, run)])
        for layer in zip(*parts, strict=True):
            moment, length, shadow = np.concatenate(layer, axis=1)
            best = max(best, (float(moment.mean()), float(moment.std(ddof=1)) / sqrt(samples)))
            lengths.append(float(length.mean()))
            shadows.append(float(shadow.mean()))
    moment, error = best
    root = moment ** (1 / (2 * k))
    slack = root * error / (2 * k * moment) if moment > 0 else 0.0
    return Constants(
        root,
        slack,
        moment ** (1 / k),
        max([law.peak for law in ensemble.biases[:-1]], default=0.0),
        max(norms),
        DISTANCE_CONSTANT,
        float(np.mean(shadows)) if shadows else 0.0,
        float(np.mean(lengths)) if lengths else 0.0,
    )


def _moments(gradients: FloatArray, frame: FloatArray, k: int) -> FloatArray:
    """For every network the mean over a layer of ``|g|^(2k)``, ``|g|`` and the length of the projected gradient."""
    length = np.linalg.norm(gradients, axis=1)  # (networks, neurons)
    shadow = np.linalg.norm(frame @ gradients, axis=1)
    return np.stack([x.mean(axis=1) for x in (length ** (2 * k), length, shadow)])


def gradients_at(
    ensemble: Ensemble, x: FloatArray, rng: np.random.Generator, count: int, run: Run = ENDLESS
) -> list[FloatArray]:
    """Gradients of all neurons of random networks at a point, ``(count, n, width)`` per hidden layer."""
    a = np.broadcast_to(x, (count, 1, len(x)))
    G = np.broadcast_to(np.eye(len(x)), (count, len(x), len(x)))
    found = []
    for W, b in ensemble.batch(rng, count)[:-1]:
        run.check()
        back = W.transpose(0, 2, 1)
        z = a @ back + b[:, None, :]
        slopes = G @ back
        found.append(slopes)
        a, G = np.maximum(z, 0.0), slopes * (z > 0)
    return found
