"""A layer seen through its input subspace: centres, trained parts and Gram matrices in the coordinates of a basis."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fiberscope.neurons.gram_forms import Grams
from fiberscope.numerics.arrays import frozen
from fiberscope.numerics.floats import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedLayer:
    """``a_i = v_i + r_i``: what neuron ``i`` computes on the subspace, its centre and its trained part.

    For a basis ``U`` (``d x k``): ``V = F U``, ``R = (D * W) U``, ``S_i = U^T Diag(d_i)^2 U``.
    """

    fixed: FloatArray = field(repr=False)
    scales: FloatArray = field(repr=False)
    basis: FloatArray = field(repr=False)
    centers: FloatArray = field(repr=False)
    trained: FloatArray = field(repr=False)
    sizes: FloatArray = field(repr=False)
    """``(m,)``: length of the effective weights and of the fixed ones, whose rounding the coefficients inherit."""
    realised: bool = True
    """Whether the coefficients come from weights of these very neurons, so that no cost on the diagonal is infinite."""

    ridges: FloatArray | None = field(default=None, repr=False)
    """``(k,)``: a diagonal that is added to all Gram matrices, for relaxed costs."""

    @classmethod
    def of(cls, F: FloatArray, D: FloatArray, W: FloatArray, basis: FloatArray) -> ProjectedLayer:
        """Project onto a basis with orthonormal columns."""
        moving = D * W
        sizes = np.linalg.norm(F, axis=1) + np.linalg.norm(moving, axis=1)
        return cls(F, D, basis, frozen(F @ basis), frozen(moving @ basis), frozen(sizes))

    def __len__(self) -> int:
        return len(self.fixed)

    @property
    def rank(self) -> int:
        """Dimension ``k`` of the subspace."""
        return int(self.basis.shape[1])

    @property
    def coefficients(self) -> FloatArray:
        """``(m, k)``: ``a_i``."""
        return np.asarray(self.centers + self.trained)

    @property
    def grams(self) -> Grams:
        """The family ``S_i``."""
        return Grams(self.basis, self.scales, self.ridges)

    def displacement(self, reindexing: np.ndarray) -> FloatArray:
        """``delta_in = F (P_t - I) U`` of equation (13), with ``(P_t x)_a = x_t(a)``."""
        moved = np.flatnonzero(reindexing != np.arange(len(reindexing)))
        return np.asarray(self.fixed[:, moved] @ (self.basis[reindexing[moved]] - self.basis[moved]))

    def reindexed(self, reindexing: np.ndarray) -> ProjectedLayer:
        """The same functions where the inputs come in another order: basis ``P_t U``, centres ``F P_t U``, the same
        ``a_i``.
        """
        shift = self.displacement(reindexing)
        return ProjectedLayer(
            self.fixed,
            self.scales,
            frozen(self.basis[reindexing]),
            frozen(self.centers + shift),
            frozen(self.trained - shift),
            self.sizes,
            realised=False,
        )
