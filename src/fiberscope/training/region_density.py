"""Region density where the data live: along segments, chords between classes, and circles around points.

All counts are exact (:mod:`fiberscope.geometry.curves`). Only the first points are used, always the same ones, so that
records of one run can be compared; the curves do not move while the network does, but for adversarial paths. Where the
boundaries are is a matter of the hidden layers: while these do not change, as when a head is trained or between two
updates, counts on fixed curves are those found before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from fiberscope.errors import InputError, NotGenericError
from fiberscope.geometry.curves.chain import polyline_breaks
from fiberscope.geometry.curves.curve import Circle, Polyline
from fiberscope.geometry.curves.planar_curves import planar_breaks
from fiberscope.geometry.domains import Box, Plane
from fiberscope.geometry.surfaces.round_regions import round_regions
from fiberscope.geometry.surfaces.shapes import Sphere
from fiberscope.geometry.topology import level_topology
from fiberscope.network.comparison import identical
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import FloatArray

POINTS = 16
"""Tracked points that the curves go through."""

_PAIRS = 24
"""Chords of each kind."""

_SPHERES = 4
"""Tracked points with a sphere around each; a sphere takes as long as a complex in three dimensions."""

_STEPS = 8
"""Steps of an adversarial path."""

_known: deque[tuple[str, FloatArray, Network, dict[str, Any]]] = deque(maxlen=8)
"""Counts of the networks seen last."""


def segment_regions(net: Network, inputs: FloatArray) -> dict[str, Any]:
    """Along the chain through the first points: ``breakpoints``, ``length`` and their quotient ``density``."""
    points = inputs[: POINTS + 1]
    moves = np.concatenate([[True], (points[1:] != points[:-1]).any(axis=1)])
    if moves.sum() < 2:
        raise InputError("quantity segment_regions: expected two different tracked points")
    return _remembered("segments", net, points, lambda: _along(net, [Polyline(points[moves])]))


def chord_regions(net: Network, inputs: FloatArray, labels: npt.NDArray[Any]) -> dict[str, Any]:
    """The same three numbers ``within`` one class and ``between`` two, on at most 24 chords each."""
    if labels.dtype.kind == "f":
        raise InputError("quantity chord_regions: expected labels, got floating targets")
    points = inputs
    chords: dict[str, list[Polyline]] = {"within": [], "between": []}
    for i, j in combinations(range(min(len(points), 4 * POINTS)), 2):
        kind = "within" if labels[i] == labels[j] else "between"
        if len(chords[kind]) < _PAIRS and (points[i] != points[j]).any():
            chords[kind].append(Polyline(points[[i, j]]))
    used = [chain.points for found in chords.values() for chain in found]
    return _remembered(
        "chords", net, np.array(used), lambda: {kind: _along(net, found) for kind, found in chords.items() if found}
    )


def circle_regions(net: Network, inputs: FloatArray) -> dict[str, Any]:
    """``mean`` and ``largest`` number of regions of a loop, on circles of half the distance to the next tracked point.

    They lie in one plane of the input space, drawn once for all runs.
    """
    if net.in_size < 2:
        raise InputError(f"quantity circle_regions: expected at least 2 inputs, got {net.in_size}")
    points = np.unique(inputs, axis=0)
    if len(points) < 2:
        raise InputError("quantity circle_regions: expected two different tracked points")
    return _remembered("circles", net, inputs, lambda: _on_circles(net, inputs, points))


def _on_circles(net: Network, inputs: FloatArray, points: FloatArray) -> dict[str, Any]:
    plane = np.linalg.qr(np.random.default_rng(0).normal(size=(points.shape[1], 2)))[0].T
    counts = []
    for center in inputs[:POINTS]:
        away = np.linalg.norm(points - center, axis=1)
        circle = Circle(center, float(away[away > 0].min()) / 2, plane)
        counts.append(max(1, len(planar_breaks(net, circle).t)))
    return {"mean": float(np.mean(counts)), "largest": int(max(counts))}


def _remembered(kind: str, net: Network, points: FloatArray, count: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``count`` gives, or gave for the same points and hidden layers: the last affine map bends nothing."""
    last = max((i for i, node in enumerate(net.nodes) if not isinstance(node, Affine)), default=-1)
    hidden = Network.from_nodes(net.nodes[: last + 1], net.input_shape) if last >= 0 else net
    for entry in _known:
        if entry[0] == kind and np.array_equal(entry[1], points) and identical(entry[2], hidden):
            return dict(entry[3])
    found = count()
    _known.append((kind, points.copy(), hidden, found))
    return dict(found)


def _along(net: Network, chains: list[Polyline]) -> dict[str, Any]:
    found = sum(len(polyline_breaks(net, chain).t) for chain in chains)
    length: FloatArray = np.array([chain.length for chain in chains])
    return {"breakpoints": found, "length": float(length.sum()), "density": found / float(length.sum())}


def sphere_regions(net: Network, inputs: FloatArray) -> dict[str, Any]:
    """``mean`` and ``largest`` number of regions on round spheres about the first points, exactly.

    Their radii are half the distance to the next tracked point; they lie in one space of three dimensions, drawn once
    for all runs. A sphere that a face of the complex touches without crossing it counts as ``open``, not as a number.
    """
    if net.in_size < 3:
        raise InputError(f"quantity sphere_regions: expected at least 3 inputs, got {net.in_size}")
    points = np.unique(inputs, axis=0)
    if len(points) < 2:
        raise InputError("quantity sphere_regions: expected two different tracked points")
    return _remembered("spheres", net, inputs, lambda: _on_spheres(net, inputs, points))


def _on_spheres(net: Network, inputs: FloatArray, points: FloatArray) -> dict[str, Any]:
    frame = np.linalg.qr(np.random.default_rng(0).normal(size=(points.shape[1], 3)))[0].T
    counts, still = [], 0
    for center in inputs[:_SPHERES]:
        away = np.linalg.norm(points - center, axis=1)
        try:
            found = round_regions(net, Sphere(center, float(away[away > 0].min()) / 2, 0, frame))
            counts.append(found.num_regions)
        except NotGenericError:
            still += 1
    mean = float(np.mean(counts)) if counts else None
    return {"mean": mean, "largest": max(counts, default=None), "open": still}


def adversarial_regions(net: Network, inputs: FloatArray, targets: npt.NDArray[Any]) -> dict[str, Any]:
    """Along paths on which the loss grows: ``breakpoints``, ``length``, ``density``, and ``fooled``, a share of paths.

    From each of the first points eight steps of one length go up the gradient of the loss (cross entropy of labels,
    else squared error), together half the distance to the next tracked point. The gradients are those of the affine
    map of the region in which a step begins. A path is fooled if the largest output at its end is another one than at
    its start; None without labels. Where the gradient vanishes a path ends.
    """
    points = np.unique(inputs, axis=0)
    if len(points) < 2:
        raise InputError("quantity adversarial_regions: expected two different tracked points")
    if targets.dtype.kind != "f" and not 0 <= targets.min() <= targets.max() < net.out_size:
        raise InputError(f"quantity adversarial_regions: expected labels below {net.out_size}, got {targets.max()}")
    paths, fooled = [], []
    for x, target in zip(inputs[:POINTS], targets, strict=False):
        away = np.linalg.norm(points - x, axis=1)
        path = _ascent(net, x, target, float(away[away > 0].min()) / 2)
        if len(path) > 1:
            paths.append(Polyline(np.array(path)))
        if targets.dtype.kind != "f":
            ends = net(np.array([path[0], path[-1]])).argmax(axis=1)
            fooled.append(bool(ends[0] != ends[1]))
    if not paths:
        return {"breakpoints": 0, "length": 0.0, "density": None, "fooled": None if not fooled else 0.0}
    return {**_along(net, paths), "fooled": float(np.mean(fooled)) if fooled else None}


def _ascent(net: Network, x: FloatArray, target: Any, length: float) -> list[FloatArray]:
    """The corners of a path up the loss of one point."""
    path = [x]
    for _ in range(_STEPS):
        matrix, offset = net.affine_at(path[-1])
        output = matrix @ path[-1] + offset
        if np.asarray(target).dtype.kind == "f":
            slope = output - target
        else:
            shifted = np.exp(output - output.max())
            slope = shifted / shifted.sum()
            slope[int(target)] -= 1.0
        gradient = slope @ matrix
        size = float(np.linalg.norm(gradient))
        if not 0 < size < np.inf:
            break
        after = path[-1] + gradient * (length / _STEPS / size)
        if not (after != path[-1]).any():
            break
        path.append(after)
    return path


def boundary_topology(net: Network, inputs: FloatArray) -> dict[str, Any]:
    """Betti numbers of the decision boundary and of both sides, exactly.

    The boundary is where a single output vanishes, or where the first two outputs are equal. With one to three inputs
    on the box around the tracked points, otherwise on the triangle's plane through the first three of them.
    """
    if net.in_size <= 3:
        low, high = inputs.min(axis=0), inputs.max(axis=0)
        if not (low < high).all():
            raise InputError("quantity boundary_topology: expected tracked points that differ in every coordinate")
        domain: Box | Plane = Box(low, high)
    else:
        if len(inputs) < 3 or np.linalg.matrix_rank(inputs[1:3] - inputs[0]) < 2:
            raise InputError("quantity boundary_topology: expected three tracked points that are not on one line")
        domain = Plane.through(*inputs[:3])
    asked = net
    if net.out_size > 1:
        row = np.zeros((1, net.out_size))
        row[0, :2] = -1.0, 1.0
        asked = Network.from_nodes([*net.nodes, Affine(len(net.nodes), Dense(row), None)], net.input_shape)
    found = level_topology(asked, domain)
    return {"boundary": found.boundary, "below": found.below, "above": found.above}
