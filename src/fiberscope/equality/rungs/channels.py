"""Equality by channels: both programs in terms of the same channels, up to order, positive factors and copies.

Where the layers of two programs agree only after their channels or neurons are reordered and rescaled, or where some
are split, doubled, pruned or off, value numbering (see ``equality.maps.numbering``) finds for every channel the one
that it is a multiple of, through convolutions, pools, residual sums and concatenations, and without unrolling anything.
A pool behind a ReLU is taken as a ReLU behind the pool, which is the same function.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fiberscope.equality.evidence import Check, Evidence, integers, number
from fiberscope.equality.maps.compared import compare
from fiberscope.equality.maps.numbering import Claim, Numbering
from fiberscope.equality.maps.search import ChannelSearch
from fiberscope.equality.maps.skeleton import ComposedMap, Gate, Skeleton, skeletons
from fiberscope.equality.question import Question
from fiberscope.equality.verdict import Rung, Verdict, answered
from fiberscope.errors import FiberscopeError, InputError, OutOfTimeError
from fiberscope.geometry.domains import Box
from fiberscope.network.commute import pools_first


@dataclass(frozen=True, slots=True, eq=False)
class ChannelsAgree(Evidence):
    """What every channel of every switch is, those of ``a`` first: see ``equality.maps.numbering``."""

    kind: ClassVar[str] = "channels"

    claims: tuple[Claim, ...]

    def check(self, question: Question) -> Check:
        made = _prepared(question)
        numbering = Numbering(*made, bounded=True)
        claims = iter(self.claims)

        def given(_numbering: Numbering, _number: int, _gate: Gate, _form: ComposedMap) -> Claim | None:
            return next(claims, None)

        if not numbering.run(given) or next(claims, None) is not None:
            return Check(False, "the channels are not what they are said to be")
        return judged(question, numbering)

    def _answer(self) -> Iterator[tuple[str, Any]]:
        yield "switches", [{name: getattr(claim, name) for name in Claim._fields} for claim in self.claims]

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> ChannelsAgree:
        if not isinstance(found["switches"], list):
            raise InputError("certificate: expected switches as a list")
        return cls(tuple(_claim(item) for item in found["switches"]))


def _claim(found: Any) -> Claim:
    if not isinstance(found, dict) or not isinstance(found.get("factors"), list):
        raise InputError("certificate: expected ways, values, members and factors of every switch")
    whole = [np.array(integers(found[name], name), dtype=np.int64) for name in ("ways", "values", "members")]
    factors = np.array([number(x, "a factor") for x in found["factors"]], dtype=np.float64)
    return Claim(whole[0], whole[1], whole[2], factors)


def _prepared(question: Question) -> tuple[Question, tuple[Skeleton, Skeleton]]:
    asked = replace(question, a=pools_first(question.a), b=pools_first(question.b))
    return asked, skeletons(asked)


def by_channels(question: Question) -> Verdict | None:
    """The search."""
    allowed = 0.0 if question.tolerance == 0 else float(question.rounding.few)
    loose = bool(question.tolerance) and isinstance(question.place, Box)
    try:
        made = _prepared(question)
        for far in (False, True) if loose else (False,):
            numbering = Numbering(*made, bounded=question.tolerance != 0)
            if not numbering.run(ChannelSearch(allowed, far)):
                return None
            found = judged(question, numbering)
            if found.ok:
                claims = tuple(numbering.switches[k].claim for k in sorted(numbering.switches))
                return answered(question, "channels", ChannelsAgree(claims), found)
    except OutOfTimeError:
        raise
    except FiberscopeError as error:
        question.notes.append(str(error))
        return None
    if found.bound is not None:
        question.record.prove(found.bound)
    question.notes.append(f"channel by channel, {found.text}")
    return None


def judged(question: Question, numbering: Numbering) -> Check:
    """What numbered channels prove, for each kind of equality; on a box with a bound of the difference."""
    a, b = numbering.outputs()
    last = compare(a, b, {name: name for name in b.pieces}, question.rounding)
    residual = max(numbering.units, last.residual)
    precision = question.rounding.precision
    if residual == 0:
        return Check(True, "channel by channel, the two are the same maps of the same channels", 0.0, 0.0)
    bound = numbering.bound(last)
    told = bound if np.isfinite(bound) else None
    apart = f"the maps are {residual:.3g} units of {precision} rounding apart"
    if question.tolerance is None:
        near = residual <= question.rounding.few
        text = f"channel by channel the maps agree within {residual:.3g} units of {precision} rounding in every entry"
        return Check(near, text if near else apart, told, residual)
    if told is None or question.tolerance == 0:
        return Check(False, apart, told, residual)
    text = f"with the channels matched, the difference is at most {told:.6g}"
    return Check(told <= question.tolerance, text, told, residual)


RUNG: Rung = Rung(by_channels, (ChannelsAgree,))
