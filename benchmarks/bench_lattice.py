"""n-dimensional complexes against edge subdivision in NumPy: vertices and edges alone, and the whole face lattice."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fiberscope.geometry.domains import Box
from fiberscope.geometry.lattice import lattice_cells
from fiberscope.geometry.skeleton import skeleton
from fiberscope.network.network import Network
from harness import Case
from reference_edges import edge_subdivision


def random_network(widths: tuple[int, ...]) -> Network:
    """He-normal weights and biases from seed 0, rounded to float32."""
    rng = np.random.default_rng(0)
    arrays: list[list[Any]] = []
    for fan_in, width in itertools.pairwise(widths):
        scale = np.sqrt(2 / fan_in)
        arrays.append([np.float32(rng.normal(0, scale, (width, fan_in))), np.float32(rng.normal(0, scale, width))])
    return Network([w for w, _ in arrays], [b for _, b in arrays])


def counts(found: Any) -> tuple[int, int]:
    """Numbers of vertices and edges, whatever holds them."""
    if isinstance(found, tuple):
        return len(found[0]), len(found[1])
    if hasattr(found, "edges"):
        return len(found.points), len(found.edges)
    return found.count(0), found.count(1)


def case(widths: tuple[int, ...], method: str, quick: bool) -> Case:
    net, box = random_network(widths), Box.cube(widths[0])
    ask = {"vertices and edges": lambda: skeleton(net, box), "all faces": lambda: lattice_cells(net, box)}[method]
    return Case(
        method=f"{method}, against edge subdivision (vertices and edges, not certified)",
        network=net.architecture,
        ours=ask,
        reference=lambda: edge_subdivision(net),
        agree=lambda a, b: counts(a) == counts(b),
        quick=quick,
    )


def cases() -> list[Case]:
    found = []
    for widths, quick in (((3, 16, 16, 1), True), ((3, 32, 32, 1), False), ((5, 16, 16, 1), False)):
        found += [case(widths, method, quick) for method in ("vertices and edges", "all faces")]
    return found
