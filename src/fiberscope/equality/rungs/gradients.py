"""Inequality by inputs that are improved along the gradient of the difference, which is linear around each."""

from __future__ import annotations

import numpy as np

from fiberscope.equality.counterexample import Counterexample
from fiberscope.equality.question import Question
from fiberscope.equality.refutation import CONFIRM, POINTS, difference, promising, refuted
from fiberscope.equality.verdict import Rung, Verdict
from fiberscope.geometry.domains import Box, Orthant, Polytope, Space
from fiberscope.network.network import Network
from fiberscope.network.walk import affine_values
from fiberscope.numerics.algebra.floating import FLOAT_ROWS
from fiberscope.numerics.floats import FloatArray, SignArray

_STEPS = (0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.003, 0.001)
"""Lengths of the steps along gradients, relative to the domain."""


def by_gradients(question: Question) -> Verdict | None:
    """The search, from the best random inputs."""
    points = question.place.sample(4 * POINTS, question.rng)
    best = points[promising(difference(question, points), CONFIRM)[:CONFIRM]]
    improved = [climb(question, x) for x in best if question.seconds_left > 0]
    return refuted(question, np.array(improved), "inputs improved along gradients") if improved else None


def climb(question: Question, x: FloatArray) -> FloatArray:
    """Steps along the gradient of the output that differs most, as long as the difference grows."""
    best, value = x, difference(question, x[None])[0]
    for step in _STEPS:
        if question.run.is_over:
            break
        with np.errstate(over="ignore", invalid="ignore"):
            gap = (question.a(best[None]) - question.b(best[None]))[0]
            k = int(np.abs(gap).argmax())
            slopes = _gradient(question.a, best, k) - _gradient(question.b, best, k)
        tried = _moved(question.place, best, slopes * (1.0 if gap[k] >= 0 else -1.0), step)
        values = difference(question, tried)
        if values.max() > value:
            best, value = tried[values.argmax()], float(values.max())
        if not np.isfinite(value):
            break
    return best


def _gradient(net: Network, x: FloatArray, k: int) -> FloatArray:
    parts = net.preactivations(x[None])
    signs: SignArray = np.sign(np.concatenate(parts, axis=1)[0]).astype(np.int8) if parts else np.zeros(0, np.int8)
    return np.asarray(affine_values(net.layout, net.in_size, signs, FLOAT_ROWS)[-1][:-1, k])


def _moved(place: Box | Orthant | Space | Polytope, x: FloatArray, gradient: FloatArray, step: float) -> FloatArray:
    """Points of the domain along a gradient; ``x`` itself where there is none, as with slopes beyond the floats."""
    size = float(np.abs(gradient).max())
    if size == 0:
        return x[None]
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(place, Box):
            width = place.high - place.low
            tries = [x + step * width * np.sign(gradient), x + step * width * gradient / size]
            found = np.clip(np.array(tries), place.low, place.high)
        else:
            reach = max(1.0, float(np.abs(x).max()))
            found = np.array([x + step * reach * gradient / size, x + 4 * step * reach * gradient / size])
            found = np.maximum(found, 0.0) if isinstance(place, Orthant) else found
    kept = found[place.contains(found)]
    return kept if len(kept) else x[None]


RUNG: Rung = Rung(by_gradients, (Counterexample,))
