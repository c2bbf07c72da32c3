"""One row of a normal form: a sum over atoms with integers of any size for coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

Plain = tuple[tuple[int, ...], tuple[int, ...]]
"""A hyperplane: the atoms of its row in order, and their coefficients without a common divisor."""


@dataclass(slots=True)
class Row:
    """``2^exponent * sum_k terms[k] * atom_k``; ``sizes`` are the sums of absolute values (None: of one term each)."""

    terms: dict[int, int]
    exponent: int = 0
    sizes: dict[int, int] | None = None

    def magnitude(self, atom: int) -> int:
        return abs(self.terms.get(atom, 0)) if self.sizes is None else self.sizes.get(atom, 0)

    def primitive(self) -> tuple[Plain, int]:
        """The hyperplane where the row vanishes, and the greatest common divisor of its coefficients."""
        items = sorted(self.terms.items())
        content = gcd(*(v for _, v in items))
        return (tuple(k for k, _ in items), tuple(v // content for _, v in items)), content


def opposite(plane: Plain) -> Plain:
    """The hyperplane from its other side."""
    return plane[0], tuple(-v for v in plane[1])


def combine(parts: Sequence[tuple[int, int, Row]], sizes: bool) -> Row:
    """``sum factor * 2^shift * row``."""
    parts = [part for part in parts if part[0] and part[2].terms]
    if not parts:
        return Row({})
    exponent = min(shift + row.exponent for _, shift, row in parts)
    terms: dict[int, int] = {}
    total: dict[int, int] = {}
    for factor, shift, row in parts:
        scaled = factor << (shift + row.exponent - exponent)
        for atom, c in row.terms.items():
            terms[atom] = terms.get(atom, 0) + scaled * c
        if sizes:
            for atom in row.terms if row.sizes is None else row.sizes:
                total[atom] = total.get(atom, 0) + abs(scaled) * row.magnitude(atom)
    return Row({k: c for k, c in terms.items() if c}, exponent, total if sizes else None)


def dyadic(value: float) -> tuple[int, int]:
    """A float as ``m * 2^e``.

    >>> dyadic(0.75)
    (3, -2)
    """
    numerator, denominator = value.as_integer_ratio()
    return numerator, 1 - denominator.bit_length()
