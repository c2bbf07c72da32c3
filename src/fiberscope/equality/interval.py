"""What is known of the largest difference of two networks, whatever the answer to the question about them is."""

from __future__ import annotations

import math

import numpy as np

from fiberscope.equality.bounding.chains import ChainPair
from fiberscope.equality.counterexample import exact_gap, rounding_error
from fiberscope.equality.question import Question
from fiberscope.equality.refutation import small_enough
from fiberscope.equality.rungs.output_ranges import apart
from fiberscope.equality.verdict import Interval, Verdict
from fiberscope.geometry.domains import Box
from fiberscope.numerics.floats import FloatArray, gamma

AT_ONCE = 300_000
"""Parameters up to which one box is bounded when the time is up: that takes some hundredths of a second."""

EXACTLY = 100_000
"""Products up to which the difference at a point is evaluated exactly; beyond, floats with a bound of their error."""


def interval_of(question: Question, verdict: Verdict) -> Interval:
    """From the points that were looked at and the bounds that were proven; on an unbounded domain there may be none."""
    x, low = _found(question, verdict)
    high = question.record.proven
    if verdict.bound is not None and verdict.equal and question.margin is None:
        high = min(high, verdict.bound)
    if not high < math.inf and isinstance(question.place, Box):
        high = _quick_bound(question, question.place)
    return Interval(low, high, None if x is None else question.outside(x))


def _found(question: Question, verdict: Verdict) -> tuple[FloatArray | None, float]:
    """The best point, and the difference there, rounded down."""
    example, x = verdict.counterexample, question.record.x
    if example is not None and question.margin is None:
        at = question.inside(example.x)
        # what floats showed at the same point may be larger by their errors
        if not question.record.gap > example.difference or (x is not None and at is not None and np.array_equal(x, at)):
            return at, math.nextafter(example.difference, 0.0)
    if x is None or not question.place.contains(x[None])[0]:
        return None, 0.0
    return x, lowest_gap(question, x)


def lowest_gap(question: Question, x: FloatArray) -> float:
    """A number that the difference at ``x`` is proven to reach: its exact value rounded down, where that can be had."""
    if small_enough(question, EXACTLY):
        gap = exact_gap(question, x)
        try:
            rounded = float(gap)
        except OverflowError:
            return float(np.finfo(np.float64).max)
        return rounded if rounded <= gap else math.nextafter(rounded, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        a, b = question.a(x[None])[0], question.b(x[None])[0]
        error = rounding_error(question.a, x) + rounding_error(question.b, x)
        least = (np.abs(a - b) * (1 - gamma(4)) - error * (1 + gamma(4))).max()  # four roundings on the way
    return float(least) if least > 0 else 0.0


def _quick_bound(question: Question, box: Box) -> float:
    """A bound that costs no search."""
    bound = apart(question.a, question.b, box)
    late = question.run.is_over and question.a.num_parameters > AT_ONCE
    pair = None if late else ChainPair.of(question.a, question.b)
    if pair is not None:
        bound = min(bound, float(pair.bounds(box.low[None], box.high[None]).high[0]))
    return bound if bound >= 0 else math.inf
