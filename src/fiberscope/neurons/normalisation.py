"""Normalisation as a part of the neuron: ``h_i(w; x) = eta(gamma_i (z - mean) / sqrt(variance + eps) + shift_i)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.neurons.layers import LayerArrays
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.floats import FloatArray

Backward = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class Normalisation:
    """A batch normalisation after ``m`` neurons, whose own parameters stay as they are.

    With ``mean`` and ``variance`` given (running statistics) each neuron is followed by a fixed affine map. With None
    the statistics are those of the preactivations on the inputs, whatever the weights.
    """

    scale: FloatArray = field(repr=False)
    shift: FloatArray = field(repr=False)
    mean: FloatArray | None = field(default=None, repr=False)
    variance: FloatArray | None = field(default=None, repr=False)
    eps: float = 1e-5

    @property
    def frozen(self) -> bool:
        """Whether the statistics are fixed numbers."""
        return self.mean is not None

    @classmethod
    def of(cls, value: Any, m: int, name: str) -> Normalisation | None:
        """As it is, or from a torch ``BatchNorm``; one that keeps no running statistics uses those of the inputs."""
        if value is None:
            return None
        if isinstance(value, cls):
            found = value
        elif hasattr(value, "running_mean") and hasattr(value, "eps"):
            affine = getattr(value, "weight", None) is not None
            scale = real_array(value.weight, f"{name}: scale") if affine else np.ones(m)
            shift = real_array(value.bias, f"{name}: shift") if affine else np.zeros(m)
            kept = value.running_mean is not None
            mean = real_array(value.running_mean, f"{name}: mean") if kept else None
            variance = real_array(value.running_var, f"{name}: variance") if kept else None
            found = cls(scale, shift, mean, variance, float(value.eps))
        else:
            kind = type(value).__name__
            raise InputError(f"{name}: expected a batch normalisation (others mix the neurons), got {kind}")
        for part in (found.scale, found.shift, found.mean, found.variance):
            if part is not None and np.shape(part) != (m,):
                raise InputError(f"{name}: expected a normalisation of {m} neurons, got shape {np.shape(part)}")
        if (found.mean is None) != (found.variance is None):
            raise InputError(f"{name}: expected both mean and variance, or neither")
        return found

    def apply(self, z: FloatArray, neurons: np.ndarray) -> tuple[FloatArray, Backward]:
        """Normalise preactivations ``(points, n)`` by their own statistics; and how a gradient comes back."""
        deviation = np.sqrt(z.var(axis=0) + self.eps)
        standard = (z - z.mean(axis=0)) / deviation
        gain = self.scale[neurons]

        def back(gradient: FloatArray) -> FloatArray:
            inner = gradient - gradient.mean(axis=0) - standard * (gradient * standard).mean(axis=0)
            return np.asarray(inner * (gain / deviation))

        return gain * standard + self.shift[neurons], back


def normalised(arrays: LayerArrays, norm: Normalisation) -> LayerArrays:
    """The layer followed by a fixed affine map per neuron, as a layer with one more input that is constantly 1.

    >>> from fiberscope.neurons.layers import from_arrays
    >>> layer = from_arrays([[1.0]], [[1.0]], [[2.0]])
    >>> norm = Normalisation(np.array([4.0]), np.array([1.0]), np.array([0.5]), np.array([4.0]), eps=0.0)
    >>> normalised(layer, norm).effective.tolist()  # 4 (3 x - 0.5) / 2 + 1
    [[6.0, 0.0]]
    """
    assert norm.mean is not None and norm.variance is not None
    gain = norm.scale / np.sqrt(norm.variance + norm.eps)
    zeros = np.zeros((len(gain), 1))
    return LayerArrays(
        frozen(np.hstack([gain[:, None] * arrays.F, (norm.shift - gain * norm.mean)[:, None]])),
        frozen(np.hstack([gain[:, None] * arrays.D, zeros])),
        frozen(np.hstack([arrays.W, zeros])),
        arrays.name,
    )
