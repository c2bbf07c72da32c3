"""Exact points and rows: floats as integers, points given by equations, points and lines of the plane.

A functional ``w x + b`` is a row ``(w, b)`` up to a positive factor, so rows of floats (dyadic rationals) become
integers by a shift; a point is ``x = p / q`` with integers, ``q > 0``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from fiberscope.errors import InputError, NotGenericError
from fiberscope.numerics.floats import FloatArray, IntArray, ObjectArray
from fiberscope.results import Result

NO_EXPONENT = 1 << 20
"""That of a zero: larger than any exponent of a float64."""


# --- exact -----------------------------------------------------------------------------------------


def odd_parts(values: FloatArray) -> tuple[IntArray, IntArray]:
    """Odd mantissas and exponents, ``values == mantissa * 2**exponent``; a zero has exponent ``NO_EXPONENT``.

    >>> odd_parts(np.array([0.75, -8.0]))
    (array([ 3, -1]), array([-2,  3]))
    """
    if not np.isfinite(values).all():
        raise InputError("expected finite numbers, got NaN or infinity")
    fraction, exponent = np.frexp(values)
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    lowest_bit = (mantissa & -mantissa).astype(np.float64)
    zeros = np.where(mantissa == 0, 0, np.frexp(lowest_bit)[1] - 1)
    return mantissa >> zeros, np.where(mantissa == 0, NO_EXPONENT, exponent.astype(np.int64) - 53 + zeros)


def _shifted(values: FloatArray) -> tuple[ObjectArray, IntArray]:
    """Integers and one exponent per row (last axis): ``values == integers * 2**exponent``."""
    mantissa, exponent = odd_parts(values)
    lowest = exponent.min(axis=-1, keepdims=True, initial=NO_EXPONENT)
    shift = np.where(mantissa == 0, 0, exponent - lowest)
    integers = np.asarray(mantissa.astype(object) << shift.astype(object), dtype=object)
    return integers, np.where(lowest == NO_EXPONENT, 0, lowest)[..., 0]


def row_bits(rows: FloatArray) -> IntArray:
    """Bits of the largest entry in each row of :func:`integer_rows`, without forming the integers.

    >>> row_bits(np.array([[0.5, -1.5], [4.0, 0.0], [0.0, 0.0]]))
    array([2, 1, 0])
    """
    values = np.asarray(rows, dtype=np.float64)
    lowest = odd_parts(values)[1].min(axis=-1, initial=NO_EXPONENT)
    top = np.where(values == 0, -NO_EXPONENT, np.frexp(values)[1]).max(axis=-1, initial=-NO_EXPONENT)
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
