"""Sliding windows of convolutions and pools."""

from __future__ import annotations

from dataclasses import dataclass


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
