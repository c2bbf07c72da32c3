"""How far is it to the next kink, and what do the theorems on data geometry say about it?

A random network with narrow layers hides many of its boundaries: the nearest one is often invisible. Its distances are
drawn as a map. Then random networks are counted on the circle and on the tractrix, beside what Theorem 1 expects.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fiberscope as fs


def main() -> None:
    net = fs.Network.random((2, 8, 4, 3, 1), seed=3)
    box = fs.Box.cube(2, -2.0, 2.0)
    line = np.linspace(-2, 2, 120)
    grid = np.stack(np.meshgrid(line, line), axis=2).reshape(-1, 2)
    found = fs.boundary_distance(net, grid)
    print(found)
    some = np.random.default_rng(0).uniform(-2, 2, (40, 2))
    print(fs.visible_boundary_distance(net, some))

    ensemble = fs.Ensemble.of((2, 10, 16, 1))
    for curve in (fs.Circle(), fs.Tractrix()):
        print(f"\n{curve}\n{fs.region_theory(ensemble, curve, networks=10, samples=2000).table()}")

    with fs.plot.house_style():
        figure = Figure(figsize=(10, 5.6), layout="constrained")
        panels = figure.subplot_mosaic(
            [["map", "circle"], ["map", "tractrix"]], width_ratios=[1.3, 1.0], height_ratios=[1.7, 1.0]
        )
        map_, circle, tractrix = (panels[name] for name in ("map", "circle", "tractrix"))
        fs.plot.boundary_distance(found, grid, complex=fs.regions(net, box), feet=60, ax=map_).set_title(
            "how far to the next boundary"
        )
        wide = fs.Network.random((2, 10, 16, 1), seed=0)
        for curve, ax in ((fs.Circle(), circle), (fs.Tractrix(), tractrix)):
            shown = fs.projected_gradients(wide, curve, places=60)
            fs.plot.projected_gradients(shown, neuron=12, ax=ax)
            name = type(curve).__name__.lower()
            ax.set_title(f"{name}: {shown.mean_projected / shown.mean_length:.0%} of the length along it")
    fs.plot.save_figure(map_, Path("boundary_distance.png"), dpi=130)


if __name__ == "__main__":
    main()
