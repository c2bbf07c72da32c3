"""Constant tensors of ONNX files as exact float64 arrays, with the files that hold them checked first."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.files import check_unpacked, sha256_of
from fiberscope.network.operators import checked_csr
from fiberscope.numerics.arrays import pointers, real_array
from fiberscope.numerics.floats import FloatArray, IntArray

FLOATS = {TensorProto.FLOAT16: "<f2", TensorProto.FLOAT: "<f4", TensorProto.DOUBLE: "<f8"}
_INTEGERS = {TensorProto.INT64: "<i8", TensorProto.INT32: "<i4"}


def kind_name(kind: int) -> str:
    """The standard's name of an element type; its number where it has none."""
    known = TensorProto.DataType.values()
    return str(TensorProto.DataType.Name(kind)) if kind in known else f"number {kind}"


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of the graph; ``initializer`` tells stored tensors from the outputs of Constant nodes.

    ``made_from`` are the parameters that it was computed from, None where it stands in the file as it is.
    ``open_batch`` says that it was made from the size of a batch, so that only shapes may depend on it.
    """

    name: str
    proto: Any
    folder: Path
    initializer: bool
    made_from: frozenset[str] | None = None
    open_batch: bool = False

    @property
    def is_sparse(self) -> bool:
        return isinstance(self.proto, onnx.SparseTensorProto)

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return len(self.proto.dims)

    @property
    def precision(self) -> str:
        """The name of the float type that the numbers are stored in."""
        kind = self.proto.values.data_type if self.is_sparse else self.proto.data_type
        return str(np.dtype(FLOATS[kind]).name)

    def floats(self) -> FloatArray:
        """The numbers in float64, exactly as stored."""
        if self.is_sparse:
            raise UnsupportedModelError(f"tensor {self.name!r} is sparse; only matrices of Gemm and MatMul may be")
        if self.open_batch:
            raise UnsupportedModelError(f"tensor {self.name!r} depends on the size of the batch")
        if self.proto.data_type not in FLOATS:
            kind = kind_name(self.proto.data_type)
            raise UnsupportedModelError(f"tensor {self.name!r} has type {kind}; expected FLOAT16, FLOAT or DOUBLE")
        return real_array(np.asarray(array_of(self.proto, self.folder)), self.name)

    def integers(self) -> tuple[int, ...]:
        """The entries of an integer vector, such as the target of a Reshape."""
        if self.is_sparse or self.proto.data_type not in _INTEGERS:
            raise InputError(f"tensor {self.name!r}: expected integers")
        return tuple(int(n) for n in np.asarray(array_of(self.proto, self.folder)).reshape(-1))

    def matrix(self) -> Any:
        """A sparse matrix as stored: SciPy CSR."""
        values, rank = self.proto.values, len(self.proto.dims)
        if rank != 2 or values.data_type not in FLOATS:
            raise UnsupportedModelError(f"sparse tensor {self.name!r}: expected a matrix of floats")
        rows, columns = (int(n) for n in self.proto.dims)
        check_unpacked(self.proto.ByteSize(), 8 * rows)  # a pointer per row, also of rows that hold nothing
        indices: IntArray = np.asarray(array_of(self.proto.indices, self.folder), dtype=np.int64)
        if indices.ndim == 2:
            row, column = indices[:, 0], indices[:, 1]
        else:
            row, column = indices // columns, indices % columns
        if len(indices) and (min(row.min(), column.min()) < 0 or row.max() >= rows or column.max() >= columns):
            raise InputError(f"sparse tensor {self.name!r}: an index is outside of {(rows, columns)}")
        if (np.diff(row * columns + column) <= 0).any():
            raise InputError(f"sparse tensor {self.name!r}: expected sorted indices")
        starts = pointers(np.bincount(row, minlength=rows))
        numbers = real_array(np.asarray(array_of(values, self.folder)), self.name)
        return checked_csr((numbers, column, starts), (columns,), (rows,))


def array_of(tensor: Any, folder: Path) -> Any:
    """The array of a tensor, also where its data stands in another file beside the model's."""
    dims = tuple(int(n) for n in tensor.dims)
    if min(dims, default=1) < 0:
        raise InputError(f"tensor {tensor.name!r}: expected sizes of at least zero, got {dims}")
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, folder, dims)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"tensor {tensor.name!r}: expected {prod(dims)} numbers for {dims}, got another count"
        ) from error
    return array


def _external(tensor: Any, folder: Path, dims: tuple[int, ...]) -> Any:
    """Read at our own risk only: the file must lie in the model's folder, links resolved, and hold enough bytes."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    file = _beside(location, folder)
    if file is None:
        raise InputError(f"tensor {tensor.name!r}: its data file {location!r} is outside of the model's folder")
    kinds = FLOATS | _INTEGERS
    if tensor.data_type not in kinds:
        kind = kind_name(tensor.data_type)
        raise UnsupportedModelError(f"tensor {tensor.name!r} has type {kind}; expected FLOAT16, FLOAT or DOUBLE")
    dtype = np.dtype(kinds[tensor.data_type])
    need = prod(dims) * dtype.itemsize
    offset, length = int(entries.get("offset", 0)), int(entries.get("length", need))
    if length != need or offset < 0:
        raise InputError(f"tensor {tensor.name!r}: expected {need} bytes for {dims}, got {length}")
    if not file.is_file():
        raise InputError(f"tensor {tensor.name!r}: its data file {location!r} is missing")
    if file.stat().st_size < offset + need:  # asked first: reading would allocate whatever the model claims
        raise InputError(f"tensor {tensor.name!r}: its data file {location!r} is too short")
    with open(file, "rb") as stream:
        stream.seek(offset)
        return np.frombuffer(stream.read(need), dtype).reshape(dims)


def _beside(location: str, folder: Path) -> Path | None:
    """A file in the model's folder, links resolved; None if it is not in there."""
    home = folder.resolve()
    file = (home / location).resolve()
    return file if location and file.is_relative_to(home) and file != home else None


def data_files(graph: Any, folder: Path) -> tuple[tuple[str, str], ...]:
    """The files in which tensors of a graph have their numbers, each with the SHA-256 of its bytes."""
    tensors = [*graph.initializer]
    for pair in graph.sparse_initializer:
        tensors += [pair.values, pair.indices]
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        tensors += [attribute.t, *attribute.tensors]
    outside = [tensor for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL]
    names = {entry.value for tensor in outside for entry in tensor.external_data if entry.key == "location"}
    found = []
    for name in sorted(names):
        file = _beside(name, folder)
        if file is not None and file.is_file():
            found.append((name, sha256_of(file)))
    return tuple(found)
