"""Inequality by random inputs, the most promising of them confirmed exactly."""

from __future__ import annotations

from fiberscope.equality.counterexample import Counterexample
from fiberscope.equality.question import Question
from fiberscope.equality.refutation import POINTS, refuted
from fiberscope.equality.verdict import Rung, Verdict


def by_samples(question: Question) -> Verdict | None:
    """The search."""
    return refuted(question, question.place.sample(POINTS, question.rng), "random inputs")


RUNG: Rung = Rung(by_samples, (Counterexample,))
