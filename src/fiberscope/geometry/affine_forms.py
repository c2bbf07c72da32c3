"""Affine maps of a network on many cells at once, with error bounds, exactly, and what can influence what.

On a cell with a given sign vector every value of the program is an affine function of the input. Here they are computed
for many sign vectors in one batch of products. Where the bound leaves open whether two maps differ, the active paths
through the network often prove that they do not; what is still open is decided in exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import flint
import numpy as np

from fiberscope.network.layout import Layout
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Operator
from fiberscope.network.walk import affine_values
from fiberscope.numerics.algebra.ball import EXACT, EXACT_ROWS, nearest_floats
from fiberscope.numerics.algebra.bounded import Bounded, BoundedAlgebra
from fiberscope.numerics.algebra.floating import FloatAlgebra
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, ObjectArray, SignArray, gamma, round_up

if TYPE_CHECKING:
    from fiberscope.network.network import Network

_CHUNK = 1 << 17
"""Numbers in the widest value of one batch: what fits a cache, since fresh memory costs more than arithmetic."""


def batches(net: Network, count: int, rows: int | None = None) -> Iterator[slice]:
    """Slices of ``count`` sign vectors that keep the working memory bounded, with so many rows each (default n + 1)."""
    widest = max(int(np.prod(shape)) for shape in net.shapes)
    size = max(1, _CHUNK // ((net.in_size + 1 if rows is None else rows) * widest))
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def output_forms(net: Network, signs: SignArray) -> Bounded:
    """The network on every cell, ``(cells, out, n + 1)``: gradients, and the constant term last.

    Cells on which a number on the way overflows are computed exactly and rounded once: a coefficient is infinite only
    if it is beyond the range of floats, and never NaN.
    """
    shape = (len(signs), net.out_size, net.in_size + 1)
    result = Bounded(np.empty(shape), np.empty(shape))
    for rows in batches(net, len(signs)):
        with np.errstate(over="ignore", invalid="ignore"):
            last = _forms(net.nodes, net.in_size, signs[rows])[-1]
        result.value[rows], result.error[rows] = last.value.swapaxes(1, 2), last.error.swapaxes(1, 2)
    for cell in np.flatnonzero(~np.isfinite(result.value).all(axis=(1, 2))):
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
        values = _forms(net.nodes, net.in_size, signs[rows])
        start, wanted = 0, entries[rows]
        for node in net.switches:
            own = np.flatnonzero((wanted >= start) & (wanted < start + node.num_signs))
            at, source, place = rows.start + own, values[node.source], wanted[own] - start
            if len(own) and isinstance(node, PiecewiseLinear):
                result.value[at], result.error[at] = source.value[own, :, place], source.error[own, :, place]
            elif len(own) and isinstance(node, MaxPool):
                part = signs[at, start : start + node.num_signs]
                window = place // node.windows.shape[1]
                best = np.array([node.chosen(row)[w] for row, w in zip(part, window, strict=True)])
                loser = node.windows.reshape(-1)[place]
                result.value[at] = source.value[own, :, loser] - source.value[own, :, best]
                error = source.error[own, :, loser] + source.error[own, :, best] + gamma(1) * np.abs(result.value[at])
                result.error[at] = round_up(error, 3)
            start += node.num_signs
    return result


def _forms(nodes: Sequence[Node], size: int, signs: SignArray) -> list[Bounded]:
    """Every value of the program on every cell, ``(cells, n + 1, features)``."""
    cells = len(signs)
    identity = np.broadcast_to(np.eye(size + 1, size), (cells, size + 1, size))
    values = [Bounded(identity, np.zeros(identity.shape))]
    start = 0
    for node in nodes:
        part = None
        if isinstance(node, PiecewiseLinear | MaxPool):
            part = signs[:, start : start + node.num_signs]
            start += node.num_signs
        values.append(form_step(node, values, part))
    return values


def form_step(node: Node, values: Sequence[Bounded] | Mapping[int, Bounded], signs: SignArray | None) -> Bounded:
    """The value of one node on every cell, ``(cells, rows, features)``, the constant term in the last row.

    ``signs`` are those of the node's own entries on the cells, for a node that has any.
    """
    arithmetic = BoundedAlgebra()
    if isinstance(node, Affine):
        return _affine(node, values[node.source], arithmetic)
    if isinstance(node, Add | Concat):
        return _joined(node, [values[s] for s in node.sources], arithmetic)
    assert signs is not None
    source = values[node.source]
    if isinstance(node, PiecewiseLinear):
        return _scaled(source, np.where(signs[:, None] > 0, 1.0, node.slopes))
    chosen = node.chosen(signs)[:, None, :]
    return Bounded(*(np.take_along_axis(x, chosen, axis=2) for x in (source.value, source.error)))


def _affine(node: Affine, value: Bounded, arithmetic: BoundedAlgebra) -> Bounded:
    cells, rows, width = value.value.shape
    flat = Bounded(value.value.reshape(-1, width), value.error.reshape(-1, width))
    result = arithmetic.affine(node.operator, None, flat)
    total, error = (x.reshape(cells, rows, -1).copy() for x in (result.value, result.error))
    if node.offset is not None:
        exact = (error[:, -1] == 0) & ((total[:, -1] == 0) | (node.offset == 0))
        total[:, -1] += node.offset
        error[:, -1] = np.where(exact, 0.0, round_up(error[:, -1] + gamma(1) * np.abs(total[:, -1]), 2))
    return Bounded(total, error)


def _scaled(value: Bounded, slopes: FloatArray, rounded: Any = False) -> Bounded:
    """``slopes * value``; ``rounded`` marks slopes that are themselves off by one rounding."""
    flat = slopes == 0  # flat whatever overflowed before: zero times infinity would be NaN
    result = np.where(flat, 0.0, slopes * value.value)
    unit = np.where(rounded, gamma(2), gamma(1))
    plain = ((slopes == 1) | (slopes == 0)) & ~np.asarray(rounded) | ((value.value == 0) & (value.error == 0))
    rough = round_up(np.abs(slopes) * (1 + unit) * value.error + unit * np.abs(result), 4)
    return Bounded(result, np.where(plain, np.where(flat, 0.0, np.abs(slopes) * value.error), rough))


def _joined(node: Add | Concat, parts: list[Bounded], arithmetic: BoundedAlgebra) -> Bounded:
    if isinstance(node, Add):
        return arithmetic.add(parts)
    joined = [np.concatenate([getattr(p, name) for p in parts], axis=2) for name in ("value", "error")]
    return Bounded(*(x if node.order is None else x[:, :, node.order] for x in joined))


def jumps(net: Network, one: SignArray, two: SignArray, directions: FloatArray) -> Bounded:
    """Difference of the directional derivatives on pairs of cells, ``(A_2 - A_1) v``, as ``(pairs, out)``.

    The difference is carried through the network on its own, at every activation as
    ``D_2 z_2 - D_1 z_1 = D_2 (z_2 - z_1) + (D_2 - D_1) z_1``, so that a small jump between steep maps comes out as
    accurate as a large one.
    """
    result = Bounded(np.zeros((len(one), net.out_size)), np.zeros((len(one), net.out_size)))
    for rows in batches(net, len(one), rows=1):
        last = _jumps(net.nodes, one[rows], two[rows], directions[rows])
        result.value[rows], result.error[rows] = last.value, last.error
    return result


def _jumps(nodes: Sequence[Node], one: SignArray, two: SignArray, directions: FloatArray) -> Bounded:
    arithmetic, start = BoundedAlgebra(), 0
    slopes = [Bounded(directions, np.zeros_like(directions))]
    changes = [Bounded(np.zeros_like(directions), np.zeros_like(directions))]
    for node in nodes:
        if isinstance(node, Affine):
            slope = arithmetic.affine(node.operator, None, slopes[node.source])
            change = arithmetic.affine(node.operator, None, changes[node.source])
        elif isinstance(node, PiecewiseLinear | MaxPool):
            columns = slice(start, start + node.num_signs)
            start += node.num_signs
            slope, change = _switch(node, slopes[node.source], changes[node.source], one[:, columns], two[:, columns])
        elif isinstance(node, Add):
            slope, change = (arithmetic.add([v[s] for s in node.sources]) for v in (slopes, changes))
        else:
            slope, change = (arithmetic.concat([v[s] for s in node.sources], node.order) for v in (slopes, changes))
        slopes.append(slope)
        changes.append(change)
    return changes[-1]


def _switch(
    node: PiecewiseLinear | MaxPool, slope: Bounded, change: Bounded, one: SignArray, two: SignArray
) -> tuple[Bounded, Bounded]:
    """Slopes behind an activation under the first signs, and their change to the second."""
    if isinstance(node, PiecewiseLinear):
        first, second = (np.where(signs > 0, 1.0, node.slopes) for signs in (one, two))
        # 1 - s is exact for s = 0 and s = 1 only; the first sign decides on which side the slope s stands
        own = _scaled(slope, second - first, (first != second) & (node.slopes != 0))
        after, kept = _scaled(slope, first), _scaled(change, second)
    else:
        a, b = (node.chosen(signs) for signs in (one, two))
        after, other, kept = _taken(slope, a), _taken(slope, b), _taken(change, b)
        value = other.value - after.value
        # nothing is rounded between equal inputs, nor where one of two exact slopes is zero, as behind dead neurons
        sure = (other.error == 0) & (after.error == 0) & ((other.value == 0) | (after.value == 0))
        rough = round_up(other.error + after.error + gamma(1) * np.abs(value), 3)
        error = np.where((a == b) | sure, 0.0, rough)
        own = Bounded(value, error)
    total = kept.value + own.value
    error = round_up(kept.error + own.error + gamma(1) * np.abs(total), 3)
    plain = (kept.error == 0) & (own.error == 0) & ((kept.value == 0) | (own.value == 0))
    return after, Bounded(total, np.where(plain, 0.0, error))


def _taken(value: Bounded, columns: IntArray) -> Bounded:
    return Bounded(*(np.take_along_axis(x, columns, axis=1) for x in (value.value, value.error)))


def exact_output(net: Network, signs: SignArray) -> ObjectArray:
    """The network on one cell, ``(n + 1, out)`` in exact Arb numbers."""
    with flint.ctx.workprec(EXACT):
        return np.asarray(affine_values(net.layout, net.in_size, signs, EXACT_ROWS)[-1])


def exact_neuron(net: Network, signs: SignArray, entry: int) -> ObjectArray:
    """As :func:`neuron_forms` on one cell, ``(n + 1,)`` in exact Arb numbers."""
    start = 0
    for index, node in enumerate(net.nodes):
        if isinstance(node, PiecewiseLinear | MaxPool):
            if entry < start + node.num_signs:
                with flint.ctx.workprec(EXACT):
                    before = Layout(net.nodes[:index])
                    rows, place = affine_values(before, net.in_size, signs, EXACT_ROWS)[node.source], entry - start
                    if isinstance(node, PiecewiseLinear):
                        return np.asarray(rows[:, place])
                    best = node.chosen(signs[start : start + node.num_signs])[place // node.windows.shape[1]]
                    return np.asarray(rows[:, node.windows.reshape(-1)[place]] - rows[:, best])
            start += node.num_signs
    raise IndexError(entry)


def influence(net: Network, seeds: BoolArray, active: BoolArray) -> tuple[BoolArray, BoolArray]:
    """What the seeds can reach along active paths, ``(cells, num_signs)`` and ``(cells, out)``.

    ``seeds`` and ``active`` are ``(cells, num_signs)``: neurons to start behind, and neurons that let a path through.
    False proves that the value does not depend on what the seeds do; weights that are zero let nothing through.
    """
    values: list[FloatArray] = [np.zeros((len(seeds), net.in_size))]
    reached: list[BoolArray] = []
    arithmetic, start = FloatAlgebra(), 0
    value: Any
    for node in net.nodes:
        if isinstance(node, Affine):
            value = values[node.source]
            for stage in node.operator.stages():
                value = (_indicator(stage).apply(value) > 0).astype(np.float64)
        elif isinstance(node, PiecewiseLinear | MaxPool):
            columns = slice(start, start + node.num_signs)
            start += node.num_signs
            source = values[node.source]
            if isinstance(node, PiecewiseLinear):
                reached.append(source > 0)
                value = ((source > 0) & active[:, columns] | seeds[:, columns]).astype(np.float64)
            else:
                inside = np.where(node.windows >= 0, source[:, node.windows], 0.0) > 0
                reached.append(inside.reshape(len(seeds), -1))
                own = seeds[:, columns].reshape(inside.shape)
                value = (inside | own).any(axis=2).astype(np.float64)
        elif isinstance(node, Add):
            value = np.concatenate([values[s][None] for s in node.sources]).max(axis=0)
        else:
            value = arithmetic.concat([values[s] for s in node.sources], node.order)
        values.append(value)
    joined = np.concatenate(reached, axis=1) if reached else np.zeros((len(seeds), 0), dtype=bool)
    return joined, values[-1] > 0


def _indicator(operator: Operator) -> Operator:
    return operator.with_coefficients((operator.coefficients != 0).astype(np.float64))
