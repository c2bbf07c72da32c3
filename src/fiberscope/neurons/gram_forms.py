"""Quadratic forms in the inverses of many Gram matrices ``S_i = ridge I + B^T Diag(d_i)^2 B``, one neuron at a time.

The basis is scaled so that ``ridge I + B^T B = I``. A row of scales that holds only zeros and ones, with ``s`` zeros,
then gives ``S_i = I - B_i^T B_i`` with the ``s`` rows ``B_i`` of ``B`` at the zeros, and by Woodbury's identity

    ``x^T S_i^-1 x = |x|^2 + |L^-1 B_i x|^2``,   ``L L^T = I - B_i B_i^T``  (``s x s``).

``B_i x`` is a choice of rows of ``B x``, computed once for all neurons. Other rows of scales take the Cholesky factor
of ``S_i`` itself, and only those close to singular the singular values of ``B^T Diag(d_i)``, which decide what is
realisable. No more than one Gram matrix exists at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dpotrf, dtrtri

from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.numerics.images import GRAM_CONDITION, Image, image_of


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Vectors ``(n, k)`` and what the basis makes of them, ``(d, n)``."""

    vectors: FloatArray = field(repr=False)
    lifted: FloatArray = field(repr=False)

    @classmethod
    def of(cls, vectors: FloatArray, basis: FloatArray) -> Points:
        """Lift by ``B``."""
        return cls(vectors, np.ascontiguousarray(basis @ vectors.T))


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """The form ``x^T S^+ x`` of one neuron: ``euclidean |x|^2 + |T x|^2`` with one linear map ``T``.

    ``T`` is ``inverse`` (lower triangular) after the rows ``zeros`` of the basis, ``inverse`` alone, or the whitening
    of an ``image``; with none of the three the form is Euclidean.
    """

    rank: int
    gap: float
    smallest: float
    """A lower bound of the smallest singular value of the factor of ``S`` that counts."""
    inverse: FloatArray | None = field(default=None, repr=False)
    zeros: np.ndarray | None = field(default=None, repr=False)
    image: Image | None = field(default=None, repr=False)

    @property
    def euclidean(self) -> bool:
        """Whether ``|x|^2`` is part of the form."""
        return self.image is None and (self.inverse is None or self.zeros is not None)

    def transformed(self, points: Points, minus: Points | None = None) -> FloatArray:
        """``(n, p)``: ``T x`` for the points, with the one point of ``minus`` taken off first."""
        if self.zeros is not None:
            chosen = points.lifted[self.zeros]
            if minus is not None:
                chosen -= minus.lifted[self.zeros]
            return np.asarray(dtrmm(1.0, self.inverse, chosen.T, side=1, lower=1, trans_a=1, overwrite_b=1))
        vectors = points.vectors if minus is None else points.vectors - minus.vectors
        if self.image is not None:
            return self.image.whitened(vectors)
        if self.inverse is None:
            return np.zeros((len(vectors), 0))
        return np.asarray(dtrmm(1.0, self.inverse, vectors.T, lower=1, overwrite_b=minus is not None)).T

    def solved(self, transformed: FloatArray, vectors: FloatArray, basis: FloatArray) -> FloatArray:
        """``(n, k)``: ``S^+ x``, from ``T x`` and ``x`` themselves."""
        if self.image is not None:
            return np.asarray(transformed / self.image.values @ self.image.left.T)
        if self.inverse is None:
            return vectors
        back = transformed @ self.inverse
        return np.asarray(back if self.zeros is None else vectors + back @ basis[self.zeros])

    def realisable(self, vectors: FloatArray, sizes: FloatArray | float) -> BoolArray:
        """Which vectors lie in the image of ``S``; ``sizes`` as in
        :meth:`fiberscope.numerics.images.Image.contains`.
        """
        if self.image is None:
            return np.ones(len(vectors), dtype=bool)
        return self.image.contains(vectors, sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Grams:
    """The family ``S_i``: a basis ``(d, k)`` with ``ridge_i + B^T B = I``, and the scales ``(m, d)``."""

    basis: FloatArray = field(repr=False)
    scales: FloatArray = field(repr=False)
    ridges: FloatArray | None = field(default=None, repr=False)
    """``(k,)``: the diagonal that is added to every Gram matrix; None means zero."""

    def __len__(self) -> int:
        return len(self.scales)

    def gram(self, i: int) -> FloatArray:
        """``(k, k)``, without the short cuts."""
        scaled = self.basis * self.scales[i][:, None]
        result = scaled.T @ scaled
        if self.ridges is not None:
            result[np.diag_indices_from(result)] += self.ridges
        return np.asarray(result)

    def metric(self, i: int) -> Metric:
        """The form of neuron ``i`` by the cheapest safe way."""
        row = self.scales[i]
        k = self.basis.shape[1]
        zeros = np.flatnonzero(row == 0)
        if np.count_nonzero(row == 1) + len(zeros) < len(row):
            return self._factored(self.gram(i), i)
        if len(zeros) == 0:
            return Metric(k, np.inf, 1.0)
        if len(zeros) >= k:
            free = len(row) - len(zeros)
            return self._factored(self._downdated(zeros) if len(zeros) < free else self.gram(i), i)
        part = self.basis[zeros]
        inner = -(part @ part.T)
        inner[np.diag_indices_from(inner)] += 1.0
        inverse, smallest = _inverse_factor(inner)
        if inverse is None:
            return self._by_image(i)
        return Metric(k, np.inf, smallest, inverse, zeros)

    def _downdated(self, zeros: np.ndarray) -> FloatArray:
        part = self.basis[zeros]
        result = -(part.T @ part)
        result[np.diag_indices_from(result)] += 1.0
        return np.asarray(result)

    def _factored(self, gram: FloatArray, i: int) -> Metric:
        # Scales of any size: the condition is judged relative to the largest eigenvalue, which the norm of rows bounds.
        inverse, smallest = _inverse_factor(gram, float(np.abs(gram).sum(axis=0).max()))
        return self._by_image(i) if inverse is None else Metric(len(gram), np.inf, smallest, inverse)

    def _by_image(self, i: int) -> Metric:
        matrix = self.basis.T * self.scales[i]
        if self.ridges is not None:
            matrix = np.hstack([matrix, np.diag(np.sqrt(self.ridges))])
        image = image_of(matrix)
        smallest = float(image.values[-1]) if image.rank else 0.0
        return Metric(image.rank, image.gap, smallest, image=image)

    def metrics(self) -> Iterator[Metric]:
        """One after the other; none is kept."""
        for i in range(len(self)):
            yield self.metric(i)


def _inverse_factor(matrix: FloatArray, largest: float = 1.0) -> tuple[FloatArray | None, float]:
    """``L^-1`` for ``L L^T = S`` and a lower bound of the root of the smallest eigenvalue; None if close to singular.

    ``1 / lambda_min <= trace(S^-1) = |L^-1|_F^2``.
    """
    factor, failed = dpotrf(matrix, lower=1, clean=1)
    if failed:
        return None, 0.0
    inverse, failed = dtrtri(factor, lower=1)
    if failed:
        return None, 0.0
    bound = 1.0 / float((inverse * inverse).sum())
    if not bound > GRAM_CONDITION * largest:
        return None, 0.0
    return inverse, float(np.sqrt(bound))
