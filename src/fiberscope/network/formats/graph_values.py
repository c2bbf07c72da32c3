"""What foreign graphs are made of: values with the shapes they have there, named constants, and sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from fiberscope.errors import InputError
from fiberscope.network.operators import Shape
from fiberscope.numerics.floats import FloatArray


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the program (0 is the input) and the shape that the foreign graph gives it now.

    ``batched`` says whether the graph's tensor has a batch axis before that shape; a graph for one point may drop it.
    """

    index: int
    shape: Shape
    batched: bool = True

    @property
    def size(self) -> int:
        return prod(self.shape)

    def reshaped(self, shape: Sequence[int], batched: bool = True) -> Value:
        """The same numbers in another shape."""
        if prod(shape) != self.size:
            raise InputError(f"cannot reshape {self.shape} to {tuple(shape)}")
        return Value(self.index, tuple(shape), batched)


@dataclass(frozen=True, slots=True)
class Named:
    """A constant array of the foreign model, and its parameter name where it is a parameter."""

    array: FloatArray
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Geometry of a sliding window along one or two axes; ``padding`` is all beginnings, then all ends."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool = False

    def planar(self) -> Window:
        """The same window on ``(1, length)`` images where it slides along one axis."""
        if len(self.size) == 2:
            return self
        begin, end = self.padding
        return Window((1, *self.size), (1, *self.stride), (0, begin, 0, end), (1, *self.dilation), self.ceil)

    def pairs(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int], tuple[int, int]]:
        """Size, stride, padding and dilation of a planar window."""
        (a, b), (s, t), (p, q, r, u), (d, e) = self.size, self.stride, self.padding, self.dilation
        return (a, b), (s, t), (p, q, r, u), (d, e)
