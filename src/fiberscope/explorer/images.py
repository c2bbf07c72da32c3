"""Inputs as small images, where they are some: for the corners of a slice through data."""

from __future__ import annotations

import struct
import zlib
from math import isqrt

import numpy as np

from fiberscope.numerics.floats import FloatArray

LEAST_SIDE = 8
"""Below this a square number of inputs is no picture."""


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Channels, height and width of an input that is an image, else None; flat inputs are taken to be square.

    >>> image_shape((784, 1)), image_shape((3, 32, 32)), image_shape((1, 28, 28)), image_shape((1, 1, 1, 5))
    ((1, 28, 28), (3, 32, 32), (1, 28, 28), None)
    """
    sides = tuple(n for n in shape if n != 1)
    if len(sides) == 3 and sides[0] == 3 and min(sides[1:]) >= LEAST_SIDE:
        return sides[0], sides[1], sides[2]
    if len(sides) == 2 and min(sides) >= LEAST_SIDE:
        return 1, sides[0], sides[1]
    if len(sides) == 1:
        for channels in (1, 3):
            side = isqrt(sides[0] // channels)
            if side >= LEAST_SIDE and channels * side * side == sides[0]:
                return channels, side, side
    return None


def image_png(x: FloatArray, shape: tuple[int, int, int], low: float, high: float) -> bytes:
    """One input as a PNG file, ``low`` black and ``high`` white.

    >>> image_png(np.zeros(64), (1, 8, 8), 0.0, 1.0)[:4]
    b'\\x89PNG'
    """
    scaled = (np.asarray(x, dtype=float).reshape(shape) - low) / ((high - low) or 1.0)
    pixels = np.moveaxis(np.clip(np.round(255 * scaled), 0, 255).astype(np.uint8), 0, -1)
    channels, height, width = shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    parts = [_chunk(b"IHDR", head), _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
