"""Many small smooth problems minimised side by side: limited-memory BFGS with a line search of its own for each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fiberscope.numerics.cutoffs import CURVATURE, GRADIENT
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import ENDLESS, Run

Objective = Callable[[FloatArray, np.ndarray], tuple[FloatArray, FloatArray]]
"""From points ``(n, d)`` and the numbers ``(n,)`` of their problems to values ``(n,)`` and gradients ``(n, d)``."""

MEMORY = 10
"""Pairs of steps and gradients that the inverse Hessian is made of."""

HALVINGS = 25
"""Trials of a line search."""

SUFFICIENT = 1e-4
"""Part of the decrease that the slope promises which a step must reach (Armijo)."""


@dataclass(frozen=True, slots=True, eq=False)
class Minima:
    """Where the problems ended."""

    points: FloatArray = field(repr=False)
    values: FloatArray = field(repr=False)
    gradients: FloatArray = field(repr=False)
    """``(n,)``: norms of the gradients."""
    converged: np.ndarray = field(repr=False)
    """``(n,)``: gradient small beside the value; elsewhere the steps ran out, or no step went down (a kink)."""
    steps: int


def minimise(objective: Objective, start: FloatArray, steps: int = 300, run: Run = ENDLESS) -> Minima:
    """Never returns a value above that of the start.

    Reference: Liu and Nocedal, *On the limited memory BFGS method for large scale optimization*, 1989; the two loops
    run over all problems at once.

    >>> found = minimise(lambda w, rows: (((w - rows[:, None]) ** 2).sum(1), 2 * (w - rows[:, None])), np.zeros((3, 2)))
    >>> found.points.round(6).tolist(), found.converged.all().item()
    ([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], True)
    """
    points = np.array(start, dtype=np.float64)
    everyone = np.arange(len(points))
    values, gradients = objective(points, everyone)
    history: deque[tuple[FloatArray, FloatArray, FloatArray]] = deque(maxlen=MEMORY)
    stuck = np.zeros(len(points), dtype=bool)
    done = 0
    for done in range(1, steps + 1):
        active = np.flatnonzero(~stuck & ~_small(values, gradients))
        run.step(done - 1, steps, f"{len(active)} problems left")
        if len(active) == 0:
            break
        direction = _direction(gradients, history, active)
        slope = np.einsum("ij,ij->i", direction, gradients[active])
        uphill = ~(slope < 0)
        direction[uphill] = -gradients[active[uphill]]
        slope[uphill] = -np.einsum("ij,ij->i", gradients[active[uphill]], gradients[active[uphill]])
        first = (
            1.0 / np.maximum(1.0, np.linalg.norm(gradients[active], axis=1)) if not history else np.ones(len(active))
        )
        before, old = points.copy(), gradients.copy()
        gone = _line_search(objective, points, values, gradients, (active, direction, slope, first))
        stuck[active[~gone]] = True
        moved, turned = points - before, gradients - old
        history.append((moved, turned, _weights(moved, turned)))
    norms = np.linalg.norm(gradients, axis=1)
    return Minima(points, values, norms, _small(values, gradients), done)


def _small(values: FloatArray, gradients: FloatArray) -> np.ndarray:
    return np.asarray(np.linalg.norm(gradients, axis=1) <= GRADIENT * np.maximum(1.0, np.abs(values)))


def _weights(moved: FloatArray, turned: FloatArray) -> FloatArray:
    """``1 / s^T y``, or 0 where the curvature is not positive and the pair is left out."""
    product = np.einsum("ij,ij->i", moved, turned)
    floor = CURVATURE * np.linalg.norm(moved, axis=1) * np.linalg.norm(turned, axis=1)
    return np.asarray(np.divide(1.0, product, out=np.zeros_like(product), where=product > floor))


def _direction(
    gradients: FloatArray, history: deque[tuple[FloatArray, FloatArray, FloatArray]], active: np.ndarray
) -> FloatArray:
    """``-H g`` for the active problems."""
    q = gradients[active].copy()
    kept = [(s[active], y[active], r[active]) for s, y, r in history]
    factors = []
    for s, y, r in reversed(kept):
        factor = r * np.einsum("ij,ij->i", s, q)
        q -= factor[:, None] * y
        factors.append(factor)
    scale = np.ones(len(q))
    for _, y, r in kept:  # the newest pair with positive curvature sets the scale
        square = np.einsum("ij,ij->i", y, y)
        scale = np.where(r > 0, np.divide(1.0, r * square, out=np.ones_like(r), where=r * square > 0), scale)
    q *= scale[:, None]
    for (s, y, r), factor in zip(kept, reversed(factors), strict=True):
        q += (factor - r * np.einsum("ij,ij->i", y, q))[:, None] * s
    return np.asarray(-q)


def _line_search(
    objective: Objective,
    points: FloatArray,
    values: FloatArray,
    gradients: FloatArray,
    search: tuple[np.ndarray, FloatArray, FloatArray, FloatArray],
) -> np.ndarray:
    """Halve each step until it goes down enough; writes what it finds and says which problems moved."""
    active, direction, slope, length = search
    waiting = np.arange(len(active))
    length = length.copy()
    gone = np.zeros(len(active), dtype=bool)
    for _ in range(HALVINGS):
        rows = active[waiting]
        trial = points[rows] + length[waiting, None] * direction[waiting]
        value, gradient = objective(trial, rows)
        # NaN and infinity are no decrease.
        good = value <= values[rows] + SUFFICIENT * length[waiting] * slope[waiting]
        chosen = rows[good]
        points[chosen], values[chosen], gradients[chosen] = trial[good], value[good], gradient[good]
        gone[waiting[good]] = True
        waiting = waiting[~good]
        length[waiting] /= 2
        if len(waiting) == 0:
            break
    return gone
