"""Equality on a box by branch and bound: bounds of the difference on ever smaller boxes, and a look for inputs that
differ.

**The certificate.** Evidence of the kind ``split_boxes`` holds

- ``tree``, the splits of the domain in preorder: ``[d, v]`` cuts a box in coordinate ``d`` at the float ``v`` (first
  the part ``x_d <= v``, then the part ``x_d >= v``), ``null`` is a leaf. On a plane and on a flat box coordinates are
  those of its view: ``(s, t)``, or the coordinates that are free, in their order.
- ``method``, ``"pair"`` where the neurons of the two correspond to each other and ``"single"`` where they do not, and
  ``matching``, null or the ``permutations`` and ``scales`` that carry the neurons of ``a`` to those of ``b``. They say
  which bound to compute and are no part of the proof: whatever they say, a bound that is computed holds.

Nothing is stored with a leaf: its bound is computed again, in outward rounding. For values it must be at most the
tolerance; for ``tolerance=0`` it is exactly zero, or no sign of a neuron is open on the leaf and the two affine maps
are the same as rational numbers. For classes, and every two of them ``i != j``, one of these must be shown not to be
positive: ``a_i - a_k - m`` for some ``k`` (for ``m > 0`` to be negative), ``b_j - b_i``, or
``(a_i - b_i) - (a_j - b_j) - m``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from fiberscope.equality.bounding.attack import climb, looks
from fiberscope.equality.bounding.branching import Exactly, Search
from fiberscope.equality.bounding.chains import MOST_INPUTS, ChainPair
from fiberscope.equality.bounding.pairs import Pairing, affordable, best_pairing, goal_of
from fiberscope.equality.bounding.programs import ProgramPair
from fiberscope.equality.bounding.trees import Cut, leaves, tree_of
from fiberscope.equality.counterexample import Counterexample, confirmed
from fiberscope.equality.evidence import Check, Evidence, integers
from fiberscope.equality.question import Question
from fiberscope.equality.refutation import different, excess, hopeless, promising, small_enough
from fiberscope.equality.verdict import Rung, Verdict, answered
from fiberscope.errors import FiberscopeError, InputError, OutOfTimeError
from fiberscope.geometry.affine_forms import exact_output
from fiberscope.geometry.domains import Box
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.compose import difference_network
from fiberscope.numerics.floats import FloatArray, gamma
from fiberscope.run import Run

_SHARE = 0.25
"""Part of the time that is left which the first try may take: other methods may be complete where this one is not."""

_LARGE_SHARE = 0.85

_SHORT = 0.25
"""Seconds of a first try where only exact leaves count: what it has reached is gone on with behind the regions."""

_FEW, _MANY = 64, 512
"""Boxes of the very first try: in products of matrices, and compiled. With many inputs it is the whole box alone."""

_MORE, _SOON = 4096, 1.0
"""Compiled boxes, and their seconds, that go on before a look at length, which takes longer than these."""

_PROBE, _FAR = 16, 512.0
"""Boxes after which a bound that is so many times the tolerance is not worth more of them before a look at length."""

_WORTH = 0.25
"""Part of the tolerance from which on a difference that was seen is worth a look for larger ones at once."""

_TIGHT = 1 << 20
"""Roundings between a difference and the tolerance that bounds do not get between, to be sure."""

_LEAVES = 1024
"""Leaves whose bounds are computed at a time when evidence is checked."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitBoxes(Evidence):
    """On every leaf of the ``tree`` the bound of the difference is small enough; see the top of this module."""

    kind: ClassVar[str] = "split_boxes"

    tree: tuple[Cut | None, ...]
    pairing: Pairing

    @property
    def permutations(self) -> tuple[Any, ...]:
        return () if self.pairing.matching is None else self.pairing.matching.permutations

    @property
    def scales(self) -> tuple[Any, ...]:
        return () if self.pairing.matching is None else self.pairing.matching.scales

    def check(self, question: Question) -> Check:
        box = question.place
        if not isinstance(box, Box):
            return Check(False, "boxes do not cover the domain")
        bounder = self.pairing.bounder(question)
        tight = self.pairing.bounder(question, quick=False)
        if bounder is None or tight is None:
            return Check(False, "the networks do not fit the pairing of their neurons")
        lows, highs = leaves(self.tree, box.low, box.high)
        goal, exact, worst = goal_of(question), ExactLeaves(question), -np.inf
        for start in range(0, len(lows), _LEAVES):
            part = slice(start, start + _LEAVES)
            found = bounder.bounds(lows[part], highs[part])
            left = np.flatnonzero(~(found.high <= goal))
            if len(left) and isinstance(tight, ChainPair):  # leaves of a search that went back
                again = tight.bounds(lows[part][left], highs[part][left])
                found.high[left], found.opened[left] = again.high, again.opened
            for k in np.flatnonzero(~(found.high <= goal)).tolist():
                if found.opened[k] or not exact.zero(lows[start + k], highs[start + k]):
                    return Check(False, f"on a box the difference is only bounded by {found.high[k]:.3g}")
                found.high[k] = 0.0
            worst = max(worst, float(found.high.max()))
            question.run.check()
        return Check(True, _text(question, len(lows), worst), worst if question.margin is None else None)

    def _answer(self) -> Iterator[tuple[str, Any]]:
        yield "tree", self.tree
        yield "method", self.pairing.method
        matching = self.pairing.matching
        yield "matching", None if matching is None else matching.to_dict()

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> SplitBoxes:
        return cls(tree_of(found["tree"]), _pairing(found))


def _pairing(found: dict[str, Any]) -> Pairing:
    matching = found["matching"]
    if found["method"] not in ("pair", "single"):
        raise InputError(f"certificate: expected pair or single, got {str(found['method'])[:40]!r}")
    if matching is None:
        return Pairing(found["method"])
    try:
        orders = [np.array(integers(p, "permutations"), dtype=np.int64) for p in matching["permutations"]]
        return Pairing(found["method"], Symmetry(orders, matching["scales"]))
    except (ValueError, FiberscopeError) as error:
        raise InputError(f"certificate: the matching is not one of networks ({error})") from error


def _text(question: Question, boxes: int, bound: float) -> str:
    where = f"on {boxes} boxes" if boxes > 1 else "on the whole box"
    if question.margin is not None:
        return f"no class of a is beaten in b, shown {where}"
    return f"the difference is at most {bound:.6g}, shown {where}"


class ExactLeaves:
    """Whether the difference is exactly zero on boxes where it is one affine map."""

    def __init__(self, question: Question) -> None:
        self.wanted = not question.tolerance and question.margin is None and small_enough(question)
        self.gap = difference_network(question.a, question.b) if self.wanted else None

    def zero(self, low: FloatArray, high: FloatArray) -> bool:
        """For a box on which every sign is proven."""
        if self.gap is None:
            return False
        middle = np.clip(0.5 * low + 0.5 * high, low, high)
        signs = self.gap.signs(middle[None]).signs[0]
        return all(v.is_zero() for v in np.asarray(exact_output(self.gap, signs)).ravel())


class Looker:
    """Evaluates points; keeps the first counterexample, confirmed exactly."""

    def __init__(self, question: Question, box: Box) -> None:
        self.question, self.box, self.example = question, box, None
        self.able = small_enough(question)
        self.best = -np.inf

    example: Counterexample | None

    def __call__(self, points: FloatArray) -> bool:
        """False too when the time is up on the way: the search around it ends by itself, and keeps what it bounded."""
        with suppress(OutOfTimeError):
            return self._decides(points)
        return False

    def _decides(self, points: FloatArray) -> bool:
        question = self.question
        gaps = excess(question, points)
        top = float(gaps.max(initial=-np.inf))
        if top > self.best and np.isfinite(top) and self._near(top):  # a new best point is worth a few steps uphill
            self.best = top
            order = np.argsort(-gaps, kind="stable")[:4]
            better, values = climb(question, self.box, points[order], 12)
            points, gaps = np.concatenate([points, better]), np.concatenate([gaps, values])
            self.best = max(self.best, float(values.max()))
        if not self.able:
            return False
        for i in promising(gaps, 2):
            if not self._above(float(gaps[i])):
                continue
            self.example = confirmed(question, points[i])
            if self.example is not None:
                return True
        return False

    def _near(self, gap: float) -> bool:
        """Whether a few steps uphill may end above the tolerance: most boxes are proven in less time than they take."""
        question = self.question
        return question.margin is not None or not gap < _WORTH * (question.tolerance or 0.0)

    def _above(self, gap: float) -> bool:
        if self.question.margin is not None or self.question.tolerance:
            return not hopeless(self.question, gap)
        return gap > 0


def _attacked(question: Question, box: Box) -> Verdict | None:
    """A look at length for inputs that differ, once for every question."""
    if question.record.attacked:
        return None
    question.record.attacked = True
    look = Looker(question, box)
    with suppress(OutOfTimeError):  # a bound on the whole box is to be had in any case
        if any(look(points) for points in looks(question, box)) and look.example is not None:
            return different(question, "refutation (inputs improved along gradients)", look.example)
    return None


def by_split_boxes(question: Question, share: float = 1.0) -> Verdict | None:
    """The search; what it has reached is kept in the question, so that it can go on later."""
    box = question.place
    if not isinstance(box, Box):
        return None
    record = question.record
    found = _attacked(question, box)
    if found is not None:
        return found
    if not record.chosen:
        record.chosen = True
        known = None if question.state is None else _sharing().load_state(question.state, question)
        if known is not None:
            return _resumed(question, box, *known)
        chosen = best_pairing(question, box, record.search)
        if chosen is None:
            question.notes.append("no bounds of the difference for these programs, or no time for one box")
            return None
        if record.search is None or chosen[0] is not record.search[0]:
            record.search = (chosen[0], Search(chosen[1], box.low, box.high))
    if record.search is None:
        return None
    return _gone_on(question, box, question.run.within(max(_SHORT, share * question.seconds_left)))


def _gone_on(question: Question, box: Box, run: Run, most: int | None = None) -> Verdict | None:
    """Branch and bound from where it stands."""
    record = question.record
    pairing, search = record.search
    exact, look = ExactLeaves(question), Looker(question, box)
    zero = exact.zero if exact.wanted else None
    goal = goal_of(question)
    if question.margin is not None and search.bound <= goal:
        proven = True  # points would only tell how far apart the values are
    else:
        proven = _pieces(question, run, look, zero) if most is None else search.go(goal, run, look, zero, most)
    if question.margin is None:
        record.prove(max(search.bound, 0.0))
    if look.example is not None:
        return different(question, "branch and bound", look.example)
    if not proven:
        if most is None:
            question.notes.append(f"branch and bound reached {search.bound:.4g} with {search.boxes} boxes")
        return None
    evidence = SplitBoxes(tuple(search.tree.preorder()), pairing)
    count = sum(node is None for node in evidence.tree)
    bound = max(search.bound, 0.0)
    found = Check(True, _text(question, count, bound), bound if question.margin is None else None)
    return answered(question, "branch and bound", evidence, found)


def _sharing() -> Any:
    """What runs elsewhere or goes on later, which brings joblib, is loaded when it is asked for."""
    return import_module("fiberscope.equality.bounding.sharing")


def _pieces(question: Question, run: Run, look: Looker, zero: Exactly | None) -> bool:
    """Branch and bound here or on a backend, with its state written every few seconds if that is wanted."""
    pairing: Pairing = question.record.search[0]
    search: Search = question.record.search[1]
    goal = goal_of(question)
    if question.backend is not None:
        within = replace(question, run=run)
        proven = bool(_sharing().share_out(within, pairing, search, goal, question.backend, zero))
        if not proven and question.record.x is not None:
            look(question.record.x[None])
        if question.state is not None:
            _sharing().save_state(question.state, question, pairing, search)
        return proven
    if question.state is None:
        return search.go(goal, run, look, zero)
    while True:
        proven = search.go(goal, run.within(_sharing().SECONDS), look, zero)
        _sharing().save_state(question.state, question, pairing, search)
        if proven or run.is_over or search.spent(goal) or look.example is not None:
            return proven


def _resumed(question: Question, box: Box, found: dict[str, Any], tree: tuple[Cut | None, ...]) -> Verdict | None:
    """The search of an earlier run, gone on with; the bounds of its boxes are computed again."""
    pairing = _pairing(found)
    bounder = pairing.bounder(question)
    if bounder is None:
        raise InputError(f"{question.state}: expected a pairing of neurons that fits the networks")
    question.record.search = (pairing, Search(bounder, box.low, box.high, tree))
    return _gone_on(question, box, question.run)


def by_first_boxes(question: Question) -> Verdict | None:
    """The search with a part of the time: a small one where only exact leaves count and regions may do better, a large
    one where neurons correspond as they stand, so that the two differ by their numbers.

    Where a difference was seen that is the tolerance up to rounding, no bound of floats will be below it.
    """
    tight = bool(question.tolerance) and question.record.gap >= (question.tolerance or 0.0) * (1 - gamma(_TIGHT))
    within = question.margin is not None or (question.tolerance and not tight)
    paired = question.record.search is not None or isinstance(Pairing().bounder(question), ProgramPair)
    return by_split_boxes(question, 0.0 if not within else _LARGE_SHARE if paired else _SHARE)


def by_few_boxes(question: Question) -> Verdict | None:
    """A few boxes, for networks whose neurons correspond as they stand: most pairs that differ little are done here."""
    box = question.place
    if not isinstance(box, Box) or not (question.tolerance or question.margin is not None):
        return None
    pairing = Pairing()
    bounder = pairing.bounder(question)
    if bounder is None or not affordable(question, bounder):
        return None
    if isinstance(bounder, ProgramPair) and bounder.chains is not None and box.ambient > MOST_INPUTS:
        # the signs of neurons do better than halves of the box, and come next
        return _classes_settled(question, box, pairing, bounder)
    question.record.search = (pairing, Search(bounder, box.low, box.high))
    few = _MANY if isinstance(bounder, ChainPair) else _FEW if box.ambient <= MOST_INPUTS else 1
    run = question.run.within(_SHARE * question.seconds_left)
    found = _gone_on(question, box, run, min(few, _PROBE))
    if found is not None:
        return found
    goal = question.tolerance or 0.0
    far = bool(goal) and question.record.search[1].bound > _FAR * goal
    if few > _PROBE and not far:
        found = _gone_on(question, box, run, few)
        if found is None and few == _MANY and goal and not run.is_over:
            found = _gone_on(question, box, run.within(_SOON), _MORE)
    worth = far or (bool(goal) and question.record.gap > _WORTH * goal)
    return _attacked(question, box) if found is None and worth else found  # before what proves equality is tried


def _classes_settled(question: Question, box: Box, pairing: Pairing, bounder: ProgramPair) -> Verdict | None:
    """The whole box alone, by each of the networks on its own."""
    if not bounder.settled(box.low, box.high) <= 0:
        return None
    return answered(question, "branch and bound", SplitBoxes((None,), pairing), Check(True, _text(question, 1, 0.0)))


QUICK: Rung = Rung(by_few_boxes, (SplitBoxes, Counterexample))
FIRST: Rung = Rung(by_first_boxes, (SplitBoxes, Counterexample))
RUNG: Rung = Rung(by_split_boxes, (SplitBoxes, Counterexample))
