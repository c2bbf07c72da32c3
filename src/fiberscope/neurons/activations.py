"""Activations as the theorems need them: values, derivatives, Lipschitz constants and bounds of the second
derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from fiberscope.errors import InputError
from fiberscope.numerics.floats import FloatArray

Function = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class Activation:
    """``eta`` and what is known of it."""

    name: str
    value: Function
    derivative: Function
    lipschitz: float
    """``sup |eta'|``."""
    curvature: float
    """``sup |eta''|``; infinite if ``eta`` has a kink."""
    injective: bool
    """Whether a value of ``eta`` determines its argument; of the others here, positive values do."""


def _gelu_derivative(z: FloatArray) -> FloatArray:
    return np.asarray(ndtr(z) + z * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))


def _silu_derivative(z: FloatArray) -> FloatArray:
    s = expit(z)
    return np.asarray(s * (1 + z * (1 - s)))


# Largest slopes: GELU at sqrt(2), rounded up; SiLU at 2.3994. Largest curvatures: GELU 2 phi(0), SiLU 1/2, both at 0;
# tanh 4 / (3 sqrt 3); sigmoid 1 / (6 sqrt 3).
ACTIVATIONS = {
    found.name: found
    for found in (
        Activation("identity", np.array, np.ones_like, 1.0, 0.0, True),
        Activation("relu", lambda z: np.maximum(z, 0.0), lambda z: (z > 0).astype(np.float64), 1.0, np.inf, False),
        Activation(
            "leaky_relu",
            lambda z: np.where(z > 0, z, 0.01 * z),
            lambda z: np.where(z > 0, 1.0, 0.01),
            1.0,
            np.inf,
            True,
        ),
        Activation("gelu", lambda z: z * ndtr(z), _gelu_derivative, 1.1290, float(np.sqrt(2 / np.pi)), False),
        Activation("silu", lambda z: z * expit(z), _silu_derivative, 1.0999, 0.5, False),
        Activation("tanh", np.tanh, lambda z: 1 - np.tanh(z) ** 2, 1.0, 4 / (3 * float(np.sqrt(3))), True),
        Activation("sigmoid", expit, lambda z: expit(z) * expit(-z), 0.25, 1 / (6 * float(np.sqrt(3))), True),
    )
}


def activation_of(value: Any) -> Activation:
    """By name, or as it is.

    >>> activation_of("tanh").lipschitz
    1.0
    """
    if isinstance(value, Activation):
        return value
    if value not in ACTIVATIONS:
        raise InputError(f"activation: expected one of {', '.join(ACTIVATIONS)}, got {value!r}")
    return ACTIVATIONS[value]
