"""Losses and gradients of many parameters of one model at once, ``(chains, parameters)``."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from fiberscope.dimension.jacobian import assemble, offsets
from fiberscope.dimension.kernels.tangent import TangentMap
from fiberscope.dimension.symmetries import acts_freely_on
from fiberscope.dimension.uses import uses
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.floating import FLOAT
from fiberscope.numerics.floats import FloatArray, IntArray


class Model(Protocol):
    """What can be sampled: outputs and gradients around a parameter."""

    center: FloatArray
    """``(parameters,)``."""

    def outputs(self) -> FloatArray:
        """At the center, ``(points, outputs)``."""

    def jacobian(self) -> FloatArray:
        """At the center, ``(points * outputs, parameters)``."""

    def loss(self, parameters: FloatArray, targets: Any, kind: str, rows: Any) -> tuple[FloatArray, FloatArray]:
        """Losses ``(chains,)`` and gradients ``(chains, parameters)`` on some points, or all (``slice(None)``)."""


def loss_and_slope(outputs: FloatArray, targets: Any, kind: str) -> tuple[FloatArray, FloatArray]:
    """Losses ``(chains,)`` of outputs ``(chains, points, n)``, and their derivatives in the outputs.

    ``"mse"`` is half the mean over points of squared distances, which is the negative logarithm of a Gaussian density
    of variance one up to a constant; ``"cross_entropy"`` the mean over points.

    >>> loss_and_slope(np.array([[[3.0], [0.0]]]), np.array([[1.0], [0.0]]), "mse")[0]
    array([1.])
    """
    points = outputs.shape[1]
    if kind == "mse":
        rest = outputs - targets
        return (rest**2).sum(axis=(1, 2)) / (2 * points), rest / points
    shifted = outputs - outputs.max(axis=2, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    slope = np.exp(logs)
    index = np.arange(points)
    slope[:, index, targets] -= 1
    return -logs[:, index, targets].mean(axis=1), slope / points


def model_of(net: Network, X: FloatArray) -> Model:
    """A chain as stacked products, another program one parameter after the other."""
    return _Chain(net, X) if acts_freely_on(net) else _Program(net, X)


class _Program:
    """Any network, one parameter after the other."""

    def __init__(self, net: Network, X: FloatArray) -> None:
        self.net, self.X = net, X
        self.center = np.concatenate([value.reshape(-1) for value in net.parameters.values()])

    def outputs(self) -> FloatArray:
        return self.net(self.X)

    def jacobian(self) -> FloatArray:
        found: FloatArray = assemble(self.net, uses(self.net, self.X, FLOAT), len(self.X), FLOAT)
        return found

    def _at(self, flat: FloatArray) -> Network:
        starts = offsets(self.net)
        shapes = {name: value.shape for name, value in self.net.parameters.items()}
        return self.net.with_parameters(
            {n: flat[starts[n] : starts[n] + int(np.prod(s))].reshape(s) for n, s in shapes.items()}
        )

    def loss(self, parameters: FloatArray, targets: Any, kind: str, rows: Any) -> tuple[FloatArray, FloatArray]:
        X, y = self.X[rows], targets[rows]
        losses, slopes = np.full(len(parameters), np.inf), np.zeros_like(parameters)
        for k, flat in enumerate(parameters):
            if np.isfinite(flat).all():  # else it is refused
                moved = self._at(flat)
                value, slope = loss_and_slope(moved(X)[None], y, kind)
                losses[k], slopes[k] = value[0], TangentMap(moved, X).transposed(slope.reshape(-1))
        return losses, slopes


class _Chain(_Program):
    """A chain of dense layers: products of stacked matrices."""

    def __init__(self, net: Network, X: FloatArray) -> None:
        super().__init__(net, X)
        starts = offsets(net)
        self._layers: list[tuple[IntArray, IntArray | None, FloatArray]] = []
        for node, weight, bias in zip(net.layout.affine, net.weights, net.biases, strict=True):
            assert node.weight_name is not None  # acts_freely_on
            places = starts[node.weight_name] + np.arange(weight.size).reshape(weight.shape)
            name = None if node.bias is None else node.bias_name
            own = None if name is None else starts[name] + np.arange(len(bias))
            self._layers.append((places, own, bias))
        self._slopes = [np.where(p.node.linear, 1.0, p.node.slopes) for p in net.layout.places]

    def loss(self, parameters: FloatArray, targets: Any, kind: str, rows: Any) -> tuple[FloatArray, FloatArray]:
        value = np.broadcast_to(self.X[rows], (len(parameters), *self.X[rows].shape))
        inputs, factors = [], []
        for k, (weight, own, bias) in enumerate(self._layers):
            inputs.append(value)
            shift = bias[None, None] if own is None else parameters[:, None, own]
            value = value @ parameters[:, weight].transpose(0, 2, 1) + shift
            if k < len(self._slopes):
                factors.append(np.where(value > 0, 1.0, self._slopes[k]))
                value = value * factors[-1]
        losses, slope = loss_and_slope(value, targets[rows], kind)
        result = np.zeros_like(parameters)
        for k in range(len(self._layers) - 1, -1, -1):
            weight, own, _ = self._layers[k]
            result[:, weight] = slope.transpose(0, 2, 1) @ inputs[k]
            if own is not None:
                result[:, own] = slope.sum(axis=1)
            if k:
                slope = (slope @ parameters[:, weight]) * factors[k - 1]
        return losses, result
