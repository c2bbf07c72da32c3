"""Equality by parameters: a permutation and rescaling that carries one network onto the other, as given or
simplified."""

from __future__ import annotations

import numpy as np

from fiberscope.errors import FiberscopeError, UnsupportedModelError
from fiberscope.geometry.domains import Box
from fiberscope.network.comparison import identical
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.run import all_values
from fiberscope.numerics.ulps import DOUBLE, Rounding
from fiberscope.symmetry.bounds import Range, RangeArithmetic, difference_bound
from fiberscope.symmetry.chains import Split, try_split
from fiberscope.symmetry.equivalence.question import Question
from fiberscope.symmetry.equivalence.verdict import Verdict, Witness
from fiberscope.symmetry.matching import Match, match_chains, same_prefix
from fiberscope.symmetry.simplify import simplify

_LARGEST = 2_000_000
"""Parameters up to which networks are simplified to compare them."""


def by_symmetry(question: Question) -> Verdict | None:
    """The rung: the same numbers, or the same up to permutation and rescaling of hidden neurons."""
    if same_program(question.a, question.b):
        return Verdict(
            True, "identical numbers", question.domain, question.tolerance, Witness(), bound=0.0, residual=0.0
        )
    return _compared(question, question.a, question.b, simplified=False)


def same_program(a: Network, b: Network) -> bool:
    """Whether two networks are one program with the same numbers, biases absent in the same places."""
    if len(a.nodes) != len(b.nodes):
        return False
    biases = [[isinstance(node, Affine) and node.bias is None for node in net.nodes] for net in (a, b)]
    return biases[0] == biases[1] and identical(a, b)


def by_simplification(question: Question) -> Verdict | None:
    """The rung: simplify both on the domain, then match what is left; only where nothing was rounded."""
    if max(question.a.num_parameters, question.b.num_parameters) > _LARGEST:
        question.notes.append("too large to simplify")
        return None
    share = max(0.0, min(5.0, question.seconds_left / 4))
    try:
        small = [simplify(net, question.place, share, question.run) for net in (question.a, question.b)]
    except UnsupportedModelError as error:
        question.notes.append(str(error))
        return None
    if not all(s.verdict.exact for s in small):
        question.notes.append("simplification would round")
        return None
    return _compared(question, small[0].network, small[1].network, simplified=True)


def _compared(question: Question, a: Network, b: Network, simplified: bool) -> Verdict | None:
    left, right = try_split(a), try_split(b)
    if left is None or right is None or left.tail.widths != right.tail.widths or not same_prefix(left, right):
        return None
    match = match_chains(left.tail, right.tail, run=question.run)
    if not match and question.tolerance is None and question.rounding is not DOUBLE:
        match = match_chains(left.tail, right.tail, rounding=question.rounding, run=question.run)
        return _judged(question, match, left, right, simplified, question.rounding)
    found = _judged(question, match, left, right, simplified)
    if found is None and question.tolerance and isinstance(question.place, Box):
        loose = match_chains(left.tail, right.tail, loose=True, run=question.run)
        found = _bounded(question, loose, left, right, simplified)
    return found


def _judged(
    question: Question, match: Match, left: Split, right: Split, simplified: bool, rounding: Rounding = DOUBLE
) -> Verdict | None:
    """What an entrywise match proves, for each kind of equality; ``rounding`` is what its residual counts."""
    witness = Witness(match.symmetry, simplified)
    if match.exact:
        return Verdict(
            True, "symmetry", question.domain, question.tolerance, witness, bound=0.0, residual=0.0,
            reason="a permutation and rescaling carries one onto the other, as rational numbers",
        )  # fmt: skip
    if match and question.tolerance is None:
        bound = None
        if isinstance(question.place, Box):
            bound = matched_bound(match, left, right, question.place)
        return Verdict(
            True, "symmetry", question.domain, None, witness, residual=match.residual,
            bound=bound if bound is not None and np.isfinite(bound) else None,
            reason=f"a permutation and rescaling carries one onto the other within {match.residual:.3g} ulps of "
            f"{rounding.precision}",
        )  # fmt: skip
    if match and question.tolerance and isinstance(question.place, Box):
        return _bounded(question, match, left, right, simplified)
    return None


def _bounded(question: Question, match: Match, left: Split, right: Split, simplified: bool) -> Verdict | None:
    """Neurons matched, the difference bounded on the box."""
    if match.symmetry is None or not isinstance(question.place, Box) or question.tolerance is None:
        return None
    bound = matched_bound(match, left, right, question.place)
    if not bound <= question.tolerance:
        question.notes.append(f"matched neurons bound the difference by {bound:.3g}")
        return None
    return Verdict(
        True, "matched bounds", question.domain, question.tolerance, Witness(match.symmetry, simplified), bound=bound,
        residual=match.residual, reason="with the neurons matched, the difference stays below the bound",
    )  # fmt: skip


def matched_bound(match: Match, left: Split, right: Split, box: Box) -> float:
    """Bound of the difference behind a common prefix; infinite where it cannot be computed."""
    assert match.symmetry is not None
    seen = all_values(left.prefix, Range(box.low, box.high), RangeArithmetic())[-1]
    try:
        inner = Box(np.minimum(seen.low, np.nextafter(seen.high, -np.inf)), seen.high)
        return difference_bound(left.tail, right.tail, match.symmetry, inner)
    except FiberscopeError:
        return float("inf")
