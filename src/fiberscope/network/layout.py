"""What a sign vector means: which of its entries belong to which activation or pooling window of a program.

A sign vector has one entry for every neuron of every activation, in the order of the program, and one for every input
of every pooling window. Who needs to know where a layer stands asks here; nobody counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fiberscope.network.nodes import Affine, Composite, Given, MaxPool, Node, Switch, moved
from fiberscope.network.operators import Operator
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """One switch of a program: its number among the nodes, the node itself, and its entries of the sign vector."""

    index: int
    node: Switch
    start: int

    @property
    def stop(self) -> int:
        return self.start + self.node.num_signs

    @property
    def columns(self) -> slice:
        """Its entries, for slicing ``(points, num_signs)`` along the second axis."""
        return slice(self.start, self.stop)

    @property
    def source(self) -> int:
        """The value that it switches."""
        return self.node.source


class Detour(NamedTuple):
    """Nodes in a row that one composite node stands for: the value that they read, and the number of the last one."""

    node: Composite
    source: int
    last: int


class Layout:
    """Where everything stands in the sign vector of a program, and how long its values are needed.

    >>> from fiberscope.network.network import Network
    >>> layout = Network.random((2, 3, 4, 1), seed=0).layout
    >>> [(place.index, place.columns) for place in layout.places]
    [(1, slice(0, 3, None)), (3, slice(3, 7, None))]
    >>> layout.at(5).index, layout.size
    (3, 7)
    """

    def __init__(self, nodes: Sequence[Node], detours: Mapping[int, Detour] | None = None) -> None:
        self.nodes = tuple(nodes)
        """The program."""
        self.detours = detours or {}
        """The plain nodes that composite ones stand for, by the number of the first of them."""
        self.results = {k: way.last + 1 for first, way in self.detours.items() for k in range(first, way.last)}
        """For the nodes inside of composite ones, without the last, the value that the composite one gives."""
        places: list[Place] = []
        for index, node in enumerate(nodes):
            if isinstance(node, Switch):
                places.append(Place(index, node, places[-1].stop if places else 0))
        self.places = tuple(places)
        """The switches in order."""
        self.of_node = {place.index: place for place in places}
        """The same by their numbers among the nodes."""
        last = [-1] * (len(nodes) + 1)
        for index, node in enumerate(nodes):
            for source in node.sources:
                last[source] = index
        self.last_use = tuple(last)
        """For every value the node that reads it last; -1 for a value that nobody reads, as the output."""
        self.released = tuple(tuple(s for s in {*node.sources} if last[s] == k) for k, node in enumerate(nodes))
        """For every node the values that are not needed behind it any more."""

    @cached_property
    def up_to_last_switch(self) -> Layout:
        """The program as far as regions depend on it; values that only the output needs are let go earlier."""
        stop = self.places[-1].index + 1 if self.places else 0
        return Layout(self.nodes[:stop], {k: detour for k, detour in self.detours.items() if detour.last < stop})

    @cached_property
    def affine(self) -> tuple[Affine, ...]:
        """The affine maps in order."""
        return tuple(node for node in self.nodes if isinstance(node, Affine))

    @cached_property
    def stages(self) -> tuple[Operator, ...]:
        """Their linear maps one by one."""
        return tuple(stage for node in self.affine for stage in node.operator.stages())

    @property
    def size(self) -> int:
        """Length of a sign vector."""
        return self.places[-1].stop if self.places else 0

    @cached_property
    def starts(self) -> IntArray:
        """First entry of every switch, and the size at the end, ``(switches + 1,)``."""
        return np.array([*(place.start for place in self.places), self.size], dtype=np.int64)

    def parts(self, signs: SignArray) -> list[SignArray]:
        """Sign vectors ``(..., size)`` switch by switch."""
        return [signs[..., place.columns] for place in self.places]

    def at(self, entry: int) -> Place:
        """The switch that an entry belongs to."""
        if not 0 <= entry < self.size:
            raise IndexError(entry)
        return self.places[int(np.searchsorted(self.starts, entry, side="right")) - 1]

    @cached_property
    def switch(self) -> IntArray:
        """For every entry the number of its switch among the switches, ``(size,)``."""
        return np.repeat(np.arange(len(self.places)), np.diff(self.starts))

    @cached_property
    def pooled(self) -> BoolArray:
        """Which entries belong to pooling windows, ``(size,)``."""
        kinds = [isinstance(place.node, MaxPool) for place in self.places]
        return np.array(kinds, dtype=bool)[self.switch]

    @cached_property
    def layers(self) -> IntArray:
        """For every neuron, so for every entry that is not pooled, its activation layer, counted from 1."""
        return np.unique(self.switch[~self.pooled], return_inverse=True)[1].reshape(-1) + 1

    @cached_property
    def window(self) -> IntArray:
        """For every entry the number of the pooling window that it belongs to, ``(size,)``; a neuron has its own."""
        parts = [np.full(p.node.num_signs // p.node.window_size, p.node.window_size) for p in self.places]
        sizes = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def linear(self) -> BoolArray:
        """Which entries belong to neurons that are linear by their activation, ``(size,)``."""
        return np.concatenate([np.zeros(0, dtype=bool), *(place.node.linear for place in self.places)])

    @cached_property
    def slopes(self) -> FloatArray:
        """By what every entry's value is multiplied where that is not positive, ``(size,)``; 1 for pooling windows."""
        return np.concatenate([np.zeros(0), *(place.node.slopes for place in self.places)])

    @cached_property
    def padding(self) -> BoolArray:
        """Which entries of pooling windows are no input at all, ``(size,)``."""
        return np.concatenate([np.zeros(0, dtype=bool), *(place.node.padded for place in self.places)])


def expanded(program: Sequence[Given]) -> tuple[tuple[Node, ...], dict[int, Detour]]:
    """The plain nodes of a program, and the detours over several of them that composite nodes mean, by the first."""
    nodes: list[Node] = []
    detours: dict[int, Detour] = {}
    place = {0: 0}
    for index, node in enumerate(program):
        sources = tuple(place[s] for s in node.sources)
        if isinstance(node, Composite):
            first = len(nodes)
            nodes += [moved(n, tuple(first + s if s else sources[0] for s in n.sources)) for n in node.meaning()]
            detours[first] = Detour(node, sources[0], len(nodes) - 1)
        else:
            nodes.append(moved(node, sources) if sources != node.sources else node)
        place[index + 1] = len(nodes)
    return tuple(nodes), detours
