"""Linear programming over the rationals: checks of certificates, and a simplex method to fall back on.

Nothing here knows a floating-point solver. A claim about a polyhedron is a point, or multipliers of its
constraints, and every check recomputes it with fractions:

- multipliers ``y`` of the right signs give ``c x <= y b + r x`` with ``r = c - y A``, and the bounds of the
  variables give the rest;
- a negative bound of ``0 x`` proves that there is no point at all (Farkas);
- a bound of ``0 x`` by 0 in which an inequality takes part proves that no point is strict in all (Motzkin).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from typing import Any, Literal

import flint
import numpy as np

from fiberscope.numerics.elimination import pivots_mod
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray
from fiberscope.numerics.modular import residues
from fiberscope.numerics.points import ExactPoint, exact_rows, integer_rows

Status = Literal["optimal", "infeasible", "unbounded", "undecided"]

_PIVOT_PRIME = 2**61 - 1  # independent modulo a prime is independent; any prime will do


CAP = (-1, 0)
"""Key of the constraint ``t <= 1`` on the depth."""


class Sense(IntEnum):
    """How a row ``A_k x`` compares with ``b_k``; a row that is off does not count."""

    AT_MOST = 1
    AT_LEAST = -1
    EQUAL = 0
    OFF = 2


@dataclass(frozen=True, slots=True, eq=False)
class Constraints:
    """All x with ``A_k x <= b_k``, ``>=`` or ``=`` according to the sense, and ``lower <= x <= upper``.

    ``A`` is ``(m, n)``, ``b`` and ``sense`` are ``(m,)``, the bounds ``(n,)``. Floats are exact numbers; bounds
    of the variables may be infinite.
    """

    A: FloatArray = field(repr=False)
    b: FloatArray = field(repr=False)
    sense: SignArray
    lower: FloatArray
    upper: FloatArray

    def oriented(self) -> tuple[FloatArray, IntArray, IntArray]:
        """All constraints as rows ``(w, g)`` meaning ``w x <= g``, with the row each stems from and its sign.

        An equation gives two rows, a finite bound of ``x_j`` one row, of origin ``-1 - j``.
        """
        n = len(self.lower)
        parts, origins, signs = [], [], []
        for sign in (1, -1):
            which = np.flatnonzero((self.sense == sign) | (self.sense == Sense.EQUAL))
            parts.append(sign * np.column_stack([self.A[which], self.b[which]]))
            origins.append(which)
            signs.append(np.full(len(which), sign))
            bound = self.upper if sign == 1 else self.lower
            finite = np.flatnonzero(np.isfinite(bound))
            parts.append(sign * np.column_stack([np.eye(n)[finite], bound[finite]]))
            origins.append(-1 - finite)
            signs.append(np.full(len(finite), sign))
        return np.concatenate(parts), np.concatenate(origins), np.concatenate(signs)


# --- checks ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """What the solver said, in the scale of the rows given: nothing of it is trusted."""

    optimal: bool
    x: FloatArray
    y: FloatArray
    tight: Callable[[], list[tuple[int, int]]]
    """The rows of its basis as ``(origin, sign)`` of :meth:`Constraints.oriented`; asked for only at need."""


def _fractions(values: Any) -> list[Fraction]:
    return [v if isinstance(v, Fraction) else Fraction(float(v)) for v in values]


def _residual(
    constraints: Constraints, c: Sequence[Fraction], y: Sequence[Fraction]
) -> tuple[list[Fraction], Fraction] | None:
    """``c - y A`` and ``y b``; None if a multiplier has the wrong sign."""
    rest, total = list(c), Fraction(0)
    for k, value in enumerate(y):
        sense = int(constraints.sense[k])
        if value == 0:
            continue
        if sense == Sense.OFF or (sense == Sense.AT_MOST and value < 0) or (sense == Sense.AT_LEAST and value > 0):
            return None
        total += value * Fraction(float(constraints.b[k]))
        for j, a in enumerate(constraints.A[k]):
            if a:
                rest[j] -= value * Fraction(float(a))
    return rest, total


def dual_bound(constraints: Constraints, c: Any, multipliers: Any) -> Fraction | None:
    """Upper bound of ``c x`` that multipliers ``(m,)`` of the rows prove; None if they prove none.

    What the rows leave over of c is met by the bounds of the variables. No solver takes part.

    >>> square = Constraints(np.array([[1.0, 1.0]]), np.ones(1), np.ones(1, np.int8), np.zeros(2), np.ones(2))
    >>> dual_bound(square, [2.0, 1.0], [1.0])  # 2 x + y = (x + y) + x <= 1 + 1
    Fraction(2, 1)
    """
    parts = _residual(constraints, _fractions(c), _fractions(multipliers))
    if parts is None:
        return None
    rest, total = parts
    for j, r in enumerate(rest):
        if r != 0:
            bound = float(constraints.upper[j] if r > 0 else constraints.lower[j])
            if not np.isfinite(bound):
                return None
            total += r * Fraction(bound)
    return total


def check_infeasible(constraints: Constraints, multipliers: Any) -> bool:
    """Whether the multipliers prove that the polyhedron is empty.

    >>> line = Constraints(np.array([[1.0], [1.0]]), np.array([0.0, 1.0]), np.array([1, -1], np.int8),
    ...                    np.array([-np.inf]), np.array([np.inf]))
    >>> check_infeasible(line, [1.0, -1.0])  # x <= 0 and x >= 1
    True
    """
    crossed = bool((constraints.lower > constraints.upper).any())
    bound = dual_bound(constraints, np.zeros(len(constraints.lower)), multipliers)
    return crossed or (bound is not None and bound < 0)


def check_no_interior(constraints: Constraints, multipliers: Any) -> bool:
    """Whether the multipliers prove that no point satisfies all inequalities strictly (and the equations)."""
    if (constraints.lower >= constraints.upper).any():
        return True
    zero = [Fraction(0)] * len(constraints.lower)
    y = _fractions(multipliers)
    bound, parts = dual_bound(constraints, zero, y), _residual(constraints, zero, y)
    if bound is None or parts is None:
        return False
    takes_part = any(v != 0 and constraints.sense[k] != Sense.EQUAL for k, v in enumerate(y)) or any(parts[0])
    return bound < 0 or (bound == 0 and takes_part)


def check_point(constraints: Constraints, point: Any, *, strict: bool = False) -> bool:
    """Whether a point, floats or :class:`ExactPoint`, lies in the polyhedron; strictly in all inequalities.

    >>> box = Constraints(np.zeros((0, 1)), np.zeros(0), np.zeros(0, np.int8), np.zeros(1), np.ones(1))
    >>> check_point(box, [1.0]), check_point(box, [1.0], strict=True), check_point(box, ExactPoint((1,), 3))
    (True, False, True)
    """
    if not isinstance(point, ExactPoint):
        point = rational_point(point)
    rows, origin, _ = constraints.oriented()
    values = exact_rows(rows) * flint.fmpz_mat([[p] for p in (*point.numerators, -point.denominator)])
    for value, k in zip(values.entries(), origin, strict=True):
        equation = k >= 0 and constraints.sense[k] == Sense.EQUAL
        if value > 0 or (strict and not equation and value == 0):
            return False
    return True


def check_ray(constraints: Constraints, c: Any, ray: Sequence[int]) -> bool:
    """Whether moving along the ray never leaves the polyhedron, entered anywhere, and increases ``c x``."""
    rows, _, _ = constraints.oriented()
    column = flint.fmpz_mat([[r] for r in ray])
    gain = (flint.fmpz_mat([integer_rows(np.asarray(c, float)).tolist()]) * column).entries()[0]
    return bool(gain > 0 and all(v <= 0 for v in (exact_rows(rows[:, :-1]) * column).entries()))


def rational_point(x: Any) -> ExactPoint:
    """Floats as an exact point.

    >>> rational_point([0.5, 3.0])
    ExactPoint(numerators=(1, 6), denominator=2)
    """
    values = [Fraction(float(v)) for v in x]
    denominator = max((v.denominator for v in values), default=1)  # powers of two: the largest is common
    return ExactPoint(tuple(int(v * denominator) for v in values), denominator)


# --- the simplex method ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ExactOutcome:
    """What :func:`exact_simplex` proved; the fields that belong to the status are set."""

    status: Status
    pivots: int
    point: ExactPoint | None = None
    value: Fraction | None = None
    multipliers: dict[int, Fraction] | None = None
    """Of the rows that take part."""
    ray: tuple[int, ...] | None = None


class _Basis:
    """n independent rows: ``>= 0`` an index, ``-1 - j`` the auxiliary ``x_j = 0``. Everything is times ``den``."""

    def __init__(self, matrix: Any, right: Any, members: list[int]) -> None:
        self.matrix, self.right, self.members = matrix, right, members
        self.n = int(matrix.ncols())
        self.refresh()

    def refresh(self) -> None:
        n, table = self.n, []
        for member in self.members:
            if member >= 0:
                table.append([self.matrix[member, j] for j in range(n)])
            else:
                table.append([int(j == -1 - member) for j in range(n)])
        self.inverse, self.den = flint.fmpq_mat(flint.fmpz_mat(table)).inv().numer_denom()
        sides = [[self.right[m, 0] if m >= 0 else 0] for m in self.members]
        self.x = self.inverse * flint.fmpz_mat(sides)
        self.slack = (self.right * self.den - self.matrix * self.x).entries()  # times den, which is positive

    def weights(self, row: Any) -> list[Any]:
        """Coefficients, times den, that combine the members to the given ``1 x n`` row."""
        return list((row * self.inverse).entries())

    def exchange(self, place: int, entering: int) -> None:
        self.members[place] = entering
        self.refresh()


def start_basis(rows: FloatArray, candidates: Sequence[int]) -> list[int]:
    """Independent rows, candidates first in their order, filled up with auxiliaries ``x_j = 0``."""
    n = rows.shape[1]
    stacked = np.concatenate([rows[list(candidates)], np.eye(n)])
    names = [*candidates, *(-1 - j for j in range(n))]
    # rows of very different size are harmless here: residues know no size
    return [names[i] for i in pivots_mod(residues(stacked, _PIVOT_PRIME).T, _PIVOT_PRIME)]


def exact_simplex(
    rows: FloatArray, c: FloatArray, candidates: Sequence[int] = (), max_pivots: int = 2000
) -> ExactOutcome:
    """Maximise ``c x`` subject to ``w x <= g`` for ``rows = (w, g)``, ``(m, n+1)``, over the rationals.

    Starts at the given rows (those a float solver believes to be tight) and exchanges by Bland's rule, which
    cannot cycle (R. G. Bland, Math. Oper. Res. 2, 1977). First violated rows enter, while the multipliers stay
    valid; if they are not valid at the start, this part runs with ``c = 0``, for which the multipliers are 0.
    Then, the point being feasible, rows with a wrong multiplier leave.

    >>> outcome = exact_simplex(np.array([[3.0, 0.0, 1.0], [0.0, 1.0, 2.0]]), np.array([1.0, 1.0]))
    >>> outcome.value, outcome.point, outcome.multipliers
    (Fraction(7, 3), ExactPoint(numerators=(1, 6), denominator=3), {0: Fraction(1, 3), 1: Fraction(1, 1)})
    """
    integers, cost = integer_rows(rows), integer_rows(np.asarray(c, float))
    n = len(cost)
    matrix = flint.fmpz_mat(len(rows), n, integers[:, :n].ravel().tolist())
    basis = _Basis(
        matrix,
        flint.fmpz_mat(len(rows), 1, integers[:, n].tolist()),
        start_basis(rows[:, :n], candidates),
    )
    target = flint.fmpz_mat([cost.tolist()])
    scale = _Scale(rows, np.asarray(c, float), integers, cost)
    pivots = 0
    zero = flint.fmpz_mat(1, n)
    first = target if _valid(basis, target) else zero
    while (violated := _first_violated(basis)) is not None:
        if pivots >= max_pivots:
            return ExactOutcome("undecided", pivots)
        entering = flint.fmpz_mat([[matrix[violated, j] for j in range(n)]])
        place = _leaving(basis, first, entering)
        if place is None:
            return ExactOutcome("infeasible", pivots, multipliers=scale.farkas(basis, violated, entering))
        basis.exchange(place, violated)
        pivots += 1
    while (move := _improving(basis, target)) is not None:
        if pivots >= max_pivots:
            return ExactOutcome("undecided", pivots)
        place, direction = move
        blocking = _blocking(basis, direction)
        if blocking is None:
            ray = tuple(int(v) for v in direction.entries())
            return ExactOutcome("unbounded", pivots, point=_point(basis), ray=ray)
        basis.exchange(place, blocking)
        pivots += 1
    point = _point(basis)
    return ExactOutcome("optimal", pivots, point, scale.value(point), scale.multipliers(basis, target))


def _point(basis: _Basis) -> ExactPoint:
    return ExactPoint(tuple(int(v) for v in basis.x.entries()), int(basis.den))


def _valid(basis: _Basis, target: Any) -> bool:
    """Whether the target is a combination of the members with multipliers >= 0, auxiliaries not used."""
    pairs = zip(basis.weights(target), basis.members, strict=True)
    return all(y >= 0 if member >= 0 else y == 0 for y, member in pairs)


def _first_violated(basis: _Basis) -> int | None:
    return next((k for k, s in enumerate(basis.slack) if s < 0), None)


def _leaving(basis: _Basis, target: Any, entering: Any) -> int | None:
    """The member that leaves for the entering row, so that the multipliers of the target stay valid."""
    best: tuple[Any, int, int] | None = None
    pairs = zip(basis.weights(entering), basis.weights(target), basis.members, strict=True)
    for place, (d, y, member) in enumerate(pairs):
        if member < 0 and d != 0:
            return place  # an auxiliary leaves first: its multiplier is and stays zero
        if member >= 0 and d > 0:
            key = (flint.fmpq(y, d), member, place)
            best = key if best is None or key[:2] < best[:2] else best
    return None if best is None else best[2]


def _improving(basis: _Basis, target: Any) -> tuple[int, Any] | None:
    """A member to leave, by Bland's rule, and the direction in which the target then grows."""
    order = sorted(range(basis.n), key=lambda i: basis.members[i])  # auxiliaries first
    weights = basis.weights(target)
    for i in order:
        y, member = weights[i], basis.members[i]
        if y < 0 or (member < 0 and y != 0):
            sign = 1 if y > 0 else -1
            return i, flint.fmpz_mat([[sign * basis.inverse[j, i]] for j in range(basis.n)])
    return None


def _blocking(basis: _Basis, direction: Any) -> int | None:
    """The row that is met first when moving along the direction; None if none ever is."""
    best: tuple[Any, int] | None = None
    for k, (growth, slack) in enumerate(zip((basis.matrix * direction).entries(), basis.slack, strict=True)):
        if growth > 0:
            key = (flint.fmpq(slack, growth), k)
            best = key if best is None or key < best else best
    return None if best is None else best[1]


class _Scale:
    """The way back from integer rows to the rows given: every one was multiplied by its own power of two."""

    def __init__(self, rows: FloatArray, c: FloatArray, integers: Any, cost: Any) -> None:
        self.rows, self.integers = rows, integers
        self.c = [Fraction(float(v)) for v in c]
        self.cost_factor = _ratio(cost, c)

    def value(self, point: ExactPoint) -> Fraction:
        numerator = sum((c * p for c, p in zip(self.c, point.numerators, strict=True)), Fraction(0))
        return numerator / point.denominator

    def factor(self, k: int) -> Fraction:
        return _ratio(self.integers[k], self.rows[k])

    def multipliers(self, basis: _Basis, target: Any) -> dict[int, Fraction]:
        """Of the members of the basis; all others are zero."""
        pairs = [(m, y) for y, m in zip(basis.weights(target), basis.members, strict=True) if m >= 0 and y != 0]
        return {m: Fraction(int(y), int(basis.den)) * self.factor(m) / self.cost_factor for m, y in pairs}

    def farkas(self, basis: _Basis, violated: int, entering: Any) -> dict[int, Fraction]:
        weights = self.multipliers(basis, entering)
        return {violated: self.factor(violated), **{m: -y * self.cost_factor for m, y in weights.items()}}


def _ratio(integers: Any, floats: FloatArray) -> Fraction:
    """``integers / floats``, the same power of two for every nonzero entry."""
    k = int(np.argmax(floats != 0)) if len(floats) else 0
    return Fraction(int(integers[k])) / Fraction(float(floats[k])) if len(floats) and floats[k] else Fraction(1)
