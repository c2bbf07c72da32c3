"""The first layer: hyperplanes that are kinks wherever they are looked at.

The normal of a kink is the difference of the gradients on its two sides. A first-layer hyperplane then predicts kinks
on every other line; the surfaces of later layers bend, and their predictions fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fiberscope.numerics.cutoffs import CRUDE, ORACLE_CLEAR, SAME, SAME_CRUDE
from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.recovery.lines import Line, scan
from fiberscope.recovery.oracle import Oracle
from fiberscope.recovery.place import Place
from fiberscope.recovery.probes import Gradients, locate, normal_of
from fiberscope.recovery.tilts import Tilt, plane_again, tilted
from fiberscope.run import Run

LINES = 5
"""Lines that are searched to begin with."""

ROUNDS, MORE = 6, 12
"""Further lines, one after the other, while neurons of the first layer are missing; more where gradients show it."""

TESTS = 8
"""Places where a hyperplane should be a kink that are looked at, beside lines that are known."""


NEAREST, FARTHEST = 1.5e-4, 0.08
"""Distances, in parts of the place, at which points of a surface are taken where values are noisy."""


TILTED = 8.0
"""By how much places are predicted better from normals that were measured so."""

VAGUE = 1e-3
"""How far off normals may be that are measured again."""

CRUDE_LINES = 60
"""Lines that are searched where values are noisy, so that every surface is met many times."""

ENOUGH, ENOUGH_CRUDE = 3, 6
"""Kinks that must be where a hyperplane predicts them; more where a place is known less well."""


ASKED_TO_LOOK = 20
"""Values that it takes to see that a surface bends, about; gradients that cost less are measured at once."""


@dataclass
class Pool:
    """Lines with their kinks, those of them that are explained by known neurons, and normals that were measured.

    ``planes`` are the hyperplanes of the first layer that were found so far.
    """

    oracle: Oracle
    place: Place
    rng: np.random.Generator
    run: Run
    gradients: Gradients
    lines: list[Line] = field(default_factory=list)
    explained: list[BoolArray] = field(default_factory=list)
    normals: dict[tuple[int, int], FloatArray] = field(default_factory=dict)
    points: dict[tuple[int, int], FloatArray] = field(default_factory=dict)
    slopes: dict[tuple[int, int], FloatArray | None] = field(default_factory=dict)
    planes: list[tuple[FloatArray, float]] = field(default_factory=list)
    patient: bool = False

    @classmethod
    def begin(cls, oracle: Oracle, place: Place, rng: np.random.Generator, run: Run, patient: bool = False) -> Pool:
        return cls(oracle, place, rng, run, Gradients(oracle, rng), patient=patient)

    @property
    def tolerance(self) -> float:
        """How far, in parts of a line, a predicted kink may be from a measured one."""
        # noisy normals are measured again from afar, and are sharper than others
        return float(np.sqrt(self.oracle.noise)) / (TILTED if self.crude else 1.0)

    @property
    def crude(self) -> bool:
        """Whether values are so noisy that normals are measured by where surfaces are met, which costs many more."""
        return self.patient and self.oracle.noise > CRUDE

    @property
    def same(self) -> float:
        """The part by which two measurements of one neuron may differ."""
        return SAME_CRUDE if self.crude else SAME

    def search(self, starts: FloatArray, ends: FloatArray) -> range:
        """Scan further segments; the numbers of the lines."""
        first = len(self.lines)
        self.lines += scan(self.oracle, starts, ends, self.run)
        if len(self.place.low) > ASKED_TO_LOOK:  # gradients cost so much that the first line should tell the most
            self.lines[first:] = sorted(self.lines[first:], key=lambda line: -len(line.kinks))
        self.explained += [np.zeros(len(line.kinks), dtype=bool) for line in self.lines[first:]]
        return range(first, len(self.lines))

    def open(self) -> list[tuple[int, int]]:
        """Kinks that nothing explains, as pairs of a line and a number; those with a known normal first."""
        found = [(k, int(i)) for k, done in enumerate(self.explained) for i in np.flatnonzero(~done)]
        return sorted(found, key=lambda key: key not in self.normals)

    def point(self, key: tuple[int, int]) -> FloatArray:
        return (
            self.points[key] if key in self.points else self.lines[key[0]].at(float(self.lines[key[0]].kinks[key[1]]))
        )

    def slope(self, k: int, segment: int) -> FloatArray | None:
        """The gradient on a segment between two kinks of a line."""
        key = (k, segment)
        if key not in self.slopes:
            line = self.lines[k]
            ends = np.concatenate([[0.0], line.kinks, [1.0]])
            a, b = ends[segment], ends[segment + 1]
            n, rate = len(line.start), (len(line.kinks) + 1) / line.length
            radius = min(0.3 / (rate * max(self.gradients.basis.shape[1], 8)), 0.25 * (b - a) * line.length)
            x = line.at((a + b) / 2)
            if not self.place.bounded or radius <= self.place.size / np.sqrt(n):
                x = np.clip(x, self.place.low + radius, self.place.high - radius)
            self.slopes[key] = self.gradients.at(x, radius)
        return self.slopes[key]

    def normal(self, key: tuple[int, int]) -> FloatArray | None:
        """The unit normal of a kink, from the gradients of the two segments beside it."""
        if key not in self.normals:
            before, after = self.slope(key[0], key[1]), self.slope(key[0], key[1] + 1)
            if before is None or after is None:
                return None
            self.normals[key] = normal_of(before, after)[0]
            if self.crude:
                self._tilt(key)
        return self.normals[key]

    def _tilt(self, key: tuple[int, int]) -> None:
        """Sharpen a normal whose gradients were noisy."""
        size = self.place.size
        found = tilted(self.oracle, self.point(key), self.normals[key], NEAREST * size, FARTHEST * size, self.rng)
        if found is not None:
            self.normals[key], self.points[key] = found.n, found.x

    def open_kinks(self) -> tuple[FloatArray, FloatArray]:
        """The kinks of all lines that nothing explains as points, and how far each may be off along its line."""
        left = ~np.concatenate(self.explained)
        X = np.concatenate([line.points for line in self.lines])[left]
        jumps = np.concatenate([np.abs(line.jumps) / line.length for line in self.lines])[left]
        return X, np.asarray(self.oracle.noise * self.oracle.scale / jumps)

    def explain(self, rows: FloatArray, offsets: FloatArray) -> None:
        """Mark the kinks that lie on one of these hyperplanes of the input space."""
        for k, line in enumerate(self.lines):
            if len(line.kinks):
                far = np.abs(line.points @ rows.T + offsets) / line.length
                self.explained[k] |= (far <= self.tolerance).any(axis=1)


def first_layer(pool: Pool, width: int, deep: bool = True) -> tuple[FloatArray, FloatArray]:
    """Unit normals ``(found, n)`` and offsets of straight hyperplanes; more than ``width`` only if there are more.

    ``deep`` says that other layers follow, whose surfaces may look straight. Stops once ``width`` are found and the
    kinks of the first line are all looked at, or after some more lines.
    """
    pool.search(*pool.place.lines(pool.rng, LINES))
    found = pool.planes
    edges: list[tuple[FloatArray, float]] = []
    bent: set[tuple[int, int]] = set()
    for turn in range(LINES + ROUNDS + MORE):
        if turn >= LINES + ROUNDS and not len(found) < min(width, pool.gradients.basis.shape[1]):
            break
        if turn >= len(pool.lines):
            pool.search(*pool.place.lines(pool.rng, 1))
            if found:
                pool.explain(np.array([n for n, _ in found]), np.array([b for _, b in found]))
        for key in [key for key in pool.open() if key[0] == turn]:
            if pool.explained[key[0]][key[1]] or key in bent:
                continue
            if deep and turn and bends_nearby(pool, key):
                continue
            pool.run.step(pool.oracle.spent, pool.oracle.limit, f"layer 1: {len(found)} of {width} neurons")
            n = pool.normal(key)
            if n is None:
                continue
            b = -float(n @ pool.point(key))
            what = straight(pool, n, b, key[0], deep)
            if what is None:
                bent.add(key)
            if what is not True:
                edges += [(n, b)] if what is False else []
                continue
            if not any(_same(n, b, *other, pool.tolerance * 1000) for other in found):
                found.append((n, b))
            pool.explain(n[None], np.array([b]))
        if len(found) >= width:
            break
    for n, b in () if found else edges:
        if not any(_same(n, b, *other, pool.tolerance * 1000) for other in found):
            found.append((n, b))
    if pool.place.live is not None or len(found) > width:
        found = [found[i] for i in range(len(found)) if not _bends(pool, found, i)]
    if pool.crude and deep and found:
        found = _measured_again(pool, found)
    pool.planes = found
    return stacked(found, len(pool.place.low))


def taken_over(pool: Pool, earlier: Pool) -> tuple[FloatArray, FloatArray]:
    """The first layer of another search, on new lines."""
    pool.planes, pool.gradients = earlier.planes, earlier.gradients
    pool.search(*pool.place.lines(pool.rng, LINES))
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
    for done in pool.explained:
        done[:] = False
    pool.explain(np.array([n for n, _ in again]), np.array([b for _, b in again]))
    return again


def _same(n: FloatArray, b: float, m: FloatArray, c: float, tolerance: float) -> bool:
    """Whether two hyperplanes are one that was measured twice."""
    sign = np.sign(n @ m)
    return bool(np.abs(n - sign * m).max() <= tolerance and abs(b - sign * c) <= tolerance * max(1.0, abs(b)))


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
        if hits >= (ENOUGH_CRUDE if pool.crude else ENOUGH) and hits >= 4 * misses:
            return True
        if misses >= 2 and misses > hits:
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


CROSSINGS = 10
"""Crossings with other hyperplanes behind which one is looked at again."""


def _bends(pool: Pool, planes: list[tuple[FloatArray, float]], i: int) -> bool:
    """Whether the kink of a hyperplane is gone just behind others that it crosses, where the function still changes.

    Where a function is flat nearly everywhere, random points seldom tell whether a surface bends.
    """
    n, b = planes[i]
    N, c = np.array([m for m, _ in planes]), np.array([d for _, d in planes])
    here = [line.points[np.abs(line.points @ n + b) <= pool.tolerance * line.length] for line in pool.lines]
    own = np.concatenate(here)
    stays = ends = 0
    for _ in range(CROSSINGS if len(own) else 0):
        x = own[pool.rng.integers(len(own))]
        e = pool.rng.normal(size=len(x))
        e = e - n * (n @ e)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = -(N @ x + c) / (N @ e)
        t = np.sort(np.delete(t, i)[np.delete(t, i) > 0])
        if not len(t):
            continue
        step = NEAR * min(t[0], t[1] - t[0] if len(t) > 1 else t[0])
        before, behind = (_kink_at(pool, x + s * e, n, 0.1 * step * float(np.linalg.norm(e)))
                          for s in (t[0] - step, t[0] + step))  # fmt: skip
        if before in (True, EDGE):
            stays, ends = stays + (behind in (True, EDGE)), ends + (behind is False)
    return ends > 1 and 2 * ends > stays


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
