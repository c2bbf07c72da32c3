"""All rows of a dense layer over the same atoms, in arrays: exact as in :class:`Row`, where 62 bits are enough.

A coefficient is ``odd * 2^exponent`` with an odd integer, or zero. That is unique, so two rows are multiples of each
other exactly if their odd parts, without the greatest common divisor, and the differences of their exponents are the
same: a row becomes a string of bytes, and hyperplanes are found by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from fiberscope.fibers.normal_form.row import Plain, Row
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray
from fiberscope.numerics.points import NO_EXPONENT, odd_parts

Packed = tuple[bytes, bytes]
"""The atoms of a row without common divisor, and its numbers."""

NOTHING: Packed = (b"", b"")
"""The row without terms."""

_BITS = 62
"""Of the largest integer that is formed."""

_REACH = NO_EXPONENT // 2
"""Exponents stay below, so that differences do not reach that of a zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Sums(Sequence[Row]):
    """``row_i = sum_k odd[i, k] * 2^exponents[i, k] * atom_k`` over increasing ``atoms``; zeros have ``odd`` 0."""

    atoms: IntArray
    odd: IntArray
    exponents: IntArray

    def __len__(self) -> int:
        return len(self.odd)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        where = np.flatnonzero(self.odd[index])
        if not len(where):
            return Row({})
        exponents = self.exponents[index, where]
        lowest = int(exponents.min())
        shifts = (exponents - lowest).tolist()
        items = zip(self.atoms[where].tolist(), self.odd[index, where].tolist(), shifts, strict=True)
        return Row({k: v << shift for k, v, shift in items}, lowest)

    def __iter__(self) -> Iterator[Row]:
        return (self[i] for i in range(len(self)))

    @property
    def filled(self) -> BoolArray:
        """Which coefficients are not zero."""
        return np.asarray(self.odd != 0)

    def primitive(self) -> tuple[Sums, IntArray, IntArray]:
        """Rows without common divisors, and the divisors ``odd * 2^exponent`` (those of a zero row are 1)."""
        common = _common_divisors(self.odd)
        lowest = np.where(self.filled, self.exponents, NO_EXPONENT).min(axis=1, initial=NO_EXPONENT)
        lowest[lowest == NO_EXPONENT] = 0
        return Sums(self.atoms, self.odd // common[:, None], self.exponents - lowest[:, None]), common, lowest

    def packed(self) -> list[Packed]:
        """Every row as bytes, without its zeros."""
        filled = self.filled
        shifts, names = self.exponents.astype(np.int32), self.atoms.tobytes()
        whole = np.asarray(filled.all(axis=1))
        rows = zip(self.odd, shifts, filled, whole, strict=True)
        return [
            (names, odd.tobytes() + shift.tobytes())
            if everywhere
            else (self.atoms[here].tobytes(), odd[here].tobytes() + shift[here].tobytes())
            for odd, shift, here, everywhere in rows
        ]

    def opposite(self) -> Sums:
        """The rows with their signs changed."""
        return Sums(self.atoms, -self.odd, self.exponents)


def _common_divisors(odd: IntArray) -> IntArray:
    """Greatest common divisors of the rows, 1 for a zero row; most rows are done after a few entries."""
    found = np.zeros(len(odd), dtype=np.int64)
    active = np.arange(len(odd))
    for start in range(0, odd.shape[1], 16):
        part = np.gcd.reduce(odd[active, start : start + 16], axis=1)
        found[active] = np.gcd(found[active], part)
        active = active[found[active] != 1]
        if not len(active):
            break
    found[found == 0] = 1
    return found


def pack(plane: Plain) -> Packed | None:
    """A hyperplane as in :meth:`Sums.packed`; None if its numbers have too many bits.

    >>> pack(((0, 3), (4, -6))) == Sums(np.array([0, 3]), np.array([[1, -3]]), np.array([[2, 1]])).packed()[0]
    True
    """
    atoms, values = plane
    shifts = [(v & -v).bit_length() - 1 for v in values]
    odd = [v >> shift for v, shift in zip(values, shifts, strict=True)]
    if max(abs(v) for v in odd) >> _BITS or max(shifts) > NO_EXPONENT:
        return None
    names, numbers = np.array(atoms, dtype=np.int64), np.array(odd, dtype=np.int64)
    return names.tobytes(), numbers.tobytes() + np.array(shifts, dtype=np.int32).tobytes()


def unpack(plane: Packed) -> Plain:
    """The other way round.

    >>> unpack(pack(((0, 3), (4, -6))))
    ((0, 3), (4, -6))
    """
    atoms = np.frombuffer(plane[0], dtype=np.int64)
    odd = np.frombuffer(plane[1], dtype=np.int64, count=len(atoms))
    shifts = np.frombuffer(plane[1], dtype=np.int32, offset=odd.nbytes)
    return tuple(atoms.tolist()), tuple(v << s for v, s in zip(odd.tolist(), shifts.tolist(), strict=True))


def layer_sums(matrix: FloatArray, bias: FloatArray | None, value: Sequence[Row], one: int) -> Sums | None:
    """``matrix @ value + bias`` for rows of at most one term; None if 62 bits are short. ``one`` is the constant."""
    if isinstance(value, Sums) or any(len(row.terms) > 1 for row in value):
        return None
    columns, atoms, units, shifts = [], [], [], []
    for j, row in enumerate(value):
        for atom, c in row.terms.items():
            shift = (c & -c).bit_length() - 1
            if (abs(c) >> shift) >> _BITS or abs(row.exponent + shift) > _REACH // 2:
                return None
            columns.append(j)
            atoms.append(atom)
            units.append(c >> shift)
            shifts.append(row.exponent + shift)
    odd, exponents = odd_parts(matrix[:, columns])
    unit = np.array(units, dtype=np.int64)
    if _bits(odd) + _bits(unit) > _BITS:
        return None
    odd, exponents = odd * unit, exponents + np.array(shifts, dtype=np.int64)
    names = np.array(atoms, dtype=np.int64)
    if bias is not None:
        last, power = odd_parts(bias[:, None])
        odd, exponents = np.concatenate([odd, last], axis=1), np.concatenate([exponents, power], axis=1)
        names = np.append(names, one)
    exponents = np.where(odd == 0, 0, exponents)
    return _gathered(names, odd, exponents)


def _bits(values: IntArray) -> int:
    return int(np.abs(values).max(initial=0)).bit_length()


def _gathered(names: IntArray, odd: IntArray, exponents: IntArray) -> Sums | None:
    """One column for every atom: columns of the same are added up."""
    order = np.argsort(names, kind="stable")
    atoms, first, counts = np.unique(names[order], return_index=True, return_counts=True)
    found, powers = odd[:, order[first]], exponents[:, order[first]]
    for turn in range(1, int(counts.max(initial=1))):
        more = np.flatnonzero(counts > turn)
        column = order[first[more] + turn]
        both = _added(found[:, more], powers[:, more], odd[:, column], exponents[:, column])
        if both is None:
            return None
        found[:, more], powers[:, more] = both
    return Sums(atoms, found, powers)


def _added(a: IntArray, e: IntArray, b: IntArray, f: IntArray) -> tuple[IntArray, IntArray] | None:
    """``a 2^e + b 2^f`` as odd numbers and exponents."""
    e, f = np.where(a == 0, f, e), np.where(b == 0, e, f)
    lowest = np.minimum(e, f)
    up, down = np.where(a == 0, 0, e - lowest), np.where(b == 0, 0, f - lowest)
    # a float has the bits of an integer, or one more where it was rounded up
    sizes = np.maximum(np.frexp(np.abs(a).astype(np.float64))[1] + up, np.frexp(np.abs(b).astype(np.float64))[1] + down)
    if sizes.max(initial=0) >= _BITS:
        return None
    total = (a << up) + (b << down)
    trailing = np.where(total == 0, 0, np.frexp((total & -total).astype(np.float64))[1] - 1)
    return np.asarray(total >> trailing, dtype=np.int64), np.where(total == 0, 0, lowest + trailing)
