"""Curves through the latent space of a generator, and the regions of a network along them; see :mod:`..generators`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.curves.breakpoints import Breaks, chosen
from fiberscope.geometry.curves.chain import polyline_breaks
from fiberscope.geometry.curves.curve import Curve, Path, Planar, Polyline, Segment
from fiberscope.geometry.curves.curve_regions import CurveRegions
from fiberscope.geometry.curves.enclosed import Proven, prove_count
from fiberscope.geometry.curves.firm import straight_breaks
from fiberscope.geometry.curves.latent import PlanarImage, latent_enclosure
from fiberscope.geometry.curves.planar_curves import planar_breaks
from fiberscope.geometry.curves.smooth import smooth_breaks
from fiberscope.geometry.generators import (
    Refinement,
    as_generator,
    checked_points,
    composition,
    counts_of,
    has_settled,
    latent_points,
)
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import ENDLESS, Run

MOST_CURVE_POINTS = 1 << 15
"""Polygonal curves are not refined beyond this, unless told otherwise."""


def breaks_along(net: Network, curve: Path, run: Run) -> Breaks:
    """All breakpoints of a network along a curve of its input space."""
    if isinstance(curve, Polyline):
        return polyline_breaks(net, curve, run)
    if isinstance(curve, Planar):
        return planar_breaks(net, curve, run)
    if isinstance(curve, Curve):
        return smooth_breaks(net, curve, run)
    raise InputError(f"curve: expected a Segment, Polyline, Circle, Tractrix or Curve, got {type(curve).__name__}")


class GeneratorCurve(Path):
    """The image of the latent segment ``(1 - t) z0 + t z1``, ``t`` from 0 to 1, under a generator.

    See :meth:`along` for latent circles and other curves.

    Parameters
    ----------
    module
        A torch module, a :class:`Network`, or a function of batches.
    z0, z1
        Latent points of one shape, without the batch axis.
    points
        How many points of the curve the first polygon has, if the generator is not piecewise linear.
    most
        How many the last one may have.

    Examples
    --------
    >>> fold = Network([[[1.0], [-1.0]], [[1.0, 1.0], [1.0, -1.0]]], [[0.0, 0.0], [0.0, 0.0]])
    >>> curve = GeneratorCurve(fold, [-1.0], [1.0])
    >>> curve, curve([0.25])
    (GeneratorCurve(piecewise linear, R^1 to R^2), array([[ 0.5, -0.5]]))
    """

    def __init__(self, module: Any, z0: Any, z1: Any, points: int = 100, most: int | None = None) -> None:
        shape, (a, b) = latent_points("curve", [z0, z1])
        if (a == b).all():
            raise InputError("curve: expected two different latent points, got equal ones")
        self._begin(module, Segment(a, b), shape, points, most)

    @classmethod
    def along(
        cls,
        module: Any,
        path: Path,
        *,
        shape: tuple[int, ...] | None = None,
        points: int = 100,
        most: int | None = None,
    ) -> GeneratorCurve:
        """The image of any curve of the latent space: a circle, an arc, a polyline, a tractrix.

        ``shape`` is that of one latent point, if the module expects more than a vector. A circle is followed itself
        and not a polygon: through a piecewise linear generator the answer is exact, and it closes.

        >>> from fiberscope.geometry.curves.curve import Circle
        >>> fold = Network([[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]], [[0.0, 0.0, 0.0]])
        >>> curve = GeneratorCurve.along(fold, Circle())
        >>> curve.closed, round(curve.length, 4)
        (True, 7.6404)
        """
        if not isinstance(path, Path) or isinstance(path, GeneratorCurve):
            raise InputError(f"path: expected a curve of the latent space, got {type(path).__name__}")
        own = (path.ambient,) if shape is None else tuple(shape)
        if prod(own) != path.ambient:
            raise InputError(f"shape: expected {path.ambient} numbers as the latent curve has, got {own}")
        found = cls.__new__(cls)
        found._begin(module, path, own, points, most)
        return found

    def _begin(self, module: Any, path: Path, shape: tuple[int, ...], points: int, most: int | None) -> None:
        self.path, self.interval = path, path.interval
        self.points = int(points)
        self.most = checked_points(points, most, 2, MOST_CURVE_POINTS)
        self.generator = as_generator(module, shape)

    @property
    def exact(self) -> bool:
        """Whether the generator is piecewise linear."""
        return self.generator.network is not None

    @property
    def z0(self) -> FloatArray:
        """The latent point at which the curve starts."""
        return np.asarray(self.path([self.interval[0]])[0])

    @property
    def z1(self) -> FloatArray:
        """The latent point at which it ends."""
        return np.asarray(self.path([self.interval[1]])[0])

    @cached_property
    def ambient(self) -> int:
        return int(self.generator(self.z0[None]).shape[1])

    @property
    def closed(self) -> bool:
        """Whether the latent curve is closed; an image may close without it."""
        return self.path.closed

    def latent(self, t: Any) -> FloatArray:
        """Latent points ``(len(t), k)``."""
        return self.path(t)

    def __call__(self, t: Any) -> FloatArray:
        return self.generator(self.latent(t))

    @cached_property
    def _image(self) -> PlanarImage | None:
        """The image of a circle or tractrix, if it has pieces on which that is affine."""
        net = self.generator.network
        if net is None or not isinstance(self.path, Planar):
            return None
        return PlanarImage(net, self.path, breaks_along(net, self.path, ENDLESS))

    @cached_property
    def _chain(self) -> tuple[FloatArray, FloatArray]:
        """Parameters and points of the polygon that stands for the curve: all of it if it is piecewise linear."""
        if self.generator.network is None or not isinstance(self.path, Polyline):
            t = np.linspace(*self.interval, self.points)
        else:
            corners = np.arange(len(self.path.points), dtype=np.float64)
            t = np.union1d(corners, breaks_along(self.generator.network, self.path, ENDLESS).t)
        return t, self(t)

    def derivative(self, t: Any) -> FloatArray:
        """``gamma'(t)``; of the polygon through ``points`` if the generator is not piecewise linear."""
        if self._image is not None:
            return self._image.derivative(self.parameters(t))
        marks, points = self._chain
        i = np.clip(np.searchsorted(marks, self.parameters(t), side="right") - 1, 0, len(marks) - 2)
        return np.asarray((points[i + 1] - points[i]) / (marks[i + 1] - marks[i])[:, None])

    def arc_length(self, t: Any) -> FloatArray:
        """Length from the start, of the polygon through ``points`` if the generator is not piecewise linear."""
        if self._image is not None:
            return self._image.arc_length(self.parameters(t))
        marks, points = self._chain
        sides = np.linalg.norm(np.diff(points, axis=0), axis=1)
        return np.asarray(np.interp(self.parameters(t), marks, np.concatenate([[0.0], np.cumsum(sides)])))

    def __repr__(self) -> str:
        kind = "piecewise linear" if self.exact else f"from {self.points} points"
        along = "" if isinstance(self.path, Segment) else f", along {self.path}"
        return f"GeneratorCurve({kind}, R^{self.path.ambient} to R^{self.ambient}{along})"


@dataclass(frozen=True, eq=False, repr=False)
class GeneratorCurveRegions(CurveRegions):
    """The regions of a network along the image of a latent curve; ``num_regions`` are those of the network alone.

    ``latent_regions`` counts the intervals on which neither the generator nor the network switches (None if the
    generator is not piecewise linear). ``refinement`` is the table of counts, ``settled`` whether its last three agree.
    ``proven`` holds the count along the smooth curve itself where enclosures prove it; ``reason`` says why the answer
    is not exact, and why there is no proof.
    """

    latent_regions: int | None = None
    refinement: tuple[Refinement, ...] = ()
    settled: bool = True
    proven: Proven | None = None
    reason: str = ""

    def __repr__(self) -> str:
        loop = f" ({self.num_regions_closed} of the loop)" if self.curve.closed else ""
        told = f"GeneratorCurveRegions({self.num_regions} regions{loop} of the network along {self.curve}"
        told += f"; {counts_of(self)}"
        if self.proven is not None:
            count = self.proven.num_regions
            loop = f" ({max(1, count - 1)} of the loop)" if self.curve.closed else ""
            told += f"; {count} regions{loop} of the smooth curve, proven by enclosures"
        return f"{told}; not exact: {self.reason})" if self.reason and self.proven is None else f"{told})"


def regions_through(net: Network, curve: GeneratorCurve, run: Run = ENDLESS) -> GeneratorCurveRegions:
    """The regions of a network along the image of a latent curve.

    Examples
    --------
    The generator folds the line at 0 to an angle; the network switches where the first coordinate is 1/2:

    >>> fold = Network([[[1.0], [-1.0]], [[1.0, 1.0], [1.0, -1.0]]], [[0.0, 0.0], [0.0, 0.0]])
    >>> net = Network([[[1.0, 0.0]], [[1.0]]], [[-0.5], [0.0]])
    >>> found = regions_through(net, GeneratorCurve(fold, [-1.0], [1.0]))
    >>> found.num_regions, found.latent_regions, found.breakpoints
    (3, 4, array([0.25, 0.75]))
    """
    if curve.ambient != net.in_size:
        raise InputError(f"curve: expected one in R^{net.in_size} for this network, got R^{curve.ambient}")
    inner = curve.generator.network
    if inner is not None:
        both = breaks_along(composition(net, inner), curve.path, run)
        own = _of_network(both, inner.num_signs)
        return GeneratorCurveRegions(net, curve, own, latent_regions=len(both.t) + 1 - both.closes)
    table: list[Refinement] = []
    points = curve.points
    while True:
        run.step(len(table), None, f"polygon of {points} points")
        found = _along_polygon(net, curve, points, run.quietly())
        table.append(Refinement(points, len(found.t) + 1))
        settled = has_settled(table)
        if settled or 2 * points - 1 > curve.most:
            proof = _proof(net, curve, run)
            return GeneratorCurveRegions(
                net,
                curve,
                found,
                refinement=tuple(table),
                settled=settled,
                proven=proof if isinstance(proof, Proven) else None,
                reason=proof if isinstance(proof, str) else "",
            )
        points = 2 * points - 1  # the points before, and one between any two


def _proof(net: Network, curve: GeneratorCurve, run: Run) -> Proven | str:
    """The count along the smooth curve itself, or why there is none."""
    generator = curve.generator
    if not generator.stages:
        return generator.reason
    latent = latent_enclosure(curve.path)
    if latent is None:
        return f"{generator.reason}; the latent {type(curve.path).__name__} is known by an interpolant only"
    return prove_count(generator.stages, net, latent, run)


def _of_network(both: Breaks, first: int) -> Breaks:
    """The breakpoints at which an entry of the sign vector from ``first`` on vanishes, with these entries alone."""
    owner = np.repeat(np.arange(len(both.t)), np.diff(both.neurons.indptr))
    own = both.neurons.indices >= first
    keep = np.unique(owner[own])
    counts = np.bincount(owner[own], minlength=len(both.t))
    makers = replace(both.neurons, indptr=pointers(counts), indices=both.neurons.indices[own] - first)
    exact = both.exact
    closes = both.closes and len(keep) > 0 and int(keep[-1]) == len(both.t) - 1
    behind = np.concatenate([[0], keep + 1])
    regions = behind[:-1] if closes else behind  # behind the closing point is the first region again
    return replace(
        both,
        t=both.t[keep],
        lower=both.lower[keep],
        upper=both.upper[keep],
        neurons=chosen(makers, keep),
        signs=lambda: both.signs()[regions][:, first:],
        exact=None if exact is None else lambda i: exact(int(keep[i])),
        closes=closes,
    )


def _along_polygon(net: Network, curve: GeneratorCurve, points: int, run: Run) -> Breaks:
    """Breakpoints on the polygon through so many points of the curve, in the curve's parameter."""
    t = np.linspace(*curve.interval, points)
    corners = curve(t)
    if curve.closed:
        corners[-1] = corners[0]
    middle = curve((t[1:] + t[:-1]) / 2)
    residual = float(np.linalg.norm(middle - (corners[1:] + corners[:-1]) / 2, axis=1).max())
    new = np.concatenate([[True], (corners[1:] != corners[:-1]).any(axis=1)])  # where it stands still, one point stands
    if new.sum() < 2:
        raise InputError("curve: expected a generator that moves, got one point for all latent points")
    found = straight_breaks(net, Polyline(corners[new]), run)
    marks = np.arange(float(new.sum()))
    ends = t[new]
    where, low, high = (np.interp(x, marks, ends) for x in (found.t, found.lower, found.upper))
    low, high = (np.clip(np.nextafter(x, to), *curve.interval) for x, to in ((low, -np.inf), (high, np.inf)))
    # what stands for the curve is never the curve itself, so its count is not certified
    return replace(found, t=where, lower=low, upper=high, exact=None, residual=max(residual, np.finfo(float).tiny))
