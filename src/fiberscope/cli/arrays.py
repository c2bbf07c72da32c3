"""Arrays that users give as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray


def load_array(path: Path) -> FloatArray:
    """A float array from an .npy file; never unpickles."""
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or 'not an .npy file'})") from error
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: expected an .npy file with numbers, got something else") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: expected an .npy file, got an archive")
    return real_array(array, str(path))


def load_vector(path: Path, size: int) -> FloatArray:
    """One input point of a model, flattened."""
    array = load_array(path).reshape(-1)
    if array.size != size:
        raise InputError(f"{path}: expected {size} numbers, one per input, got {array.size}")
    return array
