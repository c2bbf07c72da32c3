"""Inequality of real functions by inputs that together switch on every neuron that can be.

A last bit of a weight does not show in floats, but shows exactly wherever its neuron is read.
"""

from __future__ import annotations

from fiberscope.equality.counterexample import Counterexample, confirmed
from fiberscope.equality.question import Question
from fiberscope.equality.refutation import COVER, POINTS, covering, different
from fiberscope.equality.verdict import Rung, Verdict


def by_coverage(question: Question) -> Verdict | None:
    """The search, for ``tolerance=0``: exact evaluation at a few inputs."""
    if question.tolerance != 0:
        return None
    points = question.place.sample(4 * POINTS, question.rng)
    order = covering(question, points)
    rest = [i for i in range(len(points) - 1, -1, -1) if i not in set(order)]
    for i in (order + rest)[:COVER]:
        if question.seconds_left < 0:
            return None
        example = confirmed(question, points[i])
        if example is not None and question.place.contains(points[i : i + 1])[0]:
            return different(question, "refutation (covering inputs)", example)
    return None


RUNG: Rung = Rung(by_coverage, (Counterexample,))
