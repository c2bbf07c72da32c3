"""How far rounding of the stored parameters can move the outputs of a network at a point: rigorous upper bounds.

Every parameter ``w`` (weights, biases, slopes, constants of the model) is replaced by one that is off by at most
``share * max(|w|, least)``. If ``v`` is a value and ``d`` a bound of how far it moves, then an affine map moves by at
most ``A ((1 + share) d + share |v|) + share max(|b|, least)``, where ``A`` holds ``max(|W|, least)``; an activation and
a maximum pass it on. Two networks whose parameters are roundings of one and the same function differ by at most the sum
of their bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.operators import Operator
from fiberscope.network.walk import output
from fiberscope.numerics.algebra.ball import EXACT, BallAlgebra, balls
from fiberscope.numerics.algebra.base import LinearMap, gather
from fiberscope.numerics.algebra.bounded import SMALL, Bounded, BoundedAlgebra
from fiberscope.numerics.floats import TINY, FloatArray, IntArray, ObjectArray, U, round_up
from fiberscope.numerics.ulps import Rounding


def sizes_of(stage: LinearMap, rounding: Rounding) -> Operator:
    """The map with ``max(|w|, least)`` for every coefficient."""
    assert isinstance(stage, Operator)
    return stage.with_coefficients(np.maximum(np.abs(stage.coefficients), rounding.least))


@dataclass(frozen=True, slots=True)
class _Moving:
    """A value with the error of its evaluation, and a bound of how far rounding moves it."""

    value: Bounded
    moved: FloatArray


class _Deviations:
    """The bound in floats, rounded up; not finite where a number is beyond their range."""

    def __init__(self, rounding: Rounding, share: float) -> None:
        self.rounding, self.share, self.plain = rounding, share, BoundedAlgebra()

    def exact_input(self, x: FloatArray) -> _Moving:
        return _Moving(self.plain.take(x), np.zeros_like(x))

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: _Moving) -> _Moving:
        moved, inner = value.moved, value.value
        for stage in operator.stages():
            n = stage.fan_in
            # small values count as larger ones, so that nothing underflows in front of a large weight
            size = np.maximum(np.abs(inner.value) + inner.error, SMALL)
            given = (1 + self.share) * moved + self.share * size
            moved = round_up(sizes_of(stage, self.rounding).apply(round_up(given, 6)) + n * TINY, n + 4)
            inner = self.plain.affine(stage, None, inner)
        if bias is not None:
            own = self.share * np.maximum(np.abs(bias), self.rounding.least)
            moved = round_up(moved + own, 4)
            zero = np.zeros_like(inner.value)
            inner = self.plain.add([inner, Bounded(zero + bias, zero)])
        return _Moving(inner, moved)

    def piecewise(self, value: _Moving, slopes: FloatArray) -> _Moving:
        size = np.abs(value.value.value) + value.value.error + value.moved
        # a slope that is not 0 or 1 is a stored number like any other
        own = np.where((slopes == 0) | (slopes == 1), 0.0, self.share * np.abs(slopes)) * size
        moved = np.maximum(1.0, np.abs(slopes)) * value.moved + own
        # what stays negative wherever it moves to stays at zero
        off = (slopes == 0) & (value.value.value < -round_up(value.value.error + value.moved, 3))
        return _Moving(self.plain.piecewise(value.value, slopes), np.where(off, 0.0, round_up(moved, 8)))

    def add(self, values: Sequence[_Moving]) -> _Moving:
        total = np.sum([v.moved for v in values], axis=0)
        return _Moving(self.plain.add([v.value for v in values]), round_up(total, len(values) + 1))

    def concat(self, values: Sequence[_Moving], order: IntArray | None) -> _Moving:
        moved = np.concatenate([v.moved for v in values], axis=1)
        return _Moving(self.plain.concat([v.value for v in values], order), moved if order is None else moved[:, order])

    def window_max(self, value: _Moving, windows: IntArray) -> _Moving:
        at = value.value.value
        reach = round_up(value.value.error + value.moved + 4 * U * np.abs(at), 4)
        high, low = gather(at + reach, windows, -np.inf), gather(at - reach, windows, -np.inf)
        # inputs that lose wherever they move to do not count
        beaten = high < low.max(axis=2, keepdims=True)
        moved = np.where(beaten, 0.0, gather(value.moved, windows, 0.0))
        return _Moving(self.plain.window_max(value.value, windows), moved.max(axis=2))


class _ExactDeviations:
    """The same bound in exact arithmetic, which has no largest number; values are ``(value, moved)``."""

    def __init__(self, rounding: Rounding, share: float) -> None:
        self.rounding, self.share, self.plain = rounding, flint.arb(share), BallAlgebra(EXACT)

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: Any) -> Any:
        inner, moved = value
        for stage in operator.stages():
            given = moved + self.share * (moved + np.abs(inner))
            moved = sizes_of(stage, self.rounding).apply_scalars(given)
            inner = stage.apply_scalars(inner)
        if bias is not None:
            moved = moved + self.share * balls(np.maximum(np.abs(bias), self.rounding.least))
            inner = inner + balls(bias)
        return inner, moved

    def piecewise(self, value: Any, slopes: FloatArray) -> Any:
        inner, moved = value
        own = np.where((slopes == 0) | (slopes == 1), 0.0, np.abs(slopes))
        more = balls(np.maximum(1.0, np.abs(slopes))) * moved
        more = more + self.share * balls(own) * (np.abs(inner) + moved)
        return self.plain.piecewise(inner, slopes), more

    def add(self, values: Sequence[Any]) -> Any:
        return self.plain.add([v for v, _ in values]), self.plain.add([d for _, d in values])

    def concat(self, values: Sequence[Any], order: IntArray | None) -> Any:
        return self.plain.concat([v for v, _ in values], order), self.plain.concat([d for _, d in values], order)

    def window_max(self, value: Any, windows: IntArray) -> Any:
        return self.plain.window_max(value[0], windows), self.plain.window_max(value[1], windows)


def deviation(net: Network, x: FloatArray, rounding: Rounding, times: int = 1) -> FloatArray:
    """A bound for every output at ``x``, for parameters off by ``times`` as much; not finite beyond the floats.

    >>> net = Network([[[1.0]]], [[0.0]])
    >>> from fiberscope.numerics.ulps import ROUNDINGS
    >>> bound = deviation(net, np.array([2.0]), ROUNDINGS["float32"])
    >>> bool(16 * 2.0**-24 <= bound[0] < 17 * 2.0**-24)
    True
    """
    arithmetic = _Deviations(rounding, times * rounding.share)
    with np.errstate(over="ignore", invalid="ignore"):
        found = output(net.layout, arithmetic.exact_input(x.reshape(1, -1)), arithmetic)
    return np.asarray(found.moved[0])


def exact_deviation(net: Network, x: FloatArray, rounding: Rounding, times: int = 1) -> ObjectArray:
    """The same as exact numbers; to be called, and its result used, at the precision of exact arithmetic."""
    arithmetic = _ExactDeviations(rounding, times * rounding.share)
    start = balls(x.reshape(1, -1))
    found: Any = output(net.layout, (start, balls(np.zeros_like(x.reshape(1, -1)))), arithmetic)
    return np.asarray(found[1][0])
