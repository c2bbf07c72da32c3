"""Is the surface of a kink a whole hyperplane? Those of the first layer are; those of later layers bend."""

from __future__ import annotations

import numpy as np

from fiberscope.numerics.cutoffs import ORACLE_CLEAR
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.pool import ASKED_TO_LOOK, Pool
from fiberscope.recovery.probes import locate

TESTS = 8
"""Places where a hyperplane should be a kink that are looked at, beside lines that are known."""

ENOUGH, ENOUGH_CRUDE = 3, 6
"""Kinks that must be where a hyperplane predicts them; more where a place is known less well."""


DROWNED = 3
"""Misses for each hit at which a hyperplane is still looked at where values are noisy: many kinks drown in the noise,
and hardly any lies by accident where it is predicted."""


def straight(pool: Pool, n: FloatArray, b: float, own: int, deep: bool = True) -> bool | None:
    """Whether kinks are where the hyperplane predicts them: on the other lines, else at points that are aimed at.

    None if not. False, if other layers follow and all of them have a side on which the function is flat: a piece of a
    later surface at the edge of where the function changes at all looks straight, too, since behind its bends nothing
    is seen.
    """
    hits = misses = edges = 0
    for k, line in enumerate(pool.lines):
        speed = float(n @ (line.end - line.start))
        if k == own or abs(speed) <= pool.tolerance * line.length:
            continue
        t = -(float(n @ line.start) + b) / speed
        if 0.01 < t < 0.99:
            near = np.abs(line.kinks - t) * abs(speed) <= pool.tolerance * line.length
            if near.any():
                edge = deep and bool(line.flat[near].all())
                hits, edges = hits + (not edge), edges + edge
            else:
                misses += not _is_constant(pool, line.at(t))
    for _ in range(TESTS):
        if hits >= (ENOUGH_CRUDE if pool.crude else ENOUGH) and hits >= (1 if pool.crude else 4) * misses:
            return True
        if misses >= 2 and misses > (DROWNED if pool.crude else 1) * hits:
            return None
        seen = _seen_at(pool, n, b)
        edge = deep and seen == EDGE
        hits, misses, edges = hits + (bool(seen) and not edge), misses + (seen is False), edges + edge
    if hits >= 2 and hits >= 3 * misses:
        return True
    return False if edges + hits >= 2 and edges + hits >= 3 * misses else None


SIDEWAYS = 0.02
"""How far beside a line its kink is met again, in parts of the way to the next one."""

AWAY = 0.1
"""How far away the surface is looked for then, in parts of the place."""


def bends_nearby(pool: Pool, key: tuple[int, int]) -> bool:
    """Whether the surface of a kink is seen to bend, for fewer values than its normal costs.

    Within a plane through the line a surface of the first layer is straight: met twice, it is met again elsewhere.
    """
    if pool.crude or pool.gradients.basis.shape[1] <= ASKED_TO_LOOK:
        return False
    line, x = pool.lines[key[0]], pool.point(key)
    gaps = np.diff(np.concatenate([[0.0], line.kinks, [1.0]]))[key[1] : key[1] + 2]
    gap, u = float(gaps.min()) * line.length, (line.end - line.start) / line.length
    v = pool.gradients.basis @ pool.rng.normal(size=pool.gradients.basis.shape[1])
    v = v - u * (u @ v)
    v /= np.linalg.norm(v)
    met = locate(pool.oracle, x + SIDEWAYS * gap * v, u, 0.5 * gap)
    if met is None:
        return False
    e = SIDEWAYS * gap * v + met[0] * u
    e /= np.linalg.norm(e)
    across = v * (u @ e) - u * (v @ e)
    x = x + AWAY * pool.place.size * e
    return _kink_at(pool, x, across, pool.place.size / (64 * len(line.kinks) + 64)) is False


def _is_constant(pool: Pool, x: FloatArray) -> bool:
    """Whether the function does not change near a point: there no neuron can be seen, and none is missed."""
    steps = pool.rng.normal(size=(2, len(x)))
    steps *= pool.tolerance * pool.place.size / np.linalg.norm(steps, axis=1, keepdims=True)
    X = np.concatenate([x[None], x + steps, x - steps])
    values = pool.oracle.along(pool.place.pulled(pool.place.clip(X)) if pool.place.bounded else X)
    return bool(np.ptp(values) <= ORACLE_CLEAR * pool.oracle.noise * pool.oracle.scale)


CROSSINGS, CROSSED = 10, 50
"""Crossings with other hyperplanes behind which one is looked at again, and how often one is looked for."""


def _own(pool: Pool, n: FloatArray, b: float) -> FloatArray:
    """The kinks of all lines that lie on a hyperplane."""
    near = [line.points[np.abs(line.points @ n + b) <= pool.tolerance * line.length] for line in pool.lines]
    return np.concatenate(near)


def goes_on(pool: Pool, planes: list[tuple[FloatArray, float]], i: int) -> bool:
    """Whether kinks of a hyperplane lie on both sides of half of the others, and of two: later surfaces bend there."""
    z = np.array([_own(pool, *planes[i]) @ m + d for k, (m, d) in enumerate(planes) if k != i])
    both = (z > 0).any(axis=1) & (z < 0).any(axis=1) if z.size else np.zeros(0, dtype=bool)
    return bool(both.sum() >= max(2, len(planes) // 2))


def bends(pool: Pool, planes: list[tuple[FloatArray, float]], i: int) -> bool:
    """Whether the kink of a hyperplane is gone just behind others that it crosses, where the function still changes.

    Random points seldom tell that where a function is flat nearly everywhere, or where pieces of surfaces are small.
    """
    n, b = planes[i]
    N, c = np.array([m for m, _ in planes]), np.array([d for _, d in planes])
    own = _own(pool, n, b)
    stays = ends = 0
    for _ in range(CROSSED if len(own) else 0):
        if stays + ends >= CROSSINGS:
            break
        x = own[pool.rng.integers(len(own))]
        e = pool.rng.normal(size=len(x))
        e = e - n * (n @ e)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = -(N @ x + c) / (N @ e)
        t = np.delete(t, i)
        t = np.sort(t[(t > 0) & np.isfinite(t)])  # of a point, the hyperplane of one input, no way leads anywhere
        if not len(t):
            continue
        step = NEAR * min(t[0], t[1] - t[0] if len(t) > 1 else t[0])
        before, behind = (_kink_at(pool, x + s * e, n, 0.1 * step * float(np.linalg.norm(e)))
                          for s in (t[0] - step, t[0] + step))  # fmt: skip
        if before in (True, EDGE):
            stays, ends = stays + (behind in (True, EDGE)), ends + (behind is False)
    return (ends > 1 or not stays) and 2 * ends > stays


NEAR = 0.02
"""How far behind a crossing that is, in parts of the way to it."""

EDGE = "edge"


def _seen_at(pool: Pool, n: FloatArray, b: float) -> bool | str | None:
    """Whether there is a kink at a random point of the hyperplane; ``EDGE`` if the function is flat on one side of it.

    None if no point of it was met, or none tells.
    """
    where = np.concatenate([line.points for line in pool.lines])
    for turn in range(20):
        x = pool.place.draw(pool.rng, 1)[0]
        if turn % 2 and len(where):  # where something is seen at all
            x = 0.3 * x + 0.7 * where[pool.rng.integers(len(where))]
        x = x - (n @ x + b) * n
        w = 0.9 * pool.place.size / (8 * len(pool.lines[0].kinks) + 8)
        if pool.place.bounded:  # elsewhere the walls are only where lines end
            low, high = pool.place.chord(x, n)
            if not pool.place.inside(x)[0] or not min(-low, high) > w / 8:
                continue
            w = min(w, -0.9 * low, 0.9 * high)
        seen = _kink_at(pool, x, n, w)
        if seen is not None:
            return seen
    return None


def _kink_at(pool: Pool, x: FloatArray, n: FloatArray, w: float) -> bool | str | None:
    """Whether there is a kink at ``x`` on a segment along ``n``, ``w`` long or shorter; None where nothing changes."""
    if not pool.oracle.allowed(x + np.outer([-w, w], n)) or _is_constant(pool, x):
        return None
    for _ in range(4):
        met = locate(pool.oracle, x, n, w)
        if met is not None:
            own = abs(met[0]) <= ORACLE_CLEAR * pool.tolerance * pool.place.size
            return EDGE if own and met[1] else own
        w /= 8
    return False
