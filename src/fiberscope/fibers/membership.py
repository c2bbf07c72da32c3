"""The answer to the question whether a network is in a fiber."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fiberscope.results import Result

if TYPE_CHECKING:
    from fiberscope.equality.verdict import Verdict


@dataclass(frozen=True, slots=True, eq=False)
class Membership(Result):
    """Whether a network is in the fiber: True, False, or None for undecided; true or false in conditions."""

    contained: bool | None
    reason: str
    verdict: Verdict | None = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return self.contained is True
