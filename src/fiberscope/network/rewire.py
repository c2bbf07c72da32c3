"""Nodes with other sources."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear


def moved(node: Node, sources: tuple[int, ...]) -> Node:
    """The same node reading other values."""
    match node:
        case Add() | Concat():
            return replace(node, sources=sources)
        case Affine() | PiecewiseLinear() | MaxPool():
            return replace(node, source=sources[0])
        case _:
            assert_never(node)


def later(node: Node) -> Node:
    """The same node in a program with one more value in front."""
    return moved(node, tuple(source + 1 for source in node.sources))
