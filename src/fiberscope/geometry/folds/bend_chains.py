"""Chains of bends behind every hidden layer: do they tell its units?"""

from __future__ import annotations

from dataclasses import dataclass

from fiberscope.geometry.complex import Complex
from fiberscope.geometry.folds.dependency import dependency_graph, longest_chains
from fiberscope.geometry.folds.fold_set import truncated_fold_sets
from fiberscope.network.network import Network
from fiberscope.results import Result


@dataclass(frozen=True, slots=True)
class Chains(Result):
    """What the dependency graph of the network from ``layer`` on shows.

    Parameters
    ----------
    layer
        The first layer that is left, from 1.
    needed
        Length of the chains that the lemma asks for: hidden layers after it.
    units
        Units of the layer, from 0, that make a whole piece from which a chain of that length starts.
    starts
        Pieces from which such a chain starts.
    width
        Units of the layer.
    """

    layer: int
    needed: int
    units: tuple[int, ...]
    starts: int
    width: int

    told = ("enough",)

    @property
    def enough(self) -> bool:
        """Whether every unit of the layer starts a chain and no other piece does."""
        return len(self.units) == self.width == self.starts


def chains_of(complex: Complex) -> tuple[Chains, ...]:
    """For every hidden layer the chains of bends in the dependency graph of the network from there on.

    Where the interior of the image has several parts, that one is taken in which most units start a chain; they do not
    add up, since the images may overlap.

    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.regions import regions
    >>> from fiberscope.network.network import Network
    >>> weights = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [-1.0, -1.0]], [[1.0, 2.0]]]
    >>> net = Network(weights, [[0.0, 0.0], [-0.5, 0.75], [0.0]])
    >>> chains_of(regions(net, Box.cube(2)))[0]
    Chains(layer=1, needed=1, units=(0, 1), starts=2, width=2)
    """
    found = []
    slices = [place.columns for place in complex.net.layout.places]
    for layer, part in enumerate(slices, start=1):
        needed, width = len(slices) - layer, part.stop - part.start
        best = Chains(layer, needed, (), 0, width)
        for folds in truncated_fold_sets(complex, layer).parts:
            length = longest_chains(dependency_graph(folds))
            starts = [piece for piece in folds.pieces if length[piece.index] >= needed]
            own = {n - part.start for piece in starts for n in piece.whole if part.start <= n < part.stop}
            if len(own) > len(best.units):
                best = Chains(layer, needed, tuple(sorted(own)), len(starts), width)
        found.append(best)
    return tuple(found)


def with_output(net: Network, index: int) -> Network:
    """A chain with one of its outputs only: what the theorem speaks of."""
    if net.widths[-1] == 1:
        return net
    weights, biases = [*net.weights[:-1], net.weights[-1][[index]]], [*net.biases[:-1], net.biases[-1][[index]]]
    return Network(weights, biases)
