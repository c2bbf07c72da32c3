"""Lengths and areas on spheres, ellipsoids and cylinders; floats, but for the bounds of lengths.

A plane meets a quadric in an ellipse ``x(t) = middle + cos t one + sin t two``, and an affine map takes ellipses to
ellipses: lengths of arcs are Legendre's integrals of the second kind. An area is an integral along the boundary: with
a function ``F`` whose derivative in one coordinate is the area element, the area between two boundaries is the
difference of the integrals of ``F`` in the other coordinate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, inf, pi

import flint
import numpy as np

from fiberscope.geometry.measures import ellipse_arcs
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, U

_NODES = 24
"""Nodes of Gauss on a part of an arc."""

_INNER = 64
"""Nodes of Gauss on a meridian of an ellipsoid."""

_POLES = 200
"""Directions among which the poles of an ellipsoid are chosen, away from all boundaries."""

BITS = 128
"""Precision of the balls in which lengths are bounded."""


@dataclass(frozen=True, slots=True, eq=False)
class Ellipses:
    """Arcs ``middle + cos t one + sin t two`` for ``t`` from ``begin`` to ``end``, in the coordinates of the quadric.

    Straight ones, on a cylinder, have a ``way`` and no axes.
    """

    middle: FloatArray
    one: FloatArray
    two: FloatArray
    begin: FloatArray
    end: FloatArray
    way: FloatArray

    @property
    def straight(self) -> BoolArray:
        return np.asarray(self.way.any(axis=1))

    def at(self, k: int, t: FloatArray) -> FloatArray:
        """Points of one arc, ``(len(t), 3)``; of a straight one, ``t`` from 0 to 1 along its way."""
        if self.way[k].any():
            return np.asarray(self.middle[k] + t[:, None] * self.way[k])
        return np.asarray(self.middle[k] + np.cos(t)[:, None] * self.one[k] + np.sin(t)[:, None] * self.two[k])

    def lengths(self, axes: FloatArray) -> FloatArray:
        """Lengths of the images under ``u -> u @ axes``."""
        pair = np.stack([self.one, self.two], axis=1) @ axes
        curved = ellipse_arcs(
            pair @ pair.swapaxes(1, 2), np.minimum(self.begin, self.end), np.maximum(self.begin, self.end)
        )
        return np.asarray(np.where(self.straight, np.linalg.norm(self.way @ axes, axis=1), curved))


def cylinder_ellipses(normal: FloatArray, height: FloatArray, ends: FloatArray) -> Ellipses:
    """Arcs of planes on the unit cylinder, ``ends (arcs, 2, 3)`` of the first ones; the others go all around.

    The parameter is the angle around the axis, which falls along arcs whose normal points down.
    """
    count, arcs = len(normal), len(ends)
    upright = np.abs(normal[:, 2]) == 0
    slope = np.where(upright, 1.0, normal[:, 2])
    zero, flat = np.zeros(count), np.where(upright, 0.0, 1.0)
    middle = np.stack([zero, zero, np.where(upright, 0.0, height / slope)], axis=1)
    one = np.stack([flat, zero, -flat * normal[:, 0] / slope], axis=1)
    two = np.stack([zero, flat, -flat * normal[:, 1] / slope], axis=1)
    begin, end, way = np.zeros(count), np.full(count, 2 * pi), np.zeros((count, 3))
    angle = np.arctan2(ends[:, :, 1], ends[:, :, 0])
    turn = np.where(normal[:arcs, 2] > 0, 1.0, -1.0)
    begin[:arcs] = angle[:, 0]
    end[:arcs] = begin[:arcs] + turn * ((turn * (angle[:, 1] - angle[:, 0])) % (2 * pi))
    lines = np.flatnonzero(upright[:arcs])
    middle[lines], way[lines] = ends[lines, 0], ends[lines, 1] - ends[lines, 0]
    begin[lines], end[lines] = 0.0, 0.0
    return Ellipses(middle, one, two, begin, end, way)


# --- areas --------------------------------------------------------------------------------------------------------


def ellipsoid_areas(
    arcs: Ellipses, normal: FloatArray, height: FloatArray, sides: IntArray, axes: FloatArray, count: int
) -> tuple[FloatArray, FloatArray, float]:
    """For ``count`` patterns the integrals along their boundaries, the north pole, and the whole area.

    On meridians from the south pole ``F`` is the area element integrated; a pattern that holds the north pole has the
    whole area more. The poles may be anywhere but on a boundary: of many directions, the one farthest from all.
    """
    rng = np.random.default_rng(0)
    poles = rng.normal(size=(_POLES, 3))
    poles /= np.linalg.norm(poles, axis=1, keepdims=True)
    gap = np.abs(np.abs(poles @ normal.T) - np.abs(height)).min(axis=1, initial=2.0)
    pole = poles[gap.argmax()]
    east = np.cross(pole, np.eye(3)[np.abs(pole).argmin()])
    east /= np.linalg.norm(east)
    frame = np.stack([east, np.cross(pole, east), pole])
    gram = axes @ axes.T
    scale = float(np.sqrt(np.linalg.det(gram)))
    shape: FloatArray = np.asarray(np.linalg.inv(gram), dtype=np.float64)
    total = np.zeros(count)
    for k, (left, right) in enumerate(sides.tolist()):
        near = min(abs(float(normal[k] @ pole) - float(height[k])), abs(float(normal[k] @ pole) + float(height[k])))
        part = _along_meridians(arcs, k, frame, shape, max(near, 1e-6)) * scale
        total[left] += part
        total[right] -= part
    angles = np.arange(512) * (2 * pi / 512)
    around = np.cos(angles)[:, None] * frame[0] + np.sin(angles)[:, None] * frame[1]
    whole = float(_meridian(around, np.full(512, pi), pole, shape).mean()) * 2 * pi * scale
    return total, pole, whole


def _along_meridians(arcs: Ellipses, k: int, frame: FloatArray, shape: FloatArray, near: float) -> float:
    """``F`` integrated over the longitude along one arc."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    begin, end = float(arcs.begin[k]), float(arcs.end[k])
    parts = max(1, ceil(abs(end - begin) / min(0.5, near)))
    edges = np.linspace(begin, end, parts + 1)
    half = (edges[1:] - edges[:-1]) / 2
    t = ((edges[1:] + edges[:-1]) / 2)[:, None] + half[:, None] * nodes
    points = arcs.at(k, t.reshape(-1)) @ frame.T
    moved = (-np.sin(t.reshape(-1))[:, None] * arcs.one[k] + np.cos(t.reshape(-1))[:, None] * arcs.two[k]) @ frame.T
    flat = points[:, 0] ** 2 + points[:, 1] ** 2
    turn = (points[:, 0] * moved[:, 1] - points[:, 1] * moved[:, 0]) / flat
    outward = (points[:, :1] * frame[0] + points[:, 1:2] * frame[1]) / np.sqrt(flat)[:, None]
    south = pi - np.arctan2(np.sqrt(flat), points[:, 2])
    values = _meridian(outward, south, frame[2], shape) * turn
    return float((values.reshape(t.shape) @ weights) @ half)


def _meridian(outward: FloatArray, south: FloatArray, pole: FloatArray, shape: FloatArray) -> FloatArray:
    """The area element of ``sqrt(u shape u)`` times the sphere's, from the south pole up to angles of ``south``."""
    nodes, weights = np.polynomial.legendre.leggauss(_INNER)
    angle = south[:, None] * (nodes + 1) / 2
    u = np.sin(angle)[..., None] * outward[:, None] - np.cos(angle)[..., None] * pole
    size = np.sqrt(np.einsum("pqi,ij,pqj->pq", u, shape, u)) * np.sin(angle)
    return np.asarray(size @ weights * south / 2)


def cylinder_areas(arcs: Ellipses, normal: FloatArray, sides: IntArray, axes: FloatArray, count: int) -> FloatArray:
    """For ``count`` patterns: heights below their upper boundaries minus those below the lower ones.

    The area element at the angle ``t`` is the part of the tangent that is orthogonal to the straight lines, times the
    length of these: constant along them.
    """
    upright = axes[2] / np.linalg.norm(axes[2])
    flat = axes[:2] - (axes[:2] @ upright)[:, None] * upright
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    total = np.zeros(count + 1)  # the last one is what lies beyond the ends
    for k in np.flatnonzero(~arcs.straight).tolist():
        low, high = sorted((float(arcs.begin[k]), float(arcs.end[k])))
        parts = max(1, ceil((high - low) / 0.5))
        t = np.linspace(low, high, parts + 1)
        half = (t[1:] - t[:-1]) / 2
        angle = (((t[1:] + t[:-1]) / 2)[:, None] + half[:, None] * nodes).reshape(-1)
        tangent = -np.sin(angle)[:, None] * flat[0] + np.cos(angle)[:, None] * flat[1]
        values = arcs.at(k, angle)[:, 2] * np.linalg.norm(tangent, axis=1)
        part = float((values.reshape(parts, -1) @ weights) @ half) * float(np.linalg.norm(axes[2]))
        below, above = sides[k] if normal[k, 2] > 0 else sides[k][::-1]
        total[below] += part
        total[above] -= part
    return total[:count]


# --- bounds of lengths --------------------------------------------------------------------------------------------

Arb = flint.arb
Vector = list[flint.arb]


Known = tuple[FloatArray, float]
"""Floats, each off by no more than a bound."""

BoundedArc = tuple[Known, tuple[float, float], tuple[tuple[Known, Known, bool], ...] | None]
"""Normal and height of its plane, and how both of its ends are made: by an edge, where that leaves the ball or not."""


def bounds_of(arcs: Iterable[BoundedArc], axes: FloatArray) -> tuple[float, float]:
    """Proven bounds of the sum of lengths of arcs."""
    low, high = 0.0, 0.0
    for normal, height, ends in arcs:
        with flint.ctx.workprec(BITS):
            points = None
            if ends is not None:
                one, two = (on_sphere(balls(p), balls(q), leaves) for p, q, leaves in ends)
                points = (one, two)
        least, most = length_bounds(normal, height, points, axes)
        low, high = low + least * (1 - 4 * U), high + most * (1 + 4 * U)
    return low * (1 - 4 * U), float(high * (1 + 4 * U))


def balls(point: Known) -> Vector:
    return [Arb(float(v), point[1]) for v in point[0]]


def length_bounds(
    normal: tuple[FloatArray, float], height: tuple[float, float], ends: tuple[Vector, Vector] | None, axes: FloatArray
) -> tuple[float, float]:
    """Proven bounds of one arc on a sphere or ellipsoid, or of a whole ellipse without ``ends``.

    Normal and height are floats with bounds of their errors, the ends are balls on the unit sphere. The axes are exact.
    The arc turns counter-clockwise, seen from the tip of the normal.
    """
    with flint.ctx.workprec(BITS):
        n = [Arb(float(v), normal[1]) for v in normal[0]]
        h = Arb(*height)
        radius = root_of(1 - h * h)
        start = (
            ends[0]
            if ends is not None
            else [Arb(v) for v in np.cross(normal[0], np.eye(3)[np.abs(normal[0]).argmin()])]
        )
        one = unit_of(off_of(start, n))
        two = cross_of(n, one)
        rows = [[Arb(float(v)) for v in row] for row in axes.T]
        images = [[radius * dot_of(side, row) for row in rows] for side in (one, two)]
        turn = 2 * Arb.pi() if ends is None else turn_of(one, two, ends[1], n)
    return ellipse_bounds(images[0], images[1], turn)


def ellipse_bounds(one: Vector, two: Vector, turn: flint.arb) -> tuple[float, float]:
    """Proven bounds of the length of ``cos t one + sin t two`` for ``t`` from 0 to ``turn``."""
    with flint.ctx.workprec(BITS):
        a, b, c = dot_of(one, one), dot_of(one, two), dot_of(two, two)
        root = root_of((a - c) * (a - c) + 4 * b * b)
        long, short = (a + c + root) / 2, (a + c - root) / 2
        bounds = (root_of(short) * turn).union(root_of(long) * turn)
        if root > 0:
            # the velocity is a quarter turn ahead; of both forms, the one away from the cut of the angle
            shift = Arb.atan2(2 * b, c - a) / 2 if a < c else Arb.pi() / 2 - Arb.atan2(2 * b, a - c) / 2
            part = flint.acb(1 - short / long)
            values = [flint.acb.elliptic_e_inc(flint.acb(shift + t), part).real for t in (Arb(0), turn)]
            length = long.sqrt() * (values[1] - values[0])
            if length.is_finite() and length.overlaps(bounds):  # else an angle was taken from another turn
                bounds = length.intersection(bounds)
    if not bounds.is_finite():
        return 0.0, inf
    low, high = np.nextafter(float(bounds.lower()), -np.inf), np.nextafter(float(bounds.upper()), np.inf)
    return max(0.0, float(low)), float(high)


def turn_of(one: Vector, two: Vector, end: Vector, n: Vector) -> flint.arb:
    """The angle from ``one`` to the end, between 0 and a full turn: small beside a float guess of it."""
    flat = off_of(end, n)
    x, y = dot_of(flat, one), dot_of(flat, two)
    guess = Arb(float(np.arctan2(float(y.mid()), float(x.mid())) % (2 * pi)))
    return guess + Arb.atan2(y * guess.cos() - x * guess.sin(), x * guess.cos() + y * guess.sin())


def on_sphere(p: Vector, q: Vector, leaves: bool) -> Vector:
    """Where the line from p to q leaves the unit sphere, or enters it."""
    d = [b - a for a, b in zip(p, q, strict=True)]
    a, b, c = dot_of(d, d), dot_of(p, d), dot_of(p, p) - 1
    root = root_of(b * b - a * c)
    t = (root - b) / a if leaves else (-b - root) / a
    return [x + t * v for x, v in zip(p, d, strict=True)]


def root_of(x: flint.arb) -> flint.arb:
    """The square root of what is known not to be negative, though its ball may reach below zero."""
    return x.sqrt() if x > 0 else Arb(0).union(x.upper().max(Arb(0)).sqrt())


def dot_of(a: Vector, b: Vector) -> flint.arb:
    return sum((x * y for x, y in zip(a, b, strict=True)), Arb(0))


def off_of(a: Vector, n: Vector) -> Vector:
    part = dot_of(a, n)
    return [x - part * v for x, v in zip(a, n, strict=True)]


def unit_of(a: Vector) -> Vector:
    size = dot_of(a, a).sqrt()
    return [x / size for x in a]


def cross_of(a: Vector, b: Vector) -> Vector:
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


# --- distances on the sphere -----------------------------------------------------------------------------------------


def to_arc(x: FloatArray, n: FloatArray, h: float, begin: FloatArray, turn: float) -> FloatArray:
    """Angles between points of the unit sphere and an arc."""
    along = x @ n
    flat = x - along[:, None] * n
    u = begin - h * n
    way = np.arctan2(np.cross(np.broadcast_to(u, flat.shape), flat) @ n, flat @ u) % (2 * pi)
    to_circle = np.abs(np.arccos(np.clip(along, -1, 1)) - np.arccos(np.clip(h, -1, 1)))
    side = np.cross(n, u)
    ends = [begin, h * n + np.cos(turn) * u + np.sin(turn) * side]
    to_ends = np.min([_angle(x, end) for end in ends], axis=0)
    return np.asarray(np.where(way <= turn, to_circle, to_ends))


def _angle(x: FloatArray, end: FloatArray) -> FloatArray:
    return np.asarray(2 * np.arcsin(np.clip(np.linalg.norm(x - end, axis=1) / 2, 0, 1)))
