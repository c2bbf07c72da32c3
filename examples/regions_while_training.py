"""How do the linear regions of a network change while it learns? Draws ``regions_while_training.png``.

A 2-24-24-1 network learns two spirals. At six moments its regions on the square are enumerated exactly and drawn over
the output. The count first falls, then grows well beyond where it began, and the lines gather where the classes meet.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import fiberscope as fs

EPOCHS = (0, 5, 20, 60, 150, 400)


def spirals(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two interleaved spirals in the unit disc, labelled -1 and 1."""
    rng = np.random.default_rng(seed)
    radius = np.sqrt(rng.uniform(0.02, 1, count))
    arm = np.stack([radius * np.cos(3 * np.pi * radius), radius * np.sin(3 * np.pi * radius)], axis=1)
    points = np.concatenate([arm, -arm]) + rng.normal(0, 0.015, (2 * count, 2))
    return points, np.repeat([-1.0, 1.0], count)


def main() -> None:
    X, y = spirals(300, seed=0)
    runs = fs.train_many(
        (2, 24, 24, 1), (X, y[:, None]), seeds=[1], epochs=EPOCHS[-1], batch_size=100, lr=0.01, checkpoints=EPOCHS
    )
    box = fs.Box.cube(2, -1.2, 1.2)
    figure = Figure(figsize=(12, 8.3), layout="constrained")
    panels = figure.subplots(2, 3)
    for ax, epoch in zip(panels.flat, EPOCHS, strict=True):
        net = runs.checkpoints[epoch][0]
        complex = fs.regions(net, box)
        error = float(np.mean(np.sign(net(X)[:, 0]) != y))
        fs.plot.regions(complex, color="value", points=X, ax=ax, reach=2.0)
        ax.set_title(f"epoch {epoch}: {complex.num_regions} regions, {error:.0%} wrong")
        ax.set_xticks([])
        ax.set_yticks([])
        print(f"epoch {epoch:4}: {complex.num_regions} regions, {error:.1%} of the points wrong, verified: ", end="")
        print(complex.verify().ok)
    figure.colorbar(ax.collections[0], ax=panels, label="output, on one scale", shrink=0.6, extend="both")
    figure.supxlabel("lines: neurons of the first layer blue, of the second orange; dots: the data", fontsize=10)
    fs.plot.save_figure(ax, "regions_while_training.png", dpi=110)


if __name__ == "__main__":
    main()
