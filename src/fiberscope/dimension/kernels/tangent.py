"""The Jacobian as a linear map that is never formed: products with it and with its transpose."""

from __future__ import annotations

from math import prod

import numpy as np

from fiberscope.dimension.jacobian import offsets
from fiberscope.dimension.kernels.kernel import kernel_terms
from fiberscope.dimension.use_gradients import add_block, size_of, taps
from fiberscope.dimension.uses import Use, uses, uses_behind
from fiberscope.network.convolutions import Convolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Dense, Operator
from fiberscope.network.walk import traced, walk
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import ENDLESS, Run

_CHUNK_BYTES = 1 << 27
"""Memory of what is formed for a few points at a time."""


class TangentMap:
    """``J(X)`` as the map from directions ``(D,)`` of the parameters to changes ``(points * out_size,)`` of outputs.

    One product costs about as much as two evaluations of the network, one with the transpose as much as a gradient.
    """

    def __init__(self, net: Network, X: FloatArray) -> None:
        self.net = net
        self.points, self.outputs = len(X), net.out_size
        self._trace = traced(net.layout, X, FLOAT)
        self._starts = offsets(net)

    @property
    def shape(self) -> tuple[int, int]:
        return self.points * self.outputs, self.net.num_parameters

    def transposed(self, v: FloatArray) -> FloatArray:
        """``J^T v``: the gradient of ``sum_i v_i f_i``."""
        delta = v.reshape(self.points, 1, self.outputs)
        result = np.zeros(self.net.num_parameters)
        for use in uses_behind(self.net, self._trace, FLOAT, delta):
            first = self._starts[use.name] + use.start
            result[first : first + size_of(use)] += _gradient(use, self.points)
        return result

    def direct(self, w: FloatArray) -> FloatArray:
        """``J w``: the derivative of all outputs in the direction ``w``."""
        # One row stands for all points as long as nothing has changed.
        changes = {0: np.zeros((1, self.net.in_size))}
        for index in walk(self.net.layout, changes, FLOAT, self._trace.choices):
            node = self.net.nodes[index]
            if isinstance(node, Affine):
                changes[index + 1] = self._affine(index, node, changes[node.source], w)
        return np.broadcast_to(changes[len(self.net.nodes)], (self.points, self.outputs)).reshape(-1)

    def _affine(self, index: int, node: Affine, change: FloatArray, w: FloatArray) -> FloatArray:
        stages, places = node.operator.stages(), node.operator.places()
        for stage, place, value in zip(stages, places, self._trace.inputs[index], strict=True):
            change = stage.apply(change)
            if node.weight_name is not None:
                own = self._part(node.weight_name, place.start, stage.coefficients.shape, w)
                moved = value @ own.T if isinstance(stage, Dense) else stage.with_coefficients(own).apply(value)
                moved += change  # an array of its own, with all points
                change = moved
        if node.bias is not None and node.bias_name is not None:
            own = self._part(node.bias_name, 0, node.bias.shape, w)
            change = change + np.broadcast_to(own, node.operator.out_shape).reshape(-1)
        return change

    def _part(self, name: str, start: int, shape: tuple[int, ...], w: FloatArray) -> FloatArray:
        first = self._starts[name] + start
        return w[first : first + prod(shape)].reshape(shape)

    def gram(self, v: FloatArray) -> FloatArray:
        """``J J^T v``: the tangent kernel times a vector."""
        return self.direct(self.transposed(v))


def _gradient(use: Use, points: int) -> FloatArray:
    """The derivative of a use, summed over the points, flat."""
    delta = np.broadcast_to(use.delta, (points, 1, use.delta.shape[2]))[:, 0]
    if isinstance(use.operator, Dense):
        return np.asarray(delta.T @ use.inputs).reshape(-1)
    if isinstance(use.operator, Convolution):
        return _kernel_gradient(use.operator, delta, use.inputs)
    block = np.empty((points, 1, size_of(use)))
    add_block(use, block, FLOAT, fresh=True)
    return np.asarray(block.sum(axis=(0, 1)))


def _kernel_gradient(operator: Convolution, delta: FloatArray, inputs: FloatArray) -> FloatArray:
    places = taps(operator)
    groups, pixels, fan_in = places.shape
    result = np.zeros((groups, operator.kernel.shape[0] // groups, fan_in))
    step = max(1, _CHUNK_BYTES // (8 * places[0].size))
    for start in range(0, len(inputs), step):
        part = inputs[start : start + step]
        padded = np.concatenate([part, np.zeros((len(part), 1))], axis=1)
        signal = delta[start : start + step].reshape(len(part), groups, -1, pixels)
        for g in range(groups):
            result[g] += np.tensordot(signal[:, g], padded[:, places[g]], axes=((0, 2), (0, 1)))
    return result.reshape(-1)


def kernel_diagonal(net: Network, X: FloatArray, run: Run = ENDLESS) -> FloatArray:
    """The diagonal of the tangent kernel, ``(points * out_size,)``: squared lengths of the rows of the Jacobian."""
    width = max(prod(shape) for shape in net.shapes)
    largest = max((_formed(node.operator) for node in net.layout.affine), default=0)
    step = max(1, _CHUNK_BYTES // (8 * net.out_size * max(width * len(net.nodes), largest)))
    parts = []
    for start in range(0, len(X), step):
        run.check()
        part = X[start : start + step]
        found = uses(net, part, FLOAT)
        diagonal = np.zeros((len(part), net.out_size))
        for term in kernel_terms(found, found, len(part), len(part)):
            lengths = np.einsum("ij,ij->i", *term.delta).reshape(-1, net.out_size)
            factor = term.plus + (0.0 if term.inputs is None else np.einsum("ij,ij->i", *term.inputs)[:, None])
            diagonal += lengths * factor
        parts.append(diagonal.reshape(-1))
    return np.concatenate(parts)


def _formed(operator: Operator) -> int:
    """Entries per output that the diagonal forms for a layer that is not dense."""
    return 0 if isinstance(operator, Dense) else operator.coefficients.size
