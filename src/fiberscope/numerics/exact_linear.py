"""Linear algebra over the rationals on arrays of fractions: echelon forms, kernels, solutions, cones."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb
from typing import Any

import flint
import numpy as np

from fiberscope.numerics.floats import ObjectArray

RAYS = 5000
"""Sets of tight coordinates up to which the extreme rays of a cone are looked for among them."""


def matrix_of(rows: Any, width: int) -> ObjectArray:
    """Rows of numbers as a matrix of fractions; the width counts where there are no rows."""
    found = np.empty((len(rows), width), dtype=object)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            found[i, j] = Fraction(value)
    return found


def column_of(values: Any) -> ObjectArray:
    """Numbers as a vector of fractions."""
    return np.asarray(matrix_of([values], len(values))[0])


def unit(n: int) -> ObjectArray:
    """The identity matrix."""
    return matrix_of(np.eye(n, dtype=int).tolist(), n)


def positive(rng: np.random.Generator) -> Fraction:
    """A random positive number of few bits."""
    return Fraction(int(rng.integers(1, 65)), 16)


def power(values: Any) -> Fraction:
    """A power of two near the largest absolute value, or 1 where all are zero: the scale of what is drawn beside them.

    >>> power([Fraction(-9), Fraction(1, 2)]), power([])
    (Fraction(8, 1), Fraction(1, 1))
    """
    most = max((abs(Fraction(v)) for v in values), default=Fraction(0))
    return Fraction(2) ** (most.numerator.bit_length() - most.denominator.bit_length()) if most else Fraction(1)


def random_vector(rng: np.random.Generator, n: int) -> ObjectArray:
    """Random numbers of few bits."""
    return column_of([Fraction(int(v), 16) for v in rng.integers(-48, 49, n)])


def combined(rows: ObjectArray, rng: np.random.Generator) -> list[Fraction]:
    """A random combination of rows."""
    return list(random_vector(rng, len(rows)) @ rows) if len(rows) else [Fraction(0)] * rows.shape[1]


def _flint(matrix: ObjectArray) -> Any:
    entries = [flint.fmpq(f.numerator, f.denominator) for f in matrix.ravel()]
    return flint.fmpq_mat(*matrix.shape, entries)


def _python(value: Any) -> Fraction:
    return Fraction(int(value.p), int(value.q))


def reduced(matrix: ObjectArray) -> tuple[ObjectArray, list[int]]:
    """The reduced echelon form without zero rows, and its pivots.

    >>> reduced(matrix_of([[2, 4], [1, 2]], 2))
    (array([[Fraction(1, 1), Fraction(2, 1)]], dtype=object), [0])
    """
    if not matrix.size:
        return matrix[:0], []
    found, rank = _flint(matrix).rref()
    rows = matrix_of([[_python(found[i, j]) for j in range(matrix.shape[1])] for i in range(rank)], matrix.shape[1])
    return rows, [next(j for j, v in enumerate(row) if v) for row in rows]


def basis(matrix: ObjectArray) -> ObjectArray:
    """A basis of the row space."""
    return reduced(matrix)[0]


def solved(left: ObjectArray, right: ObjectArray) -> ObjectArray:
    """The ``X`` with ``left X = right`` for a regular matrix."""
    found = _flint(left).solve(_flint(right))
    return matrix_of([[_python(found[i, j]) for j in range(right.shape[1])] for i in range(len(left))], right.shape[1])


def kernel_of(matrix: ObjectArray) -> ObjectArray:
    """A basis of ``{x: matrix x = 0}``, as rows."""
    n = matrix.shape[1]
    rows, pivots = reduced(matrix)
    free = [j for j in range(n) if j not in pivots]
    found = matrix_of([[0] * n for _ in free], n)
    for i, j in enumerate(free):
        found[i, j] = Fraction(1)
        for row, pivot in zip(rows, pivots, strict=True):
            found[i, pivot] = -row[j]
    return found


def random_solution(rows: ObjectArray, wanted: ObjectArray, scale: Fraction, rng: np.random.Generator) -> ObjectArray:
    """A random ``X`` with ``X rows = wanted``, which must have a solution; what is free is on the given scale."""
    n, m = len(rows), len(wanted)
    if not n:
        return matrix_of([[]] * m, 0)
    system = np.concatenate([rows.T, wanted.T], axis=1)
    found, pivots = reduced(system)
    X = matrix_of([[0] * n for _ in range(m)], n)
    for row, pivot in zip(found, pivots, strict=True):
        if pivot >= n:
            raise AssertionError("the rows do not span what is wanted")
        X[:, pivot] = row[n:]
    kernel = kernel_of(rows.T)
    for i in range(m):
        X[i] = X[i] + scale * column_of(combined(kernel, rng))
    return X


def extreme_rays(span: ObjectArray, d: int) -> ObjectArray | None:
    """The extreme rays of ``{x >= 0}`` within the span of independent rows: all but one dimension is spent on zeros."""
    k = len(span)
    if not k:
        return span
    if comb(d, k - 1) > RAYS:
        return None
    found: dict[tuple[Fraction, ...], None] = {}
    for tight in itertools.combinations(range(d), k - 1):
        kernel = kernel_of(span[:, list(tight)].T) if tight else unit(k)
        if len(kernel) != 1:
            continue
        x = kernel[0] @ span
        for sign in (1, -1):
            if all(sign * v >= 0 for v in x):
                size = sum(sign * v for v in x)
                found[tuple(sign * v / size for v in x)] = None
    return matrix_of(list(found), d)


class Rational:
    """A matrix of rationals whose products and sums stay outside of Python; for numbers of thousands of digits.

    >>> A = Rational.of(matrix_of([[1, 2, 0], [0, 1, 1]], 3))
    >>> (A @ A.right_inverse()).array().tolist() == unit(2).tolist()
    True
    """

    __slots__ = ("matrix",)

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    @classmethod
    def of(cls, array: ObjectArray) -> Rational:
        """From an array of fractions."""
        return cls(_flint(array))

    def __add__(self, other: Rational) -> Rational:
        return Rational(self.matrix + other.matrix)

    def __sub__(self, other: Rational) -> Rational:
        return Rational(self.matrix - other.matrix)

    def __matmul__(self, other: Rational) -> Rational:
        return Rational(self.matrix * other.matrix)

    def plus_column(self, column: Rational) -> Rational:
        """One column added to each."""
        ones = flint.fmpq_mat(1, self.matrix.ncols(), [1] * self.matrix.ncols())
        return Rational(self.matrix + column.matrix * ones)

    def right_inverse(self) -> Rational:
        """The shortest ``X`` with ``self X = 1``, for a matrix of full row rank."""
        A, n = self.matrix, self.matrix.nrows()
        one = flint.fmpq_mat(n, n, [int(i == j) for i in range(n) for j in range(n)])
        return Rational(A.solve(one) if n == A.ncols() else A.transpose() * (A * A.transpose()).solve(one))

    def least(self) -> Fraction:
        """The smallest entry."""
        return _python(min(self.matrix.entries()))

    def array(self) -> ObjectArray:
        """The entries as fractions."""
        m = self.matrix
        return matrix_of([[_python(m[i, j]) for j in range(m.ncols())] for i in range(m.nrows())], m.ncols())
