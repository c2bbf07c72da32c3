"""Where the entries of an image go: every function takes and gives an array of places, -1 for a zero.

A reader starts from ``places(shape)``, the places of a value's own entries in the shape that the graph gives it, moves
them as the graph moves the numbers, and hands the result to the builder.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.numerics.floats import IntArray

_MODES = {"reflect": "reflect", "edge": "edge", "replicate": "edge", "wrap": "wrap", "circular": "wrap"}
"""Kinds of padding that repeat entries, by the names of ONNX and torch."""


def places(shape: Sequence[int]) -> IntArray:
    """The places of the entries of a value of that shape."""
    return np.arange(prod(shape)).reshape(tuple(shape))


def padded(index: IntArray, widths: Sequence[tuple[int, int]], mode: str) -> IntArray:
    """More entries before and after every axis; a negative width cuts off. New ones are zeros in mode ``constant``.

    >>> padded(places((3,)), [(1, -1)], "constant").tolist(), padded(places((3,)), [(2, 0)], "reflect").tolist()
    ([-1, 0, 1], [2, 1, 0, 1, 2])
    """
    if mode != "constant" and mode not in _MODES:
        raise UnsupportedModelError(f"padding mode {mode!r} is not supported")
    for axis, (before, after) in enumerate(widths):
        size = index.shape[axis]
        if size + min(before, 0) + min(after, 0) < 1:
            raise InputError(f"padding {(before, after)} leaves nothing of {size} entries")
        index = np.take(index, np.arange(-min(before, 0), size + min(after, 0)), axis)
    widths = [(max(before, 0), max(after, 0)) for before, after in widths]
    if mode == "constant":
        return np.pad(index, widths, constant_values=-1)
    longest = [max(width) for width in widths]
    if _MODES[mode] != "edge" and any(n > size for n, size in zip(longest, index.shape, strict=True)):
        raise InputError(f"padding {widths} in mode {mode!r} is longer than the value of shape {index.shape}")
    return np.pad(index, widths, mode=_MODES[mode])  # type: ignore[call-overload, no-any-return]


def depth_to_space(index: IntArray, block: int, blocks_first: bool = False) -> IntArray:
    """Channels become ``block x block`` pixels; ``blocks_first`` says that they stand before the new channels."""
    channels, height, width = index.shape
    if block < 1 or channels % block**2:
        raise InputError(f"expected channels divisible by {block}^2, got {index.shape}")
    if blocks_first:
        parts = index.reshape(block, block, channels // block**2, height, width).transpose(2, 3, 0, 4, 1)
    else:
        parts = index.reshape(channels // block**2, block, block, height, width).transpose(0, 3, 1, 4, 2)
    return parts.reshape(channels // block**2, height * block, width * block)


def space_to_depth(index: IntArray, block: int, blocks_first: bool = False) -> IntArray:
    """The inverse of :func:`depth_to_space`."""
    channels, height, width = index.shape
    if block < 1 or height % block or width % block:
        raise InputError(f"expected an image divisible by {block}, got {index.shape}")
    parts = index.reshape(channels, height // block, block, width // block, block)
    order = (2, 4, 0, 1, 3) if blocks_first else (0, 2, 4, 1, 3)
    return parts.transpose(order).reshape(channels * block**2, height // block, width // block)
