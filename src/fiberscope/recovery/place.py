"""Where a function may be asked: a box with further half-spaces, points and chords of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box, Orthant, Polytope, Space
from fiberscope.numerics.floats import FloatArray

FAR = 8.0
"""Half the side of the box that stands for an unbounded domain: kinks of networks for standardised inputs are nearer,
and farther ones are met as well, since every hyperplane comes near."""

WIDE = 8.0
"""How much farther points may lie that are aimed at there."""


@dataclass(frozen=True)
class Place:
    """``A x <= b`` and the box ``low <= x <= high``; ``bounded`` says whether that is the domain or a part of it.

    ``live`` are points near which the function is not constant, where it is constant nearly everywhere else: then most
    points are drawn around these.
    """

    low: FloatArray
    high: FloatArray
    A: FloatArray
    b: FloatArray
    centre: FloatArray
    bounded: bool
    live: FloatArray | None = None

    @property
    def size(self) -> float:
        """The length of the box's diagonal."""
        return float(np.linalg.norm(self.high - self.low))

    @property
    def walls(self) -> tuple[FloatArray, FloatArray]:
        """All half-spaces ``A x <= b``, those of the box included."""
        eye = np.eye(len(self.low))
        return np.concatenate([self.A, -eye, eye]), np.concatenate([self.b, -self.low, self.high])

    def clip(self, X: FloatArray) -> FloatArray:
        """The nearest points of the box."""
        return np.clip(X, self.low, self.high)

    def held(self, X: FloatArray) -> FloatArray:
        """Points of the domain: in space those that lie farther out than is ever aimed at are moved to the middle."""
        if self.bounded:
            return self.pulled(self.clip(X))
        reach = np.abs(X - self.centre).max(axis=1, keepdims=True)
        return np.asarray(self.centre + (X - self.centre) * np.minimum(1.0, WIDE * FAR / np.maximum(reach, FAR)))

    def around(self, x: FloatArray) -> Place:
        """The place, in space made so large that a point lies well within it."""
        reach = 2 * float(np.abs(x).max())
        return (
            self
            if self.bounded or reach <= FAR
            else replace(self, low=np.full(len(x), -reach), high=np.full(len(x), reach))
        )

    def inside(self, X: FloatArray) -> Any:
        """Which rows lie in the set, in floats."""
        X = np.atleast_2d(X)
        return ((self.low <= X) & (self.high >= X)).all(axis=1) & (self.b >= X @ self.A.T).all(axis=1)

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Random points: of a bounded box uniform, of a polytope by chords, of space normal ones of several sizes."""
        if self.live is not None:
            near = count - count // 4
            sizes = rng.choice([0.03, 0.06, 0.12], (near, 1)) * (self.high - self.low)
            X = self.live[rng.integers(len(self.live), size=near)] + rng.normal(size=(near, len(self.low))) * sizes
            return np.concatenate([replace(self, live=None).draw(rng, count // 4), self.pulled(self.clip(X))])
        if not self.bounded:
            sizes = rng.choice([0.5, 1.0, 2.0, 4.0], (count, 1))
            X = self.centre + rng.normal(size=(count, len(self.low))) * sizes
            return self.pulled(self.clip(X))
        if not len(self.A):
            return rng.uniform(self.low, self.high, (count, len(self.low)))
        x, points = self.centre, []
        for _ in range(count):
            u = rng.normal(size=x.size)
            low, high = self.chord(x, u)
            x = x + rng.uniform(low, high) * u
            points.append(x)
        return np.array(points).reshape(count, len(self.low))

    def pulled(self, X: FloatArray) -> FloatArray:
        """Points outside moved towards the centre until they are inside."""
        if not len(self.A):
            return X
        rise, room = (X - self.centre) @ self.A.T, self.b - self.A @ self.centre
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(rise > room, room / rise, 1.0).min(axis=1, keepdims=True)
        return np.asarray(self.centre + share * (X - self.centre))

    def chord(self, x: FloatArray, u: FloatArray) -> tuple[float, float]:
        """The ``t`` between which ``x + t u`` stays inside."""
        A, b = self.walls
        slope, room = A @ u, b - A @ x
        with np.errstate(divide="ignore", invalid="ignore"):
            t = room / slope
        high, low = t[slope > 0].min(initial=np.inf), t[slope < 0].max(initial=-np.inf)
        return min(float(low), 0.0), max(float(high), 0.0)

    def lines(self, rng: np.random.Generator, count: int) -> tuple[FloatArray, FloatArray]:
        """Ends ``(count, n)`` of random chords; in space of long segments through points of usual size."""
        P, U = self.draw(rng, count), rng.normal(size=(count, len(self.low)))
        if self.bounded:
            U = U * (self.high - self.low)
        ends = np.array([self.chord(p, u) for p, u in zip(P, U, strict=True)])
        for k in np.flatnonzero(ends[:, 0] == ends[:, 1]):  # in a corner, and out of it: through the middle instead
            U[k] = self.centre - P[k]
            ends[k] = self.chord(P[k], U[k])
        low, high = ends.T[:, :, None]
        return P + low * U, P + high * U


def place_of(domain: Any, inputs: int) -> Place:
    """The place for a domain; None and :class:`Space` are all of space, of which a box around zero is searched."""
    none = np.zeros((0, inputs)), np.zeros(0)
    far = np.full(inputs, FAR)
    if domain is not None and not isinstance(domain, Box | Orthant | Polytope | Space):
        raise InputError(f"domain: expected a box, an orthant, a bounded polytope or all of space, got {domain!r:.60}")
    if domain is not None and domain.ambient != inputs:
        raise InputError(f"domain: expected dimension {inputs}, the first of the widths, got {domain}")
    if domain is None or isinstance(domain, Space):
        return Place(-far, far, *none, np.zeros(inputs), False)
    if isinstance(domain, Box):
        if not domain.free.all():
            raise InputError(f"domain: expected a box that is not flat, got {domain}")
        return Place(domain.low, domain.high, *none, (domain.low + domain.high) / 2, True)
    if isinstance(domain, Orthant):
        return Place(np.zeros(inputs), far, *none, far / 4, True)
    low, high = domain.bounds()
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise InputError(f"domain: expected a bounded polytope, got {domain}")
    return Place(low, high, domain.A, domain.b, domain._inner_point(), True)
