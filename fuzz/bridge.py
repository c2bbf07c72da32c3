"""From the judge's plain data to the library's objects, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import fiberscope as fs
from fiberscope.network.nodes import Add, Affine, Clip, Concat, Given, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense

from .oracle.cells import Domain
from .oracle.program import Program


def network(program: Program) -> fs.Network:
    """The program as a network; chains as ``fs.Network(weights, biases)`` where that is possible."""
    if program.is_chain:
        slopes = {s for node in program.nodes if node[0] == "relu" for s in node[2]}
        if len(slopes) <= 1:
            layers = [node for node in program.nodes if node[0] == "affine"]
            weights, biases = [list(map(list, n[2])) for n in layers], [list(n[3]) for n in layers]
            slope = slopes.pop() if slopes else 0.0
            if slope == 0:
                return fs.Network(weights, biases)
            return fs.Network(weights, biases, "leaky_relu", slope=slope)
    clips = {first: bounds for first, *bounds in program.clips}
    nodes: list[Given] = []
    place = {0: 0}  # where a value of the program stands among those of the network
    index = 0
    while index < len(program.nodes):
        node = _node(program.nodes[index], program.sizes, index)
        if index in clips:
            node = _clip(node.sources[0], *clips[index])
            index += 5
        nodes.append(replace(node, **_moved(node, place)))
        index += 1
        place[index] = len(nodes)
    return fs.Network.from_nodes(nodes, (program.inputs,))


def _moved(node: Given, place: dict[int, int]) -> dict[str, Any]:
    if isinstance(node, Add | Concat):
        return {"sources": tuple(place[s] for s in node.sources)}
    return {"source": place[node.sources[0]]}


def _clip(source: int, lows: Sequence[float | None], highs: Sequence[float | None]) -> Clip:
    low = [-np.inf if x is None else x for x in lows]
    return Clip(source, np.array(low), np.array([np.inf if x is None else x for x in highs]), (len(low),))


def _node(node: Any, sizes: tuple[int, ...], index: int) -> Given:
    size = sizes[index + 1]
    if node[0] == "affine":
        return Affine(node[1], Dense(np.array(node[2])), np.array(node[3]), f"w{index}", f"b{index}")
    if node[0] == "relu":
        return PiecewiseLinear(node[1], np.array(node[2]), (size,))
    if node[0] == "add":
        return Add(node[1], (size,))
    if node[0] == "concat":
        return Concat(node[1], tuple((sizes[s],) for s in node[1]))
    return MaxPool(node[1], (1, 1, sizes[node[1]]), (1, node[2]), (1, node[3]))


def program(net: fs.Network) -> Program:
    """A network as a program, by its dense matrices; for small networks."""
    nodes: list[Any] = []
    for node in net.nodes:
        if isinstance(node, Affine):
            matrix = node.operator.dense()
            offset = np.zeros(len(matrix)) if node.offset is None else node.offset
            nodes.append(("affine", node.source, tuple(map(tuple, matrix.tolist())), tuple(offset.tolist())))
        elif isinstance(node, PiecewiseLinear):
            nodes.append(("relu", node.source, tuple(node.slopes.tolist())))
        elif isinstance(node, Add):
            nodes.append(("add", tuple(node.sources)))
        elif isinstance(node, Concat):
            nodes.append(("concat", tuple(node.sources)))
        else:
            nodes.append(("pool", node.source, node.kernel[1], node.stride[1]))
    return Program(net.in_size, tuple(nodes))


def domain(given: Domain) -> Any:
    """The judge's domain as the library's."""
    kind, *rest = given
    if kind == "box":
        return fs.Box(list(rest[0]), list(rest[1]))
    if kind == "plane":
        return fs.Plane(list(rest[0]), list(rest[1]), list(rest[2]), fs.Box(list(rest[3]), list(rest[4])))
    if kind == "polytope":
        return fs.Polytope([list(row) for row in rest[0]], list(rest[1]))
    return {"orthant": fs.Orthant, "space": fs.Space}[kind](rest[0])
