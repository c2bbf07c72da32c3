"""The derivative with respect to one use of a parameter as rows, for every kind of operator and in any ring."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.errors import UnsupportedModelError
from fiberscope.network.convolutions import Convolution, TransposedConvolution
from fiberscope.network.operators import Dense, Gather, Operator, Scale, Shape, Sparse
from fiberscope.numerics.algebra.base import Ring
from fiberscope.numerics.floats import IntArray

if TYPE_CHECKING:
    from fiberscope.dimension.uses import Use


def add_block(use: Use, out: Any, ring: Ring, fresh: bool) -> None:
    """Write, or add if not ``fresh``, the derivative ``(points, outputs, size)`` of a use to ``out``."""
    points, outputs, _ = out.shape
    if isinstance(use.operator, Dense):
        rows, columns = use.operator.matrix.shape
        ring.outer_into(use.delta, use.inputs, out.reshape(points, outputs, rows, columns), fresh)
        return
    block = _block(use, ring)
    if fresh:
        out[...] = block
    else:
        out[...] = ring.add([out, block])


def size_of(use: Use) -> int:
    """Number of parameters that a use touches."""
    return prod(use.shape)


def _block(use: Use, ring: Ring) -> Any:
    operator = use.operator
    if operator is None:
        return _summed(use.delta, use.full, use.shape, ring)
    if isinstance(operator, Convolution):
        return _convolution(operator, use, ring)
    if isinstance(operator, TransposedConvolution):
        return _transposed(operator, use, ring)
    if isinstance(operator, Scale):
        product = ring.multiply(use.delta, use.inputs[:, None, :])
        return _summed(product, operator.out_shape, use.shape, ring)
    if isinstance(operator, Sparse | Gather):
        matrix = operator.sparse()
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        return ring.multiply(use.delta[..., rows], use.inputs[:, None, matrix.indices])
    raise UnsupportedModelError(f"derivatives of {operator!r} are not known")


def _summed(array: Any, full: Shape, own: Shape, ring: Ring) -> Any:
    """Sum ``(points, outputs, prod(full))`` over the axes along which an array of shape ``own`` is broadcast."""
    if own == full:
        return array
    padded = (1,) * (len(full) - len(own)) + tuple(own)
    axes = tuple(2 + i for i, (n, m) in enumerate(zip(full, padded, strict=True)) if m == 1 and n != 1)
    if not axes:
        return array
    return ring.total(array.reshape(*array.shape[:2], *full), axes).reshape(*array.shape[:2], -1)


def _convolution(operator: Convolution, use: Use, ring: Ring) -> Any:
    places = taps(operator)
    groups, pixels, fan_in = places.shape
    padded = np.concatenate([use.inputs, np.zeros((len(use.inputs), 1), dtype=use.inputs.dtype)], axis=1)
    lead, outputs, _ = use.delta.shape
    delta = use.delta.reshape(lead, outputs, groups, -1, pixels)
    parts = []
    for g in range(groups):
        left = np.ascontiguousarray(delta[:, :, g]).reshape(lead, -1, pixels)
        block = ring.batched(left, np.ascontiguousarray(padded[:, places[g]]))
        parts.append(block.reshape(len(padded), outputs, -1, fan_in))
    return np.concatenate(parts, axis=2).reshape(len(padded), outputs, -1)


def _transposed(operator: TransposedConvolution, use: Use, ring: Ring) -> Any:
    """As for the convolution whose adjoint it is, with the parts of inputs and deltas exchanged."""
    places = taps(operator.transpose)
    groups, pixels, fan_in = places.shape
    points, (lead, outputs, _) = len(use.inputs), use.delta.shape
    padded = np.concatenate([use.delta, np.zeros((lead, outputs, 1), dtype=use.delta.dtype)], axis=2)
    inputs = use.inputs.reshape(points, groups, -1, pixels)
    parts = []
    for g in range(groups):
        patches = padded[:, :, places[g]].transpose(0, 2, 1, 3).reshape(lead, pixels, outputs * fan_in)
        right = np.ascontiguousarray(np.broadcast_to(patches, (points, *patches.shape[1:])))
        block = ring.batched(np.ascontiguousarray(inputs[:, g]), right)
        parts.append(block.reshape(points, -1, outputs, fan_in))
    return np.concatenate(parts, axis=1).transpose(0, 2, 1, 3).reshape(points, outputs, -1)


@lru_cache(maxsize=32)
def taps(operator: Operator) -> IntArray:
    """Input of every tap of a convolution, ``(groups, pixels, fan_in)``; ``in_size`` stands for the padding.

    Read off the matrix of the operator with its kernel entries numbered from 1: a pair of an output and an input meets
    at most one entry.
    """
    kernel = operator.coefficients
    numbers = np.arange(1, kernel.size + 1, dtype=np.float64).reshape(kernel.shape)
    matrix = operator.with_coefficients(numbers).sparse()
    channels, fan_in = kernel.shape[0], prod(kernel.shape[1:])
    pixels = operator.out_size // channels
    rows = np.repeat(np.arange(operator.out_size), np.diff(matrix.indptr))
    places = np.full((operator.out_size, fan_in), operator.in_size)
    places[rows, (matrix.data.astype(np.int64) - 1) % fan_in] = matrix.indices
    per_channel = places.reshape(channels, pixels, fan_in)
    groups = operator.groups if isinstance(operator, Convolution) else 1
    return np.ascontiguousarray(per_channel[:: channels // groups])
