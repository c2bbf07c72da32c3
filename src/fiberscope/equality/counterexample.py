"""An input at which two networks differ, confirmed in exact arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fiberscope.equality.evidence import Check, Evidence, number
from fiberscope.equality.rounding import closer_deviation, deviation, exact_deviation
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add
from fiberscope.network.walk import output, walk
from fiberscope.numerics.algebra.ball import EXACT, BallAlgebra, exact_fraction
from fiberscope.numerics.algebra.bounded import BoundedAlgebra
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.exact_arrays import nearest
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.ulps import DOUBLE, FEW
from fiberscope.run import ENDLESS, Run

_CLOSER = 4
"""Outputs for which what rounding explains is found by derivatives, one way back for each of them."""

_SECONDS = 1e-6
"""Of one product in exact arithmetic, on an ordinary machine."""

if TYPE_CHECKING:
    from fiberscope.equality.question import Question


@dataclass(frozen=True, slots=True, eq=False)
class Counterexample(Evidence):
    """An input at which two networks differ: ``x`` exactly as given, ``a`` and ``b`` rounded from the exact outputs.

    ``x`` has the coordinates of the input; on a plane, where these would be rounded, those of the plane.
    ``difference`` is the largest difference of an output, rounded; ``allowed`` is what the kind of equality allows
    there. Where classes are compared, the class of ``a`` is beaten in ``b`` by ``difference``. A number beyond the
    floats is told as the largest one.
    """

    kind: ClassVar[str] = "counterexample"
    equal: ClassVar[bool] = False

    x: FloatArray
    a: FloatArray
    b: FloatArray
    difference: float
    allowed: float

    def check(self, question: Question) -> Check:
        x = question.inside(real_array(self.x, "x").reshape(-1))
        if x is None:
            return Check(False, "the input is outside the domain")
        example = confirmed(question, x)
        if example is None:
            text = "the exact outputs at the input do not differ by more than the kind of equality allows"
            return Check(False, text)
        if not self._tells(example, question.tolerance is None and question.margin is None):
            return Check(False, "the outputs at the input are not what the certificate tells")
        if question.margin is not None:
            return Check(True, f"in exact arithmetic the class of a is beaten in b by {example.difference:.6g}")
        return Check(True, f"the exact outputs at the input differ by {example.difference:.6g}")

    def _tells(self, other: Counterexample, rounding: bool) -> bool:
        """Whether the outputs are those computed again; what rounding explains is not told to the last bit."""
        same = np.array_equal(self.a, other.a) and np.array_equal(self.b, other.b)
        most = 0 <= self.allowed <= self.difference if rounding else self.allowed == other.allowed
        return bool(same and self.difference == other.difference and most)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Counterexample:
        x, a, b = (real_array(found[name], name, ndim=1) for name in ("x", "a", "b"))
        return cls(x, a, b, *(number(found[name], name) for name in ("difference", "allowed")))


def exact_outputs(net: Network, x: FloatArray, run: Run = ENDLESS) -> list[Fraction]:
    """The outputs at one point as fractions; the floats are taken as exact numbers."""
    arithmetic = BallAlgebra(EXACT)
    with arithmetic.working():
        values = {0: arithmetic.take(x.reshape(1, -1))}
        for _ in walk(net.layout, values, arithmetic):
            run.check()
        return [exact_fraction(v) for v in values[len(net.nodes)][0]]


def rounding_error(net: Network, x: FloatArray) -> FloatArray:
    """A bound of the rounding error of evaluating the network at a point in float64."""
    arithmetic = BoundedAlgebra()
    with np.errstate(over="ignore", invalid="ignore"):
        value = output(net.layout, arithmetic.take(x.reshape(1, -1)), arithmetic)
    return np.asarray(value.error[0])


def time_for_one(question: Question) -> bool:
    """Whether both can be evaluated at a point in exact arithmetic in the time that is left."""
    return _SECONDS * (products(question.a) + products(question.b)) <= question.seconds_left


def confirmed(question: Question, x: FloatArray) -> Counterexample | None:
    """The counterexample at ``x``, if the exact difference there is more than the kind of equality allows.

    Up to rounding, that is what moving every parameter of both by twice a few units of rounding can explain, and what
    evaluating both in float64 may have lost.
    """
    if not np.isfinite(x).all():
        return None
    a, b, tolerance = question.a, question.b, question.tolerance
    if not time_for_one(question):
        question.notes.append("too large to be evaluated in exact arithmetic in the time that is left")
        return None
    if question.margin is not None:
        return _other_class(question, x)
    allowed = _allowance(question, x) if tolerance is None else [Fraction(tolerance)] * a.out_size
    left, right = exact_outputs(a, x, question.run), exact_outputs(b, x, question.run)
    gaps = [abs(p - q) for p, q in zip(left, right, strict=True)]
    over = [gap - e for gap, e in zip(gaps, allowed, strict=True)]
    if tolerance is None and not max(over) > 0:
        allowed = _closer_allowance(question, x, gaps, allowed)
        over = [gap - e for gap, e in zip(gaps, allowed, strict=True)]
    worst = max(range(len(gaps)), key=lambda k: over[k])
    if not over[worst] > 0:
        return None
    gap, most = rounded([gaps[worst], allowed[worst]])
    return Counterexample(question.outside(x), rounded(left), rounded(right), float(gap), float(most))


def _other_class(question: Question, x: FloatArray) -> Counterexample | None:
    """The counterexample at ``x``, if ``a`` has one class there, by the margin, and another one is larger in ``b``."""
    left, right = exact_outputs(question.a, x, question.run), exact_outputs(question.b, x, question.run)
    own = max(range(len(left)), key=lambda k: left[k])
    ahead = left[own] - max(value for k, value in enumerate(left) if k != own)
    if not (ahead > 0 and ahead >= Fraction(question.margin or 0.0)):
        return None
    beaten = max(right) - right[own]
    if not beaten > 0:
        return None
    return Counterexample(question.outside(x), rounded(left), rounded(right), float(rounded([beaten])[0]), 0.0)


def exact_gap(question: Question, x: FloatArray) -> Fraction:
    """The largest difference of an output at ``x``."""
    pairs = zip(exact_outputs(question.a, x), exact_outputs(question.b, x), strict=True)
    return max(abs(p - q) for p, q in pairs)


def rounded(values: list[Fraction]) -> FloatArray:
    """The nearest floats, for a value beyond their range the largest: JSON has no number for infinity."""
    most = np.finfo(np.float64).max
    return np.clip(nearest(np.array(values, dtype=object)), -most, most)


def _allowance(question: Question, x: FloatArray) -> list[Fraction]:
    """What rounding can explain at a point, for every output; exact numbers where floats do not reach."""
    a, b, rounding = question.a, question.b, question.rounding
    errors = 2 * FEW * (rounding_error(a, x) + rounding_error(b, x))
    errors = errors + deviation(a, x, rounding, 2) + deviation(b, x, rounding, 2)
    if np.isfinite(errors).all():
        return [Fraction(float(e)) for e in errors]
    with BallAlgebra(EXACT).working():
        # a sum of n products in float64 loses at most n units of rounding of its parts
        parts = [
            exact_deviation(net, x, kind, times)
            for net in (a, b)
            for kind, times in ((rounding, 2), (DOUBLE, 2 * longest_sum(net)))
        ]
        return [exact_fraction(sum(column[1:], start=column[0])) for column in zip(*parts, strict=True)]


def _closer_allowance(
    question: Question, x: FloatArray, gaps: list[Fraction], allowed: list[Fraction]
) -> list[Fraction]:
    """The same by derivatives, for the few outputs that come closest to what is allowed."""
    a, b = question.a, question.b
    outputs = sorted(range(len(gaps)), key=lambda k: gaps[k] - allowed[k], reverse=True)[:_CLOSER]
    errors = 2 * FEW * (rounding_error(a, x) + rounding_error(b, x))[outputs]
    for net in (a, b):
        errors = errors + closer_deviation(net, x, question.rounding, outputs, 2)
    found = list(allowed)
    for k, e in zip(outputs, errors.tolist(), strict=True):
        if np.isfinite(e):
            found[k] = min(found[k], Fraction(e))
    return found


def longest_sum(net: Network) -> int:
    """The most terms of a sum in the program."""
    terms = [len(node.sources) for node in net.nodes if isinstance(node, Add)]
    return max([*terms, *(stage.fan_in for stage in net.layout.stages)], default=1)


def products(net: Network) -> int:
    """Products of one evaluation, but for zeros that are not stored."""
    return sum(stage.out_size * stage.fan_in for stage in net.layout.stages)
