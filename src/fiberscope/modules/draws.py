"""Random numbers that belong to a name: the same in every process, on every machine and in every version.

A stream is the counter-based generator Philox under a key that is the SHA-256 of what it is for, so nothing depends on
Python's randomised ``hash``, on a global state or on the order of calls. Bits become numbers by exact operations and by
the correctly rounded ``+ - * /`` and square root only; even the logarithm is made of these, because libraries differ
in the last bit of theirs.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from fiberscope.numerics.floats import BoolArray, FloatArray

_LN2 = 0.6931471805599453
_TERMS = 21
"""Odd powers of the series: with ``|s| <= 0.172`` what is left out is below 1e-33."""


def stream(seed: int, *names: str) -> np.random.Philox:
    """The generator that belongs to a seed and a list of names."""
    text = "\x00".join(("fiberscope", str(int(seed)), *names))
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16], "little"))


def raw(source: np.random.Philox, count: int) -> npt.NDArray[np.uint64]:
    """The next ``count`` words of 64 random bits."""
    return np.asarray(source.random_raw(count), dtype=np.uint64)


def uniform(source: np.random.Philox, count: int) -> FloatArray:
    """Numbers in ``[0, 1)``, multiples of ``2^-53``.

    >>> bool((uniform(stream(0, "x"), 5) < 1).all())
    True
    """
    return np.asarray((raw(source, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def normal(source: np.random.Philox, count: int) -> FloatArray:
    """Standard normal numbers by the polar method (Marsaglia and Bray 1964).

    A longer draw begins with the shorter one.

    >>> normal(stream(0, "layers.0.weight", "F"), 2)
    array([ 0.00140735, -0.4368265 ])
    """
    found: list[FloatArray] = []
    missing = count
    while missing > 0:
        pairs = missing * 2 // 3 + 16  # a pair survives with probability pi/4 and gives two numbers
        u = 2.0 * uniform(source, 2 * pairs).reshape(pairs, 2) - 1.0
        square = u[:, 0] * u[:, 0] + u[:, 1] * u[:, 1]
        kept = (square < 1.0) & (square > 0.0)
        square = square[kept]
        found.append((u[kept] * np.sqrt(-2.0 * _log(square) / square)[:, None]).ravel())
        missing -= len(found[-1])
    return np.concatenate(found)[:count] if found else np.zeros(0)


def lowest(source: np.random.Philox, rows: int, columns: int, count: int) -> BoolArray:
    """In each of ``rows`` rows, a random set of ``count`` of the ``columns`` places, as a mask.

    Sets of the same stream are nested: a larger ``count`` only adds places.

    >>> lowest(stream(0, "mask"), 2, 4, 1).sum(axis=1)
    array([1, 1])
    """
    order = np.argsort(raw(source, rows * columns).reshape(rows, columns), axis=1, kind="stable")
    mask = np.zeros((rows, columns), dtype=np.bool_)
    np.put_along_axis(mask, order[:, :count], True, axis=1)
    return mask


def _log(x: FloatArray) -> FloatArray:
    """Natural logarithm of positive numbers to about an ulp: ``x = m 2^e``, ``log m = 2 artanh((m-1) / (m+1))``."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < 0.7071067811865476
    mantissa = np.where(low, 2.0 * mantissa, mantissa)
    exponent = exponent - low
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    tail = np.zeros_like(s)
    for odd in range(2 * _TERMS + 1, 1, -2):
        tail = (tail + 1.0 / odd) * square
    return np.asarray(exponent * _LN2 + 2.0 * (s + s * tail))
