"""Where a question is asked: boxes, orthants, the whole space, polytopes, and planes through a large input space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.floats import FloatArray


@dataclass(frozen=True, eq=False)
class Box:
    """``low <= x <= high``, both ``(n,)``.

    >>> Box([-1, -1], [1, 1])
    Box([-1, 1] x [-1, 1])
    """

    low: FloatArray
    high: FloatArray

    def __init__(self, low: Any, high: Any) -> None:
        low, high = real_array(low, "low", ndim=1), real_array(high, "high", ndim=1)
        if low.shape != high.shape or low.size == 0:
            raise InputError(f"box: expected two vectors of one length, got shapes {low.shape} and {high.shape}")
        if not (low < high).all():
            i = int(np.flatnonzero(~(low < high))[0])
            raise InputError(f"box: expected low < high, got [{low[i]:g}, {high[i]:g}] in coordinate {i}")
        object.__setattr__(self, "low", frozen(low))
        object.__setattr__(self, "high", frozen(high))

    @classmethod
    def cube(cls, dimension: int, low: float = -1.0, high: float = 1.0) -> Box:
        """The box ``[low, high]^n``."""
        _check_dimension(dimension, "box")
        return cls(np.full(dimension, float(low)), np.full(dimension, float(high)))

    @property
    def dimension(self) -> int:
        return self.low.size

    @property
    def volume(self) -> float:
        """Infinite beyond the floats."""
        with np.errstate(over="ignore"):
            return float(np.prod(self.high - self.low))

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Uniform points of the box, ``(count, n)``, also where its sides are longer than the largest float."""
        share = rng.random((count, self.dimension))
        with np.errstate(over="ignore"):
            plain = self.low + share * (self.high - self.low)
        return np.where(np.isfinite(plain), plain, self.low * (1 - share) + self.high * share)

    def halfspaces(self) -> tuple[FloatArray, FloatArray]:
        """``A, b`` with the box as ``A x <= b``: the lower sides first."""
        eye = np.eye(self.dimension)
        return np.concatenate([-eye, eye]), np.concatenate([-self.low, self.high])

    def __repr__(self) -> str:
        sides = [f"[{a:g}, {b:g}]" for a, b in zip(self.low, self.high, strict=True)]
        return f"Box({' x '.join(sides)})" if len(sides) <= 6 else f"Box({sides[0]} x ... {len(sides)} sides)"


@dataclass(frozen=True)
class Orthant:
    """``x >= 0`` in R^n: what a layer behind a ReLU sees."""

    dimension: int

    def __post_init__(self) -> None:
        _check_dimension(self.dimension, "orthant")

    def halfspaces(self) -> tuple[FloatArray, FloatArray]:
        """``A, b`` with the orthant as ``A x <= b``."""
        return -np.eye(self.dimension), np.zeros(self.dimension)


@dataclass(frozen=True)
class Space:
    """All of R^n."""

    dimension: int

    def __post_init__(self) -> None:
        _check_dimension(self.dimension, "space")

    def halfspaces(self) -> tuple[FloatArray, FloatArray]:
        """``A, b`` with no rows."""
        return np.zeros((0, self.dimension)), np.zeros(0)


@dataclass(frozen=True, eq=False)
class Polytope:
    """``A x <= b`` with ``A`` of shape ``(rows, n)``; may be unbounded."""

    A: FloatArray
    b: FloatArray

    def __init__(self, A: Any, b: Any) -> None:
        matrix, vector = real_array(A, "A", ndim=2), real_array(b, "b", ndim=1)
        if len(matrix) != len(vector) or matrix.shape[1] == 0:
            raise InputError(f"polytope: expected A (rows, n) and b (rows,), got {matrix.shape} and {vector.shape}")
        empty = ~matrix.any(axis=1)
        if (vector[empty] < 0).any():
            row = int(np.flatnonzero(empty & (vector < 0))[0])
            raise InputError(f"polytope: row {row} says 0 <= {vector[row]:g}, so it is empty")
        # A row of zeros with b >= 0 says nothing.
        object.__setattr__(self, "A", frozen(matrix[~empty]))
        object.__setattr__(self, "b", frozen(vector[~empty]))

    @property
    def dimension(self) -> int:
        return int(self.A.shape[1])

    def halfspaces(self) -> tuple[FloatArray, FloatArray]:
        """``A, b`` as given."""
        return self.A, self.b

    def __repr__(self) -> str:
        return f"Polytope({len(self.A)} half-spaces in R^{self.dimension})"


@dataclass(frozen=True, eq=False)
class Plane:
    """The points ``origin + s u + t v`` with ``(s, t)`` in a two-dimensional box: a slice of any input space.

    The vectors are flattened; they need not be orthogonal or of unit length. Lengths and areas of a result are those
    of the ``(s, t)`` box.
    """

    origin: FloatArray
    u: FloatArray
    v: FloatArray
    box: Box

    def __init__(self, origin: Any, u: Any, v: Any, box: Box | None = None) -> None:
        parts = [real_array(x, name).reshape(-1) for x, name in ((origin, "origin"), (u, "u"), (v, "v"))]
        if len({p.size for p in parts}) != 1:
            raise InputError(f"plane: expected three vectors of one length, got {[p.size for p in parts]}")
        box = Box.cube(2) if box is None else box
        if box.dimension != 2:
            raise InputError(f"plane: expected a two-dimensional box, got {box}")
        for name, value in zip(("origin", "u", "v"), parts, strict=True):
            object.__setattr__(self, name, frozen(value))
        object.__setattr__(self, "box", box)

    @classmethod
    def through(cls, a: Any, b: Any, c: Any, margin: float = 0.25) -> Plane:
        """The plane through three points, at ``(0, 0)``, ``(1, 0)`` and ``(0, 1)``, with a margin around them."""
        a, b, c = (real_array(x, "point").reshape(-1) for x in (a, b, c))
        if len({a.size, b.size, c.size}) != 1:
            raise InputError(f"plane: expected three points of one length, got {[a.size, b.size, c.size]}")
        return cls(a, b - a, c - a, Box.cube(2, -margin, 1 + margin))

    @classmethod
    def along(cls, ambient: int, axes: tuple[int, int], at: Any = None, box: Box | None = None) -> Plane:
        """The plane spanned by two coordinates of R^ambient through the point ``at`` (zeros by default)."""
        if len(set(axes)) != 2 or not all(0 <= i < ambient for i in axes):
            raise InputError(f"axes: expected two different coordinates among 0 to {ambient - 1}, got {tuple(axes)}")
        origin = np.zeros(ambient) if at is None else real_array(at, "at").reshape(-1).copy()
        u, v = np.eye(ambient)[list(axes)]
        return cls(origin, u, v, box)

    @property
    def dimension(self) -> int:
        """Of the slice: 2."""
        return 2

    @property
    def ambient(self) -> int:
        """Of the input space."""
        return self.origin.size

    def lift(self, points: Any) -> FloatArray:
        """Points ``(count, 2)`` of the slice in the input space, ``(count, ambient)``."""
        st = real_array(points, "points", ndim=2)
        return np.asarray(self.origin + st @ np.stack([self.u, self.v]))

    def __repr__(self) -> str:
        return f"Plane(in R^{self.ambient}, {self.box})"


Domain = Box | Orthant | Space | Polytope | Plane


def _check_dimension(n: int, name: str) -> None:
    if not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"{name}: expected a positive dimension, got {n}")
