"""Numbers for the entries of a program's values: equal numbers are proven to be one and the same function.

Two entries of a convolution with equal patches are equal wherever the patches are; what zeros are mapped to is zero.
Entries get numbers from the inputs on, and 0 is the constant zero. Nothing is computed, only compared, so equality is
proven. Entries with different numbers may still be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.network.convolutions import Convolution
from fiberscope.network.walk import all_values
from fiberscope.numerics.algebra.base import LinearMap, joined
from fiberscope.numerics.arrays import ranks_within
from fiberscope.numerics.floats import FloatArray, IntArray

if TYPE_CHECKING:
    from fiberscope.network.layout import Layout

_MOST_ENTRIES = 1 << 22
"""A matrix with more entries is not compared row by row: that would take seconds."""


@dataclass(slots=True)
class Numbering:
    """Numbers for rows of a table, the same for equal rows under one prefix."""

    known: dict[tuple[Any, int], tuple[IntArray, IntArray]] = field(default_factory=dict)
    used: int = 1

    def take(self, prefix: Any, rows: IntArray, width: int = 1) -> IntArray:
        """``width`` new numbers for every different row, ``(rows, width)``."""
        key = (prefix, rows.shape[1])
        before, numbers = self.known.get(key, (rows[:0], np.zeros(0, dtype=np.int64)))
        distinct, inverse = _distinct(np.concatenate([before, rows]))
        first = np.full(len(distinct), -1, dtype=np.int64)
        first[inverse[: len(before)]] = numbers
        fresh = np.flatnonzero(first < 0)
        first[fresh] = self.used + width * np.arange(len(fresh))
        self.used += width * len(fresh)
        self.known[key] = (distinct, first)
        return first[inverse[len(before) :]][:, None] + np.arange(width)


_MIX = np.random.default_rng(0).integers(0, 1 << 63, 1 << 12, dtype=np.int64) * 2 + 1
"""Odd numbers: a sum of products with them, modulo 2^64, tells almost all rows apart."""


def _distinct(rows: IntArray) -> tuple[IntArray, IntArray]:
    """The different rows of a table and the number of each row's own among them, in no special order."""
    mixed = np.ascontiguousarray(rows) @ _MIX[np.arange(rows.shape[1]) % len(_MIX)]
    _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
    distinct, inverse = np.ascontiguousarray(rows[first]), inverse.reshape(-1)
    if np.array_equal(distinct[inverse], rows):
        return distinct, inverse
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)  # two rows had one sum
    return np.ascontiguousarray(distinct), inverse.reshape(-1)


def bits(values: FloatArray) -> IntArray:
    """Floats as integers, to be compared bit by bit; the two zeros are one."""
    return np.ascontiguousarray(values + 0.0, dtype=np.float64).view(np.int64)


def constants(numbering: Numbering, rows: FloatArray) -> IntArray:
    """Numbers of the rows of a table; a row of zeros has number 0."""
    return np.where((rows == 0).all(axis=1), 0, numbering.take("constant", bits(rows))[:, 0])


def convolved(numbering: Numbering, stage: Convolution, prefix: Any, before: IntArray) -> IntArray:
    """Numbers behind a convolution: equal patches have equal results, channel by channel."""
    padded = np.append(before, 0)
    width = stage.kernel.shape[0] // len(stage.taps)
    parts = []
    for group, where in enumerate(stage.taps):
        patches = padded[where]
        numbers = numbering.take((prefix, group), patches, width)
        parts.append(np.where(patches.any(axis=1)[:, None], numbers, 0).T)
    return np.concatenate(parts).reshape(-1)


def scaled(numbering: Numbering, factors: FloatArray, before: IntArray) -> IntArray:
    """Numbers behind a multiplication entry by entry with known factors."""
    numbers = numbering.take("times", np.column_stack([bits(factors), before]))[:, 0]
    return np.where((before == 0) | (factors == 0), 0, np.where(factors == 1, before, numbers))


def shifted(numbering: Numbering, offset: FloatArray, before: IntArray) -> IntArray:
    """Numbers behind the addition of known numbers."""
    return np.where(offset == 0, before, numbering.take("plus", np.column_stack([bits(offset), before]))[:, 0])


def added(numbering: Numbering, parts: Sequence[IntArray]) -> IntArray:
    """Numbers of sums."""
    rows = np.sort(np.column_stack(parts), axis=1)
    alone = (rows[:, :-1] == 0).all(axis=1)  # sorted: at most the last is not zero
    return np.where(alone, rows[:, -1], numbering.take("sum", rows)[:, 0])


def maxima(numbering: Numbering, sets: IntArray) -> IntArray:
    """Numbers of the maxima of sets, a row each; what stands twice in a row counts once."""
    sets = np.sort(sets, axis=1)
    sets[:, 1:] = np.where(sets[:, 1:] == sets[:, :-1], sets[:, -1:], sets[:, 1:])
    sets = np.sort(sets, axis=1)
    return np.where(sets[:, 0] == sets[:, -1], sets[:, 0], numbering.take("maximum", sets)[:, 0])


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Values of a walk that are numbers of functions of the input, ``(features,)``; all parameters are constants."""

    numbering: Numbering

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: IntArray) -> IntArray:
        for stage in operator.stages():
            value = self._linear(stage, value)
        return value if bias is None else shifted(self.numbering, bias, value)

    def _linear(self, stage: LinearMap, value: IntArray) -> IntArray:
        if isinstance(stage, Convolution):
            return convolved(self.numbering, stage, id(stage), value)
        if (diagonal := stage.stored_diagonal) is not None:
            return scaled(self.numbering, diagonal, value)
        matrix: Any = stage.sparse()
        if matrix.nnz > _MOST_ENTRIES:
            fresh: IntArray = self.numbering.take(id(stage), value[None], stage.out_size)[0]
            return fresh
        return self._rows(matrix, value)

    def _rows(self, matrix: Any, value: IntArray) -> IntArray:
        """Rows of a matrix as sorted lists of pairs (coefficient, number), without what is zero."""
        reads = (matrix.data != 0) & (value[matrix.indices] != 0)
        row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))[reads]
        pairs = np.column_stack([bits(matrix.data[reads]), value[matrix.indices[reads]]])
        number = self.numbering.take("times", pairs)[:, 0]
        order = np.lexsort((number, row))
        row, number = row[order], number[order]
        counts = np.bincount(row, minlength=matrix.shape[0])
        table = np.zeros((matrix.shape[0], counts.max(initial=1)), dtype=np.int64)
        table[row, ranks_within(counts)] = number
        single = (counts == 1) & (matrix @ np.ones(matrix.shape[1]) == 1) & (np.diff(matrix.indptr) == 1)
        found = np.where(counts == 0, 0, self.numbering.take("row", table)[:, 0])
        found[single] = value[matrix.indices[matrix.indptr[:-1][single]]]  # a copy keeps its number
        return found

    def add(self, values: Sequence[IntArray]) -> IntArray:
        return added(self.numbering, values)

    def concat(self, values: Sequence[IntArray], order: IntArray | None) -> IntArray:
        together: IntArray = joined(values, order)
        return together

    def piecewise(self, value: IntArray, slopes: FloatArray) -> IntArray:
        bent = self.numbering.take("slope", np.column_stack([bits(slopes), value]))[:, 0]
        return np.where((value == 0) | (slopes == 1), value, bent)

    def window_max(self, value: IntArray, windows: IntArray) -> IntArray:
        first = value[windows.max(axis=1)]  # stands in for what lies outside
        return maxima(self.numbering, np.where(windows < 0, first[:, None], value[windows]))


def equal_entries(layout: Layout, inputs: FloatArray) -> list[IntArray]:
    """Numbers of the entries of every value of a program, the input first.

    ``inputs (in_size, rows)`` says what the inputs are: on the domain that is meant, inputs with equal rows are one
    function, and a row of zeros is zero. Corners of a chain of segments are such rows, or the coefficients of a plane.
    """
    numbering = Numbering()
    return all_values(layout, constants(numbering, inputs), _Numbers(numbering))
