"""Readers of the formats in which data sets are published; none of them runs code found in a file."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fiberscope.errors import FiberscopeError, InputError, TooLargeError
from fiberscope.files import check_unpacked, read_arrays
from fiberscope.numerics.floats import FloatArray

Bytes = npt.NDArray[np.uint8]

CIFAR_RECORD = 1 + 3 * 32 * 32
IDX_UNSIGNED_BYTE = 0x08


def read_idx(content: bytes, name: str) -> Bytes:
    """An array of unsigned bytes in the idx format: two zeros, the type, the axes, their sizes, the data.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 6, 7]), "example")
    array([5, 6, 7], dtype=uint8)
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != IDX_UNSIGNED_BYTE:
        raise InputError(f"{name}: expected an idx file of unsigned bytes, got first bytes {content[:4].hex()}")
    axes = content[3]
    start = 4 + 4 * axes
    if axes == 0 or len(content) < start:
        raise InputError(f"{name}: expected an idx header of {start} bytes, got {len(content)} bytes")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", axes, 4))
    data = np.frombuffer(content, np.uint8, offset=start)
    if data.size != int(np.prod(shape, dtype=np.int64)):
        raise InputError(f"{name}: expected {shape} bytes of data, got {data.size}")
    return data.reshape(shape)


def read_cifar_batch(content: bytes, name: str) -> tuple[Bytes, Bytes]:
    """Images ``(n, 3, 32, 32)`` and labels ``(n,)`` of the binary version: one label byte, then the planes R, G, B."""
    if not content or len(content) % CIFAR_RECORD:
        raise InputError(f"{name}: expected records of {CIFAR_RECORD} bytes, got {len(content)} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, CIFAR_RECORD)
    labels = records[:, 0]
    if labels.max() > 9:
        raise InputError(f"{name}: expected labels 0 to 9, got {labels.max()}")
    return records[:, 1:].reshape(-1, 3, 32, 32), labels


def read_tar_members(content: bytes, names: Sequence[str], archive: str) -> dict[str, bytes]:
    """Files of an archive by their last name; nothing is unpacked to disk."""
    found: dict[str, bytes] = {}
    unpacked = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as tar:
            for member in tar:
                short = Path(member.name).name
                file = tar.extractfile(member) if member.isfile() and short in names else None
                if file is not None:
                    unpacked += member.size - len(found.get(short, b""))
                    check_unpacked(len(content), unpacked)
                    found[short] = file.read()
    except TooLargeError as error:
        raise TooLargeError(f"{archive}: {error}") from error
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise InputError(f"{archive}: expected a tar archive, got {type(error).__name__}: {error}") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"{archive}: expected the file {missing[0]} inside, got {sorted(found) or 'none of them'}")
    return found


def read_npz(path: Path, names: Sequence[str]) -> Mapping[str, npt.NDArray[Any]]:
    """Arrays of an ``.npz`` file; pickled objects inside are refused."""
    try:
        return read_arrays(path, names)
    except FiberscopeError as error:
        raise type(error)(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: expected an .npz of plain arrays, got {type(error).__name__}: {error}") from error


def read_table(content: bytes, name: str, *, header: int = 0, delimiter: str = ",") -> FloatArray:
    """Numbers of a csv file below ``header`` lines, ``(rows, columns)``."""
    try:
        text = content.decode("utf-8-sig")
        table = np.loadtxt(io.StringIO(text), delimiter=delimiter, skiprows=header, ndmin=2)
    except ValueError as error:
        raise InputError(f"{name}: expected a table of numbers, got {error}") from error
    return np.asarray(table, dtype=np.float64)
