"""How far is it to the next kink, and what do the theorems on data geometry say about it?

A random network with narrow layers hides many of its boundaries: the nearest one is often invisible. Its distances are
drawn as a map. Then random networks are counted on the circle and on the tractrix, beside what Theorem 1 expects.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fiberscope.geometry.curves.curve import Circle, Tractrix
from fiberscope.geometry.distances.distance import boundary_distance
from fiberscope.geometry.distances.nearest_visible import visible_boundary_distance
from fiberscope.geometry.domains import Box
from fiberscope.geometry.expectation.ensemble import Ensemble
from fiberscope.geometry.expectation.projection import projected_gradients
from fiberscope.geometry.expectation.theory import region_theory
from fiberscope.geometry.regions import regions
from fiberscope.network.network import Network
from fiberscope.plot.distances import boundary_distance as draw_distances
from fiberscope.plot.distances import projected_gradients as draw_gradients
from fiberscope.plot.style import house_style, save_figure


def main() -> None:
    net = Network.random((2, 8, 4, 3, 1), seed=3)
    box = Box.cube(2, -2.0, 2.0)
    line = np.linspace(-2, 2, 120)
    grid = np.stack(np.meshgrid(line, line), axis=2).reshape(-1, 2)
    found = boundary_distance(net, grid)
    print(found)
    some = np.random.default_rng(0).uniform(-2, 2, (40, 2))
    print(visible_boundary_distance(net, some))

    ensemble = Ensemble.of((2, 10, 16, 1))
    for curve in (Circle(), Tractrix()):
        print(f"\n{curve}\n{region_theory(ensemble, curve, networks=10, samples=2000).table()}")

    with house_style():
        figure = Figure(figsize=(16, 5), layout="constrained")
        map_, circle, tractrix = figure.subplots(1, 3)
        draw_distances(found, grid, complex=regions(net, box), feet=60, ax=map_).set_title("distance to the boundary")
        wide = Network.random((2, 10, 16, 1), seed=0)
        for curve, ax in ((Circle(), circle), (Tractrix(), tractrix)):
            shown = projected_gradients(wide, curve, places=60)
            draw_gradients(shown, neuron=12, ax=ax).set_title(f"{shown.mean_projected:.2f} of {shown.mean_length:.2f}")
    save_figure(map_, Path("boundary_distance.png"))


if __name__ == "__main__":
    main()
