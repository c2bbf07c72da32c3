"""What does a function tell about the layers of its network? Its fold-set, layered, and who bends at whom.

A random network with three hidden layers is drawn with its fold-set coloured by the true layer of each fold, and again
by the order that the set alone gives it. Chains of bends prove which lines come from the first layer.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

import fiberscope as fs


def main() -> None:
    net = fs.Network.random((2, 6, 5, 4, 1), seed=3)
    found = fs.fold_set(net, fs.Box.cube(2, -2.0, 2.0))
    graph = fs.dependency_graph(found)
    first = fs.first_layer(found, graph)
    print(found)
    print(fs.genericity(found.complex))
    print(f"dependency graph: {graph.number_of_nodes()} pieces, {graph.number_of_edges()} edges, ", end="")
    print(f"{sum(bends for _, _, bends in graph.edges(data='bends'))} of them bend")
    print(f"first layer: {len(first.straight)} of {first.width} neurons show as full lines, ", end="")
    print(f"{len(first.identified)} are proven by their chains to be of the first layer")

    with fs.plot.house_style():
        figure = Figure(figsize=(14, 5), layout="constrained")
        layers, orders, rows = figure.subplots(1, 3)
        fs.plot.fold_set(found, color="layer", ax=layers).set_title("by the network's layers")
        fs.plot.fold_set(found, color="order", ax=orders).set_title("by what the set alone tells")
        fs.plot.dependency_graph(graph, ax=rows).set_title("who bends at whom")
    fs.plot.save_figure(layers, Path("fold_set.png"))


if __name__ == "__main__":
    main()
