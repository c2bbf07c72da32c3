"""The five kinds of nodes a network program is made of, and those that stand for several of them.

A program is a list of nodes. Value 0 is the input, node ``k`` makes value ``k + 1``, and the last value is the output.
A node names its sources by their value numbers, all of them smaller than its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, TypeVar

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.operators import Operator, Scale, Shape
from fiberscope.numerics.algebra.base import Algebra
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray


@dataclass(frozen=True, eq=False)
class Affine:
    """``operator(x) + bias``.

    ``bias`` is broadcast to the operator's ``out_shape`` (one number per channel after a convolution). The names say
    which of the model's parameters the numbers are; nodes with the same name share them, and None marks a constant of
    the model (a mean that is subtracted, the statistics of a batch normalisation, an averaging pool).
    """

    source: int
    operator: Operator
    bias: FloatArray | None = None
    weight_name: str | None = None
    bias_name: str | None = None

    def __post_init__(self) -> None:
        if self.bias is not None:
            bias = frozen(real_array(self.bias, "bias"))
            try:
                np.broadcast_to(bias, self.operator.out_shape)
            except ValueError as error:
                expected = self.operator.out_shape
                raise InputError(f"bias: expected shape {expected}, got {bias.shape}") from error
            object.__setattr__(self, "bias", bias)

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.source,)

    @property
    def shape(self) -> Shape:
        return self.operator.out_shape

    @cached_property
    def offset(self) -> FloatArray | None:
        """The bias as a flat vector of ``out_size`` entries, or None."""
        if self.bias is None:
            return None
        return np.broadcast_to(self.bias, self.operator.out_shape).reshape(-1)

    def check(self, shapes: list[Shape]) -> None:
        """Raise :class:`InputError` unless the source has the size that the operator takes."""
        if prod(shapes[self.source]) != self.operator.in_size:
            raise InputError(f"affine map: expected {self.operator.in_size} inputs, got {prod(shapes[self.source])}")


@dataclass(frozen=True, eq=False)
class PiecewiseLinear:
    """``x`` where ``x > 0`` and ``slope * x`` elsewhere, per neuron: 0 is ReLU, 1 the identity, -1 the absolute value.

    A neuron of slope 1 is linear. ``slope_name`` says which of the model's parameters the slopes are, None that they
    are constants; ``slope_shape`` is then the shape of that parameter, which is broadcast to ``shape`` (one number for
    all neurons, or one per channel).
    """

    source: int
    slopes: FloatArray
    shape: Shape
    slope_name: str | None = None
    slope_shape: Shape | None = None

    def __post_init__(self) -> None:
        slopes = real_array(self.slopes, "slope")
        if slopes.shape == (prod(self.shape),):
            slopes = slopes.reshape(self.shape)  # already flat, as when a node is replaced by a changed copy
        try:
            full = np.broadcast_to(slopes, self.shape).reshape(-1)
        except ValueError as error:
            raise InputError(f"slope: expected shape {self.shape}, got {slopes.shape}") from error
        object.__setattr__(self, "slopes", frozen(full))
        if self.slope_name is None:
            object.__setattr__(self, "slope_shape", None)
        elif self.slope_shape is None:
            object.__setattr__(self, "slope_shape", slopes.shape)
        elif not np.array_equal(np.broadcast_to(self.own_slopes, self.shape).reshape(-1), full):
            raise InputError(f"slope: expected a parameter of shape {self.slope_shape}, got slopes that differ in it")

    @property
    def own_slopes(self) -> FloatArray:
        """The slopes in the shape of the parameter that they are; all of them where they are constants."""
        full = self.slopes.reshape(self.shape)
        if self.slope_shape is None:
            return full
        own = (1,) * (len(self.shape) - len(self.slope_shape)) + tuple(self.slope_shape)
        try:
            np.broadcast_to(np.empty(own), self.shape)
        except ValueError as error:
            raise InputError(f"slope: expected a shape that fits {self.shape}, got {self.slope_shape}") from error
        first = tuple(slice(0, n) for n in own)
        return full[first].reshape(self.slope_shape)

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.source,)

    @property
    def linear(self) -> BoolArray:
        """Mask of the neurons without a kink, ``(size,)``."""
        return np.asarray(self.slopes == 1)

    @property
    def padded(self) -> BoolArray:
        """Mask of the entries without an input: none."""
        return np.zeros(self.slopes.size, dtype=bool)

    @cached_property
    def leak(self) -> FloatArray | None:
        """The slopes, or None if all are zero: a plain ReLU."""
        return self.slopes if self.slopes.any() else None

    @property
    def num_signs(self) -> int:
        return self.slopes.size

    @property
    def window_size(self) -> int:
        """How many entries compete: every neuron has its own."""
        return 1

    @property
    def num_cuts(self) -> int:
        """How many functions cut regions: one for every neuron."""
        return self.slopes.size

    def bounding(self, signs: SignArray) -> BoolArray:
        """Which entries stand for a boundary of regions with these signs, ``(..., size)``: all but linear neurons."""
        return np.broadcast_to(~self.linear, signs.shape)

    def chosen(self, signs: SignArray) -> BoolArray:
        """Which neurons are active under their own entries ``(..., size)`` of sign vectors; at zero none is."""
        return np.asarray(signs > 0)

    def check(self, shapes: list[Shape]) -> None:
        """Raise :class:`InputError` unless the source has as many entries as there are slopes."""
        if prod(shapes[self.source]) != self.slopes.size:
            raise InputError(f"activation: expected {self.slopes.size} inputs, got {prod(shapes[self.source])}")


@dataclass(frozen=True, eq=False)
class Add:
    """Sum of values of one size: a residual connection."""

    sources: tuple[int, ...]
    shape: Shape

    def check(self, shapes: list[Shape]) -> None:
        """Raise :class:`InputError` unless all sources have the size of the sum."""
        sizes = [prod(shapes[s]) for s in self.sources]
        if len(sizes) < 2 or any(size != prod(self.shape) for size in sizes):
            raise InputError(f"add: expected two or more inputs of shape {self.shape}, got sizes {sizes}")


@dataclass(frozen=True, eq=False)
class Concat:
    """Values joined along ``axis`` of their shapes (without the batch axis)."""

    sources: tuple[int, ...]
    shapes: tuple[Shape, ...]
    axis: int = 0

    @property
    def shape(self) -> Shape:
        first = list(self.shapes[0])
        first[self.axis] = sum(s[self.axis] for s in self.shapes)
        return tuple(first)

    @cached_property
    def order(self) -> IntArray | None:
        """Where each output entry stands in the sources laid end to end; None when they already are in order."""
        if self.axis == 0:
            return None
        starts = np.cumsum([0, *(prod(s) for s in self.shapes)])
        blocks = [np.arange(start, start + prod(s)).reshape(s) for start, s in zip(starts, self.shapes, strict=False)]
        return np.concatenate(blocks, axis=self.axis).reshape(-1)

    def check(self, shapes: list[Shape]) -> None:
        """Raise :class:`InputError` unless the sources have the declared sizes and agree off the axis."""
        rest = {s[: self.axis] + s[self.axis + 1 :] for s in self.shapes if len(s) > self.axis}
        sizes = [prod(shapes[s]) for s in self.sources]
        if len(rest) != 1 or sizes != [prod(s) for s in self.shapes]:
            raise InputError(f"concat: shapes {self.shapes} along axis {self.axis} do not fit sizes {sizes}")


@dataclass(frozen=True, eq=False)
class MaxPool:
    """Maximum over windows of a ``(channels, height, width)`` value; padding never wins.

    Windows of any other kind come as a ``table`` of input indices, ``(windows, size)`` with -1 for none: the largest of
    two values side by side, or the largest along an axis.

    Its part of a sign vector has one entry for every input of every window: the sign of ``x_j - max_{i != j} x_i``,
    so +1 for the one winner, 0 for inputs that share the maximum, -1 for those that lose.
    """

    source: int
    in_shape: Shape
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    ceil: bool = False
    table: IntArray | None = None
    shape: Shape = field(init=False)

    @classmethod
    def over(cls, source: int, in_shape: Shape, table: Any) -> MaxPool:
        """The maximum over windows that are given one by one.

        >>> MaxPool.over(0, (4,), [[0, 2], [1, 3]]).windows.tolist()
        [[0, 2], [1, 3]]
        """
        return cls(source, in_shape, (1, 1), (1, 1), table=np.asarray(table))

    def __post_init__(self) -> None:
        if self.table is not None:
            self._check_table(np.asarray(self.table))
            return
        if len(self.in_shape) != 3:
            raise InputError(f"max pooling: expected (channels, height, width), got {self.in_shape}")
        object.__setattr__(self, "shape", (self.in_shape[0], *(self._length(axis) for axis in (0, 1))))
        if (self.windows < 0).all(axis=1).any():
            raise InputError(f"max pooling: padding {self.padding} leaves a window of {self.kernel} without input")

    def _check_table(self, table: Any) -> None:
        if table.ndim != 2 or table.dtype.kind not in "iu" or not table.size:
            raise InputError(f"windows: expected integers (windows, size), got {table.dtype} of shape {table.shape}")
        if not (table.min() >= -1 and table.max() < prod(self.in_shape)) or (table < 0).all(axis=1).any():
            raise InputError(f"windows: expected inputs from 0 to {prod(self.in_shape) - 1} in every one, -1 for none")
        ordered = np.sort(table, axis=1)
        if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
            raise InputError("windows: expected every input once in a window, got one twice")
        windows = table.astype(np.int64)
        windows.flags.writeable = False
        object.__setattr__(self, "table", windows)
        object.__setattr__(self, "shape", (len(windows),))

    def _length(self, axis: int) -> int:
        size = self.in_shape[1 + axis]
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        free = size + self.padding[axis] + self.padding[axis + 2] - reach
        if free < 0:
            raise InputError(f"max pooling: a window of {self.kernel} does not fit {self.in_shape}")
        count = free // self.stride[axis] + 1
        if self.ceil and free % self.stride[axis]:
            # One more window, unless it would start in the padding behind the input.
            count += count * self.stride[axis] < size + self.padding[axis]
        return count

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.source,)

    @property
    def num_signs(self) -> int:
        return self.windows.size

    @cached_property
    def pairs(self) -> IntArray:
        """All pairs of inputs that meet in some window, ``(count, 2)``, each once, the smaller index first."""
        first, second = np.triu_indices(self.windows.shape[1], 1)
        pairs = np.stack([self.windows[:, first].ravel(), self.windows[:, second].ravel()], axis=1)
        pairs = np.sort(pairs[(pairs >= 0).all(axis=1)], axis=1)
        return np.asarray(np.unique(pairs, axis=0).reshape(-1, 2))

    @property
    def window_size(self) -> int:
        """How many entries compete."""
        return int(self.windows.shape[1])

    @property
    def num_cuts(self) -> int:
        """How many functions cut regions: the difference of every pair of inputs."""
        return len(self.pairs)

    @property
    def linear(self) -> BoolArray:
        """Mask of the entries without a kink, ``(num_signs,)``: none."""
        return np.zeros(self.num_signs, dtype=bool)

    @property
    def slopes(self) -> FloatArray:
        """For every entry 1: what wins goes through as it is."""
        return np.ones(self.num_signs)

    @property
    def padded(self) -> BoolArray:
        """Mask of the entries without an input, ``(num_signs,)``."""
        return np.asarray(self.windows.reshape(-1) < 0)

    def chosen(self, signs: SignArray) -> IntArray:
        """The input that each window takes its value from under its own entries ``(..., num_signs)`` of sign vectors.

        ``(..., windows)``; it is the first one that no other input beats.
        """
        first = (signs.reshape(*signs.shape[:-1], *self.windows.shape) >= 0).argmax(axis=-1)
        return np.asarray(self.windows[np.arange(len(self.windows)), first])

    def bounding(self, signs: SignArray) -> BoolArray:
        """Which entries stand for a boundary of regions with these signs, ``(..., num_signs)``: ties with the winner.

        All inputs of a window but the winner itself.
        """
        winner = np.repeat(self.chosen(signs), self.windows.shape[1], axis=-1)
        return np.asarray((winner != self.windows.reshape(-1)) & ~self.padded)

    @cached_property
    def windows(self) -> IntArray:
        """Input indices of every window, ``(windows, size)``; -1 is padding."""
        if self.table is not None:
            return self.table
        channels, height, width = self.in_shape
        _, out_h, out_w = self.shape

        def positions(axis: int, count: int) -> IntArray:
            starts = np.arange(count)[:, None] * self.stride[axis] - self.padding[axis]
            return np.asarray(starts + np.arange(self.kernel[axis]) * self.dilation[axis])

        rows, cols = positions(0, out_h)[:, None, :, None], positions(1, out_w)[None, :, None, :]
        inside = (rows >= 0) & (rows < height) & (cols >= 0) & (cols < width)
        pixel = np.where(inside, rows * width + cols, -1).reshape(1, out_h * out_w, -1)
        channel = np.arange(channels)[:, None, None] * height * width
        windows = np.where(pixel < 0, -1, channel + pixel)
        return np.asarray(windows.reshape(channels * out_h * out_w, -1))

    def check(self, shapes: list[Shape]) -> None:
        """Raise :class:`InputError` unless the source has the declared size."""
        if prod(shapes[self.source]) != prod(self.in_shape):
            raise InputError(f"max pooling: expected {self.in_shape}, got {shapes[self.source]}")


Node = Affine | PiecewiseLinear | Add | Concat | MaxPool
Switch = PiecewiseLinear | MaxPool
"""Nodes that make a network nonlinear; their values have signs."""
Smooth = Affine | Add | Concat
"""The others."""


class Composite(ABC):
    """A kind of node that stands for several plain ones, of which exactly the same function is made.

    A network keeps it as the model gave it (``net.program``), for evaluation, files and torch. Everybody else sees what
    it means (``net.nodes``), so that a new kind asks nothing of the engines. A subclass is a dataclass of ``source``,
    arrays that have a number for every entry, and ``shape``; it is listed in :data:`COMPOSITES`.
    """

    source: int
    shape: Shape

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.source,)

    @abstractmethod
    def meaning(self) -> tuple[Node, ...]:
        """The plain nodes; value 0 is the one that is read, and the last one is the result."""

    @abstractmethod
    def arrays(self) -> dict[str, FloatArray]:
        """The numbers, by the names of the fields."""

    @abstractmethod
    def direct(self, value: Any, algebra: Algebra[Any], choices: Sequence[Any] | None) -> Any:
        """The result without the detour over plain nodes, or None where the algebra has no better way.

        ``choices`` says what every switch of the meaning does; None lets the value decide.
        """


@dataclass(frozen=True, eq=False)
class Clip(Composite):
    """``min(max(x, low), high)`` per neuron, where ``low < high``; a bound may be infinite.

    Its part of a sign vector has the signs of ``x - low`` for all neurons and then those of ``high - x``; +1 for bounds
    that are infinite, since there is no kink. It means ``high - relu((high - low) - relu(x - low))``, where the
    difference of the bounds is left to two affine maps, since it may not be a float.

    >>> from fiberscope.numerics.algebra.floating import FLOAT
    >>> Clip(0, 0.0, 6.0, (1,)).direct(np.array([[-1.0], [5.0], [7.0]]), FLOAT, None).ravel()
    array([0., 5., 6.])
    """

    source: int
    low: FloatArray
    high: FloatArray
    shape: Shape

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            bound = np.asarray(getattr(self, name), dtype=np.float64)
            try:
                full = np.broadcast_to(
                    bound if bound.size < prod(self.shape) else bound.reshape(self.shape), self.shape
                )
            except ValueError as error:
                raise InputError(f"{name}: expected shape {self.shape}, got {bound.shape}") from error
            object.__setattr__(self, name, frozen(full.reshape(-1)))
        if not ((self.low < self.high) & (self.low < np.inf) & (self.high > -np.inf)).all():
            raise InputError("low, high: expected low < high for every neuron, got other bounds or NaN")

    def arrays(self) -> dict[str, FloatArray]:
        return {"low": self.low, "high": self.high}

    def meaning(self) -> tuple[Node, ...]:
        bounds = (self.low, self.high)
        low, high = (np.where(np.isinf(bound), 0.0, bound).reshape(self.shape) for bound in bounds)
        bends = [np.isinf(bound).astype(np.float64) for bound in bounds]  # without a bound there is a linear neuron
        forth, back = Scale(1.0, self.shape), Scale(-1.0, self.shape)
        return (
            Affine(0, forth, 0.0 - low),
            PiecewiseLinear(1, bends[0], self.shape),
            Affine(2, back, high),
            Affine(3, forth, 0.0 - low),
            PiecewiseLinear(4, bends[1], self.shape),
            Affine(5, back, high),
        )

    def direct(self, value: Any, algebra: Algebra[Any], choices: Sequence[Any] | None) -> Any:
        if choices is not None:
            above_low, below_high = (c | np.isinf(b) for c, b in zip(choices, (self.low, self.high), strict=True))
            bound = np.where(above_low, np.where(below_high, 0.0, self.high), self.low)
            return algebra.shift(algebra.gate(value, above_low & below_high, None), bound)
        return algebra.clip(value, self.low, self.high)


COMPOSITES: dict[str, type[Composite]] = {"clip": Clip}
"""The kinds that stand for others, by the names that they have in files."""

Given = Node | Composite
"""What a model can be made of."""

N = TypeVar("N", bound=Given)


def moved(node: N, sources: tuple[int, ...]) -> N:
    """The same node reading other values."""
    own: Any = {"sources": sources} if isinstance(node, Add | Concat) else {"source": sources[0]}
    result: N = replace(node, **own)  # type: ignore[type-var]  # every kind is a dataclass
    return result


def behind(nodes: Sequence[N], values: int) -> list[N]:
    """The same nodes in a program with so many more values in front."""
    return [moved(node, tuple(source + values for source in node.sources)) for node in nodes]


def nameless(node: Node) -> Node:
    """The node as a constant of the model: two networks side by side may use one name for different numbers."""
    return replace(node, weight_name=None, bias_name=None) if isinstance(node, Affine) else node
