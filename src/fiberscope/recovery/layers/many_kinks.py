"""Hyperplanes of the first layer through the kinks of many lines, where values are noisy.

A normal that is the difference of two noisy gradients is off by a part in a hundred or in ten thousand. The place of a
kink is known to the noise over its jump, and nearly every line meets every hyperplane: if a rough one belongs to the
first layer, there are as many kinks close to it as there are lines but for those that drown in the noise, and least
squares through these are sharp. A piece of a later surface has no such company.
"""

from __future__ import annotations

import numpy as np

from fiberscope.numerics.cutoffs import ORACLE_CLEAR, SHARP_KINK
from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.recovery.layers.first_layer import stacked
from fiberscope.recovery.layers.sides import told_sides
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.straightness import DROWNED
from fiberscope.recovery.tilts import refitted

ROUNDS, LINES = 4, 6
"""Searches for neurons that are missing, and the lines of each for every input."""

ROUGH, AGAIN = (1e-3, 1e-2), (1e-4, 1e-5)
"""How far from a hyperplane, in parts of the place, the kinks are that it is fitted to at first, and once more."""

EVENED = 12
"""Rounds of the second fit, at each of the distances."""

ENOUGH = 1.5
"""Kinks for each coordinate that prove one."""


def hyperplanes(pool: Pool, width: int) -> tuple[FloatArray, FloatArray]:
    """Unit normals ``(found, n)`` and offsets of at most ``width`` hyperplanes."""
    planes = pool.planes
    pool.search(*pool.place.lines(pool.rng, 1))  # refuses a function that is not piecewise linear before many are asked
    for _ in range(ROUNDS):
        pool.search(*pool.place.lines(pool.rng, LINES * len(pool.place.low)))
        if planes:
            pool.explain(*stacked(planes, len(pool.place.low)))
        for key in sorted(pool.open(), key=lambda key: -_clear(pool, key)):
            if len(planes) == width:
                break
            pool.run.step(pool.oracle.spent, pool.oracle.limit, f"layer 1: {len(planes)} of {width} neurons")
            n = None if pool.explained[key[0]][key[1]] else pool.normal(key)
            plane = None if n is None else _through_kinks(pool, n, -float(n @ pool.point(key)))
            if plane is not None:
                planes.append(plane)
                pool.explain(plane[0][None], np.array(plane[1:]))
        W, b = stacked(planes, len(pool.place.low))
        if len(planes) == width or told_sides(pool, Prefix((W,), (b,))) is not None:
            break  # where the signs are told, nothing is missing
    planes[:] = [_evened(pool, n, b) for n, b in planes]
    return stacked(planes, len(pool.place.low))


def _clear(pool: Pool, key: tuple[int, int]) -> float:
    """How well the normal of a kink can be told: its jump, times the room beside it."""
    line, i = pool.lines[key[0]], key[1]
    ends = np.concatenate([[0.0], line.kinks, [1.0]])
    return abs(float(line.jumps[i])) * float(np.diff(ends)[i : i + 2].min())


def _through_kinks(pool: Pool, n: FloatArray, b: float) -> tuple[FloatArray, float] | None:
    """The hyperplane that is about the given one, if enough kinks that nothing explains lie on it."""
    features, blurs = _kinks(pool, ~np.concatenate(pool.explained))
    for rough in ROUGH:
        row = refitted(features, np.append(n, b), np.ones(len(features)), blurs, rough * pool.place.size)
        if row is not None:
            row = row / np.linalg.norm(row[:-1])
            hits, misses = _met(pool, row)
            if hits >= ENOUGH * len(row) and DROWNED * hits >= misses:
                return row[:-1], float(row[-1])
    return None


def _evened(pool: Pool, n: FloatArray, b: float) -> tuple[FloatArray, float]:
    """The hyperplane of the least sum of distances, in units of their blurs, from kinks close to it, if it meets more.

    Few of them are of other neurons. Least squares would heed these, and weights that fall with the square of the
    distance may keep to those that were met first.
    """
    (X, blurs), row = _kinks(pool, ~_others(pool, n, b)), np.append(n, b)
    best, most = row, -1
    for close in AGAIN:
        for _ in range(EVENED):
            far = np.abs(X @ row)
            meets = int((far <= ORACLE_CLEAR * blurs).sum())
            best, most = (row, meets) if meets > most else (best, most)
            near = far <= close * pool.place.size
            if near.sum() < ENOUGH * len(row):
                break
            A = X[near] / np.sqrt(blurs * np.maximum(far, blurs))[near, None]
            scale = np.linalg.norm(A, axis=0)
            row = np.linalg.svd(A / scale, full_matrices=False)[2][-1] / scale
            row = row / np.linalg.norm(row[:-1])
        row = best
    return best[:-1], float(best[-1])


def _others(pool: Pool, n: FloatArray, b: float) -> BoolArray:
    """Which kinks of all lines lie on other hyperplanes that are known."""
    W, c = stacked([plane for plane in pool.planes if plane[0] is not n], len(n))
    X = np.concatenate([line.points for line in pool.lines])
    return np.asarray((np.abs(X @ W.T + c) <= SHARP_KINK * pool.place.size).any(axis=1))


def _kinks(pool: Pool, which: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Points ``(x, 1)`` of kinks whose places are sharp, and how far they may be off."""
    X, blurs = pool.kinks()
    which = which & (blurs <= SHARP_KINK * pool.place.size)
    return np.column_stack([X, np.ones(len(X))])[which], blurs[which]


def _met(pool: Pool, row: FloatArray) -> tuple[int, int]:
    """On how many lines a hyperplane is a kink that nothing else explains, and on how many it should be one."""
    hits = misses = 0
    for line, done in zip(pool.lines, pool.explained, strict=True):
        z = np.array([line.start, line.end]) @ row[:-1] + row[-1]
        near = np.abs(line.points @ row[:-1] + row[-1]) <= SHARP_KINK * pool.place.size
        hits += bool((near & ~done).any())
        misses += z[0] * z[1] < 0 and not near.any()
    return hits, misses
