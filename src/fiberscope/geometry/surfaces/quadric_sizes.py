"""Arcs on spheres, ellipsoids and cylinders: their lengths, areas and distances on spheres, in floats.

A plane meets a quadric in an ellipse ``x(t) = middle + cos t one + sin t two``, and an affine map takes ellipses to
ellipses: lengths of arcs are Legendre's integrals of the second kind.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import pi

import numpy as np

from fiberscope.geometry.measures import ellipse_arcs
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray


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


def sphere_areas(
    arcs: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    corners: IntArray,
    ends: FloatArray,
    sides: IntArray,
    flat: IntArray,
) -> FloatArray:
    """Areas of patterns on the unit sphere, ``(patterns,)``, by Gauss and Bonnet.

    ``corners (arcs, 2)`` numbers the places ``ends (arcs, 2, 3)``; ``sides (all, 2)`` has the patterns beside arcs and
    circles, ``flat (patterns,)`` the Euler characteristics of their regions.
    """
    normal, height, _, angle = arcs
    total = np.zeros(len(flat))
    np.add.at(total, sides[:, 0], height * angle)
    np.add.at(total, sides[:, 1], -height * angle)
    meeting: dict[tuple[int, int], list[FloatArray]] = defaultdict(list)
    for k, names in enumerate(corners.tolist()):
        for corner, v in zip(names, ends[k], strict=True):
            tangent = normal[k] - (normal[k] @ v) * v
            tangent /= np.linalg.norm(tangent)
            for side, turn in zip(sides[k].tolist(), (1.0, -1.0), strict=True):
                meeting[side, corner].append(turn * tangent)
    for (side, _), (one, two) in meeting.items():
        total[side] -= np.arctan2(np.linalg.norm(np.cross(one, two)), one @ two)
    return np.asarray(total + 2 * pi * flat)


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
