"""D = d + s? Functional dimension and proven dimension of the fiber over a grid of networks, and what is left between.

For every architecture some random networks (He-normal weights and biases; two, or as many as you say), all inputs.
*Closed* counts those without a gap, *algebraic* those whose algebraic Jacobian has the functional dimension for rank.
"""

from __future__ import annotations

import sys

import numpy as np

import fiberscope as fs

GRID = [(1, 3, 1), (2, 3, 1), (2, 6, 1), (1, 3, 3, 1), (1, 6, 6, 1), (2, 3, 3, 1), (2, 5, 5, 1), (2, 3, 3, 3, 1)]


def main(seeds: int) -> None:
    print("| network | D | d | gap | closed | certified | algebraic |")
    print("|---|---|---|---|---|---|---|")
    for widths in GRID:
        found = [fs.explain(fs.Network.random(widths, seed)) for seed in range(seeds)]
        ranks, gaps = [one.rank for one in found], [one.gap for one in found]
        pairs = [(one.rank, bound) for one in found for bound in one.bounds]
        met = sum(rank == bound.value for rank, bound in pairs if bound.name == "algebraic Jacobian")
        name = "-".join(map(str, widths))
        closed, certified = sum(gap == 0 for gap in gaps), sum(one.certified for one in found)
        print(
            f"| {name} | {found[0].num_parameters} | {np.mean(ranks):.1f} ({min(ranks)} to {max(ranks)}) "
            f"| {np.mean(gaps):.1f} | {closed} of {seeds} | {certified} of {seeds} | {met} of {seeds} |",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
