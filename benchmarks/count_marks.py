"""A hundred million regions: one wide layer, counted in pieces by processes, beside the crossings of its lines.

``python benchmarks/count_marks.py --width 24500 --jobs 2`` counts the regions of 2-24500-1 on a square by the public
function, lets the evidence put its pieces together again, and compares with the formula for lines: one region, one more
for every line that meets the square, and one more for every pair that crosses inside. The formula takes floats without
bounds; it is the check, not the answer.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import fiberscope as fs


def crossings(net: fs.Network) -> int:
    """Regions of one hidden layer in general position on the square, from all pairs of lines."""
    W, b = net.weights[0], net.biases[0]
    met = np.abs(W).sum(axis=1) > np.abs(b)
    W, b = W[met], b[met]
    pairs = 0
    for i in range(len(W) - 1):
        det = W[i, 0] * W[i + 1 :, 1] - W[i, 1] * W[i + 1 :, 0]
        x = np.abs(W[i, 1] * b[i + 1 :] - b[i] * W[i + 1 :, 1]) < np.abs(det)
        y = np.abs(W[i + 1 :, 0] * b[i] - W[i, 0] * b[i + 1 :]) < np.abs(det)
        pairs += int((x & y).sum())
    return 1 + len(W) + pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=24500, help="neurons of the hidden layer (default 24500)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    options = parser.parse_args()
    net = fs.Network.random((2, options.width, 1), 0)
    begin = time.perf_counter()
    progress = fs.show_progress(net.architecture)
    found = fs.count_regions(net, fs.Box.cube(2), jobs=options.jobs, progress=progress)
    seconds = time.perf_counter() - begin
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 2**20
    print(f"{net.architecture}: {found} regions in {found.method}, {seconds:.0f} s on the clock, {peak:.2f} GB")
    print(f"lines and crossings: {crossings(net)} regions")
    print(f"put together again: {found.tiling.verify(recount=0).ok}")


if __name__ == "__main__":
    main()
