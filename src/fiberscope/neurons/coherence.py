"""Coherence of a subspace, and how close the Gram matrices are to a multiple of the identity (Theorem C.6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg

from fiberscope.errors import InputError
from fiberscope.neurons.gram_forms import Grams
from fiberscope.neurons.projected import ProjectedLayer
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.cutoffs import ORTHONORMAL
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result


def coherence(basis: Any) -> float:
    """``nu(U) = max_l (U U^T)_ll``, between ``k/d`` and 1: how much of the subspace one input coordinate sees.

    Parameters
    ----------
    basis
        ``(d, k)`` with orthonormal columns. The coherence depends only on their span.

    Reference: equation (6) of :cite:`neuronidentifiability`.

    >>> coherence([[1.0], [0.0]]), coherence(np.full((4, 1), 0.5))
    (1.0, 0.25)
    """
    columns = checked_basis(basis)
    d, k = columns.shape
    largest = float(np.einsum("ij,ij->i", columns, columns).max())
    # The exact value lies between the two ends; only the rounding of a sum of squares can leave them.
    return float(min(max(largest, k / d), 1.0))


def checked_basis(basis: Any, name: str = "basis") -> FloatArray:
    """A ``(d, k)`` array with orthonormal columns."""
    columns = real_array(basis, name, ndim=2)
    d, k = columns.shape
    if not 1 <= k <= d:
        raise InputError(f"{name}: expected (d, k) with 1 <= k <= d, got shape {columns.shape}")
    off = float(np.abs(columns.T @ columns - np.eye(k)).max())
    if not off <= ORTHONORMAL:
        raise InputError(f"{name}: expected orthonormal columns, got products that are off by {off:.1e}")
    return columns


@dataclass(frozen=True, slots=True, eq=False)
class Concentration(Result):
    """``|S_i - mu I|`` of every neuron beside the bound of Theorem C.6 with the constants of its proof.

    The bound ``sqrt(2 s^2 nu L) + (2/3) b nu L`` with ``L = log(2 k / delta)`` holds for one neuron with probability
    ``1 - delta`` over the draw of independent scales; ``uniform`` (``L = log(2 m k / delta)``) for all neurons at
    once. A mask with a fixed number of entries per row is a draw without replacement, for which the same inequality
    holds.
    """

    deviations: FloatArray = field(repr=False)
    bound: float
    uniform: float
    mu: float
    variance: float
    """``s^2``, the variance of the squared scales."""
    largest: float
    """``b``, their largest deviation from ``mu``."""
    coherence: float
    delta: float

    told = ("epsilon", "share")

    @property
    def epsilon(self) -> float:
        """The largest deviation, which is the ``epsilon`` of Assumption C.9."""
        return float(self.deviations.max())

    @property
    def share(self) -> float:
        """The share of neurons within the bound; the theorem says at least ``1 - delta`` on average over draws."""
        return float((self.deviations <= self.bound).mean())


def concentration(layer: ProjectedLayer, delta: float = 0.05, mu: float | None = None) -> Concentration:
    """Compare the Gram matrices with ``mu I``; ``mu`` is the mean of the squared scales unless it is known better."""
    if not 0 < delta < 1:
        raise InputError(f"delta: expected a probability in (0, 1), got {delta}")
    squares = layer.scales**2
    mean = float(squares.mean()) if mu is None else float(mu)
    variance, largest = float(((squares - mean) ** 2).mean()), float(np.abs(squares - mean).max())
    nu, k = coherence(layer.basis), layer.rank

    def bound(count: int) -> float:
        size = float(np.log(2 * count * k / delta))
        return float(np.sqrt(2 * variance * nu * size) + 2 / 3 * largest * nu * size)

    deviations = np.array([max(abs(end - mean) for end in _ends(layer.grams, i)) for i in range(len(layer))])
    return Concentration(frozen(deviations), bound(1), bound(len(layer)), mean, variance, largest, nu, delta)


def _ends(grams: Grams, i: int) -> tuple[float, float]:
    """Smallest and largest eigenvalue of ``S_i``, by the smaller of two matrices where the scales are a mask."""
    zeros = np.flatnonzero(grams.scales[i] == 0)
    if len(zeros) >= grams.basis.shape[1] or not np.isin(grams.scales[i], (0, 1)).all():
        values = scipy.linalg.eigvalsh(grams.gram(i), check_finite=False)
        return float(values[0]), float(values[-1])
    if len(zeros) == 0:
        return 1.0, 1.0
    part = grams.basis[zeros]
    return 1.0 - float(scipy.linalg.eigvalsh(part @ part.T, check_finite=False)[-1]), 1.0
