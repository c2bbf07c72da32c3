"""How the cost of every engine grows with the number of regions, when networks grow in width or in depth.

``python benchmarks/growth_of_networks.py`` asks the public functions, prints a row for every network and the exponents
``p`` of ``seconds = c * regions ** p`` over each series. Regions grow by a factor of about a hundred where networks of
a size that people have allow it (along a segment their number grows with that of the layers, no faster). CPU seconds of
one thread (set OMP_NUM_THREADS=1), the best of three; the first network of a series is asked once before, for
compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import fiberscope as fs
from growth import best

Widths = tuple[int, ...]


def inside(widths: Widths) -> tuple[Callable[[], int], str]:
    net, box = fs.Network.random(widths, 0), fs.Box.cube(widths[0])
    return lambda: int(fs.count_regions(net, box)), net.architecture


def whole(widths: Widths) -> tuple[Callable[[], int], str]:
    net, box = fs.Network.random(widths, 0), fs.Box.cube(widths[0])
    return lambda: fs.regions(net, box).num_regions, net.architecture


def along(widths: Widths) -> tuple[Callable[[], int], str]:
    net = fs.Network.random(widths, 0)
    ends = np.random.default_rng(0).uniform(-1, 1, (2, widths[0]))
    return lambda: fs.regions_along(net, fs.Segment(*ends)).num_regions, net.architecture


def visited(widths: Widths) -> tuple[Callable[[], int], str]:
    net, box = fs.Network.random(widths, 0), fs.Box.cube(widths[0])
    return lambda: fs.count_by_traversal(net, box).count, net.architecture


def deep(inputs: int, width: int, layers: Sequence[int]) -> list[Widths]:
    return [(inputs, *(width,) * n, 1) for n in layers]


SERIES: list[tuple[str, Callable[[Widths], tuple[Callable[[], int], str]], list[Widths]]] = [
    ("count in the plane, width", inside, [(2, w, w, 1) for w in (48, 96, 192, 384, 768)]),
    ("count in the plane, depth", inside, deep(2, 48, (1, 2, 4, 7, 10))),
    ("complex in the plane, width", whole, [(2, w, w, 1) for w in (32, 64, 128, 256, 384)]),
    ("complex in the plane, depth", whole, deep(2, 48, (1, 2, 4, 7, 10))),
    ("segment, width", along, [(784, w, w, 1) for w in (32, 128, 512, 2048, 4096)]),
    ("segment, depth", along, deep(64, 64, (1, 2, 4, 8, 16))),
    ("count in three dimensions, width", inside, [(3, w, w, 1) for w in (10, 16, 24, 36, 48)]),
    ("count in three dimensions, depth", inside, deep(3, 24, (1, 2, 3, 4, 6))),
    ("all faces in three dimensions, width", whole, [(3, w, w, 1) for w in (10, 16, 24, 36, 48)]),
    ("all faces in three dimensions, depth", whole, deep(3, 24, (1, 2, 3, 4, 6))),
    ("traversal in eight dimensions, width", visited, [(8, w, w, 1) for w in (5, 6, 7, 8, 9)]),
    ("traversal in eight dimensions, depth", visited, deep(8, 7, (1, 2, 3, 4))),
]


def main() -> None:
    found = []
    for name, ask, networks in SERIES:
        counts, seconds = [], []
        ask(networks[0])[0]()
        for widths in networks:
            question, architecture = ask(widths)
            counts.append(question())
            seconds.append(best(question))
            rate = counts[-1] / seconds[-1]
            told = f"{counts[-1]:,} regions, {seconds[-1]:.3g} s, {rate:,.0f} per second"
            print(f"{name}: {architecture}, {told}", flush=True)
        power = float(np.polyfit(np.log(counts), np.log(seconds), 1)[0])
        last = float(np.diff(np.log(seconds[-2:]))[0] / np.diff(np.log(counts[-2:]))[0])
        found.append(f"| {name} | {counts[0]:,} to {counts[-1]:,} | {power:.2f} | {last:.2f} |")
    print("\n| engine and what grows | regions | exponent | of the last step |\n|---|---|---:|---:|")
    print("\n".join(found))


if __name__ == "__main__":
    main()
