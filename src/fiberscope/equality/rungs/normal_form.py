"""Equality by normal form: two networks written over one table of hyperplanes; complete for one hidden layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fiberscope.equality.question import Question
from fiberscope.equality.refutation import confirmed, difference
from fiberscope.equality.verdict import Verdict, Witness
from fiberscope.errors import TooLargeError
from fiberscope.fibers.normal_form import ONE, Row, Table, combine, normal_form
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane
from fiberscope.geometry.ranges.domain_roles import DomainRoles
from fiberscope.geometry.samples import inside, sample
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.ulps import DOUBLE, FEW, Rounding
from fiberscope.run import ENDLESS, Run

Signs = tuple[IntArray | None, IntArray | None]


def table_for(
    net: Network, domain: Domain, ulps: int = 0, deadline: float = float("inf"), rounding: Rounding = DOUBLE
) -> Table:
    """An empty table for networks on a domain; ``ulps`` counts units of the rounding."""
    nonnegative: list[bool] = []
    if isinstance(domain, Orthant):
        nonnegative = [True] * net.in_size
    elif isinstance(domain, Box):
        nonnegative = (domain.low >= 0).tolist()
    return Table(net.in_size, nonnegative, ulps, deadline, rounding.unit)


def forms_agree(a: Network, b: Network, table: Table, signs: Signs) -> tuple[bool, list[Row]]:
    """Whether the normal forms agree, and the rows of the difference where they do not."""
    left, right = normal_form(a, table, signs[0]), normal_form(b, table, signs[1])
    gaps = [combine([(1, 0, p), (-1, 0, q)], False) for p, q in zip(left, right, strict=True)]
    same = [table.same(p, q) for p, q in zip(left, right, strict=True)]
    return all(same), [gap for gap, ok in zip(gaps, same, strict=True) if not ok]


def compare_forms(
    a: Network, b: Network, domain: Domain, signs: Signs, tolerance: float | None, run: Run = ENDLESS
) -> Verdict:
    """A verdict of equality by normal forms alone: exact, or for ``tolerance=None`` up to rounding; else undecided."""
    assert not isinstance(domain, Plane)
    precision = None if tolerance is not None else DOUBLE.precision
    for ulps in (0,) if tolerance == 0 else (0, FEW):
        table = table_for(a, domain, ulps, run.deadline)
        try:
            same, _ = forms_agree(a, b, table, signs)
        except TooLargeError as error:
            reason = str(error)
            return Verdict(None, "normal form", domain, tolerance, reason=reason, networks=(a, b), precision=precision)
        if same:
            return replace(_proven(a, b, domain, tolerance, table, signs), precision=precision)
    reason = "the normal forms differ, which proves nothing for more than one hidden layer"
    return Verdict(None, "normal form", domain, tolerance, reason=reason, networks=(a, b), precision=precision)


def _proven(a: Network, b: Network, domain: Domain, tolerance: float | None, table: Table, signs: Signs) -> Verdict:
    filled = tuple(
        np.zeros(net.num_signs, dtype=np.int64) if s is None else s for net, s in zip((a, b), signs, strict=True)
    )
    witness = Witness(signs=(filled[0], filled[1]), hyperplanes=len(table.rows), ulps=table.ulps)
    return Verdict(
        True,
        "one hidden layer" if table.depth <= 1 and not table.ulps else "normal form",
        domain,
        tolerance,
        witness,
        bound=None if table.ulps else 0.0,
        residual=table.residual,
        reason=f"both are the same sum over {len(table.rows)} hyperplanes",
        networks=(a, b),
    )


def by_forms(question: Question) -> Verdict | None:
    """The rung: exact normal forms, then up to rounding if that is asked; complete where the forms have depth one."""
    found = _one_try(question, (None, None), (None, None))
    if found is None and (question.a.num_hidden or question.b.num_hidden):
        roles = question.roles()
        signs: Signs = (entries_of(question.a, roles[0]), entries_of(question.b, roles[1]))
        found = _one_try(question, signs, roles)
    return found


def _one_try(question: Question, signs: Signs, roles: tuple[DomainRoles | None, DomainRoles | None]) -> Verdict | None:
    a, b, place = question.a, question.b, question.place
    for ulps in (0, question.rounding.few) if question.tolerance is None else (0,):
        table = table_for(a, place, ulps, question.run.deadline, question.rounding)
        try:
            same, gaps = forms_agree(a, b, table, signs)
        except TooLargeError as error:
            question.notes.append(str(error))
            return None
        if same:
            return _proven(a, b, question.domain, question.tolerance, table, signs)
        if not ulps and table.depth <= 1 and _complete(roles):
            return _differ(question, table, gaps)
    return None


def _complete(roles: tuple[DomainRoles | None, DomainRoles | None]) -> bool:
    """Whether every hyperplane that is left is known to meet the inside of the domain."""
    return all(r is not None and not r.undecided.any() for r in roles)


def _differ(question: Question, table: Table, gaps: list[Row]) -> Verdict | None:
    """Different hyperplane representations: look for a point near a hyperplane whose weights differ."""
    points = near_gaps(question, table, gaps)
    for x in points:
        example = confirmed(question.a, question.b, x, question.tolerance, question.rounding)
        if example is not None:
            return Verdict(
                False, "one hidden layer", question.domain, question.tolerance, counterexample=example,
                reason="their hyperplane representations differ",
            )  # fmt: skip
    if question.tolerance == 0:
        return Verdict(
            False, "one hidden layer", question.domain, question.tolerance,
            reason="their hyperplane representations differ; no float input at which they do was found",
        )  # fmt: skip
    return None


def near_gaps(question: Question, table: Table, gaps: list[Row], count: int = 8) -> FloatArray:
    """Points of the domain on both sides of hyperplanes of the first layer whose weights differ, and random ones."""
    base = sample(question.place, 4 * count, question.rng)
    found = [base]
    atoms = sorted({atom for gap in gaps for atom in gap.terms if atom > table.inputs})
    for atom in atoms[:8]:
        names, values = table.rows[atom - table.inputs - 1]
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
    points = points[inside(question.place, points)]
    return np.asarray(points[np.argsort(-difference(question, points))[: 2 * count]])


def entries_of(net: Network, roles: DomainRoles | None) -> IntArray | None:
    """Proven signs of neurons as entries of the sign vector, which has entries of pooling windows as well."""
    if roles is None:
        return None
    parts, start = [], 0
    for node in net.switches:
        if isinstance(node, PiecewiseLinear):
            parts.append(roles.signs[start : start + node.num_signs])
            start += node.num_signs
        else:
            parts.append(np.zeros(node.num_signs, dtype=np.int64))
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)
