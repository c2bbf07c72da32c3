"""Signs of affine functionals at points given by equations, as the vertices of a cell complex are.

Exact data are integers: a functional ``w x + b`` is a row ``(w, b)`` up to a positive factor, so rows of
floats (dyadic rationals) become integers by a shift; a point is ``x = p / q`` with integers, ``q > 0``.
A float filter comes first: an approximate solution with a rigorous bound of its error, by the test
``|I - R A| < 1`` for an approximate inverse ``R`` (S. M. Rump, Verification methods, Acta Numerica 19, 2010).
What the filter leaves open is decided by integers; a sign 0 is never given by the filter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import flint
import numba
import numpy as np
from numpy.typing import NDArray

from fiberscope.errors import InputError, NotGenericError
from fiberscope.numerics.floats import TINY, FloatArray, IntArray, ObjectArray, SignArray, U, gamma, round_up
from fiberscope.results import Result

ExactRows = Callable[[int, IntArray], tuple[ObjectArray, ObjectArray]]
"""``(point, indices of functionals) -> (equations (n, n+1), functionals (len, n+1))``, both of integers."""

_HUGE = 1 << 20  # larger than any exponent of a float64


# --- exact -----------------------------------------------------------------------------------------


def _odd_parts(values: FloatArray) -> tuple[IntArray, IntArray]:
    """Odd mantissas and exponents, ``values == mantissa * 2**exponent``; a zero has exponent ``_HUGE``."""
    if not np.isfinite(values).all():
        raise InputError("expected finite numbers, got NaN or infinity")
    fraction, exponent = np.frexp(values)
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    lowest_bit = (mantissa & -mantissa).astype(np.float64)
    zeros = np.where(mantissa == 0, 0, np.frexp(lowest_bit)[1] - 1)
    return mantissa >> zeros, np.where(mantissa == 0, _HUGE, exponent.astype(np.int64) - 53 + zeros)


def _shifted(values: FloatArray) -> tuple[ObjectArray, IntArray]:
    """Integers and one exponent per row (last axis): ``values == integers * 2**exponent``."""
    mantissa, exponent = _odd_parts(values)
    lowest = exponent.min(axis=-1, keepdims=True, initial=_HUGE)
    shift = np.where(mantissa == 0, 0, exponent - lowest)
    integers = np.asarray(mantissa.astype(object) << shift.astype(object), dtype=object)
    return integers, np.where(lowest == _HUGE, 0, lowest)[..., 0]


def row_bits(rows: FloatArray) -> IntArray:
    """Bits of the largest entry in each row of :func:`integer_rows`, without forming the integers.

    >>> row_bits(np.array([[0.5, -1.5], [4.0, 0.0], [0.0, 0.0]]))
    array([2, 1, 0])
    """
    values = np.asarray(rows, dtype=np.float64)
    lowest = _odd_parts(values)[1].min(axis=-1, initial=_HUGE)
    top = np.where(values == 0, -_HUGE, np.frexp(values)[1]).max(axis=-1, initial=-_HUGE)
    return np.asarray(np.maximum(top - lowest, 0))


def to_dyadic(array: FloatArray) -> tuple[ObjectArray, int]:
    """Integers and one exponent with ``array == integers * 2**exponent`` exactly.

    >>> to_dyadic(np.array([0.75, -2.0, 0.0]))
    (array([3, -8, 0], dtype=object), -2)
    """
    values = np.asarray(array, dtype=np.float64)
    integers, exponent = _shifted(values.reshape(1, -1))
    return integers.reshape(values.shape), int(exponent[0])


def integer_rows(rows: Any) -> ObjectArray:
    """Rows of floats or integers as rows of Python integers, each up to a positive factor of its own.

    >>> integer_rows(np.array([[0.5, 1.0], [3.0, 6.0]]))
    array([[1, 2],
           [3, 6]], dtype=object)
    """
    array = np.asarray(rows)
    if array.dtype.kind in "Oiu":
        return array.astype(object)
    return _shifted(array.astype(np.float64))[0]


def exact_rows(rows: Any) -> Any:
    """:func:`integer_rows` as a flint matrix.

    >>> exact_rows(np.array([[0.5, 1.0]])).tolist()
    [[1, 2]]
    """
    integers = integer_rows(rows)
    return flint.fmpz_mat(*integers.shape, integers.ravel().tolist())


@dataclass(frozen=True, slots=True)
class ExactPoint(Result):
    """The rational point ``numerators / denominator``, with a positive denominator."""

    numerators: tuple[int, ...]
    denominator: int

    def __post_init__(self) -> None:
        if self.denominator <= 0:
            raise InputError(f"expected a positive denominator, got {self.denominator}")

    def floats(self) -> FloatArray:
        """The nearest floats (Python divides integers with correct rounding); infinite beyond their range."""
        return np.array([quotient(p, self.denominator) for p in self.numerators])


def quotient(p: int, q: int) -> float:
    """``p / q`` for ``q > 0``, rounded to the nearest float; infinite beyond their range.

    >>> quotient(1, 3), quotient(-(10**400), 1)
    (0.3333333333333333, -inf)
    """
    try:
        return p / q
    except OverflowError:
        return np.inf if p > 0 else -np.inf


def solve_point(equations: Any) -> ExactPoint:
    """The point where ``n`` functionals vanish: ``A x + c = 0`` for ``equations = (A, c)``, ``(n, n+1)``.

    Floats are taken as exact dyadic rationals, integers (object arrays) as they are.

    >>> solve_point(np.array([[3.0, 0.0, -1.0], [1.0, 1.0, 0.0]]))
    ExactPoint(numerators=(1, -1), denominator=3)
    >>> solve_point(np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 1.0]]))
    Traceback (most recent call last):
    fiberscope.errors.NotGenericError: expected independent equations, got a singular 2 x 2 system
    """
    rows = integer_rows(equations)
    if rows.ndim != 2 or rows.shape[1] != rows.shape[0] + 1:
        raise InputError(f"expected equations of shape (n, n+1), got {rows.shape}")
    n = rows.shape[0]
    if n == 0:
        return ExactPoint((), 1)
    matrix = flint.fmpz_mat(rows[:, :n].tolist())
    right = flint.fmpz_mat((-rows[:, n:]).tolist())
    try:
        solution = matrix.solve(right)
    except ZeroDivisionError as error:
        raise NotGenericError(f"expected independent equations, got a singular {n} x {n} system") from error
    numerators, denominator = solution.numer_denom()
    return ExactPoint(tuple(int(v) for v in numerators.entries()), int(denominator))


def sign_at(functional: Any, point: ExactPoint) -> int:
    """Exact sign of ``w x + b`` at a rational point, for ``functional = (w, b)`` of floats or integers.

    >>> sign_at([1.0, 1.0, -0.5], ExactPoint((1, 1), 3)), sign_at([1, 2, -1], ExactPoint((1, 1), 3))
    (1, 0)
    """
    row = integer_rows(functional)
    if row.shape != (len(point.numerators) + 1,):
        raise InputError(f"expected a functional of length {len(point.numerators) + 1}, got {row.shape}")
    value = sum(w * p for w, p in zip(row[:-1], point.numerators, strict=True)) + row[-1] * point.denominator
    return int(value > 0) - int(value < 0)


# --- the filter --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class FloatPoints:
    """Approximate points ``(k, n)`` and a bound of each coordinate's error; infinite where none was found."""

    coordinates: FloatArray = field(repr=False)
    error: FloatArray = field(repr=False)

    @property
    def enclosed(self) -> NDArray[np.bool_]:
        """Which points exist, uniquely, within the stated error."""
        return np.asarray(np.isfinite(self.error).all(axis=1))

    def values(
        self, functionals: FloatArray, functional_errors: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """``w x + b`` and a rigorous error bound, both ``(k, f)``.

        ``functionals`` is ``(f, n+1)``, the same for all points, or ``(k, f, n+1)``.
        """
        n = self.coordinates.shape[1]
        one = np.ones((len(self.coordinates), 1))
        x = np.hstack([self.coordinates, one])
        with np.errstate(all="ignore"):  # what overflows ends as an infinite bound or NaN: undecided
            spread = np.hstack([self.error + gamma(n + 2) * np.abs(self.coordinates), gamma(n + 2) * one])
            value = _apply(functionals, x)
            bound = _apply(np.abs(functionals), spread)
            if functional_errors is not None:
                reach = np.hstack([np.abs(self.coordinates) + self.error, one])
                bound = bound + _apply(functional_errors, reach)
            return value, round_up(bound + (n + 2) * TINY, 2 * n + 8)


def _apply(rows: FloatArray, x: FloatArray) -> FloatArray:
    return np.asarray(x @ rows.T if rows.ndim == 2 else np.matmul(rows, x[:, :, None])[:, :, 0])


@numba.njit(cache=True, nogil=True)
def _invert(matrix: Any, out: Any) -> bool:
    """Approximate inverse by Gauss-Jordan; False at a zero pivot. Destroys ``matrix``."""
    n = matrix.shape[0]
    out[:] = 0.0
    for i in range(n):
        out[i, i] = 1.0
    for c in range(n):
        pivot = c
        for i in range(c + 1, n):
            if abs(matrix[i, c]) > abs(matrix[pivot, c]):
                pivot = i
        if not abs(matrix[pivot, c]) > 0.0:
            return False
        for j in range(n):
            matrix[c, j], matrix[pivot, j] = matrix[pivot, j], matrix[c, j]
            out[c, j], out[pivot, j] = out[pivot, j], out[c, j]
        scale = 1.0 / matrix[c, c]
        for j in range(n):
            matrix[c, j] *= scale
            out[c, j] *= scale
        for i in range(n):
            factor = matrix[i, c]
            if i != c and factor != 0.0:
                for j in range(n):
                    matrix[i, j] -= factor * matrix[c, j]
                    out[i, j] -= factor * out[c, j]
    return True


@numba.njit(cache=True, nogil=True)
def _defect(matrix: Any, errors: Any, inverse: Any, rounding: Any, out: Any) -> float:
    """Row sums of a bound of ``|I - R A|`` over all A within the errors, to ``out``; returns the largest."""
    n = matrix.shape[0]
    small, grow, tiny = rounding
    largest = 0.0
    for i in range(n):
        total = 0.0
        for j in range(n):
            product, magnitude, spread = 0.0, 1.0, 0.0
            for k in range(n):
                product += inverse[i, k] * matrix[k, j]
                magnitude += abs(inverse[i, k] * matrix[k, j])
                spread += abs(inverse[i, k]) * errors[k, j]
            gap = (1.0 - product) if i == j else product
            total += abs(gap) + small * magnitude + spread + tiny
        if not total < np.inf:  # overflow or NaN
            return np.inf
        out[i] = grow * total
        largest = max(largest, out[i])
    return largest


@numba.njit(cache=True, nogil=True)
def _solve(matrix: Any, right: Any, inverse: Any, x: Any) -> None:
    """``x = -R c``, then one step of refinement; any x is allowed, its error is bounded afterwards."""
    n = matrix.shape[0]
    x[:] = 0.0
    for _ in range(2):
        residual = right.copy()
        for i in range(n):
            for j in range(n):
                residual[i] += matrix[i, j] * x[j]
        for i in range(n):
            for j in range(n):
                x[i] -= inverse[i, j] * residual[j]


@numba.njit(cache=True, nogil=True)
def _enclose_kernel(equations: Any, errors: Any, rounding: Any, x: Any, bound: Any) -> None:
    """For every system an approximate solution and the bound of its error, infinite where the test fails."""
    small, grow, tiny = rounding
    count, n, _ = equations.shape
    inverse, row_sums, step, rough = np.empty((n, n)), np.empty(n), np.empty(n), np.empty(n)
    for k in range(count):
        x[k] = 0.0
        bound[k] = np.inf
        matrix, right = equations[k, :, :n], equations[k, :, n]
        if not _invert(matrix.copy(), inverse):
            continue
        norm = _defect(matrix, errors[k, :, :n], inverse, rounding, row_sums)
        if not norm < 0.5:
            continue
        _solve(matrix, right, inverse, x[k])
        # |x - y| <= |R (A y + c)| + |I - R A| |x - y|: the step, then what the defect can add to it
        for i in range(n):
            value, magnitude = right[i], abs(right[i])
            spread = errors[k, i, n]
            for j in range(n):
                value += matrix[i, j] * x[k, j]
                magnitude += abs(matrix[i, j] * x[k, j])
                spread += errors[k, i, j] * abs(x[k, j])
            rough[i] = abs(value) + small * magnitude + spread + tiny
        largest = 0.0
        for i in range(n):
            step[i] = tiny
            for j in range(n):
                step[i] += abs(inverse[i, j]) * rough[j]
            step[i] *= grow
            largest = max(largest, step[i])
        for i in range(n):
            total = grow * (step[i] + row_sums[i] * (grow * largest / (1.0 - norm)) + tiny)
            bound[k, i] = total if total < np.inf else np.inf


def enclose(equations: FloatArray, errors: FloatArray | None = None) -> FloatPoints:
    """Approximate solutions of many systems ``A x + c = 0`` with rigorous error bounds.

    ``equations`` is ``(k, n, n+1)``; ``errors``, of the same shape, bounds the distance of every entry from
    the true one (none: the floats are the truth). A finite bound proves that the true system is regular.

    >>> points = enclose(np.array([[[3.0, -1.0]], [[0.0, 1.0]]]))
    >>> points.coordinates[0, 0], bool(points.error[0, 0] < 1e-15), points.enclosed
    (np.float64(0.3333333333333333), True, array([ True, False]))
    """
    systems = np.ascontiguousarray(equations, dtype=np.float64)
    if systems.ndim != 3 or systems.shape[2] != systems.shape[1] + 1:
        raise InputError(f"expected equations of shape (k, n, n+1), got {systems.shape}")
    count, n = systems.shape[:2]
    slack = np.zeros_like(systems) if errors is None else np.ascontiguousarray(errors, dtype=np.float64)
    if slack.shape != systems.shape:
        raise InputError(f"expected errors of shape {systems.shape}, got {slack.shape}")
    x, bound = np.empty((count, n)), np.empty((count, n))
    # grow repays the rounding of the bounds themselves: sums of 3 n terms, each of a few factors
    rounding = (gamma(n + 3), 1.0 + 2 * gamma(6 * n + 40) + 4 * U, (n + 2) * TINY)
    _enclose_kernel(systems, slack, rounding, x, bound)
    return FloatPoints(x, bound)


# --- both --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PointSigns(Result):
    """Certified signs ``(k, f)`` and how many of them, and of the points, needed exact arithmetic."""

    signs: SignArray = field(repr=False)
    exact_signs: int
    exact_points: int


def signs_at_points(
    equations: FloatArray,
    functionals: FloatArray,
    *,
    equation_errors: FloatArray | None = None,
    functional_errors: FloatArray | None = None,
    exact: ExactRows | None = None,
) -> PointSigns:
    """Certified signs of affine functionals at points given by equations.

    ``equations`` is ``(k, n, n+1)``; ``functionals`` is ``(f, n+1)``, for all points, or ``(k, f, n+1)``.
    Without ``exact`` the floats are the data. With it they only approximate integers (products of many
    floats, say) within the given errors, and ``exact`` delivers the integers of one point when needed.

    >>> lines = np.array([[[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]]])  # x = 1, y = 1
    >>> result = signs_at_points(lines, np.array([[1.0, -1.0, 0.0], [1.0, 1.0, 0.0]]))
    >>> result.signs, result.exact_signs
    (array([[0, 1]], dtype=int8), 1)
    """
    points = enclose(equations, equation_errors)
    count, n = points.coordinates.shape
    rows = np.ascontiguousarray(functionals, dtype=np.float64)
    if rows.ndim not in (2, 3) or rows.shape[-1] != n + 1 or (rows.ndim == 3 and rows.shape[0] != count):
        raise InputError(f"expected functionals of shape (f, {n + 1}) or ({count}, f, {n + 1}), got {rows.shape}")
    if exact is None and (equation_errors is not None or functional_errors is not None):
        raise InputError("expected the exact rows along with error bounds, got exact=None")
    value, bound = points.values(rows, functional_errors)
    decided = np.abs(value) > bound
    signs = np.where(decided, np.sign(value), 0).astype(np.int8)
    open_points = np.flatnonzero(~decided.all(axis=1))
    for i in open_points:
        which = np.flatnonzero(~decided[i])
        if exact is None:
            own = rows if rows.ndim == 2 else rows[i]
            system, asked = integer_rows(equations[i]), integer_rows(own[which])
        else:
            system, asked = exact(int(i), which)
        try:
            point = solve_point(system)
        except NotGenericError as error:
            raise NotGenericError(f"point {i}: {error}") from error
        signs[i, which] = [sign_at(row, point) for row in asked]
    return PointSigns(signs, int((~decided).sum()), len(open_points))


# --- points and lines of the plane ------------------------------------------------------------------------------

Triple = tuple[Any, Any, Any]


def cross(a: Triple, b: Triple) -> Triple:
    """The point where two lines meet, or the line through two points, scaled to a non-negative last entry."""
    x = a[1] * b[2] - a[2] * b[1]
    y = a[2] * b[0] - a[0] * b[2]
    w = a[0] * b[1] - a[1] * b[0]
    return (-x, -y, -w) if w < 0 else (x, y, w)


def dot(a: Triple, b: Triple) -> Any:
    """Value of a line's functional at a homogeneous point, up to the point's positive last entry."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def sign(x: Any) -> int:
    """-1, 0 or 1."""
    return int(x > 0) - int(x < 0)
