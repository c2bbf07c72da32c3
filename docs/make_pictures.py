"""Draw the pictures of the docs from the library: ``.venv/bin/python docs/make_pictures.py``.

The pictures are kept in the tree, because the README shows them too; run this again when they should change.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from fiberscope.network.network import Network

OUT = Path(__file__).resolve().parent / "_static"


def draw_patterns(file: Path, size: int = 500) -> None:
    """The activation patterns of a small network on a square, and the function with the same boundaries."""
    net = Network.random((2, 10, 10, 1), seed=4)
    axis = np.linspace(-2.5, 2.5, size)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    patterns = net.pattern(grid)
    _, index = np.unique(patterns, axis=0, return_inverse=True)
    # neighbouring regions get unlike colours: the order of a random permutation, not of the patterns
    shuffled = np.random.default_rng(0).permutation(index.max() + 1)[index.reshape(size, size)]

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 5), constrained_layout=True)
    extent = (axis[0], axis[-1], axis[0], axis[-1])
    left.imshow(shuffled, origin="lower", extent=extent, cmap="Spectral", interpolation="nearest")
    right.contourf(axis, axis, net(grid).reshape(size, size), levels=30, cmap="viridis")
    for layer, values in enumerate(net.preactivations(grid)):
        colour, width = ("white", 1.2) if layer == 0 else ("darkorange", 1.2)
        for neuron in range(values.shape[1]):
            plane = values[:, neuron].reshape(size, size)
            if plane.min() < 0 < plane.max():
                right.contour(axis, axis, plane, levels=[0.0], colors=colour, linewidths=width)
    right.set_aspect("equal")
    left.set_title(f"{index.max() + 1} activation patterns on the grid")
    right.set_title("the function; where layer 1 (white) and 2 (orange) bend")
    for axes in (left, right):
        axes.set_xticks([])
        axes.set_yticks([])
    figure.savefig(file, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    mpl.use("Agg")
    OUT.mkdir(exist_ok=True)
    draw_patterns(OUT / "patterns.png")
