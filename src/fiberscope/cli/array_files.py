"""Arrays that users give as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fiberscope.errors import InputError
from fiberscope.files import read_array
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray, IntArray


def load_array(path: Path) -> FloatArray:
    """A float array from an .npy file; never unpickles."""
    return real_array(_read(path), str(path))


def load_labels(path: Path) -> IntArray:
    """Whole numbers from an .npy file, whatever type they are stored in."""
    array = _read(path)
    if array.dtype.kind not in "iubf" or not (array == np.floor(array)).all():
        raise InputError(f"{path}: expected whole numbers, got {array.dtype} of shape {array.shape}")
    return array.astype(np.int64)


def load_tokens(path: Path) -> IntArray:
    """Whole numbers ``(texts, length)`` from an .npy file."""
    array = _read(path)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise InputError(f"{path}: expected whole numbers (texts, length), got {array.dtype} {array.shape}")
    return np.asarray(array, dtype=np.int64)


def _read(path: Path) -> npt.NDArray[Any]:
    try:
        return read_array(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or 'not an .npy file'})") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def load_vector(path: Path, size: int) -> FloatArray:
    """One input point of a model, flattened."""
    array = load_array(path).reshape(-1)
    if array.size != size:
        raise InputError(f"{path}: expected {size} numbers, one per input, got {array.size}")
    return array
