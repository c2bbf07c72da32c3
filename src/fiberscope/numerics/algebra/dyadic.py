"""Integers with one common exponent: exact numbers for rows that are composed again and again.

A value is ``integers * 2**exponent`` with ``integers (rows, features)`` of ``flint.fmpz``; rows are coefficients of
affine functions, the constant term in the last one. Exponents only fall, nothing is ever rounded. What a float array is
in integers is remembered, so an algebra lives no longer than the program that it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from fiberscope.numerics.algebra.base import Algebra, Constant, LinearMap, joined, picked
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, ObjectArray
from fiberscope.numerics.points import to_dyadic

_fmpz = np.frompyfunc(flint.fmpz, 1, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Dyadic:
    """``integers * 2**exponent`` in an object array."""

    integers: ObjectArray
    exponent: int

    @classmethod
    def of(cls, array: FloatArray) -> Dyadic:
        integers, exponent = to_dyadic(array)
        return cls(np.asarray(_fmpz(integers), dtype=object), exponent)

    def at(self, exponent: int) -> ObjectArray:
        """The integers for a smaller exponent."""
        shift = self.exponent - exponent
        return np.asarray(self.integers * (flint.fmpz(1) << shift) if shift else self.integers.copy())


class DyadicAlgebra(Algebra[Dyadic]):
    """Exact rows in integers.

    >>> from fiberscope.network.operators import Dense
    >>> value = DyadicAlgebra().affine(Dense(np.array([[0.5, 3.0]])), np.array([0.25]), Dyadic.of(np.eye(3, 2)))
    >>> value.integers.ravel().tolist(), value.exponent
    ([2, 12, 1], -2)
    """

    constant = Constant.LAST

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}

    def _once(self, thing: Any, make: Callable[[Any], Any]) -> Any:
        """What is made of an operator or array, once; the thing is held, so that its number stays its own."""
        if id(thing) not in self._known:
            self._known[id(thing)] = (thing, make(thing))
        return self._known[id(thing)][1]

    def take(self, values: FloatArray) -> Dyadic:
        return Dyadic.of(values)

    def apply(self, stage: LinearMap, value: Dyadic) -> Dyadic:
        act, exponent = self._once(stage, _sparse if stage.stored_matrix is None else _dense)
        return Dyadic(act(value.integers), value.exponent + exponent)

    def shift(self, value: Dyadic, offset: FloatArray) -> Dyadic:
        added = self._once(offset, Dyadic.of)
        low = min(value.exponent, added.exponent)
        rows = value.at(low)
        rows[..., -1, :] = rows[..., -1, :] + added.at(low)
        return Dyadic(rows, low)

    def add(self, values: Sequence[Dyadic]) -> Dyadic:
        low = min(value.exponent for value in values)
        return Dyadic(np.asarray(sum((v.at(low) for v in values[1:]), start=values[0].at(low))), low)

    def difference(self, one: Dyadic, other: Dyadic) -> Dyadic:
        low = min(one.exponent, other.exponent)
        return Dyadic(np.asarray(one.at(low) - other.at(low)), low)

    def concat(self, values: Sequence[Dyadic], order: IntArray | None) -> Dyadic:
        low = min(value.exponent for value in values)
        return Dyadic(joined([value.at(low) for value in values], order), low)

    def gate(self, value: Dyadic, active: BoolArray, slopes: FloatArray | None) -> Dyadic:
        if slopes is None:
            return Dyadic(np.where(active, value.integers, flint.fmpz(0)), value.exponent)
        factors = Dyadic.of(np.where(active, 1.0, slopes))
        return Dyadic(value.integers * factors.integers, value.exponent + factors.exponent)

    def pick(self, value: Dyadic, index: IntArray) -> Dyadic:
        return Dyadic(picked(value.integers, index), value.exponent)


def _dense(stage: LinearMap) -> tuple[Callable[[ObjectArray], ObjectArray], int]:
    assert stage.stored_matrix is not None
    integers, exponent = to_dyadic(stage.stored_matrix)
    matrix = flint.fmpz_mat(integers.T.tolist())

    def act(rows: ObjectArray) -> ObjectArray:
        return np.array((flint.fmpz_mat(rows.tolist()) * matrix).tolist(), dtype=object)

    return act, exponent


def _sparse(stage: LinearMap) -> tuple[Callable[[ObjectArray], ObjectArray], int]:
    matrix = stage.sparse()
    data = Dyadic.of(matrix.data)
    filled = np.flatnonzero(np.diff(matrix.indptr))
    starts = matrix.indptr[filled]

    def act(rows: ObjectArray) -> ObjectArray:
        result = np.asarray(_fmpz(np.zeros((len(rows), stage.out_size), dtype=object)), dtype=object)
        if len(filled):
            result[:, filled] = np.add.reduceat(rows[:, matrix.indices] * data.integers, starts, axis=1)
        return result

    return act, data.exponent
