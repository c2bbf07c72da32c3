"""A network as sums of ReLUs of sums of ReLUs, exactly, with every hyperplane named once.

Every output of a program is ``c + sum_k a_k x_k + sum_h v_h relu(p_h)``, where ``p_h`` is such a sum again. Three
identities bring it into a normal form: ``relu(t p) = t relu(p)`` for ``t > 0`` makes ``p`` a primitive integer row,
``relu(-p) = relu(p) - p`` gives a hyperplane one orientation, and what is of one sign is dead or linear. Two programs
that are written over one table of hyperplanes and come out the same are the same real function. Numbers are dyadic
rationals: no step divides, none rounds.

For one hidden layer the converse holds as well: on a domain with an interior, the functions ``relu(p_h)`` of different
hyperplanes that meet the interior, the coordinates and the constant are linearly independent. This is the hyperplane
representation of the fiber paper. For deeper networks different forms prove nothing.

A table with ``ulps > 0`` takes for equal what agrees within so many units of rounding: every coefficient carries the
sum of the absolute values it was added up from, and this sum times ``unit`` (``2^-53``, or that of the precision in
which the numbers were stored) is its unit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from fiberscope.errors import TooLargeError
from fiberscope.fibers.normal_form.planes import Planes
from fiberscope.fibers.normal_form.row import Plain, Row, combine, dyadic, opposite
from fiberscope.fibers.normal_form.sums import NOTHING, Sums, unpack
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, U

ONE = 0
"""The atom that stands for the constant 1; atoms 1 to n are the inputs, the others are ReLUs."""

_WORK = 30_000_000
"""Products of integers after which the form is given up as too large."""


class Known:
    """Named rows over the same atoms: divided by their largest entries, with the sums of absolute values behind.

    Another idea than ``numerics.rows``, which groups the rows of one matrix by exact factors. Exact multiples have one
    primitive row here, and are looked up by it. These rows come one by one, and are near each other by what their own
    sums may have been rounded.
    """

    def __init__(self, atoms: int) -> None:
        self.names: list[int] = []
        self._rows = np.empty((2, 8, atoms))

    def append(self, name: int, unit: FloatArray, size: FloatArray) -> None:
        count = len(self.names)
        if count == self._rows.shape[1]:
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)], axis=1)
        self._rows[0, count], self._rows[1, count] = unit, size
        self.names.append(name)

    def closest(self, unit: FloatArray, size: FloatArray, precision: float, ulps: int) -> tuple[int, int, float] | None:
        """The first row that is plus or minus this one within so many ulps: its name, the sign, how far in ulps."""
        with np.errstate(all="ignore"):
            first, behind = self._rows[:, : len(self.names), 0]
            far = np.abs(np.abs(first) - abs(unit[0])) > 2 * ulps * precision * (behind + size[0])
            left = np.flatnonzero(~far)  # most are told apart by the first entry
            units, sizes = self._rows[:, left]
            room = (sizes + size) * precision
            gaps = np.array([unit - units, unit + units])
            worst = (np.abs(gaps) / room).max(axis=2)
        known = (np.isfinite(room) & (room > 0)).all(axis=1)  # beyond the range of floats: not known to be near
        near = known & (worst <= ulps)
        rows = np.flatnonzero(near.any(axis=0))
        if not len(rows):
            return None
        row = int(rows[0])
        k = 0 if near[0, row] else 1
        return self.names[left[row]], (1, -1)[k], float(worst[k, row])


Near = dict[tuple[int, ...], Known]
"""Rows by their atoms."""


@dataclass(slots=True, eq=False)
class Table:
    """The hyperplanes found so far, by their primitive rows; shared by the networks that are compared.

    ``rows`` has them as they were found (:meth:`plane` in integers). ``nonnegative`` marks inputs that are never
    negative on the domain; ``facts`` are the signs that were proven on it.
    """

    inputs: int
    nonnegative: Sequence[bool] = ()
    ulps: int = 0
    deadline: float = float("inf")
    unit: float = U
    rows: list[Any] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    residual: float = 0.0
    facts: Planes = field(default_factory=Planes)
    _ids: Planes = field(default_factory=Planes)
    _near: Near = field(default_factory=dict)
    _near_facts: Near = field(default_factory=dict)
    _spent: int = 0

    @property
    def depth(self) -> int:
        """Largest number of ReLUs within each other."""
        return max(self.depths, default=0)

    def spend(self, work: int) -> None:
        """Count integer products; raises :class:`TooLargeError` beyond the budget or the deadline."""
        self._spent += work
        if self._spent > _WORK or time.monotonic() > self.deadline:
            raise TooLargeError(f"normal form: more than {_WORK} products of integers, or out of time")

    def sign_of(self, row: Row) -> int | None:
        """1 if the row is nowhere negative, -1 if nowhere positive, 0 if zero, None if its terms do not tell."""
        low = high = False
        for atom, c in row.terms.items():
            if 1 <= atom <= self.inputs and not (self.nonnegative and self.nonnegative[atom - 1]):
                return None
            low, high = low or c < 0, high or c > 0
        if low and high:
            return None
        return int(high) - int(low)

    def remember(self, row: Row, sign: int) -> None:
        """A sign that was proven; a multiple of the row has it as well."""
        if row.terms:
            plane, _ = row.primitive()
            self.facts.enter(plane, sign)
            if self.ulps:
                self._near_facts.setdefault(plane[0], Known(len(plane[0]))).append(sign, *_unit(row, plane[0]))

    def recall(self, row: Row) -> int | None:
        """The sign that was proven of a multiple of this row."""
        if not self.facts or not row.terms:
            return None
        plane, _ = row.primitive()
        sign = self.facts.find(plane)
        if sign is None:
            turned = self.facts.find(opposite(plane))
            sign = None if turned is None else -turned
        if sign is None and self.ulps:
            found = self._closest(row, plane[0], self._near_facts)
            sign = None if found is None else found[0] * found[1]
        return sign

    def relu(self, row: Row) -> Row:
        """``relu(row)`` for a row of no known sign."""
        plane, content = row.primitive()
        number = self._ids.find(plane)
        if number is not None:
            return Row({number: content}, row.exponent)
        number = self._ids.find(opposite(plane))
        if number is not None:
            return self._flipped(row, Row({number: content}, row.exponent))
        if self.ulps:
            found = self._nearby(plane[0], [v * content for v in plane[1]], row)
            if found is not None:
                return found
        number = self._next()
        self._ids.enter(plane, number)
        self.rows.append(plane)
        below = [self.depths[k - self.inputs - 1] for k in plane[0] if k > self.inputs]
        self.depths.append(1 + max(below, default=0))
        return Row({number: content}, row.exponent)

    def _next(self) -> int:
        """The atom of the next hyperplane."""
        return self.inputs + 1 + len(self.rows)

    def signs_of(self, sums: Sums) -> list[int | None]:
        """:meth:`sign_of` of all rows."""
        filled = sums.filled
        free = (sums.atoms >= 1) & (sums.atoms <= self.inputs)
        if self.nonnegative:
            free[free] = [not self.nonnegative[k - 1] for k in sums.atoms[free]]
        low, high = (sums.odd < 0).any(axis=1), (sums.odd > 0).any(axis=1)
        unknown = (filled & free).any(axis=1) | (low & high)
        known = np.asarray(high, dtype=np.int64) - np.asarray(low, dtype=np.int64)
        return [None if unclear else int(sign) for unclear, sign in zip(np.asarray(unknown), known, strict=True)]

    def relus(self, sums: Sums, signs: IntArray, straight: BoolArray) -> Iterator[Row | int]:
        """Row by row the sign where it is known or told, 1 where it does not matter, or else ``relu`` of the row."""
        primitive, contents, exponents = sums.primitive()
        names, turned = primitive.packed(), primitive.opposite().packed()
        inside = sums.atoms > self.inputs
        below = np.zeros(len(sums.atoms), dtype=np.int64)
        below[inside] = np.array(self.depths, dtype=np.int64)[sums.atoms[inside] - self.inputs - 1]
        depths = 1 + np.where(sums.filled, below, 0).max(axis=1, initial=0)
        told = self.signs_of(sums)
        for i in range(len(sums)):
            known = told[i]
            if signs[i]:
                known = int(signs[i])
                if names[i] != NOTHING:
                    self.facts.enter_packed(names[i], known)
            elif straight[i]:
                known = 1
            elif known is None and self.facts:
                known = self.facts.find_packed(names[i])
                back = self.facts.find_packed(turned[i]) if known is None else None
                known = known if back is None else -back
            if known is not None:
                yield known
                continue
            content, exponent = int(contents[i]), int(exponents[i])
            number = self._ids.find_packed(names[i])
            if number is None:
                number = self._ids.find_packed(turned[i])
                if number is not None:
                    yield self._flipped(sums[i], Row({number: content}, exponent))
                    continue
                number = self._next()
                self._ids.enter_packed(names[i], number)
                self.rows.append(names[i])
                self.depths.append(int(depths[i]))
            yield Row({number: content}, exponent)

    def plane(self, atom: int) -> Plain:
        """The hyperplane of a ReLU."""
        found = self.rows[atom - self.inputs - 1]
        return unpack(found) if isinstance(found[0], bytes) else found

    def _flipped(self, row: Row, unit: Row) -> Row:
        """``relu(e) = e + relu(-e)``."""
        return combine([(1, 0, row), (1, 0, unit)], bool(self.ulps))

    def _nearby(self, atoms: tuple[int, ...], values: list[int], row: Row) -> Row | None:
        """A hyperplane known already, up to rounding; otherwise this one is remembered."""
        found = self._closest(row, atoms, self._near)
        if found is None:
            self._near.setdefault(atoms, Known(len(atoms))).append(self._next(), *_unit(row, atoms))
            return None
        atom, sign = found
        known = self.plane(atom)[1]
        m, e = _rounded_ratio(max(map(abs, values)), max(map(abs, known)))
        monomial = Row({atom: m}, e + row.exponent)
        return monomial if sign > 0 else self._flipped(row, monomial)

    def _closest(self, row: Row, atoms: tuple[int, ...], among: Near) -> tuple[int, int] | None:
        """The entry that is a multiple of the row up to rounding, and the sign of the factor."""
        if atoms not in among:
            return None
        known = among[atoms]
        self.spend(len(known.names))
        found = known.closest(*_unit(row, atoms), self.unit, self.ulps)
        if found is None:
            return None
        name, sign, worst = found
        self.residual = max(self.residual, worst)
        return name, sign

    def same(self, a: Row, b: Row) -> bool:
        """Whether two rows agree: exactly, or up to rounding if the table allows that."""
        gap = combine([(1, 0, a), (-1, 0, b)], bool(self.ulps))
        if not gap.terms or not self.ulps:
            return not gap.terms
        off = max(abs(c) / gap.magnitude(k) for k, c in gap.terms.items()) / self.unit
        self.residual = max(self.residual, off)
        return off <= self.ulps


def _unit(row: Row, atoms: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """The row divided by its largest entry, in floats, and what its entries were added up from."""
    pivot = max(abs(c) for c in row.terms.values())
    unit = np.array([row.terms[k] / pivot for k in atoms])
    return unit, np.array([_quotient(row.magnitude(k), pivot) for k in atoms]) + np.abs(unit)


def _quotient(a: int, b: int) -> float:
    """``a / b`` of positive integers, infinite beyond the floats."""
    try:
        return a / b
    except OverflowError:
        return float("inf")


def _rounded_ratio(a: int, b: int) -> tuple[int, int]:
    """``a / b`` to 53 bits as ``m * 2^e``, however large or small it is.

    >>> _rounded_ratio(3 << 4000, 1), _rounded_ratio(1, 1 << 4000)
    ((3, 4000), (1, -4000))
    """
    shift = a.bit_length() - b.bit_length()
    m, e = dyadic(float(Fraction(a, b) / Fraction(2) ** shift))
    lowest = (m & -m).bit_length() - 1
    return m >> lowest, e + shift + lowest
