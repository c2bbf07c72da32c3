"""Moments of samples that come in parts: sums in float64, and the means that they give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dsyrk

from fiberscope.numerics.floats import BoolArray, FloatArray, gamma
from fiberscope.results import Result


@dataclass(frozen=True, eq=False)
class Moments(Result):
    """Means over ``count`` samples ``x`` in ``R^d``.

    >>> Moments(2, np.array([1.0]), np.array([[5.0]]), False).variance
    array([4.])
    """

    count: int
    mean: FloatArray
    """``(d,)``: ``E[x]``."""
    second_moment: FloatArray
    """``(d, d)``: ``E[x x^T]``, about zero and not about the mean."""
    non_negative: bool
    """Whether no sample has a negative entry, as after a ReLU."""

    @property
    def size(self) -> int:
        return len(self.mean)

    @property
    def covariance(self) -> FloatArray:
        """``E[x x^T] - E[x] E[x]^T``, divided by ``count``, not by one less."""
        return self.second_moment - np.outer(self.mean, self.mean)

    @property
    def variance(self) -> FloatArray:
        return np.asarray(np.diag(self.second_moment) - self.mean**2)

    def __repr__(self) -> str:
        return f"Moments({self.count} samples of {self.size} features)"


@dataclass(frozen=True, eq=False)
class CrossMoments:
    """Means and variances of ``x`` in ``R^p`` and ``y`` in ``R^q`` seen together, and their covariance ``(p, q)``.

    Summed about the mean: features that hardly vary have correlations, too, and ``E[x y^T] - E[x] E[y]^T`` loses them.
    """

    count: int
    means: tuple[FloatArray, FloatArray]
    variances: tuple[FloatArray, FloatArray]
    covariance: FloatArray

    @property
    def correlation(self) -> FloatArray:
        """Pearson correlation ``(p, q)``, with its sign; 0 where a feature is constant."""
        scales = []
        for variance, constant in zip(self.variances, self.constant, strict=True):
            scales.append(np.where(constant, 0.0, 1.0 / np.sqrt(np.where(constant, 1.0, variance))))
        return np.asarray(np.clip(self.covariance * np.outer(*scales), -1.0, 1.0))

    @property
    def constant(self) -> tuple[BoolArray, BoolArray]:
        """Features that are as far from their mean as the rounding of that mean can bring them."""
        slack = 4.0 * gamma(self.count + 4) ** 2
        x, y = (
            np.asarray(~(variance > slack * (variance + mean**2)))
            for mean, variance in zip(self.means, self.variances, strict=True)
        )
        return x, y

    def __repr__(self) -> str:
        return (
            f"CrossMoments({self.count} samples of {self.covariance.shape[0]} and {self.covariance.shape[1]} features)"
        )


class Sums:
    """``sum x`` and the upper triangle of ``sum x x^T``; the symmetric product needs half the multiplications."""

    def __init__(self, bias: bool) -> None:
        self.bias = bias
        self.count = 0
        self.first: FloatArray | None = None
        self.second: FloatArray | None = None
        self.non_negative = True

    def add(self, rows: FloatArray) -> None:
        if self.bias:
            rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
        if self.first is None or self.second is None:
            self.first = np.zeros(rows.shape[1])
            self.second = np.zeros((rows.shape[1], rows.shape[1]), order="F")
        self.count += len(rows)
        self.first += rows.sum(axis=0)
        self.non_negative = self.non_negative and bool((rows >= 0).all())
        self.second = dsyrk(1.0, rows.T, beta=1.0, c=self.second, overwrite_c=1)

    def moments(self) -> Moments:
        assert self.first is not None and self.second is not None
        upper = np.triu(self.second) / self.count
        return Moments(self.count, self.first / self.count, upper + np.triu(upper, 1).T, self.non_negative)


class CrossSums:
    """Means and sums of squares about them; two parts are joined as Chan, Golub and LeVeque do (1983)."""

    def __init__(self) -> None:
        self.count = 0
        self.means: list[FloatArray] = []
        self.sums: list[FloatArray] = []

    def add(self, x: FloatArray, y: FloatArray) -> None:
        means = [x.mean(axis=0), y.mean(axis=0)]
        x, y = x - means[0], y - means[1]
        sums = [np.einsum("ni,ni->i", x, x), np.einsum("ni,ni->i", y, y), x.T @ y]
        if self.count:
            apart, other = (new - old for new, old in zip(means, self.means, strict=True))
            share = len(x) / (self.count + len(x))
            between = [apart**2, other**2, np.outer(apart, other)]
            sums = [a + b + self.count * share * c for a, b, c in zip(self.sums, sums, between, strict=True)]
            means = [self.means[0] + share * apart, self.means[1] + share * other]
        self.means, self.sums = means, sums
        self.count += len(x)

    def moments(self) -> CrossMoments:
        x, y, cross = (total / self.count for total in self.sums)
        return CrossMoments(self.count, (self.means[0], self.means[1]), (x, y), cross)
