"""Residues modulo a prime; entries are machine words throughout, so that all stays in compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.numerics.algebra.base import Constant, LinearMap, Ring, on_rows
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.modular import (
    Residues,
    add_mod,
    field_of,
    matmul_mod,
    multiply_mod,
    outer_mod,
    residues,
    scale_mod,
    sparse_mod,
)


class ModularAlgebra(Ring):
    """Residues modulo one prime; floats are taken as exact dyadic rationals."""

    def __init__(self, prime: int, constant: Constant = Constant.EVERYWHERE) -> None:
        super().__init__(constant)
        self.prime = prime
        self._p = field_of(prime).p
        self._known: WeakKeyDictionary[LinearMap, dict[str, Any]] = WeakKeyDictionary()

    def take(self, values: Any) -> Residues:
        return residues(values, self.prime)

    def apply(self, stage: LinearMap, value: Residues) -> Any:
        return on_rows(lambda rows: self._product(stage, rows, "rows"), value)

    def adjoint(self, stage: LinearMap, value: Residues) -> Any:
        return on_rows(lambda rows: self._product(stage, rows, "columns"), value)

    def _product(self, stage: LinearMap, rows: Residues, kind: str) -> Residues:
        """Rows times the transposed matrix (``rows``) or the matrix (``columns``)."""
        matrix, diagonal = stage.stored_matrix, stage.stored_diagonal
        if matrix is not None:
            taken = self._once(stage, kind, lambda: self.take(matrix.T if kind == "rows" else matrix))
            return matmul_mod(rows, taken, self.prime)
        if diagonal is not None:
            return multiply_mod(rows, self._once(stage, "diagonal", lambda: self.take(diagonal)), self.prime)
        return self._sparse(stage, rows, kind)

    def _once(self, stage: LinearMap, kind: str, make: Callable[[], Any]) -> Any:
        known = self._known.setdefault(stage, {})
        if kind not in known:
            known[kind] = make()
        return known[kind]

    def _sparse(self, stage: LinearMap, rows: Residues, kind: str) -> Residues:
        matrix, forms = self._once(stage, kind, lambda: self._compressed(stage, kind))
        return sparse_mod(rows, matrix, forms, self.prime)

    def _compressed(self, stage: LinearMap, kind: str) -> tuple[Any, Residues]:
        matrix = stage.sparse() if kind == "rows" else scipy.sparse.csr_array(stage.sparse().T)
        return matrix, scale_mod(self.take(matrix.data), 1 << 64, self.prime)

    def _wide(self, summed: Any) -> Residues:
        """A sum of residues, taken apart into halves of 32 bits so that 2^32 of them fit into a machine word."""
        high = summed(lambda a: a >> np.uint64(32)) % self._p
        low = summed(lambda a: a & np.uint64(0xFFFFFFFF)) % self._p
        return add_mod(scale_mod(high, 1 << 32, self.prime), low, self.prime)

    def _plus(self, value: Residues, offset: FloatArray) -> Residues:
        return add_mod(value, self.take(offset), self.prime)

    def add(self, values: Sequence[Residues]) -> Residues:
        total = values[0]
        for value in values[1:]:
            total = add_mod(total, value, self.prime)
        return total

    def multiply(self, a: Residues, b: Residues) -> Residues:
        return multiply_mod(a, b, self.prime)

    def total(self, a: Residues, axes: tuple[int, ...]) -> Residues:
        return self._wide(lambda part: part(a).sum(axis=axes))

    def batched(self, a: Residues, b: Residues) -> Residues:
        blocks = np.broadcast_to(a, (len(b), *a.shape[1:]))
        return np.stack([matmul_mod(x, y, self.prime) for x, y in zip(blocks, b, strict=True)])

    def _scattered(self, rows: Residues, index: IntArray, size: int) -> Residues:
        def summed(part: Any) -> Any:
            result = np.zeros((len(rows), size), np.uint64)
            np.add.at(result, (np.arange(len(rows))[:, None], index), part(rows))
            return result

        return self._wide(summed)

    def outer_into(self, delta: Residues, inputs: Residues, out: Residues, fresh: bool) -> None:
        points, outputs, _, _ = out.shape
        left = np.broadcast_to(delta, (points, *delta.shape[1:])).reshape(points * outputs, -1)
        right = np.repeat(inputs, outputs, axis=0)
        product = outer_mod(left, right, self.prime).reshape(out.shape)
        out[...] = product if fresh else add_mod(out, product, self.prime)

    def empty(self, shape: tuple[int, ...]) -> Residues:
        return np.empty(shape, np.uint64)
