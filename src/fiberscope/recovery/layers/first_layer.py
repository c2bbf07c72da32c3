"""The first layer: hyperplanes that are kinks wherever they are looked at.

The normal of a kink is the difference of the gradients on its two sides. A first-layer hyperplane then predicts kinks
on every other line; the surfaces of later layers bend, and their predictions fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.pool import FARTHEST, NEAREST, Pool
from fiberscope.recovery.straightness import bends, bends_nearby, goes_on, straight
from fiberscope.recovery.tilts import Tilt, plane_again

LINES = 5
"""Lines that are searched to begin with."""

ROUNDS, MORE = 6, 12
"""Further lines, one after the other, while neurons of the first layer are missing; more where gradients show it."""

TWICE, OFTEN = 2, 6
"""Kinks of one hyperplane that are looked at before it is refused for good; more where values are noisy.

Its normal is then known too badly at some of them.
"""

VAGUE = 1e-3
"""How far off normals may be that are measured again."""

CRUDE_LINES = 120
"""Lines that are searched where values are noisy, so that every surface is met many times."""


def first_layer(pool: Pool, width: int, deep: bool = True) -> tuple[FloatArray, FloatArray]:
    """Unit normals ``(found, n)`` and offsets of straight hyperplanes; more than ``width`` only if there are more.

    ``deep`` says that other layers follow, whose surfaces may look straight. Stops once ``width`` are found and the
    kinks of the first line are all looked at, or after some more lines.
    """
    pool.search(*pool.place.lines(pool.rng, LINES))
    found, refused = pool.planes, Refused()
    for turn in pool.turns(LINES + ROUNDS + MORE):
        if not pool.effort and turn >= LINES + ROUNDS and not len(found) < min(width, pool.gradients.basis.shape[1]):
            break
        if turn >= len(pool.lines):
            pool.search(*pool.place.lines(pool.rng, 1))
            if found:
                pool.explain(*stacked(found, len(pool.place.low)))
        for key in [key for key in pool.open() if key[0] == turn]:
            if pool.explained[key[0]][key[1]] or refused.often(pool, pool.point(key)):
                continue
            if deep and turn and bends_nearby(pool, key):
                continue
            pool.run.step(pool.oracle.spent, pool.oracle.limit, f"layer 1: {len(found)} of {width} neurons")
            _look(pool, key, refused, deep)
        if deep and len(found) >= width:
            _drop_bent(pool, refused)
        if len(found) >= width:
            break
    if not found:
        for plane in refused.edges:
            _note(pool, *plane)
    if pool.place.live is not None or len(found) > width:
        found = [found[i] for i in range(len(found)) if not bends(pool, found, i)]
    if pool.crude and deep and found:
        found = _measured_again(pool, found)
    pool.planes = found
    return stacked(found, len(pool.place.low))


@dataclass
class Refused:
    """Hyperplanes that are none of the first layer, as often as that was seen, and ``edges`` that may be some."""

    planes: list[tuple[FloatArray, float]] = field(default_factory=list)
    edges: list[tuple[FloatArray, float]] = field(default_factory=list)

    def often(self, pool: Pool, x: FloatArray) -> bool:
        """Whether a kink lies on hyperplanes that were refused more than once: the same pieces are met again."""
        room = pool.tolerance * pool.place.size
        near = sum(abs(float(n @ x) + b) <= room for n, b in self.planes)
        return near >= (OFTEN if pool.crude else TWICE)


def _look(pool: Pool, key: tuple[int, int], refused: Refused, deep: bool) -> None:
    """Measure the normal of a kink, and note its hyperplane where it is straight."""
    n = pool.normal(key)
    if n is None:
        return
    b = -float(n @ pool.point(key))
    what = straight(pool, n, b, key[0], deep)
    if what is True:
        _note(pool, n, b)
        pool.explain(n[None], np.array([b]))
    else:
        refused.planes.append((n, b))
        refused.edges += [(n, b)] if what is False else []


def _note(pool: Pool, n: FloatArray, b: float) -> None:
    if not any(_same(n, b, *other, pool.tolerance * 1000) for other in pool.planes):
        pool.planes.append((n, b))


def _drop_bent(pool: Pool, refused: Refused) -> None:
    """Refuse hyperplanes that end where they cross others: pieces of later surfaces, seen where they are straight."""
    planes = list(pool.planes)
    gone = [i for i in range(len(planes)) if not goes_on(pool, planes, i) and bends(pool, planes, i)]
    if gone:
        refused.planes += [planes[i] for i in gone] * TWICE
        pool.planes[:] = [plane for i, plane in enumerate(planes) if i not in gone]
        pool.forget()
        if pool.planes:
            pool.explain(*stacked(pool.planes, len(pool.place.low)))


def taken_over(pool: Pool, earlier: Pool) -> tuple[FloatArray, FloatArray]:
    """The first layer of another search, on new lines; where values are noisy these come on top of the others."""
    pool.planes, pool.gradients = earlier.planes, earlier.gradients
    if pool.crude:
        pool.lines, pool.explained = list(earlier.lines), list(earlier.explained)
    pool.search(*pool.place.lines(pool.rng, CRUDE_LINES // 2 if pool.crude else LINES))
    pool.forget()
    W, b = stacked(pool.planes, len(pool.place.low))
    pool.explain(W, b)
    return W, b


def stacked(planes: list[tuple[FloatArray, float]], inputs: int) -> tuple[FloatArray, FloatArray]:
    """Hyperplanes as rows and offsets."""
    return np.array([n for n, _ in planes]).reshape(-1, inputs), np.array([b for _, b in planes])


def _measured_again(pool: Pool, found: list[tuple[FloatArray, float]]) -> list[tuple[FloatArray, float]]:
    """The hyperplanes again, each through many points around the centre; and more lines, to meet each surface often."""
    while len(pool.lines) < CRUDE_LINES:
        pool.search(*pool.place.lines(pool.rng, 5))
    centre, size, again = pool.place.centre, pool.place.size, []
    for n, b in found:
        start = Tilt(centre - (n @ centre + b) * n, n, NEAREST * size, VAGUE, NEAREST * size)
        now = plane_again(pool.oracle, start, FARTHEST * size, pool.rng)
        again.append((now.n, -float(now.n @ now.x)))
    pool.forget()
    pool.explain(np.array([n for n, _ in again]), np.array([b for _, b in again]))
    return again


def _same(n: FloatArray, b: float, m: FloatArray, c: float, tolerance: float) -> bool:
    """Whether two hyperplanes are one that was measured twice."""
    sign = np.sign(n @ m)
    return bool(np.abs(n - sign * m).max() <= tolerance and abs(b - sign * c) <= tolerance * max(1.0, abs(b)))
