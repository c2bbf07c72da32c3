"""Which of the bounds of differences fits two networks: corresponding neurons, matched ones, or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from fiberscope.equality.bounding.branching import Bounder, Search
from fiberscope.equality.bounding.chains import ChainPair
from fiberscope.equality.bounding.programs import ProgramPair
from fiberscope.equality.question import Question
from fiberscope.errors import OutOfTimeError
from fiberscope.fibers.canonical.matching import match_chains
from fiberscope.geometry.domains import Box
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.chains import try_split


@dataclass(frozen=True, slots=True, eq=False)
class Pairing:
    """How the neurons of ``b`` correspond to those of ``a``: one by one behind ``matching``, or not at all.

    A pairing is no part of a proof: it only says which bounds are computed, and all of them hold.
    """

    method: str = "pair"
    matching: Symmetry | None = None

    def bounder(self, question: Question, quick: bool = True) -> Bounder | None:
        """The bounds; None where the pairing does not fit.

        The ``quick`` ones are those that decide sooner, by more boxes, where a bound is compared with a tolerance.
        Where only exact leaves count, or classes, open signs do, and the tight ones are taken in any case.
        """
        a, b, margin = question.a, question.b, question.margin
        if self.method != "pair":
            return ProgramPair.of(a, b, margin, paired=False, run=question.run)
        found = ChainPair.of(a, b, self.matching, margin)
        if found is not None and quick and margin is None and question.tolerance:
            return found.quick()
        return ProgramPair.of(a, b, margin, run=question.run) if found is None and self.matching is None else found


def pairings(question: Question) -> Iterator[Pairing]:
    """Ways to pair the neurons, the likeliest first."""
    yield Pairing()
    left, right = try_split(question.a), try_split(question.b)
    if left is not None and right is not None and left.tail.widths == right.tail.widths:
        match = None
        with suppress(OutOfTimeError):  # the others take no time
            match = match_chains(left.tail, right.tail, loose=True, run=question.run)
        if match is not None and match.symmetry is not None:
            yield Pairing("pair", match.symmetry)
    yield Pairing("single")


def best_pairing(
    question: Question, box: Box, known: tuple[Pairing, Search] | None = None
) -> tuple[Pairing, Bounder] | None:
    """The pairing whose bound on the whole box is smallest; the first one that decides is taken at once.

    ``known``: a pairing whose search has begun, in place of the one of neurons as they stand.
    """
    best: tuple[float, Pairing, Bounder] | None = None
    goal = goal_of(question)
    for number, pairing in enumerate(pairings(question)):
        if number == 0 and known is not None:
            best = (known[1].first, known[0], known[1].bounder)
            continue
        bounder = pairing.bounder(question)
        if bounder is None or not affordable(question, bounder):
            continue
        found = float(bounder.bounds(box.low[None], box.high[None]).high[0])
        if best is None or found < best[0]:
            best = (found, pairing, bounder)
        if found <= goal:
            break
    return None if best is None else best[1:]


def affordable(question: Question, bounder: Bounder) -> bool:
    """Whether there is time for one box."""
    return not isinstance(bounder, ChainPair) or bounder.seconds <= question.seconds_left


def goal_of(question: Question) -> float:
    """What a bound must reach to say yes."""
    return question.tolerance or 0.0 if question.margin is None else 0.0
