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
from dataclasses import dataclass
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


Turns = list[FloatArray | None]
"""For every layer and bound the slopes of the lines through zero."""


@dataclass(slots=True)
class Phases:
    """Signs that neurons of a layer are taken to have, 0 for any, with a factor of each that is not negative."""

    signs: FloatArray
    factors: FloatArray

    def clamped(self, known: Known) -> Known:
        """What is known of the preactivations where the signs are right."""
        low = np.where(self.signs > 0, np.maximum(known.low, 0.0), known.low)
        return Known(low, np.where(self.signs < 0, np.minimum(known.high, 0.0), known.high), known.sizes)

    def step(self, value: FloatArray, mark: FloatArray, step: float) -> None:
        """A step towards better factors, from what the preactivations are at the corners of the bounds."""
        size = np.abs(mark).mean(axis=1, keepdims=True) / (np.abs(value).mean(axis=1, keepdims=True) + TINY)
        better = np.maximum(self.factors - 2.0 * step * size * self.signs * value, 0.0)
        self.factors = np.where((self.signs != 0) & (better < np.inf), better, 0.0)


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
    with np.errstate(all="ignore"):
        known = intervals(layers, low, high, run)
        turns = first_turns(layers, known, len(rows))
        best, step = np.full(len(rows), np.inf), 0.5
        for _ in range(STEPS):
            run.check()
            marks: list[FloatArray] = []
            best = np.minimum(best, back(layers, known, low, high, rows, turns, marks))
            if (best <= 0).all():
                break
            turned(layers, known, low, high, turns, marks, step)
            step *= 0.75
        return best


def intervals(layers: Sequence[Layer], low: FloatArray, high: FloatArray, run: Run = ENDLESS) -> list[Known]:
    """What is known of the preactivations of all layers but the last."""
    known: list[Known] = []
    reach = np.maximum(np.abs(low), np.abs(high))
    for k, layer in enumerate(layers[:-1]):
        run.check()
        n = layer.matrix.shape[1]
        sizes = (np.abs(layer.matrix) @ reach + np.abs(layer.offset)) * (1 + (n + 8) * EPS) + TINY
        every = np.eye(len(layer.offset))
        both = back(layers[: k + 1], known, low, high, np.concatenate([every, -every]))
        top, bottom = both[: len(every)], -both[len(every) :]
        # what adds up is a bound as well, and the only one where the other is not a number
        top, bottom = np.fmin(top, sizes), np.fmax(bottom, -sizes)
        known.append(Known(bottom, top, sizes))
        reach = np.maximum(np.abs(bottom), np.abs(top))
        if layer.slopes is not None:
            reach = reach * np.maximum(1.0, np.abs(layer.slopes)) * (1 + EPS)
    return known


def first_turns(layers: Sequence[Layer], known: Sequence[Known], count: int) -> Turns:
    """Lines to begin with, for so many bounds."""
    return [
        None if layer.slopes is None else np.repeat(_first(ends, layer.slopes)[None], count, axis=0)
        for layer, ends in zip(layers, known, strict=False)
    ]


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


def turned(
    layers: Sequence[Layer],
    known: Sequence[Known],
    low: FloatArray,
    high: FloatArray,
    turns: Turns,
    marks: list[FloatArray],
    step: float,
    phases: Sequence[Phases] | None = None,
) -> None:
    """Turn the lines through zero to what they should be at the corners; ``marks`` are coefficients, last first.

    Factors of ``phases`` change the same way.
    """
    value = np.where(marks[-1] >= 0, high, low)
    for k, layer in enumerate(layers[:-1]):
        value = value @ layer.matrix.T + layer.offset
        turn = turns[k]
        if layer.slopes is None or turn is None:
            continue
        ends, mark = known[k], marks[len(layers) - 2 - k]
        if phases is not None:
            ends = phases[k].clamped(ends)
            phases[k].step(value, mark, step)
        above, below, more, less = _pair(ends, layer.slopes, turn)
        open_ = (ends.low < 0) & (ends.high > 0)
        bottom, top = np.minimum(layer.slopes, 1.0), np.maximum(layer.slopes, 1.0)
        free = open_ & np.where(layer.slopes <= 1, mark < 0, mark > 0)
        towards = np.where(value > 0, step, -step) * np.where(layer.slopes <= 1, 1.0, -1.0)
        turns[k] = np.where(free, np.clip(turn + towards, bottom, top), turn)
        value = np.where(mark >= 0, above * value + more, below * value + less)


def losses(
    layers: Sequence[Layer],
    known: Sequence[Known],
    marks: Sequence[FloatArray],
    turns: Turns,
    phases: Sequence[Phases],
) -> list[FloatArray]:
    """For every neuron that is open how far its line is off, times its coefficient; 0 where its sign is told."""
    found = []
    for k, (layer, turn) in enumerate(zip(layers, turns, strict=False)):
        mark = marks[len(layers) - 2 - k]
        if layer.slopes is None or turn is None:
            found.append(np.zeros_like(mark))
            continue
        _, _, more, less = _pair(phases[k].clamped(known[k]), layer.slopes, turn)
        lost = np.maximum(mark, 0.0) * more + np.minimum(mark, 0.0) * less
        found.append(np.where((phases[k].signs == 0) & (lost > 0), lost, 0.0))
    return found


def back(
    layers: Sequence[Layer],
    known: Sequence[Known],
    low: FloatArray,
    high: FloatArray,
    rows: FloatArray,
    turns: Sequence[FloatArray | None] | None = None,
    marks: list[FloatArray] | None = None,
    phases: Sequence[Phases] | None = None,
) -> FloatArray:
    """Upper bounds of ``rows`` times the preactivations of the last of the layers; coefficients go to ``marks``.

    With ``phases`` a bound holds where the signs of neurons are what its row of them says.
    """
    last = layers[-1]
    value, lost, moved = rows, np.zeros(len(rows)), np.zeros(len(rows))
    constant = np.zeros(len(rows))
    count = 16
    for k in range(len(layers) - 1, -1, -1):
        layer = layers[k]
        m, n = layer.matrix.shape
        count += m + n
        # what the coefficients meet: the values in front of the layer, and what is added up of them
        most = np.maximum(np.abs(low), np.abs(high)) if k == 0 else _reach(known[k - 1], layers[k - 1])
        sizes = np.abs(layer.matrix) @ most + np.abs(layer.offset) if layer is last else known[k].sizes
        unit = (2 * max(m, n) + 24) * EPS
        if marks is not None and layer is not last:
            marks.append(value)
        if layer is not last and layer.slopes is not None:
            turn = None if turns is None else turns[k]
            turn = _first(known[k], layer.slopes) if turn is None else turn
            ends = known[k] if phases is None else phases[k].clamped(known[k])
            above, below, more, less = _pair(ends, layer.slopes, turn)
            plus, minus = np.maximum(value, 0.0), np.minimum(value, 0.0)
            constant = constant + _dots(plus, more) + _dots(minus, less)
            moved = moved + _dots(plus, np.abs(more)) - _dots(minus, np.abs(less))
            value = plus * above + minus * below
            if phases is not None:  # adds what is not negative where the signs are right
                lost = lost + unit * ((np.abs(value) + phases[k].factors) @ sizes)  # the two may cancel
                value = value + phases[k].signs * phases[k].factors
        lost = lost + unit * (np.abs(value) @ sizes) * (1 + unit)
        lost = lost + TINY * (sizes.sum() + m * most.sum() + m + n)  # coefficients that underflow
        part = value @ layer.offset
        constant, moved = constant + part, moved + np.abs(value) @ np.abs(layer.offset)
        value = value @ layer.matrix
    if marks is not None:
        marks.append(value)
    reached = np.maximum(value, 0.0) @ high + np.minimum(value, 0.0) @ low
    moved = moved + np.abs(value) @ np.maximum(np.abs(low), np.abs(high))
    found = constant + reached + (lost + count * EPS * moved) * (1 + count * EPS) + TINY
    return np.where(np.isnan(found), np.inf, found)


def _dots(rows: FloatArray, numbers: FloatArray) -> FloatArray:
    """Every row times the same numbers, or its own ones."""
    return np.asarray(rows @ numbers if numbers.ndim == 1 else np.einsum("ij,ij->i", rows, numbers))


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
