"""Looking for the largest difference of two networks on a box: samples, corners, and steps along gradients, batched."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from fiberscope.equality.question import Question
from fiberscope.equality.refutation import excess
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

_NUMBERS = 200_000
"""Coordinates of all points of the first look: fewer points where there are many inputs."""

_FEW_INPUTS = 32
"""Inputs up to which populations find anything that gradients do not."""

_POPULATION, _GENERATIONS, _RESTARTS, _OUTPUTS = 32, 40, 10, 16
"""Points of a population, how often they breed, how often that is begun anew, and outputs that get populations."""

_RIVALS, _TURNS, _FALSE_POSITIONS = 4, 8, 16
"""Classes that may overtake, gradients on the way to a corner, and steps to where they do on the way there."""

_SECONDS, _SHARE = 2.0, 0.1
"""Time for all looks: seconds of work, and part of what is left."""


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


def crossings(question: Question, box: Box) -> FloatArray:
    """Points where a boundary between classes of ``a`` lies apart from that of ``b``, as every crossing has some.

    From the middle of the box corners are sought where another class is ahead, along gradients. On the way there each
    of the networks leaves the class of the middle somewhere, and between these two places their classes differ.
    """
    middle = np.clip(0.5 * box.low + 0.5 * box.high, box.low, box.high)
    with np.errstate(over="ignore", invalid="ignore"):
        first = question.a(middle[None])[0]
        own = int(first.argmax())
        rivals = np.argsort(-first, kind="stable")
        rivals = rivals[rivals != own][:_RIVALS]
        aim = np.zeros((len(rivals), first.size))
        aim[np.arange(len(rivals)), rivals], aim[:, own] = 1.0, -1.0
        ends, best = np.repeat(middle[None], len(rivals), axis=0), np.full(len(rivals), -np.inf)
        tried = ends
        for _ in range(_TURNS):
            if question.run.is_over:
                break
            uphill = slopes(question.a, tried, aim) + slopes(question.b, tried, aim)
            tried = np.where(uphill >= 0, box.high, box.low)
            value = ((question.a(tried) + question.b(tried)) * aim).sum(axis=1)
            better = value > best
            if not better.any():
                break
            ends[better], best[better] = tried[better], value[better]
        places = [_left(net, middle, ends, own) for net in (question.a, question.b)]
        between = 0.5 * places[0] + 0.5 * places[1]
        points = np.clip(middle + between[:, None] * (ends - middle), box.low, box.high)
    return points[np.isfinite(points).all(axis=1)]


def _left(net: Network, middle: FloatArray, ends: FloatArray, own: int) -> FloatArray:
    """Which parts of the ways from the middle to the ends go by until a network leaves a class; 1 where it stays.

    By false position, whose old end counts half once it has stayed (the Illinois rule): the lead of the class is
    linear in pieces, and most of the ways end in the piece of the middle.
    """

    def lead(share: FloatArray) -> FloatArray:
        values = net(middle + share[:, None] * (ends - middle))
        rest = np.where(np.arange(values.shape[1]) == own, -np.inf, values)
        return np.asarray(values[:, own] - rest.max(axis=1))

    near, far = np.zeros(len(ends)), np.ones(len(ends))
    ahead, behind = lead(near), lead(far)
    found, stays = far.copy(), ~(behind < 0)
    for _ in range(_FALSE_POSITIONS):
        share = near + (far - near) * (ahead / (ahead - behind))
        found = np.where((near < share) & (share < far), share, 0.5 * near + 0.5 * far)
        value = lead(found)
        inside = value > 0
        near, far = np.where(inside, found, near), np.where(inside, far, found)
        ahead, behind = (
            np.where(inside, value, 0.5 * ahead),
            np.where(inside, 0.5 * behind, value),
        )
    return np.where(stays, 1.0, found)


def looks(question: Question, box: Box) -> Iterator[FloatArray]:
    """Points to try a claim on, the best of several ways to look, one after the other for as long as it may pay."""
    begin = time.process_time()
    if question.margin == 0:
        yield crossings(question, box)
    budget = min(_SECONDS, _SHARE * question.seconds_left)
    points = box.sample(max(64, min(_LOOK, _NUMBERS // box.ambient)), question.rng)
    gaps = excess(question, points)
    yield points
    count = max(4, min(STARTS, _NUMBERS // (16 * box.ambient)))
    best, value = climb(question, box, points[np.argsort(-gaps, kind="stable")[:count]])
    yield best[np.argsort(-value, kind="stable")]
    for _ in range(_RESTARTS):
        spent = time.process_time() - begin > budget or question.run.is_over
        if spent or box.ambient > _FEW_INPUTS or question.margin is not None:
            return
        yield evolved(question, box)
        if question.record.x is not None:  # the best point may be no member of a population: of another output
            yield question.record.x[None]


def evolved(question: Question, box: Box) -> FloatArray:
    """The best points of small populations, one for every output and sign of the difference, each bred from its best.

    The largest difference of one output hides those of the others, whose peaks may be higher but narrow: Storn and
    Price, *Differential Evolution* (1997), towards the best ones of the population.
    """
    rng, size = question.rng, box.ambient
    outputs = min(question.a.out_size, _OUTPUTS)
    chosen = np.tile(np.arange(outputs), 2)[:, None]
    signs = np.repeat([1.0, -1.0], outputs)[:, None]

    def heights(points: FloatArray) -> FloatArray:
        flat = points.reshape(-1, size)
        with np.errstate(over="ignore", invalid="ignore"):
            gap = question.a(flat) - question.b(flat)
        question.record.see(flat, np.abs(gap).max(axis=1))
        rows = np.arange(len(flat)).reshape(points.shape[:2])
        return np.nan_to_num(signs * gap[rows, np.broadcast_to(chosen, rows.shape)], nan=-np.inf)

    x = np.stack([box.sample(4 * _POPULATION, rng) for _ in range(len(chosen))])
    value = heights(x)
    kept = np.argsort(-value, axis=1)[:, :_POPULATION]
    rows = np.arange(len(x))[:, None]
    x, value = x[rows, kept], value[rows, kept]
    for _ in range(_GENERATIONS):
        if question.run.is_over:
            break
        best = np.argsort(-value, axis=1)[:, : max(4, _POPULATION // 8)]
        parent = x[rows, best[rows, rng.integers(0, best.shape[1], value.shape)]]
        one, two = (
            x[rows, rng.integers(0, _POPULATION, value.shape)],
            x[rows, rng.integers(0, _POPULATION, value.shape)],
        )
        step = rng.choice([0.3, 0.6, 0.9], (*value.shape, 1))
        mask = rng.random(x.shape) < rng.choice([0.4, 0.9], (*value.shape, 1))
        tried = np.clip(np.where(mask, x + step * (parent - x) + step * (one - two), x), box.low, box.high)
        tried = np.where(np.isfinite(tried), tried, x)
        new = heights(tried)
        better = new > value
        x[better], value[better] = tried[better], new[better]
    return np.asarray(x[rows[:, 0], value.argmax(axis=1)])
