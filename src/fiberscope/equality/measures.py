"""How outputs are compared: the largest difference, each within a tolerance of its own, or the sum of all.

Both are the largest difference of programs with one affine map more, and every method answers about those:

- ``|a_k - b_k| <= e_k`` for all ``k``: the outputs are multiplied by ``1 / e_k``, rounded up, and have to be within 1;
- ``sum_k |a_k - b_k| <= e``: the sum is the largest of ``+-(a_1 - b_1) +- ... +- (a_m - b_m)`` over all signs.

Rounding up makes the first question harder by one part in ``2^52``: what is proven holds, and a counterexample is
evaluated again with the outputs as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from fiberscope.equality.counterexample import Counterexample, exact_outputs, rounded
from fiberscope.equality.question import Question, single_tolerance
from fiberscope.equality.verdict import Verdict
from fiberscope.errors import InputError
from fiberscope.geometry.domains import Domain
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import FloatArray

NORMS = ("max", "sum")
"""Of the differences of all outputs."""

MOST_SUMMED = 10
"""Outputs of which all signs are tried: 512 sums."""


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """The rows that are appended to both programs, and how far apart what they give may be."""

    rows: FloatArray
    allowed: float
    norm: str
    tolerances: tuple[float, ...] | None

    def of(self, net: Network) -> Network:
        """A program that ends in the numbers to compare."""
        last = len(net.nodes)
        ends = Affine(last, Dense(self.rows, net.shapes[last]))
        return Network.from_nodes([*net.nodes, ends], net.input_shape)

    def excess(self, gaps: list[Fraction]) -> tuple[Fraction, Fraction]:
        """How far exact differences of the outputs are apart, and how far they may be, where it is worst."""
        if self.tolerances is None:
            return sum(gaps, Fraction(0)), Fraction(self.allowed)
        pairs = [(gap, Fraction(e)) for gap, e in zip(gaps, self.tolerances, strict=True) if e < math.inf]
        return max(pairs, key=lambda pair: pair[0] / pair[1])


def measure_of(tolerance: Any, norm: str, outputs: int) -> Measure | None:
    """None where the largest difference is compared with one number, or with none.

    >>> measure_of([0.5, 2.0], "max", 2).rows.tolist(), measure_of(0.1, "sum", 2).rows.tolist()
    ([[2.0, 0.0], [0.0, 0.5]], [[1.0, 1.0], [1.0, -1.0]])
    >>> measure_of(0.1, "max", 2) is None
    True
    """
    if norm not in NORMS:
        raise InputError(f"norm: expected one of {', '.join(NORMS)}, got {norm!r}")
    single = single_tolerance(tolerance)
    if norm == "sum":
        if single is None or not single > 0:
            raise InputError(f"tolerance: expected one number above 0 with norm='sum', got {tolerance}")
        if outputs > MOST_SUMMED:
            raise InputError(f"norm='sum': expected at most {MOST_SUMMED} outputs, got {outputs}")
        signs = [(1.0, *rest) for rest in product((1.0, -1.0), repeat=outputs - 1)]
        return Measure(np.array(signs), single, norm, None)
    if tolerance is None or single is not None:
        return None
    try:
        each = np.asarray(tolerance, dtype=np.float64)
    except (TypeError, ValueError):
        each = np.zeros(0)
    if each.shape != (outputs,) or not (each > 0).all() or not (each < math.inf).any():
        raise InputError(
            f"tolerance: expected one number, or {outputs} numbers above 0, one for every output and inf where it may "
            f"be anything, got {tolerance}"
        )
    return Measure(np.diag([_units(float(e)) for e in each]), 1.0, norm, tuple(each.tolist()))


def _units(tolerance: float) -> float:
    """``1 / tolerance``, rounded up."""
    if math.isinf(tolerance):
        return 0.0
    with np.errstate(over="ignore"):
        found = float(np.float64(1.0) / tolerance)
    if math.isinf(found):
        raise InputError(f"tolerance: expected 0 < e with a finite 1 / e, got {tolerance:g}")
    return found if Fraction(found) * Fraction(tolerance) >= 1 else math.nextafter(found, math.inf)


def equivalent_by(
    measure: Measure, a: Network, b: Network, domain: Domain | None, ask: Callable[..., Verdict], **options: Any
) -> Verdict:
    """The verdict about two networks by a measure; ``ask`` decides the question about largest differences."""
    if a.out_size != b.out_size:
        raise InputError(f"networks: expected as many outputs of both, got {a.out_size} and {b.out_size}")
    found = ask(measure.of(a), measure.of(b), domain, measure.allowed, **options)
    reason = f"in units of the tolerances, {found.reason}" if measure.tolerances and found.reason else found.reason
    found = replace(found, norm=measure.norm, tolerances=measure.tolerances, reason=reason)
    if found.counterexample is None:
        # without a point it is not known that they differ by more than the rounding of units
        return replace(found, equal=None, evidence=None) if found.equal is False and measure.tolerances else found
    example = _as_asked(measure, Question.of(a, b, domain, 0.0), found.counterexample)
    if example is not None:
        return replace(found, shown=example, reason=_told(measure, example))
    return replace(found, equal=None, evidence=None, reason="outputs are apart by what is allowed and one rounding")


def _as_asked(measure: Measure, question: Question, found: Counterexample) -> Counterexample | None:
    """The input with the outputs as they are; None where they are not too far apart."""
    x = question.inside(found.x)
    assert x is not None
    left, right = exact_outputs(question.a, x, question.run), exact_outputs(question.b, x, question.run)
    gap, allowed = measure.excess([abs(p - q) for p, q in zip(left, right, strict=True)])
    if not gap > allowed:
        return None
    return Counterexample(found.x, rounded(left), rounded(right), *rounded([gap, allowed]).tolist())


def _told(measure: Measure, example: Counterexample) -> str:
    what = "of all outputs in sum" if measure.tolerances is None else "of an output"
    return f"the exact difference {what} at the input is {example.difference:.6g}, {example.allowed:.6g} is allowed"
