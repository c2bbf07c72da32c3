"""What a first layer sees of a curve: its length on the sphere, in closed form.

A neuron ``w x + b`` vanishes where the vector ``(x, 1)`` meets a plane with the normal ``(w, b)``. If that normal is
isotropic, as for normal weights and biases of one standard deviation, the expected number of zeros along a curve is by
Crofton's formula the length of the curve's central projection onto the unit sphere, divided by pi. Only positions and
tangent directions enter, not curvature: per unit length it is ``sqrt(1 + r^2 sin^2 a) / (pi (1 + r^2))`` at distance r
from the origin, with the angle a between the tangent and the ray from the origin.
"""

from __future__ import annotations

from math import pi

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve import Path


def first_layer_kinks(curve: Path, bias_scale: float = 1.0, *, places: int = 20_000) -> float:
    """Expected zeros of one first-layer neuron along a curve; ``bias_scale`` is the bias's deviation over the weights'.

    The integral over the parameter is taken by the midpoint rule in so many places.

    >>> from fiberscope.geometry.curves.curve import Circle
    >>> round(first_layer_kinks(Circle()), 6)  # the square root of 2
    1.414214
    """
    if not isinstance(curve, Path):
        raise InputError(f"curve: expected a curve, got {type(curve).__name__}")
    if not bias_scale > 0 or places < 1:
        raise InputError(f"expected a positive bias_scale and places, got {bias_scale} and {places}")
    low, high = curve.interval
    t = low + (high - low) * (np.arange(places) + 0.5) / places
    x, v = curve(t) / bias_scale, curve.derivative(t) / bias_scale
    level = 1 + np.einsum("ij,ij->i", x, x)
    area = np.einsum("ij,ij->i", v, v) * level - np.einsum("ij,ij->i", x, v) ** 2
    return float(np.mean(np.sqrt(np.maximum(area, 0.0)) / level) * (high - low) / pi)
