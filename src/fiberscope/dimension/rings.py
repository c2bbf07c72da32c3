"""Two rings in which derivatives are computed by one and the same program: floats, and residues modulo a prime.

A ring gives the few operations that a forward and a backward pass need. Batches are ``(rows, features)``. The modular
ring stays in compiled code: entries are machine words throughout.
"""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse as sp

from fiberscope.network.operators import Dense, Operator, Scale
from fiberscope.numerics.floats import IntArray
from fiberscope.numerics.modular import (
    Residues,
    add_mod,
    field_of,
    matmul_mod,
    multiply_mod,
    outer_mod,
    residues,
    scale_mod,
)

_CHUNK_ENTRIES = 1 << 22
"""Products held at once when a sparse map is applied modulo a prime."""


class Ring(Protocol):
    """Arrays over one ring; ``stage`` is an operator that is no composition."""

    def take(self, values: Any) -> Any: ...
    def apply(self, stage: Operator, rows: Any) -> Any: ...
    def adjoint(self, stage: Operator, rows: Any) -> Any: ...
    def add(self, a: Any, b: Any) -> Any: ...
    def multiply(self, a: Any, b: Any) -> Any: ...
    def total(self, a: Any, axes: tuple[int, ...]) -> Any: ...
    def batched(self, a: Any, b: Any) -> Any: ...
    def scatter(self, values: Any, index: IntArray, size: int) -> Any: ...
    def outer_into(self, delta: Any, inputs: Any, out: Any, fresh: bool) -> None: ...
    def empty(self, shape: tuple[int, ...]) -> Any: ...


class FloatRing:
    """Float64, or float32 for comparison with float32 software.

    In float32 a dense layer is computed in float32 from rounded weights; other operators are computed in float64 and
    rounded once.
    """

    def __init__(self, dtype: type[np.floating[Any]] = np.float64) -> None:
        self.dtype = dtype
        self._narrow: WeakKeyDictionary[Operator, Any] = WeakKeyDictionary()

    def take(self, values: Any) -> Any:
        return np.asarray(values, dtype=self.dtype)

    def apply(self, stage: Operator, rows: Any) -> Any:
        if self.dtype is not np.float64:
            return (
                rows @ self._matrix(stage).T
                if isinstance(stage, Dense)
                else self.take(stage.apply(rows.astype(np.float64)))
            )
        return stage.apply(rows)

    def adjoint(self, stage: Operator, rows: Any) -> Any:
        if self.dtype is not np.float64:
            return (
                rows @ self._matrix(stage)
                if isinstance(stage, Dense)
                else self.take(stage.adjoint(rows.astype(np.float64)))
            )
        return stage.adjoint(rows)

    def _matrix(self, stage: Dense) -> Any:
        if stage not in self._narrow:
            self._narrow[stage] = self.take(stage.matrix)
        return self._narrow[stage]

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def multiply(self, a: Any, b: Any) -> Any:
        return a * b

    def total(self, a: Any, axes: tuple[int, ...]) -> Any:
        return a.sum(axis=axes)

    def batched(self, a: Any, b: Any) -> Any:
        return np.matmul(a, b)

    def scatter(self, values: Any, index: IntArray, size: int) -> Any:
        result = np.zeros((len(values), size), dtype=self.dtype)
        np.add.at(result, (np.arange(len(values))[:, None], index), values)
        return result

    def outer_into(self, delta: Any, inputs: Any, out: Any, fresh: bool) -> None:
        """``out[n, o, i, j] (+)= delta[n, o, i] inputs[n, j]``."""
        if fresh and out.shape[1] == 1:  # one axis less is faster
            np.multiply(delta[:, 0, :, None], inputs[:, None, :], out=out[:, 0])
        elif fresh:
            np.multiply(delta[..., None], inputs[:, None, None, :], out=out)
        else:
            out += delta[..., None] * inputs[:, None, None, :]

    def empty(self, shape: tuple[int, ...]) -> Any:
        return np.empty(shape, dtype=self.dtype)


class ModularRing:
    """Residues modulo one prime; floats are taken as exact dyadic rationals."""

    def __init__(self, prime: int) -> None:
        self.prime = prime
        self._p = field_of(prime).p
        self._known: WeakKeyDictionary[Operator, dict[str, Any]] = WeakKeyDictionary()

    def take(self, values: Any) -> Residues:
        return residues(values, self.prime)

    def apply(self, stage: Operator, rows: Residues) -> Residues:
        if isinstance(stage, Dense):
            return matmul_mod(rows, self._once(stage, "T", lambda: self.take(stage.matrix.T)), self.prime)
        return self._sparse(stage, rows, "rows")

    def adjoint(self, stage: Operator, rows: Residues) -> Residues:
        if isinstance(stage, Dense):
            return matmul_mod(rows, self._once(stage, "N", lambda: self.take(stage.matrix)), self.prime)
        return self._sparse(stage, rows, "columns")

    def _once(self, stage: Operator, kind: str, make: Any) -> Any:
        known = self._known.setdefault(stage, {})
        if kind not in known:
            known[kind] = make()
        return known[kind]

    def _sparse(self, stage: Operator, rows: Residues, kind: str) -> Residues:
        if isinstance(stage, Scale):
            return multiply_mod(
                rows, self._once(stage, "diagonal", lambda: self.take(stage.sparse().diagonal())), self.prime
            )
        matrix, values = self._once(stage, kind, lambda: self._compressed(stage, kind))
        filled = np.flatnonzero(np.diff(matrix.indptr))
        result = np.zeros((len(rows), len(matrix.indptr) - 1), np.uint64)
        step = max(1, _CHUNK_ENTRIES // max(1, matrix.nnz))
        for start in range(0, len(rows) if len(filled) else 0, step):
            products = multiply_mod(rows[start : start + step][:, matrix.indices], values, self.prime)
            result[start : start + step, filled] = self._wide(
                lambda part, p=products: np.add.reduceat(part(p), matrix.indptr[filled], axis=1)
            )
        return result

    def _compressed(self, stage: Operator, kind: str) -> tuple[Any, Residues]:
        matrix = stage.sparse() if kind == "rows" else sp.csr_array(stage.sparse().T)
        return matrix, self.take(matrix.data)

    def _wide(self, summed: Any) -> Residues:
        """A sum of residues, taken apart into halves of 32 bits so that 2^32 of them fit into a machine word."""
        high = summed(lambda a: a >> np.uint64(32)) % self._p
        low = summed(lambda a: a & np.uint64(0xFFFFFFFF)) % self._p
        return add_mod(scale_mod(high, 1 << 32, self.prime), low, self.prime)

    def add(self, a: Residues, b: Residues) -> Residues:
        return add_mod(a, b, self.prime)

    def multiply(self, a: Residues, b: Residues) -> Residues:
        return multiply_mod(a, b, self.prime)

    def total(self, a: Residues, axes: tuple[int, ...]) -> Residues:
        return self._wide(lambda part: part(a).sum(axis=axes))

    def batched(self, a: Residues, b: Residues) -> Residues:
        """``(k, r, q)`` times ``(k, q, n)``; ``a`` may have one block for all."""
        blocks = np.broadcast_to(a, (len(b), *a.shape[1:]))
        return np.stack([matmul_mod(x, y, self.prime) for x, y in zip(blocks, b, strict=True)])

    def scatter(self, values: Residues, index: IntArray, size: int) -> Residues:
        def summed(part: Any) -> Any:
            result = np.zeros((len(values), size), np.uint64)
            np.add.at(result, (np.arange(len(values))[:, None], index), part(values))
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
