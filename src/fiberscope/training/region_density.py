"""Region density where the data live: along segments, chords between classes, and circles around points.

All counts are exact (:mod:`fiberscope.geometry.curves`). Only the first points are used, always the same ones, so that
records of one run can be compared; the curves do not move while the network does.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from fiberscope.errors import InputError
from fiberscope.geometry.curves.chain import polyline_breaks
from fiberscope.geometry.curves.curve import Circle, Polyline
from fiberscope.geometry.curves.planar_curves import planar_breaks
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray

POINTS = 16
"""Tracked points that the curves go through."""

_PAIRS = 24
"""Chords of each kind."""


def segment_regions(net: Network, inputs: FloatArray) -> dict[str, Any]:
    """Along the chain through the first points: ``breakpoints``, ``length`` and their quotient ``density``."""
    points = inputs[: POINTS + 1]
    moves = np.concatenate([[True], (points[1:] != points[:-1]).any(axis=1)])
    if moves.sum() < 2:
        raise InputError("quantity segment_regions: expected two different tracked points")
    return _along(net, [Polyline(points[moves])])


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
    return {kind: _along(net, found) for kind, found in chords.items() if found}


def circle_regions(net: Network, inputs: FloatArray) -> dict[str, Any]:
    """``mean`` and ``largest`` number of regions of a loop, on circles of half the distance to the next tracked point.

    They lie in one plane of the input space, drawn once for all runs.
    """
    if net.in_size < 2:
        raise InputError(f"quantity circle_regions: expected at least 2 inputs, got {net.in_size}")
    points = np.unique(inputs, axis=0)
    if len(points) < 2:
        raise InputError("quantity circle_regions: expected two different tracked points")
    plane = np.linalg.qr(np.random.default_rng(0).normal(size=(points.shape[1], 2)))[0].T
    counts = []
    for center in inputs[:POINTS]:
        away = np.linalg.norm(points - center, axis=1)
        circle = Circle(center, float(away[away > 0].min()) / 2, plane)
        counts.append(max(1, len(planar_breaks(net, circle).t)))
    return {"mean": float(np.mean(counts)), "largest": int(max(counts))}


def _along(net: Network, chains: list[Polyline]) -> dict[str, Any]:
    found = sum(len(polyline_breaks(net, chain).t) for chain in chains)
    length: FloatArray = np.array([chain.length for chain in chains])
    return {"breakpoints": found, "length": float(length.sum()), "density": found / float(length.sum())}
