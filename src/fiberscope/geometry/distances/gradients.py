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
from typing import Any

import flint
import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.network.walk import affine_values, all_values, step
from fiberscope.numerics.algebra.ball import EXACT, EXACT_ROWS, BallAlgebra
from fiberscope.numerics.algebra.bounded import Bounded, BoundedAlgebra
from fiberscope.numerics.algebra.floating import FLOAT_ROWS
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, IntArray, ObjectArray, SignArray, gamma, round_up

MEMORY = 1 << 26
"""Bytes of the largest array of a batch of gradients, unless told otherwise."""

_BALL_BITS = 512
"""Precision at which a value is computed that floats do not know well."""

_ENOUGH_BITS = 60
"""Relative accuracy of a ball whose middle, rounded to a float, is off by two roundings at most."""

_SAFE = (2.0**-480, 2.0**480)
"""Between these a sum of squares neither loses anything to underflow nor overflows."""


def pool_winners(node: MaxPool, signs: SignArray) -> tuple[IntArray, IntArray]:
    """Of every window the place in it that no other beats, and that input's index, both ``(points, windows)``."""
    place = (signs.reshape(len(signs), *node.windows.shape) >= 0).argmax(axis=2)
    return place, np.take_along_axis(node.windows[None], place[:, :, None], axis=2)[:, :, 0]


def has_boundary(net: Network, signs: SignArray) -> BoolArray:
    """Which entries stand for a boundary of the region, ``(points, num_signs)``.

    Linear neurons have none, nor has padding; in a pooling window every input but the winner stands for its tie with
    the winner.
    """
    parts = []
    start = 0
    for node in net.switches:
        own = signs[:, start : start + node.num_signs]
        start += node.num_signs
        if isinstance(node, PiecewiseLinear):
            parts.append(np.broadcast_to(~node.linear, own.shape))
        else:
            place, _ = pool_winners(node, own)
            size = node.windows.shape[1]
            losers = (np.arange(size) != place[:, :, None]) & (node.windows >= 0)
            parts.append(losers.reshape(len(signs), -1))
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(signs), 0), dtype=bool)


def switch_margins(net: Network, X: FloatArray, signs: SignArray) -> Bounded:
    """Values that vanish on the boundaries, ``(points, num_signs)``, with bounds of their errors.

    Preactivations; in a pooling window the input minus the winner, which is never positive.
    """
    arithmetic = BoundedAlgebra()
    values = [arithmetic.take(X)]
    found: list[Bounded] = []
    start = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for node in net.nodes:
            if isinstance(node, PiecewiseLinear):
                found.append(values[node.source])
                start += node.num_signs
            elif isinstance(node, MaxPool):
                own = signs[:, start : start + node.num_signs]
                start += node.num_signs
                found.append(_ties(node, values[node.source], own))
            values.append(step(node, values, arithmetic))
    if not found:
        return Bounded(np.zeros((len(X), 0)), np.zeros((len(X), 0)))
    return Bounded(*(np.concatenate([getattr(f, name) for f in found], axis=1) for name in ("value", "error")))


def _ties(node: MaxPool, source: Bounded, signs: SignArray) -> Bounded:
    """Every input of every window minus the winner of the window, ``(points, entries)``."""
    _, winner = pool_winners(node, signs)
    inputs = np.where(node.windows >= 0, node.windows, 0)
    best = np.take_along_axis(source.value, winner, axis=1)[:, :, None]
    slack = np.take_along_axis(source.error, winner, axis=1)[:, :, None]
    value = source.value[:, inputs] - best
    error = round_up(source.error[:, inputs] + slack + gamma(1) * np.abs(value), 3)
    return Bounded(value.reshape(len(value), -1), error.reshape(len(value), -1))


def ball_margins(net: Network, x: FloatArray, signs: SignArray) -> FloatArray:
    """Absolute values of :func:`switch_margins` at one point, each off by two roundings at most, ``(num_signs,)``.

    Computed in balls; where even these are too wide to tell, NaN.
    """
    arithmetic = BallAlgebra(_BALL_BITS)
    found: list[Any] = []
    with arithmetic.working():
        values = all_values(net.layout, arithmetic.take(x[None]), arithmetic)
        for index, start in _starts(net):
            node = net.nodes[index]
            source = values[node.sources[0]][0]
            if isinstance(node, MaxPool):
                _, winner = pool_winners(node, signs[None, start : start + node.num_signs])
                source = source[np.where(node.windows >= 0, node.windows, 0)] - source[winner[0]][:, None]
            found += list(source.reshape(-1))
        return np.array([float(abs(v).mid()) if v.rel_accuracy_bits() > _ENOUGH_BITS else np.nan for v in found])


def gradient_norms(net: Network, signs: SignArray, memory: int = MEMORY) -> Bounded:
    """Length of every neuron's gradient in the regions of the points, ``(points, num_signs)``, with error bounds.

    For an input of a pooling window it is the gradient of its difference to the winner. An error of 0 with value 0 is
    a proof that the gradient vanishes. Never more than ``memory`` bytes are held in one array: points are taken in
    batches, and for a single point the input directions as well.

    >>> net = Network([[[3.0, 4.0]], [[1.0]]], [[0.0], [0.0]])
    >>> gradient_norms(net, np.array([[1]], dtype=np.int8)).value
    array([[5.]])
    """
    short = _reduced(net)
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
                found = _lengths(program, signs[rows], np.eye(n)[part], short.error)
                if len(parts) == 1:
                    squares, slack = found.value, found.error
                else:
                    squares, slack = np.hypot(squares, found.value), np.hypot(slack, found.error)
            rounding = gamma(4 * len(parts) + 2 * n + 20) + short.stretch
            total = round_up(slack * (1 + rounding) + np.where(squares > 0, rounding * squares, 0.0), 6)
        value[rows] = squares
        total = np.where((squares == 0) & (slack == 0), 0.0, total)
        error[rows] = np.where(np.isfinite(squares) & np.isfinite(total), total, np.inf)
    return Bounded(value, error)


def _slices(count: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


@dataclass(frozen=True, slots=True, eq=False)
class _Reduced:
    """A network whose gradients are as long, up to ``error`` per first neuron and a factor ``1 +- stretch``."""

    net: Network
    error: FloatArray | None
    stretch: float


def _reduced(net: Network) -> _Reduced:
    """As many inputs as first neurons, if these are fewer: with ``W = L Q``, Q orthonormal, ``|v W| = |v L|``.

    The computed factors are not exact; how far they are off is measured, with the rounding of the measurement included.
    """
    first = net.nodes[0]
    alone = sum(0 in node.sources for node in net.nodes) == 1
    if not (alone and isinstance(first, Affine) and isinstance(first.operator, Dense)):
        return _Reduced(net, None, 0.0)
    W = first.operator.matrix
    if W.shape[0] >= W.shape[1] or not np.abs(W).max() < _SAFE[1] or W.shape[0] * W.shape[1] > 1 << 24:
        return _Reduced(net, None, 0.0)
    Q, R = np.linalg.qr(W.T)
    L = np.ascontiguousarray(R.T)
    k, n = W.shape
    defect = np.linalg.norm(Q.T @ Q - np.eye(k)) + gamma(n + 2) * np.linalg.norm(np.abs(Q).T @ np.abs(Q))
    residual = np.linalg.norm(L @ Q.T - W, axis=1)
    residual = residual + gamma(k + 2) * np.linalg.norm(np.abs(L) @ np.abs(Q).T + np.abs(W), axis=1)
    residual = np.asarray(round_up(residual * (1 + gamma(n + 8)), 4))
    stretch = float(defect * (1 + gamma(k * k + 8))) + gamma(4)
    residual[~W.any(axis=1)] = 0.0
    L[~W.any(axis=1)] = 0.0
    nodes = [Affine(0, Dense(L), first.bias), *net.nodes[1:]]
    return _Reduced(Network.from_nodes(nodes, (k,)), residual, min(stretch, 1.0))


def _lengths(net: Network, signs: SignArray, unit: FloatArray, first_error: FloatArray | None) -> Bounded:
    """Lengths of the gradients' components in the directions ``unit``, ``(points, num_signs)``.

    Values are ``(points or 1, directions, features)``: before the first activation they are the same for all points.
    """
    lead = Bounded(np.ones((1, net.in_size)), np.zeros((1, net.in_size)))
    values: list[FloatArray] = [unit[None]]
    sizes: list[Bounded] = [lead]
    found: list[Bounded] = []
    start = 0
    for index, node in enumerate(net.nodes):
        source, size = values[node.sources[0]], sizes[node.sources[0]]
        if isinstance(node, Affine):
            value, own = _affine(node, source, size)
            if index == 0 and first_error is not None:
                own = Bounded(own.value, own.error + first_error)
        elif isinstance(node, PiecewiseLinear):
            part = signs[:, start : start + node.num_signs]
            start += node.num_signs
            found.append(_spread(size, len(signs)))
            slopes = np.where(part > 0, 1.0, node.slopes)
            value = source * slopes[:, None, :]
            own = _scaled(size, slopes)
        elif isinstance(node, MaxPool):
            part = signs[:, start : start + node.num_signs]
            start += node.num_signs
            found.append(_tie_lengths(node, source, size, part))
            _, winner = pool_winners(node, part)
            value = np.take_along_axis(np.broadcast_to(source, (len(signs), *source.shape[1:])), winner[:, None], 2)
            full = _spread(size, len(signs))
            own = Bounded(*(np.take_along_axis(x, winner, axis=1) for x in (full.value, full.error)))
        else:
            value, own = _joined(node, values, sizes)
        values.append(value)
        sizes.append(own)
        if start == net.num_signs:
            break
    if not found:
        return Bounded(np.zeros((len(signs), 0)), np.zeros((len(signs), 0)))
    return Bounded(*(np.concatenate([getattr(f, name) for f in found], axis=1) for name in ("value", "error")))


def _spread(size: Bounded, points: int) -> Bounded:
    return Bounded(*(np.broadcast_to(x, (points, x.shape[1])) for x in (size.value, size.error)))


def _affine(node: Affine, value: FloatArray, size: Bounded) -> tuple[FloatArray, Bounded]:
    for stage in node.operator.stages():
        lead, directions, width = value.shape
        rounded = 1 + gamma(directions + 6)  # of the lengths as they were computed
        bound = BoundedAlgebra().affine(stage, None, Bounded(size.value * rounded, size.error))
        value = stage.apply(value.reshape(-1, width)).reshape(lead, directions, -1)
        length = _norms(value)
        # the bound of one product holds for every direction, underflow included
        error = np.where(bound.error == 0, 0.0, round_up(bound.error + directions * stage.fan_in * TINY, 3))
        size = Bounded(length, np.where(np.isfinite(length) & np.isfinite(error), error, np.inf))
    return value, size


def _scaled(size: Bounded, slopes: FloatArray) -> Bounded:
    factor = np.abs(slopes)
    value = size.value * factor
    error = size.error * factor
    if ((factor != 0) & (factor != 1)).any():
        rounded = round_up(error + gamma(2) * value, 3)
        error = np.where((factor == 0) | (factor == 1), error, rounded)
    return Bounded(np.where(factor == 0, 0.0, value), np.where(factor == 0, 0.0, error))


def _joined(node: Add | Concat, values: Sequence[FloatArray], sizes: Sequence[Bounded]) -> tuple[FloatArray, Bounded]:
    parts, own = [values[s] for s in node.sources], [sizes[s] for s in node.sources]
    if isinstance(node, Add):
        total: FloatArray = np.asarray(sum(parts[1:], start=parts[0]))
        magnitude = np.asarray(sum(s.value for s in own)) * (1 + gamma(total.shape[1] + 6))
        slack = np.asarray(sum(s.error for s in own))
        error = round_up(slack + gamma(len(parts)) * magnitude, len(parts) + 2)
        error = np.where((magnitude == 0) & (slack == 0), 0.0, error)
        length = _norms(total)
        error = np.where(np.isfinite(length), np.broadcast_to(error, length.shape), np.inf)
        return total, Bounded(length, error)
    lead = max(p.shape[0] for p in parts)
    joined = np.concatenate([np.broadcast_to(p, (lead, *p.shape[1:])) for p in parts], axis=2)
    wide = [_spread(s, lead) for s in own]
    size = [np.concatenate([getattr(s, name) for s in wide], axis=1) for name in ("value", "error")]
    if node.order is not None:
        joined, size = joined[:, :, node.order], [x[:, node.order] for x in size]
    return joined, Bounded(*size)


def _tie_lengths(node: MaxPool, source: FloatArray, size: Bounded, signs: SignArray) -> Bounded:
    place, winner = pool_winners(node, signs)
    points = len(signs)
    inputs = np.where(node.windows >= 0, node.windows, 0)
    full = np.broadcast_to(source, (points, *source.shape[1:]))
    best = np.take_along_axis(full, winner[:, None], 2)[:, :, :, None]
    length = _norms((full[:, :, inputs] - best).reshape(points, source.shape[1], -1))
    wide = _spread(size, points)
    of_best = (np.take_along_axis(x, winner, axis=1)[:, :, None] for x in (wide.value, wide.error))
    norm, slack = of_best
    error = wide.error[:, inputs] + slack + gamma(2) * (wide.value[:, inputs] + norm)
    none = (np.arange(inputs.shape[1]) == place[:, :, None]) | (node.windows < 0)
    same = none | ((wide.value[:, inputs] == 0) & (norm == 0) & (wide.error[:, inputs] == 0) & (slack == 0))
    error = np.where(same, 0.0, round_up(error, 5)).reshape(points, -1)
    length = np.where(none.reshape(points, -1), 0.0, length)
    return Bounded(length, np.where(np.isfinite(length), error, np.inf))


def _norms(value: FloatArray) -> FloatArray:
    """Euclidean lengths over the directions, ``(points, features)``, also where squares leave the range of floats."""
    length = np.sqrt(np.einsum("pdf,pdf->pf", value, value))
    odd = ~((length > _SAFE[0]) & (length < _SAFE[1]))
    if odd.any():
        rows = value.transpose(0, 2, 1)[odd]
        top = np.abs(rows).max(axis=1, initial=0.0)
        scale = np.where((top > 0) & np.isfinite(top), top, 1.0)
        length[odd] = np.linalg.norm(rows / scale[:, None], axis=1) * scale
    return np.asarray(length)


# --- single neurons ----------------------------------------------------------------------------------------------


def neuron_gradients(net: Network, signs: SignArray, entries: IntArray) -> FloatArray:
    """The gradient of one entry of the sign vector per point, ``(points, in_size)``, by one pass backwards.

    For an input of a pooling window it is that of its difference to the winner; entries below 0 give zeros.

    >>> net = Network([[[1.0, 0.0], [0.0, 2.0]], [[1.0, 3.0]], [[1.0]]], [[0.0, 0.0], [0.0], [0.0]])
    >>> neuron_gradients(net, np.array([[1, 1, 1], [-1, 1, 1]], dtype=np.int8), np.array([2, 2]))
    array([[1., 6.],
           [0., 6.]])
    """
    deltas: dict[int, FloatArray] = {}
    for index, start in reversed(_starts(net)):
        node = net.nodes[index]
        deltas_here = _seed(node, signs, entries, start)
        if deltas_here is not None:
            _send(deltas, node.sources[0], deltas_here)
    begin = dict(_starts(net))
    for index in range(len(net.nodes) - 1, -1, -1):
        delta = deltas.pop(index + 1, None)
        node = net.nodes[index]
        if delta is None:
            continue
        if isinstance(node, Affine):
            _send(deltas, node.source, node.operator.adjoint(delta))
        elif isinstance(node, PiecewiseLinear):
            part = signs[:, begin[index] : begin[index] + node.num_signs]
            _send(deltas, node.source, delta * np.where(part > 0, 1.0, node.slopes))
        elif isinstance(node, MaxPool):
            _, winner = pool_winners(node, signs[:, begin[index] : begin[index] + node.num_signs])
            back = np.zeros((len(signs), prod(node.in_shape)))
            np.add.at(back, (np.arange(len(signs))[:, None], winner), delta)
            _send(deltas, node.source, back)
        elif isinstance(node, Add):
            for source in node.sources:
                _send(deltas, source, delta)
        else:
            laid = delta if node.order is None else delta[:, np.argsort(node.order)]
            ends = np.cumsum([prod(s) for s in node.shapes])
            for source, piece in zip(node.sources, np.split(laid, ends[:-1], axis=1), strict=True):
                _send(deltas, source, piece)
    return deltas.get(0, np.zeros((len(signs), net.in_size)))


def _starts(net: Network) -> list[tuple[int, int]]:
    """Index of every switch among the nodes, and where its entries begin."""
    found, start = [], 0
    for index, node in enumerate(net.nodes):
        if isinstance(node, PiecewiseLinear | MaxPool):
            found.append((index, start))
            start += node.num_signs
    return found


def _seed(node: Any, signs: SignArray, entries: IntArray, start: int) -> FloatArray | None:
    own = np.flatnonzero((entries >= start) & (entries < start + node.num_signs))
    if not len(own):
        return None
    local = entries[own] - start
    if isinstance(node, PiecewiseLinear):
        delta = np.zeros((len(signs), node.num_signs))
        delta[own, local] = 1.0
        return delta
    delta = np.zeros((len(signs), prod(node.in_shape)))
    window, place = np.divmod(local, node.windows.shape[1])
    _, winner = pool_winners(node, signs[own, start : start + node.num_signs])
    delta[own, node.windows[window, place]] += 1.0
    delta[own, winner[np.arange(len(own)), window]] -= 1.0
    return delta


def _send(deltas: dict[int, FloatArray], source: int, delta: FloatArray) -> None:
    deltas[source] = delta if source not in deltas else deltas[source] + delta


def switch_rows(net: Network, signs: SignArray) -> FloatArray:
    """All of :func:`switch_margins` as affine functions on the region of one sign vector, ``(num_signs, n + 1)``.

    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 2.0], [0.0]])
    >>> switch_rows(net, np.array([1, 1], dtype=np.int8))
    array([[ 1.,  0.],
           [-1.,  2.]])
    """
    values = affine_values(net.layout, net.in_size, signs, FLOAT_ROWS)
    rows = [np.zeros((0, net.in_size + 1))]
    for index, start in _starts(net):
        node = net.nodes[index]
        source = values[node.sources[0]].T
        if isinstance(node, MaxPool):
            _, winner = pool_winners(node, signs[None, start : start + node.num_signs])
            inputs = np.where(node.windows >= 0, node.windows, 0)
            source = (source[inputs] - source[winner[0]][:, None]).reshape(-1, net.in_size + 1)
        rows.append(source)
    return np.concatenate(rows)


class ExactRegion:
    """The entries of :func:`switch_margins` on one region as exact affine functions; all values are computed once."""

    def __init__(self, net: Network, signs: SignArray) -> None:
        self.net, self.signs = net, signs
        with flint.ctx.workprec(EXACT):
            self._values = affine_values(net.layout, net.in_size, signs, EXACT_ROWS)

    def margin(self, entry: int) -> ObjectArray:
        """One entry, ``(n + 1,)`` Arb numbers, the constant term last."""
        for index, start in _starts(self.net):
            node = self.net.nodes[index]
            if isinstance(node, PiecewiseLinear | MaxPool) and start <= entry < start + node.num_signs:
                column = self._values[node.source]
                if isinstance(node, PiecewiseLinear):
                    return np.asarray(column[:, entry - start])
                window, place = divmod(entry - start, node.windows.shape[1])
                _, winner = pool_winners(node, self.signs[None, start : start + node.num_signs])
                with flint.ctx.workprec(EXACT):
                    return np.asarray(column[:, node.windows[window, place]] - column[:, winner[0, window]])
        raise IndexError(entry)
