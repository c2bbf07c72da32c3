"""The range of numbers whose squares are floats, 2^-450 to 2^450: on both sides of it for everyone who relies on it.

Inside nothing may vanish or overflow; outside another way is taken. The oracle squares fractions.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest

from fiberscope.geometry.distances.gradients import _norms
from fiberscope.geometry.distances.reduced import _factor
from fiberscope.network.operators import Dense
from fiberscope.numerics.arrays import row_lengths
from fiberscope.numerics.floats import SQUARABLE, FloatArray, gamma

EXPONENTS = (-1074, -1022, -900, -600, -538, -512, -451, -450, -449, 0, 449, 450, 451, 510, 600, 1000)
"""The ends of the range, those of the squares, and those of the floats."""
WIDE = 1 << 13


def squared(vector: FloatArray) -> Fraction:
    return sum((Fraction(x) ** 2 for x in vector.tolist() if x), Fraction(0))


def entries(count: int, exponent: int, seed: int = 0) -> FloatArray:
    """Numbers of that size, and a few far smaller."""
    rng = np.random.default_rng(seed)
    found = rng.uniform(0.5, 1.0, count) * rng.choice([-1, 1], count)
    found[1::3] *= 2.0**-60
    return np.ldexp(found, exponent)


def near(length: float, vector: FloatArray) -> bool:
    """Whether a length is right up to the roundings of its sum, and of the smallest float."""
    exact, slack = squared(vector), Fraction(gamma(2 * len(vector) + 8))
    low, high = (max(Fraction(length) + sign * Fraction(2) ** -1074, Fraction(0)) for sign in (-1, 1))
    return low**2 * (1 - slack) <= exact <= high**2 * (1 + slack)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_lengths_of_rows(exponent: int) -> None:
    rows = np.stack([entries(7, exponent), entries(7, 0), np.zeros(7), np.ldexp(np.eye(1, 7)[0], exponent)])
    assert all(near(found, row) for found, row in zip(row_lengths(rows), rows, strict=True))


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_lengths_over_directions(exponent: int) -> None:
    value = np.stack([entries(5, exponent), entries(5, 0), np.zeros(5)], axis=1)[None]
    assert all(near(value_length, value[0, :, k]) for k, value_length in enumerate(_norms(value)[0].tolist()))


@pytest.mark.parametrize("inputs", EXPONENTS)
@pytest.mark.parametrize("weights", [-600, -451, -450, 0, 449, 451, 600])
def test_the_quick_bound_of_wide_products(weights: int, inputs: int) -> None:
    """Not below the sum of absolute values but for its roundings, or not given."""
    few = 40
    row, x = (np.concatenate([entries(few, e, seed), np.zeros(WIDE - few)]) for e, seed in ((weights, 1), (inputs, 2)))
    operator = Dense(row[None])
    found = operator.bound_abs(x[None])
    inside = all(Fraction(SQUARABLE[0]) ** 2 < squared(v) < Fraction(SQUARABLE[1]) ** 2 for v in (row, x))
    assert (found is not None) == inside
    if found is not None:
        pairs = zip(abs(row[:few]).tolist(), abs(x[:few]).tolist(), strict=True)
        exact = sum(Fraction(a) * Fraction(b) for a, b in pairs)
        assert np.isfinite(found).all() and Fraction(found[0, 0]) * (1 + Fraction(gamma(WIDE + 3))) >= exact


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("other", [None, 0])
def test_factors_of_first_layers(exponent: int, other: int | None) -> None:
    """``|v L|`` is ``|v W|`` within its bounds, for single rows and for sums of them; or there is no factor."""
    W = np.stack([entries(9, exponent, 1), entries(9, exponent if other is None else other, 2), np.zeros(9)])
    found = _factor(W)
    sizes = np.abs(W[:2]).max(axis=1)
    if not ((sizes > SQUARABLE[0]) & (sizes < SQUARABLE[1])).all():
        assert found is None
        return
    assert found is not None
    assert found.error is not None and np.isfinite(found.L).all() and np.isfinite(found.error).all()
    for v in [*np.eye(3).tolist(), [1.0, 1.0, 0.0], [1.0, -1.0, 1.0]]:
        factors = [Fraction(c) for c in v]
        whole, short = (exact_product(factors, matrix) for matrix in (W, found.L))
        error = sum(abs(c) * Fraction(e) for c, e in zip(factors, found.error.tolist(), strict=True))
        stretch = Fraction(found.stretch)
        # |vL| (1 - stretch) - error <= |vW| <= |vL| (1 + stretch) + error, squared where both sides are positive
        assert whole <= (root(short, True) * (1 + stretch) + error) ** 2
        assert max(root(short, False) * (1 - stretch) - error, Fraction(0)) ** 2 <= whole


def exact_product(factors: list[Fraction], matrix: FloatArray) -> Fraction:
    """``|v M|^2``."""
    columns = matrix.T.tolist()
    return sum(
        (sum(c * Fraction(x) for c, x in zip(factors, column, strict=True)) ** 2 for column in columns), Fraction()
    )


def root(value: Fraction, up: bool) -> Fraction:
    """The square root of a fraction to 200 bits, downward or upward."""
    if not value:
        return Fraction(0)
    shift = 400 + max(0, value.denominator.bit_length() - value.numerator.bit_length())
    shift += shift % 2
    return Fraction(isqrt(int(value * 2**shift)) + up, 2 ** (shift // 2))
