"""Curves and surfaces through the latent space of a generator ``g: R^k -> R^n``, and the regions of a network there.

If the generator is piecewise linear, ``net(g(z))`` is a network and everything is exact in latent space. Two numbers
come out. The *latent regions* are those of both networks: there ``net(g(z))`` is one affine map of ``z``. The *regions*
are those of the classifier alone: a neuron of the generator that switches bends the image and not the classifier.
A smooth generator is followed on a polygonal curve or mesh, refined until the count settles; the table of counts is
part of the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.geometry.curves.breakpoints import Breaks, chosen
from fiberscope.geometry.curves.curve import Path, Polyline, Segment
from fiberscope.geometry.curves.curve_regions import CurveRegions
from fiberscope.geometry.curves.straight import straight_breaks
from fiberscope.geometry.domains import Box, Plane
from fiberscope.geometry.engines.planar.engine import planar_cells
from fiberscope.geometry.surfaces.cut import affine_span, cut_surface
from fiberscope.geometry.surfaces.shapes import Mesh
from fiberscope.geometry.surfaces.surface_regions import SurfaceRegions
from fiberscope.network.io import as_network, library_of, load
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node
from fiberscope.network.rewire import moved
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result, hidden
from fiberscope.run import ENDLESS, Run

MOST_CURVE_POINTS = 1 << 15
"""Polygonal curves are not refined beyond this, unless told otherwise."""

SAME = 3
"""A count has settled when so many in a row agree."""

MOST_SURFACE_POINTS = 129
"""Grids of a surface are not refined beyond this on a side, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Refinement(Result):
    """One step of a refinement: points of the polygon (on one side of a grid), and the regions found there."""

    points: int
    num_regions: int


@dataclass(frozen=True, slots=True, eq=False)
class Generator:
    """A generator as a function; ``network`` is the same function as a program if it is piecewise linear.

    ``reason`` says why there is no network.
    """

    function: Callable[[FloatArray], FloatArray]
    network: Network | None
    reason: str = ""

    def __call__(self, Z: FloatArray) -> FloatArray:
        """Points ``(count, n)`` from latent points ``(count, k)``."""
        found = np.asarray(self.function(Z), dtype=np.float64).reshape(len(Z), -1)
        if not np.isfinite(found).all():
            raise InputError("generator: expected finite outputs, got NaN or infinity")
        return found


def as_generator(module: Any, shape: tuple[int, ...]) -> Generator:
    """The generator of whatever ``fs.load`` takes, or of a function of batches; ``shape`` is of one input."""
    if isinstance(module, Network | str | os.PathLike) or library_of(module) == "sklearn":
        net = as_network(module, "generator")
        return Generator(net, net)
    if library_of(module) == "torch":
        function = import_module("fiberscope.geometry.torch_generator").function_of(module, shape)
        try:
            return Generator(function, load(module, shape))
        except UnsupportedModelError as error:
            return Generator(function, None, str(error))
    if not callable(module):
        raise InputError(
            "generator: expected a Network, a torch module, a scikit-learn MLP, the path of a model file or a "
            f"function, got {type(module).__name__}"
        )
    return Generator(lambda Z: module(Z.reshape(-1, *shape)), None, "a plain function")


def composition(net: Network, inner: Network) -> Network:
    """``x -> net(inner(x))`` as one program; the neurons of ``inner`` come first in the sign vector.

    >>> inner, net = Network([[[2.0]]], [[1.0]]), Network([[[3.0]]], [[0.0]])
    >>> composition(net, inner)([[5.0]])
    array([[33.]])
    """
    if inner.out_size != net.in_size:
        raise InputError(f"generator: expected {net.in_size} outputs for this network, got {inner.out_size}")
    last = len(inner.nodes)
    behind = [moved(node, tuple(s + last for s in node.sources)) for node in net.nodes]
    return Network.from_nodes([_nameless(node) for node in (*inner.nodes, *behind)], inner.input_shape)


def _nameless(node: Node) -> Node:
    """Without parameter names: two models may use the same ones."""
    return replace(node, weight_name=None, bias_name=None) if isinstance(node, Affine) else node


def _latent(name: str, points: list[Any]) -> tuple[tuple[int, ...], list[FloatArray]]:
    arrays = [real_array(z, f"z{i}") for i, z in enumerate(points)]
    if len({a.shape for a in arrays}) != 1 or arrays[0].size == 0 or arrays[0].ndim == 0:
        raise InputError(f"{name}: expected latent points of one shape, got {[a.shape for a in arrays]}")
    return arrays[0].shape, [a.reshape(-1) for a in arrays]


def _check_points(points: int, most: int | None, least: int, otherwise: int) -> int:
    if not isinstance(points, int | np.integer) or points < least:
        raise InputError(f"points: expected an integer from {least}, got {points!r}")
    limit = max(otherwise, points) if most is None else most
    if limit < points:
        raise InputError(f"most: expected at least points = {points}, got {most}")
    return limit


# --- curves -----------------------------------------------------------------------------------------------------------


class GeneratorCurve(Path):
    """The image of the latent segment ``(1 - t) z0 + t z1``, ``t`` from 0 to 1, under a generator.

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
        shape, (self.z0, self.z1) = _latent("curve", [z0, z1])
        if (self.z0 == self.z1).all():
            raise InputError("curve: expected two different latent points, got equal ones")
        self.points = int(points)
        self.most = _check_points(points, most, 2, MOST_CURVE_POINTS)
        self.generator = as_generator(module, shape)
        self.interval = (0.0, 1.0)

    @property
    def exact(self) -> bool:
        """Whether the generator is piecewise linear."""
        return self.generator.network is not None

    @cached_property
    def ambient(self) -> int:
        return int(self.generator(self.z0[None]).shape[1])

    def latent(self, t: Any) -> FloatArray:
        """Latent points ``(len(t), k)``."""
        t = self.parameters(t)[:, None]
        return np.asarray((1 - t) * self.z0 + t * self.z1)

    def __call__(self, t: Any) -> FloatArray:
        return self.generator(self.latent(t))

    @cached_property
    def _chain(self) -> tuple[FloatArray, FloatArray]:
        """Parameters and points of the polygon that stands for the curve: all of it if it is piecewise linear."""
        if self.generator.network is None:
            t = np.linspace(0, 1, self.points)
        else:
            t = np.concatenate([[0.0], straight_breaks(self.generator.network, Segment(self.z0, self.z1)).t, [1.0]])
        return t, self(t)

    def derivative(self, t: Any) -> FloatArray:
        """``gamma'(t)``; of the polygon through ``points`` if the generator is not piecewise linear."""
        marks, points = self._chain
        i = np.clip(np.searchsorted(marks, self.parameters(t), side="right") - 1, 0, len(marks) - 2)
        return np.asarray((points[i + 1] - points[i]) / (marks[i + 1] - marks[i])[:, None])

    def arc_length(self, t: Any) -> FloatArray:
        """Length from the start, of the polygon through ``points`` if the generator is not piecewise linear."""
        marks, points = self._chain
        sides = np.linalg.norm(np.diff(points, axis=0), axis=1)
        return np.asarray(np.interp(self.parameters(t), marks, np.concatenate([[0.0], np.cumsum(sides)])))

    def __repr__(self) -> str:
        kind = "piecewise linear" if self.exact else f"from {self.points} points"
        return f"GeneratorCurve({kind}, R^{self.z0.size} to R^{self.ambient})"


@dataclass(frozen=True, eq=False, repr=False)
class GeneratorCurveRegions(CurveRegions):
    """The regions of a network along the image of a latent segment; ``num_regions`` are those of the network alone.

    ``latent_regions`` counts the intervals on which neither the generator nor the network switches (None if the
    generator is not piecewise linear). ``refinement`` is the table of counts, ``settled`` whether its last three agree.
    """

    latent_regions: int | None = None
    refinement: tuple[Refinement, ...] = ()
    settled: bool = True

    def __repr__(self) -> str:
        return f"GeneratorCurveRegions({self.num_regions} regions of the network along {self.curve}; {_text(self)})"


def regions_through(net: Network, curve: GeneratorCurve) -> GeneratorCurveRegions:
    """The regions of a network along the image of a latent segment.

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
        both = straight_breaks(composition(net, inner), Segment(curve.z0, curve.z1))
        return GeneratorCurveRegions(net, curve, _of_network(both, inner.num_signs), latent_regions=len(both.t) + 1)
    table: list[Refinement] = []
    points = curve.points
    while True:
        found = _along_polygon(net, curve, points)
        table.append(Refinement(points, len(found.t) + 1))
        settled = _settled(table)
        if settled or 2 * points - 1 > curve.most:
            return GeneratorCurveRegions(net, curve, found, refinement=tuple(table), settled=settled)
        points = 2 * points - 1  # the points before, and one between any two


def _of_network(both: Breaks, first: int) -> Breaks:
    """The breakpoints at which an entry of the sign vector from ``first`` on vanishes, with these entries alone."""
    owner = np.repeat(np.arange(len(both.t)), np.diff(both.neurons.indptr))
    own = both.neurons.indices >= first
    keep = np.unique(owner[own])
    counts = np.bincount(owner[own], minlength=len(both.t))
    makers = replace(
        both.neurons, indptr=np.concatenate([[0], np.cumsum(counts)]), indices=both.neurons.indices[own] - first
    )
    exact = both.exact
    return replace(
        both,
        t=both.t[keep],
        lower=both.lower[keep],
        upper=both.upper[keep],
        neurons=chosen(makers, keep),
        signs=lambda: both.signs()[np.concatenate([[0], keep + 1])][:, first:],
        exact=None if exact is None else lambda i: exact(int(keep[i])),
    )


def _along_polygon(net: Network, curve: GeneratorCurve, points: int) -> Breaks:
    """Breakpoints on the polygon through so many points of the curve, in the curve's parameter."""
    t = np.linspace(0, 1, points)
    corners = curve(t)
    middle = curve((t[1:] + t[:-1]) / 2)
    residual = float(np.linalg.norm(middle - (corners[1:] + corners[:-1]) / 2, axis=1).max())
    new = np.concatenate([[True], (corners[1:] != corners[:-1]).any(axis=1)])  # where it stands still, one point stands
    if new.sum() < 2:
        raise InputError("curve: expected a generator that moves, got one point for all latent points")
    found = straight_breaks(net, Polyline(corners[new]))
    marks = np.arange(float(new.sum()))
    ends = t[new]
    where, low, high = (np.interp(x, marks, ends) for x in (found.t, found.lower, found.upper))
    low, high = (np.clip(np.nextafter(x, to), 0, 1) for x, to in ((low, -1.0), (high, 2.0)))
    # what stands for the curve is never the curve itself, so its count is not certified
    return replace(found, t=where, lower=low, upper=high, exact=None, residual=max(residual, np.finfo(float).tiny))


# --- surfaces ---------------------------------------------------------------------------------------------------------


class GeneratorSurface:
    """The image of the latent parallelogram ``z0 + s (z1 - z0) + t (z2 - z0)``, ``s`` and ``t`` from 0 to 1.

    Parameters
    ----------
    module
        A torch module, a :class:`Network`, or a function of batches.
    z0, z1, z2
        Latent points of one shape, without the batch axis, not on one line.
    points
        How many points each side of the first grid has, if the generator is not piecewise linear.
    most
        How many the last one may have.
    """

    def __init__(self, module: Any, z0: Any, z1: Any, z2: Any, points: int = 9, most: int | None = None) -> None:
        shape, (a, b, c) = _latent("surface", [z0, z1, z2])
        if a.size < 2:
            raise InputError("surface: expected a latent space of at least 2 dimensions, got 1")
        Mesh(np.stack([a, b, c]), [[0, 1, 2]])  # refuses three points on one line
        self.plane = Plane(a, b - a, c - a, Box([0.0, 0.0], [1.0, 1.0]))
        self.points = int(points)
        self.most = _check_points(points, most, 2, MOST_SURFACE_POINTS)
        self.generator = as_generator(module, shape)

    @property
    def exact(self) -> bool:
        """Whether the generator is piecewise linear."""
        return self.generator.network is not None

    @cached_property
    def ambient(self) -> int:
        """The dimension n of the generator's outputs."""
        return int(self.generator(self.plane.origin[None]).shape[1])

    def __call__(self, st: Any) -> FloatArray:
        """Points ``(count, n)`` at parameters ``(count, 2)``."""
        return self.generator(self.plane.lift(st))

    def grid(self, points: int) -> Mesh:
        """The mesh through a grid of ``points`` on a side."""
        t = np.linspace(0, 1, points)
        st = np.stack(np.meshgrid(t, t, indexing="ij"), axis=2)
        return Mesh.grid(self(st.reshape(-1, 2)).reshape(points, points, -1))

    def __repr__(self) -> str:
        kind = "piecewise linear" if self.exact else f"from {self.points} x {self.points} points"
        return f"GeneratorSurface({kind}, R^{self.plane.ambient} to R^{self.ambient})"


@dataclass(frozen=True, eq=False, repr=False)
class GeneratorSurfaceRegions(SurfaceRegions):
    """The regions of a network on the image of a latent parallelogram; see :class:`GeneratorCurveRegions`.

    Areas and lengths are those of the image. ``latent`` are the vertices in the coordinates ``(s, t)`` if the generator
    is piecewise linear, and the pieces are then the latent regions.
    """

    latent_regions: int | None = None
    refinement: tuple[Refinement, ...] = ()
    settled: bool = True
    latent: FloatArray | None = field(default=None, metadata=hidden())

    def __repr__(self) -> str:
        return f"GeneratorSurfaceRegions({self.num_regions} regions of the network on {self.surface}; {_text(self)})"


def regions_over(net: Network, surface: GeneratorSurface, run: Run = ENDLESS) -> GeneratorSurfaceRegions:
    """The regions of a network on the image of a latent parallelogram."""
    if surface.ambient != net.in_size:
        raise InputError(f"surface: expected one in R^{net.in_size} for this network, got R^{surface.ambient}")
    inner = surface.generator.network
    if inner is not None:
        cells = planar_cells(composition(net, inner), surface.plane, run)
        image = surface(cells.points)
        origin, basis = affine_span(image)
        placed = replace(cells, points=(image - origin) @ basis.T)
        count = cells.count(2)
        return GeneratorSurfaceRegions(
            net, surface, placed, np.arange(count), origin, basis, inner.num_signs, count, latent=cells.points
        )
    table: list[Refinement] = []
    points = surface.points
    while True:
        found = cut_surface(net, surface.grid(points), run)
        table.append(Refinement(points, found.num_regions))
        settled = _settled(table)
        if settled or not found.complete or 2 * points - 1 > surface.most:
            parts = (found.structure, found.triangle, found.origin, found.basis)
            return GeneratorSurfaceRegions(net, surface, *parts, refinement=tuple(table), settled=settled)
        points = 2 * points - 1


def _settled(table: list[Refinement]) -> bool:
    """Whether two refinements in a row have changed nothing: a rule, not a proof."""
    return len(table) >= SAME and len({row.num_regions for row in table[-SAME:]}) == 1


def _text(found: GeneratorCurveRegions | GeneratorSurfaceRegions) -> str:
    if found.latent_regions is not None:
        return f"exact, {found.latent_regions} latent regions of generator and network"
    counts = ", ".join(f"{row.num_regions} at {row.points}" for row in found.refinement)
    return f"{'settled' if found.settled else 'not settled'}: {counts} points"
