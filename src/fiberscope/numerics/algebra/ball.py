"""Balls of growing precision, which end in exact arithmetic.

Inputs are dyadic rationals and the operations keep them dyadic, so that a precision at which nothing is rounded has
radius zero everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from fiberscope.numerics.algebra.base import ArrayAlgebra, Constant, LinearMap, aligned, gather, on_rows
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, ObjectArray

EXACT = 1 << 24
"""A precision in bits that no dyadic number met in practice fills; radii are checked, not assumed, to be zero."""


class BallAlgebra(ArrayAlgebra):
    """Arb balls of a given precision, in object arrays ``(..., features)``; :data:`EXACT` rounds nothing.

    To be used under its own precision, see :meth:`working`.
    """

    def __init__(self, precision: int = EXACT, constant: Constant = Constant.EVERYWHERE) -> None:
        super().__init__(constant)
        self.precision = precision

    @contextmanager
    def working(self) -> Iterator[None]:
        """Evaluate under this precision and leave the library's own setting as it was."""
        with flint.ctx.workprec(self.precision):
            yield

    def take(self, values: FloatArray) -> ObjectArray:
        return balls(values)

    def apply(self, stage: LinearMap, value: ObjectArray) -> ObjectArray:
        return np.asarray(on_rows(stage.apply_scalars, value))

    def _plus(self, value: ObjectArray, offset: FloatArray) -> Any:
        return value + balls(offset)

    def add(self, values: Sequence[ObjectArray]) -> ObjectArray:
        return np.asarray(sum(values[1:], start=values[0]))

    def difference(self, one: ObjectArray, other: ObjectArray) -> ObjectArray:
        return np.asarray(one - other)

    def gate(self, value: ObjectArray, active: BoolArray, slopes: FloatArray | None) -> ObjectArray:
        other = flint.arb(0) if slopes is None else value * balls(slopes)
        return np.where(aligned(active, value.ndim), value, other)

    def piecewise(self, value: ObjectArray, slopes: FloatArray) -> ObjectArray:
        return np.asarray(_PIECE(value, balls(slopes)))

    def window_max(self, value: ObjectArray, windows: IntArray) -> ObjectArray:
        gathered = gather(value, windows, None)
        result = np.empty(gathered.shape[:-1], dtype=object)
        for index in np.ndindex(*result.shape):
            result[index] = _largest([v for v in gathered[index] if v is not None])
        return result

    def window_margins(self, value: ObjectArray, windows: IntArray) -> ObjectArray:
        gathered = gather(value, windows, None)
        result = np.empty(gathered.shape, dtype=object)
        for *window, j in np.ndindex(*gathered.shape):
            inputs = gathered[tuple(window)]
            rivals = [v for i, v in enumerate(inputs) if i != j and v is not None]
            if inputs[j] is None:
                margin = flint.arb("-inf")
            else:
                margin = inputs[j] - _largest(rivals) if rivals else flint.arb("inf")
            result[(*window, j)] = margin
        return result.reshape(*value.shape[:-1], -1)


class HomogeneousBalls(BallAlgebra):
    """Exact arithmetic on homogeneous coordinates: biases are multiplied by the last coordinate, t, ``(points,)``."""

    def __init__(self, t: ObjectArray) -> None:
        super().__init__(EXACT)
        self.t = t

    def shift(self, value: ObjectArray, offset: FloatArray) -> Any:
        return value + balls(offset) * self.t[:, None]


EXACT_ROWS = BallAlgebra(EXACT, Constant.LAST)
"""Exact numbers; rows are coefficients of affine functions of the input."""


def balls(array: FloatArray) -> ObjectArray:
    """The floats as exact Arb numbers (radius zero), in an object array of the same shape."""
    return np.asarray(_TO_BALL(np.asarray(array, dtype=np.float64)), dtype=object)


def nearest_floats(value: ObjectArray) -> FloatArray:
    """Exact balls rounded to the nearest float; infinite beyond the range of floats."""
    return np.asarray(_TO_FLOAT(value), dtype=np.float64)


def ball_signs(value: ObjectArray) -> Any:
    """Sign of every ball: -1, 0, 1, or 2 where the ball straddles zero; 0 only for a ball that is exactly zero."""
    return np.asarray(_SIGN(value), dtype=np.int8)


def are_dependent(one: ObjectArray, other: ObjectArray) -> bool:
    """Whether one of two rows of exact balls is a multiple of the other, or zero: all minors vanish.

    >>> one = balls(np.array([0.1, 0.2]))
    >>> are_dependent(one, balls(np.array([-0.2, -0.4]))), are_dependent(one, balls(np.array([0.1 * 3, 0.6])))
    (True, False)
    """
    pivot = next((k for k, x in enumerate(one) if not x.is_zero()), None)
    if pivot is None:
        return True
    with flint.ctx.workprec(EXACT):
        return all((one[pivot] * y - x * other[pivot]).is_zero() for x, y in zip(one, other, strict=True))


def _piece(x: Any, slope: Any) -> Any:
    if x >= 0:
        return x
    if x <= 0:
        return slope * x
    if slope == 1:
        return x
    return x.max(flint.arb(0)) + slope * x.min(flint.arb(0))


def _ball_sign(x: Any) -> int:
    if x > 0:
        return 1
    if x < 0:
        return -1
    return 0 if x.is_zero() else 2


def exact_fraction(ball: Any) -> Fraction:
    """The number of a ball without a radius.

    >>> exact_fraction(flint.arb(0.375))
    Fraction(3, 8)
    """
    if not ball.is_exact():  # pragma: no cover - would need numbers of 2^24 bits
        raise ArithmeticError(f"exact evaluation needs more than {EXACT} bits")
    mantissa, exponent = ball.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def _largest(values: list[Any]) -> Any:
    best = values[0]
    for value in values[1:]:
        best = best.max(value)
    return best


_TO_BALL = np.frompyfunc(flint.arb, 1, 1)
_TO_FLOAT = np.frompyfunc(float, 1, 1)
_PIECE = np.frompyfunc(_piece, 2, 1)
_SIGN = np.frompyfunc(_ball_sign, 1, 1)
