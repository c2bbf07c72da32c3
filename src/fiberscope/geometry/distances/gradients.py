"""Gradients of all neurons at many points, without a loop over points or neurons.

With the signs of a point held fixed every neuron is an affine function of the input. Its gradient comes forward through
the program, as products of masked weights, for many points at once. Lengths of gradients carry a rigorous bound of
their errors at the price of one more pass of *vectors*: if the gradients ``g_j`` of a layer are off by at most ``e_j``
(in length), those of the next, ``sum_j W_kj g_j``, are off by at most ``sum_j |W_kj| (e_j + gamma |g_j|)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import flint
import numpy as np

from fiberscope.geometry.distances.reduced import Reduced, first_layer, reduced
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.walk import (
    affine_start,
    boundaries,
    boundary,
    choices_of,
    switch_values,
    switches,
)
from fiberscope.numerics.algebra.ball import BallAlgebra
from fiberscope.numerics.algebra.base import Algebra, Constant, LinearMap, aligned, joined, on_rows, picked
from fiberscope.numerics.algebra.bounded import BOUNDED, Bounded
from fiberscope.numerics.algebra.floating import FLOAT, FLOAT_ROWS
from fiberscope.numerics.arrays import row_lengths
from fiberscope.numerics.compensated import row_products
from fiberscope.numerics.floats import (
    SQUARABLE,
    TINY,
    BoolArray,
    FloatArray,
    IntArray,
    ObjectArray,
    SignArray,
    gamma,
    round_up,
)
from fiberscope.numerics.signs import UNDECIDED, bounded_signs

MEMORY = 1 << 26
"""Bytes of the largest array of a batch of gradients, unless told otherwise."""

_BALL_BITS = 512
"""Precision at which a value is computed that floats do not know well."""

_MANY = 1 << 16
"""First layers with more weights are not turned into balls."""


def has_boundary(net: Network, signs: SignArray) -> BoolArray:
    """Which entries stand for a boundary of the region, ``(points, num_signs)``.

    Linear neurons have none, nor has padding; in a pooling window every input but the winner stands for its tie with
    the winner.
    """
    parts = [place.node.bounding(signs[:, place.columns]) for place in net.layout.places]
    return np.concatenate([np.zeros((len(signs), 0), dtype=bool), *parts], axis=1)


def switch_margins(net: Network, X: FloatArray, signs: SignArray) -> Bounded:
    """Values that vanish on the boundaries, ``(points, num_signs)``, with bounds of their errors.

    Preactivations; in a pooling window the input minus the winner, which is never positive.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return boundaries(net.layout, {0: BOUNDED.take(X)}, BOUNDED, choices_of(net.layout, signs), given=False)


def signs_and_margins(net: Network, X: FloatArray) -> tuple[SignArray, Bounded]:
    """Certified signs of the points, and :func:`switch_margins`; one pass does for both where nothing is pooled."""
    if net.layout.pooled.any():
        signs = net.signs(X).signs
        return signs, switch_margins(net, X, signs)
    none = np.zeros((len(X), 0))
    with np.errstate(over="ignore", invalid="ignore"):
        z = BOUNDED.concat([Bounded(none, none), *switch_values(net.layout, BOUNDED.take(X), BOUNDED)], None)
    signs = np.where(net.layout.linear, np.int8(1), bounded_signs(z))
    rows = np.flatnonzero((signs == UNDECIDED).any(axis=1))
    if len(rows):
        signs[rows] = net.signs(X[rows]).signs
    return signs, z


def ball_margins(net: Network, x: FloatArray, signs: SignArray) -> Bounded:
    """Absolute values of :func:`switch_margins` at one point, ``(num_signs,)``, in balls.

    A wide first layer is computed in pairs of floats, whose bounds are the radii of the balls: twice the digits of a
    float, without an exact number for every weight.
    """
    algebra, choices = BallAlgebra(_BALL_BITS), choices_of(net.layout, signs)
    with algebra.working():
        known = _first_balls(net, x, algebra)
        values = {0: algebra.take(x[None])} if known is None else {1: known}
        found = [abs(v) for v in boundaries(net.layout, values, algebra, choices, given=False)[0]]
        middle = np.array([float(v.mid()) for v in found])
        radii = np.array([float(v.rad()) for v in found])
    return Bounded(middle, np.asarray(round_up(radii + gamma(2) * middle, 4)))


def _first_balls(net: Network, x: FloatArray, algebra: BallAlgebra) -> ObjectArray | None:
    """The values of a first layer of many weights at one point, if nothing else reads the input."""
    first = first_layer(net)
    matrix = None if first is None else first.operator.stored_matrix
    if first is None or matrix is None or matrix.size <= _MANY:
        return None
    offset = np.zeros(len(matrix)) if first.offset is None else first.offset
    h = row_products(x[None], matrix, offset[None])
    if not np.isfinite(h.error).all():
        return None
    radius = np.array([flint.arb(0, e) for e in h.error[0].tolist()], dtype=object)
    return np.asarray(algebra.take(h.high) + algebra.take(h.low) + radius)


def gradient_norms(net: Network, signs: SignArray, memory: int = MEMORY) -> Bounded:
    """Length of every neuron's gradient in the regions of the points, ``(points, num_signs)``, with error bounds.

    For an input of a pooling window it is the gradient of its difference to the winner. An error of 0 with value 0 is
    a proof that the gradient vanishes. Never more than ``memory`` bytes are held in one array: points are taken in
    batches, and for a single point the input directions as well.

    >>> net = Network([[[3.0, 4.0]], [[1.0]]], [[0.0], [0.0]])
    >>> gradient_norms(net, np.array([[1]], dtype=np.int8)).value
    array([[5.]])
    """
    short = reduced(net)
    program, n = short.net, short.net.in_size
    widest = max([prod(shape) for shape in program.shapes] + [node.num_signs for node in program.switches])
    room = max(1, memory // (8 * widest))
    points, directions = max(1, room // n), min(n, room)
    shape = (len(signs), net.num_signs)
    value, error = np.zeros(shape), np.zeros(shape)
    for rows in _slices(len(signs), points):
        squares, slack = np.zeros((len(signs[rows]), shape[1])), np.zeros((len(signs[rows]), shape[1]))
        parts = list(_slices(n, directions))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in parts:
                found = _lengths(short, signs[rows], np.eye(n)[part])
                if len(parts) == 1:
                    squares, slack = found.value, found.error
                else:
                    squares, slack = np.hypot(squares, found.value), np.hypot(slack, found.error)
            rounding = gamma(4 * len(parts) + 2 * n + 20) + short.stretch
            total = round_up(slack * (1 + rounding) + np.where(squares > 0, rounding * squares, 0.0), 6)
        value[rows] = squares
        total = np.where((squares == 0) & (slack == 0), 0.0, total)
        error[rows] = np.where(np.isfinite(squares) & np.isfinite(total), total, np.inf)
    none = net.layout.pooled & ~has_boundary(net, signs)  # a winner does not lose against itself, nor does padding
    return Bounded(np.where(none, 0.0, value), np.where(none, 0.0, error))


def _slices(count: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


@dataclass(frozen=True, slots=True, eq=False)
class _Lengths:
    """Components ``(points or 1, directions, features)`` of gradients, their lengths and bounds of their errors.

    Before the first switch they are the same for all points.
    """

    value: FloatArray
    length: FloatArray
    error: FloatArray

    @classmethod
    def of(cls, value: FloatArray, error: FloatArray) -> _Lengths:
        length = _norms(value)
        return cls(value, length, np.where(np.isfinite(length) & np.isfinite(error), error, np.inf))


class _LengthAlgebra(Algebra[_Lengths]):
    """Gradients carried forward: biases have none, and the error of a length is that of one product for all parts."""

    constant = Constant.NOWHERE

    def take(self, values: FloatArray) -> _Lengths:
        one = np.ones((1, values.shape[1]))  # not below the lengths of columns of unit vectors
        return _Lengths(values[None], one, np.zeros_like(one))

    def apply(self, stage: LinearMap, value: _Lengths) -> _Lengths:
        directions = value.value.shape[1]
        size = value.length * (1 + gamma(directions + 6))  # of the lengths as they were computed
        bound = BOUNDED.apply(stage, Bounded(size, value.error)).error
        # the bound of one product holds for every direction, underflow included
        error = np.where(bound == 0, 0.0, round_up(bound + directions * stage.fan_in * TINY, 3))
        return _Lengths.of(on_rows(stage.apply, value.value), error)

    def shift(self, value: _Lengths, offset: FloatArray) -> _Lengths:
        return value

    def add(self, values: Sequence[_Lengths]) -> _Lengths:
        total = FLOAT.add([v.value for v in values])
        size = FLOAT.add([v.length for v in values]) * (1 + gamma(total.shape[1] + 6))
        slack = FLOAT.add([v.error for v in values])
        error = round_up(slack + gamma(len(values)) * size, len(values) + 2)
        return _Lengths.of(total, np.where((size == 0) & (slack == 0), 0.0, error))

    def difference(self, one: _Lengths, other: _Lengths) -> _Lengths:
        return self.add([one, _Lengths(-other.value, other.length, other.error)])

    def concat(self, values: Sequence[_Lengths], order: IntArray | None) -> _Lengths:
        names = ("value", "length", "error")
        return _Lengths(*(joined([getattr(v, name) for v in values], order) for name in names))

    def gate(self, value: _Lengths, active: BoolArray, slopes: FloatArray | None) -> _Lengths:
        parts = (value.value, value.length, value.error)
        if slopes is None:
            return _Lengths(*(np.where(aligned(active, x.ndim), x, 0.0) for x in parts))
        factor = np.where(active, 1.0, slopes)
        size = np.abs(factor)
        # flat whatever overflowed before
        inner, length, error = (
            np.where(aligned(k, x.ndim) == 0, 0.0, x * aligned(k, x.ndim))
            for k, x in zip((factor, size, size), parts, strict=True)
        )
        rounded = round_up(error + gamma(2) * length, 3)
        return _Lengths(inner, length, np.where((size == 0) | (size == 1), error, rounded))

    def pick(self, value: _Lengths, index: IntArray) -> _Lengths:
        return _Lengths(*(picked(x, index) for x in (value.value, value.length, value.error)))


_LENGTHS = _LengthAlgebra()


def _lengths(short: Reduced, signs: SignArray, unit: FloatArray) -> Bounded:
    """Lengths of the gradients' components in the directions ``unit``, ``(points, num_signs)``."""
    layout, choices = short.net.layout, choices_of(short.net.layout, signs)
    values = {0: _LENGTHS.take(unit)}
    found = [Bounded(np.zeros((len(signs), 0)), np.zeros((len(signs), 0)))]
    first = layout.nodes[0]
    if short.error is not None and isinstance(first, Affine):
        product = _LENGTHS.affine(first.operator, None, values[0])
        values[1] = _Lengths(product.value, product.length, product.error + short.error)
    for place in switches(layout, values, _LENGTHS, choices):
        own = boundary(place.node, values[place.source], _LENGTHS, choices[place.index])
        found.append(Bounded(own.length, own.error))
    return BOUNDED.concat(found, None)


def _norms(value: FloatArray) -> FloatArray:
    """Euclidean lengths over the directions, ``(points, features)``, also where squares leave the range of floats."""
    length = np.sqrt(np.einsum("pdf,pdf->pf", value, value))
    odd = ~((length > SQUARABLE[0]) & (length < SQUARABLE[1]))
    if odd.any():
        length[odd] = row_lengths(value.transpose(0, 2, 1)[odd])
    return np.asarray(length)


def switch_rows(net: Network, signs: SignArray) -> FloatArray:
    """All of :func:`switch_margins` as affine functions on the region of one sign vector, ``(num_signs, n + 1)``.

    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 2.0], [0.0]])
    >>> switch_rows(net, np.array([1, 1], dtype=np.int8))
    array([[ 1.,  0.],
           [-1.,  2.]])
    """
    start = affine_start(net.in_size, signs, FLOAT_ROWS)
    return np.asarray(boundaries(net.layout, {0: start}, FLOAT_ROWS, choices_of(net.layout, signs)).T)
