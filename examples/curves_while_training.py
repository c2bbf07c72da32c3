"""How do the regions along a circle and a tractrix change while a network learns a wave on them?

Two networks 2-10-16-1 learn ``sin(4 t)``, one on the circle, one on the tractrix. The first picture shows the regions
of the plane under both curves, before and after; the second one the curves unrolled, a bar for every fifth epoch; the
movie follows the circle.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import fiberscope as fs

EPOCHS = 60
CURVES = {
    "circle": (fs.Circle(), fs.Box.cube(2, -1.4, 1.4)),
    "tractrix": (fs.Tractrix(), fs.Box([-2.2, -0.5], [2.2, 1.4])),
}


def train(name: str) -> list[fs.Network]:
    """The network after every epoch."""
    moments = range(EPOCHS + 1)
    runs = fs.train_many(
        (2, 10, 16, 1),
        fs.load_dataset(name),
        seeds=[1],
        epochs=EPOCHS,
        batch_size=32,
        init="torch",
        checkpoints=moments,
    )
    return [runs.checkpoints[epoch][0] for epoch in moments]


def main() -> None:
    planes = Figure(figsize=(12, 6.2), layout="constrained")
    unrolled = Figure(figsize=(12, 5), layout="constrained")
    panels, bars = planes.subplots(2, 3, height_ratios=[2.3, 1]), unrolled.subplots(1, 2)
    trained = {name: train(name) for name in CURVES}
    for row, bar, (name, (curve, box)) in zip(panels, bars, CURVES.items(), strict=True):
        for ax, epoch in zip(row, (0, 10, EPOCHS), strict=True):
            net = trained[name][epoch]
            found = fs.regions_along(net, curve)
            fs.plot.under_curve(fs.regions(net, box), found, color="value", ax=ax)
            ax.set_title(f"epoch {epoch}: {found.num_regions} regions along the {name}")
            ax.set_axis_off()
        followed = [fs.regions_along(net, curve) for net in trained[name][::5]]
        fs.plot.curve_bars(followed, labels=[f"epoch {5 * k}" for k in range(len(followed))], ax=bar)
        bar.set_title(name)
        counts = [found.num_regions for found in followed]
        print(f"{name}: {counts[0]} regions at first, {counts[-1]} in the end, all certified: ", end="")
        print(all(found.certified for found in followed))
    fs.plot.save_figure(panels[0, 0], "curves_while_training.png", dpi=100)
    fs.plot.save_figure(bars[0], "curves_unrolled.png", dpi=100)

    movie = Figure(figsize=(5.2, 6.6), layout="constrained")
    above, below = movie.subplots(2, 1, height_ratios=[5, 1])
    curve, box = CURVES["circle"]

    def draw(epoch: int) -> None:
        found = fs.regions_along(trained["circle"][epoch], curve)
        fs.plot.under_curve(fs.regions(found.net, box), found, color="value", ax=above)
        above.set_title(f"epoch {epoch}")
        above.set_axis_off()
        fs.plot.curve_bars(found, labels=[f"{found.num_regions} regions"], ax=below)

    fs.plot.save_movie(movie, draw, EPOCHS // 2, "curves_while_training.gif", dpi=70)
    print("wrote two pictures and a movie;", "mean distance to the next boundary in the end:", end=" ")
    found = fs.regions_along(trained["circle"][-1], curve)
    print(f"{float(np.mean(found.distance(np.linspace(-3, 3, 500)))):.3f}")


if __name__ == "__main__":
    main()
