"""Equality within a tolerance by the ranges of the outputs on a box: one pass of intervals through each network.

Values of both lie in rigorous ranges, so they differ by at most the distance from the end of one range to the other end
of the other. This asks nothing about what the programs have in common, so it decides generous tolerances for any two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fiberscope.equality.evidence import Check, Evidence
from fiberscope.equality.question import Question
from fiberscope.equality.verdict import Rung, Verdict, answered
from fiberscope.geometry.domains import Box
from fiberscope.geometry.ranges.intervals import ranges
from fiberscope.network.network import Network
from fiberscope.numerics.floats import round_up


@dataclass(frozen=True, slots=True, eq=False)
class OutputRanges(Evidence):
    """The ranges of the outputs are close; there is nothing to write down, they are computed again."""

    kind: ClassVar[str] = "output ranges"

    def check(self, question: Question) -> Check:
        if not question.tolerance or not isinstance(question.place, Box):
            return Check(False, "ranges of the outputs prove a tolerance on a box, and nothing else")
        bound = apart(question.a, question.b, question.place)
        text = f"the outputs lie in ranges that are at most {bound:.3g} apart"
        return Check(bound <= question.tolerance, text, bound)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> OutputRanges:
        return cls()


def apart(a: Network, b: Network, box: Box) -> float:
    """A bound of the difference of two networks on a box by the ranges of their outputs; NaN or infinite if none."""
    left, right = (ranges(net, box)[-1] for net in (a, b))
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.maximum(left.high - right.low, right.high - left.low)
        return float(round_up(distance, 2).max(initial=0.0))


def by_output_ranges(question: Question) -> Verdict | None:
    """The search."""
    found = OutputRanges().check(question)
    return answered(question, "output ranges", OutputRanges(), found) if found.ok else None


RUNG: Rung = Rung(by_output_ranges, (OutputRanges,))
