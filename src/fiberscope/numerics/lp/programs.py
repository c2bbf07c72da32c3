"""Linear programs whose verdicts are proven: a warm floating-point solver proposes, arithmetic decides.

Multipliers proposed by the solver become an upper bound with all rounding included; points are checked row by row,
pulled a little towards an inner point (:mod:`fiberscope.numerics.lp.floats`). Where that does not decide, the
rational simplex method of :mod:`fiberscope.numerics.lp.rational` starts from the solver's basis.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray, gamma
from fiberscope.numerics.lp.floats import (
    DualModel,
    directed,
    inside,
    pull_inside,
    safe_bound,
    value_bounds,
)
from fiberscope.numerics.lp.rational import (
    CAP,
    Constraints,
    ExactOutcome,
    Proposal,
    Sense,
    Status,
    check_point,
    exact_simplex,
)
from fiberscope.numerics.lp.simplex import SmallModel
from fiberscope.numerics.points import ExactPoint
from fiberscope.results import Result, hidden

_GAP = 2.0**-20
"""Bounds further apart than this, relative to their size, are not worth reporting: the exact optimum is taken."""

_SMALL = 20_000
"""Up to so many numbers the compiled simplex method with its explicit inverse beats the general solver."""


@dataclass(frozen=True, slots=True, eq=False)
class LPAnswer(Result):
    """The maximum of ``c x``: ``lower <= max <= upper``, both proven; no tolerance is part of the claim.

    ``point`` attains ``lower``; it is feasible as it stands, or the rounding of the feasible ``exact_point``.
    ``multipliers`` of the rows prove ``upper`` (``dual_bound``) or emptiness (``check_infeasible``), ``ray`` proves
    unboundedness (``check_ray``). ``exact`` is the optimum itself where it was computed.
    """

    status: Status
    lower: float
    upper: float
    exact: Fraction | None = None
    point: FloatArray | None = field(default=None, repr=False)
    exact_point: ExactPoint | None = field(default=None, repr=False, metadata=hidden())
    multipliers: Any = field(default=None, repr=False, metadata=hidden())
    ray: tuple[int, ...] | None = field(default=None, repr=False, metadata=hidden())
    method: Literal["float", "exact"] = "float"


@dataclass(frozen=True, slots=True, eq=False)
class Feasibility(Result):
    """Whether there is a point (a strict one, for the interior): True and False are proven, None is open.

    True comes with ``point``, valid as it stands or the rounding of the valid ``exact_point``; False with the
    ``multipliers`` of the rows for ``check_infeasible`` or ``check_no_interior``.
    """

    answer: bool | None
    point: FloatArray | None = field(default=None, repr=False)
    exact_point: ExactPoint | None = field(default=None, repr=False, metadata=hidden())
    multipliers: Any = field(default=None, repr=False, metadata=hidden())
    method: Literal["float", "exact"] = "float"


class Polyhedron:
    """The points x with ``A x <= b``, ``E x = e`` and ``lower <= x <= upper``, ready to be asked many times.

    Floats are taken as exact numbers. Finite bounds of the variables make negative answers cheap, because they absorb
    rounding in the multipliers; without them such answers need exact arithmetic. Rows may be switched, flipped and
    moved between questions (:meth:`set_rows`), as an enumeration of regions does; the solver stays warm.

    Parameters
    ----------
    A, b
        ``(m, n)`` and ``(m,)``.
    equations
        ``(E, e)``, appended to the rows with the sense ``EQUAL``.
    lower, upper
        Bounds of the variables, scalars or ``(n,)``; infinite by default.

    >>> triangle = Polyhedron([[1.0, 1.0]], [1.0], lower=0.0, upper=1.0)
    >>> triangle.maximize([1.0, 2.0], exact=True).exact
    Fraction(2, 1)
    >>> triangle.interior().answer
    True
    """

    def __init__(
        self,
        A: Any,
        b: Any,
        *,
        equations: tuple[Any, Any] | None = None,
        lower: Any = -np.inf,
        upper: Any = np.inf,
    ) -> None:
        matrix, right = real_array(A, "A", ndim=2), real_array(b, "b", ndim=1)
        sense = np.full(len(right), Sense.AT_MOST, np.int8)
        if len(matrix) != len(right):
            raise InputError(f"expected as many rows in A as entries in b, got {matrix.shape} and {right.shape}")
        if equations is not None:
            left, side = real_array(equations[0], "E", ndim=2), real_array(equations[1], "e", ndim=1)
            if left.shape != (len(side), matrix.shape[1]):
                raise InputError(f"expected E of shape ({len(side)}, {matrix.shape[1]}), got {left.shape}")
            matrix, right = np.concatenate([matrix, left]), np.concatenate([right, side])
            sense = np.concatenate([sense, np.full(len(side), Sense.EQUAL, np.int8)])
        n = matrix.shape[1]
        if n == 0:
            raise InputError("expected at least one variable, got A with no columns")
        low, high = (_variable_bounds(v, n, name) for v, name in ((lower, "lower"), (upper, "upper")))
        # contiguous and our own: rows change
        self._rows = (np.array(matrix, order="C"), np.array(right), sense)
        self._box = (low, high)
        top = np.abs(matrix).max(axis=1, initial=0.0)
        self._weights = np.where(top > 0, 2.0 ** np.frexp(top)[1].clip(-1000, 1000), 1.0)
        self._model = SmallModel(self.constraints, self._weights)
        self._warm: DualModel | None = None
        self._pending: set[int] = set()
        self._small = gamma(2 * sum(matrix.shape) + 24)
        self._inner: Feasibility | None = None

    @property
    def constraints(self) -> Constraints:
        """The constraints as they stand, for the checks of certificates; a copy."""
        matrix, right, sense = self._rows
        return Constraints(matrix, right.copy(), sense.copy(), *self._box)

    def set_rows(self, rows: Any, senses: Any, bounds: Any = None) -> None:
        """Give some rows another :class:`Sense` and, if wanted, another right side; all are scalars or 1-d.

        >>> line = Polyhedron([[1.0]], [0.5], lower=0.0, upper=1.0)
        >>> line.set_rows(0, Sense.AT_LEAST)  # x >= 1/2
        >>> line.maximize([-1.0], exact=True).exact
        Fraction(-1, 2)
        """
        _, right, sense = self._rows
        which = np.atleast_1d(np.asarray(rows, dtype=np.int64))
        new = np.broadcast_to(np.asarray(senses, dtype=np.int8), which.shape)
        if ((new < Sense.AT_LEAST) | (new > Sense.OFF)).any():
            raise InputError(f"expected senses among {[int(s) for s in Sense]}, got {new.tolist()}")
        sense[which] = new
        if bounds is not None:
            right[which] = real_array(bounds, "bounds")
        self._model.change(which, sense[which], right[which])
        self._pending.update(which.tolist())
        inner = self._inner
        known = inner is not None and inner.answer is True and inner.exact_point is None
        if not (known and self._surely_inside(inner.point)):  # type: ignore[union-attr]
            self._inner = None

    def _surely_inside(self, x: Any) -> bool:
        return bool(inside(self._rows, self._box, x, self._small))

    def _propose(self, c: FloatArray | None) -> Proposal:
        """The compiled method for small programs without equations; HiGHS for the rest and where that fails."""
        sense = self._rows[2]
        if self._model.rows.size <= _SMALL and not (sense == Sense.EQUAL).any():
            proposal = self._model.solve(c)
            if proposal is not None:
                return proposal
        if self._warm is None:
            self._warm = DualModel(self.constraints, self._weights)
        else:
            for k in self._pending:
                self._warm.change(k, int(sense[k]), float(self._rows[1][k]))
        self._pending.clear()
        return self._warm.solve(c, sense)

    # --- questions ---------------------------------------------------------------------------------

    def interior(self) -> Feasibility:
        """Is there a point that satisfies every inequality strictly (and the equations)? Remembered.

        >>> Polyhedron([[1.0], [-1.0]], [0.0, 0.0]).interior().answer  # x <= 0 and x >= 0
        False
        """
        if self._inner is None:
            self._inner = self._find_interior()
        return self._inner

    def _find_interior(self) -> Feasibility:
        zero = np.zeros(len(self._box[0]))
        if (self._box[0] >= self._box[1]).any():
            return Feasibility(False, multipliers=np.zeros(len(self._weights)), method="exact")
        proposal = self._propose(None)
        if proposal.optimal and self._surely_inside(proposal.x):
            return Feasibility(True, point=proposal.x)
        if safe_bound(self._rows, self._box, zero, proposal.y, self._small) < 0:
            return Feasibility(False, multipliers=proposal.y)
        outcome, fold = self._exact(None, proposal)
        if outcome.status == "infeasible" or (outcome.value is not None and outcome.value <= 0):
            return Feasibility(False, multipliers=fold, method="exact")
        if outcome.status != "optimal" or outcome.point is None:
            return Feasibility(None, method="exact")
        return self._found(ExactPoint(outcome.point.numerators[:-1], outcome.point.denominator), strict=True)

    def feasible(self) -> Feasibility:
        """Is there a point at all?

        >>> Polyhedron([[1.0], [-1.0]], [0.0, -1e-12]).feasible().answer  # x <= 0 and x >= 1e-12
        False
        """
        inner = self.interior()
        if inner.answer is True or (inner.answer is False and inner.method == "float"):
            return inner
        zero = np.zeros(len(self._box[0]))
        outcome, fold = self._exact(zero, self._propose(zero))
        if outcome.status == "infeasible":
            return Feasibility(False, multipliers=fold, method="exact")
        return Feasibility(None) if outcome.point is None else self._found(outcome.point, strict=False)

    def _found(self, point: ExactPoint, *, strict: bool) -> Feasibility:
        """A proven point; its rounding, if that is as good."""
        x = point.floats()
        rounds = bool(np.isfinite(x).all()) and check_point(self.constraints, x, strict=strict)
        return Feasibility(True, x, None if rounds else point, method="exact")

    def maximize(self, c: Any, *, exact: bool = False) -> LPAnswer:
        """The maximum of ``c x`` between proven bounds; with ``exact`` the optimum itself, as a fraction.

        >>> Polyhedron([[3.0]], [1.0], lower=0.0).maximize([1.0], exact=True).exact
        Fraction(1, 3)
        """
        cost = real_array(c, "c", ndim=1)
        if cost.shape != self._box[0].shape:
            raise InputError(f"expected c of length {len(self._box[0])}, got {len(cost)}")
        inner = self.interior()
        if inner.answer is False and inner.method == "float":
            return LPAnswer("infeasible", -np.inf, -np.inf, multipliers=inner.multipliers)
        proposal = self._propose(cost)
        if not exact and proposal.optimal and inner.point is not None and inner.exact_point is None:
            answer = self._between(cost, proposal.x, proposal.y, inner.point)
            if answer is not None:
                return answer
        outcome, fold = self._exact(cost, proposal)
        return _answer(outcome, fold, cost)

    def _between(self, c: FloatArray, x: FloatArray, y: FloatArray, inner: FloatArray) -> LPAnswer | None:
        """Float bounds of the maximum, if they are close."""
        upper = safe_bound(self._rows, self._box, c, y, self._small)
        if not upper < np.inf or not pull_inside(self._rows, self._box, x, inner, self._small):
            return None
        lower = value_bounds(c, x, self._small)[0]
        if not upper - lower <= _GAP * max(1.0, abs(upper), abs(lower)):
            return None
        return LPAnswer("optimal", lower, upper, point=x, multipliers=y)

    def _exceeds(self, c: FloatArray, c0: float) -> bool | None:
        for exact in (False, True):
            answer = self.maximize(c, exact=exact)
            if answer.status == "unbounded" or answer.lower + c0 > 0:
                return True
            if answer.status == "infeasible" or answer.upper + c0 <= 0:
                return False
            if answer.exact is not None:
                return answer.exact + Fraction(c0) > 0
        return None

    def essential(self, row: int) -> bool | None:
        """Does the polyhedron grow when this inequality is dropped? (Of two equal rows neither does.)

        >>> square = Polyhedron([[1.0, 1.0], [1.0, 1.0]], [1.5, 2.0], lower=0.0, upper=1.0)
        >>> square.essential(0), square.essential(1)  # the second touches a corner only
        (True, False)
        """
        matrix, right, senses = self._rows
        sense = int(senses[row])
        if abs(sense) != 1:
            raise InputError(f"expected an inequality that is on, got row {row} with {Sense(sense).name}")
        self.set_rows(row, Sense.OFF)
        try:
            return self._exceeds(sense * matrix[row], -sense * float(right[row]))
        finally:
            self.set_rows(row, sense)

    # --- exact fallback ------------------------------------------------------------------------------

    def _exact(self, c: FloatArray | None, proposal: Proposal) -> tuple[ExactOutcome, list[Fraction] | None]:
        """The rational simplex method from the solver's basis, for ``c x`` or (None) for the depth of a point."""
        rows, origin, sign = self.constraints.oriented()
        place = {(int(k), int(s)): i for i, (k, s) in enumerate(zip(origin, sign, strict=True))}
        if c is None:
            weight = np.where(origin >= 0, self._weights[origin.clip(0)], 1.0)
            weight[(origin >= 0) & (self._rows[2][origin.clip(0)] == Sense.EQUAL)] = 0.0
            rows = np.column_stack([rows[:, :-1], weight, rows[:, -1]])
            cap = np.zeros((1, rows.shape[1]))
            cap[0, -2:] = 1.0
            place[CAP] = len(rows)
            rows = np.concatenate([rows, cap])
            c = cap[0, :-1]
        candidates = [place[key] for key in proposal.tight() if key in place]
        outcome = exact_simplex(rows, c, candidates)
        if outcome.multipliers is None:
            return outcome, None
        fold = [Fraction(0)] * len(self._weights)
        for i, value in outcome.multipliers.items():
            if i < len(origin) and origin[i] >= 0:  # the bounds of variables follow from the rest, the cap has no row
                fold[origin[i]] += int(sign[i]) * value
        return outcome, fold


def _variable_bounds(value: Any, n: int, name: str) -> FloatArray:
    array = np.broadcast_to(real_array(value, name, finite=False), (n,)).copy()
    if np.isnan(array).any():
        raise InputError(f"{name}: expected numbers or infinity, got NaN")
    return array


def _answer(outcome: ExactOutcome, fold: list[Fraction] | None, c: FloatArray) -> LPAnswer:
    if outcome.status == "infeasible":
        return LPAnswer("infeasible", -np.inf, -np.inf, multipliers=fold, method="exact")
    if outcome.point is None:
        return LPAnswer("undecided", -np.inf, np.inf, method="exact")
    pairs = zip(c, outcome.point.numerators, strict=True)
    value = sum((Fraction(float(w)) * p for w, p in pairs), Fraction(0)) / outcome.point.denominator
    low, high = directed(value)
    return LPAnswer(
        outcome.status,
        low,
        np.inf if outcome.status == "unbounded" else high,
        exact=outcome.value,
        point=outcome.point.floats(),
        exact_point=outcome.point,
        multipliers=fold,
        ray=outcome.ray,
        method="exact",
    )
