"""Equality of two three-layer bottleneck networks: match the first layers, then compare the rest on the orthant."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from fiberscope.equality.bottlenecks.exact_transport import ExactNet, check_exact, find_exact, tails_differ
from fiberscope.equality.bottlenecks.kinks import kink_points
from fiberscope.equality.bottlenecks.rounded_transport import check_rounded, find_rounded
from fiberscope.equality.bottlenecks.transport import Transport
from fiberscope.equality.counterexample import Counterexample, confirmed
from fiberscope.equality.evidence import Check, Evidence, integers
from fiberscope.equality.question import Question
from fiberscope.equality.refutation import covering, difference, different
from fiberscope.equality.verdict import Rung, Verdict, answered
from fiberscope.errors import InputError
from fiberscope.fibers.canonical.matching import same_prefix
from fiberscope.geometry.domains import Space
from fiberscope.network.chains import Split, slopes_of, try_split
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.rank import exact_rank

_ENTRIES = 100_000
"""Entries of a first or second weight matrix up to which rows are compared as fractions."""

_CONFIRM = {True: 96, False: 8}
"""Inputs that are evaluated exactly, for equality as real functions and for the other kinds."""


@dataclass(frozen=True, slots=True, eq=False)
class Transported(Evidence):
    """``transport`` carries the first layer of one bottleneck onto that of the other; the layers behind are equal."""

    kind: ClassVar[str] = "bottleneck"

    transport: Transport

    @property
    def permutations(self) -> tuple[IntArray, ...]:
        """Of the first hidden layer."""
        return (np.array(self.transport.permutation, dtype=np.int64),)

    @property
    def scales(self) -> tuple[FloatArray, ...]:
        return (self.transport.scales,)

    @property
    def flips(self) -> tuple[int, ...]:
        return self.transport.flips

    @property
    def translation(self) -> float:
        return float(self.transport.translation)

    def check(self, question: Question) -> Check:
        pair = bottlenecks(question)
        if pair is None:
            return Check(False, "the networks are no three-layer bottlenecks behind the same affine maps")
        if self.transport.exact:
            ok, text = check_exact(*_exact(pair), self.transport)
            return Check(ok, f"{text}, exactly" if ok else text, 0.0, 0.0)
        if question.tolerance is not None:
            return Check(False, "the transport is claimed up to rounding, which proves nothing exactly")
        found = check_rounded(pair[0].tail, pair[1].tail, self.transport)
        if found is None or found.equal is not True:
            return Check(False, "the transport does not carry one onto the other")
        return Check(True, f"{self.transport.text}, up to rounding", None, found.residual)

    def _answer(self) -> Iterator[tuple[str, Any]]:
        return self.transport._answer()

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Transported:
        permutation, flips = (integers(found[name], name) for name in ("permutation", "flips"))
        hidden = None if found["hidden"] is None else integers([found["hidden"]], "the hidden hyperplane")[0]
        exact, line = found["exact"], found.get("line", False)
        if not isinstance(exact, bool) or not isinstance(line, bool):
            raise InputError("certificate: expected true or false for exact and line")
        if len(set(flips)) < len(flips):
            raise InputError("certificate: expected each flip once")
        scales = real_array(found["scales"], "scales", ndim=1)
        return cls(Transport(permutation, scales, flips, hidden, _fraction(found["translation"]), exact, line))


def _fraction(text: Any) -> Fraction:
    # plain digits only: what else Fraction reads may be a number of a billion digits
    if not isinstance(text, str) or not re.fullmatch(r"-?\d{1,4000}(/\d{1,4000})?", text):
        raise InputError("certificate: expected a translation as a fraction")
    above, _, below = text.partition("/")
    return Fraction(int(above), int(below or 1))


@dataclass(frozen=True, slots=True, eq=False)
class TailsDiffer(Evidence):
    """The first layers match, and the layers behind differ on the orthant; a proof for real functions on all space."""

    kind: ClassVar[str] = "layers behind differ"
    equal: ClassVar[bool] = False

    def check(self, question: Question) -> Check:
        pair = bottlenecks(question) if question.tolerance == 0 and isinstance(question.place, Space) else None
        if pair is None or pair[0].prefix or not tails_differ(*_exact(pair)):
            return Check(False, "the layers behind the first ones are not proven to differ")
        return Check(True, "the first layers match, and the layers behind differ on the orthant, exactly")

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> TailsDiffer:
        return cls()


def bottlenecks(question: Question) -> tuple[Split, Split] | None:
    """Both as bottlenecks behind the same affine maps, if they are."""
    left, right = try_split(question.a), try_split(question.b)
    if left is None or right is None or not same_prefix(left, right):
        return None
    return (left, right) if is_bottleneck(left.tail) and is_bottleneck(right.tail) else None


def _exact(pair: tuple[Split, Split]) -> tuple[ExactNet, ExactNet]:
    return ExactNet.of(pair[0].tail), ExactNet.of(pair[1].tail)


def is_bottleneck(chain: Network) -> bool:
    """Two hidden layers of ReLUs, the first one of full rank, so that its image is an orthant; small enough."""
    if len(chain.widths) != 4 or chain.widths[1] > chain.widths[0] or any(s.any() for s in slopes_of(chain)):
        return False
    if max(w.size for w in chain.weights) > _ENTRIES:
        return False
    return exact_rank(chain.weights[0]).rank == chain.widths[1]


def by_bottleneck(question: Question) -> Verdict | None:
    """The search: two bottlenecks, decided by the theorem; True on all of space is True on every domain.

    *Equal* is proven exactly, whatever the kind of equality, or up to rounding where that is asked. *Different* is an
    input near a kink that only one of the two has, or, as real functions, layers that differ behind matched ones.
    """
    pair = bottlenecks(question)
    if pair is None:
        return None
    question.run.check()
    exact = _exact(pair)
    question.run.check()
    transport = find_exact(*exact)
    if transport is not None:
        found = Check(True, f"{transport.text}, exactly", 0.0, 0.0)
        return answered(question, "bottleneck", Transported(transport), found)
    rounded = find_rounded(pair[0].tail, pair[1].tail) if question.tolerance is None else None
    if rounded is not None:
        evidence = Transported(rounded)
        found = evidence.check(question)
        if found.ok:
            return answered(question, "bottleneck", evidence, found)
    question.run.check()
    return None if pair[0].prefix else _refuted(question, pair)


def _refuted(question: Question, pair: tuple[Split, Split]) -> Verdict | None:
    points = np.concatenate([kink_points(part.tail, question.rng) for part in pair])
    points = points[question.place.contains(points)]
    if not len(points):
        return None
    question.run.check()
    gaps = difference(question, points)
    # a last bit does not show in floats, but exactly wherever its neuron is active
    first = covering(question, points) if question.tolerance == 0 else []
    order = dict.fromkeys([*first, *np.argsort(-gaps, kind="stable").tolist()])
    for i in itertools.islice(order, _CONFIRM[question.tolerance == 0]):
        if question.seconds_left < 0:
            break
        example = confirmed(question, points[i])
        if example is not None:
            text = "at an input near a kink of one of them the outputs differ in exact arithmetic"
            return different(question, "bottleneck", example, text)
    found = TailsDiffer().check(question)
    if found.ok:
        text = "the first layers match, and the layers behind differ; no float input at which they do was found"
        return answered(question, "bottleneck", TailsDiffer(), Check(True, text))
    return None


RUNG: Rung = Rung(by_bottleneck, (Transported, TailsDiffer, Counterexample))
