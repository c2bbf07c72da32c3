"""What every method of equality is asked: two networks, a domain, a kind of equality, and how much time is left."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box, Domain, Solid, domain_of
from fiberscope.network.network import Network
from fiberscope.network.source import coarsest
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.ulps import ROUNDINGS, Rounding
from fiberscope.run import Progress, Run

DEFAULT_SECONDS = 60.0

CRITERIA = ("value", "argmax")
"""What may be asked about: the numbers, or which of the outputs is the largest."""


def single_tolerance(tolerance: Any) -> float | None:
    """One number, if it is one; None for none and for a tolerance of every output."""
    if tolerance is None or isinstance(tolerance, list | tuple) or np.ndim(tolerance) > 0:
        return None
    return float(real_array(tolerance, "tolerance", ndim=0))


@dataclass(slots=True, eq=False)
class Record:
    """What was seen and proven on the way to an answer, also where there is none in the end.

    ``gap`` is the largest difference of an output that floats showed, at ``x``; ``proven`` bounds all differences on
    the domain.
    """

    gap: float = -math.inf
    x: FloatArray | None = None
    proven: float = math.inf
    search: Any = None
    """How far branch and bound came, to go on from there."""
    attacked: bool = False
    """Whether inputs that differ were looked for at length."""
    chosen: bool = False
    """Whether a pairing of neurons for branch and bound was chosen."""

    def see(self, points: FloatArray, gaps: FloatArray) -> None:
        """Points of the domain with their differences; those that floats do not tell are passed over."""
        known = np.where(np.isfinite(gaps), gaps, -math.inf)
        best = int(known.argmax()) if known.size else -1
        if best >= 0 and known[best] > self.gap:
            self.gap, self.x = float(known[best]), points[best].copy()

    def prove(self, bound: float) -> None:
        """A bound of every difference; what is not a number is none."""
        if bound < self.proven:
            self.proven = float(bound)


@dataclass(slots=True, eq=False)
class Question:
    """Are ``a`` and ``b`` equal on ``place``? ``domain`` is what was asked about, and ``place`` its view: the box of a
    plane, or a flat box in its free coordinates.

    ``tolerance`` is the kind of equality, ``rounding`` what it allows where it is None, ``run`` says when to give up.
    With a ``margin`` the question is about classes: whether the largest output of ``a``, where it is larger than all
    others and by ``margin`` at least, is a largest output of ``b``. ``backend`` says where subtrees of branch and bound
    run, if not here, and ``state`` is the file of its open boxes.
    """

    a: Network
    b: Network
    place: Solid
    domain: Domain
    tolerance: float | None
    rounding: Rounding
    run: Run
    rng: np.random.Generator
    notes: list[str] = field(default_factory=list)
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What several methods need, computed once: skeletons of networks."""
    margin: float | None = None
    record: Record = field(default_factory=Record)
    backend: Any = None
    state: Path | None = None

    @classmethod
    def of(
        cls,
        a: Network,
        b: Network,
        domain: Domain | None = None,
        tolerance: float | None = None,
        time_limit: float | None = None,
        seed: int = 0,
        precision: str | None = None,
        margin: float | None = None,
        progress: Progress | None = None,
    ) -> Question:
        """The question with everything checked; on a plane, in the coordinates of the slice.

        Without a ``precision`` it is the coarser one of those in which the two are stored.
        """
        if a.in_size != b.in_size or a.out_size != b.out_size:
            raise InputError(
                f"networks: expected the same inputs and outputs, got {a.in_size} -> {a.out_size} and "
                f"{b.in_size} -> {b.out_size}"
            )
        if tolerance is not None and not float(real_array(tolerance, "tolerance", ndim=0)) >= 0:
            raise InputError(f"tolerance: expected None, 0 or a positive number, got {tolerance}")
        if margin is not None and not 0 <= float(real_array(margin, "margin", ndim=0)) < math.inf:
            raise InputError(f"margin: expected a number from 0 on, got {margin}")
        if margin is not None and a.out_size < 2:
            raise InputError(f"argmax: expected two outputs or more to choose a class from, got {a.out_size}")
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise InputError(f"seed: expected a non-negative integer, got {seed!r}")
        where = domain_of(a, domain)
        left, right = where.view(a), where.view(b)
        allowed = None if tolerance is None else float(tolerance)
        run = Run.begin(progress, time_limit=DEFAULT_SECONDS if time_limit is None else time_limit)
        rounding = ROUNDINGS[precision or coarsest([a.source.precision, b.source.precision])]
        rng = np.random.default_rng(seed)
        wanted = None if margin is None else float(margin)
        return cls(left.net, right.net, left.domain, where, allowed, rounding, run, rng, margin=wanted)

    def exactly(self) -> Question:
        """Whether the two are the same real function, which answers every other question with yes."""
        return replace(self, tolerance=0.0, margin=None)

    @property
    def seconds_left(self) -> float:
        return self.run.seconds_left

    @property
    def precision(self) -> str | None:
        """Of the stored numbers, where equality up to their rounding is asked."""
        return self.rounding.precision if self.tolerance is None and self.margin is None else None

    def outside(self, x: FloatArray) -> FloatArray:
        """A point of ``place`` in the coordinates of the domain: those of the input, on a plane the plane's own."""
        if not isinstance(self.domain, Box):
            return x.copy()
        full = self.domain.low.copy()
        full[self.domain.free] = x
        return full

    def inside(self, x: FloatArray) -> FloatArray | None:
        """The way back, of a vector that somebody brings; None for a point outside of the domain."""
        if isinstance(self.domain, Box) and x.size == self.domain.ambient:
            return x[self.domain.free] if self.domain.contains(x[None])[0] else None
        if x.size != self.a.in_size:
            expected = self.domain.ambient if isinstance(self.domain, Box) else self.a.in_size
            raise InputError(f"x: expected {expected} coordinates, got {x.size}")
        return x if self.place.contains(x[None])[0] else None
