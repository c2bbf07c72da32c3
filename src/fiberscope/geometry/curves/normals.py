"""Directions in which neurons grow, one neuron for each sign vector: one backward pass for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray


def crossing_gradients(net: Network, one: SignArray, two: SignArray, entries: IntArray) -> FloatArray:
    """Gradients of the functionals that vanish between pairs of regions, ``(pairs, in_size)``.

    ``entries`` names one entry of the sign vector for every pair. A neuron's functional is its preactivation, that of a
    pooling window the difference of its two winners; signs are those of the side where the entry is not zero.
    """
    rows = np.arange(len(entries))
    signs = np.where((one[rows, entries] != 0)[:, None], one, two) if len(entries) else one
    grads: dict[int, Any] = {}
    stops = np.cumsum([0, *(node.num_signs for node in net.switches)])
    switch = len(net.switches)
    for index in reversed(range(len(net.nodes))):
        node = net.nodes[index]
        grad = grads.pop(index + 1, None)
        if isinstance(node, PiecewiseLinear | MaxPool):
            switch -= 1
            columns = slice(int(stops[switch]), int(stops[switch + 1]))
            own = np.flatnonzero((entries >= columns.start) & (entries < columns.stop))
            back = _through(node, grad, signs[:, columns], len(entries))
            _seed(node, back, own, entries[own] - columns.start, one[:, columns], two[:, columns])
            _give(grads, node.source, back)
        elif grad is not None and isinstance(node, Affine):
            for stage in reversed(node.operator.stages()):
                grad = stage.adjoint(grad)
            _give(grads, node.source, grad)
        elif grad is not None and isinstance(node, Add):
            for source in node.sources:
                _give(grads, source, grad)
        elif grad is not None and isinstance(node, Concat):
            _split(grads, node, grad)
    return np.asarray(grads.get(0, np.zeros((len(entries), net.in_size))))


def _give(grads: dict[int, Any], source: int, grad: FloatArray) -> None:
    grads[source] = grad if source not in grads else grads[source] + grad


def _split(grads: dict[int, Any], node: Concat, grad: FloatArray) -> None:
    joined = grad
    if node.order is not None:
        joined = np.empty_like(grad)
        joined[:, node.order] = grad
    stops = np.cumsum([0, *(int(np.prod(shape)) for shape in node.shapes)])
    for source, start, stop in zip(node.sources, stops, stops[1:], strict=False):
        _give(grads, source, joined[:, start:stop])


def _through(node: PiecewiseLinear | MaxPool, grad: Any, signs: SignArray, count: int) -> FloatArray:
    """The gradient in front of a switch."""
    if isinstance(node, PiecewiseLinear):
        if grad is None:
            return np.zeros((count, node.num_signs))
        return np.asarray(grad * np.where(signs > 0, 1.0, node.slopes))
    back = np.zeros((count, int(np.prod(node.in_shape))))
    if grad is not None:
        for row in range(count):
            np.add.at(back[row], node.chosen(signs[row]), grad[row])
    return back


def _seed(
    node: PiecewiseLinear | MaxPool, back: FloatArray, rows: IntArray, local: IntArray, one: SignArray, two: SignArray
) -> None:
    """Where a functional of this switch is asked for, its gradient begins here."""
    if isinstance(node, PiecewiseLinear):
        back[rows, local] = 1.0
        return
    for row, entry in zip(rows.tolist(), local.tolist(), strict=True):
        window = entry // node.windows.shape[1]
        left, right = (int(node.chosen(signs[row])[window]) for signs in (one, two))
        back[row] = 0.0
        back[row, right] += 1.0
        back[row, left] -= 1.0
