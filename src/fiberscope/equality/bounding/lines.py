"""Upper bounds of linear functions of the outputs of a dense chain on a box, by lines from there back to the inputs.

Going back, every open activation is replaced by a line above or below it, whichever the sign of its coefficient asks
for: on one side the chord, and on the other any line through zero between the two pieces. Which of these does best is
found by a few steps: a bound is attained at a corner of the box, and what the lines make of that corner says in which
direction each of them has to turn (Xu et al., *Fast and Complete*, 2021). The intervals of the preactivations are found
in the same way, layer by layer, without such steps. In products of matrices, for many inputs; for few, compiled bounds
of differences do better.

Rounding. A product of matrices is off by at most ``gamma(n)`` times that of absolute values, and what the coefficients
meet is bounded by ``sizes``, so the loss of a step is a number for every row; so is what underflows. Whatever is not
finite proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fiberscope.numerics.floats import EPS, TINY, FloatArray
from fiberscope.run import ENDLESS, Run

if TYPE_CHECKING:
    from fiberscope.equality.bounding.chains import Layer

STEPS = 20
"""How often the lines of the outputs are turned."""


class Known(NamedTuple):
    """Ends of the preactivations of a layer, and bounds of what is added up to them, ``|W| |h| + |b|``."""

    low: FloatArray
    high: FloatArray
    sizes: FloatArray


def uppers(
    layers: Sequence[Layer], low: FloatArray, high: FloatArray, rows: FloatArray, run: Run = ENDLESS
) -> FloatArray:
    """Upper bounds of ``rows @ f(x)`` on the box, for a chain whose last layer has no activation.

    >>> from fiberscope.equality.bounding.chains import layers_of
    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])  # the absolute value
    >>> float(uppers(layers_of(net), np.array([-1.0]), np.array([2.0]), np.ones((1, 1))).round(6)[0])
    2.0
    """
    known: list[Known] = []
    reach = np.maximum(np.abs(low), np.abs(high))
    with np.errstate(all="ignore"):
        for k, layer in enumerate(layers[:-1]):
            run.check()
            n = layer.matrix.shape[1]
            sizes = (np.abs(layer.matrix) @ reach + np.abs(layer.offset)) * (1 + (n + 8) * EPS) + TINY
            every = np.eye(len(layer.offset))
            both = _back(layers[: k + 1], known, low, high, np.concatenate([every, -every]))
            top, bottom = both[: len(every)], -both[len(every) :]
            # what adds up is a bound as well, and the only one where the other is not a number
            top, bottom = np.fmin(top, sizes), np.fmax(bottom, -sizes)
            known.append(Known(bottom, top, sizes))
            reach = np.maximum(np.abs(bottom), np.abs(top))
            if layer.slopes is not None:
                reach = reach * np.maximum(1.0, np.abs(layer.slopes)) * (1 + EPS)
        turns = [
            None if layer.slopes is None else np.repeat(_first(ends, layer.slopes)[None], len(rows), axis=0)
            for layer, ends in zip(layers, known, strict=False)
        ]
        best, step = np.full(len(rows), np.inf), 0.5
        for _ in range(STEPS):
            run.check()
            marks: list[FloatArray] = []
            best = np.minimum(best, _back(layers, known, low, high, rows, turns, marks))
            if (best <= 0).all():
                break
            _turn(layers, known, low, high, turns, marks, step)
            step *= 0.75
        return best


def settled(
    chains: tuple[Sequence[Layer], Sequence[Layer]], low: FloatArray, high: FloatArray, own: int, run: Run = ENDLESS
) -> float:
    """A bound that is not positive only if on the box ``own`` is the class of both chains, or ties with it.

    The largest of ``a_k - a_own`` and ``b_k - b_own``: where none is positive, no other class is ahead in ``a``, and
    none beats ``own`` in ``b``.
    """
    count = len(chains[0][-1].offset)
    rows = np.delete(np.eye(count), own, axis=0)
    rows[:, own] = -1.0
    worst = -np.inf
    for layers in chains:
        worst = max(worst, float(uppers(layers, low, high, rows, run).max()))
        if not worst <= 0:
            return np.inf
    return worst


def _first(known: Known, slopes: FloatArray) -> FloatArray:
    """The piece that covers more of the interval."""
    return np.where(known.high > -known.low, 1.0, slopes)


def _turn(
    layers: Sequence[Layer],
    known: Sequence[Known],
    low: FloatArray,
    high: FloatArray,
    turns: list[FloatArray | None],
    marks: list[FloatArray],
    step: float,
) -> None:
    """Turn the lines through zero to what they should be at the corners; ``marks`` are coefficients, last first."""
    value = np.where(marks[-1] >= 0, high, low)
    for k, layer in enumerate(layers[:-1]):
        value = value @ layer.matrix.T + layer.offset
        turn = turns[k]
        if layer.slopes is None or turn is None:
            continue
        above, below, more, less = _pair(known[k], layer.slopes, turn)
        mark = marks[len(layers) - 2 - k]
        open_ = (known[k].low < 0) & (known[k].high > 0)
        bottom, top = np.minimum(layer.slopes, 1.0), np.maximum(layer.slopes, 1.0)
        free = open_ & np.where(layer.slopes <= 1, mark < 0, mark > 0)
        towards = np.where(value > 0, step, -step) * np.where(layer.slopes <= 1, 1.0, -1.0)
        turns[k] = np.where(free, np.clip(turn + towards, bottom, top), turn)
        value = np.where(mark >= 0, above * value + more, below * value + less)


def _back(
    layers: Sequence[Layer],
    known: Sequence[Known],
    low: FloatArray,
    high: FloatArray,
    rows: FloatArray,
    turns: Sequence[FloatArray | None] | None = None,
    marks: list[FloatArray] | None = None,
) -> FloatArray:
    """Upper bounds of ``rows`` times the preactivations of the last of the layers; coefficients go to ``marks``."""
    last = layers[-1]
    value, lost, moved = rows, np.zeros(len(rows)), np.zeros(len(rows))
    constant = np.zeros(len(rows))
    count = 16
    for k in range(len(layers) - 1, -1, -1):
        layer = layers[k]
        m, n = layer.matrix.shape
        count += m + n
        if marks is not None and layer is not last:
            marks.append(value)
        if layer is not last and layer.slopes is not None:
            turn = None if turns is None else turns[k]
            above, below, more, less = _pair(
                known[k], layer.slopes, _first(known[k], layer.slopes) if turn is None else turn
            )
            plus, minus = np.maximum(value, 0.0), np.minimum(value, 0.0)
            constant = constant + plus @ more + minus @ less
            moved = moved + plus @ np.abs(more) - minus @ np.abs(less)
            value = plus * above + minus * below
        # what the coefficients meet: the values in front of the layer, and what is added up of them
        most = np.maximum(np.abs(low), np.abs(high)) if k == 0 else _reach(known[k - 1], layers[k - 1])
        sizes = np.abs(layer.matrix) @ most + np.abs(layer.offset) if layer is last else known[k].sizes
        unit = (2 * max(m, n) + 24) * EPS
        lost = lost + unit * (np.abs(value) @ sizes) * (1 + unit)
        lost = lost + TINY * (sizes.sum() + m * most.sum() + m + n)  # coefficients that underflow
        part = value @ layer.offset
        constant, moved = constant + part, moved + np.abs(value) @ np.abs(layer.offset)
        value = value @ layer.matrix
    if marks is not None:
        marks.append(value)
    ends = np.maximum(value, 0.0) @ high + np.minimum(value, 0.0) @ low
    moved = moved + np.abs(value) @ np.maximum(np.abs(low), np.abs(high))
    found = constant + ends + (lost + count * EPS * moved) * (1 + count * EPS) + TINY
    return np.where(np.isnan(found), np.inf, found)


def _reach(known: Known, layer: Layer) -> FloatArray:
    """Largest absolute values behind a layer."""
    found = np.maximum(np.abs(known.low), np.abs(known.high))
    return found if layer.slopes is None else found * np.maximum(1.0, np.abs(layer.slopes)) * (1 + EPS)


def _pair(known: Known, slopes: FloatArray, turn: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Slopes of a line above and of one below every activation, and their values at zero."""
    low, high = known.low, known.high
    on, off = (low >= 0) | (slopes == 1), high <= 0
    chord = (high - slopes * low) / (high - low)
    chord = np.where(np.isfinite(chord), chord, 0.0)
    # f(z) - chord z on the interval, whose extremes are at the ends and at 0
    left, right = (slopes - chord) * low, (1.0 - chord) * high
    slack = EPS * (np.abs(slopes) + np.abs(chord) + 1.0) * np.maximum(np.abs(low), np.abs(high)) + TINY
    up = np.maximum(0.0, np.maximum(left, right)) + slack
    down = np.minimum(0.0, np.minimum(left, right)) - slack
    convex = slopes <= 1  # a line through zero between the pieces is below; else it is above
    sure = np.where(on, 1.0, slopes)
    above = np.where(on | off, sure, np.where(convex, chord, turn))
    below = np.where(on | off, sure, np.where(convex, turn, chord))
    return above, below, np.where(on | off | ~convex, 0.0, up), np.where(on | off | convex, 0.0, down)
