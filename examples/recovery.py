"""From the values of a network back to its parameters: what a few queries tell, and what all that are needed do.

A network of four inputs and two hidden layers is asked as a black box. A limit of queries ends the search half-way: what
was found until then is given. The picture is a plane through the inputs: every line is where a neuron switches.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

import fiberscope as fs

WIDTHS = (4, 8, 6, 1)


def main() -> None:
    truth = fs.Network.random(WIDTHS, seed=1)
    whole = fs.recover(truth, WIDTHS, seed=1)
    part = fs.recover(truth, WIDTHS, seed=1, max_queries=whole.queries * 3 // 4)
    for found in (part, whole):
        print(found)
    if whole.network is not None:
        print(fs.equivalent(truth, whole.network, domain=fs.Box.cube(4), tolerance=1e-9))
    with fs.plot.house_style():
        figure = Figure(figsize=(11, 5.6), layout="constrained")
        axes = figure.subplots(1, 2)
        for ax, found in zip(axes, (part, whole), strict=True):
            if found.hyperplanes:
                found.plot(ax=ax)
    fs.plot.save_figure(axes[0], Path("recovery.png"), dpi=130)


if __name__ == "__main__":
    main()
