"""How many linear regions does a network have along a curve, and how sure is the count?

A random network is followed along the unit circle and along a tractrix. The picture shows both curves on the regions
of the plane, and unrolled. A circle that touches a neuron's line needs exact numbers to be counted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fiberscope as fs


def main() -> None:
    net = fs.Network.random((2, 10, 16, 1), seed=0)
    spiral = fs.Curve(lambda t: np.stack([t * np.cos(3 * t), t * np.sin(3 * t)], axis=1) / 3, (0.2, 3.0))
    found = [fs.regions_along(net, curve) for curve in (fs.Circle(), fs.Tractrix(), spiral)]
    for result in found:
        print(f"{result}: {result.num_pieces} affine pieces, shortest {result.lengths.min():.2g}")

    for gap in (2.0**-53, 0.0, -(2.0**-52)):
        line = fs.Network([[[1.0, 0.0]], [[1.0]]], [[gap - 1.0], [0.0]])
        touch = fs.regions_along(line, fs.Circle())
        print(f"x > {1 - gap!r}: {touch.num_regions} regions, {touch.exact_decisions} exact decisions")

    plane = fs.regions(net, fs.Box([-2.2, -1.4], [2.2, 1.4]))
    with fs.plot.house_style():
        figure = Figure(figsize=(10, 8), layout="constrained")
        top, bottom = figure.subplots(2, 1, height_ratios=(4, 1))
        fs.plot.under_curve(plane, found[0], ax=top)
        for result in found[1:]:
            points = result.curve(np.linspace(*result.curve.interval, 500))
            top.plot(points[:, 0], points[:, 1], color="#1f2430", linewidth=1.2, linestyle="--")
        fs.plot.curve_bars(found, labels=["circle", "tractrix", "spiral"], ax=bottom)
    fs.plot.save_figure(top, Path("regions_along_a_circle.png"))


if __name__ == "__main__":
    main()
