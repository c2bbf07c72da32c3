"""What does a network learn first? Eigenfunctions of its tangent kernel on an interval, at the start and trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fiberscope as fs


def main() -> None:
    X = np.linspace(-1, 1, 200)[:, None]
    y = np.sin(4 * X)
    runs = fs.train_many((1, 16, 16, 1), (X, y), seeds=[0], epochs=200, batch_size=20, checkpoints=[0, 200])
    with fs.plot.house_style():
        figure = Figure(figsize=(10.0, 3.6), layout="constrained")
        axes = figure.subplots(1, 2)
        for ax, (name, epoch) in zip(axes, {"at the start": 0, "trained": 200}.items(), strict=True):
            found = fs.kernel_eigenfunctions(runs.checkpoints[epoch][0], X, count=4)
            held = float((found.coefficients(y) ** 2).sum() / (y**2).mean())
            print(f"{name}: {found}; they hold {held:.0%} of the sine")
            fs.plot.eigenfunctions(found, ax=ax).set_title(f"{name}: {held:.0%} of the sine")
    fs.plot.save_figure(axes[0], Path("eigenfunctions.png"))


if __name__ == "__main__":
    main()
