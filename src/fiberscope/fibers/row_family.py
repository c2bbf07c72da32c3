"""All rows of one neuron that do the same on what it reads: a rational polyhedron. Found by ``deformations``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.chains import with_arrays
from fiberscope.network.network import Network
from fiberscope.numerics.exact_arrays import nearest
from fiberscope.numerics.exact_linear import column_of, matrix_of, power, random_vector
from fiberscope.numerics.floats import ObjectArray
from fiberscope.results import Result, hidden


@dataclass(frozen=True, slots=True, eq=False)
class Deformation(Result):
    """The rows ``(w, b)`` of one neuron that do the same on the image of the layers before: a polyhedron.

    ``layer`` counts from 1, ``neuron`` from 0. ``directions`` span the space of all differences, in integers without a
    common factor; ``pinned`` are the equations that they solve, and ``below`` the rows ``q`` of the inequalities
    ``(w, b) q <= 0``. ``dimension`` is that of the polyhedron where ``dimension_exact``, else a lower bound.
    """

    layer: int
    neuron: int
    dimension: int
    dimension_exact: bool
    row: ObjectArray = field(repr=False, metadata=hidden())
    directions: ObjectArray = field(repr=False, metadata=hidden())
    pinned: ObjectArray = field(repr=False, metadata=hidden())
    below: ObjectArray = field(repr=False, metadata=hidden())

    def contains(self, row: Any) -> bool:
        """Whether a row ``(w, b)`` of floats or fractions is in the polyhedron, in exact arithmetic."""
        if len(row) != len(self.row):
            raise InputError(f"row: expected {len(self.row)} numbers, weights and bias, got {len(row)}")
        try:
            here = column_of(list(row))
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"row: expected finite numbers, got {error}") from error
        return not (self.pinned @ (here - self.row)).any() and all(value <= 0 for value in self.below @ here)

    def interval(self, direction: Any) -> tuple[Fraction | None, Fraction | None]:
        """The ``t``, from and to, for which ``row + t * direction`` is in the polyhedron; None for infinity."""
        step = column_of(list(direction))
        if step.shape != self.row.shape or (self.pinned @ step).any():
            raise InputError("direction: expected a combination of the directions, got another one")
        low: Fraction | None = None
        high: Fraction | None = None
        for room, slope in zip(-(self.below @ self.row), self.below @ step, strict=True):
            if slope > 0:
                high = room / slope if high is None else min(high, room / slope)
            elif slope < 0:
                low = room / slope if low is None else max(low, room / slope)
        return low, high

    def drawn(self, rng: np.random.Generator) -> ObjectArray:
        """A random row of the polyhedron, on the scale of the given one."""
        # integers without a common factor may be long: directions count alike only at one size
        units = matrix_of([row / power(row) for row in self.directions], len(self.row))
        step = random_vector(rng, len(units)) @ units
        if not step.any():
            step = self.directions[int(rng.integers(len(self.directions)))]
        low, high = self.interval(step)
        reach = power(self.row) / power(step)
        ends = max(low, -reach) if low is not None else -reach, min(high, reach) if high is not None else reach
        # the ends are members, but rounding must not lead out; powers of two keep short numbers short
        end = ends[1] if ends[1] >= -ends[0] else ends[0]
        size = power([end]) / 2 if end else Fraction(0)
        return np.asarray(self.row + (size if end > 0 else -size) * Fraction(int(rng.integers(1, 17)), 16) * step)

    @property
    def text(self) -> str:
        """One sentence."""
        least = "" if self.dimension_exact else "at least "
        return (
            f"neuron {self.neuron} of layer {self.layer} can be deformed: the image of the layers before does not span "
            f"what it reads, and {least}{self.dimension} of its numbers are free"
        )


def deformed(net: Network, families: Sequence[Deformation], rng: np.random.Generator) -> Network:
    """The network with random rows of the families, rounded; what is beyond the floats stays as it is."""
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    for family in families:
        row = nearest(family.drawn(rng))
        if np.isfinite(row).all():
            weights[family.layer - 1][family.neuron], biases[family.layer - 1][family.neuron] = row[:-1], row[-1]
    return with_arrays(net, weights, biases)
