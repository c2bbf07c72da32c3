"""Arithmetic modulo a random 61-bit prime: residues of floats, products, and the rank, all compiled.

A residue array is a ``uint64`` array with entries in ``[0, p)``. Products are 64 x 64 -> 128 bits, reduced by
Montgomery's method (P. L. Montgomery, Modular multiplication without trial division, Math. Comp. 44, 1985)
with the constant ``2^64``. Primes lie in ``(2^60, 2^61)``: then 64 products fit into 128 bits, so an inner
product of length 64 needs one reduction only.

Kernels take the constants of the field as one tuple ``(p, 1/p mod 2^64, 2^64 mod p, 2^128 mod p)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import flint
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from fiberscope.errors import InputError
from fiberscope.run import ENDLESS, Run

Residues = NDArray[np.uint64]

LOW_BIT = 60
"""Primes are drawn from ``(2^LOW_BIT, 2^(LOW_BIT + 1))``."""

PRIME_COUNT = 27 * 10**15
"""A lower bound of the number of primes in that interval.

By Dusart (Estimates of some functions over primes without R.H., 2010) the count ``pi(x)`` lies between
``x/(log x - 1)`` and ``x/(log x - 1.1)`` for ``x >= 60184``, so the number
exceeds ``2^61/41.283 - 2^60/40.488 > 2.73e16``.
"""

_BLOCK = 64  # products of two residues whose sum fits into 128 bits; also the panel width of the elimination
_MIN_EXPONENT = -1074  # the smallest float64 is 2^-1074


# --- 64 x 64 -> 128 bits ---------------------------------------------------------------------------------


@intrinsic
def _mulhi(typingctx: Any, a: Any, b: Any) -> Any:
    """High 64 bits of the product of two uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def _mul_add(typingctx: Any, high: Any, low: Any, a: Any, b: Any) -> Any:
    """``(high, low) + a b`` as a pair of uint64, modulo 2^128."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        shift = ir.Constant(wide, 64)
        total = builder.or_(builder.shl(builder.zext(args[0], wide), shift), builder.zext(args[1], wide))
        product = builder.mul(builder.zext(args[2], wide), builder.zext(args[3], wide))
        total = builder.add(total, product)
        parts = [builder.trunc(builder.lshr(total, shift), word), builder.trunc(total, word)]
        return context.make_tuple(builder, signature.return_type, parts)

    u = types.uint64
    return types.UniTuple(u, 2)(u, u, u, u), codegen


@numba.njit(cache=True, nogil=True, inline="always")
def _reduce(high: Any, low: Any, p: Any, inverse: Any) -> Any:
    """``(2^64 high + low) / 2^64`` modulo p, for ``high < p``; ``inverse`` is ``1/p`` modulo 2^64."""
    take = _mulhi(low * inverse, p)
    return high - take if high >= take else high - take + p


@numba.njit(cache=True, nogil=True, inline="always")
def _reduce_wide(high: Any, low: Any, p: Any, inverse: Any) -> Any:
    """As ``_reduce`` for any ``high``, which four conditional subtractions bring below p > 2^60."""
    for shift in (3, 2, 1, 0):
        multiple = p << np.uint64(shift)
        if high >= multiple:
            high -= multiple
    return _reduce(high, low, p, inverse)


@numba.njit(cache=True, nogil=True, inline="always")
def _product(a: Any, b: Any, p: Any, inverse: Any) -> Any:
    """Montgomery product ``a b / 2^64`` modulo p."""
    return _reduce(_mulhi(a, b), a * b, p, inverse)


@numba.njit(cache=True, nogil=True, inline="always")
def _sum(a: Any, b: Any, p: Any) -> Any:
    total = a + b
    return total - p if total >= p else total


# --- kernels ---------------------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True)
def _residues_kernel(bits: Any, powers: Any, constants: Any, out: Any) -> bool:
    """Residues of floats given by their bit patterns; ``powers[k]`` is ``2^(k - 1074 + 64)`` modulo p."""
    p, inverse, _, _ = constants
    for i in range(bits.size):
        word = bits[i]
        exponent = (word >> np.uint64(52)) & np.uint64(0x7FF)
        mantissa = word & np.uint64(0xFFFFFFFFFFFFF)
        if exponent == np.uint64(0x7FF):
            return False
        if exponent > np.uint64(0):
            mantissa |= np.uint64(1) << np.uint64(52)
            exponent -= np.uint64(1)
        value = _product(mantissa, powers[exponent], p, inverse)
        if (word >> np.uint64(63)) != np.uint64(0) and value != np.uint64(0):
            value = p - value
        out[i] = value
    return True


@numba.njit(cache=True, nogil=True)
def _scale_kernel(a: Any, factor: Any, constants: Any, out: Any) -> None:
    p, inverse, _, _ = constants
    for i in range(a.size):
        out[i] = _product(a[i], factor, p, inverse)


@numba.njit(cache=True, nogil=True)
def _multiply_kernel(a: Any, b: Any, constants: Any, out: Any) -> None:
    p, inverse, _, square = constants
    for i in range(a.size):
        out[i] = _product(_product(a[i], square, p, inverse), b[i], p, inverse)


@numba.njit(cache=True, nogil=True)
def _outer_kernel(a: Any, b: Any, constants: Any, out: Any) -> None:
    p, inverse, _, square = constants
    for k in range(a.shape[0]):
        for i in range(a.shape[1]):
            factor = _product(a[k, i], square, p, inverse)
            for j in range(b.shape[1]):
                out[k, i, j] = _product(factor, b[k, j], p, inverse)


@numba.njit(cache=True, nogil=True)
def _update(c: Any, left: Any, right: Any, span: Any, constants: Any) -> None:
    """``c[i, j] += sum left[i, k] right[j, k] / 2^64`` over k in a span of at most 64, in 2 x 2 tiles."""
    p, inverse, _, _ = constants
    first, last = span
    zero = np.uint64(0)
    rows, columns = c.shape
    for i in range(0, rows - 1, 2):
        for j in range(0, columns - 1, 2):
            h00, l00, h01, l01 = zero, zero, zero, zero
            h10, l10, h11, l11 = zero, zero, zero, zero
            for k in range(first, last):
                a0, a1, b0, b1 = left[i, k], left[i + 1, k], right[j, k], right[j + 1, k]
                h00, l00 = _mul_add(h00, l00, a0, b0)
                h01, l01 = _mul_add(h01, l01, a0, b1)
                h10, l10 = _mul_add(h10, l10, a1, b0)
                h11, l11 = _mul_add(h11, l11, a1, b1)
            c[i, j] = _sum(c[i, j], _reduce_wide(h00, l00, p, inverse), p)
            c[i, j + 1] = _sum(c[i, j + 1], _reduce_wide(h01, l01, p, inverse), p)
            c[i + 1, j] = _sum(c[i + 1, j], _reduce_wide(h10, l10, p, inverse), p)
            c[i + 1, j + 1] = _sum(c[i + 1, j + 1], _reduce_wide(h11, l11, p, inverse), p)
    for i in range(rows):  # the odd row and the odd column
        start = columns & ~1 if i < (rows & ~1) else 0
        for j in range(start, columns):
            high, low = zero, zero
            for k in range(first, last):
                high, low = _mul_add(high, low, left[i, k], right[j, k])
            c[i, j] = _sum(c[i, j], _reduce_wide(high, low, p, inverse), p)


@numba.njit(cache=True, nogil=True)
def _matmul_kernel(a: Any, b_transposed: Any, constants: Any, out: Any) -> None:
    p, inverse, _, square = constants
    for first in range(0, a.shape[1], _BLOCK):
        _update(out, a, b_transposed, (first, min(first + _BLOCK, a.shape[1])), constants)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = _product(out[i, j], square, p, inverse)


@numba.njit(cache=True, nogil=True)
def _invert(a: Any, constants: Any) -> Any:
    """Montgomery inverse by Fermat: ``a^(p-2)`` in Montgomery form."""
    p, inverse, one, _ = constants
    result, base, exponent = one, a, p - np.uint64(2)
    while exponent > np.uint64(0):
        if exponent & np.uint64(1):
            result = _product(result, base, p, inverse)
        base = _product(base, base, p, inverse)
        exponent >>= np.uint64(1)
    return result


@numba.njit(cache=True, nogil=True)
def _panel(m: Any, lower: Any, pivots: Any, corner: Any, constants: Any) -> Any:
    """Eliminate in columns ``left:right`` from row ``top`` on, where ``corner = (top, left, right)``.

    The *negated* multipliers go to ``lower``. Rows are swapped as a whole; columns from ``right`` on are
    not updated yet. Returns the number of pivots; ``pivots`` receives their columns.
    """
    zero = np.uint64(0)
    p, inverse, _, _ = constants
    top, left, right = corner
    found = 0
    for c in range(left, right):
        row = top + found
        if row >= m.shape[0]:
            break
        pivot = row
        while pivot < m.shape[0] and m[pivot, c] == zero:
            pivot += 1
        if pivot == m.shape[0]:
            continue
        if pivot != row:
            for j in range(c, m.shape[1]):
                m[row, j], m[pivot, j] = m[pivot, j], m[row, j]
            for j in range(found):
                lower[row, j], lower[pivot, j] = lower[pivot, j], lower[row, j]
        minus_inverse = p - _invert(m[row, c], constants)
        lower[row, found] = zero
        for i in range(row + 1, m.shape[0]):
            factor = _product(m[i, c], minus_inverse, p, inverse) if m[i, c] != zero else zero
            lower[i, found] = factor
            if factor != zero:
                for j in range(c + 1, right):
                    m[i, j] = _sum(m[i, j], _product(factor, m[row, j], p, inverse), p)
        pivots[found] = c
        found += 1
    return found


@numba.njit(cache=True, nogil=True)
def _eliminate_kernel(m: Any, work: Any, pivots: Any, corner: Any, constants: Any) -> Any:
    """One panel of a blocked elimination, in place, and the columns behind it; returns the number of pivots.

    ``corner`` is as in :func:`_panel`, which finds the pivots. ``work = (lower, upper)``, ``(rows, _BLOCK)`` and
    ``(columns, _BLOCK)``, keeps nothing from one panel to the next. The entries are read as Montgomery forms: that
    scales the matrix by a unit and leaves the rank alone.
    """
    p, inverse, _, _ = constants
    rows, columns = m.shape
    lower, upper = work
    top, _, right = corner
    found = _panel(m, lower, pivots, corner, constants)
    for j in range(right, columns):  # finish the pivot rows, transposed into ``upper``
        for s in range(found):
            high, low = np.uint64(0), np.uint64(0)
            for q in range(s):
                high, low = _mul_add(high, low, lower[top + s, q], upper[j, q])
            upper[j, s] = _sum(m[top + s, j], _reduce_wide(high, low, p, inverse), p)
    rank = top + found
    if found and right < columns and rank < rows:
        _update(m[rank:, right:], lower[rank:], upper[right:], (0, found), constants)
    return found


# --- the field -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PrimeField:
    """A prime in ``(2^60, 2^61)`` with its Montgomery constants; see ``field_of``."""

    prime: int
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

    >>> field_of(2**61 - 1).prime
    2305843009213693951
    """
    p = int(prime)
    if not 2**LOW_BIT < p < 2 ** (LOW_BIT + 1) or not flint.fmpz(p).is_prime():
        raise InputError(f"expected a prime between 2^{LOW_BIT} and 2^{LOW_BIT + 1}, got {prime}")
    powers, value = [], pow(2, _MIN_EXPONENT + 64, p)
    for _ in range(2046):
        powers.append(value)
        value = 2 * value % p
    table = np.array(powers, np.uint64)
    table.flags.writeable = False
    constants = (np.uint64(p), np.uint64(pow(p, -1, 2**64)), np.uint64(2**64 % p), np.uint64(2**128 % p))
    return PrimeField(p, constants, table)


def random_primes(count: int, seed: int | np.random.Generator = 0) -> tuple[int, ...]:
    """Independent primes, each uniform among the primes in ``(2^60, 2^61)``.

    Odd candidates are drawn until one is prime, so that no prime is favoured (the *next* prime after a random
    number would favour primes behind large gaps).

    >>> primes = random_primes(2, seed=1)
    >>> [2**60 < p < 2**61 for p in primes], primes == random_primes(2, seed=1)
    ([True, True], True)
    """
    rng = np.random.default_rng(seed)
    primes: list[int] = []
    while len(primes) < count:
        candidate = 2**LOW_BIT + 2 * int(rng.integers(0, 2 ** (LOW_BIT - 1))) + 1
        if flint.fmpz(candidate).is_prime():
            primes.append(candidate)
    return tuple(primes)


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
    if not _residues_kernel(values.reshape(-1).view(np.uint64), f.powers, f.constants, out.reshape(-1)):
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


def _checked(array: Residues, name: str, ndim: int | None = None) -> Residues:
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
    f, a = field_of(prime), _checked(a, "a")
    out = np.empty_like(a)
    form = np.uint64(int(factor) * 2**64 % f.prime)
    _scale_kernel(a.reshape(-1), form, f.constants, out.reshape(-1))
    return out


def add_mod(a: Residues, b: Residues, prime: int) -> Residues:
    """Entrywise sum modulo p, with broadcasting (plain numpy: two residues add up to less than 2^62)."""
    p = field_of(prime).p
    total = a + b
    return np.where(total >= p, total - p, total)


def subtract_mod(a: Residues, b: Residues, prime: int) -> Residues:
    """Entrywise difference modulo p, with broadcasting."""
    p = field_of(prime).p
    return np.where(a >= b, a - b, a + (p - b))


def multiply_mod(a: Residues, b: Residues, prime: int) -> Residues:
    """Entrywise product modulo p, with broadcasting.

    >>> multiply_mod(np.array([2**60], np.uint64), np.array([2, 3], np.uint64), 2**61 - 1)
    array([                  1, 1152921504606846977], dtype=uint64)
    """
    f = field_of(prime)
    left, right = _checked(a, "a"), _checked(b, "b")
    if left.shape != right.shape:
        left, right = (np.array(x, order="C") for x in np.broadcast_arrays(left, right))
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    out = np.empty(left.shape, np.uint64)
    _multiply_kernel(left.reshape(-1), right.reshape(-1), f.constants, out.reshape(-1))
    return out


def outer_mod(a: Residues, b: Residues, prime: int) -> Residues:
    """Row-wise outer products modulo p: ``(k, m)`` and ``(k, n)`` give ``(k, m, n)``.

    The derivative of a layer's weights is of this form: backward signal times incoming activation.

    >>> outer_mod(np.array([[1, 2]], np.uint64), np.array([[3, 4]], np.uint64), 2**61 - 1).tolist()
    [[[3, 4], [6, 8]]]
    """
    f, a, b = field_of(prime), _checked(a, "a", 2), _checked(b, "b", 2)
    if a.shape[0] != b.shape[0]:
        raise InputError(f"expected as many rows in a as in b, got {a.shape} and {b.shape}")
    out = np.empty((a.shape[0], a.shape[1], b.shape[1]), np.uint64)
    _outer_kernel(a, b, f.constants, out)
    return out


def matmul_mod(a: Residues, b: Residues, prime: int) -> Residues:
    """Matrix product modulo p: ``(m, k)`` times ``(k, n)``.

    >>> a = residues_of_integers([[1, -1], [0, 2]], 2**61 - 1)
    >>> matmul_mod(a, a, 2**61 - 1) == residues_of_integers([[1, -3], [0, 4]], 2**61 - 1)
    array([[ True,  True],
           [ True,  True]])
    """
    f, a, b = field_of(prime), _checked(a, "a", 2), _checked(b, "b", 2)
    if a.shape[1] != b.shape[0]:
        raise InputError(f"expected matching inner sizes, got shapes {a.shape} and {b.shape}")
    out = np.zeros((a.shape[0], b.shape[1]), np.uint64)
    _matmul_kernel(a, np.ascontiguousarray(b.T), f.constants, out)
    return out


def rank_mod(matrix: Residues, prime: int, run: Run = ENDLESS) -> int:
    """Rank of a residue matrix over the field of p elements; the argument is not changed.

    >>> rank_mod(residues(np.array([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]]), 2**61 - 1), 2**61 - 1)
    1
    """
    return len(pivots_mod(matrix, prime, run))


def pivots_mod(matrix: Residues, prime: int, run: Run = ENDLESS) -> tuple[int, ...]:
    """The columns which are no combination of columns to their left, modulo p (the column rank profile).

    >>> pivots_mod(np.array([[0, 1, 1], [0, 2, 3]], np.uint64), 2**61 - 1)
    (1, 2)
    """
    f = field_of(prime)
    work = _checked(matrix, "matrix", 2).copy()
    rows, columns = work.shape
    pivots = np.empty(min(work.shape), np.int64)
    parts = (np.empty((rows, _BLOCK), np.uint64), np.empty((columns, _BLOCK), np.uint64))
    rank = 0
    for left in range(0, columns, _BLOCK):
        if rank == rows:
            break
        run.check()
        right = min(left + _BLOCK, columns)
        rank += _eliminate_kernel(work, parts, pivots[rank:], (rank, left, right), f.constants)
    return tuple(int(c) for c in pivots[:rank])
