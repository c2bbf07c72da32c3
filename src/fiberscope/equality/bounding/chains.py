"""Two dense chains of one shape, packed for the compiled bounds of their difference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fiberscope.equality.bounding.kernels import CLASSES, VALUES, bound_boxes
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.numerics.floats import TINY, FloatArray, IntArray, U
from fiberscope.numerics.wide import Wide

MOST_INPUTS = 32
"""Inputs up to which boxes are bounded one by one in compiled code; beyond, products of matrices do better."""

MOST_ENTRIES = 2_000_000
"""Entries of all matrices up to which chains are packed."""

MOST_BACK = 200_000_000
"""Products up to which open neurons of one box are asked again by going back to the input: some tenths of a second."""

SCALED = 16.0 * U
"""Relative error of a weight that was multiplied by one scale and divided by another."""


_SECONDS = 1.3e-9
"""Of a product in the kernels."""


class Bounds(NamedTuple):
    """What is known of boxes: ``high`` bounds what is asked about, ``dimension`` is the coordinate to split (-1: none
    is left), ``opened`` counts neurons whose sign is open, at ``points`` the difference may be large."""

    high: FloatArray
    dimension: IntArray
    opened: IntArray
    points: FloatArray


class Layer(NamedTuple):
    """``f(W x + b)`` with the slopes of ``f``, or without an activation."""

    matrix: FloatArray
    offset: FloatArray
    slopes: FloatArray | None


def layers_of(net: Network) -> list[Layer] | None:
    """The dense layers of a program that is a chain of affine maps and activations; None for others, or large ones.

    >>> [layer.matrix.shape for layer in layers_of(Network.random((2, 3, 1), seed=0))]
    [(3, 2), (1, 3)]
    """
    found: list[Layer] = []
    entries = 0
    for index, node in enumerate(net.nodes):
        if node.sources != (index,):
            return None
        if isinstance(node, Affine):
            stages = node.operator.stages()
            entries += sum(stage.in_size * stage.out_size for stage in stages)
            if entries > MOST_ENTRIES:
                return None
            for stage in stages:
                offset = node.offset if stage is stages[-1] and node.offset is not None else np.zeros(stage.out_size)
                found.append(Layer(stage.dense(), offset, None))
        elif isinstance(node, PiecewiseLinear) and found and found[-1].slopes is None:
            found[-1] = found[-1]._replace(slopes=node.slopes)
        else:
            return None
    return found or None


@dataclass(frozen=True, slots=True, eq=False)
class ChainPair:
    """Both networks in the arrays of :mod:`fiberscope.equality.bounding.kernels`."""

    packed: tuple[object, ...]
    inputs: int
    margin: float | None
    back: bool = True
    """Whether open signs are asked again by going back: a box is often tighter, and takes some four times as long."""
    seconds: float = 0.0
    """About how long a box takes, which nothing can interrupt."""

    @classmethod
    def of(
        cls, a: Network, b: Network, matching: Symmetry | None = None, margin: float | None = None
    ) -> ChainPair | None:
        """The pair, if both are dense chains with the same widths and slopes behind ``matching``.

        With a ``margin`` the question is about classes.
        """
        left, right = layers_of(a), layers_of(b)
        if left is None or right is None or a.in_size > MOST_INPUTS:
            return None
        scaled = matching is not None and any((s != 1).any() for s in matching.scales)
        if matching is not None:
            left = moved(left, matching)
        if left is None or not _alike(left, right):
            return None
        packed, back = _packed(left, right, SCALED if scaled else 0.0), _way_back(left) <= MOST_BACK
        return cls(packed, a.in_size, margin, back, _SECONDS * _way_forth(left))

    def quick(self) -> ChainPair:
        """By forms alone. Going back saves a tenth to a half of the boxes, and takes longer than these."""
        return replace(self, back=False)

    def bounds(self, low: FloatArray, high: FloatArray) -> Bounds:
        """Bounds on boxes, ``(count, inputs)`` each."""
        low, high = np.array(low), np.array(high)  # a kernel is compiled anew for arrays that cannot be written to
        kind, margin = (VALUES, 0.0) if self.margin is None else (CLASSES, self.margin)
        return Bounds(*bound_boxes(low, high, *self.packed, self.back, kind, margin))


def _way_back(layers: list[Layer]) -> int:
    """Products at most of going back to the input from all hidden neurons, for both ends of their ranges."""
    found = entries = 0
    for layer in layers[:-1]:
        found += 2 * len(layer.offset) * entries
        entries += layer.matrix.size
    return found


def _way_forth(layers: list[Layer]) -> int:
    """Products of taking all neurons so far through every layer, as generators of zonotopes."""
    found, generators = 0, layers[0].matrix.shape[1]
    for layer in layers:
        found += layer.matrix.size * generators
        generators += len(layer.offset)
    return found


def _alike(left: list[Layer], right: list[Layer]) -> bool:
    """Whether the layers have the same shapes and slopes."""
    if len(left) != len(right):
        return False
    for one, two in zip(left, right, strict=True):
        if one.matrix.shape != two.matrix.shape or (one.slopes is None) != (two.slopes is None):
            return False
        if one.slopes is not None and two.slopes is not None and not np.array_equal(one.slopes, two.slopes):
            return False
    return left[-1].slopes is None


def _packed(left: list[Layer], right: list[Layer], scaled: float) -> tuple[object, ...]:
    wa, wb = (np.concatenate([layer.matrix.ravel() for layer in side]) for side in (left, right))
    ba, bb = (np.concatenate([layer.offset for layer in side]) for side in (left, right))
    slopes = [np.ones(len(layer.offset)) if layer.slopes is None else layer.slopes for layer in left]
    rows, cols = (np.array([layer.matrix.shape[k] for layer in left], dtype=np.int64) for k in (0, 1))
    starts, places = (np.concatenate([[0], np.cumsum(size)[:-1]]) for size in (rows * cols, rows))
    bends = np.array([layer.slopes is not None for layer in left])
    alike = np.array(
        [
            scaled == 0 and np.array_equal(one.matrix, two.matrix) and np.array_equal(one.offset, two.offset)
            for one, two in zip(left, right, strict=True)
        ]
    )
    with np.errstate(over="ignore"):
        gaps = wa - wb, ba - bb
    return wa, wb, gaps[0], ba, gaps[1], np.concatenate(slopes), rows, cols, starts, places, bends, alike, scaled


def moved(layers: list[Layer], matching: Symmetry) -> list[Layer] | None:
    """The layers of ``a`` with their neurons in the order and the scale of those of ``b``.

    Entries are off by less than :data:`SCALED`; None where that does not hold since a number is too large or small.
    """
    hidden = [k for k, layer in enumerate(layers) if layer.slopes is not None]
    if matching.widths != tuple(len(layers[k].offset) for k in hidden):
        return None
    found = list(layers)
    for k, order, scale in zip(hidden, matching.permutations, matching.scales, strict=True):
        this, after = found[k], found[k + 1]
        assert this.slopes is not None
        rows = _quotient(this.matrix[order], scale[:, None], np.ones(1))
        offset = _quotient(this.offset[order], scale, np.ones(1))
        columns = _quotient(after.matrix[:, order], np.ones(1), scale[None])
        if rows is None or offset is None or columns is None:
            return None
        found[k] = Layer(rows, offset, this.slopes[order])
        found[k + 1] = after._replace(matrix=columns)
    return found


def _quotient(w: FloatArray, scale: FloatArray, divisor: FloatArray) -> FloatArray | None:
    result = (Wide.of(w) * Wide.of(scale) / Wide.of(divisor)).floats()
    size = np.abs(result[w != 0])
    return result if not size.size or (size.min() > TINY / U and size.max() < np.inf) else None
