"""The image of a matrix: a basis from its singular vectors, and which vectors lie in it, with stated cut-offs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.numerics.rank import rank_cutoff

GRAM_CONDITION = 1e-7
"""A Gram matrix with ``1 / trace(S^-1)`` above this part of its largest possible eigenvalue has full rank beyond doubt:
rounding moves its eigenvalues by about ``1e-13``. Forms in its inverse are then right to about eight digits. Below,
singular values of the factor are used, which do not lose half of the digits to squaring."""


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """``M = left @ diag(values) @ right^T`` with the singular values that count; ``left`` spans the image of ``M``.

    >>> image = image_of(np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    >>> image.rank, image.gap, image.contains(np.array([[3.0, 0.0], [0.0, 1e-3]]), 1.0).tolist()
    (1, inf, [True, False])
    """

    left: FloatArray = field(repr=False)
    values: FloatArray = field(repr=False)
    cutoff: float
    gap: float
    """Last singular value kept over the first dropped; infinite if nothing, or only zeros, were dropped."""
    shape: tuple[int, int]

    @property
    def rank(self) -> int:
        """How many singular values exceed the cut-off."""
        return len(self.values)

    def forms(self, vectors: FloatArray) -> FloatArray:
        """``x^T (M M^T)^+ x`` for the rows ``x`` of ``(n, k)``, whether or not they lie in the image."""
        return np.asarray((self.whitened(vectors) ** 2).sum(axis=1))

    def whitened(self, vectors: FloatArray) -> FloatArray:
        """``(n, rank)``: rows ``diag(1 / values) left^T x``."""
        return np.asarray(vectors @ self.left / self.values)

    def contains(self, vectors: FloatArray, sizes: FloatArray | float) -> BoolArray:
        """Which rows lie in the image, but for what rounding can explain.

        A perturbation of ``M`` by ``cutoff`` turns its image by ``cutoff / values[-1]``; a vector that is a difference
        of vectors of length ``sizes`` was rounded by ``eps`` of that. A longer remainder is a true one.
        """
        rest = np.linalg.norm(vectors - (vectors @ self.left) @ self.left.T, axis=1)
        turn = self.cutoff / float(self.values[-1]) if self.rank else 0.0
        rounding = max(self.shape) * float(np.finfo(np.float64).eps) * np.asarray(sizes)
        return np.asarray(rest <= turn * np.linalg.norm(vectors, axis=1) + rounding)


def image_of(matrix: FloatArray) -> Image:
    """The image of ``(k, d)`` by singular values above :func:`fiberscope.numerics.rank.rank_cutoff`."""
    k, d = matrix.shape
    if min(k, d) == 0:
        return Image(np.zeros((k, 0)), np.zeros(0), 0.0, np.inf, (k, d))
    left, values, _ = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
    cutoff = rank_cutoff((k, d), float(values[0]), np.dtype(np.float64))
    rank = int((values > cutoff).sum())
    dropped = float(values[rank]) if rank < len(values) else 0.0
    gap = float(values[rank - 1]) / dropped if rank and dropped else np.inf
    return Image(left[:, :rank], values[:rank], cutoff, gap, (k, d))
