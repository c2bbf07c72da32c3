"""A function from its weighted breakpoint complex: one affine map, and what every facet adds when it is crossed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box, Orthant, Plane, Polytope, Space
from fiberscope.numerics.arrays import batch
from fiberscope.numerics.floats import FloatArray, IntArray, gamma


@dataclass(frozen=True, slots=True, eq=False)
class FacetFunction:
    """The continuous piecewise linear function with a given map on one region and given weights of the facets.

    Called on a batch ``(points, d)`` it walks from the start to every point and adds ``w (n x - offset)`` for each
    facet that it crosses. It knows regions by their walls only; no network is left in it.
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
    domain: Box | Orthant | Space | Polytope

    def __call__(self, X: Any) -> FloatArray:
        points = batch(X, self.start.size)
        outside = _outside(self.domain, points)
        if len(outside):
            raise InputError(f"X: expected points of {self.domain}, got {points[outside[0]].tolist()}")
        result = points @ self.matrix.T + self.offset
        _walk(
            points, self.start, self.start_region, self.walls, self.wall_facets, self.regions, self.normals,
            self.offsets, self.weights, result,
        )  # fmt: skip
        return result

    def __repr__(self) -> str:
        kinks = int(self.weights.any(axis=1).sum())
        return f"FacetFunction(R^{self.start.size} -> R^{len(self.offset)}, {kinks} facets with a kink)"


def function_from(complex: Complex, region: int | None = None) -> FacetFunction:
    """The function of a complex from its facets' weights and its affine map on one region.

    The walk starts in ``region``, without one in the largest. On a plane it takes the coordinates of the slice.
    There is no error bound: the rounding of weights, normals and offsets adds up over the facets that are crossed.

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
        domain=complex.domain.box if isinstance(complex.domain, Plane) else complex.domain,
    )


def _outside(domain: Box | Orthant | Space | Polytope, points: FloatArray) -> IntArray:
    """Points that are outside for certain."""
    A, b = domain.halfspaces()
    if not len(A):
        return np.zeros(0, dtype=np.int64)
    room = gamma(A.shape[1] + 2) * (np.abs(points) @ np.abs(A).T + np.abs(b))
    return np.flatnonzero((points @ A.T - b > room).any(axis=1))


@numba.njit(cache=True)
def _walk(
    points: Any, start: Any, first: int, walls: Any, wall_facets: Any, regions: Any, normals: Any, offsets: Any,
    weights: Any, result: Any,
) -> None:  # fmt: skip
    """Walk to every point and add up the facets."""
    n = len(start)
    for p in range(len(points)):
        region, came = first, -1
        for _ in range(4 * len(regions) + 4):
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
            for o in range(result.shape[1]):
                result[p, o] += weights[best, o] * exit_gap
            region, came = two if one == region else one, best
