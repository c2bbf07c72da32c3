"""Pairs of floats, about 106 bits, with a bound of the error; see :class:`fiberscope.numerics.compensated.Twofold`.

Rows are coefficients of affine functions, ``(rows, features)`` with the constant term last. Sums of
values and slopes other than 0 and 1 would need rounding of their own and are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from fiberscope.numerics.algebra.base import Algebra, Constant, LinearMap, joined
from fiberscope.numerics.compensated import Gate, Twofold
from fiberscope.numerics.floats import UP, BoolArray, FloatArray, IntArray, spectral_bound


class TwofoldAlgebra(Algebra[Twofold]):
    """Rows in pairs of floats; a bias goes into the product itself, which rounds it with all the rest.

    With ``every``, rows of many functions stand one below the other, so many rows each.
    """

    constant = Constant.LAST

    def __init__(self, every: int | None = None) -> None:
        self._every = every
        self._matrices: WeakKeyDictionary[LinearMap, tuple[FloatArray, float]] = WeakKeyDictionary()

    def take(self, values: FloatArray) -> Twofold:
        return Twofold.exact(values)

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: Twofold) -> Twofold:
        *before, last = operator.stages()
        for stage in before:
            value = self.apply(stage, value)
        return self._times(last, value, bias)

    def apply(self, stage: LinearMap, value: Twofold) -> Twofold:
        return self._times(stage, value, None)

    def behind(self, stage: LinearMap, bias: FloatArray | None, value: Twofold, gate: Gate) -> Twofold:
        """A layer of values of which some blocks are taken, and in these some entries: see :meth:`Twofold.times`."""
        return self._times(stage, value, bias, gate)

    def _times(self, stage: LinearMap, value: Twofold, bias: FloatArray | None, gate: Gate | None = None) -> Twofold:
        if stage not in self._matrices:
            matrix = np.ascontiguousarray(stage.dense().T, dtype=np.float64)
            self._matrices[stage] = matrix, spectral_bound(matrix)
        start = np.zeros((self._every or len(value.high), stage.out_size))
        if bias is not None:
            start[-1] = bias
        matrix, spectral = self._matrices[stage]
        return value.times(matrix, start, spectral, gate)

    def concat(self, values: Sequence[Twofold], order: IntArray | None) -> Twofold:
        parts = ("high", "low", "error")
        high, low, error = (joined([getattr(value, part) for value in values], order) for part in parts)
        known = [value.norm for value in values if value.norm is not None]
        norm = np.hypot.reduce(known) * UP if len(known) == len(values) else None
        return Twofold(high, low, error, norm)

    def gate(self, value: Twofold, active: BoolArray, slopes: FloatArray | None) -> Twofold:
        if slopes is not None and not np.isin(slopes, (0.0, 1.0)).all():
            raise self._lacks("slopes but 0 and 1")
        alive = active if slopes is None else active | (slopes == 1)
        high, low, error = (np.where(alive, part, 0.0) for part in (value.high, value.low, value.error))
        return Twofold(high, low, error, value.norm)
