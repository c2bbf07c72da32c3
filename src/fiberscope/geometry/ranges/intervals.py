"""Rigorous ranges of every value of a program on a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fiberscope.geometry.domains import Box
from fiberscope.network.network import Network
from fiberscope.network.walk import all_values
from fiberscope.numerics.algebra.base import LinearMap, gather
from fiberscope.numerics.algebra.bounded import SMALL
from fiberscope.numerics.floats import TINY, FloatArray, IntArray, U, gamma, round_up


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """``low <= value <= high``, vectors."""

    low: FloatArray
    high: FloatArray


class RangeArithmetic:
    """Interval arithmetic with all rounding outward; infinite bounds are allowed behind the first affine map."""

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: Range) -> Range:
        for stage in operator.stages():
            value = self._linear(stage, value)
        if bias is None:
            return value
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = value.low + bias, value.high + bias
            slack = [2 * U * np.abs(x) + TINY for x in (low, high)]
            low = np.where(bias == 0, value.low, low - slack[0])
            high = np.where(bias == 0, value.high, high + slack[1])
        return _outward(low, high)

    def _linear(self, stage: LinearMap, value: Range) -> Range:
        n = stage.fan_in
        with np.errstate(over="ignore", invalid="ignore"):
            centre = 0.5 * value.low + 0.5 * value.high
            radius = round_up(np.maximum(value.high - centre, centre - value.low), 3)
            middle = stage.apply(centre[None])[0]
            # |W| (radius + rounding of the product with the centre); values so small that their rounding could
            # underflow count as larger ones, since a large weight must not meet a lost term
            size = np.where(centre == 0, 0.0, np.maximum(np.abs(centre), SMALL))
            reach = stage.apply_abs((radius + gamma(n + 2) * size)[None])[0]
            reach = round_up(reach + n * TINY, n + 4)
            # a sum of zeros is an exact zero
            touched = stage.apply_abs(((value.low != 0) | (value.high != 0)).astype(np.float64)[None])[0]
            reach = np.where(touched == 0, 0.0, reach)
            low, high = middle - reach, middle + reach
        # a sum that overflowed on the way says nothing, not even its sign
        known = np.isfinite(middle) & np.isfinite(reach)
        return Range(np.where(known, low, -np.inf), np.where(known, high, np.inf))

    def piecewise(self, value: Range, slopes: FloatArray) -> Range:
        flat = (slopes == 0) | (slopes == 1)
        with np.errstate(over="ignore", invalid="ignore"):
            ends = [np.where(x > 0, x, np.where(slopes == 0, 0.0, slopes * x)) for x in (value.low, value.high)]
            low, high = np.minimum(*ends), np.maximum(*ends)
            both = (value.low < 0) & (value.high > 0)
            low = np.where(both, np.minimum(low, 0.0), low)
            slack = [np.where(flat, 0.0, 2 * U * np.abs(x) + TINY) for x in (low, high)]
            return _outward(low - slack[0], high + slack[1])

    def add(self, values: Sequence[Range]) -> Range:
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = (np.sum([getattr(v, name) for v in values], axis=0) for name in ("low", "high"))
            size = gamma(len(values)) * np.sum([np.maximum(np.abs(v.low), np.abs(v.high)) for v in values], axis=0)
            slack = round_up(size, len(values) + 2)
            return _outward(low - slack, high + slack)

    def concat(self, values: Sequence[Range], order: IntArray | None) -> Range:
        low, high = (np.concatenate([getattr(v, name) for v in values]) for name in ("low", "high"))
        return Range(low, high) if order is None else Range(low[order], high[order])

    def window_max(self, value: Range, windows: IntArray) -> Range:
        low, high = (gather(x[None], windows, -np.inf)[0].max(axis=1) for x in (value.low, value.high))
        return Range(low, high)

    def window_margins(self, value: Range, windows: IntArray) -> Range:
        raise NotImplementedError("ranges have no margins")


def _outward(low: FloatArray, high: FloatArray) -> Range:
    """What is not a number, or overflowed to the wrong side, bounds nothing."""
    return Range(np.where(low < np.inf, low, -np.inf), np.where(high > -np.inf, high, np.inf))


def ranges(net: Network, box: Box) -> list[Range]:
    """A range of every value of the program on a box, the input first; all rounding included.

    >>> net = Network([[[1.0, -1.0]], [[1.0]]], [[0.5], [0.0]])
    >>> found = ranges(net, Box.cube(2))[1]
    >>> bool(-1.5 - 1e-9 < found.low[0] <= -1.5), bool(2.5 <= found.high[0] < 2.5 + 1e-9)
    (True, True)
    """
    return all_values(net.layout, Range(box.low, box.high), RangeArithmetic())
