"""What the lattice engine works on: lists of cells that grow, the layout of a layer, floats in homogeneous form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.errors import TooLargeError
from fiberscope.geometry import lattice_kernels as kernels
from fiberscope.geometry.cells import Incidence
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.arithmetic import Bounded, BoundedArithmetic, LinearMap
from fiberscope.numerics.floats import FloatArray, IntArray, gamma, round_up
from fiberscope.numerics.rows import proportional_rows

BLOCK = 32
"""Neurons whose signs are kept in one machine word."""

_MAX_CELLS = (1 << 31) - 1

T = -1
"""Key of the homogeneous coordinate among the live values."""


@dataclass(slots=True)
class Level:
    """The cells of one dimension, in arrays that grow."""

    start: IntArray
    length: Any
    pool: Any
    masks: Any
    link: Any
    head: Any
    count: int = 0
    used: int = 0

    @classmethod
    def of(cls, facets: tuple[tuple[int, ...], ...]) -> Level:
        lengths = np.array([len(f) for f in facets], dtype=np.int32)
        flat = np.array([x for f in facets for x in f], dtype=np.int32)
        level = cls.empty()
        level.reserve(len(facets), len(flat))
        level.length[: len(facets)] = lengths
        level.start[: len(facets)] = np.cumsum(lengths) - lengths
        level.pool[: len(flat)] = flat
        level.count, level.used = len(facets), len(flat)
        return level

    @classmethod
    def empty(cls) -> Level:
        small = np.zeros(0, dtype=np.int32)
        head = np.full(BLOCK, -1, dtype=np.int64)
        return cls(np.zeros(0, np.int64), small, small, np.zeros((0, 4), np.uint32), small, head)

    def reserve(self, cells: int, places: int) -> None:
        """Room for so many more cells and entries of the pool."""
        if self.count + cells > len(self.start):
            size = 2 * (self.count + cells)
            if self.count + cells > _MAX_CELLS:
                raise TooLargeError(f"a complex of more than {_MAX_CELLS} cells of one dimension")
            for name in ("start", "length", "link", "masks"):
                setattr(self, name, grown(getattr(self, name), size))
        if self.used + places > len(self.pool):
            self.pool = grown(self.pool, 2 * (self.used + places))

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self.start, self.length, self.pool, self.masks, self.link

    def incidence(self) -> Incidence:
        indptr = np.zeros(self.count + 1, dtype=np.int64)
        np.cumsum(self.length[: self.count], out=indptr[1:])
        indices = np.empty(indptr[-1], dtype=np.int32)
        kernels.compact(self.start, self.length, self.pool, indptr, indices)
        return Incidence(indptr, indices)  # half the memory of 64-bit indices


def grown(array: Any, size: int) -> Any:
    """A larger array with the same beginning."""
    larger = np.empty((size, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@dataclass(frozen=True, slots=True)
class Layer:
    """One activation: its node, the value it acts on, its columns of the sign table, where live values stand in the
    float table, and neurons that are multiples of earlier ones (neuron -> (earlier neuron, sign))."""

    index: int
    source: int
    begin: int
    end: int
    slices: dict[int, slice]
    copies: dict[int, tuple[int, int]]


def proportional(net: Network, node: PiecewiseLinear) -> dict[int, tuple[int, int]]:
    """Neurons of a dense layer whose row is a multiple of an earlier one: they vanish together, so one is enough."""
    affine = net.nodes[node.source - 1] if node.source else None
    if not (isinstance(affine, Affine) and isinstance(affine.operator, Dense)):
        return {}
    bias = np.zeros(affine.operator.out_size) if affine.offset is None else affine.offset
    rows = np.concatenate([affine.operator.coefficients, bias[:, None]], axis=1)
    rows[node.linear] = 0.0
    leads = np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]).astype(np.int64)
    return {
        copy: (group[0], int(leads[copy] * leads[group[0]])) for group in proportional_rows(rows) for copy in group[1:]
    }


class HomogeneousBounds(BoundedArithmetic):
    """Bounded floats on homogeneous coordinates: biases are multiplied by the last coordinate, t, ``(points, 1)``."""

    def __init__(self, t: Bounded) -> None:
        self.t = t

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: Bounded) -> Bounded:
        value = super().affine(operator, None, value)
        if bias is None:
            return value
        shift = self.t.value * bias
        slip = np.where(shift == 0, 0.0, round_up(gamma(1) * np.abs(shift), 2)) + np.abs(bias) * self.t.error
        return self.add([value, Bounded(shift, slip)])
