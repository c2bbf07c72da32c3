"""How far rounding of the stored parameters can move the outputs of a network at a point: rigorous upper bounds.

Every parameter ``w`` (weights, biases, slopes, constants of the model) is replaced by one that is off by at most
``share * max(|w|, least)``. If ``v`` is a value and ``d`` a bound of how far it moves, then an affine map moves by at
most ``A ((1 + share) d + share |v|) + share max(|b|, least)``, where ``A`` holds ``max(|W|, least)``; an activation and
a maximum pass it on. Two networks whose parameters are roundings of one and the same function differ by at most the sum
of their bounds.

That adds up what cancels. Between switches a program is affine, so what a switch ``k`` reads moves by ``L_k d + r_k``:
``d`` is how far the switches before it move, and ``r_k`` what the parameters in between do by moving, applied to values
that have moved. Where signs are certain wherever they move to, the movement of an output is ``sum_k G_k r_k`` exactly,
with derivatives ``G_k`` of the parameters as they are; a switch that is not certain adds something between its slopes,
times its movement. So ``sum_k |G_k| |r_k|`` is a second bound. It needs the first one only for how far values move, of
which a share comes in. Nothing cancels within an ``r_k``: fused maps are rounded in proportion to all their products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Switch
from fiberscope.network.operators import Operator
from fiberscope.network.walk import backward, decided, output, step, walk
from fiberscope.numerics.algebra.ball import EXACT, BallAlgebra, balls
from fiberscope.numerics.algebra.base import LinearMap, gather, joined, picked
from fiberscope.numerics.algebra.bounded import BOUNDED, SMALL, Bounded, BoundedAlgebra
from fiberscope.numerics.algebra.floating import FLOAT
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
    fresh: FloatArray
    """The part of ``moved`` that came in behind the last switches."""


class _Deviations:
    """The bound in floats, rounded up; not finite where a number is beyond their range."""

    def __init__(self, rounding: Rounding, share: float) -> None:
        self.rounding, self.share, self.plain = rounding, share, BoundedAlgebra()
        self.passed = np.zeros((1, 0))
        """What came in up to the last switch, seen behind it, and what its own signs leave open."""

    def exact_input(self, x: FloatArray) -> _Moving:
        return _Moving(self.plain.take(x), np.zeros_like(x), np.zeros_like(x))

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: _Moving) -> _Moving:
        moves, inner = np.concatenate([value.moved, value.fresh]), value.value
        for stage in operator.stages():
            n = stage.fan_in
            # small values count as larger ones, so that nothing underflows in front of a large weight
            size = np.maximum(np.abs(inner.value) + inner.error, SMALL)
            # what came in meets values that have moved in any way
            given = (1 + self.share) * moves + self.share * (size + np.array([[0.0], [1.0]]) * moves[:1])
            moves = round_up(sizes_of(stage, self.rounding).apply(round_up(given, 8)) + n * TINY, n + 4)
            inner = self.plain.affine(stage, None, inner)
        if bias is not None:
            own = self.share * np.maximum(np.abs(bias), self.rounding.least)
            moves = round_up(moves + own, 4)
            zero = np.zeros_like(inner.value)
            inner = self.plain.add([inner, Bounded(zero + bias, zero)])
        return _Moving(inner, moves[:1], moves[1:])

    def piecewise(self, value: _Moving, slopes: FloatArray) -> _Moving:
        size = np.abs(value.value.value) + value.value.error + value.moved
        # a slope that is not 0 or 1 is a stored number like any other
        own = np.where((slopes == 0) | (slopes == 1), 0.0, self.share * np.abs(slopes)) * size
        moved = np.maximum(1.0, np.abs(slopes)) * value.moved + own
        # what stays negative wherever it moves to stays at zero
        at, reach = value.value.value, round_up(value.value.error + value.moved, 3)
        off = (slopes == 0) & (at < -reach)
        left_open = np.where(np.abs(at) > reach, 0.0, np.abs(1 - slopes) * value.moved)
        linear = slopes == 1  # no switch: what comes in meets what comes in behind it
        passed = np.where(at > 0, 1.0, np.abs(slopes)) * value.fresh + left_open + own
        self.passed = np.where(linear, 0.0, round_up(passed, 10))
        moved = np.where(off, 0.0, round_up(moved, 8))
        return _Moving(self.plain.piecewise(value.value, slopes), moved, np.where(linear, value.fresh, 0.0))

    def add(self, values: Sequence[_Moving]) -> _Moving:
        moved, fresh = (
            round_up(np.sum(parts, axis=0), len(values) + 1)
            for parts in ([v.moved for v in values], [v.fresh for v in values])
        )
        return _Moving(self.plain.add([v.value for v in values]), moved, fresh)

    def concat(self, values: Sequence[_Moving], order: IntArray | None) -> _Moving:
        moved, fresh = (joined([getattr(v, name) for v in values], order) for name in ("moved", "fresh"))
        return _Moving(self.plain.concat([v.value for v in values], order), moved, fresh)

    def window_max(self, value: _Moving, windows: IntArray) -> _Moving:
        at = value.value.value
        reach = round_up(value.value.error + value.moved + 4 * U * np.abs(at), 4)
        high, low = gather(at + reach, windows, -np.inf), gather(at - reach, windows, -np.inf)
        # inputs that lose wherever they move to do not count
        beaten = high < low.max(axis=2, keepdims=True)
        moved = np.where(beaten, 0.0, gather(value.moved, windows, 0.0))
        alone = (~beaten).sum(axis=2) == 1  # who wins here wins wherever they move to
        winner = picked(value.fresh, FLOAT.winners(at, windows))
        self.passed = round_up(winner + np.where(alone, 0.0, 2 * moved.max(axis=2)), 3)
        most = moved.max(axis=2)
        return _Moving(self.plain.window_max(value.value, windows), most, np.zeros_like(most))


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


def closer_deviation(
    net: Network, x: FloatArray, rounding: Rounding, outputs: Sequence[int], times: int = 1
) -> FloatArray:
    """The smaller one of both bounds, for these outputs only.

    >>> from fiberscope.numerics.ulps import ROUNDINGS
    >>> net = Network([[[1.0]], [[1.0], [1.0]], [[1.0, -1.0]]], [[0.0], [0.0, 0.0], [0.0]])  # what moves first cancels
    >>> x, kind = np.array([2.0]), ROUNDINGS["float32"]
    >>> float((deviation(net, x, kind) / closer_deviation(net, x, kind, [0]))[0]).__round__(2)
    1.5
    """
    arithmetic = _Deviations(rounding, times * rounding.share)
    values, last = {0: arithmetic.exact_input(x.reshape(1, -1))}, len(net.layout.nodes)
    choices, passed = dict[int, Any](), dict[int, FloatArray]()
    with np.errstate(over="ignore", invalid="ignore"):
        for index in walk(net.layout, values, arithmetic):
            node = net.layout.nodes[index]
            values[index + 1] = step(node, values, arithmetic)
            if isinstance(node, Switch):
                choices[index] = decided(node, values[node.source].value.value[0], FLOAT)
                passed[index + 1] = arithmetic.passed[0]
        plain, total = (part[0][list(outputs)] for part in (values[last].moved, values[last].fresh))
        start = BOUNDED.take(np.eye(net.out_size)[list(outputs)])
        for at in backward(net.layout, choices, {last: start}, BOUNDED, first=1):
            if at.value in passed:
                steep = np.abs(at.delta.value) + at.delta.error
                total = round_up(total + round_up(steep @ passed[at.value], steep.shape[1] + 4), 2)
    return np.asarray(np.where(total < plain, total, plain))


def exact_deviation(net: Network, x: FloatArray, rounding: Rounding, times: int = 1) -> ObjectArray:
    """The same as exact numbers; to be called, and its result used, at the precision of exact arithmetic."""
    arithmetic = _ExactDeviations(rounding, times * rounding.share)
    start = balls(x.reshape(1, -1))
    found: Any = output(net.layout, (start, balls(np.zeros_like(x.reshape(1, -1)))), arithmetic)
    return np.asarray(found[1][0])
