"""Floats with a running bound of their error: one more product, with absolute values, for every affine map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.numerics.algebra.base import Algebra, Constant, LinearMap, aligned, gather, joined, on_rows, picked
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, IntArray, gamma, round_up

SMALL = 4 * TINY / gamma(1)
"""From here on a product with a rounding unit is a normal number, which underflow does not touch."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """Float values and a rigorous bound of their distance from the exact ones, both ``(..., features)``."""

    value: FloatArray
    error: FloatArray

    def __getitem__(self, index: Any) -> Bounded:
        return Bounded(self.value[index], self.error[index])

    @property
    def decided(self) -> Any:
        """Where the sign is proven: away from zero by more than the error, or exact.

        An infinite value is none: it overflowed, or stands for an input that a pool does not have.
        """
        away = np.abs(self.value) > self.error
        return (away & np.isfinite(self.error)) | (self.error == 0)


class BoundedAlgebra(Algebra[Bounded]):
    """Float64 with a running error bound; a value is exact where its error is 0, and this is kept where it can be."""

    def __init__(self, constant: Constant = Constant.EVERYWHERE) -> None:
        self.constant = constant

    def take(self, values: FloatArray) -> Bounded:
        return Bounded(values, np.zeros_like(values))

    def apply(self, stage: LinearMap, value: Bounded) -> Bounded:
        n = stage.fan_in
        unit = gamma(stage.roundings)
        result = on_rows(stage.apply, value.value)
        sizes = None if value.value.ndim != 2 or value.error.any() else stage.bound_abs(value.value)
        if sizes is not None:
            error = unit * sizes
        else:
            # |W|(e + gamma |a|) covers both the error that came in and the rounding of this product. Values so small
            # that gamma |a| could underflow count as larger ones: a large weight must not meet a lost term.
            size = np.abs(value.value)
            given = value.error + unit * np.where(size > 0, np.maximum(size, SMALL), 0.0)
            error = on_rows(stage.apply_abs, given)
        bound = round_up(error + n * TINY, n + 3)
        # A product that overflowed says nothing, whatever the bound.
        bound = np.where(np.isfinite(result), bound, np.inf)
        if not (error > 0).all():
            # No term at all (a row of zeros, or only dead inputs) is an exact zero; seen from which coefficients meet
            # an input that can be non-zero, because the bound itself might have underflowed.
            touched = on_rows(stage.apply_abs, ((value.value != 0) | (value.error != 0)).astype(np.float64))
            # The zero is put in place: no coefficient at all times an overflow would be NaN.
            result, bound = np.where(touched == 0, 0.0, result), np.where(touched == 0, 0.0, bound)
        return Bounded(result, bound)

    def shift(self, value: Bounded, offset: FloatArray) -> Bounded:
        if self.constant is Constant.EVERYWHERE:
            return self._plus(value, offset)
        if self.constant is Constant.NOWHERE:
            return value
        last = self._plus(Bounded(value.value[..., -1, :], value.error[..., -1, :]), offset)
        result = Bounded(value.value.copy(), value.error.copy())
        result.value[..., -1, :], result.error[..., -1, :] = last.value, last.error
        return result

    def _plus(self, value: Bounded, offset: FloatArray) -> Bounded:
        total = value.value + offset
        error = round_up(value.error + gamma(1) * np.abs(total), 2)
        exact = (value.error == 0) & ((value.value == 0) | (offset == 0))
        return Bounded(total, np.where(exact, 0.0, error))

    def add(self, values: Sequence[Bounded]) -> Bounded:
        result = FLOAT.add([v.value for v in values])
        # One addition is rounded in proportion to its result, however large the terms are.
        size = np.abs(result) if len(values) == 2 else sum(np.abs(v.value) for v in values)
        error = sum(v.error for v in values) + gamma(len(values) - 1) * size
        bound = np.where(np.isfinite(result), round_up(np.asarray(error), len(values) + 2), np.inf)
        # Exact terms of which at most one is not zero have an exact sum.
        rounded = sum((v.error != 0) * 2 + (v.value != 0) for v in values) > 1
        return Bounded(result, np.where(rounded, bound, 0.0))

    def difference(self, one: Bounded, other: Bounded) -> Bounded:
        return self.add([one, Bounded(-other.value, other.error)])

    def concat(self, values: Sequence[Bounded], order: IntArray | None) -> Bounded:
        return Bounded(joined([v.value for v in values], order), joined([v.error for v in values], order))

    def gate(self, value: Bounded, active: BoolArray, slopes: FloatArray | None) -> Bounded:
        # Chosen and not multiplied: flat is flat whatever overflowed before.
        own = aligned(active, value.value.ndim)
        if slopes is None:
            return Bounded(np.where(own, value.value, 0.0), np.where(own, value.error, 0.0))
        factor = np.where(own, 1.0, slopes)
        result = np.where(factor == 0, 0.0, value.value * factor)
        error = np.where(factor == 0, 0.0, value.error * np.abs(factor))
        rounded = round_up(error + gamma(1) * np.abs(result), 2)
        # A product of zero may have underflowed: only what was zero before is zero.
        plain = (factor == 0) | (factor == 1) | ((value.value == 0) & (value.error == 0))
        return Bounded(result, np.where(plain, error, rounded))

    def pick(self, value: Bounded, index: IntArray) -> Bounded:
        return Bounded(picked(value.value, index), picked(value.error, index))

    def clip(self, value: Bounded, low: FloatArray, high: FloatArray) -> Bounded:
        # Nothing is rounded and nothing grows; what is certainly beyond a bound is the bound.
        beyond = (value.value + value.error < low) | (value.value - value.error > high)
        return Bounded(np.clip(value.value, low, high), np.where(beyond, 0.0, value.error))

    def piecewise(self, value: Bounded, slopes: FloatArray) -> Bounded:
        result = FLOAT.piecewise(value.value, slopes)
        if not slopes.any():
            # Certainly inactive means exactly zero; that also makes ties between dead inputs of a pool provable.
            return Bounded(result, np.where(value.value < -value.error, 0.0, value.error))
        # The activation is Lipschitz with constant max(1, |slope|); the product with the slope rounds once more.
        error = np.maximum(1.0, np.abs(slopes)) * value.error + gamma(1) * np.abs(result)
        return Bounded(result, round_up(error, 3))

    def window_max(self, value: Bounded, windows: IntArray) -> Bounded:
        return Bounded(FLOAT.window_max(value.value, windows), gather(value.error, windows, 0.0).max(axis=-1))

    def window_margins(self, value: Bounded, windows: IntArray) -> Bounded:
        result = FLOAT.window_margins(value.value, windows)
        largest = np.repeat(gather(value.error, windows, 0.0).max(axis=-1), windows.shape[1], axis=-1)
        # An absent input (padding) loses by an infinite margin, which no rounding touches.
        error = round_up(2 * largest + gamma(1) * np.where(np.isfinite(result), np.abs(result), 0.0), 3)
        return Bounded(result, np.where((largest == 0) & (result == 0), 0.0, error))

    def adjoint(self, stage: LinearMap, value: Bounded) -> Bounded:
        n = stage.out_size  # products that meet in one entry, at most
        size = np.abs(value.value)
        given = value.error + gamma(n + 3) * np.where(size > 0, np.maximum(size, SMALL), 0.0)
        absolute = stage.with_coefficients(np.abs(stage.coefficients))
        result, error = on_rows(stage.adjoint, value.value), on_rows(absolute.adjoint, given)
        return Bounded(result, np.where(np.isfinite(result), round_up(error + n * TINY, n + 6), np.inf))

    def scatter(self, value: Bounded, index: IntArray, size: int) -> Bounded:
        n = index.shape[-1]
        result, large, error = (FLOAT.scatter(x, index, size) for x in (value.value, np.abs(value.value), value.error))
        return Bounded(result, round_up(error + gamma(n) * large, n + 3))

    def split(self, value: Bounded, order: IntArray | None, sizes: Sequence[int]) -> list[Bounded]:
        values, errors = FLOAT.split(value.value, order, sizes), FLOAT.split(value.error, order, sizes)
        return [Bounded(v, e) for v, e in zip(values, errors, strict=True)]


BOUNDED = BoundedAlgebra()
"""Rows are points."""

BOUNDED_ROWS = BoundedAlgebra(Constant.LAST)
"""Rows are coefficients of affine functions of the input."""
