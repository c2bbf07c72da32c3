"""Equality by a permutation and rescaling of hidden neurons that carries one network onto the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fiberscope.equality.evidence import Check, Evidence, integers
from fiberscope.equality.verdict import Rung, Verdict, answered
from fiberscope.errors import FiberscopeError, InputError
from fiberscope.fibers.canonical.matching import Match, carries, match_chains, residual_of, same_prefix
from fiberscope.geometry.domains import Box
from fiberscope.geometry.ranges.intervals import Range, RangeArithmetic, ranges
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.chains import Split, slopes_of, try_split
from fiberscope.network.layout import Layout
from fiberscope.network.network import Network
from fiberscope.network.walk import all_values
from fiberscope.numerics.floats import TINY, FloatArray, IntArray, gamma, round_up
from fiberscope.numerics.ulps import DOUBLE, Rounding
from fiberscope.numerics.wide import Wide, same_products

if TYPE_CHECKING:
    from fiberscope.equality.question import Question


@dataclass(frozen=True, slots=True, eq=False)
class Carried(Evidence):
    """``symmetry`` carries ``a`` onto ``b``: as rational numbers, within a few ulps, or so that a bound holds."""

    kind: ClassVar[str] = "symmetry"

    symmetry: Symmetry

    @property
    def permutations(self) -> tuple[IntArray, ...]:
        return self.symmetry.permutations

    @property
    def scales(self) -> tuple[FloatArray, ...]:
        return self.symmetry.scales

    def check(self, question: Question) -> Check:
        pair = comparable(question)
        if pair is None or self.symmetry.widths != pair[0].tail.widths[1:-1]:
            return Check(False, "the symmetry does not fit the networks")
        tails = (pair[0].tail, pair[1].tail)
        residual = residual_of(self.symmetry, *tails) / question.rounding.steps
        match = Match(True, self.symmetry, residual, exact=carries(self.symmetry, *tails))
        return judged(question, match, pair, question.rounding)

    def _answer(self) -> Iterator[tuple[str, Any]]:
        return self.symmetry._answer()

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Carried:
        try:
            orders = [np.array(integers(p, "permutations"), dtype=np.int64) for p in found["permutations"]]
            return cls(Symmetry(orders, found["scales"]))
        except (ValueError, FiberscopeError) as error:
            raise InputError(f"certificate: the symmetry is not one of networks ({error})") from error


def comparable(question: Question) -> tuple[Split, Split] | None:
    """Both as a chain behind affine maps, if the maps are the same and the chains have the same widths."""
    left, right = try_split(question.a), try_split(question.b)
    if left is None or right is None or left.tail.widths != right.tail.widths or not same_prefix(left, right):
        return None
    return left, right


def by_symmetry(question: Question) -> Verdict | None:
    """The search."""
    pair = comparable(question)
    if pair is None:
        return None
    for match, rounding in _matches(question, pair[0].tail, pair[1].tail):
        if match.symmetry is None:
            continue
        found = judged(question, match, pair, rounding)
        if found.ok:
            method = "matched bounds" if question.tolerance and found.bound else "symmetry"
            return answered(question, method, Carried(match.symmetry), found)
        if found.bound is not None:
            question.notes.append(f"matched neurons bound the difference by {found.bound:.3g}")
    return None


def _matches(question: Question, a: Network, b: Network) -> Iterator[tuple[Match, Rounding]]:
    """Ways to match the neurons, each with the rounding that its residual counts."""
    match = match_chains(a, b, run=question.run)
    yield match, DOUBLE
    if not match and question.tolerance is None and question.rounding is not DOUBLE:
        yield match_chains(a, b, rounding=question.rounding, run=question.run), question.rounding
    elif question.tolerance and isinstance(question.place, Box):
        yield match_chains(a, b, loose=True, run=question.run), DOUBLE


def judged(question: Question, match: Match, pair: tuple[Split, Split], rounding: Rounding) -> Check:
    """What a match proves, for each kind of equality."""
    if match.exact:
        return Check(True, "a permutation and rescaling carries one onto the other, as rational numbers", 0.0, 0.0)
    box = question.place if isinstance(question.place, Box) else None
    if question.tolerance is None:
        near = match.residual <= rounding.few
        bound = matched_bound(match, *pair, box) if near and box is not None else np.inf
        text = f"a permutation and rescaling carries one onto the other within {match.residual:.3g} ulps of "
        return Check(near, text + rounding.precision, bound if np.isfinite(bound) else None, match.residual)
    if question.tolerance > 0 and box is not None:
        bound = matched_bound(match, *pair, box)
        text = f"with the neurons matched, the difference is at most {bound:.3g}"
        return Check(bound <= question.tolerance, text, bound, match.residual)
    return Check(False, f"the symmetry is off by {match.residual:.3g} ulps, which proves nothing exactly")


def matched_bound(match: Match, left: Split, right: Split, box: Box) -> float:
    """Bound of the difference behind a common prefix; infinite where it cannot be computed."""
    assert match.symmetry is not None
    seen = all_values(Layout(left.prefix), Range(box.low, box.high), RangeArithmetic())[-1]
    try:
        inner = Box(np.minimum(seen.low, np.nextafter(seen.high, -np.inf)), seen.high)
        return difference_bound(left.tail, right.tail, match.symmetry, inner)
    except FiberscopeError:
        return float("inf")


def difference_bound(a: Network, b: Network, element: Symmetry, box: Box) -> float:
    """An upper bound of ``max |a - b|`` on a box, for chains of the same widths whose neurons ``element`` matches.

    Layer by layer ``|s_i a_i - b_i| <= sum_j |s_i W_ij / s_j| |s_j a_j - b_j| + sum_j |s_i W_ij / s_j - V_ij| |b_j|``,
    plus the same for the biases, with all rounding included: first match, then bound the differences. Activations pass
    this on: with slopes ``s`` and ``t``, ``|f_s(u) - f_t(v)| <= max(1, |s|) |u - v| + |s - t| max(0, -v)``. Infinite
    where a product leaves the range of floats.
    """
    found = ranges(b, box)
    bends = slopes_of(a), slopes_of(b)
    gap = np.zeros(a.in_size)
    order, divisor = np.arange(a.in_size), np.ones(a.in_size)
    with np.errstate(over="ignore", invalid="ignore"):
        for layer, (w, bias) in enumerate(zip(a.weights, a.biases, strict=True)):
            value = found[2 * layer]
            size = np.maximum(np.abs(value.low), np.abs(value.high))
            rows, scale = np.arange(len(bias)), np.ones(len(bias))
            if layer < len(element.scales):
                rows, scale = element.permutations[layer], element.scales[layer]
            weight, other = w[np.ix_(rows, order)], b.weights[layer]
            moved, off = _entries_apart(weight, scale[:, None], divisor[None], other)
            _, plain = _entries_apart(bias[rows], scale, np.ones(len(bias)), b.biases[layer])
            n = w.shape[1]
            gap = round_up(moved @ gap + off @ size + plain + 2 * n * TINY, 2 * n + 8)
            if layer < len(element.scales):
                mine, theirs = bends[0][layer][rows], bends[1][layer]
                below = np.maximum(0.0, -found[2 * layer + 1].low)
                apart = np.where(mine == theirs, 0.0, np.abs(mine - theirs) * below)
                gap = round_up(np.maximum(1.0, np.abs(mine)) * gap + apart + 4 * TINY, 8)
            order, divisor = rows, scale
    bound = float(gap.max(initial=0.0))
    return bound if bound >= 0 else np.inf  # not a number: no bound


def _entries_apart(
    w: FloatArray, scale: FloatArray, divisor: FloatArray, other: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds of ``|w s / t|`` and of ``|w s / t - v|``; the second is 0 only where the two are equal as rationals."""
    moved = (Wide.of(w) * Wide.of(scale) / Wide.of(divisor)).floats()  # two roundings, a third where it is subnormal
    size = round_up(np.abs(moved) * (1 + gamma(4)), 4)
    off = round_up(np.abs(moved - other) + gamma(4) * np.abs(moved) + TINY, 4)
    same = same_products(w, scale, other, divisor)
    return np.where(w == 0, 0.0, size), np.where(same, 0.0, off)


RUNG: Rung = Rung(by_symmetry, (Carried,))
