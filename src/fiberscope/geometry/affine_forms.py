"""Affine maps of a network on many cells at once, with error bounds, exactly, and what can influence what.

On a cell with a given sign vector every value of the program is an affine function of the input. Here they are computed
for many sign vectors in one batch of products. Where the bound leaves open whether two maps differ, the active paths
through the network often prove that they do not; what is still open is decided in exact arithmetic.

On the way a value is ``(cells, n + 1, features)``, the constant term in the last row, and ``(1, n + 1, features)`` in
front of the first switch, where all cells have the same; answers have the rows last, ``(cells, ..., n + 1)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from fiberscope.network.nodes import MaxPool, PiecewiseLinear, Switch
from fiberscope.network.walk import (
    affine_result,
    affine_start,
    backward,
    boundary,
    boundary_seeds,
    choices_of,
    switches,
    walk,
)
from fiberscope.numerics.algebra.ball import EXACT_ROWS, exact_fraction, nearest_floats
from fiberscope.numerics.algebra.base import Constant, gather
from fiberscope.numerics.algebra.bits import BitAlgebra
from fiberscope.numerics.algebra.bounded import BOUNDED_ROWS, Bounded, BoundedAlgebra
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, ObjectArray, SignArray, gamma, round_up
from fiberscope.run import ENDLESS, Run

if TYPE_CHECKING:
    from fiberscope.network.layout import Layout
    from fiberscope.network.network import Network

_CHUNK = 1 << 17
"""Numbers in the widest value of one batch: what fits a cache, since fresh memory costs more than arithmetic."""

_SLOPES = BoundedAlgebra(Constant.NOWHERE)
_BITS = BitAlgebra()


def batches(net: Network, count: int, rows: int | None = None, run: Run = ENDLESS) -> Iterator[slice]:
    """Slices of ``count`` sign vectors that keep the working memory bounded, with so many rows each (default n + 1).

    Before each of them the run looks at the clock.
    """
    widest = max(int(np.prod(shape)) for shape in net.shapes)
    size = max(1, _CHUNK // ((net.in_size + 1 if rows is None else rows) * widest))
    for start in range(0, count, size):
        run.check()
        yield slice(start, min(start + size, count))


def output_forms(net: Network, signs: SignArray, run: Run = ENDLESS) -> Bounded:
    """The network on every cell, ``(cells, out, n + 1)``: gradients, and the constant term last.

    Cells on which a number on the way overflows are computed exactly and rounded once: a coefficient is infinite only
    if it is beyond the range of floats, and never NaN.
    """
    shape = (len(signs), net.out_size, net.in_size + 1)
    result = Bounded(np.empty(shape), np.empty(shape))
    for rows in batches(net, len(signs), run=run):
        with np.errstate(over="ignore", invalid="ignore"):
            last = affine_result(net.layout, net.in_size, signs[rows], BOUNDED_ROWS)
        result.value[rows], result.error[rows] = last.value.swapaxes(1, 2), last.error.swapaxes(1, 2)
    for cell in np.flatnonzero(~np.isfinite(result.value).all(axis=(1, 2))):
        run.check()
        value = nearest_floats(exact_output(net, signs[cell]).T)
        result.value[cell], result.error[cell] = value, round_up(gamma(1) * np.abs(value), 1)
    return result


def neuron_forms(net: Network, signs: SignArray, entries: IntArray) -> Bounded:
    """For every cell the preactivation of one neuron, an entry of the sign vector each, as ``(cells, n + 1)``.

    For an input of a pooling window that loses on the cell it is what it loses by: its value minus that of the winner.
    """
    shape = (len(signs), net.in_size + 1)
    result = Bounded(np.zeros(shape), np.zeros(shape))
    for rows in batches(net, len(signs)):
        choices, values = choices_of(net.layout, signs[rows]), {0: affine_start(net.in_size, signs, BOUNDED_ROWS)}
        for place in switches(net.layout, values, BOUNDED_ROWS, choices):
            own = np.flatnonzero((entries[rows] >= place.start) & (entries[rows] < place.stop))
            if len(own):
                source, at = values[place.source], rows.start + own
                source = source[own] if len(source.value) > 1 else source
                local = (entries[at] - place.start)[:, None]
                form = boundary(place.node, source, BOUNDED_ROWS, choices[place.index][own], local)
                result.value[at], result.error[at] = form.value[:, :, 0], form.error[:, :, 0]
    return result


def jumps(net: Network, one: SignArray, two: SignArray, directions: FloatArray, run: Run = ENDLESS) -> Bounded:
    """Difference of the directional derivatives on pairs of cells, ``(A_2 - A_1) v``, as ``(pairs, out)``.

    The difference is carried through the network on its own, at every activation as
    ``D_2 z_2 - D_1 z_1 = D_2 (z_2 - z_1) + (D_2 - D_1) z_1``, so that a small jump between steep maps comes out as
    accurate as a large one.
    """
    result = Bounded(np.zeros((len(one), net.out_size)), np.zeros((len(one), net.out_size)))
    for rows in batches(net, len(one), rows=1, run=run):
        last = _jumps(net.layout, one[rows], two[rows], directions[rows])
        result.value[rows], result.error[rows] = last.value, last.error
    return result


def _jumps(layout: Layout, one: SignArray, two: SignArray, directions: FloatArray) -> Bounded:
    # Values are (2, pairs, features): slopes on the first cell, and their change to the second.
    values = {0: _SLOPES.take(np.stack([directions, np.zeros_like(directions)]))}
    for place in switches(layout, values, _SLOPES, {}, to_end=True):
        before = values[place.source]
        both = _behind(place.node, before[0], before[1], one[:, place.columns], two[:, place.columns])
        values[place.index + 1] = Bounded(*(np.stack([getattr(x, k) for x in both]) for k in ("value", "error")))
    return values[len(layout.nodes)][1]


def _behind(node: Switch, slope: Bounded, change: Bounded, one: SignArray, two: SignArray) -> tuple[Bounded, Bounded]:
    """Slopes behind a switch under the first signs, and their change to the second."""
    a: Any = node.chosen(one)
    b: Any = node.chosen(two)
    match node:
        case PiecewiseLinear():
            # 1 - s is exact for s = 0 and s = 1 only; the first sign decides on which side the slope s stands
            factor = np.where(a == b, 0.0, np.where(b, 1.0 - node.slopes, node.slopes - 1.0))
            own = _scaled(slope, factor, node.slopes != 0)
            after, kept = (_SLOPES.gate(x, on, node.leak) for x, on in ((slope, a), (change, b)))
        case MaxPool():
            after, kept = _SLOPES.pick(slope, a), _SLOPES.pick(change, b)
            own = _SLOPES.difference(_SLOPES.pick(slope, b), after)
            own = Bounded(own.value, np.where(a == b, 0.0, own.error))
        case _:
            assert_never(node)
    return after, _SLOPES.add([kept, own])


def _scaled(value: Bounded, factor: FloatArray, rounded: BoolArray) -> Bounded:
    """``factor * value``; ``rounded`` marks factors that are themselves off by one rounding."""
    result = np.where(factor == 0, 0.0, factor * value.value)  # flat whatever overflowed before
    unit = np.where(rounded, gamma(2), gamma(1))
    error = round_up(np.abs(factor) * (1 + unit) * value.error + unit * np.abs(result), 4)
    plain = np.abs(factor) == 1
    error = np.where(plain & ~rounded, value.error, error)
    return Bounded(result, np.where((factor == 0) | ((value.value == 0) & (value.error == 0)), 0.0, error))


def exact_output(net: Network, signs: SignArray) -> ObjectArray:
    """The network on one cell, ``(n + 1, out)`` in exact Arb numbers."""
    with EXACT_ROWS.working():
        return np.asarray(affine_result(net.layout, net.in_size, signs, EXACT_ROWS))


def rational_output(net: Network, signs: SignArray) -> ObjectArray:
    """The network on one cell in fractions, ``(out, n + 1)``, the constant last."""
    found = exact_output(net, signs).T
    return np.array([[exact_fraction(x) for x in row] for row in found], dtype=object).reshape(found.shape)


class ExactRegion:
    """The functions that vanish on the boundaries of one region, exactly; values are computed once, when asked for."""

    def __init__(self, net: Network, signs: SignArray) -> None:
        self._layout, self._choices = net.layout, choices_of(net.layout, signs)
        with EXACT_ROWS.working():
            self._values = {0: affine_start(net.in_size, signs, EXACT_ROWS)}
        every = range(len(net.nodes))
        self._walk = walk(net.layout, self._values, EXACT_ROWS, self._choices, keep=every)
        self._reached = -1

    def margin(self, entry: int) -> ObjectArray:
        """As :func:`neuron_forms` has it for one entry, ``(n + 1,)`` Arb numbers, the constant term last."""
        place = self._layout.at(entry)
        with EXACT_ROWS.working():
            while self._reached < place.index:
                self._reached = next(self._walk)
            local = np.array([entry - place.start])
            choice = self._choices[place.index]
            return np.asarray(boundary(place.node, self._values[place.source], EXACT_ROWS, choice, local)[:, 0])


def neuron_gradients(net: Network, signs: SignArray, entries: IntArray) -> FloatArray:
    """The gradient of one entry of the sign vector per point, ``(points, in_size)``, by one pass backwards.

    For an input of a pooling window it is that of its difference to the winner; entries below 0 give zeros.

    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0, 0.0], [0.0, 2.0]], [[1.0, 3.0]], [[1.0]]], [[0.0, 0.0], [0.0], [0.0]])
    >>> neuron_gradients(net, np.array([[1, 1, 1], [-1, 1, 1]], dtype=np.int8), np.array([2, 2]))
    array([[1., 6.],
           [0., 6.]])
    """
    return _gradients(net, signs, signs, entries)


def crossing_gradients(net: Network, one: SignArray, two: SignArray, entries: IntArray) -> FloatArray:
    """Gradients of the functionals that vanish between pairs of regions, ``(pairs, in_size)``.

    ``entries`` names one entry of the sign vector for every pair. A neuron's functional is its preactivation, that of a
    pooling window the difference of its two winners; signs are those of the side where the entry is not zero.
    """
    rows, layout = np.arange(len(entries)), net.layout
    if not len(entries):
        return np.zeros((0, net.in_size))
    signs = np.where((one[rows, entries] != 0)[:, None], one, two)
    # In a pooling window the input that wins on the second side: the first of its window that no other beats.
    rivals = (two >= 0) & (layout.window == layout.window[entries][:, None])
    return _gradients(net, signs, one, np.where(layout.pooled[entries], rivals.argmax(axis=1), entries))


def _gradients(net: Network, signs: SignArray, winners: SignArray, entries: IntArray) -> FloatArray:
    """As :func:`neuron_gradients`, where inputs of pooling windows are compared with the winners under other signs."""
    layout, deltas = net.layout, dict[int, FloatArray]()
    for place in layout.places:
        own = np.flatnonzero((entries >= place.start) & (entries < place.stop))
        if len(own):
            size = prod(net.shapes[place.source])
            choice = place.node.chosen(winners[own, place.columns])
            seeds = np.zeros((len(signs), size))
            seeds[own] = boundary_seeds(place.node, size, choice, entries[own] - place.start)
            deltas[place.source] = seeds + deltas.get(place.source, 0.0)
    found = (at.delta for at in backward(layout, choices_of(layout, signs), deltas, FLOAT) if at.value == 0)
    return np.asarray(next(found, np.zeros((len(signs), net.in_size))))


def influence(net: Network, seeds: BoolArray, active: BoolArray) -> tuple[BoolArray, BoolArray]:
    """What the seeds can reach along active paths, ``(cells, num_signs)`` and ``(cells, out)``.

    ``seeds`` and ``active`` are ``(cells, num_signs)``: neurons to start behind, and neurons that let a path through.
    False proves that the value does not depend on what the seeds do; weights that are zero let nothing through.
    """
    values = {0: np.zeros((len(seeds), net.in_size), dtype=bool)}
    reached = [np.zeros((len(seeds), 0), dtype=bool)]
    for place in switches(net.layout, values, _BITS, {}, to_end=True):
        node, source, own = place.node, values[place.source], seeds[:, place.columns]
        match node:
            case PiecewiseLinear():
                reached.append(source)
                values[place.index + 1] = (source & active[:, place.columns]) | own
            case MaxPool():
                inside = gather(source, node.windows, False)
                let = active[:, place.columns].reshape(inside.shape)  # what loses on both sides says nothing
                best = ((inside & let) | own.reshape(inside.shape)).any(axis=2)
                reached.append((inside | best[:, :, None]).reshape(own.shape))  # an input is compared with the winner
                values[place.index + 1] = best
            case _:
                assert_never(node)
    return np.concatenate(reached, axis=1), values[len(net.nodes)]
