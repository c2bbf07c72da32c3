"""Equality of what is left of two networks when both are simplified on the domain, where nothing was rounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fiberscope.equality.evidence import Check, Evidence
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.symmetry import Carried, by_symmetry
from fiberscope.equality.verdict import Rung, Verdict
from fiberscope.errors import UnsupportedModelError
from fiberscope.fibers.simplify.simplify import simplify
from fiberscope.numerics.floats import FloatArray, IntArray

_LARGEST = 2_000_000
"""Parameters up to which networks are simplified to compare them."""


@dataclass(frozen=True, slots=True, eq=False)
class CarriedSimplified(Evidence):
    """Both are simplified, which is done again to check it; then ``carried`` is why the smaller ones are equal."""

    kind: ClassVar[str] = "simplified symmetry"

    carried: Carried

    @property
    def permutations(self) -> tuple[IntArray, ...]:
        return self.carried.permutations

    @property
    def scales(self) -> tuple[FloatArray, ...]:
        return self.carried.scales

    def check(self, question: Question) -> Check:
        small = simplified(question)
        return Check(False, "a network could not be simplified exactly") if small is None else self.carried.check(small)

    def _answer(self) -> Iterator[tuple[str, Any]]:
        return self.carried._answer()

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> CarriedSimplified:
        return cls(Carried.from_dict(found))


def simplified(question: Question) -> Question | None:
    """The same question about the simplified networks, if they are the same real functions."""
    share = max(0.0, min(5.0, question.seconds_left / 4))
    a, b = (simplify(net, question.place, share, question.run) for net in (question.a, question.b))
    return replace(question, a=a.network, b=b.network) if a.exact and b.exact else None


def by_simplification(question: Question) -> Verdict | None:
    """The search."""
    if max(question.a.num_parameters, question.b.num_parameters) > _LARGEST:
        question.notes.append("too large to simplify")
        return None
    try:
        small = simplified(question)
    except UnsupportedModelError as error:
        question.notes.append(str(error))
        return None
    if small is None:
        question.notes.append("simplification would round")
        return None
    found = by_symmetry(small)
    if found is None or not isinstance(found.evidence, Carried):
        return None
    return replace(found, evidence=CarriedSimplified(found.evidence))


RUNG: Rung = Rung(by_simplification, (CarriedSimplified,))
