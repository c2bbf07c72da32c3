"""Proven bounds of lengths on spheres, ellipsoids and cylinders, and of areas on spheres: in balls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf

import flint
import numpy as np

from fiberscope.geometry.surfaces.proven_arcs import (
    BITS,
    Arb,
    ProvenArc,
    Vector,
    cross_of,
    dot_of,
    ends_of,
    off_of,
    root_of,
    unit_of,
)
from fiberscope.numerics.floats import FloatArray, IntArray, U

Ends = tuple[float, float]


def length_bounds(arcs: Iterable[ProvenArc], axes: FloatArray, upright: bool) -> Ends:
    """Proven bounds of the sum of lengths of arcs under ``u -> u @ axes``; ``upright`` for a cylinder."""
    low, high = 0.0, 0.0
    for arc in arcs:
        least, most = arc_length(arc, axes, upright)
        low, high = low + least * (1 - 4 * U), high + most * (1 + 4 * U)
    return low * (1 - 4 * U), float(high * (1 + 4 * U))


def arc_length(arc: ProvenArc, axes: FloatArray, upright: bool) -> Ends:
    """Proven bounds of the length of one arc."""
    return _cylinder_length(arc, axes) if upright else _length(arc, axes)


def _length(arc: ProvenArc, axes: FloatArray) -> Ends:
    with flint.ctx.workprec(BITS):
        radius = root_of(1 - arc.height * arc.height)
        rows = [[Arb(float(v)) for v in row] for row in axes.T]
        images = [[radius * dot_of(side, row) for row in rows] for side in (arc.begin, cross_of(arc.normal, arc.begin))]
    return _ellipse_bounds(images[0], images[1], arc.turn)


def _cylinder_length(arc: ProvenArc, axes: FloatArray) -> Ends:
    """Of a part of an ellipse or a straight line."""
    with flint.ctx.workprec(BITS):
        rows = [[Arb(float(v)) for v in row] for row in axes.T]
        n, begin = arc.normal, arc.begin
        if (arc.straight or arc.steep) and arc.ends is not None:
            way = [b - a for a, b in zip(*arc.ends, strict=True)]
            image = [dot_of(way, row) for row in rows]
            chord = root_of(dot_of(image, image))
            if arc.steep:  # its height grows or falls all along
                third, flat = ([row[i] for row in rows] for i in (2, slice(0, 2)))
                around = sum((dot_of(pair, pair) for pair in flat), Arb(0))
                chord = chord.union(abs(way[2]) * root_of(dot_of(third, third)) + arc.turn * root_of(around))
            least, most = ends_of(chord)
            return max(0.0, least), most
        if n[2].contains(Arb(0)):
            return 0.0, inf
        slope = [-n[0] / n[2], -n[1] / n[2]]
        one = [begin[0], begin[1], dot_of(slope, begin[:2])]
        two = [-begin[1], begin[0], slope[1] * begin[0] - slope[0] * begin[1]]
        images = [[dot_of(side, row) for row in rows] for side in (one, two)]
    return _ellipse_bounds(images[0], images[1], arc.turn)


def _ellipse_bounds(one: Vector, two: Vector, turn: flint.arb) -> Ends:
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
            if length.is_finite() and length.overlaps(bounds):
                bounds = length.intersection(bounds)
    if not bounds.is_finite():
        return 0.0, inf
    low, high = ends_of(bounds)
    return max(0.0, low), high


def sphere_area_bounds(
    arcs: Iterable[ProvenArc], corners: IntArray, sides: IntArray, flat: IntArray, radius: float
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of the areas of patterns, by Gauss and Bonnet.

    ``corners (arcs, 2)`` numbers the ends of the arcs, start first; ``sides (all, 2)`` has the patterns beside arcs and
    circles, ``flat (patterns,)`` the Euler characteristics of their regions. On the side ``n x < h`` a circle turns by
    ``-h`` per angle, and at a corner the boundary turns by the angle between both normals.
    """
    with flint.ctx.workprec(BITS):
        total = [2 * Arb.pi() * int(count) for count in flat]
        meeting: dict[tuple[int, int], list[Vector]] = defaultdict(list)
        for k, arc in enumerate(arcs):
            for corner, v in zip(corners[k].tolist() if arc.ends else [], arc.ends or (), strict=True):
                tangent = unit_of(off_of(arc.normal, v))
                for side, sign in zip(sides[k].tolist(), (1, -1), strict=True):
                    meeting[side, corner].append([sign * x for x in tangent])
            total[sides[k, 0]] += arc.height * arc.turn
            total[sides[k, 1]] -= arc.height * arc.turn
        for (side, _), (one, two) in meeting.items():
            across = cross_of(one, two)
            total[side] -= Arb.atan2(root_of(dot_of(across, across)), dot_of(one, two))
        square = Arb(radius) * Arb(radius)
        found = np.array([ends_of(part * square) for part in total]).reshape(-1, 2)
    whole = 4 * np.pi * radius**2 * (1 + 8 * U)
    return np.maximum(found[:, 0], 0.0), np.minimum(found[:, 1], whole)
