"""Does the cost grow linearly with the number of regions? ``python benchmarks/growth.py FILE.png`` draws it.

One random network ``2-400-400-400-400-1`` on growing boxes: CPU seconds for the count alone and for the whole complex
with vertices, edges, polygons and signs, the best of three. Set OMP_NUM_THREADS=1 for one thread. (Across networks the
cost of a region also grows with their width, since every vertex carries the values of a layer.)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

import fiberscope as fs
from fiberscope.plot.style import INK, LAYERS, house_style, save_figure

WIDTHS = (2, 400, 400, 400, 400, 1)
RADII = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0, 1.7, 3.4)
LARGEST_COMPLEX = 200_000
MANY = 5_000
"""From here on the cost of a call itself is small beside that of the regions."""


def best(question: Callable[[], object], rounds: int = 3) -> float:
    """CPU seconds of the fastest of some rounds."""
    seconds = []
    for _ in range(rounds):
        begin = time.process_time()
        question()
        seconds.append(time.process_time() - begin)
        if seconds[-1] > 5:
            break
    return min(seconds)


def exponent(counts: list[int], seconds: list[float]) -> float:
    """The slope p of ``seconds = c * counts ** p``, fitted to the logarithms where there are many regions."""
    x, y = np.log(
        np.array([counts, seconds])[:, [c >= MANY and np.isfinite(t) for c, t in zip(counts, seconds, strict=True)]]
    )
    return float(np.polyfit(x, y, 1)[0])


def main(path: str) -> None:
    square = fs.Box.cube(2)
    fs.regions(fs.Network.random((2, 8, 8, 1), 0), square)
    fs.count_regions(fs.Network.random((2, 8, 8, 1), 0), square)  # compile first
    net = fs.Network.random(WIDTHS, 0)
    counts, counting, building = [], [], []
    for radius in RADII:
        box = fs.Box.cube(2, -radius, radius)
        counts.append(int(fs.count_regions(net, box)))
        counting.append(best(lambda box=box: fs.count_regions(net, box)))
        small = counts[-1] <= LARGEST_COMPLEX
        building.append(best(lambda box=box: fs.regions(net, box)) if small else np.nan)
        rates = [counts[-1] / t for t in (counting[-1], building[-1])]
        print(f"{box}: {counts[-1]:>9,} regions, counted at {rates[0]:>9,.0f}, built at ", end="")
        print(f"{rates[1]:>9,.0f} regions per second" if small else "-", flush=True)
    powers = [exponent(counts, seconds) for seconds in (building, counting)]
    print(f"exponents above {MANY:,} regions: whole complex {powers[0]:.2f}, count {powers[1]:.2f}")
    with house_style():
        ax = Figure(figsize=(7, 4.6), layout="constrained").add_subplot()
        ax.loglog(counts, building, "o-", color=LAYERS[1], label=f"whole complex, exponent {powers[0]:.2f}")
        ax.loglog(counts, counting, "o-", color=LAYERS[0], label=f"count, exponent {powers[1]:.2f}")
        line = counting[4] / counts[4] * np.array(counts)
        ax.loglog(counts, line, "--", color=INK, lw=0.8, label="linear")
        ax.set_xlabel("regions")
        ax.set_ylabel("CPU seconds")
        ax.set_title(f"One {net.architecture} network on growing boxes")
        ax.legend()
    save_figure(ax, path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "growth.png")
