"""Nodes with other sources, and programs in which every node is a plain one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fiberscope.network.layout import Detour
from fiberscope.network.nodes import Add, Affine, Composite, Concat, Given, Node

N = TypeVar("N", bound=Given)


def moved(node: N, sources: tuple[int, ...]) -> N:
    """The same node reading other values."""
    own: Any = {"sources": sources} if isinstance(node, Add | Concat) else {"source": sources[0]}
    result: N = replace(node, **own)  # type: ignore[type-var]  # every kind is a dataclass
    return result


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


def behind(nodes: Sequence[N], values: int) -> list[N]:
    """The same nodes in a program with so many more values in front."""
    return [moved(node, tuple(source + values for source in node.sources)) for node in nodes]


def nameless(node: Node) -> Node:
    """The node as a constant of the model: two networks side by side may use one name for different numbers."""
    return replace(node, weight_name=None, bias_name=None) if isinstance(node, Affine) else node
