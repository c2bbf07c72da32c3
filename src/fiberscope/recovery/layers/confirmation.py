"""Does a neuron that was followed switch where it should, and nowhere else?"""

from __future__ import annotations

import numpy as np

from fiberscope.numerics.cutoffs import (
    FLAT,
    NEAR_LINES,
)
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.probes import locate
from fiberscope.recovery.telling import draw_telling

MANY_HITS = 10
"""Kinks on lines that prove a neuron although others are missed, where values are noisy."""

RARE, RARE_DRAWN, RARE_LOOKS = 0.05, 800, 4
"""Inputs of a neuron that are rarer on one side are looked at there: among so many points, at so many places."""

LOOKED_AT, LOOKED_AT_BEFORE = 4, 8
"""Places where a neuron switches that are looked at: of the last layer, and of one before others.

Surfaces of a later layer look like one of this layer as far as the neurons between are not met.
"""


def confirmed(pool: Pool, prefix: Prefix, row: FloatArray, last: bool) -> bool:
    """Whether a neuron switches on the lines where there is a kink, and nowhere else; at new places if that is rare."""
    hits = misses = 0
    for line, done in zip(pool.lines, pool.explained, strict=True):
        nodes = np.concatenate([[0.0], line.kinks, [1.0]])
        z = prefix.features(line.at(nodes)) @ row
        zero = np.abs(z) <= NEAR_LINES * pool.tolerance * line.length
        hits += int((zero[1:-1] & ~done if pool.crude else zero[1:-1]).sum())
        misses += int(((z[:-1] * z[1:] < 0) & ~zero[:-1] & ~zero[1:]).sum())
    looks = LOOKED_AT if last else LOOKED_AT_BEFORE
    for _ in range(looks):
        if hits + misses >= looks or (not last and misses > 2 and misses >= hits):
            break
        seen = _switches(pool, prefix, row)
        hits, misses = hits + (seen is True), misses + (seen is False)
    if not pool.crude:
        seen = hits >= 2 and hits >= (2 if last else 4) * misses
        return seen and (not last or _fits_rare_inputs(pool, prefix, row))
    # small kinks drown in the noise, so that a neuron may switch where none is seen; many hits are no accident
    return (hits >= 4 and hits >= 4 * misses) or (hits >= MANY_HITS and 2 * hits >= misses)


def _switches(pool: Pool, prefix: Prefix, row: FloatArray) -> bool | None:
    """Whether there is a kink at a random place where the neuron would switch; None if no such place was met."""
    X = draw_telling(pool.place, prefix, pool.rng, 400)
    z = prefix.features(X) @ row
    if not (z > 0).any() or not (z <= 0).any():
        return None
    return _kink_at(pool, prefix, row, _zero_between(pool, prefix, row, X[z > 0], X[z <= 0]))


def _zero_between(pool: Pool, prefix: Prefix, row: FloatArray, on: FloatArray, off: FloatArray) -> FloatArray:
    """A point where the neuron would switch, between a random one where it is on and one where it is off."""
    a, b = on[pool.rng.integers(len(on))], off[pool.rng.integers(len(off))]
    for _ in range(60):
        middle = (a + b) / 2
        a, b = (middle, b) if (prefix.features(middle[None]) @ row)[0] > 0 else (a, middle)
    return np.asarray(a)


def _kink_at(pool: Pool, prefix: Prefix, row: FloatArray, x: FloatArray) -> bool:
    """Whether there is a kink where a neuron would switch."""
    slope = prefix.cell(prefix.pattern(x)).slopes.T @ row
    u = slope / np.linalg.norm(slope)
    for w in (1e-3, 1e-4, 1e-5):
        met = locate(pool.oracle, x, u, w * pool.place.size)
        if met is not None:
            return bool(abs(met[0]) <= FLAT * pool.tolerance)
    return False


def _fits_rare_inputs(pool: Pool, prefix: Prefix, row: FloatArray) -> bool:
    """Whether a neuron switches where it should also behind folds that random points seldom cross.

    Each of its weights was measured behind one fold, where another surface may have been met by accident. Behind usual
    folds that shows on the lines.
    """
    X = draw_telling(pool.place, prefix, pool.rng, RARE_DRAWN)
    inputs, z = prefix.preactivations(X)[-1] > 0, prefix.features(X) @ row
    for i in np.flatnonzero(np.minimum(inputs.mean(axis=0), 1 - inputs.mean(axis=0)) <= RARE):
        side = inputs[:, i].mean() <= 0.5
        on, off = (X[(inputs[:, i] == side) & part] for part in (z > 0, z <= 0))
        seen = []
        for _ in range(RARE_LOOKS if len(on) and len(off) else 0):
            x = _zero_between(pool, prefix, row, on, off)
            if (prefix.preactivations(x[None])[-1][0, i] > 0) == side:
                seen.append(_kink_at(pool, prefix, row, x))
            if any(seen):
                break
        if len(seen) > 1 and not any(seen):
            return False
    return True
