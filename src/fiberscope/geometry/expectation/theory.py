"""Theory beside measurement: the three theorems on data geometry and what random networks really do, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, inf, isinf, sqrt

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Path
from fiberscope.geometry.distances.along_curve import distance_along
from fiberscope.geometry.domains import Box
from fiberscope.geometry.expectation.constants import SAMPLES, SHARP_CURVE_CONSTANT, Constants, constants_within
from fiberscope.geometry.expectation.density import ExpectedVolume, expected_volume
from fiberscope.geometry.expectation.ensemble import Ensemble
from fiberscope.geometry.expectation.manifolds import Manifold, volume_of
from fiberscope.geometry.regions import regions
from fiberscope.geometry.surfaces.regions_on import regions_on
from fiberscope.network.network import Network, Seed
from fiberscope.results import Result
from fiberscope.run import Progress, Run

_PLACES = 500
"""Points of a curve at which distances are averaged, for every network."""


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

    ``distance`` is the mean distance within a curve to the nearest kink, over the networks that have one at all
    (``without`` is the fraction that has none); ``bound_distance`` the lower bound of Theorem 3 and
    ``bound_distance_sharp`` the better one by integration; all None for manifolds that are not curves.
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
    bound_distance: float | None
    bound_distance_sharp: float | None
    networks: int

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
        if self.distance is None:
            found.append("Theorem 3 is not computable as stated: its constant is a supremum over unknown volumes")
        else:
            found.append("C_M,kappa is 1/8 for every curve: a curve has no curvature of its own")
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
        if self.distance is not None and self.bound_distance is not None and self.bound_distance_sharp is not None:
            rows += [
                ("distance to the nearest kink, exact", str(self.distance)),
                ("distance, bound of Theorem 3", f"{self.bound_distance:.4g}"),
                ("distance, bound by integration", f"{self.bound_distance_sharp:.4g}"),
                ("networks without a kink", f"{self.without:.0%}"),
            ]
        rows += [
            ("C_grad (exponent 1/(2k))", f"{c.gradient:.4g} +- {c.gradient_error:.2g}"),
            ("C_bias", f"{c.bias:.4g}"),
            ("C_M", f"{c.manifold:.4g}"),
            ("C_M,kappa", "not computable" if c.curvature is None else f"{c.curvature:.4g}"),
            ("mean gradient: projected / whole", f"{c.projected:.4g} / {c.full:.4g}"),
        ]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {value}" for name, value in rows]
        return "\n".join([*lines, *(f"note: {text}" for text in self.remarks)])

    def __repr__(self) -> str:
        theorem = "no density" if self.expected is None else _plain(self.expected)
        return f"RegionTheory(measured {self.measured}, Theorem 1 {theorem})"


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
        count, distance = _measure(ensemble, manifold, k, np.random.default_rng([seed, number]))
        measured.append(count)
        if distance is not None:
            distances.append(distance)
    curve = isinstance(manifold, Path)
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
        (Measured.of(finite) if finite else Measured(inf, 0.0)) if curve else None,
        1 - len(finite) / networks if curve else 0.0,
        constants.curvature / scale if constants.curvature is not None and scale > 0 else (inf if curve else None),
        SHARP_CURVE_CONSTANT / scale if curve and scale > 0 else (inf if curve else None),
        networks,
    )


def _measure(ensemble: Ensemble, manifold: Manifold, k: int, rng: Seed) -> tuple[float, float | None]:
    """The exact boundary of one network and, on a curve, the mean distance of its points to a kink."""
    net = ensemble.draw(rng)
    if not isinstance(manifold, Path):
        return boundary_volume(net, manifold, k), None
    found = regions_along(net, manifold)
    t = np.linspace(*manifold.interval, _PLACES + 2)[1:-1]
    near = distance_along(found, t, visible=True).nearest
    speed = manifold.speed(t)
    return float(found.visible.sum()), float(np.average(near, weights=speed)) if np.isfinite(near).all() else inf


def boundary_volume(net: Network, manifold: Manifold, k: int = 1) -> float:
    """The ``(m - k)``-volume of the visible codimension-k boundary of one network inside a manifold.

    Along a curve the number of kinks; on a surface and in a box of any dimension, for k = 1, the measure of the visible
    facets; in a two-dimensional box, for k = 2, the corners of the boundary.

    >>> net = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> boundary_volume(net, Box.cube(2)), boundary_volume(net, Box.cube(2), k=2)
    (4.0, 1.0)
    """
    if isinstance(manifold, Path) and k == 1:
        return float(regions_along(net, manifold).visible.sum())
    if isinstance(manifold, Box) and k == 1:
        found = regions(net, manifold)
        return float(found.wall_sizes[found.facets.cell[found.facets.visible]].sum())
    if isinstance(manifold, Box) and manifold.dimension == 2 and k == 2:
        return float(_corners(regions(net, manifold)))
    if not isinstance(manifold, Box | Path) and k == 1:
        return float(regions_on(net, manifold).visible_length)
    raise InputError(f"k: exact volumes are computed for k = 1, and k = 2 in a two-dimensional box, got {k}")


def _corners(found: Complex) -> int:
    """Vertices inside of the box where the folds of at least two neurons are seen."""
    facets = found.facets
    seen = np.flatnonzero(facets.visible)
    ends = found.structure.boundary[0].indices.reshape(-1, 2)[facets.cell[seen]]
    vertex, neuron = ends.reshape(-1), np.repeat(facets.neuron[seen], 2)
    pairs = np.unique(np.stack([vertex, neuron], axis=1), axis=0)
    number = np.bincount(pairs[:, 0], minlength=len(found.vertices))
    box = found.view.domain
    assert isinstance(box, Box)
    inside = ((found.vertices > box.low) & (found.vertices < box.high)).all(axis=1)
    return int((inside & (number >= 2)).sum())
