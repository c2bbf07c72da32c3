"""What lies between three images? Draws ``slice_through_images.png``.

A network learns to read digits of 8 by 8 pixels. The plane through three of them, a 0, a 3 and a 6, is cut into its
exact linear regions. On the left every region has a colour of its own, on the right it is the class that wins there.
"""

from __future__ import annotations

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import fiberscope as fs


def main() -> None:
    data = fs.load_dataset("digits")
    X, y = data.inputs.reshape(len(data.inputs), -1), data.targets
    net = fs.train_many((64, 48, 48, 10), (X, y), seeds=[0], epochs=30, batch_size=64, loss="cross_entropy").networks[0]
    corners = [X[np.flatnonzero(y == digit)[0]] for digit in (0, 3, 6)]
    plane = fs.Plane.through(*corners, margin=0.4)
    found = fs.regions(net, plane)
    print(f"{np.mean(net(X).argmax(axis=1) == y):.1%} of {len(y)} digits are read right")
    print(f"{found.num_regions} regions on the plane through three of them, verified: {found.verify().ok}")

    ticks = np.linspace(-0.4, 1.4, 300)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    winners = net(plane.origin + grid[:, :1] * plane.u + grid[:, 1:] * plane.v).argmax(axis=1)
    print("classes that win somewhere on it:", *np.unique(winners))
    with fs.plot.house_style():
        figure = Figure(figsize=(13.5, 6.3), layout="constrained")
        left, right = figure.subplots(1, 2)
        fs.plot.regions(found, ax=left)
        left.set_title(f"{found.num_regions} linear regions (colours only tell neighbours apart)")
        extent = (-0.4, 1.4, -0.4, 1.4)
        colours = ListedColormap(fs.plot.MOSAIC)
        right.imshow(winners.reshape(300, 300), origin="lower", extent=extent, cmap=colours, vmin=0, vmax=9)
        right.set_title("what the network reads there")
        seen = [Patch(color=fs.plot.MOSAIC[k], label=f"reads {k}") for k in np.unique(winners)]
        figure.legend(handles=seen, loc="outside right center", title="right: the class that wins")
        for ax in (left, right):
            ax.set_axis_off()
            fs.plot.images_at(ax, [image.reshape(8, 8) for image in corners])
    fs.plot.save_figure(left, "slice_through_images.png", dpi=100)


if __name__ == "__main__":
    main()
