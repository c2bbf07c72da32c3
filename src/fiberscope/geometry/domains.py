"""Where a question is asked: boxes, orthants, the whole space, polytopes, and planes through a large input space.

Every domain answers the same four questions: does it fit a network (``check``), what does an engine work on (``view``),
which points belong to it (``contains``, exactly), and which points are good to try a claim on (``sample``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.network import Network, Seed
from fiberscope.network.nodes import Affine, behind
from fiberscope.network.operators import Dense
from fiberscope.numerics.arrays import frozen, real_array
from fiberscope.numerics.floats import BoolArray, FloatArray, gamma, round_up
from fiberscope.numerics.lp.programs import Polyhedron

_FAR = 16.0
"""Longest step of a random walk in a polytope, which may be unbounded."""


class _Domain(ABC):
    """What all domains have in common besides ``dimension``, which is below ``ambient`` for planes and flat boxes."""

    @property
    @abstractmethod
    def ambient(self) -> int:
        """Dimension of the input space."""

    @abstractmethod
    def contains(self, X: Any) -> BoolArray:
        """Which of the points ``(count, ambient)`` belong to the set, exactly; what is not finite does not."""

    @abstractmethod
    def sample(self, count: int, seed: Seed = 0) -> FloatArray:
        """Points ``(count, ambient)`` of the set to try a claim on; nothing is promised of their distribution."""

    def check(self, net: Network) -> None:
        """Raise :class:`InputError` unless the set lies in the network's input space and has a point to ask about."""
        if self.ambient != net.in_size:
            raise InputError(f"domain: expected dimension {net.in_size}, the network's input, got {self}")


@dataclass(frozen=True, eq=False)
class Box(_Domain):
    """``low <= x <= high``, both ``(n,)``. Coordinates with ``low == high`` are fixed, and the box is flat in them.

    >>> Box([-1, -1], [1, 1])
    Box([-1, 1] x [-1, 1])
    >>> Box([-1, 0.5], [1, 0.5]).dimension
    1
    """

    low: FloatArray
    high: FloatArray

    def __init__(self, low: Any, high: Any) -> None:
        low, high = real_array(low, "low", ndim=1), real_array(high, "high", ndim=1)
        if low.shape != high.shape or low.size == 0:
            raise InputError(f"box: expected two vectors of one length, got shapes {low.shape} and {high.shape}")
        if not (low <= high).all():
            i = int(np.flatnonzero(~(low <= high))[0])
            raise InputError(f"box: expected low <= high, got [{low[i]:g}, {high[i]:g}] in coordinate {i}")
        if not (low < high).any():
            raise InputError("box: expected low < high in some coordinate, got a single point")
        object.__setattr__(self, "low", frozen(low))
        object.__setattr__(self, "high", frozen(high))

    @classmethod
    def cube(cls, dimension: int, low: float = -1.0, high: float = 1.0) -> Box:
        """The box ``[low, high]^n``."""
        _check_dimension(dimension, "box")
        return cls(np.full(dimension, float(low)), np.full(dimension, float(high)))

    @property
    def ambient(self) -> int:
        return self.low.size

    @property
    def free(self) -> BoolArray:
        """Which coordinates are not fixed, ``(n,)``."""
        return np.asarray(self.low < self.high)

    @property
    def dimension(self) -> int:
        return int(self.free.sum())

    @property
    def volume(self) -> float:
        """Of the free coordinates; infinite beyond the floats."""
        with np.errstate(over="ignore"):
            return float(np.prod((self.high - self.low)[self.free]))

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Uniform points of the box, ``(count, n)``, also where its sides are longer than the largest float."""
        share = rng.random((count, self.ambient))
        with np.errstate(over="ignore"):
            plain = self.low + share * (self.high - self.low)
        return np.where(np.isfinite(plain), plain, self.low * (1 - share) + self.high * share)

    def halfspaces(self) -> tuple[FloatArray, FloatArray]:
        """``A, b`` with the box as ``A x <= b``: the lower sides first."""
        eye = np.eye(self.ambient)
        return np.concatenate([-eye, eye]), np.concatenate([-self.low, self.high])

    def view(self, net: Network) -> View:
        """The network as it is; on a flat box as a function of the free coordinates, the others put in exactly."""
        free = self.free
        if free.all():
            return View(net, self)
        return View.through(
            net, Box(self.low[free], self.high[free]), np.eye(self.ambient)[:, free], np.where(free, 0.0, self.low)
        )

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Of every coordinate."""
        return self.low, self.high

    def contains(self, X: Any) -> BoolArray:
        points = _points(X, self.ambient)
        return np.asarray(((points >= self.low) & (points <= self.high)).all(axis=1))

    def surely_inside(self, X: FloatArray) -> BoolArray:
        """Which points are inside and on no side."""
        return np.asarray(((self.low < X) & (self.high > X)).all(axis=1))

    def sample(self, count: int, seed: Seed = 0) -> FloatArray:
        """A quarter of them corners, a quarter near the axes through the middle or through one point."""
        rng, n = np.random.default_rng(seed), self.ambient
        share = rng.uniform(size=(count, n))
        share[: count // 4] = np.round(share[: count // 4])
        share[count // 4 : count // 2] = np.where(rng.random((count // 2 - count // 4, n)) < 0.5, share[:1], 0.5)
        points = self.low * (1 - share) + self.high * share  # the width of a box may be beyond the floats
        return np.clip(points, self.low, self.high)

    def __repr__(self) -> str:
        sides = [f"[{a:g}, {b:g}]" for a, b in zip(self.low, self.high, strict=True)]
        return f"Box({' x '.join(sides)})" if len(sides) <= 6 else f"Box({sides[0]} x ... {len(sides)} sides)"


@dataclass(frozen=True)
class _Whole(_Domain):
    """What its dimension alone says all about."""

    dimension: int

    def __post_init__(self) -> None:
        _check_dimension(self.dimension, type(self).__name__.lower())

    @property
    def ambient(self) -> int:
        return self.dimension


class Orthant(_Whole):
    """``x >= 0`` in R^n: what a layer behind a ReLU sees."""

    def view(self, net: Network) -> View:
        """The network as it is."""
        return View(net, self)

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Of every coordinate; those above are infinite."""
        return np.zeros(self.dimension), np.full(self.dimension, np.inf)

    def contains(self, X: Any) -> BoolArray:
        points = _points(X, self.dimension)
        return np.asarray(((points >= 0) & np.isfinite(points)).all(axis=1))

    def surely_inside(self, X: FloatArray) -> BoolArray:
        """Which points are inside and on no side."""
        return np.asarray((X > 0).all(axis=1))

    def sample(self, count: int, seed: Seed = 0) -> FloatArray:
        return np.abs(Space(self.dimension).sample(count, seed))

    def halfspaces(self) -> tuple[FloatArray, FloatArray]:
        """``A, b`` with the orthant as ``A x <= b``."""
        return -np.eye(self.dimension), np.zeros(self.dimension)


class Space(_Whole):
    """All of R^n."""

    def view(self, net: Network) -> View:
        """The network as it is."""
        return View(net, self)

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """There are none."""
        free = np.full(self.dimension, np.inf)
        return -free, free

    def contains(self, X: Any) -> BoolArray:
        return np.asarray(np.isfinite(_points(X, self.dimension)).all(axis=1))

    def surely_inside(self, X: FloatArray) -> BoolArray:
        """All points are."""
        return np.asarray(~np.isnan(X).any(axis=1))

    def sample(self, count: int, seed: Seed = 0) -> FloatArray:
        """Points of many sizes."""
        rng = np.random.default_rng(seed)
        sizes = 4.0 ** rng.integers(-3, 4, (count, 1))
        return np.asarray(rng.normal(size=(count, self.dimension)) * sizes)

    def halfspaces(self) -> tuple[FloatArray, FloatArray]:
        """``A, b`` with no rows."""
        return np.zeros((0, self.dimension)), np.zeros(0)


@dataclass(frozen=True, eq=False)
class Polytope(_Domain):
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

    @property
    def ambient(self) -> int:
        return self.dimension

    def halfspaces(self) -> tuple[FloatArray, FloatArray]:
        """``A, b`` as given."""
        return self.A, self.b

    def check(self, net: Network) -> None:
        super().check(net)
        self._inner_point()

    def _inner_point(self) -> FloatArray:
        inner = Polyhedron(self.A, self.b).interior()
        if inner.answer is not True or inner.point is None:
            raise InputError(f"domain: expected a set with interior points, got {self}, which has none")
        return inner.point

    def view(self, net: Network) -> View:
        """The network as it is."""
        return View(net, self)

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Of every coordinate, proven, and infinite where there are none."""
        body, unit = Polyhedron(self.A, self.b), np.eye(self.dimension)
        high = np.array([body.maximize(row).upper for row in unit])
        return np.array([-body.maximize(-row).upper for row in unit]), high

    def _heights(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``A x - b`` and bounds of the errors, ``(count, rows)``."""
        n = self.dimension
        with np.errstate(over="ignore", invalid="ignore"):
            error = round_up(gamma(n + 4) * (np.abs(X) @ np.abs(self.A).T + np.abs(self.b)), n + 4)
            return X @ self.A.T - self.b, error

    def surely_inside(self, X: FloatArray) -> BoolArray:
        """Which points are inside and on no side, for certain: rounding can only say no."""
        value, error = self._heights(X)
        return np.asarray((value < -error).all(axis=1))

    def contains(self, X: Any) -> BoolArray:
        points = _points(X, self.dimension)
        value, error = self._heights(points)
        inside: BoolArray = np.asarray(value <= -error)
        outside: BoolArray = np.asarray(value > error)
        possible: BoolArray = np.asarray(np.isfinite(points).all(axis=1) & ~outside.any(axis=1))
        for i, row in np.argwhere(possible[:, None] & ~inside):  # too close for floats to tell
            terms = zip(self.A[row].tolist(), points[i].tolist(), strict=True)
            inside[i, row] = sum(Fraction(a) * Fraction(x) for a, x in terms) <= Fraction(float(self.b[row]))
        return np.asarray(possible & inside.all(axis=1))

    def sample(self, count: int, seed: Seed = 0) -> FloatArray:
        """Steps of a walk from an inner point, each to a random point of a random chord."""
        rng, x, points = np.random.default_rng(seed), self._inner_point(), []
        for _ in range(count):
            direction = rng.normal(size=x.size)
            slope, room = self.A @ direction, self.b - self.A @ x
            with np.errstate(divide="ignore", invalid="ignore"):
                steps = room / slope
            high = min(steps[slope > 0].min(initial=np.inf), _FAR)
            low = max(steps[slope < 0].max(initial=-np.inf), -_FAR)
            target = x + rng.uniform(min(low, 0.0), max(high, 0.0)) * direction
            if self.contains(target[None])[0]:
                x = target
            points.append(x)
        return np.array(points).reshape(count, self.dimension)

    def __repr__(self) -> str:
        return f"Polytope({len(self.A)} half-spaces in R^{self.dimension})"


@dataclass(frozen=True, eq=False)
class Plane(_Domain):
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
        if box.dimension != 2 or box.ambient != 2:
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
        return self.origin.size

    def lift(self, points: Any) -> FloatArray:
        """Points ``(count, 2)`` of the slice in the input space, ``(count, ambient)``."""
        st = real_array(points, "points", ndim=2)
        return np.asarray(self.origin + st @ np.stack([self.u, self.v]))

    def view(self, net: Network) -> View:
        """The network as a function of ``(s, t)`` in the box."""
        return View.through(net, self.box, np.stack([self.u, self.v], axis=1), self.origin)

    def contains(self, X: Any) -> BoolArray:
        return np.array([self._holds(x) for x in _points(X, self.ambient).tolist()], dtype=bool)

    def _holds(self, x: list[float]) -> bool:
        """Whether ``s u + t v = x - origin`` has a solution in the box, in fractions."""
        if not np.isfinite(x).all():
            return False
        columns = (self.u.tolist(), self.v.tolist(), x, self.origin.tolist())
        rows = [(Fraction(u), Fraction(v), Fraction(y) - Fraction(o)) for u, v, y, o in zip(*columns, strict=True)]
        s_low, t_low = map(Fraction, self.box.low.tolist())
        s_high, t_high = map(Fraction, self.box.high.tolist())
        a, b, c = next((row for row in rows if row[0] or row[1]), rows[0])
        other = next((row for row in rows if a * row[1] != b * row[0]), None)
        if other is None:  # u and v are multiples of one vector: a segment, or a point
            ends = [sorted(a * s for s in (s_low, s_high)), sorted(b * t for t in (t_low, t_high))]
            along = ends[0][0] + ends[1][0] <= c <= ends[0][1] + ends[1][1]
            return along and all((u * c, v * c) == (a * d, b * d) and (u or v or not d) for u, v, d in rows)
        determinant = a * other[1] - b * other[0]
        s, t = (c * other[1] - b * other[2]) / determinant, (a * other[2] - c * other[0]) / determinant
        return s_low <= s <= s_high and t_low <= t <= t_high and all(u * s + v * t == d for u, v, d in rows)

    def sample(self, count: int, seed: Seed = 0) -> FloatArray:
        """Points of the box, lifted, which rounds them."""
        return self.lift(self.box.sample(count, seed))

    def __repr__(self) -> str:
        return f"Plane(in R^{self.ambient}, {self.box})"


Solid = Box | Orthant | Space | Polytope
"""Domains with interior points, as engines work on them; a flat box is one only through its view."""

Domain = Box | Orthant | Space | Polytope | Plane


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What an engine works on: a network as a function on a domain with interior points, and the way back.

    With a ``frame`` ``(matrix, origin)`` the input of the network that was asked about is ``origin + matrix y`` for
    ``y`` in the domain, else ``y`` itself. This affine map stands as a node of its own in front of the program, so that
    nothing is rounded.
    """

    net: Network
    domain: Solid
    frame: tuple[FloatArray, FloatArray] | None = None

    @classmethod
    def through(cls, net: Network, domain: Solid, matrix: FloatArray, origin: FloatArray) -> View:
        """The network behind ``origin + matrix y``."""
        program = [Affine(0, Dense(matrix), origin), *behind(net.nodes, 1)]
        return cls(Network.from_nodes(program, (matrix.shape[1],)), domain, (frozen(matrix), frozen(origin)))

    def lift(self, points: FloatArray) -> FloatArray:
        """Points ``(count, dimension)`` of the domain in the input space of the network that was asked about."""
        return points if self.frame is None else np.asarray(self.frame[1] + points @ self.frame[0].T)


def domain_of(net: Network, domain: Domain | None) -> Domain:
    """The domain of a question about a network, checked once; all of space for None."""
    if domain is None:
        return Space(net.in_size)
    if not isinstance(domain, _Domain):
        raise InputError(f"domain: expected a Box, Plane, Polytope, Orthant or Space, got {type(domain).__name__}")
    domain.check(net)
    return domain


def view_of(net: Network, domain: Domain) -> View:
    """The domain checked against the network, and both seen in the domain's own coordinates.

    >>> net = Network.random((3, 4, 1), seed=0)
    >>> flat = view_of(net, Box([-1, 0.5, 0], [1, 0.5, 2]))
    >>> flat.domain, flat.net.in_size, flat.lift(np.array([[0.25, 1.0]])).tolist()
    (Box([-1, 1] x [0, 2]), 2, [[0.25, 0.5, 1.0]])
    """
    return domain_of(net, domain).view(net)


def _points(X: Any, width: int) -> FloatArray:
    points = real_array(X, "X", ndim=2, finite=False)
    if points.shape[1] != width:
        raise InputError(f"X: expected points of {width} coordinates, got shape {points.shape}")
    return points


def _check_dimension(n: int, name: str) -> None:
    if not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"{name}: expected a positive dimension, got {n}")
