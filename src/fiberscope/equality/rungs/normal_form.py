"""Equality by normal form: two networks written over one table of hyperplanes; complete for one hidden layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fiberscope.equality.counterexample import Counterexample, confirmed, exact_gap, time_for_one
from fiberscope.equality.evidence import Check, Evidence, integers
from fiberscope.equality.question import Question
from fiberscope.equality.refutation import difference, different, small_enough
from fiberscope.equality.verdict import Rung, Verdict, answered
from fiberscope.errors import InputError, TooLargeError
from fiberscope.fibers.normal_form.compare import Agreement, Signs, agreement_of, entries_of, forms_agree, table_for
from fiberscope.fibers.normal_form.row import Row
from fiberscope.fibers.normal_form.table import ONE, Table
from fiberscope.geometry.ranges.domain_roles import DomainRoles, domain_roles
from fiberscope.network.nodes import PiecewiseLinear
from fiberscope.numerics.floats import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class NormalForms(Evidence):
    """The normal forms agree over ``hyperplanes`` hyperplanes: exactly, or for ``ulps > 0`` up to rounding.

    ``signs`` are the signs of neurons of ``a`` and ``b`` on the domain that were used; they are proven again.
    """

    kind: ClassVar[str] = "normal form"

    signs: tuple[IntArray, IntArray]
    hyperplanes: int | None
    ulps: int

    @classmethod
    def of(cls, found: Agreement) -> NormalForms:
        """The evidence of forms that agree."""
        assert found.signs is not None
        return cls(found.signs, found.hyperplanes, found.ulps)

    def check(self, question: Question) -> Check:
        rounding = question.rounding
        if not 0 <= self.ulps <= rounding.few or (self.ulps and question.tolerance is not None):
            return Check(False, f"agreement within {self.ulps} ulps does not prove this kind of equality")
        for signs, net in zip(self.signs, (question.a, question.b), strict=True):
            if signs.shape != (net.num_signs,):
                raise InputError(f"certificate: expected {net.num_signs} signs among -1, 0, 1")
            if signs.any():
                proven = entries_of(net, domain_roles(net, question.place))
                if not ((signs == 0) | (signs == proven)).all():
                    return Check(False, "a sign that the normal form uses could not be proven again")
        table = table_for(question.a, question.place, self.ulps, rounding=rounding)
        same, _ = forms_agree(question.a, question.b, table, self.signs)
        if same and not self.ulps and self.hyperplanes not in (None, len(table.rows)):
            return Check(False, f"there are {len(table.rows)} hyperplanes and not {self.hyperplanes}")
        how = "exactly" if not self.ulps else f"within {table.residual:.3g} units of {rounding.precision} rounding"
        text = f"the normal forms {'agree ' + how if same else 'differ'} over {len(table.rows)} hyperplanes"
        return Check(same, text, None if self.ulps else 0.0, table.residual)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> NormalForms:
        a, b = (_signs(s) for s in found["signs"])
        (ulps,) = integers([found.get("ulps", 0)], "ulps")
        told = integers([found["hyperplanes"]], "hyperplanes")[0] if "hyperplanes" in found else None
        return cls((a, b), told, ulps)


@dataclass(frozen=True, slots=True, eq=False)
class FormsDiffer(Evidence):
    """The hyperplane representations of two networks with one hidden layer differ, so their functions do.

    A proof for real functions only, and only where all hyperplanes are known to meet the inside of the domain.
    """

    kind: ClassVar[str] = "hyperplane representations differ"
    equal: ClassVar[bool] = False

    def check(self, question: Question) -> Check:
        roles = [domain_roles(net, question.place) for net in (question.a, question.b)]
        if question.tolerance != 0 or any(r.undecided.any() for r in roles):
            text = "there is no counterexample, and the hyperplane representation is not complete here"
            return Check(False, text)
        table = table_for(question.a, question.place)
        signs = (entries_of(question.a, roles[0]), entries_of(question.b, roles[1]))
        same, _ = forms_agree(question.a, question.b, table, signs)
        ok = not same and table.depth <= 1
        return Check(ok, f"the hyperplane representations {'differ' if ok else 'do not differ'}")

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> FormsDiffer:
        return cls()


def _signs(found: Any) -> IntArray:
    signs = np.asarray(found) if len(found) else np.zeros(0, dtype=np.int64)
    if signs.ndim != 1 or signs.dtype.kind not in "iu" or not np.isin(signs, (-1, 0, 1)).all():
        raise InputError("certificate: expected signs among -1, 0, 1")
    return signs.astype(np.int64)


def by_forms(question: Question) -> Verdict | None:
    """The search: exact forms, then up to rounding if that is asked; complete where the forms have depth one."""
    if _told_apart(question):
        return None
    if not small_enough(question):  # what takes longer comes next, and channels need no exact numbers
        question.notes.append("too large for normal forms in exact arithmetic")
        return None
    found = _one_try(question, (None, None), None)
    if found is None and (question.a.num_hidden or question.b.num_hidden):
        share = max(0.0, min(5.0, question.seconds_left / 4))
        first = domain_roles(question.a, question.place, share, run=question.run)
        roles = (first, domain_roles(question.b, question.place, share, run=question.run))
        signs: Signs = (entries_of(question.a, roles[0]), entries_of(question.b, roles[1]))
        found = _one_try(question, signs, roles)
    return found


def _told_apart(question: Question) -> bool:
    """Whether an input is known at which two deep networks differ as real functions, so that no exact forms agree."""
    deep = all(sum(not node.linear.all() for node in net.nodes if isinstance(node, PiecewiseLinear)) > 1
               for net in (question.a, question.b))  # fmt: skip
    x = question.record.x
    if question.tolerance is None or not deep or x is None or not small_enough(question):
        return False
    return time_for_one(question) and exact_gap(question, x) > 0


def _one_try(question: Question, signs: Signs, roles: tuple[DomainRoles, DomainRoles] | None) -> Verdict | None:
    a, b = question.a, question.b
    for ulps in (0, question.rounding.few) if question.tolerance is None else (0,):
        table = table_for(a, question.place, ulps, question.run.deadline, question.rounding)
        try:
            same, gaps = forms_agree(a, b, table, signs)
        except TooLargeError as error:
            question.notes.append(str(error))
            return None
        if same:
            found = agreement_of(a, b, table, signs, question.tolerance is not None)
            return answered(question, method_of(found), NormalForms.of(found), proven_by(found))
        # complete if every hyperplane that is left is known to meet the inside of the domain
        if not ulps and table.depth <= 1 and roles is not None and not any(r.undecided.any() for r in roles):
            return _differ(question, table, gaps)
    return None


def method_of(found: Agreement) -> str:
    """What the verdict of an agreement is called: the theorem is complete for one hidden layer."""
    return "one hidden layer" if found.exact and found.depth <= 1 else "normal form"


def proven_by(found: Agreement) -> Check:
    """What an agreement proves."""
    if not found.equal:
        return Check(False, found.reason)
    return Check(True, found.reason, 0.0 if found.exact else None, found.residual)


def _differ(question: Question, table: Table, gaps: list[Row]) -> Verdict | None:
    """Different hyperplane representations: look for a point near a hyperplane whose weights differ."""
    text = "their hyperplane representations differ"
    for x in near_gaps(question, table, gaps):
        example = confirmed(question, x)
        if example is not None:
            return different(question, "one hidden layer", example, text)
    if question.tolerance == 0:
        found = Check(True, f"{text}; no float input at which they do was found")
        return answered(question, "one hidden layer", FormsDiffer(), found)
    return None


def near_gaps(question: Question, table: Table, gaps: list[Row], count: int = 8) -> FloatArray:
    """Points of the domain on both sides of hyperplanes of the first layer whose weights differ, and random ones."""
    base = question.place.sample(4 * count, question.rng)
    found = [base]
    atoms = sorted({atom for gap in gaps for atom in gap.terms if atom > table.inputs})
    for atom in atoms[:8]:
        names, values = table.plane(atom)
        size = max(map(abs, values))  # Python divides integers of any size
        w, c = np.zeros(table.inputs), 0.0
        for name, value in zip(names, values, strict=True):
            if name == ONE:
                c = value / size
            elif name <= table.inputs:
                w[name - 1] = value / size
        norm = float(w @ w)
        if norm == 0:
            continue
        for reach in (0.5, 1e-2, 1e-4):
            shift = question.rng.uniform(-reach, reach, (len(base), 1))
            with np.errstate(over="ignore", invalid="ignore"):  # a kink beyond the floats: those points are dropped
                found.append(base - ((base @ w + c)[:, None] / norm + shift) * w)
    points = np.concatenate(found)
    points = points[np.isfinite(points).all(axis=1)]
    points = points[question.place.contains(points)]
    return np.asarray(points[np.argsort(-difference(question, points))[: 2 * count]])


RUNG: Rung = Rung(by_forms, (NormalForms, FormsDiffer, Counterexample))
