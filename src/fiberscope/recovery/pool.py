"""What a search has seen so far: lines with their kinks, those that known neurons explain, and normals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fiberscope.numerics.cutoffs import CRUDE, SAME, SAME_CRUDE
from fiberscope.numerics.floats import BoolArray, FloatArray
from fiberscope.recovery.lines import Line, scan
from fiberscope.recovery.oracle import Oracle
from fiberscope.recovery.place import Place
from fiberscope.recovery.probes import Gradients, normal_of
from fiberscope.recovery.tilts import tilted
from fiberscope.run import Run

HARDER, PLENTY = 4, 2000
"""By how much more lines a search looks at than the one before it, as long as all of them have fewer kinks than that.

On a box the kink of a neuron may be met by one line in a hundred.
"""

NEAREST, FARTHEST = 1.5e-4, 0.08
"""Distances, in parts of the place, at which points of a surface are taken where values are noisy."""

TILTED = 8.0
"""By how much places are predicted better from normals that were measured so."""

ASKED_TO_LOOK = 20
"""Values that it takes to see that a surface bends, about; gradients that cost less are measured at once."""


@dataclass
class Pool:
    """Lines with their kinks, those of them that are explained by known neurons, and normals that were measured.

    ``planes`` are the hyperplanes of the first layer found so far; ``effort`` counts the searches before this one.
    ``deep`` says that many layers follow, so that every neuron is sharpened before the next one is looked for.
    Kinks of the lines ``beside`` sharpen what is known; they are not followed.
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
    effort: int = 0
    deep: bool = False

    @classmethod
    def begin(
        cls, oracle: Oracle, place: Place, rng: np.random.Generator, run: Run, effort: int = 0, deep: bool = False
    ) -> Pool:
        return cls(oracle, place, rng, run, Gradients(oracle, rng), effort=effort, deep=deep)

    @property
    def tolerance(self) -> float:
        """How far, in parts of a line, a predicted kink may be from a measured one."""
        # noisy normals are measured again from afar, and are sharper than others
        return float(np.sqrt(self.oracle.noise)) / (TILTED if self.crude else 1.0)

    @property
    def crude(self) -> bool:
        """Whether values are so noisy that normals are measured by where surfaces are met, which costs many more."""
        return self.effort > 0 and self.oracle.noise > CRUDE

    @property
    def same(self) -> float:
        """The part by which two measurements of one neuron may differ."""
        return SAME_CRUDE if self.crude else SAME

    def turns(self, usual: int) -> Iterator[int]:
        """Counts further lines: the usual number of them, and more in later searches where lines have few kinks."""
        for turn in range(usual if self.crude else usual * HARDER**self.effort):  # noisy kinks are dear
            if turn >= usual and sum(len(line.kinks) for line in self.lines) >= PLENTY:
                break
            yield turn

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
            if self.place.bounded and radius <= self.place.size / np.sqrt(n):
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
        X, blurs = self.kinks()
        return X[left], blurs[left]

    def kinks(self) -> tuple[FloatArray, FloatArray]:
        """The same of all kinks."""
        X = np.concatenate([line.points for line in self.lines])
        jumps = np.concatenate([np.abs(line.jumps) / line.length for line in self.lines])
        return X, np.asarray(self.oracle.noise * self.oracle.scale / jumps)

    def forget(self) -> None:
        """Let no kink be explained."""
        for done in self.explained:
            done[:] = False

    def explain(self, rows: FloatArray, offsets: FloatArray) -> None:
        """Mark the kinks that lie on one of these hyperplanes of the input space."""
        for k, line in enumerate(self.lines):
            if len(line.kinks):
                far = np.abs(line.points @ rows.T + offsets) / line.length
                self.explained[k] |= (far <= self.tolerance).any(axis=1)
