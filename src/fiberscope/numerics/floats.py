"""Rounding of float64: the constants and the inequality behind every error bound of this project; norms, rounded up.

A sum of ``n`` products, accumulated in any order, with or without fused multiplication, differs from its exact
value by at most ``gamma(n) * sum |x_i y_i|`` plus what underflow loses (Higham, *Accuracy and Stability of
Numerical Algorithms*, section 3.1). So a bound costs one more product, with absolute values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SignArray = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]
ObjectArray = npt.NDArray[Any]

U = 2.0**-53
"""Unit roundoff of float64: the largest relative error of one rounding."""

TINY = 2.0**-1022
"""Smallest normal float64: more than underflow can lose in one operation."""

INFLATE = 1.0 + 1e-9
"""Factor on a bound that took fewer than a million roundings to compute: more than they can have lost."""

MULTIPLES = 1.0 + 1e-6
"""Turns ``n * U`` into a bound of ``gamma(n)``, for ``n`` below a thousand million."""

ENTRY_FLOOR = 2.0**-960
"""Added to the bound of one entry: far more than underflow can lose there; smaller values are decided exactly."""

SQUARES_FLOOR = 2.0**-400
"""Added to a bound whose terms are squared: more than the squares can lose to underflow."""


LOST = 2.0**-1074
"""Smallest subnormal float: more than a product below the normal ones loses, or a sum of such for each of them."""

EPS = 4.0 * U
"""More than the relative error of three roundings in a row."""

FEW_ROUNDINGS = 1.0 + 64 * U
"""Factor on a bound that took fewer than sixty roundings to compute: more than they can have lost."""

SQUARABLE = (2.0**-450, 2.0**450)
"""Lengths between these lost nothing to the range of floats when their entries were squared."""

SPLITTER = 2.0**27 + 1
"""Times a float, it splits off the float's upper half (Veltkamp): halves of two floats have exact products."""

UP = 1 + 2.0**-30
"""Factor on non-negative numbers: more than the rounding of norms of up to a million entries."""

SMALL = 2.0**-400
"""Numbers between this and its inverse can be squared and summed without leaving the range of floats."""


def gamma(n: int) -> float:
    """Relative error bound of ``n`` roundings in a row, ``n u / (1 - n u)``, itself rounded up.

    >>> gamma(1) > U
    True
    """
    return n * U / (1 - n * U) * (1 + 4 * U)


def round_up(bound: FloatArray, operations: int) -> FloatArray:
    """A value not below the exact one, for a non-negative bound that took ``operations`` roundings to compute."""
    return np.asarray(bound * (1 + 2 * gamma(operations + 2)) + TINY)


def norms(z: FloatArray) -> FloatArray:
    """Not below the Euclidean norms of the rows."""
    norm = np.sqrt(np.einsum("ij,ij->i", z, z)) * UP
    small = np.flatnonzero(norm < SMALL)
    if len(small):  # squares may have vanished
        norm[small] = np.where((z[small] != 0).any(axis=1), SMALL, 0.0)
    return np.asarray(norm)


def positive(r: FloatArray) -> FloatArray:
    """Factors whose squares do not vanish, not below the given ones."""
    return np.where(r == 0, 0.0, np.maximum(r, SMALL))


def length(r: FloatArray) -> float:
    """Not below the Euclidean norm of non-negative factors."""
    return float(np.sqrt((positive(r) ** 2).sum())) * UP


def spectral_bound(matrix: FloatArray) -> float:
    """A number not below the spectral norm, usually within 10 %: guessed by iteration, proven by a factorisation;
    infinite where squares leave the range of floats.

    If the Cholesky factorisation of ``(b I - G)`` succeeds in floats, for the Gram matrix ``G``, then its smallest
    eigenvalue is above ``-n (n + 2) u * trace``, which the shift covers (S. M. Rump, BIT 46, 2006).
    """
    small = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    with np.errstate(over="ignore", invalid="ignore"):
        gram = small @ small.T
        n, trace = len(gram), float(np.trace(gram))
    if not SMALL < trace < 1 / SMALL:
        return float("inf")
    ceiling = np.sqrt(trace) * UP
    vector = np.ones(n)
    for _ in range(12):
        vector = gram @ vector
        norm = float(np.linalg.norm(vector))
        if not 0 < norm < np.inf:
            return float(ceiling)
        vector /= norm
    guess = 1.15 * norm
    shift = 16.0 * (n + 2) * (n + matrix.size / n) * 2.0**-53 * trace
    while guess < trace:
        try:
            np.linalg.cholesky((guess - shift) * np.eye(n) - gram)
            return float(np.sqrt(guess) * UP)
        except np.linalg.LinAlgError:
            guess *= 1.2
    return float(ceiling)
