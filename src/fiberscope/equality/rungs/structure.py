"""Equality by structure: the switches of two programs in turn, and the composed affine maps between them compared entry
by entry.

This is how a model and its exported, fused or converted copy compare: batch normalisation folded into the weights
before it, biases merged, shapes flattened, numbers stored in another precision. Two composed maps agree *up to
rounding* if every entry differs by at most a few units of rounding of the sums of absolute values that the two were
added up from. On a box the difference of the outputs is then bounded layer by layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, assert_never

import numpy as np

from fiberscope.equality.evidence import Check, Evidence, integers
from fiberscope.equality.maps.compared import Compared, compare, units_apart
from fiberscope.equality.maps.skeleton import Gate, Skeleton, skeletons
from fiberscope.equality.question import Question
from fiberscope.equality.verdict import Rung, Verdict, answered
from fiberscope.errors import FiberscopeError, OutOfTimeError
from fiberscope.geometry.domains import Box
from fiberscope.geometry.ranges.intervals import Range, ranges
from fiberscope.network.action.element import is_permutation
from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool, PiecewiseLinear
from fiberscope.numerics.algebra.base import gather
from fiberscope.numerics.floats import TINY, FloatArray, round_up
from fiberscope.numerics.ulps import Rounding
from fiberscope.run import ENDLESS, Run


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Switch ``k`` of ``a`` is switch ``order[k]`` of ``b``, both counted from 0."""

    order: tuple[int, ...]
    gates: tuple[Compared, ...]
    output: Compared
    residual: float
    exact: bool


@dataclass(frozen=True, slots=True, eq=False)
class LayerOrder(Evidence):
    """Which activation or pool of ``b`` stands for each of ``a``, counted from 0; the maps between them agree."""

    kind: ClassVar[str] = "layers"

    order: tuple[int, ...]

    def check(self, question: Question) -> Check:
        pair = skeletons(question)
        found = aligned(*pair, question.rounding, self.order, question.run)
        return Check(False, "the layers do not match") if found is None else judged(question, pair, found)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> LayerOrder:
        return cls(integers(found["order"], "the order of the layers"))


def by_structure(question: Question) -> Verdict | None:
    """The search: two programs with the same switches in turn, whatever their affine parts are made of."""
    try:
        pair = skeletons(question)
        alignment = aligned(*pair, question.rounding, run=question.run)
    except OutOfTimeError:
        raise
    except FiberscopeError as error:
        question.notes.append(str(error))
        return None
    if alignment is None:
        return None
    found = judged(question, pair, alignment)
    if found.ok:
        return answered(question, "layers", LayerOrder(alignment.order), found)
    if found.bound is not None:
        question.record.prove(found.bound)
    if question.tolerance is None:
        question.notes.append(f"layer by layer, {found.text}")
    return None


def layers_apart(question: Question, box: Box) -> float:
    """A bound of the difference on a box that costs no search; infinite where the layers do not match."""
    try:
        pair = skeletons(question)
        alignment = aligned(*pair, question.rounding, run=question.run)
    except OutOfTimeError:
        raise
    except FiberscopeError:
        return np.inf
    if alignment is None:
        return np.inf
    return 0.0 if alignment.exact else largest_difference(question.a, question.b, pair, alignment, box)


def judged(question: Question, pair: tuple[Skeleton, Skeleton], found: Alignment) -> Check:
    """What an alignment proves, for each kind of equality; on a box with a bound of the difference."""
    if found.exact:
        count = len(found.gates) + 1
        return Check(True, f"the affine maps between activations are the same, {count} of {count}", 0.0, 0.0)
    tolerance, few = question.tolerance, question.rounding.few
    apart = f"the composed maps are {found.residual:.3g} units of {question.rounding.precision} rounding apart"
    near = found.residual <= few
    bound = np.inf
    if isinstance(question.place, Box) and tolerance != 0 and (near or tolerance is not None):
        bound = largest_difference(question.a, question.b, pair, found, question.place)
    told = bound if np.isfinite(bound) else None
    if tolerance is None:
        within = f"within {found.residual:.3g} units of {question.rounding.precision} rounding in every entry"
        text = f"layer by layer the composed affine maps agree {within}" if near else apart
        return Check(near, text, told, found.residual)
    if told is None:
        return Check(False, apart, None, found.residual)
    text = f"with the layers matched, the difference is at most {told:.6g}"
    return Check(told <= tolerance, text, told, found.residual)


def aligned(
    a: Skeleton, b: Skeleton, rounding: Rounding, order: tuple[int, ...] | None = None, run: Run = ENDLESS
) -> Alignment | None:
    """The switches of ``b`` that stand for those of ``a``, one after the other; None where there are none.

    The first one whose map agrees up to rounding is taken, else the nearest. A given ``order`` is tried and no other.
    """
    if len(a.gates) != len(b.gates) or (order is not None and not is_permutation(order, len(a.gates))):
        return None
    names = {0: 0}  # of values of b in a
    chosen: list[int] = []
    compared: list[Compared] = []
    for k, gate in enumerate(a.gates):
        best: tuple[float, int, Compared] | None = None
        for j in range(len(b.gates)) if order is None else (order[k],):
            other = b.gates[j]
            if j in chosen or not _same_kind(gate, other) or not set(other.form.pieces) <= set(names):
                continue
            run.check()
            found = _with_slopes(gate, other, compare(gate.form, other.form, names, rounding), rounding)
            if best is None or found.residual < best[0]:
                best = (found.residual, j, found)
            if best[0] <= rounding.few:
                break
        if best is None:
            return None
        chosen.append(best[1])
        compared.append(best[2])
        names[best[1] + 1] = k + 1
    last = compare(a.output, b.output, names, rounding)
    every = (*compared, last)
    residual = max(c.residual for c in every)
    return Alignment(tuple(chosen), tuple(compared), last, residual, all(c.exact for c in every))


def _same_kind(a: Gate, b: Gate) -> bool:
    """Whether two switches do the same to the same number of values, but for their slopes."""
    if isinstance(a.node, MaxPool) and isinstance(b.node, MaxPool):
        return a.form.offset.size == b.form.offset.size and np.array_equal(a.node.windows, b.node.windows)
    both = isinstance(a.node, PiecewiseLinear) and isinstance(b.node, PiecewiseLinear)
    return both and a.form.offset.size == b.form.offset.size


def _with_slopes(a: Gate, b: Gate, found: Compared, rounding: Rounding) -> Compared:
    """Slopes of activations are stored numbers too."""
    more = slopes_apart(a, b, rounding)
    return replace(found, units=np.maximum(found.units, more)) if more.any() else found


def slopes_apart(a: Gate, b: Gate, rounding: Rounding) -> FloatArray:
    """How far the slopes of two activations are apart, in units of rounding."""
    if not isinstance(a.node, PiecewiseLinear) or not isinstance(b.node, PiecewiseLinear):
        return np.zeros(1)
    p, q = a.node.slopes, b.node.slopes
    return units_apart(np.abs(p - q), np.abs(p) + np.abs(q), rounding)


def largest_difference(a: Network, b: Network, pair: tuple[Skeleton, Skeleton], found: Alignment, box: Box) -> float:
    """An upper bound of ``max |a - b|`` on a box, for aligned programs; infinite where floats do not reach.

    With ``A x + c`` and ``B y + d`` for matched values ``|x - y| <= g`` and ``|y| <= R`` the next difference is at most
    ``|A| g + |A - B| R + |c - d|``; an activation multiplies it by its largest slope, a pool takes the largest.
    """
    seen = ranges(b, box)
    gaps = {0: np.zeros(a.in_size)}
    sizes = {0: _largest(Range(box.low, box.high))}
    with np.errstate(over="ignore", invalid="ignore"):
        for k, (gate, j) in enumerate(zip(pair[0].gates, found.order, strict=True)):
            other = pair[1].gates[j]
            gap = _next(found.gates[k], gaps, sizes)
            match gate.node:
                case PiecewiseLinear():
                    p, q = gate.node.slopes, other.node.slopes
                    more = np.where(p == q, 0.0, np.abs(p - q) * _largest(seen[other.node.source]))
                    gap = round_up(np.maximum(1.0, np.abs(p)) * gap + more, 6)
                case MaxPool():
                    gap = gather(gap[None], gate.node.windows, 0.0)[0].max(axis=1)
                case _:
                    assert_never(gate.node)
            gaps[k + 1] = gap
            sizes[k + 1] = _largest(seen[other.index + 1])
        bound = float(_next(found.output, gaps, sizes).max(initial=0.0))
    return bound if bound >= 0 else np.inf


def _largest(value: Range) -> FloatArray:
    return np.maximum(np.abs(value.low), np.abs(value.high))


def _next(found: Compared, gaps: dict[int, FloatArray], sizes: dict[int, FloatArray]) -> FloatArray:
    total, terms = found.offset, 1
    for name, left in found.left.items():
        total = total + left.apply(gaps[name][None])[0] + found.gaps[name].apply(sizes[name][None])[0]
        terms += 2 * left.fan_in + 2
    return round_up(total + terms * TINY, terms + 4)


RUNG: Rung = Rung(by_structure, (LayerOrder,))
