"""A small compiled simplex method in floats, for programs with few variables that are asked by the thousand.

It is the float twin of :func:`fiberscope.numerics.lp.rational.exact_simplex`: a basis of tight rows with its explicit
inverse, violated rows entering while the multipliers are valid, then rows with a wrong multiplier leaving. It may
fail or err; what it says is a proposal like that of any other solver. For a program of 64 rows and 8 variables it
takes microseconds where a general solver takes a hundred.

Arrays, for ``m`` rows, ``n`` variables and ``d = n`` (``n + 1`` where the depth is asked): ``table`` is ``rows
(m, n)``, ``sides (m,)`` and ``signs (m,)``, 0 for rows that are switched off; ``basis (d,)`` names d rows that hold
with equality at ``x (d,)``, and ``-1 - j`` an auxiliary ``x_j = 0``; ``inverse (d, d)`` is the inverse of the matrix of
these rows, ``right (d,)`` their right sides, so ``x = inverse right``; ``y (d,)`` are the multipliers of the members
with ``y B = c``, ``share (d,)`` those of an entering row. Invariant: a column of ``inverse`` is the direction in which
x moves when that member alone is let go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fiberscope.numerics.compiling.kernels import strict
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray
from fiberscope.numerics.lp.rational import CAP, Constraints, Proposal

OPTIMAL, INFEASIBLE, UNBOUNDED, FAILED = 0, 1, 2, 3

_ACCEPT = 1e-11  # violations and multipliers below this, relative to the data, are taken for zero
_PIVOT = 1e-11  # smaller pivots are not trusted


@strict
def _row(table: Any, member: Any, out: Any) -> Any:
    """Left side of a member of the basis, to ``out``, and its right side; ``-1 - j`` is ``x_j = 0``."""
    rows, sides, signs = table
    d, n = out.size, rows.shape[1]
    out[:] = 0.0
    if member < 0:
        out[-1 - member] = 1.0
        return 0.0
    for j in range(n):
        out[j] = signs[member] * rows[member, j]
    if d > n:
        out[n] = 1.0  # the depth: every row recedes by one unit
    return signs[member] * sides[member]


@strict
def _invert_basis(table: Any, basis: Any, inverse: Any, right: Any) -> bool:
    """Inverse of the basis by Gauss-Jordan, and its right sides; False if it looks singular."""
    d = basis.size
    work = np.empty((d, d))
    for i in range(d):
        right[i] = _row(table, basis[i], work[i])
    inverse[:] = 0.0
    for i in range(d):
        inverse[i, i] = 1.0
    for c in range(d):
        pivot = c
        for i in range(c + 1, d):
            if abs(work[i, c]) > abs(work[pivot, c]):
                pivot = i
        if not abs(work[pivot, c]) > _PIVOT:  # NaN fails too
            return False
        for j in range(d):
            work[c, j], work[pivot, j] = work[pivot, j], work[c, j]
            inverse[c, j], inverse[pivot, j] = inverse[pivot, j], inverse[c, j]
        scale = 1.0 / work[c, c]
        for j in range(d):
            work[c, j] *= scale
            inverse[c, j] *= scale
        for i in range(d):
            factor = work[i, c]
            if i != c and factor != 0.0:
                for j in range(d):
                    work[i, j] -= factor * work[c, j]
                    inverse[i, j] -= factor * inverse[c, j]
    return True


@strict
def _most_violated(table: Any, x: Any, accept: Any) -> Any:
    """The row that x violates most, or -1."""
    rows, sides, signs = table
    n = rows.shape[1]
    depth = x[n] if x.size > n else 0.0
    worst, best = accept, -1
    for k in range(rows.shape[0]):
        if signs[k] != 0:
            value = -sides[k]
            for j in range(n):
                value += rows[k, j] * x[j]
            value = signs[k] * value + depth
            if value > worst:
                worst, best = value, k
    return best


@strict
def _weights(row: Any, inverse: Any, out: Any) -> None:
    for i in range(row.size):
        out[i] = 0.0
    for j in range(row.size):
        if row[j] != 0.0:
            for i in range(row.size):
                out[i] += row[j] * inverse[j, i]


@strict
def _valid(y: Any, basis: Any) -> bool:
    """Multipliers of rows are not negative, those of auxiliaries are zero, up to rounding."""
    top = 0.0
    for i in range(basis.size):
        top = max(top, abs(y[i]))
    result = True
    for i in range(basis.size):
        wrong = -y[i] if basis[i] >= 0 else abs(y[i])
        result &= wrong <= _ACCEPT * top
    return result


@strict
def _most_wrong(y: Any, basis: Any) -> Any:
    place, worst = 0, 0.0
    for i in range(basis.size):
        wrong = -y[i] if basis[i] >= 0 else abs(y[i])
        if wrong > worst:
            place, worst = i, wrong
    return place


@strict
def _leaving(y: Any, share: Any, basis: Any) -> Any:
    """The place that becomes free for an entering row with these shares, or -1."""
    best, ratio, size = -1, np.inf, 0.0
    for i in range(basis.size):
        if basis[i] < 0:
            if abs(share[i]) > _PIVOT and abs(share[i]) > size:  # an auxiliary leaves first
                best, ratio, size = i, -1.0, abs(share[i])
        elif ratio >= 0.0 and share[i] > _PIVOT:
            value = max(y[i], 0.0) / share[i]
            if value < ratio or (value == ratio and share[i] > size):
                best, ratio, size = i, value, share[i]
    return best


@strict
def _blocking(table: Any, x: Any, direction: Any) -> Any:
    """The first row met when moving from x along the direction, or -1."""
    rows, sides, signs = table
    n = rows.shape[1]
    best, ratio, size = -1, np.inf, 0.0
    for k in range(rows.shape[0]):
        if signs[k] == 0:
            continue
        growth, value = 0.0, -sides[k]
        for j in range(n):
            growth += rows[k, j] * direction[j]
            value += rows[k, j] * x[j]
        growth, value = signs[k] * growth, signs[k] * value
        if x.size > n:
            growth, value = growth + direction[n], value + x[n]
        if growth > _PIVOT:
            step = max(-value, 0.0) / growth
            if step < ratio or (step == ratio and growth > size):
                best, ratio, size = k, step, growth
    return best


@strict
def _exchange(inverse: Any, share: Any, place: Any) -> bool:
    """Update the inverse when a row with these shares takes the place; False if the pivot is too small."""
    d = share.size
    if not abs(share[place]) > _PIVOT:
        return False
    for i in range(d):
        inverse[i, place] /= share[place]
        for j in range(d):
            if j != place:
                inverse[i, j] -= share[j] * inverse[i, place]
    return True


@strict
def run_simplex(table: Any, c: Any, basis: Any, x: Any, y: Any) -> Any:
    """Maximise ``c x`` over the rows ``signs (rows x - sides) <= 0`` from a basis, which is updated.

    ``table = (rows, sides, signs)``; if x has one entry more than the rows, it is the depth that every row keeps.
    ``y`` receives the multipliers of the members of the final basis. Returns a status.
    """
    d = basis.size
    inverse, right, share, row = np.empty((d, d)), np.empty(d), np.empty(d), np.empty(d)
    for step in range(40 + 20 * d):
        # updates of the inverse add up their rounding: now and then it is computed anew
        if step % 40 == 0 and not _invert_basis(table, basis, inverse, right):
            return FAILED
        largest = 1.0
        for i in range(d):
            x[i] = 0.0
            for j in range(d):
                x[i] += inverse[i, j] * right[j]
            largest = max(largest, abs(x[i]))
        _weights(c, inverse, y)
        valid = _valid(y, basis)
        entering = _most_violated(table, x, _ACCEPT * largest)
        if entering < 0 and valid:
            return OPTIMAL
        if entering >= 0:
            side = _row(table, entering, row)
            _weights(row, inverse, share)
            if not valid:
                y[:] = 0.0  # the multipliers of c = 0: only feasibility is sought for now
            place = _leaving(y, share, basis)
            if place < 0:
                return INFEASIBLE
        else:
            place = _most_wrong(y, basis)
            # x improves along a column of the inverse, forth or, for an auxiliary, back, until a row stops it
            sign = 1.0 if y[place] > 0.0 else -1.0
            for j in range(d):
                row[j] = sign * inverse[j, place]
            entering = _blocking(table, x, row)
            if entering < 0:
                return UNBOUNDED
            side = _row(table, entering, row)
            _weights(row, inverse, share)
        if not _exchange(inverse, share, place):
            return FAILED
        basis[place], right[place] = entering, side
    return FAILED


class SmallModel:
    """The rows of one polyhedron in the form of :func:`run_simplex`.

    Constraint k below m is a row, ``m + j`` the upper and ``m + n + j`` the lower bound of ``x_j``, and
    ``m + 2 n`` keeps the depth below 1. A sign 0 switches a constraint off. Every question starts anew from a simple
    basis: that costs about two pivots per variable, less than a warm start gains.
    """

    def __init__(self, constraints: Constraints, weights: FloatArray) -> None:
        m, n = constraints.A.shape
        self.m, self.n, self.weights = m, n, weights
        self.rows = np.concatenate([constraints.A / weights[:, None], np.eye(n), np.eye(n), np.zeros((1, n))])
        high, low = constraints.upper, constraints.lower
        finite_high, finite_low = np.isfinite(high), np.isfinite(low)
        self.sides = np.concatenate([np.zeros(m), np.where(finite_high, high, 0), np.where(finite_low, low, 0), [1.0]])
        self.signs: SignArray = np.concatenate(
            [np.zeros(m, np.int8), finite_high.astype(np.int8), -finite_low.astype(np.int8), np.zeros(1, np.int8)]
        )
        self.change(np.arange(m), constraints.sense, constraints.b)

    def change(self, which: IntArray, senses: SignArray, bounds: FloatArray) -> None:
        """Rows from now on; equations are beyond this method and switched off."""
        with np.errstate(over="ignore"):
            self.sides[which] = bounds / self.weights[which]
        self.signs[which] = np.where(np.abs(senses) == 1, senses, 0)

    def solve(self, c: FloatArray | None) -> Proposal | None:
        """Propose the maximum of ``c x``, or an inner point if c is None; None if the method failed."""
        m, n = self.m, self.n
        size = n + (c is None)
        self.signs[m + 2 * n] = c is None
        cost = np.zeros(size) if c is None else c
        if c is None:
            cost[n] = 1.0
        x, y, basis = np.empty(size), np.empty(size), self._start(c)
        status = run_simplex((self.rows, self.sides, self.signs), cost, basis, x, y)
        if status == FAILED:
            return None
        multipliers = np.zeros(m)
        if status == OPTIMAL:
            inner = (basis >= 0) & (basis < m)
            which = basis[inner]
            multipliers[which] = y[inner] * self.signs[which] / self.weights[which]
        return Proposal(status == OPTIMAL, x[:n], multipliers, self._tight(basis))

    def _start(self, c: FloatArray | None) -> IntArray:
        """A basis with valid multipliers if there is a simple one: the depth at its cap, or a corner of the box."""
        m, n = self.m, self.n
        places = np.arange(n)
        if c is None:
            return np.append(-1 - places, m + 2 * n)
        corner = np.where(c > 0, m + places, m + n + places)
        return np.where((c != 0) & (self.signs[corner] != 0), corner, -1 - places)

    def _tight(self, basis: IntArray) -> Callable[[], list[tuple[int, int]]]:
        m, n = self.m, self.n
        names = [*((-1 - j, 1) for j in range(n)), *((-1 - j, -1) for j in range(n)), CAP]
        signs = self.signs[:m].copy()

        def keys() -> list[tuple[int, int]]:
            return [(int(k), int(signs[k])) if k < m else names[k - m] for k in basis if k >= 0]

        return keys
