"""How far are two networks apart at most?"""

from __future__ import annotations

import math
from contextlib import suppress

from fiberscope.equality.bounding.attack import looks
from fiberscope.equality.bounding.branching import Search
from fiberscope.equality.bounding.chains import ChainPair
from fiberscope.equality.bounding.pairs import best_pairing
from fiberscope.equality.interval import interval_of
from fiberscope.equality.question import Question
from fiberscope.equality.refutation import excess
from fiberscope.equality.rungs.structure import layers_apart
from fiberscope.equality.verdict import Interval, Verdict
from fiberscope.errors import InputError, OutOfTimeError
from fiberscope.geometry.domains import Box, Domain
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import Progress

DEFAULT_SECONDS = 10.0


def largest_difference(
    a: NetworkLike,
    b: NetworkLike,
    domain: Domain,
    ratio: float = 1.01,
    time_limit: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Interval:
    """``max |a - b|`` over all outputs on a box or a plane, as an interval: found at an input, and proven.

    Inputs that differ are looked for by samples, along gradients and by populations; bounds of the difference on ever
    smaller boxes are proven, in outward rounding, until the ends are within ``ratio`` of each other or the time is up.
    Where layer stands for layer, as in a copy with a few other numbers, a bound by layers needs no search.

    Parameters
    ----------
    domain
        A box, which may be flat in some coordinates, or a plane.
    ratio
        How close the ends shall come, above 1.
    time_limit
        Seconds; 10 for None.

    Examples
    --------
    >>> from fiberscope.network.network import Network
    >>> a, b = Network([[[1.0]]], [[0.0]]), Network([[[1.0]]], [[0.5]])
    >>> known = largest_difference(a, b, Box([0.0], [1.0]))
    >>> known.low, bool(0.5 <= known.high < 0.5 + 1e-12)
    (0.5, True)
    """
    if not ratio > 1:
        raise InputError(f"ratio: expected a number above 1, got {ratio}")
    seconds = DEFAULT_SECONDS if time_limit is None else time_limit
    question = Question.of(as_network(a, "a"), as_network(b, "b"), domain, 0.0, seconds, seed, progress=progress)
    box = question.place
    if not isinstance(box, Box):
        raise InputError(f"domain: expected a box or a plane, got {question.domain}")
    with suppress(OutOfTimeError):
        question.record.prove(layers_apart(question, box))
        for points in looks(question, box):
            excess(question, points)
    chosen = None
    try:
        chosen = best_pairing(question, box)
    except OutOfTimeError:
        if not question.record.proven < math.inf:
            raise
    if chosen is not None:
        with suppress(OutOfTimeError):  # a bound in the middle of a box looks at the clock too
            bounder = chosen[1].quick() if isinstance(chosen[1], ChainPair) else chosen[1]
            _narrow(question, Search(bounder, box.low, box.high), ratio)
    return interval_of(question, Verdict(None, "", question.domain))


def _narrow(question: Question, search: Search, ratio: float) -> None:
    """Split until the bound is close to what was found, which may grow on the way."""
    record = question.record
    if record.proven <= max(record.gap, 0.0) * ratio:
        return

    def look(points: FloatArray) -> bool:
        before = record.gap
        excess(question, points)
        return record.gap > before  # a new goal

    while not question.run.is_over:
        goal = max(record.gap, 0.0) * ratio
        reached = search.go(goal, question.run, look)
        record.prove(max(search.bound, 0.0))
        if (reached and search.bound <= max(record.gap, 0.0) * ratio) or search.spent(goal):
            break
