"""Curves in the input space of a network: segments, polygonal chains, circles in any plane, tractrices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.curves.chebyshev import NODES, Panels, interpolate
from fiberscope.numerics.arrays import frozen, real_array, row_lengths
from fiberscope.numerics.cutoffs import ORTHONORMAL
from fiberscope.numerics.floats import FloatArray, IntArray, U

Interval = tuple[float, float]


class Path(ABC):
    """A curve ``gamma: [lo, hi] -> R^n`` with its derivative and arc length."""

    interval: Interval

    @property
    @abstractmethod
    def ambient(self) -> int:
        """``n``, the dimension of the space."""

    @abstractmethod
    def __call__(self, t: Any) -> FloatArray:
        """Points ``(len(t), ambient)`` at the parameters ``t``."""

    @abstractmethod
    def derivative(self, t: Any) -> FloatArray:
        """``gamma'(t)``, ``(len(t), ambient)``; at a corner, that of the part behind it."""

    @abstractmethod
    def arc_length(self, t: Any) -> FloatArray:
        """Length of the curve from the start of the interval up to each ``t``, ``(len(t),)``."""

    @property
    def closed(self) -> bool:
        """Whether the curve ends where it begins."""
        return False

    @property
    def length(self) -> float:
        """Length of the whole curve."""
        return float(self.arc_length([self.interval[1]])[0])

    def speed(self, t: Any) -> FloatArray:
        """``|gamma'(t)|``, ``(len(t),)``."""
        return np.asarray(np.linalg.norm(self.derivative(t), axis=1))

    def geodesic(self, s: Any, t: Any) -> FloatArray:
        """Distance within the curve between the points at ``s`` and ``t``; on a closed curve, the shorter way."""
        way = np.abs(self.arc_length(t) - self.arc_length(s))
        return np.asarray(np.minimum(way, self.length - way) if self.closed else way)

    def parameters(self, t: Any) -> FloatArray:
        """``t`` as a checked vector of parameters inside of the interval."""
        values = np.atleast_1d(real_array(t, "t"))
        lo, hi = self.interval
        if values.ndim != 1:
            raise InputError(f"t: expected a vector of parameters, got shape {values.shape}")
        outside = np.flatnonzero((values < lo) | (values > hi))
        if len(outside):
            raise InputError(f"t: expected parameters in [{lo:g}, {hi:g}], got {values[outside[0]]:g}")
        return values


class Polyline(Path):
    """The polygonal chain through ``points``, ``(m + 1, ...)`` with trailing axes flattened.

    The parameter runs from 0 to ``m``: point ``i`` is at ``t = i``, and in between the chain is
    ``(1 - s) p_i + s p_{i+1}`` exactly, with the floats taken as exact numbers.

    >>> Polyline([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]]).length
    6.0
    """

    def __init__(self, points: Any) -> None:
        array = real_array(points, "points")
        if array.ndim < 2 or len(array) < 2 or array.size == 0:
            raise InputError(f"points: expected at least two points, (count, features), got shape {array.shape}")
        flat = array.reshape(len(array), -1)
        same = np.flatnonzero((flat[1:] == flat[:-1]).all(axis=1))
        if len(same):
            i = int(same[0])
            raise InputError(f"points: expected segments of positive length, got points {i} and {i + 1} equal")
        self.points = frozen(flat)
        self.interval = (0.0, float(len(flat) - 1))

    @property
    def ambient(self) -> int:
        return int(self.points.shape[1])

    @property
    def num_segments(self) -> int:
        return len(self.points) - 1

    @property
    def closed(self) -> bool:
        return bool((self.points[0] == self.points[-1]).all())

    def _local(self, t: FloatArray) -> tuple[Any, FloatArray]:
        index = np.clip(np.floor(t).astype(np.int64), 0, self.num_segments - 1)
        return index, t - index

    def __call__(self, t: Any) -> FloatArray:
        index, s = self._local(self.parameters(t))
        a, b = self.points[index], self.points[index + 1]
        return np.asarray((1 - s)[:, None] * a + s[:, None] * b)

    def derivative(self, t: Any) -> FloatArray:
        index, _ = self._local(self.parameters(t))
        return np.asarray(self.points[index + 1] - self.points[index])

    def arc_length(self, t: Any) -> FloatArray:
        index, s = self._local(self.parameters(t))
        sides = row_lengths(np.diff(self.points, axis=0))
        before = np.concatenate([[0.0], np.cumsum(sides)])
        return np.asarray(before[index] + s * sides[index])

    def __repr__(self) -> str:
        return f"Polyline({self.num_segments} segments in R^{self.ambient})"


class Segment(Polyline):
    """The straight way ``(1 - t) a + t b`` from ``a`` to ``b``, with ``t`` from 0 to 1.

    >>> Segment([0.0, 0.0], [3.0, 4.0])(0.5)
    array([[1.5, 2. ]])
    """

    def __init__(self, a: Any, b: Any) -> None:
        ends = [real_array(x, name).reshape(-1) for x, name in ((a, "a"), (b, "b"))]
        if ends[0].size != ends[1].size or ends[0].size == 0:
            raise InputError(f"segment: expected two points of one size, got {ends[0].size} and {ends[1].size}")
        if (ends[0] == ends[1]).all():
            raise InputError("segment: expected two different points, got a segment of length zero")
        super().__init__(np.stack(ends))

    @property
    def a(self) -> FloatArray:
        """The start."""
        return np.asarray(self.points[0])

    @property
    def b(self) -> FloatArray:
        """The end."""
        return np.asarray(self.points[1])

    def __repr__(self) -> str:
        return f"Segment(length {self.length:g} in R^{self.ambient})"


class Planar(Path):
    """A plane curve carried into R^n: ``gamma(t) = center + x(t) u + y(t) v``.

    ``center`` is ``(n,)`` and ``axes`` is ``(2, n)`` with rows ``u``, ``v``: two orthogonal vectors of one length, the
    *size*. Certificates hold for the axes as rounded to floats.
    """

    center: FloatArray
    axes: FloatArray
    size: float

    def _place(self, center: Any, size: Any, plane: Any, interval: Any, name: str) -> None:
        """Check and set the frame; without a plane, the first two coordinates."""
        scale = float(real_array(size, "radius" if name == "circle" else "scale", ndim=0))
        if not scale > 0:
            raise InputError(f"{name}: expected a positive size, got {scale:g}")
        middle = None if center is None else real_array(center, "center").reshape(-1)
        if plane is None:
            n = 2 if middle is None else middle.size
            if n < 2:
                raise InputError(f"{name}: expected a center in R^n with n >= 2, got n = {n}")
            pair = np.eye(2, n)
        else:
            pair = real_array(plane, "plane", ndim=2)
            if pair.shape[0] != 2 or pair.shape[1] < 2:
                raise InputError(f"plane: expected two rows, (2, n) with n >= 2, got shape {pair.shape}")
            with np.errstate(over="ignore", invalid="ignore"):
                off = float(np.abs(pair @ pair.T - np.eye(2)).max())
            if not off <= ORTHONORMAL:
                raise InputError(f"plane: expected two orthonormal rows, got products off by {off:.2g}")
        middle = np.zeros(pair.shape[1]) if middle is None else middle
        if middle.size != pair.shape[1]:
            raise InputError(f"center: expected {pair.shape[1]} coordinates as the plane has, got {middle.size}")
        self.center, self.axes, self.size = frozen(middle), frozen(scale * pair), scale
        self.interval = checked_interval(interval)

    @property
    def ambient(self) -> int:
        return self.center.size

    @abstractmethod
    def flat(self, t: FloatArray) -> FloatArray:
        """``(x, y)`` of the unit curve, ``(len(t), 2)``."""

    @abstractmethod
    def flat_derivative(self, t: FloatArray) -> FloatArray:
        """``(x', y')`` of the unit curve."""

    @abstractmethod
    def flat_length(self, t: FloatArray) -> FloatArray:
        """An antiderivative of the unit curve's speed."""

    def __call__(self, t: Any) -> FloatArray:
        return np.asarray(self.center + self.flat(self.parameters(t)) @ self.axes)

    def derivative(self, t: Any) -> FloatArray:
        return np.asarray(self.flat_derivative(self.parameters(t)) @ self.axes)

    def arc_length(self, t: Any) -> FloatArray:
        start = self.flat_length(np.array([self.interval[0]]))
        return np.asarray(self.size * (self.flat_length(self.parameters(t)) - start))

    @classmethod
    def random_plane(cls, ambient: int, seed: int | np.random.Generator, **settings: Any) -> Any:
        """The curve in a uniformly random plane of R^ambient through its center."""
        if ambient < 2:
            raise InputError(f"ambient: expected at least 2, got {ambient}")
        q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(ambient, 2)))
        curve: Any = cls
        return curve(plane=(q * np.sign(np.diag(r))).T, **settings)


class Circle(Planar):
    """``center + radius (cos t u + sin t v)`` for ``t`` in ``interval``, by default the unit circle of the plane.

    Parameters
    ----------
    center
        ``(n,)``; zeros by default.
    radius
        A positive number.
    plane
        Orthonormal rows ``u``, ``v``, ``(2, n)``; the first two coordinates by default.
    interval
        Angles ``(lo, hi)``, at most one full turn. ``(-pi, pi)``, the default, is the full circle.

    >>> Circle(radius=2.0)([0.0])
    array([[2., 0.]])
    >>> bool(Circle().closed), round(Circle().length, 6)
    (True, 6.283185)
    """

    def __init__(
        self, center: Any = None, radius: float = 1.0, plane: Any = None, interval: Interval = (-np.pi, np.pi)
    ) -> None:
        self._place(center, radius, plane, interval, "circle")
        lo, hi = self.interval
        if hi - lo > 2 * np.pi * (1 + 4 * U) or max(abs(lo), abs(hi)) > 4 * np.pi:
            raise InputError(f"interval: expected at most one turn, between -4 pi and 4 pi, got [{lo:g}, {hi:g}]")

    @property
    def radius(self) -> float:
        return self.size

    @property
    def closed(self) -> bool:
        """Whether the interval is a full turn, up to the rounding of pi."""
        lo, hi = self.interval
        return bool(hi - lo >= 2 * np.pi * (1 - 4 * U))

    def flat(self, t: FloatArray) -> FloatArray:
        # The floats next to multiples of pi / 2 stand for these, here as in certificates.
        quarters = np.round(t / (np.pi / 2))
        exact = (quarters * (np.pi / 2) == t)[:, None]
        points = np.stack([np.cos(t), np.sin(t)], axis=1)
        return np.where(exact, np.round(points), points)

    def flat_derivative(self, t: FloatArray) -> FloatArray:
        return np.stack([-np.sin(t), np.cos(t)], axis=1)

    def flat_length(self, t: FloatArray) -> FloatArray:
        return t

    def __repr__(self) -> str:
        lo, hi = self.interval
        return f"Circle(radius {self.size:g} in R^{self.ambient}, t in [{lo:g}, {hi:g}])"


class Tractrix(Planar):
    """``center + scale ((t - tanh t) u + sech t v)`` for ``t`` in ``interval``, by default ``(-3, 3)`` in the plane.

    It has a cusp at ``t = 0``, where its speed ``scale |tanh t|`` vanishes.

    >>> Tractrix()([0.0])
    array([[0., 1.]])
    """

    def __init__(
        self, center: Any = None, scale: float = 1.0, plane: Any = None, interval: Interval = (-3.0, 3.0)
    ) -> None:
        self._place(center, scale, plane, interval, "tractrix")
        if max(map(abs, self.interval)) > 300:
            raise InputError(f"interval: expected parameters between -300 and 300, got {self.interval}")

    def flat(self, t: FloatArray) -> FloatArray:
        return np.stack([t - np.tanh(t), 1 / np.cosh(t)], axis=1)

    def flat_derivative(self, t: FloatArray) -> FloatArray:
        tanh = np.tanh(t)
        return np.stack([tanh**2, -tanh / np.cosh(t)], axis=1)

    def flat_length(self, t: FloatArray) -> FloatArray:
        return np.asarray(np.sign(t) * (np.logaddexp(t, -t) - np.log(2)))

    def __repr__(self) -> str:
        lo, hi = self.interval
        return f"Tractrix(scale {self.size:g} in R^{self.ambient}, t in [{lo:g}, {hi:g}])"


class Curve(Path):
    """Any continuous, piecewise smooth curve, given by a function and followed through its interpolant.

    Parameters
    ----------
    function
        From parameters ``(k,)`` to points ``(k, n)``; a function of a single number to a vector is called in a loop.
    interval
        ``(lo, hi)``.

    The interpolant is a Chebyshev series on each of ``panels``. The noise of the function's values is measured, so that
    it may be computed in float32 or be steep; ``residual`` estimates how far the interpolant is off, noise included. A
    function that jumps or is not finite somewhere is refused.

    >>> parabola = Curve(lambda t: np.stack([t, t**2], axis=1), (-1.0, 1.0))
    >>> round(parabola.length, 10), parabola.residual < 1e-14
    (2.9578857151, True)
    """

    def __init__(self, function: Callable[[Any], Any], interval: Interval) -> None:
        if not callable(function):
            raise InputError(f"function: expected a function of t, got {type(function).__name__}")
        self.interval = checked_interval(interval)
        self._function = _batched(function, self.interval)
        self.panels = interpolate(self._function, self.interval)

    @property
    def residual(self) -> float:
        """An estimate, on the safe side, of the largest distance of the interpolant from the function.

        It rests on values of the function at some points: no finite number of them proves more.
        """
        return self.panels.residual

    @property
    def ambient(self) -> int:
        return int(self.panels.series.shape[2])

    @cached_property
    def closed(self) -> bool:
        ends = self(list(self.interval))
        return bool(np.abs(ends[0] - ends[1]).max() <= self.panels.off[0] + self.panels.off[-1])

    @cached_property
    def _velocity(self) -> Panels:
        return self.panels.derivative()

    def __call__(self, t: Any) -> FloatArray:
        return self.panels.values(*self.panels.local(self.parameters(t)))

    def derivative(self, t: Any) -> FloatArray:
        return self._velocity.values(*self.panels.local(self.parameters(t)))

    @cached_property
    def _lengths(self) -> FloatArray:
        """Arc length up to every edge."""
        index = np.arange(len(self.panels.series))
        return np.concatenate([[0.0], np.cumsum(self._part(index, np.ones(len(index))))])

    def _part(self, index: IntArray, s: FloatArray) -> FloatArray:
        """Length inside of panels from their start to the place ``s``, by Gauss quadrature."""
        nodes, weights = np.polynomial.legendre.leggauss(2 * NODES)
        places = (s[:, None] + 1) * (nodes + 1) / 2 - 1
        velocity = self._velocity.values(np.repeat(index, len(nodes)), places.reshape(-1))
        speed = np.linalg.norm(velocity, axis=1).reshape(places.shape)
        width = self.panels.edges[index + 1] - self.panels.edges[index]
        return np.asarray(speed @ weights * (s + 1) * width / 4)

    def arc_length(self, t: Any) -> FloatArray:
        index, s = self.panels.local(self.parameters(t))
        return np.asarray(self._lengths[index] + self._part(index, s))

    def __repr__(self) -> str:
        lo, hi = self.interval
        return f"Curve(in R^{self.ambient}, t in [{lo:g}, {hi:g}], {len(self.panels.series)} panels)"


def _batched(function: Callable[[Any], Any], interval: Interval) -> Callable[[FloatArray], FloatArray]:
    """The function on vectors of parameters, checked to give one point for each."""

    def whole(t: FloatArray) -> FloatArray:
        return real_array(function(t), "function", finite=False)

    def single(t: FloatArray) -> FloatArray:
        return np.stack([real_array(function(float(x)), "function", finite=False).reshape(-1) for x in t])

    probe = np.linspace(*interval, 5)[1:4]
    for form in (whole, single):
        try:
            values = form(probe)
        except (TypeError, ValueError, IndexError, InputError) as error:
            reason = f"{type(error).__name__}: {error}"
            continue
        if values.ndim == 2 and len(values) == 3 and values.shape[1] > 0:
            return form
        reason = f"shape {values.shape}"
    raise InputError(f"function: expected points (k, n) for parameters (k,), got {reason}")


def checked_interval(interval: Any) -> Interval:
    """Two finite numbers in order."""
    ends = real_array(interval, "interval")
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise InputError(f"interval: expected two numbers in order, got {ends.tolist()}")
    return float(ends[0]), float(ends[1])
