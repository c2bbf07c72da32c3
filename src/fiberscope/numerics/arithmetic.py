"""Three arithmetics in which one and the same network program can be run: float, float with error bound, balls.

A program needs five operations: an affine map, a piecewise linear activation, a sum, a concatenation, and the maximum
over windows with the margins by which each input wins its window. Every arithmetic gives all five. Balls of growing
precision end in exact arithmetic: inputs are dyadic rationals, the operations keep them dyadic, and a precision at
which nothing is rounded has radius zero everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import flint
import numpy as np

from fiberscope.numerics.floats import TINY, FloatArray, IntArray, ObjectArray, gamma, round_up

V = TypeVar("V")

EXACT = 1 << 24
"""A precision in bits that no dyadic number met in practice fills; radii are checked, not assumed, to be zero."""


SMALL = 4 * TINY / gamma(1)
"""From here on a product with a rounding unit is a normal number, which underflow does not touch."""


class LinearMap(Protocol):
    """What an arithmetic needs of a linear operator; batches are ``(points, features)``."""

    @property
    def fan_in(self) -> int: ...
    def apply(self, X: FloatArray) -> FloatArray: ...
    def apply_abs(self, X: FloatArray) -> FloatArray: ...
    def apply_scalars(self, X: ObjectArray) -> ObjectArray: ...
    def stages(self) -> Sequence[LinearMap]: ...


class Arithmetic(Protocol[V]):
    """The five operations of a network program on values of type ``V``."""

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: V) -> V: ...
    def piecewise(self, value: V, slopes: FloatArray) -> V: ...
    def add(self, values: Sequence[V]) -> V: ...
    def concat(self, values: Sequence[V], order: IntArray | None) -> V: ...
    def window_max(self, value: V, windows: IntArray) -> V: ...
    def window_margins(self, value: V, windows: IntArray) -> V: ...


class FloatArithmetic:
    """Plain float64."""

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: FloatArray) -> FloatArray:
        result = operator.apply(value)
        return result if bias is None else result + bias

    def piecewise(self, value: FloatArray, slopes: FloatArray) -> FloatArray:
        if not slopes.any():
            return np.maximum(value, 0.0)
        return np.where(value > 0, value, slopes * value)

    def add(self, values: Sequence[FloatArray]) -> FloatArray:
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total

    def concat(self, values: Sequence[FloatArray], order: IntArray | None) -> FloatArray:
        joined = np.concatenate(values, axis=1)
        return joined if order is None else joined[:, order]

    def window_max(self, value: FloatArray, windows: IntArray) -> FloatArray:
        result: FloatArray = gather(value, windows, -np.inf).max(axis=2)
        return result

    def window_margins(self, value: FloatArray, windows: IntArray) -> FloatArray:
        return _margins(gather(value, windows, -np.inf), windows)


@dataclass(frozen=True, slots=True)
class Bounded:
    """Float values and a rigorous bound of their distance from the exact ones, both ``(points, features)``."""

    value: FloatArray
    error: FloatArray

    @property
    def decided(self) -> Any:
        """Where the sign is proven: away from zero by more than the error, or exact.

        An infinite value is none: it overflowed, or stands for an input that a pool does not have.
        """
        away = np.abs(self.value) > self.error
        return (away & np.isfinite(self.error)) | (self.error == 0)


class BoundedArithmetic:
    """Float64 with a running error bound: one more product, with absolute values, for every affine map."""

    def exact_input(self, X: FloatArray) -> Bounded:
        return Bounded(X, np.zeros_like(X))

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: Bounded) -> Bounded:
        for stage in operator.stages():
            value = self._linear(stage, value)
        if bias is None:
            return value
        total = value.value + bias
        error = round_up(value.error + gamma(1) * np.abs(total), 2)
        exact = (value.error == 0) & ((value.value == 0) | (bias == 0))
        return Bounded(total, np.where(exact, 0.0, error))

    def _linear(self, operator: LinearMap, value: Bounded) -> Bounded:
        n = operator.fan_in
        result = operator.apply(value.value)
        # |W|(e + gamma_n |a|) covers both the error that came in and the rounding of this product. Values so small
        # that gamma_n |a| could underflow count as larger ones: a large weight must not meet a lost term.
        size = np.abs(value.value)
        error = operator.apply_abs(value.error + gamma(n) * np.where(size > 0, np.maximum(size, SMALL), 0.0))
        bound = round_up(error + n * TINY, n + 3)
        # A product that overflowed says nothing, whatever the bound.
        bound = np.where(np.isfinite(result), bound, np.inf)
        if not error.all():
            # No term at all (a row of zeros, or only dead inputs) is an exact zero; seen from which coefficients meet
            # an input that can be non-zero, because the bound itself might have underflowed.
            touched = operator.apply_abs(((value.value != 0) | (value.error != 0)).astype(np.float64))
            bound = np.where(touched == 0, 0.0, bound)
        return Bounded(result, bound)

    def piecewise(self, value: Bounded, slopes: FloatArray) -> Bounded:
        result = FloatArithmetic().piecewise(value.value, slopes)
        if not slopes.any():
            # Certainly inactive means exactly zero; that also makes ties between dead inputs of a pool provable.
            return Bounded(result, np.where(value.value < -value.error, 0.0, value.error))
        # The activation is Lipschitz with constant max(1, |slope|); the product with the slope rounds once more.
        error = np.maximum(1.0, np.abs(slopes)) * value.error + gamma(1) * np.abs(result)
        return Bounded(result, round_up(error, 3))

    def add(self, values: Sequence[Bounded]) -> Bounded:
        result = FloatArithmetic().add([v.value for v in values])
        magnitude = sum(np.abs(v.value) for v in values)
        error = sum(v.error for v in values) + gamma(len(values)) * magnitude
        bound = round_up(np.asarray(error), len(values) + 2)
        # Exact terms of which at most one is not zero have an exact sum.
        rounded = sum((v.error != 0) * 2 + (v.value != 0) for v in values) > 1
        return Bounded(result, np.where(rounded, bound, 0.0))

    def concat(self, values: Sequence[Bounded], order: IntArray | None) -> Bounded:
        plain = FloatArithmetic()
        return Bounded(plain.concat([v.value for v in values], order), plain.concat([v.error for v in values], order))

    def window_max(self, value: Bounded, windows: IntArray) -> Bounded:
        result = FloatArithmetic().window_max(value.value, windows)
        return Bounded(result, gather(value.error, windows, 0.0).max(axis=2))

    def window_margins(self, value: Bounded, windows: IntArray) -> Bounded:
        result = FloatArithmetic().window_margins(value.value, windows)
        largest = np.repeat(gather(value.error, windows, 0.0).max(axis=2), windows.shape[1], axis=1)
        # An absent input (padding) loses by an infinite margin, which no rounding touches.
        error = round_up(2 * largest + gamma(1) * np.where(np.isfinite(result), np.abs(result), 0.0), 3)
        return Bounded(result, np.where((largest == 0) & (result == 0), 0.0, error))


class BallArithmetic:
    """Arb balls of a given precision, in object arrays ``(points, features)``; :data:`EXACT` rounds nothing."""

    def __init__(self, precision: int) -> None:
        self.precision = precision

    @contextmanager
    def working(self) -> Iterator[None]:
        """Evaluate under this precision and leave the library's own setting as it was."""
        with flint.ctx.workprec(self.precision):
            yield

    def exact_input(self, X: FloatArray) -> ObjectArray:
        return balls(X)

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: ObjectArray) -> ObjectArray:
        for stage in operator.stages():
            value = stage.apply_scalars(value)
        return value if bias is None else value + balls(bias)

    def piecewise(self, value: ObjectArray, slopes: FloatArray) -> ObjectArray:
        return np.asarray(_PIECE(value, balls(slopes)))

    def add(self, values: Sequence[ObjectArray]) -> ObjectArray:
        return np.asarray(sum(values[1:], start=values[0]))

    def concat(self, values: Sequence[ObjectArray], order: IntArray | None) -> ObjectArray:
        joined = np.concatenate(values, axis=1)
        return joined if order is None else joined[:, order]

    def window_max(self, value: ObjectArray, windows: IntArray) -> ObjectArray:
        gathered = gather(value, windows, None)
        result = np.empty(gathered.shape[:2], dtype=object)
        for index in np.ndindex(*result.shape):
            result[index] = _largest([v for v in gathered[index] if v is not None])
        return result

    def window_margins(self, value: ObjectArray, windows: IntArray) -> ObjectArray:
        gathered = gather(value, windows, None)
        points, count, size = gathered.shape
        result = np.empty((points, count, size), dtype=object)
        for p, w, j in np.ndindex(points, count, size):
            rivals = [v for i, v in enumerate(gathered[p, w]) if i != j and v is not None]
            if gathered[p, w, j] is None:
                result[p, w, j] = flint.arb("-inf")
            elif not rivals:
                result[p, w, j] = flint.arb("inf")
            else:
                result[p, w, j] = gathered[p, w, j] - _largest(rivals)
        return result.reshape(points, count * size)


def balls(array: FloatArray) -> ObjectArray:
    """The floats as exact Arb numbers (radius zero), in an object array of the same shape."""
    return np.asarray(_TO_BALL(array), dtype=object)


def nearest_floats(value: ObjectArray) -> FloatArray:
    """Exact balls rounded to the nearest float; infinite beyond the range of floats."""
    return np.asarray(_TO_FLOAT(value), dtype=np.float64)


def ball_signs(value: ObjectArray) -> Any:
    """Sign of every ball: -1, 0, 1, or 2 where the ball straddles zero; 0 only for a ball that is exactly zero."""
    return np.asarray(_SIGN(value), dtype=np.int8)


def gather(value: Any, windows: IntArray, absent: Any) -> Any:
    """Inputs of every window, ``(points, windows, size)``; index -1 marks padding and yields ``absent``."""
    picked = value[:, windows]
    if (windows < 0).any():
        picked = np.where(windows[None] < 0, absent, picked)
    return picked


def _margins(gathered: FloatArray, windows: IntArray) -> FloatArray:
    """``x_j - max_{i != j} x_i`` in every window; an absent input has margin -inf, one without rivals +inf."""
    points, count, size = gathered.shape
    if size == 1:
        return np.full((points, count), np.inf)
    top = np.partition(gathered, size - 2, axis=2)
    best, second = top[:, :, -1:], top[:, :, -2:-1]
    winner = np.zeros(gathered.shape, dtype=bool)
    np.put_along_axis(winner, gathered.argmax(axis=2)[:, :, None], True, axis=2)
    margins = np.where(winner, gathered - second, gathered - best)
    return np.asarray(margins).reshape(points, count * size)


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


def _largest(values: list[Any]) -> Any:
    best = values[0]
    for value in values[1:]:
        best = best.max(value)
    return best


_TO_BALL = np.frompyfunc(lambda x: flint.arb(float(x)), 1, 1)
_TO_FLOAT = np.frompyfunc(float, 1, 1)
_PIECE = np.frompyfunc(_piece, 2, 1)
_SIGN = np.frompyfunc(_ball_sign, 1, 1)
