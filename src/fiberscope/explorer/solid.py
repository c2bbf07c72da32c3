"""A complex in three dimensions as a block of bytes for the page's script: faces, what makes them, regions beside them.

The block is that of :mod:`fiberscope.explorer.payload`, with ``dimension`` 3 in its header.
"""

from __future__ import annotations

import numpy as np

from fiberscope.errors import InputError, TooLargeError
from fiberscope.explorer.payload import as_text, check_bounded, layers_of, maps_of, pack, packed_signs, shades, title_of
from fiberscope.geometry.complex import Complex
from fiberscope.numerics.floats import FloatArray, IntArray

MOST_REGIONS = 5_000
"""Regions of one picture in space: more than these hide each other."""


def encode_solid(complex: Complex) -> str:
    """The complex as text for a page.

    >>> from fiberscope import Box, Network, regions
    >>> from fiberscope.explorer.payload import decode
    >>> found = regions(Network([[[1.0, 0.0, 0.0]], [[1.0]]], [[0.0], [0.0]]), Box.cube(3))
    >>> header, arrays = decode(encode_solid(found))
    >>> header["regions"], arrays["areas"].tolist(), len(arrays["starts"]) - 1
    (2, [4.0, 4.0], 11)
    """
    if complex.dimension != 3:
        raise InputError(f"explore: expected a complex in 3 dimensions, got {complex.dimension}")
    check_bounded(complex)
    if complex.num_regions > MOST_REGIONS:
        raise TooLargeError(
            f"explore: expected at most {MOST_REGIONS:,} regions in space, got {complex.num_regions:,}; try a smaller "
            "box, or a slice (fs.Plane)"
        )
    facets, every = complex.facets, np.arange(complex.num_regions)
    layer = np.where(facets.neuron >= 0, complex.view.net.layout.switch[facets.neuron], 0)
    starts, corners = _cycles(complex, facets.cell, facets.normal)
    maps = maps_of(complex, every)
    with np.errstate(over="ignore", invalid="ignore"):
        weight = np.linalg.norm(facets.weight, axis=1).astype(np.float32)
    arrays = {
        "vertices": complex.vertices.astype(np.float32).reshape(-1),
        "starts": starts.astype(np.uint32),
        "corners": corners.astype(np.uint32),
        "normals": facets.normal.astype(np.float32).reshape(-1),
        "face_neuron": facets.neuron.astype(np.int32),
        "face_layer": layer.astype(np.uint16),
        "face_regions": facets.regions.astype(np.int32).reshape(-1),
        "face_weight": weight,
        "face_visible": facets.visible.astype(np.uint8),
        "middles": complex.points.astype(np.float32).reshape(-1),
        "maps": maps.astype(np.float32).reshape(-1),
        "areas": complex.volumes.astype(np.float32),
        **packed_signs(complex.sign_vectors),
        **shades(complex, every),
    }
    header = {
        "version": 1,
        "dimension": 3,
        "title": title_of(complex),
        "regions": complex.num_regions,
        "note": "",
        "low": complex.vertices.min(axis=0).tolist(),
        "high": complex.vertices.max(axis=0).tolist(),
        "axes": [f"x{k}" for k in range(3)],
        "layers": layers_of(complex, facets.neuron[facets.neuron >= 0]),
        "outputs": maps.shape[1],
        "out_size": complex.net.out_size,
    }
    return as_text(pack(header, arrays))


def _cycles(complex: Complex, cells: IntArray, normals: FloatArray) -> tuple[IntArray, IntArray]:
    """Corners of every face around its middle: where each face starts, and its vertices in order."""
    inside = complex.structure.vertices_of(2)
    sizes = np.diff(inside.indptr)[cells]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    face = np.repeat(np.arange(len(cells)), sizes)
    vertex = inside.indices[np.repeat(inside.indptr[cells], sizes) + np.arange(starts[-1]) - starts[:-1][face]]
    at = complex.vertices[vertex]
    middle = np.add.reduceat(at, starts[:-1], axis=0) / sizes[:, None]
    axis = np.eye(3)[np.abs(normals).argmin(axis=1)]  # far from the normal, so that the product is not small
    first = np.cross(normals, axis)
    away = at - middle[face]
    angle = np.arctan2(
        np.einsum("fi,fi->f", away, np.cross(normals, first)[face]), np.einsum("fi,fi->f", away, first[face])
    )
    return starts, vertex[np.lexsort((angle, face))]
