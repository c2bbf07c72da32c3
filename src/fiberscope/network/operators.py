"""Linear operators: the linear parts of a network's affine maps, kept in the form the model gave them.

An operator applies itself to batches of flattened values ``(points, in_size)``, with absolute coefficients (for error
bounds), to exact scalars, and its adjoint to batches ``(points, out_size)``. It is never turned into a dense matrix
unless that is asked for.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.errors import InputError, TooLargeError
from fiberscope.numerics.algebra.ball import balls
from fiberscope.numerics.arrays import frozen, pointers, real_array, row_lengths
from fiberscope.numerics.floats import SQUARABLE, FloatArray, IntArray, ObjectArray

Shape = tuple[int, ...]

_WIDE = 1 << 13
"""Dense maps of so many inputs and more are applied in blocks."""

_BLOCK = 256
"""Columns of a block."""


class Operator(ABC):
    """A linear map from values of ``in_shape`` to values of ``out_shape``."""

    in_shape: Shape
    out_shape: Shape

    @property
    def in_size(self) -> int:
        return prod(self.in_shape)

    @property
    def out_size(self) -> int:
        return prod(self.out_shape)

    @property
    @abstractmethod
    def fan_in(self) -> int:
        """Largest number of products in one output: what a rounding error bound needs."""

    @property
    def roundings(self) -> int:
        """Most roundings that one product meets on its way through :meth:`apply`; not above :attr:`fan_in`."""
        return self.fan_in

    @property
    @abstractmethod
    def coefficients(self) -> FloatArray:
        """The operator's own numbers, in their own shape (a kernel, not its unrolled matrix)."""

    @abstractmethod
    def with_coefficients(self, coefficients: FloatArray) -> Operator:
        """The same operator with other numbers."""

    @abstractmethod
    def apply(self, X: FloatArray) -> FloatArray:
        """``(points, in_size) -> (points, out_size)``."""

    @abstractmethod
    def adjoint(self, Y: FloatArray) -> FloatArray:
        """``(points, out_size) -> (points, in_size)``, the transposed map."""

    @abstractmethod
    def sparse(self) -> Any:
        """The matrix ``(out_size, in_size)`` as a SciPy CSR array."""

    def apply_abs(self, X: FloatArray) -> FloatArray:
        """The map with absolute coefficients; ``X >= 0``."""
        return self._absolute.apply(X)

    def bound_abs(self, X: FloatArray) -> FloatArray | None:
        """Not below :meth:`apply_abs` of ``|X|`` but for ``fan_in + 3`` roundings, if that can be had for less."""
        return None

    @cached_property
    def _absolute(self) -> Operator:
        return self.with_coefficients(np.abs(self.coefficients))

    @cached_property
    def _exact_rows(self) -> tuple[IntArray, ObjectArray, IntArray, IntArray]:
        matrix = self.sparse()
        filled = np.flatnonzero(np.diff(matrix.indptr))
        return matrix.indices, balls(matrix.data), matrix.indptr[filled], filled

    def apply_scalars(self, X: ObjectArray) -> ObjectArray:
        """The map on exact scalars (Arb numbers) in an object array ``(points, in_size)``."""
        columns, values, starts, filled = self._exact_rows
        result = balls(np.zeros((len(X), self.out_size)))
        if len(filled):
            result[:, filled] = np.add.reduceat(X[:, columns] * values, starts, axis=1)
        return result

    @property
    def stored_matrix(self) -> FloatArray | None:
        """The matrix, if this is what the operator holds."""
        return None

    @property
    def stored_diagonal(self) -> FloatArray | None:
        """The diagonal, if this is what the operator holds."""
        return None

    def stages(self) -> Sequence[Operator]:
        """The maps to apply one after the other; more than one only for a composition."""
        return (self,)

    def places(self) -> tuple[slice, ...]:
        """For every stage, where its numbers stand among the operator's own, all in one row."""
        ends = itertools.accumulate((stage.coefficients.size for stage in self.stages()), initial=0)
        return tuple(itertools.starmap(slice, itertools.pairwise(ends)))

    def dense(self, memory: int = 1 << 32) -> FloatArray:
        """The matrix ``(out_size, in_size)``; raises :class:`TooLargeError` above ``memory`` bytes."""
        need = 8 * self.in_size * self.out_size
        if need > memory:
            raise TooLargeError(
                f"a dense {self.out_size} x {self.in_size} matrix needs {need / 2**30:.1f} GiB, "
                f"the limit is {memory / 2**30:.1f} GiB"
            )
        return np.asarray(self.sparse().toarray(), dtype=np.float64)

    def __getstate__(self) -> dict[str, Any]:
        # exact numbers, which are kept to be used again, do not travel to other processes
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_exact")}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_shape} -> {self.out_shape})"


class Dense(Operator):
    """A matrix ``(out, in)``.

    >>> Dense(np.array([[1.0, 2.0]])).apply(np.array([[3.0, 4.0]]))
    array([[11.]])
    """

    def __init__(self, matrix: Any, in_shape: Shape | None = None) -> None:
        self.matrix = frozen(real_array(matrix, "weight", ndim=2))
        self.in_shape = in_shape if in_shape is not None else (self.matrix.shape[1],)
        self.out_shape = (self.matrix.shape[0],)
        if self.in_size != self.matrix.shape[1]:
            raise InputError(f"weight: expected {self.in_size} columns for {self.in_shape}, got {self.matrix.shape}")

    @property
    def fan_in(self) -> int:
        return self.in_size

    @property
    def coefficients(self) -> FloatArray:
        return self.matrix

    def with_coefficients(self, coefficients: FloatArray) -> Dense:
        return Dense(coefficients, self.in_shape)

    @property
    def roundings(self) -> int:
        return self.fan_in if self.in_size < _WIDE else _BLOCK + -(-self.in_size // _BLOCK)

    def apply(self, X: FloatArray) -> FloatArray:
        if self.in_size < _WIDE:
            return np.asarray(X @ self.matrix.T)
        # in blocks: a sum of sums is rounded far less often than one long sum, at the same price
        total = X[:, :_BLOCK] @ self.matrix[:, :_BLOCK].T
        for start in range(_BLOCK, self.in_size, _BLOCK):
            block = slice(start, start + _BLOCK)
            total += X[:, block] @ self.matrix[:, block].T
        return np.asarray(total)

    def bound_abs(self, X: FloatArray) -> FloatArray | None:
        if self.in_size < _WIDE:
            return None
        size = np.sqrt(np.einsum("ij,ij->i", X, X))  # Cauchy and Schwarz: no second product of the size of the first
        tame = ((size > SQUARABLE[0]) & (size < SQUARABLE[1])).all() and self._row_norms.all()
        return np.asarray(size[:, None] * self._row_norms) if tame else None

    @cached_property
    def _row_norms(self) -> FloatArray:
        """Lengths of the rows; zeros where squares would leave the floats."""
        length = row_lengths(self.matrix)
        return np.where((length > SQUARABLE[0]) & (length < SQUARABLE[1]), length, 0.0)

    def adjoint(self, Y: FloatArray) -> FloatArray:
        return np.asarray(Y @ self.matrix)

    @cached_property
    def _exact_matrix(self) -> ObjectArray:
        return balls(self.matrix)

    @cached_property
    def _mostly_zeros(self) -> bool:
        return 2 * int(np.count_nonzero(self.matrix)) < self.matrix.size

    def apply_scalars(self, X: ObjectArray) -> ObjectArray:
        # Scalar products are dear: selections and masked layers stored as dense matrices skip their zeros.
        return super().apply_scalars(X) if self._mostly_zeros else np.asarray(X @ self._exact_matrix.T)

    @property
    def stored_matrix(self) -> FloatArray:
        return self.matrix

    def sparse(self) -> Any:
        return scipy.sparse.csr_array(self.matrix)

    def dense(self, memory: int = 1 << 32) -> FloatArray:
        return self.matrix


class Sparse(Operator):
    """A SciPy sparse matrix ``(out, in)``: pooling by averages, selections, masked layers."""

    def __init__(self, matrix: Any, in_shape: Shape | None = None, out_shape: Shape | None = None) -> None:
        self.matrix = scipy.sparse.csr_array(matrix, dtype=np.float64)
        self.matrix.sum_duplicates()
        real_array(self.matrix.data, "weight")
        self.in_shape = in_shape if in_shape is not None else (self.matrix.shape[1],)
        self.out_shape = out_shape if out_shape is not None else (self.matrix.shape[0],)
        if (self.out_size, self.in_size) != self.matrix.shape:
            raise InputError(f"weight: expected {(self.out_size, self.in_size)}, got {self.matrix.shape}")

    @property
    def fan_in(self) -> int:
        return int(np.diff(self.matrix.indptr).max(initial=1))

    @property
    def coefficients(self) -> FloatArray:
        return np.asarray(self.matrix.data)

    def with_coefficients(self, coefficients: FloatArray) -> Sparse:
        structure = (np.asarray(coefficients), self.matrix.indices, self.matrix.indptr)
        return Sparse(scipy.sparse.csr_array(structure, shape=self.matrix.shape), self.in_shape, self.out_shape)

    def apply(self, X: FloatArray) -> FloatArray:
        return np.ascontiguousarray((self.matrix @ X.T).T)

    def adjoint(self, Y: FloatArray) -> FloatArray:
        return np.ascontiguousarray((self.matrix.T @ Y.T).T)

    def sparse(self) -> Any:
        return self.matrix


def checked_csr(structure: tuple[Any, Any, Any], in_shape: tuple[int, ...], out_shape: tuple[int, ...]) -> Any:
    """A sparse matrix from a file; every index is checked, since compiled products trust them.

    SciPy's own check passes over row pointers that end in zero, so it is not enough.
    """
    data, indices, indptr = structure
    rows, columns = prod(out_shape), prod(in_shape)
    if any(part.ndim != 1 for part in structure) or any(part.dtype.kind not in "iu" for part in (indices, indptr)):
        raise InputError("sparse matrix: expected vectors of values and integer indices")
    indices, indptr = indices.astype(np.int64), indptr.astype(np.int64)
    fits = len(indptr) == rows + 1 and len(data) == len(indices)
    if not fits or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise InputError(f"sparse matrix: expected {rows} rows that share {len(data)} values among them")
    if len(indices) and not (indices.min() >= 0 and indices.max() < columns):
        raise InputError(f"sparse matrix: expected columns from 0 to {columns - 1}, got another one")
    return scipy.sparse.csr_array((data, indices, indptr), shape=(rows, columns))


class Scale(Operator):
    """Entrywise product with ``factors``, broadcast to ``shape`` (one per channel for batch normalisation)."""

    def __init__(self, factors: Any, shape: Shape) -> None:
        self.factors = frozen(real_array(factors, "scale"))
        self.in_shape = self.out_shape = tuple(shape)
        try:
            self._vector = np.broadcast_to(self.factors, self.in_shape).reshape(-1)
        except ValueError as error:
            raise InputError(f"scale: expected factors for {self.in_shape}, got {self.factors.shape}") from error

    @property
    def fan_in(self) -> int:
        return 1

    @property
    def coefficients(self) -> FloatArray:
        return self.factors

    def with_coefficients(self, coefficients: FloatArray) -> Scale:
        return Scale(coefficients, self.in_shape)

    def apply(self, X: FloatArray) -> FloatArray:
        return np.asarray(X * self._vector)

    def adjoint(self, Y: FloatArray) -> FloatArray:
        return self.apply(Y)

    def apply_scalars(self, X: ObjectArray) -> ObjectArray:
        return np.asarray(X * balls(self._vector))

    @property
    def stored_diagonal(self) -> FloatArray:
        return self._vector

    def sparse(self) -> Any:
        return scipy.sparse.csr_array(scipy.sparse.diags_array(self._vector))


class Gather(Operator):
    """Every output entry is one input entry, or zero: padding, slices, transposes, repeated pixels.

    ``index`` says which entry of the flat input, with -1 for zero; its shape is the shape of the output unless
    ``out_shape`` is given. Its coefficients are ones; with other numbers in their place it is a :class:`Sparse` map.

    >>> Gather(np.array([2, -1, 0, 0]), (3,)).apply(np.array([[5.0, 6.0, 7.0]]))
    array([[7., 0., 5., 5.]])
    """

    def __init__(self, index: Any, in_shape: Shape, out_shape: Shape | None = None) -> None:
        array = np.asarray(index)
        if array.dtype.kind not in "iu":
            raise InputError(f"index: expected integers, got {array.dtype}")
        self.index: IntArray = array.astype(np.int64).reshape(-1)
        self.index.flags.writeable = False
        self.in_shape = tuple(in_shape)
        self.out_shape = tuple(array.shape if out_shape is None else out_shape)
        if self.index.size != self.out_size:
            raise InputError(f"index: expected {self.out_size} entries for {self.out_shape}, got {self.index.size}")
        if self.index.size and not (self.index.min() >= -1 and self.index.max() < self.in_size):
            raise InputError(f"index: expected entries from -1 to {self.in_size - 1}, got another one")

    @property
    def fan_in(self) -> int:
        return 1

    @cached_property
    def _absent(self) -> IntArray:
        return np.flatnonzero(self.index < 0)

    @property
    def coefficients(self) -> FloatArray:
        return np.ones(self.out_size - len(self._absent))

    def with_coefficients(self, coefficients: FloatArray) -> Operator:
        made = Sparse(self.sparse(), self.in_shape, self.out_shape).with_coefficients(coefficients)
        return self if (made.coefficients == 1).all() else made

    def _picked(self, X: Any, zero: Any) -> Any:
        picked = X[:, self.index]
        picked[:, self._absent] = zero
        return picked

    def apply(self, X: FloatArray) -> FloatArray:
        return np.asarray(self._picked(X, 0.0))

    def adjoint(self, Y: FloatArray) -> FloatArray:
        return np.ascontiguousarray((self.sparse().T @ Y.T).T)

    def apply_scalars(self, X: ObjectArray) -> ObjectArray:
        return np.asarray(self._picked(X, balls(np.zeros(()))[()]))

    def sparse(self) -> Any:
        starts = pointers((self.index >= 0).astype(np.int64))
        structure = (self.coefficients, self.index[self.index >= 0], starts)
        return scipy.sparse.csr_array(structure, shape=(self.out_size, self.in_size))


class Composition(Operator):
    """Several operators applied one after the other, the first one first; its numbers are those of its parts."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        if not operators:
            raise InputError("composition: expected at least one operator, got none")
        for before, after in itertools.pairwise(operators):
            if before.out_size != after.in_size:
                raise InputError(f"composition: {before} does not fit {after}")
        self.operators = tuple(stage for operator in operators for stage in operator.stages())
        self.in_shape, self.out_shape = operators[0].in_shape, operators[-1].out_shape

    @property
    def fan_in(self) -> int:
        return max(operator.fan_in for operator in self.operators)

    @property
    def coefficients(self) -> FloatArray:
        return np.concatenate([operator.coefficients.reshape(-1) for operator in self.operators])

    def with_coefficients(self, coefficients: FloatArray) -> Composition:
        return Composition(
            [
                operator.with_coefficients(coefficients[place].reshape(operator.coefficients.shape))
                for operator, place in zip(self.operators, self.places(), strict=True)
            ]
        )

    def apply(self, X: FloatArray) -> FloatArray:
        for operator in self.operators:
            X = operator.apply(X)
        return X

    def adjoint(self, Y: FloatArray) -> FloatArray:
        for operator in reversed(self.operators):
            Y = operator.adjoint(Y)
        return Y

    def apply_scalars(self, X: ObjectArray) -> ObjectArray:
        for operator in self.operators:
            X = operator.apply_scalars(X)
        return X

    def stages(self) -> Sequence[Operator]:
        return self.operators

    def sparse(self) -> Any:
        matrix = self.operators[0].sparse()
        for operator in self.operators[1:]:
            matrix = operator.sparse() @ matrix
        return scipy.sparse.csr_array(matrix)
