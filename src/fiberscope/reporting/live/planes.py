"""A slice through three inputs whose corners are moved by hand through the space of all inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.explorer.images import image_png, image_shape
from fiberscope.explorer.slices import corner_points
from fiberscope.geometry.domains import Plane
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, IntArray

PLACES = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
"""Where the three inputs stand in the picture."""

BARS = 48
"""Numbers of an input that is no image, shown as grey bars."""


@dataclass(eq=False)
class Corners:
    """Three inputs, each with two directions in which a hand can move it: towards other data, or at random."""

    points: FloatArray
    X: FloatArray | None
    shape: tuple[int, int, int] | None
    low: float
    high: float
    names: list[str]
    rng: np.random.Generator = field(repr=False)
    start: FloatArray = field(init=False, repr=False)
    ways: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.start = self.points.copy()
        self.ways = np.stack([self._ways(k) for k in range(3)])

    @classmethod
    def of(cls, net: Network, X: FloatArray | None, labels: IntArray | None) -> Corners:
        """Through three of the data, or through three random inputs."""
        rng = np.random.default_rng(0)
        shape = image_shape(net.input_shape)
        if X is None and shape is not None:
            drawn = _drawings(shape)
            return cls(drawn[:3].copy(), drawn, shape, 0.0, 1.0, ["a ring", "a bar", "a cross"], rng)
        if X is None or len(X) < 3:
            return cls(rng.uniform(-2.0, 2.0, size=(3, net.in_size)), None, shape, -2.0, 2.0, ["random"] * 3, rng)
        rows = corner_points(X, labels)[0]
        return cls(X[list(rows)].copy(), X, shape, float(X.min()), float(X.max()), [f"number {r}" for r in rows], rng)

    def _ways(self, corner: int) -> FloatArray:
        if self.X is not None:
            return np.asarray(self.X[self.rng.integers(len(self.X), size=2)] - self.points[corner])
        return self.rng.normal(size=(2, self.points.shape[1])) * (self.high - self.low) / 4

    def move(self, corner: int, by: tuple[float, float], done: bool) -> None:
        """Move a corner from where it was grasped; ``done`` lets go of it and draws new directions."""
        self.points[corner] = self.start[corner] + by[0] * self.ways[corner, 0] + by[1] * self.ways[corner, 1]
        self.names[corner] = "moved"
        if done:
            self._let_go(corner)

    def another(self, corner: int) -> None:
        """Another input of the data, or another random one."""
        if self.X is None:
            self.points[corner] = self.rng.uniform(self.low, self.high, size=self.points.shape[1])
        else:
            row = int(self.rng.integers(len(self.X)))
            self.points[corner], self.names[corner] = self.X[row], f"number {row}"
        self._let_go(corner)

    def paint(self, corner: int, pixels: tuple[int, ...], ink: float) -> None:
        """Set some numbers of a corner; ``ink`` goes from 0, the lowest, to 1, the highest."""
        self.points[corner, list(pixels)] = self.low + ink * (self.high - self.low)
        self.names[corner] = "painted"
        self._let_go(corner)

    def _let_go(self, corner: int) -> None:
        self.start[corner] = self.points[corner]
        self.ways[corner] = self._ways(corner)

    def plane(self) -> Plane:
        """The plane through the three."""
        return Plane.through(*self.points)

    def pictures(self) -> list[tuple[tuple[float, float], bytes]]:
        """Each corner with a small image of its input."""
        return [(place, self.picture(k)) for k, place in enumerate(PLACES)]

    def picture(self, corner: int) -> bytes:
        """An input as an image, or as bars from dark to light."""
        if self.shape is not None:
            return image_png(self.points[corner], self.shape, self.low, self.high)
        bars = self.points[corner, :BARS]
        return image_png(np.tile(bars, (len(bars), 1)), (1, len(bars), len(bars)), self.low, self.high)

    def told(self) -> list[dict[str, Any]]:
        """What the page says about every corner."""
        return [{"name": self.names[k], "shape": self.shape} for k in range(3)]


def _drawings(shape: tuple[int, int, int]) -> FloatArray:
    """A few strokes for models of images that come without any: ring, bar, cross, slash, frame, dot."""
    channels, height, width = shape
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    away, thick = np.hypot(x, y), 0.14
    box = np.maximum(np.abs(x), np.abs(y))
    distances = [
        np.abs(away - 0.5),
        np.maximum(np.abs(x), np.abs(y) - 0.55),
        np.maximum(np.minimum(np.abs(x), np.abs(y)), box - 0.6),
        np.maximum(np.abs(x + y) / np.sqrt(2), away - 0.75),
        np.abs(box - 0.55),
        away - 0.2,
    ]
    soft = [np.clip(1.5 - d / thick, 0.0, 1.0) for d in distances]
    return np.stack([np.broadcast_to(d, (channels, height, width)).reshape(-1) for d in soft])
