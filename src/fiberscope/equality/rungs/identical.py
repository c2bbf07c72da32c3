"""Equality of one program with the same numbers: nothing has to be searched for, whatever the program is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fiberscope.equality.evidence import Check, Evidence
from fiberscope.equality.question import Question
from fiberscope.equality.verdict import Rung, Verdict, answered
from fiberscope.network.comparison import identical
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine


@dataclass(frozen=True, slots=True, eq=False)
class SameProgram(Evidence):
    """The two are one program with the same numbers: there is nothing to say."""

    kind: ClassVar[str] = "identical"

    def check(self, question: Question) -> Check:
        if same_program(question.a, question.b):
            return Check(True, "the networks are identical", 0.0, 0.0)
        return Check(False, "the networks are not identical")

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> SameProgram:
        return cls()


def same_program(a: Network, b: Network) -> bool:
    """Whether two networks are one program with the same numbers, biases absent in the same places."""
    if len(a.nodes) != len(b.nodes):
        return False
    biases = [[isinstance(node, Affine) and node.bias is None for node in net.nodes] for net in (a, b)]
    return biases[0] == biases[1] and identical(a, b)


def by_identity(question: Question) -> Verdict | None:
    """The search."""
    found = SameProgram().check(question)
    return answered(question, "identical numbers", SameProgram(), found) if found.ok else None


RUNG: Rung = Rung(by_identity, (SameProgram,))
