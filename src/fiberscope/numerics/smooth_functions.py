"""Smooth activations with bounds: values, and derivatives over intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.floats import TINY, FloatArray, gamma, round_up

LIBRARY = 2.0**-46
"""Relative error granted to ``exp``, ``expm1``, ``log1p``, ``tanh``, ``sin`` and ``cos`` of the C library and, up to
arguments of 7, to SciPy's ``erfc``. They are off by a few units in the last place (2^-52); it is compared with ball
arithmetic in the tests. A proof with smooth activations rests on this number."""


@dataclass(frozen=True, slots=True)
class Bend:
    """A smooth function of one number, applied to every entry.

    ``steepest`` and ``bent`` bound its first and second derivative everywhere, ``absolute`` what a value may be off
    where it is too small for a relative error to be known.
    """

    name: str
    function: Callable[[FloatArray], FloatArray]
    derivative: Callable[[FloatArray], FloatArray]
    steepest: float
    bent: float
    absolute: float = TINY

    def at(self, x: Bounded) -> Bounded:
        """The values."""
        found = self.function(x.value)
        slip = self.steepest * x.error + 2 * LIBRARY * np.abs(found) + self.absolute
        return Bounded(found, np.where(np.isfinite(found), round_up(slip, 4), np.inf))

    def slopes(self, x: FloatArray, reach: FloatArray, slope: Bounded) -> Bounded:
        """The derivative behind it, where arguments are within ``reach`` of ``x``."""
        middle = self.derivative(x)
        spread = np.asarray(round_up(self.bent * reach + (4 + np.abs(x)) * LIBRARY, 4))
        return product(Bounded(middle, spread), slope)


def product(one: Bounded, two: Bounded) -> Bounded:
    """The product of two enclosures."""
    value = one.value * two.value
    error = np.abs(one.value) * two.error + one.error * np.abs(two.value) + one.error * two.error
    return Bounded(value, np.asarray(round_up(error + gamma(2) * np.abs(value), 6)))


def _sigmoid(x: FloatArray) -> FloatArray:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1 + small))


def _silu_slope(x: FloatArray) -> FloatArray:
    s = _sigmoid(x)
    return np.asarray(s * (1 + x * (1 - s)))


def _below(x: FloatArray) -> FloatArray:
    """The normal distribution function."""
    return np.asarray(scipy.special.erfc(-x / sqrt(2)) / 2)


def _gelu_slope(x: FloatArray) -> FloatArray:
    return np.asarray(_below(x) + x * np.exp(-x * x / 2) / sqrt(2 * pi))


def _elu_slope(x: FloatArray) -> FloatArray:
    return np.asarray(np.exp(np.minimum(x, 0.0)))


def softplus(beta: float) -> Bend:
    """``log(1 + exp(beta x)) / beta``: the function itself, without the threshold beyond which torch takes ``x``.

    ``beta`` is a power of two: then no product with it is rounded, and ``exp`` is given the true argument.

    >>> softplus(1.0).function(np.array([0.0])).round(6)
    array([0.693147])
    """

    def function(x: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(beta * x))) / beta)

    return Bend("Softplus", function, lambda x: _sigmoid(beta * x), 1.0, 0.2501 * beta)


BENDS = {
    "ELU": Bend("ELU", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))), _elu_slope, 1.0, 1.0),
    "GELU": Bend("GELU", lambda x: x * _below(x), _gelu_slope, 1.13, 0.798, 2.0**-49),
    "Tanh": Bend("Tanh", np.tanh, lambda x: 1 - np.tanh(x) ** 2, 1.0, 0.77),
    "Sigmoid": Bend("Sigmoid", _sigmoid, lambda x: _sigmoid(x) * (1 - _sigmoid(x)), 0.25, 0.097),
    "SiLU": Bend("SiLU", lambda x: x * _sigmoid(x), _silu_slope, 1.1, 0.5),
}
"""By the name of the torch module. ``|tanh''| <= 4 / sqrt(27) < .77``, ``|sigmoid''| <= 1 / sqrt(108) < .097``; the
derivative of ``x sigmoid(x)`` is at most 1.0999, and its own derivative at most 1/2, at 0. That of ``x Phi(x)`` is at
most 1.1290, at the root of 2, and its own, ``(2 - x^2) phi(x)``, at most ``2 phi(0) < .798``; below -7 its values are
under 2^-36, so that what ``erfc`` loses with the rounding of its argument is far below ``absolute``. The derivative of
the ELU has no derivative at 0, and quotients of differences of at most 1, which is all that an enclosure asks for."""
