"""Plain floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fiberscope.numerics.algebra.base import Constant, LinearMap, Ring, gather, on_rows
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray


class FloatAlgebra(Ring):
    """Float64, or float32 for comparison with float32 software.

    In float32 a dense layer is computed in float32 from rounded weights; other operators are computed in float64 and
    rounded once.
    """

    def __init__(self, dtype: type[np.floating[Any]] = np.float64, constant: Constant = Constant.EVERYWHERE) -> None:
        super().__init__(constant)
        self.dtype = dtype
        self._narrow: WeakKeyDictionary[LinearMap, Any] = WeakKeyDictionary()

    def take(self, values: Any) -> Any:
        return np.asarray(values, dtype=self.dtype)

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: Any) -> Any:
        if value.ndim == 2 and self.dtype is np.float64 and self.constant is Constant.EVERYWHERE:
            result = operator.apply(value)  # single points are worth the shortest way
            return result if bias is None else result + bias
        return super().affine(operator, bias, value)

    def apply(self, stage: LinearMap, value: Any) -> Any:
        if self.dtype is np.float64:
            return on_rows(stage.apply, value)
        if stage.stored_matrix is not None:
            return value @ self._matrix(stage).T
        return self.take(on_rows(stage.apply, value.astype(np.float64)))

    def adjoint(self, stage: LinearMap, value: Any) -> Any:
        if self.dtype is np.float64:
            return on_rows(stage.adjoint, value)
        if stage.stored_matrix is not None:
            return value @ self._matrix(stage)
        return self.take(on_rows(stage.adjoint, value.astype(np.float64)))

    def _matrix(self, stage: LinearMap) -> Any:
        if stage not in self._narrow:
            self._narrow[stage] = self.take(stage.stored_matrix)
        return self._narrow[stage]

    def _plus(self, value: Any, offset: FloatArray) -> Any:
        return value + (offset if self.dtype is np.float64 else self.take(offset))

    def add(self, values: Sequence[Any]) -> Any:
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total

    def difference(self, one: Any, other: Any) -> Any:
        return one - other

    def clip(self, value: Any, low: FloatArray, high: FloatArray) -> Any:
        return np.clip(value, self.take(low), self.take(high))

    def piecewise(self, value: Any, slopes: FloatArray) -> Any:
        if not slopes.any():
            return np.maximum(value, 0.0)
        return np.where(value > 0, value, slopes * value)

    def window_max(self, value: Any, windows: IntArray) -> Any:
        return gather(value, windows, -np.inf).max(axis=-1)

    def window_margins(self, value: Any, windows: IntArray) -> Any:
        return margins(gather(value, windows, -np.inf))

    def active(self, value: Any) -> BoolArray:
        return np.asarray(value > 0)

    def winners(self, value: Any, windows: IntArray) -> IntArray:
        first = gather(value, windows, -np.inf).argmax(axis=-1)
        return np.asarray(windows[np.arange(len(windows)), first])

    def multiply(self, a: Any, b: Any) -> Any:
        return a * b

    def total(self, a: Any, axes: tuple[int, ...]) -> Any:
        return a.sum(axis=axes)

    def batched(self, a: Any, b: Any) -> Any:
        return np.matmul(a, b)

    def _scattered(self, rows: Any, index: IntArray, size: int) -> Any:
        result = np.zeros((len(rows), size), dtype=self.dtype)
        np.add.at(result, (np.arange(len(rows))[:, None], index), rows)
        return result

    def outer_into(self, delta: Any, inputs: Any, out: Any, fresh: bool) -> None:
        if fresh and out.shape[1] == 1:  # one axis less is faster
            np.multiply(delta[:, 0, :, None], inputs[:, None, :], out=out[:, 0])
        elif fresh:
            np.multiply(delta[..., None], inputs[:, None, None, :], out=out)
        else:
            out += delta[..., None] * inputs[:, None, None, :]

    def empty(self, shape: tuple[int, ...]) -> Any:
        return np.empty(shape, dtype=self.dtype)


FLOAT = FloatAlgebra()
"""Ordinary floats; rows are points."""

FLOAT_ROWS = FloatAlgebra(constant=Constant.LAST)
"""Ordinary floats; rows are coefficients of affine functions of the input."""


def margins(gathered: FloatArray) -> FloatArray:
    """``x_j - max_{i != j} x_i`` in every window; an absent input has margin -inf, one without rivals +inf."""
    *lead, count, size = gathered.shape
    if size == 1:
        return np.full((*lead, count), np.inf)
    top = np.partition(gathered, size - 2, axis=-1)
    best, second = top[..., -1:], top[..., -2:-1]
    winner = np.zeros(gathered.shape, dtype=bool)
    np.put_along_axis(winner, gathered.argmax(axis=-1)[..., None], True, axis=-1)
    found = np.where(winner, gathered - second, gathered - best)
    return np.asarray(found).reshape(*lead, count * size)
