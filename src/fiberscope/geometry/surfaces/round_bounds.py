"""Proven bounds of areas on spheres and of lengths on cylinders: in balls, from the errors of planes and corners on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf

import flint
import numpy as np

from fiberscope.geometry.surfaces.quadric_sizes import (
    BITS,
    Arb,
    BoundedArc,
    Known,
    Vector,
    balls,
    cross_of,
    dot_of,
    ellipse_bounds,
    off_of,
    on_sphere,
    root_of,
    turn_of,
    unit_of,
)
from fiberscope.numerics.floats import FloatArray, IntArray, U

Ends = tuple[float, float]


def ends_of(ball: flint.arb) -> Ends:
    """Floats around a ball; nothing is known of one that is not finite."""
    if not ball.is_finite():
        return -inf, inf
    return float(np.nextafter(float(ball.lower()), -np.inf)), float(np.nextafter(float(ball.upper()), np.inf))


def sphere_area_bounds(
    arcs: Iterable[BoundedArc], corners: IntArray, sides: IntArray, flat: IntArray, radius: float
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of the areas of patterns, by Gauss and Bonnet.

    ``corners (arcs, 2)`` numbers the ends of the arcs, start first; ``sides (all, 2)`` has the patterns beside arcs and
    circles, ``flat (patterns,)`` the Euler characteristics of their regions. On the side ``n x < h`` a circle turns by
    ``-h`` per angle, and at a corner the boundary turns by the angle between both normals.
    """
    with flint.ctx.workprec(BITS):
        total = [2 * Arb.pi() * int(count) for count in flat]
        meeting: dict[tuple[int, int], list[Vector]] = defaultdict(list)
        for k, (normal, height, ends) in enumerate(arcs):
            n, h = unit_of(balls(normal)), Arb(*height)
            angle = 2 * Arb.pi()
            if ends is not None:
                points = [on_sphere(balls(p), balls(q), leaves) for p, q, leaves in ends]
                one = unit_of(off_of(points[0], n))
                angle = turn_of(one, cross_of(n, one), points[1], n)
                for corner, v in zip(corners[k].tolist(), points, strict=True):
                    tangent = unit_of(off_of(n, v))
                    for side, sign in zip(sides[k].tolist(), (1, -1), strict=True):
                        meeting[side, corner].append([sign * x for x in tangent])
            total[sides[k, 0]] += h * angle
            total[sides[k, 1]] -= h * angle
        for (side, _), (one, two) in meeting.items():
            across = cross_of(one, two)
            total[side] -= Arb.atan2(root_of(dot_of(across, across)), dot_of(one, two))
        square = Arb(radius) * Arb(radius)
        found = np.array([ends_of(part * square) for part in total]).reshape(-1, 2)
    whole = 4 * np.pi * radius**2 * (1 + 8 * U)
    return np.maximum(found[:, 0], 0.0), np.minimum(found[:, 1], whole)


def cylinder_length_bounds(arcs: Iterable[BoundedArc], axes: FloatArray) -> Ends:
    """Proven bounds of the sum of lengths of arcs on a cylinder: ellipses and straight lines."""
    low, high = 0.0, 0.0
    for arc in arcs:
        least, most = _cylinder_arc(*arc, axes)
        low, high = low + least * (1 - 4 * U), high + most * (1 + 4 * U)
    return low * (1 - 4 * U), float(high * (1 + 4 * U))


def _cylinder_arc(
    normal: Known, height: Ends, ends: tuple[tuple[Known, Known, bool], ...] | None, axes: FloatArray
) -> Ends:
    with flint.ctx.workprec(BITS):
        rows = [[Arb(float(v)) for v in row] for row in axes.T]
        points = None if ends is None else [_on_cylinder(balls(p), balls(q), leaves) for p, q, leaves in ends]
        n = balls(normal)
        if points is not None and normal[0][2] == 0 and normal[1] == 0:
            way = [b - a for a, b in zip(*points, strict=True)]
            image = [dot_of(way, row) for row in rows]
            least, most = ends_of(root_of(dot_of(image, image)))
            return max(0.0, least), most
        if n[2].contains(Arb(0)):
            return 0.0, inf
        slope = [-n[0] / n[2], -n[1] / n[2]]
        down = bool(n[2] < 0)  # the angle falls along arcs whose normal points down: they are run through backwards
        begin = [Arb(1), Arb(0)]
        turn = 2 * Arb.pi()
        if points is not None:
            first, last = (points[1], points[0]) if down else (points[0], points[1])
            begin = unit_of(first[:2])
            x, y = dot_of(begin, last[:2]), begin[0] * last[1] - begin[1] * last[0]
            guess = Arb(float(np.arctan2(float(y.mid()), float(x.mid())) % (2 * np.pi)))
            turn = guess + Arb.atan2(y * guess.cos() - x * guess.sin(), x * guess.cos() + y * guess.sin())
        one = [begin[0], begin[1], dot_of(slope, begin)]
        two = [-begin[1], begin[0], slope[1] * begin[0] - slope[0] * begin[1]]
        images = [[dot_of(side, row) for row in rows] for side in (one, two)]
    return ellipse_bounds(images[0], images[1], turn)


def _on_cylinder(p: Vector, q: Vector, leaves: bool) -> Vector:
    """Where the line from p to q leaves the unit cylinder, or enters it."""
    d = [b - a for a, b in zip(p, q, strict=True)]
    a, b, c = dot_of(d[:2], d[:2]), dot_of(p[:2], d[:2]), dot_of(p[:2], p[:2]) - 1
    root = root_of(b * b - a * c)
    t = (root - b) / a if leaves else (-b - root) / a
    return [x + t * v for x, v in zip(p, d, strict=True)]
