"""Arithmetic modulo a random prime: residues of floats, products and matrix products.

A residue array is a ``uint64`` array with entries in ``[0, p)``; the compiled loops stand in ``montgomery``. Primes
come in three sizes, :data:`WIDE`, :data:`MIDDLE` and :data:`SMALL`. The larger the prime, the less likely it is that
it divides a given number; modulo a smaller one large products are made by BLAS: a residue below ``2^23`` is one float,
a residue below ``2^46`` two, balanced around zero, and every inner product of up to 512 or 256 terms is an integer
below ``2^53``, which floats hold exactly. So a small prime costs one product of floats, a middle one four, and nothing
is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import log
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from fiberscope.errors import InputError
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.montgomery import (
    BLOCK,
    balance_kernel,
    combine_kernel,
    combine_small_kernel,
    multiply_kernel,
    outer_kernel,
    residues_kernel,
    scale_kernel,
    scatter_kernel,
    sparse_kernel,
    split_kernel,
    update,
)

Residues = NDArray[np.uint64]

WIDE, MIDDLE, SMALL = 61, 46, 23
"""Bits of primes: they are drawn from ``(2^(bits - 1), 2^bits)``."""

_TERMS = {MIDDLE: 256, SMALL: 512}
"""Terms of an inner product of floats: ``512 * 2^22 * 2^22 = 2^53``, and half as many where two products are added."""

_BY_FLOATS = 1 << 16
"""Products of residues from which on a matrix product is worth the detour through floats."""

_TILE = (256, 1024)
"""Rows and columns of a product that are made at once, so that its parts stay in the cache."""

_MIN_EXPONENT = -1074  # the smallest float64 is 2^-1074


# --- the field -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PrimeField:
    """A prime of one of the three sizes with its Montgomery constants; see ``field_of``."""

    prime: int
    bits: int
    constants: tuple[np.uint64, np.uint64, np.uint64, np.uint64] = field(repr=False)
    """``(p, 1/p mod 2^64, 2^64 mod p, 2^128 mod p)``."""
    powers: Residues = field(repr=False)
    """``2^(k - 1074 + 64) mod p`` for ``k = 0, ..., 2045``: every exponent of a float64."""

    @property
    def p(self) -> np.uint64:
        """The prime as a machine word."""
        return self.constants[0]


@lru_cache(maxsize=64)
def field_of(prime: int) -> PrimeField:
    """The constants for one prime, remembered; ``InputError`` if it is no prime of the right size.

    >>> field_of(2**61 - 1)
    PrimeField(prime=2305843009213693951, bits=61)
    """
    p = int(prime)
    bits = p.bit_length()
    if bits not in (WIDE, MIDDLE, SMALL) or not flint.fmpz(p).is_prime():
        sizes = ", ".join(str(size) for size in (SMALL, MIDDLE, WIDE))
        raise InputError(f"expected a prime of one of {sizes} bits, got {prime}")
    powers, value = [], pow(2, _MIN_EXPONENT + 64, p)
    for _ in range(2046):
        powers.append(value)
        value = 2 * value % p
    table = np.array(powers, np.uint64)
    table.flags.writeable = False
    constants = (np.uint64(p), np.uint64(pow(p, -1, 2**64)), np.uint64(2**64 % p), np.uint64(2**128 % p))
    return PrimeField(p, bits, constants, table)


def random_primes(count: int, seed: int | np.random.Generator = 0, bits: int = WIDE) -> tuple[int, ...]:
    """Independent primes, each uniform among the primes in ``(2^(bits - 1), 2^bits)``.

    Odd candidates are drawn until one is prime, so that no prime is favoured (the *next* prime after a random
    number would favour primes behind large gaps).

    >>> primes = random_primes(2, seed=1)
    >>> [2**60 < p < 2**61 for p in primes], primes == random_primes(2, seed=1)
    ([True, True], True)
    """
    rng = np.random.default_rng(seed)
    primes: list[int] = []
    while len(primes) < count:
        candidate = 2 ** (bits - 1) + 2 * int(rng.integers(0, 2 ** (bits - 2))) + 1
        if flint.fmpz(candidate).is_prime():
            primes.append(candidate)
    return tuple(primes)


def prime_count(bits: int) -> int:
    """A lower bound of the number of primes in ``(2^(bits - 1), 2^bits)``.

    By Dusart (Estimates of some functions over primes without R.H., 2010) the count ``pi(x)`` lies between
    ``x/(log x - 1)`` and ``x/(log x - 1.1)`` for ``x >= 60184``. The last factor covers the rounding of logarithms.

    >>> prime_count(23), prime_count(61) > 27 * 10**15
    (264963, True)
    """
    low, high = 2.0 ** (bits - 1), 2.0**bits
    return int((high / (log(high) - 1) - low / (log(low) - 1.1)) * (1 - 2.0**-30))


# --- public functions ------------------------------------------------------------------------------------


def residues(array: NDArray[np.floating[Any]], prime: int) -> Residues:
    """Residues of floats, each taken as the exact dyadic rational ``mantissa 2^exponent``.

    >>> p = 2**61 - 1
    >>> r = residues(np.array([3.0, -1.0, 0.5]), p)
    >>> [int(v) for v in r] == [3, p - 1, (p + 1) // 2]
    True
    """
    f = field_of(prime)
    values = np.ascontiguousarray(array, dtype=np.float64)
    out = np.empty(values.shape, np.uint64)
    if not residues_kernel(values.reshape(-1).view(np.uint64), f.powers, f.constants, out.reshape(-1)):
        raise InputError("expected finite numbers, got NaN or infinity")
    return out


def residues_of_integers(array: Any, prime: int, exponent: int = 0) -> Residues:
    """Residues of ``array * 2^exponent`` for integers of any size (an object array or an integer dtype).

    >>> residues_of_integers([[2**200, -1]], 2**61 - 1, exponent=-200)[0, 0]
    np.uint64(1)
    """
    f = field_of(prime)
    integers = np.asarray(array)
    if integers.dtype.kind not in "Oiu":
        raise InputError(f"expected an array of integers, got dtype {integers.dtype}")
    # numpy walks over the objects in C; Python's % is already the representative in [0, p)
    out = np.mod(integers.astype(object), f.prime).astype(np.uint64)
    return scale_mod(out, pow(2, exponent, f.prime), prime) if exponent else out


def checked(array: Residues, name: str, ndim: int | None = None) -> Residues:
    """A contiguous array of residues, or :class:`InputError`."""
    if array.dtype != np.uint64:
        raise InputError(f"expected residues (uint64) for {name}, got dtype {array.dtype}")
    if ndim is not None and array.ndim != ndim:
        raise InputError(f"expected {name} with {ndim} axes, got shape {array.shape}")
    return np.ascontiguousarray(array)


def scale_mod(a: Residues, factor: int, prime: int) -> Residues:
    """``factor * a`` modulo p for one integer factor.

    >>> scale_mod(np.array([5, 7], np.uint64), -1, 2**61 - 1) + np.array([5, 7], np.uint64)
    array([2305843009213693951, 2305843009213693951], dtype=uint64)
    """
    f, a = field_of(prime), checked(a, "a")
    out = np.empty_like(a)
    form = np.uint64(int(factor) * 2**64 % f.prime)
    scale_kernel(a.reshape(-1), form, f.constants, out.reshape(-1))
    return out


def add_mod(a: Residues, b: Residues, prime: int) -> Residues:
    """Entrywise sum modulo p, with broadcasting (plain numpy: two residues add up to less than 2^62)."""
    p = field_of(prime).p
    total = a + b
    return np.where(total >= p, total - p, total)


def multiply_mod(a: Residues, b: Residues, prime: int) -> Residues:
    """Entrywise product modulo p, with broadcasting.

    >>> multiply_mod(np.array([2**60], np.uint64), np.array([2, 3], np.uint64), 2**61 - 1)
    array([                  1, 1152921504606846977], dtype=uint64)
    """
    f = field_of(prime)
    left, right = checked(a, "a"), checked(b, "b")
    if left.shape != right.shape:
        left, right = (np.array(x, order="C") for x in np.broadcast_arrays(left, right))
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    out = np.empty(left.shape, np.uint64)
    multiply_kernel(left.reshape(-1), right.reshape(-1), f.constants, out.reshape(-1))
    return out


def outer_mod(a: Residues, b: Residues, prime: int) -> Residues:
    """Row-wise outer products modulo p: ``(k, m)`` and ``(k, n)`` give ``(k, m, n)``.

    The derivative of a layer's weights is of this form: backward signal times incoming activation.

    >>> outer_mod(np.array([[1, 2]], np.uint64), np.array([[3, 4]], np.uint64), 2**61 - 1).tolist()
    [[[3, 4], [6, 8]]]
    """
    f, a, b = field_of(prime), checked(a, "a", 2), checked(b, "b", 2)
    if a.shape[0] != b.shape[0]:
        raise InputError(f"expected as many rows in a as in b, got {a.shape} and {b.shape}")
    out = np.empty((a.shape[0], a.shape[1], b.shape[1]), np.uint64)
    outer_kernel(a, b, f.constants, out)
    return out


def sparse_mod(rows: Residues, matrix: Any, forms: Residues, prime: int) -> Residues:
    """Rows times the transpose of a sparse matrix in compressed rows, modulo p: ``(m, k)`` gives ``(m, n)``.

    ``forms`` are the residues of the entries times ``2^64``, so that a product is a product and a reduction.

    >>> from scipy import sparse as sp
    >>> matrix = sp.csr_array(np.array([[0.0, 2.0], [0.0, 0.0], [3.0, 1.0]]))
    >>> forms = scale_mod(residues(matrix.data, 2**61 - 1), 2**64, 2**61 - 1)
    >>> sparse_mod(np.array([[5, 7]], np.uint64), matrix, forms, 2**61 - 1).tolist()
    [[14, 0, 22]]
    """
    out = np.empty((len(rows), matrix.shape[0]), np.uint64)
    table = np.ascontiguousarray(checked(rows, "rows", 2))
    sparse_kernel(table, matrix.indptr, matrix.indices, forms, field_of(prime).constants, out)
    return out


def scatter_mod(out: Residues, rows: Residues, places: IntArray, factors: IntArray, prime: int) -> None:
    """``out[places[i, t]] += factors[i, t] * rows[i]`` modulo p, in place; a negative place is left out.

    >>> out = np.zeros((2, 1), np.uint64)
    >>> scatter_mod(out, np.array([[5]], np.uint64), np.array([[1, -1]]), np.array([[3, 7]]), 2**61 - 1)
    >>> out.tolist()
    [[0], [15]]
    """
    f = field_of(prime)
    forms = scale_mod(residues_of_integers(factors, prime), 2**64, prime)
    scatter_kernel(out, checked(rows, "rows", 2), places, forms, f.constants)


def matmul_mod(a: Residues, b: Residues, prime: int) -> Residues:
    """Matrix product modulo p: ``(m, k)`` times ``(k, n)``.

    >>> a = residues_of_integers([[1, -1], [0, 2]], 2**61 - 1)
    >>> matmul_mod(a, a, 2**61 - 1) == residues_of_integers([[1, -3], [0, 4]], 2**61 - 1)
    array([[ True,  True],
           [ True,  True]])
    """
    f, a, b = field_of(prime), checked(a, "a", 2), checked(b, "b", 2)
    if a.shape[1] != b.shape[0]:
        raise InputError(f"expected matching inner sizes, got shapes {a.shape} and {b.shape}")
    out = np.zeros((a.shape[0], b.shape[1]), np.uint64)
    add_product(out, a, b, f)
    scale_kernel(out.reshape(-1), f.constants[3], f.constants, out.reshape(-1))
    return out


def add_product(c: Residues, a: Residues, b: Residues, f: PrimeField) -> None:
    """``c += a b / 2^64`` modulo p, in place: the product of matrices of Montgomery forms."""
    inner = a.shape[1]
    if f.bits == WIDE or a.shape[0] * inner * b.shape[1] < _BY_FLOATS:
        left, right = np.ascontiguousarray(a), np.ascontiguousarray(b.T)
        for first in range(0, inner, BLOCK):
            update(c, left, right, (first, min(first + BLOCK, inner)), f.constants)
        return
    step = _TERMS[f.bits]
    for first in range(0, inner, step):
        parts = slice(first, first + step)
        _add_by_floats(c, a[:, parts], b[parts], f)


def _add_by_floats(c: Residues, a: Residues, b: Residues, f: PrimeField) -> None:
    """As :func:`add_product` for few enough terms, tile by tile."""
    right = _floats(b, f)
    lifts = 2**53 * (2**46 + 2**23 + 1) if f.bits == MIDDLE else 2**53
    offset = np.uint64(-lifts * pow(2, -64, f.prime) % f.prime)
    for top in range(0, len(a), _TILE[0]):
        rows = slice(top, top + _TILE[0])
        left = _floats(a[rows], f)
        for start in range(0, b.shape[1], _TILE[1]):
            columns = slice(start, start + _TILE[1])
            tile = c[rows, columns]
            if f.bits == SMALL:
                combine_small_kernel(tile, left[0] @ right[0][:, columns], offset, f.constants)
                continue
            (high, low), (over, under) = left, (part[:, columns] for part in right)
            middle = high @ under
            middle += low @ over
            combine_kernel(tile, (high @ over, middle, low @ under), offset, f.constants)


def _floats(a: Residues, f: PrimeField) -> tuple[FloatArray, ...]:
    """Residues as balanced integers in floats: one array, or the high and the low part."""
    half = np.uint64(f.prime // 2)
    if f.bits == SMALL:
        out = np.empty(a.shape)
        balance_kernel(a, half, f.p, out)
        return (out,)
    high, low = np.empty(a.shape), np.empty(a.shape)
    split_kernel(a, half, f.p, high, low)
    return high, low
