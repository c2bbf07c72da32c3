"""Which parameters are the same function? A hidden hyperplane moves, others are reflected, and nothing is seen.

A network 2-2-1-1 whose second-layer neuron is off on a whole first-layer line: that line is hidden. It can be moved,
and the other line reversed, without any change of the function. The share of networks without such freedom is exact.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import fiberscope as fs


def main() -> None:
    net = fs.Network(
        [[[1.0, 0.5], [-0.5, 1.0]], [[1.5, -1.0]], [[2.0]]],
        [[0.25, 0.125], [-0.5], [-0.75]],
    )
    print(fs.identifiability(net))
    found = fs.fiber(net)
    print(found)
    for component in found.components:
        print(f"  {component.text}: dimension {component.dimension}")

    moved = [fs.translate(net, 0, 0, t) for t in (0.0, 0.5, 1.0)]
    turned = [fs.translate(fs.flip(net, 0, 0, [1]), 0, 0, t) for t in (0.0, 0.5)]
    X = np.random.default_rng(0).normal(size=(10_000, 2)) * 4
    gap = max(float(np.abs(net(X) - other(X)).max()) for other in (*moved, *turned, *found.sample(20, seed=0)))
    print(f"largest difference of 25 members on 10,000 inputs: {gap:.1e}")

    path = found.path(moved[-1])
    assert path is not None
    print(f"a path inside the fiber: {path.text}")
    for widths in ((2, 2, 1, 1), (4, 3, 3, 1), (16, 8, 8, 1)):
        print(fs.identifiable_fraction(widths))

    axes = fs.plot.fiber([*moved, *turned], fs.Box.cube(2, -2.0, 2.0))
    for ax, title in zip(axes[0], ("given", "moved", "moved further", "reflected", "both"), strict=True):
        ax.set_title(title)
    fs.plot.save_figure(axes[0][0], Path("fiber.png"))


if __name__ == "__main__":
    main()
