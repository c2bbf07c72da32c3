"""What does a function tell about the layers of its network? Its fold-set, layered, and who bends at whom.

A random network with three hidden layers is drawn with its fold-set coloured by the true layer of each fold, and again
by the order that the set alone gives it. Chains of bends prove which lines come from the first layer.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from fiberscope.geometry.dependency import dependency_graph, first_layer
from fiberscope.geometry.domains import Box
from fiberscope.geometry.fold_set import fold_set
from fiberscope.geometry.genericity import genericity
from fiberscope.network.network import Network
from fiberscope.plot.fold_sets import dependency_graph as draw_graph
from fiberscope.plot.fold_sets import fold_set as draw_folds
from fiberscope.plot.style import house_style, save_figure


def main() -> None:
    net = Network.random((2, 6, 5, 4, 1), seed=3)
    found = fold_set(net, Box.cube(2, -2.0, 2.0))
    graph = dependency_graph(found)
    first = first_layer(found, graph)
    print(found)
    print(genericity(found.complex))
    print(f"dependency graph: {graph.number_of_nodes()} pieces, {graph.number_of_edges()} edges, ", end="")
    print(f"{sum(bends for _, _, bends in graph.edges(data='bends'))} of them bend")
    print(f"first layer: {len(first.straight)} of {first.width} neurons show as full lines, ", end="")
    print(f"{len(first.identified)} are proven by their chains to be of the first layer")

    with house_style():
        figure = Figure(figsize=(14, 5), layout="constrained")
        layers, orders, rows = figure.subplots(1, 3)
        draw_folds(found, color="layer", ax=layers).set_title("by the network's layers")
        draw_folds(found, color="order", ax=orders).set_title("by what the set alone tells")
        draw_graph(graph, ax=rows).set_title("who bends at whom")
    save_figure(layers, Path("fold_set.png"))


if __name__ == "__main__":
    main()
