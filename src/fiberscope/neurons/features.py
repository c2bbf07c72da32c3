"""Fixed centres as random features: how far trained weights can move what neurons compute, and what that leaves out.

For ReLU neurons without biases and inputs ``x ~ N(0, I)`` all is in closed form: with the angle ``t`` of ``u, v``

    ``E[relu(u.x) relu(v.x)] = |u| |v| (sin t + (pi - t) cos t) / 2 pi``

(Cho and Saul 2009). So the change that weights ``W`` make to features with centres ``F``, which Lemmas C.16 and C.17 of
:cite:`neuronidentifiability` bound, and the least error of a combination of fixed features (Theorems C.18, C.19, after
Yehudai and Shamir 2019) are numbers and not estimates.

Where this differs from the paper: since ``x`` and ``-x`` are alike, ``|relu(a) - relu(b)|^2 + |relu(-a) - relu(-b)|^2
<= |a - b|^2``, both bounds hold with half of their squares; ``sharp`` are these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtr

from fiberscope.errors import InputError
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result

NODES, FAR = 400, 12.0
"""Points of the quadrature over one normal variable, and how far out it goes; beyond, its weight is below 1e-31."""


@dataclass(frozen=True, eq=False)
class FeatureChange(Result):
    """How far ``relu((F + W) x)`` is from ``relu(F x)`` in the mean over ``x ~ N(0, I)``."""

    neurons: FloatArray = field(repr=False)
    """``(m,)``: of every neuron, exactly."""
    neuron_bounds: FloatArray = field(repr=False)
    """``(m,)``: Lemma C.16, ``|w_i|``."""
    network: float
    """Of ``alpha . relu``, exactly."""
    bound: float
    """Lemma C.17, ``|alpha| |W|_F``."""

    told = ("sharp",)

    @property
    def sharp(self) -> float:
        """Lemma C.17 for inputs that are symmetric: its bound divided by the root of two."""
        return float(self.bound / np.sqrt(2))


@dataclass(frozen=True, eq=False)
class LeastError(Result):
    """The best combination of fixed features for one ReLU neuron."""

    error: float
    """``|alpha . relu(F x) - relu(v.x + b)|`` in the mean over ``x ~ N(0, I)``."""
    target: float
    """The size of the function that is missed, in the same mean."""
    weight: float
    """``m max |alpha_i|``, of which Theorem C.18 speaks."""
    coefficients: FloatArray = field(repr=False)

    told = ("relative",)

    @property
    def relative(self) -> float:
        return self.error / self.target


def relu_products(U: Any, V: Any) -> FloatArray:
    """``E[relu(u_i.x) relu(v_j.x)]`` for ``x ~ N(0, I)``, ``(m, n)``.

    >>> relu_products([[1.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [-1.0, 0.0]]).round(3)
    array([[0.5  , 0.   ],
           [0.318, 0.318]])
    """
    U, V = _rows(U, "U"), _rows(V, "V")
    if U.shape[1] != V.shape[1]:
        raise InputError(f"V: expected rows of length {U.shape[1]}, got {V.shape[1]}")
    sizes = np.linalg.norm(U, axis=1)[:, None] * np.linalg.norm(V, axis=1)
    inner = U @ V.T
    cosine = np.divide(inner, sizes, out=np.zeros_like(inner), where=sizes > 0).clip(-1.0, 1.0)
    angle = np.arccos(cosine)
    return np.asarray(sizes * (np.sin(angle) + (np.pi - angle) * cosine) / (2 * np.pi))


def feature_change(F: Any, W: Any, alpha: Any = None) -> FeatureChange:
    """How far weights move features from their centres, beside the bounds of Lemmas C.16 and C.17.

    Parameters
    ----------
    F, W
        Centres and weights, ``(m, d)``.
    alpha
        Output weights, ``(m,)``; by default all one.

    >>> change = feature_change([[1.0, 0.0]], [[1.0, 0.0]])
    >>> round(float(change.neurons[0]) ** 2, 12), change.bound  # relu(2 x) - relu(x), half of the time
    (0.5, 1.0)
    """
    F, W = _rows(F, "F"), _rows(W, "W")
    if F.shape != W.shape:
        raise InputError(f"W: expected the shape of F, {F.shape}, got {W.shape}")
    weights = np.ones(len(F)) if alpha is None else real_array(alpha, "alpha")
    if weights.shape != (len(F),):
        raise InputError(f"alpha: expected {len(F)} numbers, got {weights.shape}")
    both = np.concatenate([F + W, F])
    products = relu_products(both, both)
    signed = np.concatenate([weights, -weights])
    m = len(F)
    diagonal = np.diag(products)
    squares = diagonal[:m] + diagonal[m:] - 2 * np.diag(products[:m, m:])
    whole = float(signed @ products @ signed)
    sizes = np.linalg.norm(W, axis=1)
    bound = float(np.linalg.norm(weights) * np.linalg.norm(W))
    return FeatureChange(np.sqrt(np.maximum(squares, 0.0)), sizes, float(np.sqrt(max(whole, 0.0))), bound)


def least_error(F: Any, v: Any, bias: float = 0.0) -> LeastError:
    """The combination of the features ``relu(F x)`` that comes closest to ``relu(v.x + bias)``, by normal equations.

    >>> found = least_error(np.eye(2), [1.0, 0.0])
    >>> round(found.error, 6), found.coefficients.round(12) + 0.0
    (0.0, array([1., 0.]))
    """
    F, v = _rows(F, "F"), real_array(v, "v")
    if v.shape != (F.shape[1],) or not v.any():
        raise InputError(f"v: expected {F.shape[1]} numbers that are not all zero, got {str(v.tolist())[:60]}")
    if not np.isfinite(bias):
        raise InputError(f"bias: expected a finite number, got {bias}")
    size = float(np.linalg.norm(v))
    cross, square = _with_bias(F, v / size, bias / size)
    gram = relu_products(F, F)
    found = np.linalg.lstsq(gram, cross, rcond=None)[0]
    missed = float(square - 2 * found @ cross + found @ gram @ found)
    alpha = np.asarray(size * found, dtype=np.float64)
    return LeastError(
        size * float(np.sqrt(max(missed, 0.0))),
        size * float(np.sqrt(square)),
        len(F) * float(np.abs(alpha).max(initial=0.0)),
        alpha,
    )


def _with_bias(F: FloatArray, v: FloatArray, bias: float) -> tuple[FloatArray, float]:
    """``E[relu(f_i.x) relu(v.x + b)]`` and ``E[relu(v.x + b)^2]`` for ``|v| = 1``.

    Given ``z = v.x`` the first factor is normal with mean ``(f.v) z``: one integral over ``z > -b`` is left.
    """
    low = max(-bias, -FAR)
    if low >= FAR:
        return np.zeros(len(F)), 0.0
    points, weights = np.polynomial.legendre.leggauss(NODES)
    z = low + (points + 1) * (FAR - low) / 2
    mass = weights * (FAR - low) / 2 * np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * (z + bias)
    along = F @ v
    across = np.sqrt(np.maximum((F * F).sum(axis=1) - along**2, 0.0))
    mean = along[:, None] * z
    spread = np.where(across > 0, across, 1.0)[:, None]
    rough = mean * ndtr(mean / spread) + spread * np.exp(-((mean / spread) ** 2) / 2) / np.sqrt(2 * np.pi)
    values = np.where(across[:, None] > 0, rough, np.maximum(mean, 0.0))
    return np.asarray(values @ mass), float(mass @ (z + bias))


def _rows(value: Any, name: str) -> FloatArray:
    found = real_array(value, name)
    if found.ndim != 2:
        raise InputError(f"{name}: expected a matrix with a row for every neuron, got shape {found.shape}")
    return found
