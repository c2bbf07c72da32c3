"""Looking for the largest difference of two networks on a box: samples, corners, and steps along gradients, batched."""

from __future__ import annotations

import numpy as np

from fiberscope.equality.question import Question
from fiberscope.equality.refutation import difference, excess
from fiberscope.geometry.domains import Box
from fiberscope.network.network import Network
from fiberscope.network.walk import backward, traced
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.floats import FloatArray

STARTS = 48
"""Points that climb at the same time."""

STEPS = 40
"""Steps of a climb; their length falls from a quarter of the box to almost nothing."""

_LOOK = 2048
"""Points of the first look."""


def slopes(net: Network, points: FloatArray, directions: FloatArray) -> FloatArray:
    """Gradients of ``directions . net`` at points, ``(points, in_size)``; ``directions`` is ``(points, out_size)``.

    >>> net = Network([[[2.0]]], [[0.0]])
    >>> slopes(net, np.ones((1, 1)), np.ones((1, 1)))
    array([[2.]])
    """
    journey = traced(net.layout, points, FLOAT)
    result = np.zeros_like(points)
    for at in backward(net.layout, journey.choices, {len(net.nodes): directions}, FLOAT):
        if at.value == 0:
            result = np.asarray(at.delta)
    return result


def aims(question: Question, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights of the outputs of ``a`` and ``b`` whose sum shall grow at points; so that a counterexample comes near."""
    a, b = question.a(points), question.b(points)
    rows = np.arange(len(points))
    left, right = np.zeros_like(a), np.zeros_like(b)
    if question.margin is None:
        worst = np.abs(a - b).argmax(axis=1)
        left[rows, worst] = np.where(a[rows, worst] >= b[rows, worst], 1.0, -1.0)
        return left, -left
    own = a.argmax(axis=1)
    rest = b.copy()
    rest[rows, own] = -np.inf
    rival = rest.argmax(axis=1)
    # what is further from being true comes first: the class of a by its margin, or the rival's in b
    lead = a[rows, own] - np.where(np.arange(a.shape[1]) == own[:, None], -np.inf, a).max(axis=1) - (question.margin)
    weak = lead < b[rows, rival] - b[rows, own]
    left[rows, own], left[rows, rival] = weak, -1.0 * weak
    right[rows, rival], right[rows, own] = ~weak, -1.0 * ~weak
    return left, right


def climb(question: Question, box: Box, starts: FloatArray, steps: int = STEPS) -> tuple[FloatArray, FloatArray]:
    """The best points found from the starts, and what :func:`excess` gives there."""
    width = box.high * 0.5 - box.low * 0.5
    best, value = starts.copy(), excess(question, starts)
    for k in range(steps):
        if question.run.is_over:
            break
        length = 0.5 * 0.8**k
        with np.errstate(over="ignore", invalid="ignore"):
            left, right = aims(question, best)
            uphill = slopes(question.a, best, left) + slopes(question.b, best, right)
            size = np.abs(uphill).max(axis=1, keepdims=True)
            share = np.sign(uphill) if k % 2 else uphill / np.where(size > 0, size, 1.0)
            tried = np.clip(best + length * width * share, box.low, box.high)
        tried = np.where(np.isfinite(tried), tried, best)
        values = excess(question, tried)
        better = values > value
        best[better], value[better] = tried[better], values[better]
    return best, value


def first_look(question: Question, box: Box, count: int = _LOOK) -> FloatArray:
    """Points from the most promising one on: random ones and corners, and the best of them improved."""
    points = box.sample(count, question.rng)
    gaps = excess(question, points)
    starts = points[np.argsort(-gaps, kind="stable")[:STARTS]]
    best, value = climb(question, box, starts)
    found = best[np.argsort(-value, kind="stable")]
    difference(question, found[:1])
    return found
