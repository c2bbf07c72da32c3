"""A function from its weighted breakpoint complex: one affine map, and what every facet adds when it is crossed.

Arrays of the kernels, for R regions and F facets in dimension n: ``wall_facets[walls[r]:walls[r + 1]]`` are the facets
around region r; ``regions (F, 2)`` the regions beside a facet, -1 beyond the border; ``normals (F, n)`` and ``offsets
(F,)`` its hyperplane, with the first of its regions on the negative side; ``last (points,)`` the region in which the
walk to a point ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Solid
from fiberscope.numerics.arrays import batch
from fiberscope.numerics.compiling.kernels import kernel
from fiberscope.numerics.floats import INFLATE, TINY, FloatArray, IntArray, U, gamma


@dataclass(frozen=True, slots=True, eq=False)
class FacetFunction:
    """The continuous piecewise linear function with a given map on one region and given weights of the facets.

    Called on a batch ``(points, d)`` it walks from the start to every point and adds ``w (n x - offset)`` for each
    facet that it crosses. It knows regions by their walls only; no network is left in it. :meth:`error` says how far
    the network may be from that.
    """

    start: FloatArray
    start_region: int
    matrix: FloatArray
    offset: FloatArray
    walls: IntArray
    wall_facets: IntArray
    regions: IntArray
    normals: FloatArray
    offsets: FloatArray
    weights: FloatArray
    domain: Solid
    bounds: Bounds

    def __call__(self, X: Any) -> FloatArray:
        return self._walked(X)[1]

    def error(self, X: Any) -> FloatArray:
        """Bounds ``(points, out)`` of the difference to the network at points of the domain.

        Errors of the weights, normals and offsets add up over the facets that are crossed. Where rounding leaves open
        in which region a point lies, the steepest slope takes part. Infinite where no bound is known: in regions
        thinner than rounding, and where numbers leave the range of floats.
        """
        points, result, error, last = self._walked(X)
        bounds = self.bounds
        slack = np.empty(len(points))
        _slack(
            points, last, bounds.inside, self.walls, self.wall_facets, self.regions, self.normals, self.offsets,
            bounds.normals, bounds.offsets, slack,
        )  # fmt: skip
        # From a point x to x' = x + s (p - x) in the region f changes by L |x - x'| at most, and so does the map.
        away = np.linalg.norm(bounds.inside[last] - points, axis=1)
        with np.errstate(invalid="ignore", over="ignore"):
            moved = np.where(np.isinf(slack), np.inf, slack * away)
            slip = np.where(slack[:, None] == 0, 0.0, 2 * np.maximum(bounds.slopes, TINY) * moved[:, None])
            found = (error + slip + gamma(2) * np.abs(result)) * INFLATE + TINY
        return np.where(np.isnan(found), np.inf, found)  # what overflowed bounds nothing

    def _walked(self, X: Any) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
        """Points, values, bounds of the errors on the way, and the regions reached."""
        points = batch(X, self.start.size)
        outside = _outside(self.domain, points)
        if len(outside):
            raise InputError(f"X: expected points of {self.domain}, got {points[outside[0]].tolist()}")
        result = points @ self.matrix.T + self.offset
        around = np.column_stack([np.abs(points), np.ones(len(points))])
        size = np.column_stack([np.abs(self.matrix), np.abs(self.offset)])
        error = around @ (self.bounds.start + gamma(self.start.size + 4) * size).T
        last = np.empty(len(points), dtype=np.int64)
        _walk(
            points, self.start, self.start_region, self.walls, self.wall_facets, self.regions, self.normals,
            self.offsets, self.weights, self.bounds.jumps, result, error, last,
        )  # fmt: skip
        return points, result, error, last

    def __repr__(self) -> str:
        kinks = int(self.weights.any(axis=1).sum())
        return f"FacetFunction(R^{self.start.size} -> R^{len(self.offset)}, {kinks} facets with a kink)"


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What is known about the errors of a :class:`FacetFunction`.

    ``start`` bounds the coefficients of the first map ``(out, d + 1)``, ``jumps`` those of the difference of the maps
    beside every facet to ``w (n x - offset)``, ``(facets, out, d + 1)``; ``normals`` and ``offsets`` are bounds for the
    walls, ``inside`` points of the regions, and ``slopes`` the steepest gradient of every output.
    """

    start: FloatArray
    jumps: FloatArray
    normals: FloatArray
    offsets: FloatArray
    inside: FloatArray
    slopes: FloatArray

    @classmethod
    def of(cls, complex: Complex, region: int) -> Bounds:
        facets, forms = complex.facets, complex.bounded_maps
        d = complex.dimension
        one, two = facets.regions.T
        planes = np.column_stack([facets.normal, -facets.offset])
        with np.errstate(over="ignore", invalid="ignore"):
            made = facets.weight[:, :, None] * planes[:, None, :]
            parts = [forms.value[two], forms.value[one], made]
            slip = np.abs(parts[0] - parts[1] - made) + forms.error[two] + forms.error[one]
            slip += gamma(4) * sum(np.abs(part) for part in parts)
            slopes = np.linalg.norm(np.abs(forms.value[:, :, :d]) + forms.error[:, :, :d], axis=2).max(axis=0)
        # invisible facets have one map on both sides, by proof
        slip[(two < 0) | ~facets.visible] = 0.0
        jumps = np.where(np.isnan(slip), np.inf, slip) * INFLATE
        return cls(
            forms.error[region], jumps, facets.normal_error, facets.offset_error, complex.points, slopes * INFLATE
        )


def function_from(complex: Complex, region: int | None = None) -> FacetFunction:
    """The function of a complex from its facets' weights and its affine map on one region.

    The walk starts in ``region``, without one in the largest. On a plane it takes the coordinates of the slice.
    Its method ``error`` bounds the difference to the network, which rounding of weights, normals and offsets makes.

    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.regions import regions
    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> function_from(regions(net, Box([-2], [2])))([[-1.5], [1.0]])
    array([[1.5],
           [1. ]])
    """
    if region is None:
        volumes = complex.volumes
        region = int(np.argmax(np.where(np.isnan(volumes), -1.0, volumes)))
    if not 0 <= region < complex.num_regions:
        raise InputError(f"region: expected 0 to {complex.num_regions - 1}, got {region}")
    matrix, offset = complex.affine_maps
    facets = complex.facets
    return FacetFunction(
        start=complex.points[region].copy(),
        start_region=region,
        matrix=matrix[region].copy(),
        offset=offset[region].copy(),
        walls=complex.facets_of.indptr,
        wall_facets=complex.facets_of.indices,
        regions=facets.regions,
        normals=facets.normal,
        offsets=facets.offset,
        weights=facets.weight,
        domain=complex.view.domain,
        bounds=Bounds.of(complex, region),
    )


def _outside(domain: Solid, points: FloatArray) -> IntArray:
    """Points that are outside for certain."""
    A, b = domain.halfspaces()
    if not len(A):
        return np.zeros(0, dtype=np.int64)
    room = gamma(A.shape[1] + 2) * (np.abs(points) @ np.abs(A).T + np.abs(b))
    return np.flatnonzero((points @ A.T - b > room).any(axis=1))


@kernel
def _walk(
    points: Any, start: Any, first: int, walls: Any, wall_facets: Any, regions: Any, normals: Any, offsets: Any,
    weights: Any, jumps: Any, result: Any, error: Any, last: Any,
) -> None:  # fmt: skip
    """Walk to every point and add up the facets, and bounds of their errors."""
    n = start.size
    for p in range(points.shape[0]):
        region, came = first, -1
        for _ in range(4 * regions.shape[0] + 4):
            # the wall that the segment to the target meets first, seen from where it entered the region
            best, best_time, exit_gap = -1, np.inf, 0.0
            for k in range(walls[region], walls[region + 1]):
                f = wall_facets[k]
                if f == came:
                    continue
                turn = 1.0 if regions[f, 0] == region else -1.0
                target, origin = -offsets[f], -offsets[f]
                for j in range(n):
                    target += normals[f, j] * points[p, j]
                    origin += normals[f, j] * start[j]
                target, origin = turn * target, turn * origin
                if target > 0:
                    time = -origin / (target - origin) if target > origin else 0.0
                    if time < best_time:
                        best, best_time, exit_gap = f, time, target
            if best < 0:
                break
            one, two = regions[best, 0], regions[best, 1]
            if two < 0:  # the border, which a point on it may seem to cross
                break
            reach = abs(offsets[best])
            for j in range(n):
                reach += abs(normals[best, j] * points[p, j])
            for o in range(result.shape[1]):
                result[p, o] += weights[best, o] * exit_gap
                slip = jumps[best, o, n]
                for j in range(n):
                    slip += jumps[best, o, j] * abs(points[p, j])
                error[p, o] += slip + (n + 8) * U * abs(weights[best, o]) * reach + 2 * U * abs(result[p, o])
            region, came = two if one == region else one, best
        last[p] = region


@kernel
def _slack(
    points: Any, last: Any, inside: Any, walls: Any, wall_facets: Any, regions: Any, normals: Any, offsets: Any,
    normal_errors: Any, offset_errors: Any, slack: Any,
) -> None:  # fmt: skip
    """What part of the way to the inner point of its region brings every point certainly inside; infinite if no part.

    Walls on the border do not count: points lie in the domain.
    """
    n = points.shape[1]
    for p in range(points.shape[0]):
        region = last[p]
        share = 0.0
        for k in range(walls[region], walls[region + 1]):
            f = wall_facets[k]
            if regions[f, 1] < 0:
                continue
            turn = 1.0 if regions[f, 0] == region else -1.0
            here, there, far, deep = -offsets[f], -offsets[f], 0.0, 0.0
            for j in range(n):
                here += normals[f, j] * points[p, j]
                there += normals[f, j] * inside[region, j]
                far += abs(points[p, j])
                deep += abs(inside[region, j])
            rounding = normal_errors[f] + (n + 8) * U
            here = turn * here + (rounding * far + offset_errors[f] + (n + 8) * U * abs(offsets[f])) * INFLATE
            there = -turn * there - (rounding * deep + offset_errors[f] + (n + 8) * U * abs(offsets[f])) * INFLATE
            if here > 0.0 or not math.isfinite(here):
                part = here / (here + there) * INFLATE
                share = max(share, part if there > 0.0 and part < np.inf else np.inf)
        slack[p] = share
