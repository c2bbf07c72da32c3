"""Arrays: what comes in at the border, checked once with what was expected and what came; and how they are laid out."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.floats import SQUARABLE, FloatArray, IntArray


def real_array(value: Any, name: str, *, ndim: int | None = None, finite: bool = True) -> FloatArray:
    """A float64 array with the same real values; raises :class:`InputError` where there is none.

    Python numbers and lists become arrays; arrays (NumPy, torch) must be of a float type no wider than float64, so
    that nothing is rounded and raw integer data (pixels, labels) is not taken for features by accident.

    >>> real_array([1, 2], "x").dtype
    dtype('float64')
    >>> real_array(np.array([1, 2]), "x")
    Traceback (most recent call last):
    fiberscope.errors.InputError: x: expected a floating-point array, got int64 (convert it first)
    """
    if hasattr(value, "detach"):
        value = _from_torch(value, name)
    literal = not hasattr(value, "dtype")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name}: expected a rectangular array of numbers, got a ragged one") from error
    if literal and array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.kind != "f":
        raise InputError(f"{name}: expected a floating-point array, got {array.dtype} (convert it first)")
    if array.dtype.itemsize > 8:
        raise InputError(f"{name}: expected float64 or narrower, got {array.dtype}")
    if ndim is not None and array.ndim != ndim:
        raise InputError(f"{name}: expected {ndim} axes, got shape {array.shape}")
    array = np.asarray(array, dtype=np.float64)
    if finite and not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        if not where:
            raise InputError(f"{name}: expected a finite number, got {array}")
        raise InputError(f"{name}: expected finite numbers, got {array[where]} at index {where}")
    return array


def _from_torch(value: Any, name: str) -> Any:
    tensor = value.detach().cpu()
    if not tensor.is_floating_point():
        dtype = str(tensor.dtype).removeprefix("torch.")
        raise InputError(f"{name}: expected a floating-point array, got {dtype} (convert it first)")
    return tensor.double().numpy()


def batch(value: Any, width: int, name: str = "X") -> FloatArray:
    """A non-empty batch ``(points, width)``; trailing axes, as of images, are flattened.

    >>> batch(np.zeros((2, 3)), 2)
    Traceback (most recent call last):
    fiberscope.errors.InputError: X: expected a batch of shape (points, 2), got (2, 3)
    """
    array = real_array(value, name)
    if array.ndim < 2 or int(np.prod(array.shape[1:])) != width:
        raise InputError(f"{name}: expected a batch of shape (points, {width}), got {array.shape}")
    if len(array) == 0:
        raise InputError(f"{name}: expected at least one point, got an empty batch of shape {array.shape}")
    return array.reshape(len(array), width)


def frozen(array: FloatArray) -> FloatArray:
    """A read-only, C-contiguous copy."""
    copy = np.array(array, dtype=np.float64, order="C", copy=True)
    copy.setflags(write=False)
    return copy


def grown(array: Any, size: int) -> Any:
    """A larger array with the same beginning, with room to grow: to copy costs time, untouched room costs nothing."""
    try:
        larger = np.empty((3 * size, *array.shape[1:]), dtype=array.dtype)
    except MemoryError:
        larger = np.empty((size, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def pointers(counts: IntArray) -> IntArray:
    """Where each stretch begins when stretches of the given lengths are laid end to end, and where the last ends.

    >>> pointers(np.array([2, 0, 3]))
    array([0, 2, 2, 5])
    """
    result = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=result[1:])
    return result


def ranks_within(counts: IntArray) -> IntArray:
    """For all members of such stretches, laid end to end, their number inside of their own.

    >>> ranks_within(np.array([2, 0, 3]))
    array([0, 1, 0, 1, 2])
    """
    starts = pointers(counts)
    return np.arange(starts[-1]) - np.repeat(starts[:-1], counts)


def row_lengths(vectors: FloatArray) -> FloatArray:
    """Euclidean lengths of the rows of ``(rows, n)``, also where their squares leave the range of floats.

    >>> row_lengths(np.array([[3.0, 4.0], [3e-200, 4e-200]]))
    array([5.e+000, 5.e-200])
    """
    with np.errstate(over="ignore", under="ignore"):
        found = np.asarray(np.linalg.norm(vectors, axis=1))
        odd = np.flatnonzero(~((found > SQUARABLE[0]) & (found < SQUARABLE[1])))
        if len(odd):
            exponent = np.frexp(np.abs(vectors[odd]).max(axis=1, initial=0.0))[1]
            scaled = np.ldexp(vectors[odd], -exponent[:, None])
            found[odd] = np.ldexp(np.linalg.norm(scaled, axis=1), exponent)
    return found
