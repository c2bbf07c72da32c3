"""Sums, products and quotients of pairs of floats, entry by entry, with a bound of every error.

Numbers are :class:`~fiberscope.numerics.compensated.Twofold`: ``high + low``, off by at most ``error``. A sum of two
floats is a pair of floats exactly, and a product of two floats is up to underflow (T. J. Dekker, A floating-point
technique for extending the available precision, Numer. Math. 18, 1971). So what is lost is the rounding of the low
parts, which is counted from these parts as they are: nothing is assumed about how small they are. What underflows in
an operation is below ``TINY``. What leaves the range of floats, or is NaN, has an infinite error.
"""

from __future__ import annotations

import numpy as np

from fiberscope.numerics.compensated import Twofold
from fiberscope.numerics.floats import ENTRY_FLOOR, SPLITTER, TINY, BoolArray, FloatArray, U, round_up

Pair = tuple[FloatArray, FloatArray]


def sum_of(a: FloatArray, b: FloatArray) -> Pair:
    """``a + b`` as its rounded value and what that lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def product_of(a: FloatArray, b: FloatArray) -> Pair:
    """``a b`` as its rounded value and what that lost, up to what underflows; NaN above ``2**996``."""
    p = a * b
    c, d = SPLITTER * a, SPLITTER * b
    first, top = c - (c - a), d - (d - b)
    last, bottom = a - first, b - top
    return p, last * bottom - (((p - first * top) - last * top) - first * bottom)


def times(x: Twofold, y: Twofold) -> Twofold:
    """The product.

    >>> third = Twofold(np.array([1 / 3]), np.array([2.0**-54 / 3]), np.array([2.0**-107]))
    >>> found = times(third, Twofold.exact(np.array([3.0])))
    >>> bool(abs(found.high[0] + found.low[0] - 1.0) <= found.error[0] < 2.0**-98)
    True
    """
    p, lost = product_of(x.high, y.high)
    first, second = x.high * y.low, x.low * y.high
    high, low = sum_of(p, lost + (first + second))
    # two products and two sums were rounded, and the product of the low parts is left out
    slip = 4 * U * (np.abs(lost) + np.abs(first) + np.abs(second)) + np.abs(x.low * y.low) + 32 * TINY
    own = x.error * (_size(y) + y.error) + y.error * _size(x)
    return _checked(high, low, slip + own)


def plus(x: Twofold, y: Twofold) -> Twofold:
    """The sum.

    >>> one, less = Twofold.exact(np.array([1.0])), Twofold.exact(np.array([2.0**-80]))
    >>> float(plus(one, less).low[0]) == 2.0**-80
    True
    """
    total, lost = sum_of(x.high, y.high)
    high, low = sum_of(total, lost + (x.low + y.low))
    slip = 4 * U * (np.abs(lost) + np.abs(x.low) + np.abs(y.low))  # two sums were rounded
    return _checked(high, low, slip + x.error + y.error)


def minus(x: Twofold, y: Twofold) -> Twofold:
    """The difference."""
    return plus(x, Twofold(-y.high, -y.low, y.error))


def over(x: Twofold, w: Twofold) -> Twofold:
    """The quotient; its error is infinite where ``w`` is not known to be positive.

    A quotient ``q`` is wrong by ``(x - q w) / w``, whatever it is, so the remainder is the bound of its error.

    >>> third = over(Twofold.exact(np.array([1.0])), Twofold.exact(np.array([3.0])))
    >>> float(third.high[0]) == 1 / 3, bool(third.error[0] < 2.0**-100)
    (True, True)
    """
    least = w.high * (1 - 4 * U) - round_up(np.abs(w.low) + w.error, 4)  # less by more than both roundings add
    first = x.high / w.high
    rest = minus(x, times(Twofold.exact(first), w))
    second = rest.high / w.high
    rest = minus(rest, times(Twofold.exact(second), w))
    high, low = sum_of(first, second)
    return _checked(high, low, np.where(least > 0, (_size(rest) + rest.error) / least, np.inf))


def nearest(x: Twofold) -> tuple[FloatArray, BoolArray]:
    """Floats, and where they are proven to be those nearest to ``x``; never proven for subnormal ones.

    >>> value, sure = nearest(Twofold(np.array([1.0, 1.0]), np.array([2.0**-55, 2.0**-53]), np.full(2, 2.0**-100)))
    >>> value.tolist(), sure.tolist()  # half-way to the next float nothing is proven
    ([1.0, 1.0], [True, False])
    """
    value, rest = sum_of(x.high, x.low)
    size = np.abs(value)
    half = 0.5 * (size - np.nextafter(size, 0.0))  # below a power of two floats are denser
    return value, (round_up(np.abs(rest) + x.error, 4) < half) & (size > ENTRY_FLOOR) & (size < np.inf)


def _size(x: Twofold) -> FloatArray:
    return np.asarray(np.abs(x.high) + np.abs(x.low))


def _checked(high: FloatArray, low: FloatArray, error: FloatArray) -> Twofold:
    error = round_up(error, 16)
    return Twofold(high, low, np.where(np.isfinite(high + low) & np.isfinite(error), error, np.inf))
