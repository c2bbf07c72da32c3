"""A planar complex as one compact block of bytes that the page's script reads.

Four bytes of length, a JSON header, then the arrays that the header lists in order, all little-endian; in a page they
are deflated together. Only neurons whose sign varies on the picture have columns of signs, two bits each; the rows of
all regions but the first hold their difference to the first, so that they compress. Numbers are float32: what the page
shows has five digits, and nothing is decided by it.
"""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Plane
from fiberscope.geometry.facets import first_of, makers
from fiberscope.network.nodes import MaxPool
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray

if TYPE_CHECKING:
    from fiberscope.geometry.complex import Complex

MOST_REGIONS = 20_000
"""Regions of one picture; of more, the smallest are left out with a word about it, unless all are asked for."""

MOST_TEXT = 2_400_000
"""Characters of one picture, so that a page stays below three megabytes: of a wide network fewer regions are drawn."""

MOST_MAPS = 100_000
"""Affine maps of one picture: of a network with many outputs only the first are told."""

MOST_POINTS = 2_000

TYPES = {"f4": np.float32, "u4": np.uint32, "i4": np.int32, "u2": np.uint16, "u1": np.uint8}


@dataclass(frozen=True)
class Marks:
    """What is drawn on top of a picture: points in its coordinates with labels, and small images as PNG bytes."""

    points: Any = None
    labels: Any = None
    pictures: Sequence[tuple[tuple[float, float], bytes]] = ()


def check_planar(complex: Complex) -> None:
    """Refuse what is no bounded picture in the plane."""
    if complex.dimension != 2:
        raise InputError(f"explore: expected a complex in 2 dimensions (a slice: fs.Plane), got {complex.dimension}")
    check_bounded(complex)


def check_bounded(complex: Complex) -> None:
    """Refuse what reaches to infinity or was interrupted."""
    if complex.rays.any():
        raise InputError("explore: expected a bounded domain, got one with regions that reach to infinity")
    if not complex.complete:
        raise InputError("explore: expected a complete complex, got one that was interrupted")


def encode(complex: Complex, marks: Marks | None = None, full: bool = False) -> str:
    """The complex as text for a page: deflated and in base 64.

    >>> from fiberscope import Box, Network, regions
    >>> text = encode(regions(Network([[[1.0, 0.0]], [[1.0]]], [[0.0], [0.0]]), Box.cube(2)))
    >>> header, arrays = decode(text)
    >>> header["regions"], header["layers"][0]["visible"], arrays["areas"].tolist()
    (2, [0], [2.0, 2.0])
    """
    check_planar(complex)
    most = None if full else MOST_REGIONS
    while True:
        text = as_text(pack(*_picture(complex, _exact_lines(complex), marks or Marks(), most)))
        if most is None or len(text) <= MOST_TEXT:
            return text
        most = max(1, int(0.95 * min(most, complex.num_regions) * MOST_TEXT / len(text)))


def encode_quickly(complex: Complex, marks: Marks | None = None, **head: Any) -> bytes:
    """The complex as plain bytes for a picture that moves: jumps are those of the floats, nothing decides them exactly.

    ``head`` is put into the header.
    """
    check_planar(complex)
    header, arrays = _picture(complex, _quick_lines(complex), marks or Marks(), MOST_REGIONS)
    return pack({**header, **head}, arrays)


def pack(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Header and arrays as one block."""
    header = {**header, "arrays": [[name, _code(array), array.size] for name, array in arrays.items()]}
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-len(text) % 4)
    parts = [struct.pack("<I", len(text)), text]
    return b"".join(parts + [array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays.values()])


def as_text(block: bytes) -> str:
    """A block deflated and in base 64."""
    return b64encode(zlib.compress(block, 9)).decode()


def decode(text: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What :func:`encode` wrote: the header and the arrays by name."""
    return unpack(zlib.decompress(b64decode(text)))


def unpack(block: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What :func:`pack` wrote."""
    from_base = np.frombuffer(block, dtype=np.uint8)
    size = int(from_base[:4].view("<u4")[0])
    header: dict[str, Any] = json.loads(from_base[4 : 4 + size].tobytes())
    arrays, at = {}, 4 + size
    for name, code, length in header["arrays"]:
        stop = at + length * np.dtype(TYPES[code]).itemsize
        arrays[name] = np.frombuffer(from_base[at:stop].tobytes(), dtype=np.dtype(TYPES[code]).newbyteorder("<"))
        at = stop
    return header, arrays


def _code(array: np.ndarray) -> str:
    return f"{array.dtype.kind}{array.dtype.itemsize}"


@dataclass(frozen=True, eq=False)
class _Lines:
    """Cells between regions: their ends in ``cell``, regions on both sides, first neuron, jump of the gradient."""

    cell: IntArray
    regions: IntArray
    neuron: IntArray
    weight: FloatArray
    visible: BoolArray


def _exact_lines(complex: Complex) -> _Lines:
    facets = complex.facets
    with np.errstate(over="ignore", invalid="ignore"):
        weight = np.linalg.norm(facets.weight, axis=1)
    return _Lines(facets.cell, facets.regions, facets.neuron, weight, facets.visible)


def _quick_lines(complex: Complex) -> _Lines:
    cell, regions = np.arange(len(complex.sides)), complex.sides
    matrix, _ = complex.affine_maps
    with np.errstate(over="ignore", invalid="ignore"):
        jump = np.linalg.norm(matrix[regions[:, 1]] - matrix[regions[:, 0]], axis=(1, 2))
    neuron = first_of(makers(complex.structure, cell, regions))
    return _Lines(cell, regions, neuron, jump, np.ones(len(cell), dtype=bool))


def _picture(
    complex: Complex, lines: _Lines, marks: Marks, most: int | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    chosen, note = _chosen(complex, most)
    layers = complex.view.net.layout
    place = np.full(complex.num_regions, -1, dtype=np.int64)
    place[chosen] = np.arange(len(chosen))
    sides = np.where(lines.regions >= 0, place[lines.regions], -1)
    rows = np.flatnonzero((lines.neuron >= 0) & (sides >= 0).any(axis=1))
    layer = layers.switch[lines.neuron[rows]]
    maps = maps_of(complex, chosen)
    arrays = {
        **_polygons(complex, chosen),
        **_edges(complex, lines, rows, layer, sides[rows], len(chosen)),
        "maps": maps.astype(np.float32).reshape(-1),
        "areas": complex.volumes[chosen].astype(np.float32),
        **packed_signs(complex.sign_vectors[chosen]),
        **shades(complex, chosen),
    }
    if len(chosen) < complex.num_regions:
        arrays["names"] = chosen.astype(np.uint32)
    header = {
        "version": 1,
        "title": title_of(complex),
        "regions": complex.num_regions,
        "note": note,
        "low": complex.vertices.min(axis=0).tolist(),
        "high": complex.vertices.max(axis=0).tolist(),
        "axes": _axes(complex),
        "layers": layers_of(complex, lines.neuron[rows]),
        "layer_ranges": _ranges(layer, len(layers.places)),
        "outputs": maps.shape[1],
        "out_size": complex.net.out_size,
        **_marks(marks, arrays),
    }
    return header, arrays


def _chosen(complex: Complex, most: int | None) -> tuple[IntArray, str]:
    """The regions that are shown, in order, and what is to be said about the others."""
    count = complex.num_regions
    if most is None or count <= most:
        return np.arange(count), ""
    order = np.argsort(-complex.volumes, kind="stable")
    share = float(complex.volumes[order[most:]].sum() / complex.volumes.sum())
    note = f"The {count - most:,} smallest are not drawn ({100 * share:.2g} % of the area)."
    return np.sort(order[:most]), note


def _polygons(complex: Complex, chosen: IntArray) -> dict[str, np.ndarray]:
    inside = complex.structure.vertices_of(2)
    sizes = np.diff(inside.indptr)[chosen]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
    corners = inside.indices[np.repeat(inside.indptr[chosen], sizes) + within]
    return {
        "vertices": complex.vertices.astype(np.float32).reshape(-1),
        "starts": starts.astype(np.uint32),
        "corners": corners.astype(np.uint32),
    }


def _edges(
    complex: Complex, lines: _Lines, rows: IntArray, layer: IntArray, sides: IntArray, regions: int
) -> dict[str, np.ndarray]:
    """The lines between regions: ends, neuron, layer, jump of the gradient, and which of them bound a region."""
    ends = complex.structure.boundary[0].indices.reshape(-1, 2)[lines.cell[rows]]
    edge, side = np.nonzero(sides >= 0)
    owner = sides[edge, side]
    order = np.argsort(owner, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=regions))])
    with np.errstate(over="ignore"):
        weight = lines.weight[rows].astype(np.float32)
    return {
        "edges": ends.astype(np.uint32).reshape(-1),
        "edge_neuron": lines.neuron[rows].astype(np.int32),
        "edge_layer": layer.astype(np.uint16),
        "edge_weight": weight,
        "edge_visible": lines.visible[rows].astype(np.uint8),
        "edge_starts": starts.astype(np.uint32),
        "edge_list": edge[order].astype(np.uint32),
        "edge_order": np.argsort(layer, kind="stable").astype(np.uint32),
    }


def maps_of(complex: Complex, chosen: IntArray) -> FloatArray:
    """Coefficients and constants ``(regions, outputs, 3)`` of the outputs that are told."""
    matrix, offset = complex.affine_maps
    told = max(1, min(complex.net.out_size, MOST_MAPS // max(1, len(chosen))))
    return np.concatenate([matrix[chosen, :told], offset[chosen, :told, None]], axis=2)


def packed_signs(signs: SignArray) -> dict[str, np.ndarray]:
    """Two bits for every sign that varies, as the difference to the first row."""
    varying = np.flatnonzero((signs != signs[:1]).any(axis=0))
    wide = -len(varying) % 4
    two = np.pad(signs[:, varying] + 1, ((0, 0), (0, wide))).astype(np.uint8).reshape(len(signs), -1, 4)
    packed = two[:, :, 0] | two[:, :, 1] << 2 | two[:, :, 2] << 4 | two[:, :, 3] << 6
    packed[1:] ^= packed[0]
    return {
        "signs": packed.reshape(-1),
        "varying": varying.astype(np.uint32),
        "constant_signs": (signs[0] + 1).astype(np.uint8),
    }


def shades(complex: Complex, chosen: IntArray) -> dict[str, np.ndarray]:
    """What the colours tell that the maps do not: the largest output at the middle, and how many neurons are on."""
    pooled = complex.view.net.layout.pooled
    active = (complex.sign_vectors[chosen][:, ~pooled] > 0).sum(axis=1)
    found = {
        "active": active.astype(np.uint32),
        "span": np.array([active.min(), active.max()], dtype=np.uint32),
    }
    if complex.net.out_size > 1:
        matrix, offset = complex.affine_maps
        middle = np.einsum("rki,ri->rk", matrix[chosen], complex.points[chosen]) + offset[chosen]
        found["classes"] = middle.argmax(axis=1).astype(np.uint16)
    return found


def _axes(complex: Complex) -> list[str]:
    if isinstance(complex.domain, Plane):
        return ["s", "t"]
    frame = complex.view.frame
    free = [0, 1] if frame is None else [int(np.flatnonzero(frame[0][:, k])[0]) for k in range(2)]
    return [f"x{k}" for k in free]


def layers_of(complex: Complex, neurons: IntArray) -> list[dict[str, Any]]:
    """Name, place and size of every layer, and those of its neurons that make a line here."""
    there = np.unique(neurons)
    found = []
    for number, place in enumerate(complex.view.net.layout.places, start=1):
        kind = "pool" if isinstance(place.node, MaxPool) else "layer"
        visible = there[(there >= place.start) & (there < place.stop)]
        found.append(
            {
                "name": f"{kind} {number}",
                "first": place.start,
                "size": place.node.num_signs,
                "visible": visible.tolist(),
            }
        )
    return found


def _ranges(layer: IntArray, count: int) -> list[list[int]]:
    stops = np.cumsum(np.bincount(layer, minlength=count)).tolist()
    return [[a, b] for a, b in zip([0, *stops[:-1]], stops, strict=True)]


def _marks(marks: Marks, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if marks.points is not None:
        points = real_array(marks.points, "points", ndim=2)
        if points.shape[1] != 2:
            raise InputError(f"points: expected two coordinates of the picture each, got shape {points.shape}")
        step = -(-len(points) // MOST_POINTS)
        arrays["points"] = points[::step].astype(np.float32).reshape(-1)
        if marks.labels is not None:
            arrays["labels_of_points"] = np.asarray(marks.labels)[::step].astype(np.uint16)
    return {"pictures": [{"at": list(at), "png": b64encode(data).decode()} for at, data in marks.pictures]}


def title_of(complex: Complex) -> str:
    """What a picture of the complex shows."""
    return f"{complex.num_regions} linear regions of {_short(complex.net.architecture)} on {complex.domain}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
