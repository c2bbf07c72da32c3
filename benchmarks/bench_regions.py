"""Regions in the plane: counted, and as a whole complex, against plain splitting of polygons in Python; two threads
against one; and the slice of a large network.

Plain Python is the reference that fits into one run up to 2-128-128-1. Above, counting is measured against building the
whole complex. For comparison, the published times of SyReNN (C++, one thread, on another machine) for the same networks
are .039 s for 2-64-64-1 and 1.13 s for 2-256-256-1; on the slice of 784-512-512-512-10 it fails.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from fiberscope.geometry.domains import Box, Plane
from fiberscope.geometry.engines.planar.engine import planar_cells, planar_count
from fiberscope.network.network import Network
from harness import Case
from reference_polygons import regions

SQUARE = Box.cube(2)


def network(widths: tuple[int, ...]) -> Network:
    """He-normal weights and biases from seed 0, rounded to float32."""
    rng = np.random.default_rng(0)
    weights, biases = [], []
    for m, n in pairwise(widths):
        weights.append(rng.normal(0, np.sqrt(2 / m), (n, m)).astype(np.float32).astype(np.float64))
        biases.append(rng.normal(0, np.sqrt(2 / m), n).astype(np.float32).astype(np.float64))
    return Network(weights, biases)


def domain(widths: tuple[int, ...]) -> Box | Plane:
    """The square, or for more than two inputs the slice that two normal vectors span through the origin."""
    if widths[0] == 2:
        return SQUARE
    u, v = np.random.default_rng(10_000).normal(size=(2, widths[0])).astype(np.float32).astype(np.float64)
    return Plane(np.zeros(widths[0]), u, v, SQUARE)


def counter(widths: tuple[int, ...]) -> Callable[[], int]:
    net, where = network(widths), domain(widths)
    return lambda: int(planar_count(net, where))


def builder(widths: tuple[int, ...]) -> Callable[[], int]:
    net, where = network(widths), domain(widths)
    return lambda: planar_cells(net, where).count(2)


def plain(widths: tuple[int, ...]) -> Callable[[], int]:
    net = network(widths)
    weights, biases = list(net.weights), list(net.biases)
    return lambda: len(regions(weights, biases))


def cases() -> list[Case]:
    found = []
    for widths in [(2, 16, 16, 1), (2, 64, 64, 1), (2, 32, 32, 32, 1), (2, 128, 128, 1)]:
        name, quick = "-".join(map(str, widths)), max(widths) == 16
        found.append(Case("planar count", name, counter(widths), plain(widths), quick=quick))
        found.append(Case("planar complex", name, builder(widths), plain(widths), quick=quick))
    large = (2, 256, 256, 1)
    found.append(
        Case("planar count, against the whole complex", "2-256-256-1", counter(large), builder(large), quick=False)
    )
    return found
