r"""Shortest ways on ellipsoids: to points, and to boundaries, by geodesics in all directions.

A shortest way is a geodesic, so all of them from a point are those of its directions, and a hinge bounds what lies
between two of these (Toponogov): an ellipsoid is curved like a ball everywhere, and where a shortest way of length
``r`` and any other geodesic of that length begin at an angle ``a``, their ends are no farther from each other than in
the plane, :math:`2 r \sin(a/2) \le r a`. So if a geodesic keeps more than ``a t`` away from the goal at all lengths
``t < r``, no shortest way whose direction differs by ``a`` at most meets the goal before ``r``. Directions are halved
as long as that leaves room for a way that is shorter than the best one: no way is forgotten. Where too many
directions are left, as all of them are from a pole to a circle around it, the bound stays below. Lengths are floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, pi

import numpy as np

from fiberscope.geometry.surfaces.ways.geodesic_kernels import TERMS, follow
from fiberscope.numerics.cutoffs import ARRIVED, AS_SHORT, MET
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import ENDLESS, Run

_FIRST = 16
"""Directions at first."""

_MOST = 1 << 12
"""Directions that are looked at."""

_CHUNK = 64
"""Geodesics between two looks at the clock."""

_HALVINGS, _POLISHED = 48, 4
"""Of steps beside one of the best directions, and how many of these."""

_ROOM = 2.0**-10
"""Ways that are longer than the best one by this part are told, too."""


@dataclass(frozen=True, slots=True, eq=False)
class HalfAxes:
    """An ellipsoid in the frame of its half-axes, the longest of which is one.

    ``turn (3, 3)`` takes points of the unit sphere of the given axes to that of the half-axes.
    """

    size: FloatArray
    turn: FloatArray
    unit: float

    @classmethod
    def of(cls, axes: FloatArray) -> HalfAxes:
        longest = float(np.abs(axes).max())
        turn, size, _ = np.linalg.svd(axes / longest, full_matrices=False)
        return cls(size / size[0], turn, longest * float(size[0]))

    def arcs(self, normal: FloatArray, height: FloatArray, start: FloatArray, angle: FloatArray) -> FloatArray:
        """Goals, a row for every arc of the unit sphere: see :mod:`.geodesic_kernels`."""
        flat = start - height[:, None] * normal
        half = angle[:, None] / 2
        middle = np.cos(half) * flat + np.sin(half) * np.cross(normal, flat)  # from the circle's centre
        radius = np.linalg.norm(flat, axis=1)
        plane = np.concatenate([normal @ self.turn, height[:, None]], axis=1)
        side = np.concatenate([middle @ self.turn, (radius**2 * np.cos(angle / 2))[:, None]], axis=1)
        side[angle >= 2 * pi] = 0.0  # a whole circle has no ends
        steep = [np.linalg.norm(part[:, :3] / self.size, axis=1) for part in (plane, side)]
        goals = [part / np.where(size > 0, size, 1.0)[:, None] for part, size in zip((plane, side), steep, strict=True)]
        return np.concatenate(goals, axis=1)


@dataclass(eq=False)
class _Search:
    """Ways from one point to goals, or to one target."""

    frame: HalfAxes
    start: FloatArray
    goals: FloatArray
    target: FloatArray
    run: Run
    best: float = inf

    def __post_init__(self) -> None:
        across = self.start / self.frame.size
        across /= np.linalg.norm(across)
        one = np.cross(across, np.eye(3)[np.abs(across).argmin()])
        one /= np.linalg.norm(one)
        self._sides = np.stack([one, np.cross(across, one)]) / self.frame.size
        self._work = [np.empty((3, TERMS)), np.empty((3, TERMS)), *(np.empty(TERMS) for _ in range(3))]

    def ways(self, angles: FloatArray, half: float) -> tuple[FloatArray, FloatArray]:
        """For directions: how long ways beside them are at least, and one along them; the best one is kept."""
        velocity = np.cos(angles)[:, None] * self._sides[0] + np.sin(angles)[:, None] * self._sides[1]
        found, slopes = np.empty((len(angles), 2)), np.full(len(angles), half)
        horizon = min(self.best, pi) * (1 + _ROOM)
        for first in range(0, len(angles), _CHUNK):
            self.run.check()
            part = slice(first, first + _CHUNK)
            follow(
                self.start, velocity[part], slopes[part], self.frame.size, self.frame.size**-2.0, self.goals,
                self.target, horizon, MET, *self._work, found[part],
            )  # fmt: skip
        k = int(found[:, 1].argmin())
        if found[k, 1] < self.best:
            self.best = float(found[k, 1])
            self._prune()
        return found[:, 0], found[:, 1]

    def _prune(self) -> None:
        """Without the goals that are farther than the best way, even straight through the ellipsoid."""
        if len(self.goals):
            n, h, e, g = self.goals[:, :3], self.goals[:, 3], self.goals[:, 4:7], self.goals[:, 7]
            gap = np.maximum(np.abs(n @ self.start - h), g - e @ self.start)
            self.goals = np.ascontiguousarray(self.goals[gap <= self.best * (1 + _ROOM)])

    def shortest(self) -> tuple[float, float]:
        """No way is shorter than the first length; the second is one's."""
        if len(self.target) and (self.target == self.start).all():
            return 0.0, 0.0
        half, floor, looked = pi / _FIRST, inf, 0
        angles = np.asarray(half * np.arange(1, 2 * _FIRST, 2), dtype=np.float64)
        seen: list[tuple[FloatArray, FloatArray]] = []
        enough = ARRIVED if len(self.target) else AS_SHORT
        while len(angles):
            low, high = self.ways(angles, half)
            seen.append((angles, high))
            looked += len(angles)
            kept = low < self.best * (1 - enough)
            floor = min(floor, float(low[~kept].min(initial=inf)))
            angles, low = angles[kept], low[kept]
            if looked + 2 * len(angles) > _MOST:
                break
            half /= 2
            angles = _beside(angles, half)
        floor = min(floor, float(low.min(initial=inf)))
        if len(self.target):
            self._come_nearer(angles, low, half)
        else:
            self._polish(*(np.concatenate(part) for part in zip(*seen, strict=True)))
        return min(floor, self.best), self.best

    def _come_nearer(self, angles: FloatArray, low: FloatArray, half: float) -> None:
        """To the target, of directions that are too many: along those that may have the shortest ways."""
        for _ in range(_HALVINGS if len(angles) else 0):
            half /= 2
            angles = _beside(np.asarray(angles[np.argsort(low, kind="stable")[:2]]), half)
            low, _ = self.ways(angles, half)

    def _polish(self, angles: FloatArray, high: FloatArray) -> None:
        """Turn to the shortest way beside each of the best directions."""
        order = np.argsort(angles)
        angles, high = angles[order], high[order]
        least = np.isfinite(high) & (high <= np.roll(high, 1)) & (high <= np.roll(high, -1))
        for k in np.flatnonzero(least)[np.argsort(high[least], kind="stable")][:_POLISHED].tolist():
            at, best, half = angles[k], high[k], pi / _FIRST
            for _ in range(_HALVINGS):
                _, found = self.ways(at + np.array([-half, half]), 0.0)
                if found.min() < best:
                    at, best = at + (half if found[1] < found[0] else -half), found.min()
                else:
                    half /= 2


def _beside(angles: FloatArray, half: float) -> FloatArray:
    """The middles of both halves of intervals."""
    return np.asarray((angles[:, None] + np.array([-half, half])).reshape(-1))


def to_boundaries(
    frame: HalfAxes, goals: FloatArray, places: FloatArray, start: FloatArray, run: Run = ENDLESS
) -> tuple[float, float]:
    """Bounds of the length of the shortest way from a point ``(3,)`` of the frame to the goals.

    ``places`` are points of the goals: of boundaries so small that all directions miss them, one of these is the end.
    """
    if not len(goals):
        return inf, inf
    low, high = _Search(frame, start, goals, np.empty(0), run).shortest()
    if low < high * (1 - 2 * AS_SHORT):
        near = np.argsort(np.linalg.norm((places - start) * frame.size, axis=1), kind="stable")[:_POLISHED]
        high = min(high, *(_Search(frame, start, np.empty((0, 8)), end, run).shortest()[1] for end in places[near]))
    return min(low, high) * frame.unit, high * frame.unit


def to_point(frame: HalfAxes, start: FloatArray, end: FloatArray, run: Run = ENDLESS) -> tuple[float, float]:
    """Bounds of the length of the shortest way between two points of the frame."""
    low, high = _Search(frame, start, np.empty((0, 8)), end, run).shortest()
    return low * frame.unit, high * frame.unit
