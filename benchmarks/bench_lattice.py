"""n-dimensional complexes against edge subdivision in NumPy: vertices and edges alone, and the whole face lattice.

``python benchmarks/bench_lattice.py`` prints the memory of complexes per region, and what first calls cost.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import time
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.engines.lattice.skeleton import skeleton
from fiberscope.geometry.engines.lattice.start import box_start
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
    ask = {
        "vertices and edges": lambda: skeleton(net, box_start(box)),
        "all faces": lambda: lattice_cells(net, box),
    }[method]
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
    for widths in ((3, 16, 16, 1), (3, 32, 32, 1), (4, 32, 32, 1), (6, 16, 16, 1)):
        methods = ("vertices and edges", "all faces")
        found += [case(widths, method, max(widths) == 16 and widths[0] == 3) for method in methods]
    return found


def memory(widths: tuple[int, ...]) -> str:
    """Bytes per region: of the result, and by how much making it raised the peak of a fresh process."""
    net, box = random_network(widths), Box.cube(widths[0])
    lattice_cells(random_network((3, 4, 4, 1)), Box.cube(3))  # compile first
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    complex = Complex(net, box, lattice_cells(net, box))
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    kept, most = complex.bytes_per_region, peak / complex.num_regions
    return (
        f"{net.architecture}: {complex.num_regions:,} regions, {kept:,.0f} bytes each, {most:,.0f} while they are made"
    )


def first_calls() -> str:
    """CPU seconds of the first questions in a process that finds nothing compiled."""
    net, box, seconds = random_network((3, 4, 4, 1)), Box.cube(3), []
    for question in (lambda: lattice_cells(net, box), lambda: skeleton(net, box_start(box))):
        begin = time.process_time()
        question()
        seconds.append(time.process_time() - begin)
    return f"first calls: all faces {seconds[0]:.1f} s, then vertices and edges {seconds[1]:.1f} s"


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as fresh:
        for line in fresh.imap(memory, ((3, 32, 32, 1), (4, 32, 32, 1), (5, 16, 16, 1), (6, 16, 16, 1)), chunksize=1):
            print(line)
    with TemporaryDirectory() as cache:
        os.environ["NUMBA_CACHE_DIR"] = cache
        with context.Pool(1) as fresh:
            print(fresh.apply(first_calls))
