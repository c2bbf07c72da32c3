"""Numbers with free exponents against fractions, over the whole range of floats."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.numerics.wide import Wide, same_products, ulps_apart

floats = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.one_of(
    floats,
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 15e-324, 2.0**-1022, 2.0**1023, 1.7976931348623157e308]),
    st.integers(-1074, 1023).map(lambda e: 2.0**e),
)


def one(x: float) -> np.ndarray:
    return np.array([x])


@given(numbers, numbers, numbers, numbers)
def test_products_are_compared_as_fractions(a: float, s: float, b: float, t: float) -> None:
    truth = Fraction(a) * Fraction(s) == Fraction(b) * Fraction(t)
    assert bool(same_products(one(a), one(s), one(b), one(t))[0]) == truth


@given(floats, floats, floats)
def test_equal_products_are_found(a: float, s: float, t: float) -> None:
    """``a s = (a s) 1`` where the product is a float, and ``a s != a s'`` for neighbours."""
    assert same_products(one(a), one(s), one(s), one(a)).all()
    product = Fraction(a) * Fraction(s)
    exact = abs(product) < 2**1023 and Fraction(float(product)) == product
    assert bool(same_products(one(a), one(s), one(float(product) if abs(product) < 2**1023 else 0.0), one(1.0))[0]) == (
        exact or product == 0
    )
    if a and np.nextafter(s, t) != s:
        assert not same_products(one(a), one(s), one(a), one(float(np.nextafter(s, t)))).any()


@given(numbers, numbers.filter(bool), numbers.filter(bool))
def test_products_and_quotients_round_twice(a: float, s: float, t: float) -> None:
    found = Wide.of(one(a)) * Wide.of(one(s)) / Wide.of(one(t))
    value = Fraction(float(found.mantissa[0])) * Fraction(2) ** int(found.exponent[0])
    truth = Fraction(a) * Fraction(s) / Fraction(t)
    assert abs(value - truth) <= abs(truth) * Fraction(3, 2**53)


@given(numbers, numbers)
def test_distances_are_relative_everywhere(a: float, b: float) -> None:
    found = ulps_apart(Wide.of(one(a)), Wide.of(one(b)))
    p, q = abs(Fraction(a) - Fraction(b)), max(abs(Fraction(a)), abs(Fraction(b)))
    if p == 0:
        assert found == 0
    elif not a or not b:
        assert found == np.inf
    else:  # an ulp is between 2^-53 and 2^-52 of a number
        assert float(p / q * 2**52) * 0.99 <= found or found > 2**50
        assert found <= float(p / q * 2**53) * 1.01 or found > 2**50


def test_what_is_no_number_is_infinitely_far() -> None:
    nan = Wide(one(np.nan), np.zeros(1, dtype=np.int64))
    assert ulps_apart(nan, nan) == ulps_apart(nan, Wide.of(one(1.0))) == np.inf
