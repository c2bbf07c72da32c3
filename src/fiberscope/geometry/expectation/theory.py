"""Theory beside measurement: the three theorems on data geometry and what random networks really do, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, inf, isinf, sqrt

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.curvature import curvature
from fiberscope.geometry.expectation.constants import SAMPLES, SHARP_DISTANCE_CONSTANT, Constants, constants_within
from fiberscope.geometry.expectation.density import ExpectedVolume, expected_volume
from fiberscope.geometry.expectation.ensemble import Ensemble
from fiberscope.geometry.expectation.exact import boundary_and_distance
from fiberscope.geometry.expectation.manifolds import Manifold, tangent_sample, volume_of
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.shapes import Mesh, Sphere, Torus
from fiberscope.results import Result
from fiberscope.run import Progress, Run

_POINTS = 1000
"""Points at which the curvature is looked at."""


@dataclass(frozen=True, slots=True)
class Measured(Result):
    """A mean over networks with its standard error."""

    value: float
    standard_error: float

    @classmethod
    def of(cls, values: list[float]) -> Measured:
        error = float(np.std(values, ddof=1)) / sqrt(len(values)) if len(values) > 1 else inf
        return cls(float(np.mean(values)), error)

    def __str__(self) -> str:
        return f"{self.value:.4g} +- {self.standard_error:.2g}"


@dataclass(frozen=True, slots=True)
class RegionTheory(Result):
    """Theorems 1 to 3 for one ensemble on one manifold, beside exact measurements of networks drawn from it.

    ``distance`` is the mean distance within the manifold to the nearest kink, over the networks that have one at all
    (``without`` is the fraction that has none), or None where shortest ways are not known; in a box, to kinks anywhere
    in its span. ``bound_distance`` is the lower bound of Theorem 3 and ``bound_distance_sharp`` the better one by
    integration. ``scalar_curvature`` is the least and the largest one seen, zero on curves, in boxes and on flat
    pieces; None on meshes, whose curvature stands in their vertices. No bound needs it.
    """

    ensemble: Ensemble
    k: int
    volume: float
    expected: ExpectedVolume | None
    measured: Measured
    constants: Constants
    bound_density: float
    distance: Measured | None
    without: float
    bound_distance: float
    bound_distance_sharp: float
    networks: int
    scalar_curvature: tuple[float, float] | None = None

    told = ("density", "remarks")

    @property
    def density(self) -> float:
        """Measured boundary per volume of the manifold."""
        return self.measured.value / self.volume

    @property
    def remarks(self) -> tuple[str, ...]:
        """What in the theorems is vacuous here, or cannot be computed."""
        found = ["C_M is the norm of an orthogonal projection, hence 1 for every manifold: it separates none"]
        if isinf(self.constants.bias):
            found.append("the biases have no density: Theorems 1 to 3 are vacuous")
        found.append("C_M,kappa is 1/8 for every manifold, by a proof at single points: curvature does not enter")
        if self.distance is None:
            found.append("no shortest ways are known on this surface: the distance is not measured")
        if 0 < self.density < 0.1 * self.bound_density < inf:
            found.append(f"Theorem 2 exceeds the truth {self.bound_density / self.density:.0f} times")
        return tuple(found)

    def table(self) -> str:
        """The comparison, one line per claim."""
        c = self.constants
        what = f"boundary (k = {self.k})"
        rows = [
            (f"{what}, exact, mean of {self.networks} networks", str(self.measured)),
            (f"{what}, Theorem 1", "no density" if self.expected is None else _plain(self.expected)),
            (f"{what} per volume, exact", f"{self.density:.4g}"),
            (f"{what} per volume, bound of Theorem 2", f"{self.bound_density:.4g}"),
        ]
        if self.distance is not None:
            rows += [
                ("distance to the nearest kink, exact", str(self.distance)),
                ("networks without a kink", f"{self.without:.0%}"),
            ]
        rows += [
            ("distance, bound of Theorem 3", f"{self.bound_distance:.4g}"),
            ("distance, bound by integration", f"{self.bound_distance_sharp:.4g}"),
            ("C_grad (exponent 1/(2k))", f"{c.gradient:.4g} +- {c.gradient_error:.2g}"),
            ("C_bias", f"{c.bias:.4g}"),
            ("C_M", f"{c.manifold:.4g}"),
            ("C_M,kappa", f"{c.curvature:.4g}"),
            ("scalar curvature of the manifold, from / to", _range(self.scalar_curvature)),
            ("mean gradient: projected / whole", f"{c.projected:.4g} / {c.full:.4g}"),
        ]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {value}" for name, value in rows]
        return "\n".join([*lines, *(f"note: {text}" for text in self.remarks)])

    def __repr__(self) -> str:
        theorem = "no density" if self.expected is None else _plain(self.expected)
        return f"RegionTheory(measured {self.measured}, Theorem 1 {theorem})"


def _range(ends: tuple[float, float] | None) -> str:
    return "in the vertices of the mesh" if ends is None else f"{ends[0]:.4g} / {ends[1]:.4g}"


def _curvatures(manifold: Manifold, seed: int) -> tuple[float, float] | None:
    """The least and the largest scalar curvature at points of the manifold."""
    if isinstance(manifold, Mesh):
        return None
    if not isinstance(manifold, Sphere | Ellipsoid | Cylinder | Torus):
        return 0.0, 0.0
    at = tangent_sample(manifold, np.random.default_rng(seed), _POINTS)
    scalar = curvature(manifold, at.points).scalar
    return float(scalar.min()), float(scalar.max())


def _plain(found: ExpectedVolume) -> str:
    return f"{found.value:.4g} +- {found.standard_error:.2g}"


def region_theory(
    ensemble: Ensemble,
    manifold: Manifold,
    k: int = 1,
    *,
    networks: int = 20,
    samples: int = 4000,
    seed: int = 0,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> RegionTheory:
    """Theorems 1, 2 and 3 beside exact counts and distances.

    Parameters
    ----------
    ensemble, manifold, k
        As for :func:`expected_boundary_volume`. Without a density of the biases Theorem 1 is left out.
    networks
        How many networks are drawn and measured exactly.
    progress, time_limit
        Called as ``progress(done, total, text)`` before every network; after so many seconds an ``OutOfTimeError``.

    Examples
    --------
    >>> from fiberscope.geometry.curves.curve import Segment
    >>> found = region_theory(Ensemble.of((2, 5, 1)), Segment([-1.0, 0.0], [1.0, 0.0]), networks=200)
    >>> abs(found.measured.value - found.expected.value) < 4 * found.measured.standard_error
    True
    >>> found.density < found.bound_density, found.distance.value > found.bound_distance
    (True, True)
    """
    run = Run.begin(progress, time_limit)
    if networks < 2:
        raise InputError(f"networks: expected at least 2, got {networks}")
    constants = constants_within(ensemble, manifold, k, SAMPLES, seed, run.quietly())
    neurons = ensemble.num_hidden
    rate = constants.gradient * constants.bias * constants.manifold
    measured, distances = [], []
    for number in range(networks):
        run.step(number, networks, "networks")
        rng = np.random.default_rng([seed, number])
        count, distance = boundary_and_distance(ensemble.draw(rng), manifold, k, rng)
        measured.append(count)
        if distance is not None:
            distances.append(distance)
    scale = rate * neurons
    finite = [d for d in distances if not isinf(d)]
    expected = None
    if ensemble.has_density:
        expected = expected_volume(ensemble, manifold, k, samples, seed, run.quietly())
    return RegionTheory(
        ensemble,
        k,
        volume_of(manifold),
        expected,
        Measured.of(measured),
        constants,
        comb(neurons, k) * (2 * rate) ** k,
        None if not distances else Measured.of(finite) if finite else Measured(inf, 0.0),
        1 - len(finite) / networks if distances else 0.0,
        constants.curvature / scale if scale > 0 else inf,
        SHARP_DISTANCE_CONSTANT / scale if scale > 0 else inf,
        networks,
        _curvatures(manifold, seed),
    )
