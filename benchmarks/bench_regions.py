"""Regions on the square [-1, 1]^2: counted, and as a whole complex, against plain splitting of polygons in Python."""

from __future__ import annotations

import numpy as np

from fiberscope.geometry.domains import Box
from fiberscope.geometry.planar import planar_cells, planar_count
from fiberscope.network.network import Network
from harness import Case
from reference_polygons import regions


def network(widths: tuple[int, ...]) -> Network:
    """He-normal weights and biases from seed 0, rounded to float32."""
    net = Network.random(widths, 0)
    return Network(
        [w.astype(np.float32).astype(np.float64) for w in net.weights],
        [b.astype(np.float32).astype(np.float64) for b in net.biases],
    )


def case(widths: tuple[int, ...], whole: bool, quick: bool) -> Case:
    net, square = network(widths), Box.cube(2)
    weights, biases = list(net.weights), list(net.biases)
    return Case(
        method="planar complex" if whole else "planar count",
        network="-".join(map(str, widths)),
        ours=(lambda: planar_cells(net, square).count(2)) if whole else (lambda: int(planar_count(net, square))),
        reference=lambda: len(regions(weights, biases)),
        quick=quick,
    )


def cases() -> list[Case]:
    sizes = [(2, 16, 16, 1), (2, 64, 64, 1), (2, 32, 32, 32, 1), (2, 128, 128, 1)]
    return [case(widths, whole, quick=max(widths) == 16) for widths in sizes for whole in (False, True)]
