"""Nodes with other sources."""

from __future__ import annotations

from dataclasses import replace

from fiberscope.network.nodes import Add, Concat, Node


def moved(node: Node, sources: tuple[int, ...]) -> Node:
    """The same node reading other values."""
    if isinstance(node, Add | Concat):
        return replace(node, sources=sources)
    return replace(node, source=sources[0])


def later(node: Node) -> Node:
    """The same node in a program with one more value in front."""
    return moved(node, tuple(source + 1 for source in node.sources))
