"""Arrays that users give as files."""

from __future__ import annotations

from pathlib import Path

from fiberscope.errors import InputError
from fiberscope.files import read_array
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray


def load_array(path: Path) -> FloatArray:
    """A float array from an .npy file; never unpickles."""
    try:
        array = read_array(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or 'not an .npy file'})") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return real_array(array, str(path))


def load_vector(path: Path, size: int) -> FloatArray:
    """One input point of a model, flattened."""
    array = load_array(path).reshape(-1)
    if array.size != size:
        raise InputError(f"{path}: expected {size} numbers, one per input, got {array.size}")
    return array
