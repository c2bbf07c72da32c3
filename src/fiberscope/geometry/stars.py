"""Which facets meet at which cells, and which cells lie inside of the domain, for cells of every dimension."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from fiberscope.geometry.cells import Incidence
from fiberscope.geometry.complex import Complex
from fiberscope.numerics.floats import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The cells of one dimension: ``outer`` marks those on the border of the domain, or at infinity.

    ``facets`` is the 0-1 matrix ``(facets, cells)`` of which cell lies on which row of ``complex.facets``.
    """

    dimension: int
    outer: BoolArray
    facets: csr_array


def incidence_matrix(incidence: Incidence, columns: int) -> csr_array:
    """The 0-1 matrix ``(cells, columns)`` of an incidence."""
    ones = np.ones(len(incidence.indices), dtype=np.int64)
    return csr_array((ones, incidence.indices, incidence.indptr), shape=(len(incidence), columns))


def inner_facets(complex: Complex, inside: BoolArray | None = None) -> BoolArray:
    """Mask over ``complex.facets`` of those between two regions, or between two regions of the mask ``inside``."""
    regions = complex.facets.regions
    inner = regions[:, 1] >= 0
    return np.asarray(inner if inside is None else inner & inside[regions[:, 0]] & inside[regions[:, 1]])


def levels(complex: Complex, inside: BoolArray | None = None) -> Iterator[Level]:
    """The cells of codimension 2, 3, ... down to the vertices.

    With a mask over the regions the domain is their union: what bounds it counts as its border.
    """
    d, cells = complex.dimension, complex.structure
    inner = inner_facets(complex, inside)
    outside = np.ones(cells.count(d - 1), dtype=bool)
    outside[complex.facets.cell[inner]] = False
    on = csr_array((np.ones(len(inner), np.int64), (np.arange(len(inner)), complex.facets.cell)),
                   shape=(len(inner), cells.count(d - 1)))  # fmt: skip
    for k in range(d - 1, 0, -1):
        below = incidence_matrix(cells.boundary[k - 1], cells.count(k - 1))
        outside = (below.T @ outside.astype(np.int64)) > 0
        on = csr_array(on @ below)
        on.data = np.minimum(on.data, 1)
        yield Level(k - 1, outside, on)


def star_signs(complex: Complex) -> Iterator[tuple[int, BoolArray, BoolArray, BoolArray]]:
    """For the dimensions ``d, d-1, ..., 0``: which neurons are positive, and negative, on some region around each cell.

    Yields dimension, positive, negative and outer, with arrays ``(cells, num_signs)``; outer as in :class:`Level`.
    """
    d, cells = complex.dimension, complex.structure
    top = complex.sign_vectors
    positive, negative = top > 0, top < 0
    yield d, positive, negative, np.zeros(len(top), dtype=bool)
    outer = np.ones(cells.count(d - 1), dtype=bool)
    outer[complex.facets.cell[inner_facets(complex)]] = False
    for k in range(d, 0, -1):
        below = cells.boundary[k - 1]
        owner = np.repeat(np.arange(len(below)), np.diff(below.indptr))
        positive, negative = (_spread(x, owner, below.indices, cells.count(k - 1)) for x in (positive, negative))
        if k < d:
            matrix = incidence_matrix(below, cells.count(k - 1))
            outer = (matrix.T @ outer.astype(np.int64)) > 0
        yield k - 1, positive, negative, outer


def _spread(values: BoolArray, owner: IntArray, index: IntArray, count: int) -> BoolArray:
    """The union of the owners' rows at every index."""
    result = np.zeros((count, values.shape[1]), dtype=bool)
    order = np.argsort(index, kind="stable")
    where, starts = np.unique(index[order], return_index=True)
    if len(where):
        result[where] = np.logical_or.reduceat(values[owner[order]], starts, axis=0)
    return result
