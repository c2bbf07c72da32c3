"""Which of some exact vectors add up to zero? A non-empty subset, or a proof that there is none.

This is the subset-sum problem, so no method is fast for all inputs. They are tried from cheap to dear, each of them
exact; what none decides is undecided:

- vectors with one sign in a coordinate, and vectors that take part in no linear relation, are in no such subset;
- with few independent relations, the coefficients of all vectors follow from those of a few, which are 0 or 1;
- sums of small integers (quantised weights) are bits of one long integer each, and all of them are reached at once;
- up to some number of vectors, sums of one half must meet negative sums of the other (Horowitz & Sahni, Computing
  partitions with applications to the knapsack problem, J. ACM 21, 1974). Sums are compared modulo a prime, which
  misses nothing, and what meets is added up exactly;
- a subset is a vector of the lattice of integer relations no longer than the square root of their number. In a reduced
  basis (Lenstra, Lenstra & Lovasz, 1982) no vector is shorter than the shortest of its orthogonal parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm
from operator import mul
from typing import Any

import flint
import numpy as np

from fiberscope.numerics.floats import IntArray, ObjectArray

RELATIONS = 18
"""Independent relations up to which all their combinations with coefficients 0 and 1 are looked at."""

BITS = 1 << 23
"""Largest sum of integers up to which all sums are marked as bits."""

_MEMORY = 1 << 30
"""Bits that all marked sums may take together."""

HALF = 20
"""Vectors up to which all subsets of a half are added up."""

LATTICE = 100
"""Vectors up to which the lattice of their relations is reduced."""

_DRAWS = 2
"""Random choices of vectors among which a subset is looked for, where there are too many to look at all."""

_DENSE = 2 * HALF + 12
"""Bits of numbers up to which such a choice is likely to have a subset."""

_PRIME = (1 << 61) - 1


@dataclass(frozen=True, slots=True)
class Cancelling:
    """``subset`` adds up to zero, exactly; None with ``decided`` says that there is none, without it is undecided."""

    subset: tuple[int, ...] | None
    decided: bool


NONE = Cancelling(None, True)
UNDECIDED = Cancelling(None, False)


def cancelling_subset(vectors: ObjectArray) -> Cancelling:
    """A non-empty set of rows that adds up to zero, for an ``(n, k)`` array of fractions.

    >>> cancelling_subset(np.array([[Fraction(2)], [Fraction(3)], [Fraction(-5)]], dtype=object)).subset
    (0, 1, 2)
    >>> cancelling_subset(np.array([[Fraction(2)], [Fraction(3)], [Fraction(-4)]], dtype=object))
    Cancelling(subset=None, decided=True)
    """
    for i, row in enumerate(vectors):
        if not any(row):
            return Cancelling((i,), True)
    names = _one_sided(vectors, list(range(len(vectors))))
    if not names:
        return NONE
    whole = [_whole(column)[0] for column in vectors[names].T]
    coordinates, relations = _eliminated(whole)
    inside = np.flatnonzero((relations != 0).any(axis=0)).tolist()
    if not inside:  # linearly independent
        return NONE
    columns = [[whole[k][i] for i in inside] for k in coordinates]
    found = _search(columns, relations[:, inside])
    if found.subset is None:
        return found
    subset = tuple(names[inside[i]] for i in found.subset)
    # the elimination modulo a prime may have lost a coordinate
    return UNDECIDED if np.sum(vectors[list(subset)], axis=0).any() else Cancelling(subset, True)


def _one_sided(vectors: ObjectArray, kept: list[int]) -> list[int]:
    """Without vectors that have a sign in a coordinate in which no other has the opposite one."""
    while True:
        signs = np.array([[(v > 0) - (v < 0) for v in vectors[i]] for i in kept], dtype=np.int64)
        if not len(signs):
            return []
        both = (signs > 0).any(axis=0) & (signs < 0).any(axis=0)
        alone = (signs[:, ~both] != 0).any(axis=1)
        if not alone.any():
            return kept
        kept = [i for i, gone in zip(kept, alone, strict=True) if not gone]


def _whole(values: Sequence[Any]) -> tuple[list[int], int]:
    """Fractions as integers, and what they were multiplied by."""
    exact = [Fraction(v) for v in values]
    below = lcm(*(v.denominator for v in exact))
    return [v.numerator * (below // v.denominator) for v in exact], below


def _eliminated(columns: list[list[int]]) -> tuple[list[int], IntArray]:
    """Independent coordinates and a reduced basis ``(count, n)`` of the relations, both modulo the prime.

    Every relation with coefficients 0 and 1 is one modulo the prime, so none is missed.
    """
    n = len(columns[0])
    table, rank = flint.nmod_mat(
        n, len(columns), [v % _PRIME for row in zip(*columns, strict=True) for v in row], _PRIME
    ).rref()
    coordinates = [next(j for j in range(len(columns)) if int(table[i, j])) for i in range(rank)]
    if rank == n:
        return coordinates, np.zeros((0, n), dtype=np.int64)
    turned = [v % _PRIME for k in coordinates for v in columns[k]]
    table, rank = flint.nmod_mat(rank, n, turned, _PRIME).rref()
    pivots = [next(j for j in range(n) if int(table[i, j])) for i in range(rank)]
    free = [j for j in range(n) if j not in set(pivots)]
    relations = np.zeros((len(free), n), dtype=np.int64)
    for row, j in enumerate(free):
        relations[row, j] = 1
        for i, pivot in enumerate(pivots):
            relations[row, pivot] = -int(table[i, j]) % _PRIME
    return coordinates, relations


def _search(columns: list[list[int]], relations: IntArray) -> Cancelling:
    """Methods in turn, for vectors that all take part in relations."""
    if len(relations) <= RELATIONS:
        return _few_relations(columns, relations)
    numbers, n = _digits(columns), len(columns[0])
    least = min(sum(v for v in numbers if v > 0), -sum(v for v in numbers if v < 0))
    if least <= BITS and n * least <= _MEMORY:
        return _marked(numbers, least)
    if n <= 2 * HALF:
        return _halves(numbers, list(range(n)))
    if max(map(abs, numbers)).bit_length() <= _DENSE:
        rng = np.random.default_rng(0)
        for _ in range(_DRAWS):
            found = _halves(numbers, sorted(rng.choice(n, 2 * HALF, replace=False).tolist()))
            if found.subset is not None:
                return found
    return _in_lattice(columns) if n <= LATTICE else UNDECIDED


def _digits(columns: list[list[int]]) -> list[int]:
    """One integer for every vector, such that sums vanish together: coordinates are digits that cannot carry."""
    numbers, place = [0] * len(columns[0]), 1
    for column in columns:
        shared = gcd(*column)
        numbers = [number + place * (v // shared) for number, v in zip(numbers, column, strict=True)]
        place *= 2 * sum(map(abs, column)) // shared + 1
    return numbers


def _sums(numbers: Sequence[int]) -> IntArray:
    """The sums of all subsets modulo the prime; bit ``k`` of an index says whether number ``k`` is in."""
    sums = np.zeros(1, dtype=np.int64)
    for number in numbers:
        sums = np.concatenate([sums, (sums + number % _PRIME) % _PRIME])
    return sums


def _members(index: int) -> list[int]:
    return [k for k in range(index.bit_length()) if index >> k & 1]


def _few_relations(columns: list[list[int]], relations: IntArray) -> Cancelling:
    """All combinations of relations with coefficients 0 and 1; a subset is one whose entries are 0 and 1.

    The relations are reduced, so that the coefficients of a combination are entries of it.
    """
    possible = np.ones(1 << len(relations), dtype=bool)
    possible[0] = False
    for entries in relations.T.tolist():
        sums = _sums(entries)
        possible &= (sums == 0) | (sums == 1)
    for index in np.flatnonzero(possible).tolist():
        chosen = relations[_members(index)].astype(object).sum(axis=0) % _PRIME
        subset = tuple(int(i) for i in np.flatnonzero(chosen))
        if not any(sum(column[i] for i in subset) for column in columns):
            return Cancelling(subset, True)
    return NONE


def _marked(numbers: list[int], least: int) -> Cancelling:
    """Small integers: bit ``s`` of a mark says that ``s`` is a sum of some of the positive, or of the negative ones."""
    if 0 in numbers:  # a vector whose other coordinates were lost modulo the prime
        return Cancelling((numbers.index(0),), True)
    room = (1 << (least + 1)) - 1
    sides = []
    for sign in (1, -1):
        own = [(i, abs(v)) for i, v in enumerate(numbers) if 0 < sign * v <= least]  # larger ones are never balanced
        marks = [1]
        for _, v in own:
            marks.append((marks[-1] | marks[-1] << v) & room)
        sides.append((own, marks))
    common = (sides[0][1][-1] & sides[1][1][-1]) >> 1
    if not common:
        return NONE
    value = (common & -common).bit_length()
    subset = []
    for own, marks in sides:
        rest = value
        for (i, v), before in zip(reversed(own), reversed(marks[:-1]), strict=True):
            if not before >> rest & 1:
                subset.append(i)
                rest -= v
    return Cancelling(tuple(sorted(subset)), True)


def _halves(numbers: list[int], among: list[int]) -> Cancelling:
    """Sums of the first half that are negative sums of the second one."""
    cut = len(among) // 2
    left, right = among[:cut], among[cut:]
    mine, theirs = (_sums([numbers[i] for i in part]) for part in (left, right))
    order = np.argsort(theirs, kind="stable")
    theirs, wanted = theirs[order], (_PRIME - mine) % _PRIME
    first, last = (np.searchsorted(theirs, wanted, side=side) for side in ("left", "right"))
    for index in np.flatnonzero(last > first).tolist():
        for other in order[first[index] : last[index]].tolist():
            subset = [left[k] for k in _members(index)] + [right[k] for k in _members(other)]
            if subset and sum(numbers[i] for i in subset) == 0:
                return Cancelling(tuple(sorted(subset)), True)
    return NONE


def _in_lattice(columns: list[list[int]]) -> Cancelling:
    """A subset among the vectors of a reduced basis of all integer relations, or that all relations are too long.

    Beside the unit vectors the coordinates stand with a large factor, so that reduction makes the first vectors
    relations. A lattice vector is at least as long as the shortest orthogonal part of the basis.
    """
    n = len(columns[0])
    weight = 1 << n
    rows = [[int(i == j) for j in range(n)] + [weight * column[i] for column in columns] for i in range(n)]
    shorter = [[int(v) for v in row] for row in flint.fmpz_mat(rows).lll().tolist()]
    basis = [row[:n] for row in shorter if not any(row[n:])]
    if len(basis) != n - len(columns):  # then they would not span all relations
        return UNDECIDED
    for row in basis:
        for sign in (1, -1):
            if all(sign * v in (0, 1) for v in row):
                return Cancelling(tuple(i for i, v in enumerate(row) if v), True)
    minors = _leading_minors([[sum(map(mul, a, b)) for b in basis] for a in basis])
    return NONE if all(now > n * before for before, now in pairwise([1, *minors])) else UNDECIDED


def _leading_minors(gram: list[list[int]]) -> list[int]:
    """Of a positive definite matrix of integers, by fraction-free elimination (Bareiss, 1968)."""
    rows = [list(row) for row in gram]
    minors, before = [], 1
    for k, pivot_row in enumerate(rows):
        pivot = pivot_row[k]
        minors.append(pivot)
        for row in rows[k + 1 :]:
            factor = row[k]
            row[k + 1 :] = [
                (pivot * a - factor * b) // before for a, b in zip(row[k + 1 :], pivot_row[k + 1 :], strict=True)
            ]
        before = pivot
    return minors
