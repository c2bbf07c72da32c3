"""The float half of linear programming: proposals of a warm solver, and bounds with all rounding included.

HiGHS works on the *dual* program, ``min b y`` subject to ``y A = c``: with many rows and few variables its bases
are small, and a row is switched, flipped or moved by changing one bound or cost. Nothing it says is trusted.
Multipliers become an upper bound by a computation with all rounding accounted for (A. Neumaier, O. Shcherbina,
Safe bounds in linear and mixed-integer linear programming, Math. Program. 99, 2004), points are checked row by row.

Arrays of the kernels, for m rows and n variables: ``rows`` is ``a (m, n)``, ``b (m,)`` and ``sense (m,)``, 1 for
``a x <= b``, -1 for ``>=``, 0 for an equation, 2 for a row that is off; ``box`` is ``lower``, ``upper`` ``(n,)``, which
may be infinite; ``c``, ``x``, ``inner (n,)`` an objective and points; ``y (m,)`` multipliers. ``small`` bounds the
relative error of every sum in them. Invariant: where a sum is not a number, no comparison holds and nothing is proven.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import highspy
import numpy as np

from fiberscope.numerics.compiling.kernels import strict
from fiberscope.numerics.floats import TINY, FloatArray, SignArray
from fiberscope.numerics.lp.rational import CAP, Constraints, Proposal, Sense

_PULLS = 0.5 ** np.array([44.0, 36.0, 28.0, 20.0, 12.0, 6.0])
"""How far a vertex is pulled towards an inner point to become feasible; the first that works is taken."""


# --- float computations with error bounds ------------------------------------------------------------


@strict
def _largest(r: Any, low: Any, high: Any) -> Any:
    """``sup r x`` over ``low <= x <= high``."""
    if r == 0.0:
        return 0.0
    return r * high if r > 0.0 else r * low


@strict
def safe_bound(rows: Any, box: Any, c: Any, y: Any, small: Any) -> Any:
    """An upper bound of ``c x``, all rounding included, from multipliers; those of the wrong sign become zero."""
    a, b, sense = rows
    lower, upper = box
    m, n = a.shape
    total, size = 0.0, TINY
    for k in range(m):
        if sense[k] == 2 or (sense[k] == 1 and not y[k] > 0.0) or (sense[k] == -1 and not y[k] < 0.0):
            y[k] = 0.0
        total += y[k] * b[k]
        size += abs(y[k] * b[k]) + TINY
    for j in range(n):
        rest, magnitude, rounded = c[j], abs(c[j]), False
        for k in range(m):
            if y[k] != 0.0 and a[k, j] != 0.0:
                rest -= y[k] * a[k, j]
                magnitude += abs(y[k] * a[k, j]) + TINY
                rounded = True
        slack = small * magnitude + TINY if rounded else 0.0
        term = max(_largest(rest - slack, lower[j], upper[j]), _largest(rest + slack, lower[j], upper[j]))
        total += term
        size += abs(term) + TINY
    bound = total + (small * size + (m + n + 1) * TINY)
    return bound if bound < np.inf else np.inf


@strict
def inside(rows: Any, box: Any, x: Any, small: Any) -> bool:
    """True if x certainly satisfies all inequalities strictly; equations are never certain."""
    a, b, sense = rows
    lower, upper = box
    for j in range(x.size):
        if not lower[j] < x[j] < upper[j]:
            return False
    for k in range(a.shape[0]):
        if sense[k] == 2:
            continue
        value, magnitude = -b[k], abs(b[k]) + TINY
        for j in range(x.size):
            value += a[k, j] * x[j]
            magnitude += abs(a[k, j] * x[j]) + TINY
        if sense[k] == 0 or not -sense[k] * value > small * magnitude:
            return False
    return True


@strict
def pull_inside(rows: Any, box: Any, x: Any, inner: Any, small: Any) -> bool:
    """Move x towards an inner point until it is certainly feasible, in place."""
    start = x.copy()
    for pull in _PULLS:
        for j in range(x.size):
            x[j] = start[j] + pull * (inner[j] - start[j])
        if inside(rows, box, x, small):
            return True
    return False


@strict
def value_bounds(c: Any, x: Any, small: Any) -> Any:
    """``c x`` from below and from above, rounding included."""
    value, size = 0.0, TINY
    for j in range(c.size):
        value += c[j] * x[j]
        size += abs(c[j] * x[j]) + TINY
    slack = small * size + (c.size + 1) * TINY
    return value - slack, value + slack


def directed(value: Fraction) -> tuple[float, float]:
    """The floats next to a fraction, below and above."""
    try:
        near = float(value)
    except OverflowError:
        return (np.finfo(float).max, np.inf) if value > 0 else (-np.inf, -np.finfo(float).max)
    exact = Fraction(near)
    low = near if exact <= value else float(np.nextafter(near, -np.inf))
    high = near if exact >= value else float(np.nextafter(near, np.inf))
    return low, high


# --- the solver --------------------------------------------------------------------------------------


class DualModel:
    """The warm dual program: one column per row and per finite bound, one line per variable and one for the depth.

    Column k holds ``(A_k, +-1) / w_k`` with the power of two ``w_k`` next to the largest entry of the row; the last
    line asks for the depth ``t`` of an inner point, ``A_k x + w_k t <= b_k``, which a last column keeps below 1.
    """

    def __init__(self, constraints: Constraints, weights: FloatArray) -> None:
        self.weights = weights
        m, n = constraints.A.shape
        self.m, self.n = m, n
        upper, lower = (np.flatnonzero(np.isfinite(v)) for v in (constraints.upper, constraints.lower))
        self.keys = [(-1 - int(j), 1) for j in upper] + [(-1 - int(j), -1) for j in lower] + [CAP]
        bounds = np.concatenate([np.eye(n)[upper], np.eye(n)[lower], np.zeros((1, n))])
        sense = np.concatenate([constraints.sense, np.ones(len(upper)), -np.ones(len(lower)), [1]])
        cost = np.concatenate([constraints.upper[upper], constraints.lower[lower], [1.0]])
        low, high, depth = _column_bounds(sense)
        columns = np.column_stack([np.concatenate([constraints.A / weights[:, None], bounds]), depth])
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = columns.shape
        with np.errstate(over="ignore"):  # a solver that gets an infinity proposes nothing, and that is checked anyway
            lp.col_cost_ = np.concatenate([constraints.b / weights, cost])
        lp.col_lower_, lp.col_upper_ = low, high
        lp.row_lower_ = lp.row_upper_ = np.zeros(n + 1)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.arange(0, columns.size + 1, n + 1, dtype=np.int32)
        lp.a_matrix_.index_ = np.tile(np.arange(n + 1, dtype=np.int32), len(columns))
        lp.a_matrix_.value_ = columns.ravel()
        self.highs: Any = highspy.Highs()
        for option, value in _OPTIONS.items():
            self.highs.setOptionValue(option, value)
        self.highs.passModel(lp)
        self.lines = np.arange(n + 1, dtype=np.int32)

    def change(self, k: int, sense: int, bound: float) -> None:
        """Row k from now on."""
        low, high, depth = _column_bounds(np.array([sense]))
        self.highs.changeColBounds(k, float(low[0]), float(high[0]))
        self.highs.changeColCost(k, bound / float(self.weights[k]))
        self.highs.changeCoeff(self.n, k, float(depth[0]))

    def solve(self, c: FloatArray | None, sense: SignArray) -> Proposal:
        """Propose the maximum of ``c x``, or an inner point if c is None."""
        low, high = np.empty(self.n + 1), np.empty(self.n + 1)
        low[:-1] = high[:-1] = 0.0 if c is None else c
        low[-1], high[-1] = (1.0, 1.0) if c is None else (-np.inf, np.inf)
        self.highs.changeRowsBounds(self.n + 1, self.lines, low, high)
        self.highs.run()
        status = self.highs.getModelStatus()
        m, n = self.m, self.n
        if status == highspy.HighsModelStatus.kOptimal:
            solution = self.highs.getSolution()
            x, y = np.array(solution.row_dual), np.array(solution.col_value)
            return Proposal(True, x[:n], y[:m] / self.weights, partial(self._tight, sense, y))
        if status == highspy.HighsModelStatus.kUnbounded:
            _, has_ray, ray = self.highs.getPrimalRay()
            if has_ray:
                y = np.array(ray)
                return Proposal(False, np.zeros(n), y[:m] / self.weights, partial(self._tight, sense, y))
        return Proposal(False, np.zeros(n), np.zeros(m), partial(self._tight, sense, np.zeros(m)))

    def _tight(self, sense: SignArray, y: FloatArray) -> list[tuple[int, int]]:
        status, basic = self.highs.getBasicVariables()
        if status != highspy.HighsStatus.kOk:
            return []
        keys = []
        for v in basic:
            if 0 <= v < self.m:
                sign = int(sense[v]) if sense[v] != Sense.EQUAL else (1 if y[v] >= 0 else -1)
                keys.append((int(v), sign))
            elif v >= self.m:
                keys.append(self.keys[v - self.m])
        return keys


_OPTIONS = {
    "output_flag": False,
    "presolve": "off",  # keeps the basis and the rays, and costs more than it saves on small programs
    "solver": "simplex",
    "parallel": "off",
    "threads": 1,
    "primal_feasibility_tolerance": 1e-10,  # the smallest allowed: better proposals, fewer exact pivots
    "dual_feasibility_tolerance": 1e-10,
    "small_matrix_value": 1e-12,
}


def _column_bounds(sense: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bounds of the multipliers and coefficients in the line of the depth, by sense."""
    inequality = np.abs(sense) == 1
    low = np.where((sense == Sense.AT_LEAST) | (sense == Sense.EQUAL), -np.inf, 0.0)
    high = np.where((sense == Sense.AT_MOST) | (sense == Sense.EQUAL), np.inf, 0.0)
    return low, high, np.where(inequality, sense, 0).astype(np.float64)
