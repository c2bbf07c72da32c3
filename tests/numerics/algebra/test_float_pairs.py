"""Pairs of floats against fractions: the truth lies within the bound, and what is proven nearest is nearest."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.numerics.algebra import float_pairs as pairs
from fiberscope.numerics.compensated import Twofold
from fiberscope.numerics.points import quotient

SCALES = st.sampled_from([0, 1, -1, 53, -53, 400, -400, 500, -500, 900, -900, 1023, -1022, -1050, -1074])
FLOATS = (
    st.floats(-1e30, 1e30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.builds(lambda x, k: float(np.ldexp(x, k)), st.floats(-1, 1), SCALES)
    | st.builds(lambda x, n: float(x + n * np.spacing(x)), st.sampled_from([1.0, 3.0, 2.0**400]), st.integers(-2, 2))
    | st.integers(-4, 4).map(float)
)
LOWS = st.sampled_from([0.0, 2.0**-54, -(2.0**-53), 2.0**-60, 2.0**-40]) | st.floats(-(2.0**-53), 2.0**-53)
ERRORS = st.sampled_from([0.0, 2.0**-106, 2.0**-80, 2.0**-20, 0.5]) | st.floats(0, 2.0**-100)


def number(high: float, low: float, error: float) -> Twofold:
    """Also pairs whose low part is no rounding of the high one: nothing is assumed about it."""
    return Twofold(np.array([high]), np.array([high * low]), np.array([abs(high) * error]))


NUMBERS = st.builds(number, FLOATS, LOWS, ERRORS)


def ends(x: Twofold) -> tuple[Fraction, Fraction]:
    middle, error = Fraction(float(x.high[0])) + Fraction(float(x.low[0])), Fraction(float(x.error[0]))
    return middle - error, middle + error


@settings(max_examples=300)
@given(NUMBERS, NUMBERS)
def test_sums_products_and_quotients_hold_the_truth(x: Twofold, y: Twofold) -> None:
    with np.errstate(all="ignore"):
        found = [(pairs.plus(x, y), lambda a, b: a + b), (pairs.minus(x, y), lambda a, b: a - b)]
        found += [(pairs.times(x, y), lambda a, b: a * b), (pairs.over(x, y), lambda a, b: a / b)]
    if np.isfinite(found[-1][0].error[0]):
        assert ends(y)[0] > 0
    corners = [(a, b) for a in ends(x) for b in ends(y)]
    for result, truth in found:
        if np.isfinite(result.error[0]):
            low, high = ends(result)
            assert all(low <= truth(a, b) <= high for a, b in corners)


@settings(max_examples=300)
@given(NUMBERS)
def test_what_is_proven_nearest_is_nearest_to_all_that_it_may_be(x: Twofold) -> None:
    with np.errstate(all="ignore"):
        value, sure = pairs.nearest(x)
    if sure[0]:
        for end in ends(x):
            assert quotient(end.numerator, end.denominator) == value[0]


@settings(max_examples=200)
@given(st.integers(1, 2**200), st.integers(1, 2**200), st.integers(-1, 1))
def test_quotients_of_long_integers_are_rounded_as_python_does(p: int, q: int, twin: int) -> None:
    def pair(n: int) -> Twofold:
        high = float(n)
        low = float(n - int(high))
        return Twofold(np.array([high]), np.array([low]), np.array([2.0**-52 * abs(low)]))

    value, sure = pairs.nearest(pairs.over(pair(p), pair(q)))
    if sure[0]:
        assert value[0] == p / q
    half = 2 * q + 1  # half-way between the floats 2 and 2 + 2**-51: (2 + 2**-52) q' / q'
    middle = pairs.over(pair(2**53 * half + half + twin * 2**30), pair(2**52 * half))
    close, sure = pairs.nearest(middle)
    if sure[0]:
        assert close[0] == (2**53 * half + half + twin * 2**30) / (2**52 * half)


def test_bounds_are_small() -> None:
    rng = np.random.default_rng(0)
    high, other = rng.normal(size=(2, 200))
    x, y = (Twofold(v, v * rng.uniform(-1, 1, 200) * 2.0**-54, np.abs(v) * 2.0**-106) for v in (high, np.abs(other)))
    product, quotients = pairs.times(x, y), pairs.over(x, y)
    assert (product.error <= 2.0**-102 * np.abs(product.high)).all()
    assert (quotients.error <= 2.0**-100 * np.abs(quotients.high)).all()
    assert pairs.nearest(quotients)[1].all()


NOTHING = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("bad", NOTHING)
@pytest.mark.parametrize("part", range(3))
def test_what_is_no_number_decides_nothing(bad: float, part: int) -> None:
    parts = [np.array([1.0]), np.array([0.0]), np.array([0.0])]
    parts[part] = np.array([abs(bad) if part == 2 else bad])
    x, one = Twofold(*parts), Twofold.exact(np.array([1.0]))
    with np.errstate(all="ignore"):
        found = [pairs.plus(x, one), pairs.times(x, one), pairs.times(one, x), pairs.over(x, one), pairs.over(one, x)]
        assert all(v.error[0] == np.inf and not pairs.nearest(v)[1][0] for v in found)
        assert not pairs.nearest(x)[1][0]


def test_what_leaves_the_range_decides_nothing() -> None:
    huge, zero = Twofold.exact(np.array([1e308])), Twofold.exact(np.array([0.0]))
    less, tiny = Twofold.exact(np.array([-1.0])), Twofold.exact(np.array([5e-324]))
    with np.errstate(all="ignore"):
        found = [pairs.times(huge, huge), pairs.plus(huge, huge), pairs.over(huge, zero), pairs.over(huge, tiny)]
        found += [pairs.over(huge, less), pairs.over(zero, zero)]
        assert all(v.error[0] == np.inf for v in found)
        assert not pairs.nearest(tiny)[1][0]
        assert not pairs.nearest(zero)[1][0]  # a zero may be a number that vanished
