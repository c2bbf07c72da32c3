"""Arrays of exact numbers: floats as long as every entry is one, fractions where one is not."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, log2
from typing import Any

import flint
import numpy as np

from fiberscope.numerics.floats import FloatArray, IntArray, ObjectArray
from fiberscope.numerics.points import NO_EXPONENT, odd_parts, row_bits, to_dyadic

_TO_FRACTION = np.frompyfunc(Fraction, 1, 1)
_SIGN = np.frompyfunc(lambda f: (f.numerator > 0) - (f.numerator < 0), 1, 1)


def is_float(array: Any) -> bool:
    """Whether an exact array is held as floats."""
    return bool(array.dtype != object)


def fractions(array: Any) -> ObjectArray:
    """The array with its entries as fractions."""
    return array if not is_float(array) else np.asarray(_TO_FRACTION(array), dtype=object).reshape(array.shape)


def signs(array: Any) -> IntArray:
    """-1, 0 or 1 for every entry."""
    return np.asarray(np.sign(array) if is_float(array) else _SIGN(array), dtype=np.int64)


def settled(array: Any) -> Any:
    """The array as floats if that loses nothing."""
    if is_float(array):
        return array
    rounded = nearest(array)
    if not np.isfinite(rounded).all():
        return array
    same = all(Fraction(r) == f for r, f in zip(rounded.ravel().tolist(), array.ravel(), strict=True))
    return rounded if same else array


def nearest(array: Any) -> FloatArray:
    """Every entry rounded to the nearest float; infinite beyond the range of floats."""
    if is_float(array):
        return np.asarray(array, dtype=np.float64)
    return np.array([_float(f) for f in array.ravel()], dtype=np.float64).reshape(array.shape)


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def product(a: Any, b: Any) -> Any:
    """``a @ b`` exactly, for matrices."""
    shape = (a.shape[0], b.shape[1])
    if not a.size or not b.size:
        return np.zeros(shape)
    if is_float(a) and is_float(b):
        bits = int(row_bits(a.reshape(1, -1))[0]) + int(row_bits(b.reshape(1, -1))[0]) + ceil(log2(a.shape[1] + 1))
        spread = [np.abs(x[x != 0]).min(initial=1.0) for x in (a, b)]
        if bits <= 53 and spread[0] * spread[1] > 2.0**-900:
            with np.errstate(over="ignore", invalid="ignore"):
                short = a @ b
            if np.isfinite(short).all():
                return short
        (left, e), (right, f) = to_dyadic(a), to_dyadic(b)
        found = flint.fmpz_mat(*a.shape, left.ravel().tolist()) * flint.fmpz_mat(*b.shape, right.ravel().tolist())
        unit = Fraction(2) ** (e + f)
        values = np.array([int(v) * unit for v in found.entries()], dtype=object)
        return settled(values.reshape(shape))
    return settled(np.asarray(fractions(a) @ fractions(b), dtype=object))


def total(*arrays: Any) -> Any:
    """The sum of arrays of one shape, exactly."""
    filled = [a for a in arrays if a.size and a.any()]
    if len(filled) <= 1:
        return filled[0] if filled else arrays[0]
    if len(filled) == 2 and all(map(is_float, filled)):
        short = _float_sum(*filled)
        if short is not None:
            return short
    return settled(np.asarray(sum((fractions(a) for a in filled[1:]), start=fractions(filled[0])), dtype=object))


def scaled(array: Any, factor: Fraction) -> Any:
    """``factor * array``, exactly."""
    if factor == 1:
        return array
    if is_float(array):
        short = _float_multiple(array, factor)
        if short is not None:
            return short
    return settled(np.asarray(fractions(array) * factor, dtype=object))


def _float_sum(a: FloatArray, b: FloatArray) -> FloatArray | None:
    """``a + b`` if no entry is rounded: the error of a sum of floats is a float, and here it is zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = a + b + 0.0  # one zero
        part = found - a
        exact = (a - (found - part)) + (b - part) == 0
    return found if exact.all() and np.isfinite(found).all() else None


def _float_multiple(array: FloatArray, factor: Fraction) -> FloatArray | None:
    """``factor * array`` if every entry is known to be a float: the odd parts have no more than 53 bits together."""
    try:
        number = float(factor)
    except OverflowError:
        return None
    if Fraction(number) != factor:
        return None
    odd, exponents = odd_parts(array)
    (unit,), (shift,) = odd_parts(np.array([number]))
    most = int(np.abs(odd).max(initial=0)).bit_length() + int(abs(unit)).bit_length()
    lowest = int(exponents.min(initial=NO_EXPONENT)) + int(shift)
    with np.errstate(over="ignore"):
        found = array * number + 0.0
    return found if most <= 53 and lowest >= -1074 and np.isfinite(found).all() else None


def joined(parts: list[Any], axis: int) -> Any:
    """The parts side by side; fractions if one of them is."""
    if all(is_float(p) for p in parts):
        return np.concatenate(parts, axis=axis)
    return np.concatenate([fractions(p) for p in parts], axis=axis)
