"""Compiled arithmetic modulo a prime: Montgomery's products and the loops over arrays of residues.

A residue array is a ``uint64`` array with entries in ``[0, p)``. Products are 64 x 64 -> 128 bits, reduced by
Montgomery's method (P. L. Montgomery, Modular multiplication without trial division, Math. Comp. 44, 1985) with the
constant ``2^64``. For ``p < 2^61`` the sum of 64 products fits into 128 bits, so an inner product of length 64 needs
one reduction only.

Kernels take the constants of the field as one tuple ``(p, 1/p mod 2^64, 2^64 mod p, 2^128 mod p)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.numerics.compiling.kernels import Later, inlined, strict

BLOCK = 64
"""Products of two residues whose sum fits into 128 bits; also the width of a panel of the elimination."""


mulhi, mul_add = (
    Later("fiberscope.numerics.compiling.machine_words", "mulhi"),
    Later("fiberscope.numerics.compiling.machine_words", "mul_add"),
)


@inlined
def reduce(high: Any, low: Any, p: Any, inverse: Any) -> Any:
    """``(2^64 high + low) / 2^64`` modulo p, for ``high < p``; ``inverse`` is ``1/p`` modulo 2^64."""
    take = mulhi(low * inverse, p)
    return high - take if high >= take else high - take + p


@inlined
def reduce_wide(high: Any, low: Any, p: Any, inverse: Any) -> Any:
    """As ``reduce`` for any ``high``, which four conditional subtractions bring below p > 2^60."""
    for shift in (3, 2, 1, 0):
        multiple = p << np.uint64(shift)
        if high >= multiple:
            high -= multiple
    return reduce(high, low, p, inverse)


@inlined
def product(a: Any, b: Any, p: Any, inverse: Any) -> Any:
    """Montgomery product ``a b / 2^64`` modulo p."""
    return reduce(mulhi(a, b), a * b, p, inverse)


@inlined
def plus(a: Any, b: Any, p: Any) -> Any:
    total = a + b
    return total - p if total >= p else total


# --- kernels ---------------------------------------------------------------------------------------------


@strict
def residues_kernel(bits: Any, powers: Any, constants: Any, out: Any) -> bool:
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
        value = product(mantissa, powers[exponent], p, inverse)
        if (word >> np.uint64(63)) != np.uint64(0) and value != np.uint64(0):
            value = p - value
        out[i] = value
    return True


@strict
def scale_kernel(a: Any, factor: Any, constants: Any, out: Any) -> None:
    p, inverse, _, _ = constants
    for i in range(a.size):
        out[i] = product(a[i], factor, p, inverse)


@strict
def multiply_kernel(a: Any, b: Any, constants: Any, out: Any) -> None:
    p, inverse, _, square = constants
    for i in range(a.size):
        out[i] = product(product(a[i], square, p, inverse), b[i], p, inverse)


@strict
def outer_kernel(a: Any, b: Any, constants: Any, out: Any) -> None:
    p, inverse, _, square = constants
    for k in range(a.shape[0]):
        for i in range(a.shape[1]):
            factor = product(a[k, i], square, p, inverse)
            for j in range(b.shape[1]):
                out[k, i, j] = product(factor, b[k, j], p, inverse)


@strict
def update(c: Any, left: Any, right: Any, span: Any, constants: Any) -> None:
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
                h00, l00 = mul_add(h00, l00, a0, b0)
                h01, l01 = mul_add(h01, l01, a0, b1)
                h10, l10 = mul_add(h10, l10, a1, b0)
                h11, l11 = mul_add(h11, l11, a1, b1)
            c[i, j] = plus(c[i, j], reduce_wide(h00, l00, p, inverse), p)
            c[i, j + 1] = plus(c[i, j + 1], reduce_wide(h01, l01, p, inverse), p)
            c[i + 1, j] = plus(c[i + 1, j], reduce_wide(h10, l10, p, inverse), p)
            c[i + 1, j + 1] = plus(c[i + 1, j + 1], reduce_wide(h11, l11, p, inverse), p)
    for i in range(rows):  # the odd row and the odd column
        start = columns & ~1 if i < (rows & ~1) else 0
        for j in range(start, columns):
            high, low = zero, zero
            for k in range(first, last):
                high, low = mul_add(high, low, left[i, k], right[j, k])
            c[i, j] = plus(c[i, j], reduce_wide(high, low, p, inverse), p)


@strict
def sparse_kernel(rows: Any, starts: Any, places: Any, forms: Any, constants: Any, out: Any) -> None:
    """``out[r, i] = sum rows[r, places[k]] forms[k] / 2^64`` over k from ``starts[i]`` to ``starts[i + 1]``."""
    p, inverse, _, _ = constants
    zero = np.uint64(0)
    for r in range(rows.shape[0]):
        for i in range(starts.size - 1):
            total, high, low, held = zero, zero, zero, 0
            for k in range(starts[i], starts[i + 1]):
                high, low = mul_add(high, low, rows[r, places[k]], forms[k])
                held += 1
                if held == BLOCK:
                    total = plus(total, reduce_wide(high, low, p, inverse), p)
                    high, low, held = zero, zero, 0
            out[r, i] = plus(total, reduce_wide(high, low, p, inverse), p)


@strict
def split_kernel(a: Any, half: Any, p: Any, high: Any, low: Any) -> None:
    """Residues as ``high 2^23 + low`` of floats, balanced: below ``2^22`` in absolute value, for ``p < 2^46``."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            value = np.int64(a[i, j]) - (np.int64(p) if a[i, j] > half else np.int64(0))
            top = (value + np.int64(1 << 22)) >> np.int64(23)
            high[i, j] = np.float64(top)
            low[i, j] = np.float64(value - (top << np.int64(23)))


@strict
def balance_kernel(a: Any, half: Any, p: Any, out: Any) -> None:
    """Residues as floats between ``-p/2`` and ``p/2``."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            value = np.int64(a[i, j])
            out[i, j] = np.float64(value - np.int64(p) if a[i, j] > half else value)


@strict
def combine_kernel(c: Any, parts: Any, offset: Any, constants: Any) -> None:
    """``c += (parts[0] 2^46 + parts[1] 2^23 + parts[2]) / 2^64`` for integers up to ``2^53`` in floats, of either sign.

    Every part is made positive by ``2^53``; ``offset`` is ``-2^53 (2^46 + 2^23 + 1) / 2^64`` modulo p.
    """
    p, inverse, _, _ = constants
    lift = np.int64(1 << 53)
    high_part, middle, low_part = parts
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            h, l = mul_add(
                np.uint64(0),
                np.uint64(np.int64(low_part[i, j]) + lift),
                np.uint64(np.int64(high_part[i, j]) + lift),
                np.uint64(1 << 46),
            )
            h, l = mul_add(h, l, np.uint64(np.int64(middle[i, j]) + lift), np.uint64(1 << 23))
            c[i, j] = plus(plus(c[i, j], offset, p), reduce(h, l, p, inverse), p)


@strict
def combine_small_kernel(c: Any, part: Any, offset: Any, constants: Any) -> None:
    """``c += part / 2^64`` for integers up to ``2^53`` in floats; ``offset`` is ``-2^53 / 2^64`` modulo p."""
    p, inverse, _, _ = constants
    lift = np.int64(1 << 53)
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[i, j] = plus(
                plus(c[i, j], offset, p), reduce(np.uint64(0), np.uint64(np.int64(part[i, j]) + lift), p, inverse), p
            )


@strict
def invert(a: Any, constants: Any) -> Any:
    """Montgomery inverse by Fermat: ``a^(p-2)`` in Montgomery form."""
    p, inverse, one, _ = constants
    result, base, exponent = one, a, p - np.uint64(2)
    while exponent > np.uint64(0):
        if exponent & np.uint64(1):
            result = product(result, base, p, inverse)
        base = product(base, base, p, inverse)
        exponent >>= np.uint64(1)
    return result


@strict
def scatter_kernel(out: Any, rows: Any, places: Any, factors: Any, constants: Any) -> None:
    """``out[places[i, t]] += factors[i, t] rows[i]``, factors in Montgomery form; a negative place is left out."""
    p, inverse, _, _ = constants
    for i in range(rows.shape[0]):
        for t in range(places.shape[1]):
            place = places[i, t]
            if place >= 0:
                for j in range(rows.shape[1]):
                    out[place, j] = plus(out[place, j], product(factors[i, t], rows[i, j], p, inverse), p)


# --- elimination -----------------------------------------------------------------------------------------


@strict
def panel_kernel(m: Any, order: Any, pivots: Any, corner: Any, constants: Any) -> Any:
    """Eliminate in columns ``left:right`` from row ``top`` on, in place, where ``corner = (top, left, right)``.

    Entries are read as Montgomery forms. Below a pivot its column receives the *negated* multipliers. Rows are swapped
    as a whole, and ``order`` with them; columns from ``right`` on are not updated. Returns the number of pivots, whose
    columns go to ``pivots``.
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
            order[row], order[pivot] = order[pivot], order[row]
            for j in range(m.shape[1]):
                m[row, j], m[pivot, j] = m[pivot, j], m[row, j]
        minus_inverse = p - invert(m[row, c], constants)
        for i in range(row + 1, m.shape[0]):
            if m[i, c] != zero:
                factor = product(m[i, c], minus_inverse, p, inverse)
                m[i, c] = factor
                for j in range(c + 1, right):
                    m[i, j] = plus(m[i, j], product(factor, m[row, j], p, inverse), p)
        pivots[found] = c
        found += 1
    return found


@strict
def lower_kernel(lower: Any, rows: Any, constants: Any) -> None:
    """``rows[s] += sum lower[s, q] rows[q]`` over ``q < s``, in this order, at most :data:`BLOCK` rows, in place."""
    p, inverse, _, _ = constants
    column = np.empty(rows.shape[0], np.uint64)
    for j in range(rows.shape[1]):
        for s in range(rows.shape[0]):
            high, low = np.uint64(0), np.uint64(0)
            for q in range(s):
                high, low = mul_add(high, low, lower[s, q], column[q])
            column[s] = plus(rows[s, j], reduce_wide(high, low, p, inverse), p)
        for s in range(rows.shape[0]):
            rows[s, j] = column[s]


@strict
def upper_kernel(upper: Any, rows: Any, constants: Any) -> None:
    """``rows = upper^-1 rows`` in Montgomery forms for an upper triangle of at most :data:`BLOCK` rows, in place."""
    p, inverse, _, _ = constants
    size = rows.shape[0]
    inverses = np.empty(size, np.uint64)
    for s in range(size):
        inverses[s] = invert(upper[s, s], constants)
    column = np.empty(size, np.uint64)
    for j in range(rows.shape[1]):
        for s in range(size - 1, -1, -1):
            high, low = np.uint64(0), np.uint64(0)
            for q in range(s + 1, size):
                high, low = mul_add(high, low, upper[s, q], column[q])
            minus = p - reduce_wide(high, low, p, inverse)
            column[s] = product(plus(rows[s, j], minus if minus < p else np.uint64(0), p), inverses[s], p, inverse)
        for s in range(size):
            rows[s, j] = column[s]
