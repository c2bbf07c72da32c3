"""Sizes of cells: volumes, inner points and orthonormal bases of every cell, from the vertices up.

The volume of a k-cell is the sum over its facets of ``distance(inner point, facet) * volume(facet) / k``, so that every
face is measured once and shared by the cells around it.

``_measure`` goes from facets to cells: ``facet_points (facets, n)``, ``facet_bases (facets, k - 1, n)`` orthonormal,
``facet_volumes``, ``facet_far`` (at infinity) give ``points``, ``bases (cells, k, n)``, ``volumes``, ``far`` of the
k-cells, whose facets are ``indices[indptr[c]:indptr[c + 1]]``. The basis of a cell is that of one facet and one
direction more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are used

from fiberscope.geometry.cells import Cells
from fiberscope.numerics.compiling.kernels import inlined, strict
from fiberscope.numerics.floats import FloatArray
from fiberscope.run import ENDLESS, Run


@dataclass(frozen=True, slots=True, eq=False)
class Metrics:
    """Of the k-cells: inner points ``(cells, n)``, bases of their directions ``(cells, k, n)``, and volumes.

    A cell with a direction at infinity has infinite volume; a cell that lies at infinity has a direction for a point,
    no basis (zeros) and volume zero.
    """

    points: FloatArray
    bases: FloatArray
    volumes: FloatArray


def metrics(cells: Cells, lowest: int, run: Run = ENDLESS) -> dict[int, Metrics]:
    """Metrics of the cells of dimension ``lowest`` and above."""
    far = np.zeros(len(cells.points), dtype=bool) if cells.rays is None else cells.rays
    count, n = cells.points.shape
    level = Metrics(cells.points, np.zeros((count, 0, n)), np.where(far, 0.0, 1.0))
    found = {0: level}
    for k in range(1, cells.dimension + 1):
        run.check()
        inside = cells.boundary[k - 1]
        points, bases = np.zeros((len(inside), n)), np.zeros((len(inside), k, n))
        volumes, beyond = np.zeros(len(inside)), np.zeros(len(inside), dtype=bool)
        _measure(inside.indptr, inside.indices, level.points, level.bases, level.volumes, far, points, bases, volumes,
                 beyond)  # fmt: skip
        far, level = beyond, Metrics(points, bases, volumes)
        found[k] = level
        found.pop(k - 1 if k - 1 < lowest else -1, None)
    return found


@strict
def _measure(
    indptr: Any, indices: Any, facet_points: Any, facet_bases: Any, facet_volumes: Any, facet_far: Any, points: Any,
    bases: Any, volumes: Any, far: Any,
) -> None:  # fmt: skip
    k, n = bases.shape[1], bases.shape[2]
    offset, best = np.empty(n), np.empty(n)
    for c in range(len(indptr) - 1):
        begin, end = indptr[c], indptr[c + 1]
        near_count = 0
        for i in range(begin, end):
            near_count += not facet_far[indices[i]]
        far[c] = near_count == 0
        for i in range(begin, end):
            f = indices[i]
            weight = 1.0 / (end - begin) if near_count == 0 else (1.0 if facet_far[f] else 1.0 / near_count)
            for j in range(n):
                points[c, j] += weight * facet_points[f, j]
        if near_count == 0:
            continue
        largest, chosen, total, height = -1.0, 0, 0.0, 0.0
        for i in range(begin, end):
            f = indices[i]
            if facet_far[f]:
                total = np.inf
                continue
            for j in range(n):
                offset[j] = points[c, j] - facet_points[f, j]
            _remove(offset, facet_bases[f])
            _remove(offset, facet_bases[f])  # twice is enough (Kahan)
            square = 0.0
            for j in range(n):
                square += offset[j] * offset[j]
            distance = np.sqrt(square)
            part = distance * facet_volumes[f]
            # The thickest pyramid gives the basis: that of a facet as thin as rounding errors would be noise.
            if part > largest:
                largest, chosen, height = part, f, distance
                for j in range(n):  # assigning slices would take two seconds to compile
                    best[j] = offset[j]
            total += part
        volumes[c] = total / k
        for h in range(k - 1):
            for j in range(n):
                bases[c, h, j] = facet_bases[chosen, h, j]
        if height > 0:
            for j in range(n):
                bases[c, k - 1, j] = best[j] / height


@inlined
def _remove(vector: Any, basis: Any) -> None:
    """Take the components along the basis out of the vector."""
    for h in range(basis.shape[0]):
        product = 0.0
        for j in range(len(vector)):
            product += vector[j] * basis[h, j]
        for j in range(len(vector)):
            vector[j] -= product * basis[h, j]


def ellipse_arcs(grams: FloatArray, start: FloatArray, end: FloatArray) -> FloatArray:
    """Lengths of arcs of ellipses ``cos t one + sin t two``, by Legendre's integral of the second kind.

    ``grams (arcs, 2, 2)`` are the products of the two vectors, ``start`` and ``end`` the parameters. With the angle
    from where the velocity is longest, the square of the speed is ``p - (p - q) sin^2`` for the eigenvalues ``p >= q``.

    >>> round(float(ellipse_arcs(np.array([[[4.0, 0.0], [0.0, 1.0]]]), np.zeros(1), np.full(1, 2 * np.pi))[0]), 6)
    9.688448
    """
    size, direction = np.linalg.eigh(grams)
    q, p = np.maximum(size, 0.0).T
    shift = np.arctan2(direction[:, 0, 1], direction[:, 1, 1])
    part = np.where(p > 0, 1 - q / np.where(p > 0, p, 1.0), 0.0)
    return np.asarray(
        np.sqrt(p) * (scipy.special.ellipeinc(end + shift, part) - scipy.special.ellipeinc(start + shift, part))
    )
