"""Floats with an exponent of their own: products and quotients that neither overflow nor underflow, and exact
comparison of products.

A symmetry multiplies a weight by one scale and divides it by another. In float64 the first step can leave the range
although the result is an ordinary number, so what is compared afterwards is not what the symmetry gives. Here a number
is ``mantissa * 2**exponent`` with ``0.5 <= |mantissa| < 1``, or zero: one rounding in every operation, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.numerics.floats import SPLITTER, BoolArray, FloatArray, IntArray

_FAR = 64
"""Exponents this far apart belong to numbers that are no neighbours; also keeps shifts within the range of floats."""


@dataclass(frozen=True, slots=True, eq=False)
class Wide:
    """Numbers ``mantissa * 2**exponent``; a zero has mantissa 0.

    >>> tiny = Wide.of(np.array([2.0**-600]))
    >>> float((tiny * tiny / tiny).floats()[0]) == 2.0**-600
    True
    """

    mantissa: FloatArray
    exponent: IntArray

    @classmethod
    def of(cls, array: FloatArray) -> Wide:
        """Finite floats, exactly; subnormal ones too."""
        mantissa, exponent = np.frexp(array)
        return cls(np.asarray(mantissa), np.asarray(exponent, dtype=np.int64))

    def __mul__(self, other: Wide) -> Wide:
        mantissa, shift = np.frexp(self.mantissa * other.mantissa)
        return Wide(np.asarray(mantissa), self.exponent + other.exponent + shift)

    def __truediv__(self, other: Wide) -> Wide:
        """The divisor has no zeros."""
        mantissa, shift = np.frexp(self.mantissa / other.mantissa)
        return Wide(np.asarray(mantissa), self.exponent - other.exponent + shift)

    def __getitem__(self, index: Any) -> Wide:
        return Wide(self.mantissa[index], self.exponent[index])

    def floats(self) -> FloatArray:
        """As floats: infinite above their range, rounded once more where they are subnormal, zero below."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.ldexp(self.mantissa, np.clip(self.exponent, -5000, 5000)))


def ulps_apart(a: Wide, b: Wide) -> float:
    """Largest distance of two entries, in units in the last place of the larger one, whatever its exponent.

    A zero against a number that is none is infinitely far, and so is whatever is not a number.

    >>> one = np.array([1.0])
    >>> ulps_apart(Wide.of(one), Wide.of(np.nextafter(one, 2.0))), ulps_apart(Wide.of(one), Wide.of(0 * one))
    (1.0, inf)
    """
    if not a.mantissa.size:
        return 0.0
    shift = np.clip(a.exponent - b.exponent, -_FAR, _FAR)
    left, right = np.ldexp(a.mantissa, shift), b.mantissa  # both in units of the exponent of b
    gap = np.abs(left - right)
    unit = np.spacing(np.maximum(np.abs(left), np.abs(right)))
    mixed = (a.mantissa == 0) != (b.mantissa == 0)
    with np.errstate(invalid="ignore", over="ignore"):
        ulps = np.where((a.mantissa == 0) & (b.mantissa == 0), 0.0, np.where(mixed, np.inf, gap / unit))
    worst = float(ulps.max())
    return worst if worst >= 0 else np.inf  # not a number: no distance


def same_products(a: FloatArray, s: FloatArray, b: FloatArray, t: FloatArray) -> BoolArray:
    """Where ``a * s == b * t`` exactly, for finite floats that broadcast; no product is formed in float64.

    >>> x = np.array([3.0, 2.0**-1074])
    >>> same_products(x, np.array([2.0**900, 0.5]), x * 2.0, np.array([2.0**899, 0.125])).tolist()
    [True, False]
    """
    (high, low, e), (top, rest, f) = _product(a, s), _product(b, t)
    # the exponent of a zero means nothing
    return np.asarray((high == top) & (low == rest) & ((e == f) | (high == 0)))


def _product(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """``a * b`` as ``(high + low) * 2**exponent`` exactly, in one way only: the mantissa of ``high`` is normalised.

    The mantissas are below 1 and not below 1/2, so splitting them (T. J. Dekker, A floating-point technique for
    extending the available precision, Numer. Math. 18, 1971) neither overflows nor underflows.
    """
    (x, e), (y, f) = np.frexp(a), np.frexp(b)
    p = x * y
    c, d = SPLITTER * x, SPLITTER * y
    first, top = c - (c - x), d - (d - y)
    last, bottom = x - first, y - top
    error = last * bottom - (((p - first * top) - last * top) - first * bottom)
    high, shift = np.frexp(p)
    exponent = np.asarray(e, dtype=np.int64) + f + shift
    return np.asarray(high), np.asarray(np.ldexp(error, -shift)), exponent
