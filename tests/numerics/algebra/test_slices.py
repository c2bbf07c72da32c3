"""Sliced products against fractions, on dense layers and on convolutions, and what cannot be sliced."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fiberscope.network.convolutions import Convolution, TransposedConvolution
from fiberscope.network.operators import Dense, Operator
from fiberscope.numerics.algebra.slices import sliced_product


def operators() -> list[Operator]:
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=(2, 3, 2, 2)) * 10.0 ** rng.integers(-9, 9, size=(2, 3, 2, 2))
    return [
        Dense(rng.normal(size=(4, 30)) * 10.0 ** rng.integers(-12, 12, size=(4, 30))),
        Convolution(kernel, (3, 4, 4), stride=(2, 2)),
        TransposedConvolution(kernel, (2, 3, 3), stride=(2, 2)),
    ]


@pytest.mark.parametrize("operator", operators(), ids=repr)
@pytest.mark.parametrize("offset", [False, True])
def test_against_fractions(operator: Operator, offset: bool) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3, operator.in_size)) * 10.0 ** rng.integers(-8, 8, size=(3, operator.in_size))
    X[2] = 0.0
    b = rng.normal(size=operator.out_size) * 10.0 ** rng.integers(-20, 20, size=operator.out_size) if offset else None
    found = sliced_product(operator, X, b)
    assert found is not None
    matrix = operator.dense()
    for x, values, errors in zip(X, *found, strict=True):
        for j, row in enumerate(matrix):
            true = sum((Fraction(float(w)) * Fraction(float(v)) for w, v in zip(row, x, strict=True)), Fraction(0))
            true += Fraction(0) if b is None else Fraction(float(b[j]))
            assert abs(true - Fraction(float(values[j]))) <= Fraction(float(errors[j]))
    scale = np.abs(X).max(axis=1)[:, None] * np.abs(matrix).max() * matrix.shape[1]
    assert (found[1] <= 2.0**-52 * np.abs(found[0]) + 2.0**-55 * scale).all()


def test_what_cannot_be_sliced_is_refused() -> None:
    X = np.ones((1, 2))
    for matrix in ([[np.finfo(float).max, 1.0]], [[1e-300, 0.0]]):
        stage = Dense([[1.0, 1.0]]).with_coefficients(np.array(matrix))
        assert sliced_product(stage, X, None) is None
    for x in ([1e300, 1.0], [np.nan, 1.0], [1e-300, 0.0]):
        assert sliced_product(Dense([[1.0, 1.0]]), np.array([x]), None) is None
