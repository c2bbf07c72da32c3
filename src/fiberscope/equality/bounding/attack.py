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
from fiberscope.numerics.cutoffs import NARROW
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

_POPULATIONS, _MEMBERS, _GENERATIONS, _RESTARTS, _OUTPUTS = 4, 16, 40, 10, 16
"""Populations of an output and sign, their points, how often these are drawn and all is begun anew, outputs at most."""

_DRAWN, _SPREAD = 1024, 0.15
"""Points to begin a population with, and its deviation in widths of the box."""

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
        with np.errstate(divide="ignore", invalid="ignore"):  # equal leads, after many halvings: the middle is taken
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
    """The best points of small populations, several for every output and sign of the difference.

    The largest difference of one output hides those of the others, whose peaks may be higher but narrow, and along a
    ridge gradients go to and fro. A population is drawn from a normal distribution, whose mean and covariance follow
    its best members: Hansen and Ostermeier, *Completely Derandomized Self-Adaptation* (2001), without its paths.
    """
    rng, size = question.rng, box.ambient
    outputs = min(question.a.out_size, _OUTPUTS)
    chosen = np.tile(np.repeat(np.arange(outputs), _POPULATIONS), 2)[:, None]
    signs = np.repeat([1.0, -1.0], outputs * _POPULATIONS)[:, None]
    count, best_ones = len(chosen), _MEMBERS // 4
    weights = np.log(best_ones + 0.5) - np.log(np.arange(1, best_ones + 1))
    weights /= weights.sum()

    def gaps(points: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            gap = question.a(points) - question.b(points)
        question.record.see(points, np.abs(gap).max(axis=1))
        return np.asarray(gap)

    def heights(points: FloatArray) -> FloatArray:
        gap = gaps(points.reshape(-1, size)).reshape(*points.shape[:2], -1)
        return np.nan_to_num(signs * np.take_along_axis(gap, chosen[:, :, None], axis=2)[:, :, 0], nan=-np.inf)

    # every population begins at the best of points of its own
    drawn = box.sample(_POPULATIONS * _DRAWN, rng)
    seen = gaps(drawn).reshape(_POPULATIONS, _DRAWN, -1)[:, :, :outputs]
    tops = np.concatenate([np.nan_to_num(sign * seen, nan=-np.inf).argmax(axis=1).T.ravel() for sign in (1.0, -1.0)])
    best = drawn.reshape(_POPULATIONS, _DRAWN, size)[np.tile(np.arange(_POPULATIONS), 2 * outputs), tops]
    value = heights(best[:, None])[:, 0]
    mean, width = best.copy(), box.high - box.low
    spread = np.tile(_SPREAD**2 * np.eye(size), (count, 1, 1))
    rows = np.arange(count)
    for _ in range(_GENERATIONS):
        if question.run.is_over or not np.isfinite(width).all():
            break
        root = np.linalg.cholesky(spread + NARROW * np.eye(size))
        steps = np.einsum("pij,pkj->pki", root, rng.normal(size=(count, _MEMBERS, size)))
        tried = np.clip(mean[:, None] + steps * width, box.low, box.high)
        tried[:, 0] = best
        found = heights(tried)
        order = np.argsort(-found, axis=1, kind="stable")[:, :best_ones]
        better = found[rows, order[:, 0]] > value
        best[better] = tried[rows, order[:, 0]][better]
        value = np.maximum(value, found[rows, order[:, 0]])
        kept = np.take_along_axis(tried, order[:, :, None], axis=1)
        moved = (kept - mean[:, None]) / np.where(width > 0, width, 1.0)
        spread = 0.6 * spread + 0.4 * np.einsum("k,pki,pkj->pij", weights, moved, moved)
        mean = np.einsum("k,pki->pi", weights, kept)
    return np.asarray(best)
