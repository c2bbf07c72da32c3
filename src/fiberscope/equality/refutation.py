"""Looking for inputs at which two networks differ: the most promising of some points, confirmed in exact arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fiberscope.equality.counterexample import Counterexample, confirmed, products
from fiberscope.equality.evidence import Check
from fiberscope.equality.verdict import Verdict, answered
from fiberscope.numerics.cutoffs import ROUGH
from fiberscope.numerics.floats import FloatArray

if TYPE_CHECKING:
    from fiberscope.equality.question import Question

POINTS = 256
"""Random inputs of a first look."""

CONFIRM = 4
"""How many of the best are evaluated exactly."""

COVER = 48
"""Exact evaluations in search of a difference that floats do not show."""

_CHUNK = 1024
"""Points that are evaluated between two looks at the clock."""

_EXACT = 30_000_000
"""Products up to which a network is evaluated exactly, which takes about a second per million."""


def different(question: Question, method: str, example: Counterexample, reason: str = "") -> Verdict:
    """The verdict of a counterexample."""
    what = "outputs" if question.margin is None else "classes"
    text = reason or f"the {what} at x differ in exact arithmetic"
    if question.tolerance is None and question.margin is None:
        text += f", by more than a few units of {question.rounding.precision} in every stored parameter explain"
    return answered(question, method, example, Check(True, text))


def refuted(question: Question, points: FloatArray, method: str) -> Verdict | None:
    """The verdict at one of the points at which the two differ most, if it is confirmed."""
    points = points[question.place.contains(points)]
    if not len(points):
        return None
    gaps = excess(question, points)
    if not small_enough(question):
        question.notes.append("too large to be evaluated in exact arithmetic")
        return None
    order = promising(gaps, CONFIRM)
    for i in order:
        if hopeless(question, float(gaps[i])) or question.seconds_left < 0:
            break
        example = confirmed(question, points[i])
        if example is not None:
            return different(question, f"refutation ({method})", example)
    return None


def hopeless(question: Question, gap: float) -> bool:
    """Whether floats show clearly that a point is no counterexample, by what :func:`excess` gives there."""
    if question.margin is not None:
        return gap < 0
    return question.tolerance is not None and question.tolerance > 0 and gap < 0.99 * question.tolerance


def promising(gaps: FloatArray, count: int) -> list[int]:
    """The largest finite differences first, then those that floats do not tell, as many of each."""
    known = np.isfinite(gaps)
    best = np.flatnonzero(known)[np.argsort(-gaps[known], kind="stable")][:count]
    return [*best.tolist(), *np.flatnonzero(~known)[:count].tolist()]


def difference(question: Question, points: FloatArray) -> FloatArray:
    """Largest difference of an output, in floats; infinite where floats do not tell it."""
    if not len(points):
        return np.zeros(0)
    found: list[FloatArray] = []
    with np.errstate(over="ignore", invalid="ignore"):
        for part in np.array_split(points, -(-len(points) // _CHUNK)):
            if found:
                question.run.check()
            found.append(np.abs(question.a(part) - question.b(part)).max(axis=1))
    gaps = np.concatenate(found)
    question.record.see(points, gaps)
    return np.where(np.isfinite(gaps), gaps, np.inf)


def excess(question: Question, points: FloatArray) -> FloatArray:
    """What a counterexample needs much of: the largest difference of an output, or how clearly the classes differ."""
    if question.margin is None or not len(points):
        return difference(question, points)
    found: list[FloatArray] = []
    with np.errstate(over="ignore", invalid="ignore"):
        for part in np.array_split(points, -(-len(points) // _CHUNK)):
            if found:
                question.run.check()
            a, b = question.a(part), question.b(part)
            question.record.see(part, np.abs(a - b).max(axis=1))
            rows, own = np.arange(len(part)), a.argmax(axis=1)
            rest, others = a.copy(), b.copy()
            rest[rows, own] = others[rows, own] = -np.inf
            beaten = others.max(axis=1) - b[rows, own]
            near = np.abs(beaten) <= ROUGH * np.abs(b).max(axis=1)  # too close for floats, and worth a look
            beaten = np.where(near, np.maximum(beaten, 0.0), beaten)
            found.append(np.minimum(a[rows, own] - rest.max(axis=1) - question.margin, beaten))
    scores = np.concatenate(found)
    return np.where(np.isfinite(scores), scores, np.inf)


def small_enough(question: Question, most: int = _EXACT) -> bool:
    """Whether the two can be evaluated exactly in reasonable time."""
    return max(products(question.a), products(question.b)) <= most


def covering(question: Question, points: FloatArray) -> list[int]:
    """A few of the points that together switch on every neuron of both networks that any of them does."""
    signs = [z > 0 for net in (question.a, question.b) for z in net.preactivations(points)]
    if not signs:
        return []
    active = np.concatenate(signs, axis=1)
    order: list[int] = []
    missing = active.any(axis=0)
    while missing.any() and len(order) < COVER:
        best = int((active & missing).sum(axis=1).argmax())
        order.append(best)
        missing &= ~active[best]
    return order
