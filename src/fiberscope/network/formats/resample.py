"""Resizing with constant factors as sparse maps: linear interpolation, nearest entries, and means over cells.

All of them act along one axis after the other, so a map is the Kronecker product of a small matrix for each axis.
Weights of linear interpolation are rational numbers, rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
from scipy import sparse as sp

from fiberscope.errors import UnsupportedModelError
from fiberscope.numerics.floats import IntArray


def along_axes(matrices: Sequence[Any]) -> Any:
    """The map that applies one matrix along each axis of an array, as one sparse matrix of flat arrays."""
    joined = sp.csr_array(matrices[0])
    for matrix in matrices[1:]:
        joined = sp.csr_array(sp.kron(joined, matrix, format="csr"))
    return joined


def linear(sources: Sequence[Fraction], size: int) -> Any:
    """Linear interpolation at places between ``size`` entries; places outside are moved to the nearer end.

    >>> linear([Fraction(-1, 4), Fraction(1, 4)], 2).toarray()
    array([[1.  , 0.  ],
           [0.75, 0.25]])
    """
    rows, columns, values = [], [], []
    for row, source in enumerate(sources):
        place = min(max(source, Fraction(0)), Fraction(size - 1))
        first = floor(place)
        for column, weight in ((first, 1 - (place - first)), (first + 1, place - first)):
            if weight:
                rows.append(row)
                columns.append(column)
                values.append(float(weight))
    return sp.csr_array((values, (rows, columns)), shape=(len(sources), size))


def cell_means(size: int, cells: int) -> Any:
    """Means over ``cells`` overlapping cells that cover an axis, as in adaptive pooling.

    >>> cell_means(3, 2).toarray()
    array([[0.5, 0.5, 0. ],
           [0. , 0.5, 0.5]])
    """
    matrix = np.zeros((cells, size))
    for cell in range(cells):
        first, last = cell * size // cells, ceil(Fraction((cell + 1) * size, cells))
        matrix[cell, first:last] = 1 / (last - first)
    return sp.csr_array(matrix)


def coordinates(size: int, count: int, scale: Fraction, transformation: str) -> list[Fraction]:
    """The place in the input of every one of ``count`` outputs along an axis, by ONNX's names of the conventions."""
    half = Fraction(1, 2)
    match transformation:
        case "align_corners":
            return [Fraction(x * (size - 1), max(count - 1, 1)) for x in range(count)]
        case "asymmetric":
            return [x / scale for x in map(Fraction, range(count))]
        case "pytorch_half_pixel" if count == 1:
            return [Fraction(0)]
        case "half_pixel" | "pytorch_half_pixel":
            return [(x + half) / scale - half for x in map(Fraction, range(count))]
    raise UnsupportedModelError(f"coordinate_transformation_mode {transformation!r} is not supported")


def nearest(size: int, count: int, scale: float, transformation: str, rounding: str) -> IntArray:
    """Which of ``size`` entries each output repeats; in float32, as runtimes do it, since a rounding decides."""
    x, s, half = np.arange(count, dtype=np.float32), np.float32(scale), np.float32(0.5)
    if transformation == "asymmetric":
        source = x / s
    elif transformation == "align_corners":
        source = x * np.float32(size - 1) / np.float32(max(count - 1, 1))
    elif transformation == "pytorch_half_pixel" and count == 1:
        source = np.zeros(1, dtype=np.float32)
    elif transformation in ("half_pixel", "pytorch_half_pixel"):
        source = (x + half) / s - half
    else:
        raise UnsupportedModelError(f"coordinate_transformation_mode {transformation!r} is not supported")
    roundings: dict[str, Any] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda a: np.ceil(a - half),
        "round_prefer_ceil": lambda a: np.floor(a + half),
    }
    if rounding not in roundings:
        raise UnsupportedModelError(f"nearest_mode {rounding!r} is not supported")
    return np.asarray(np.clip(roundings[rounding](source), 0, size - 1), dtype=np.int64)
