"""A network as plain data that any program can read: what the standalone checker reads, and nothing else.

The nodes are those that a network means (:attr:`Network.nodes`), every linear map as its rows. Floats are written so
that reading them gives the same number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.network.convolutions import Convolving
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Dense, Operator

LARGEST = 2_000_000
"""Entries of all linear maps up to which a network is written plainly."""


def plain_program(net: Network) -> dict[str, Any] | None:
    """The program of a network as plain data; None where its linear maps have too many entries.

    >>> plain_program(Network([[[2.0, 0.0]]], [[1.0]]))["nodes"][0]["stages"]
    [{'inputs': 2, 'rows': [[2.0, 0.0]]}]
    """
    stages = [stage for node in net.nodes if isinstance(node, Affine) for stage in node.operator.stages()]
    if sum(_entries(stage) for stage in stages) > LARGEST:
        return None
    return {"inputs": net.in_size, "nodes": [_plain_node(node) for node in net.nodes]}


def _entries(stage: Operator) -> int:
    if isinstance(stage, Dense):
        return stage.out_size * stage.in_size
    return stage.out_size * stage.fan_in if isinstance(stage, Convolving) else int(stage.sparse().nnz)


def _plain_node(node: Node) -> dict[str, Any]:
    match node:
        case Affine():
            stages = [_plain_stage(stage) for stage in node.operator.stages()]
            offset = None if node.offset is None else node.offset.tolist()
            return {"kind": "affine", "sources": [node.source], "stages": stages, "offset": offset}
        case PiecewiseLinear():
            return {"kind": "piecewise", "sources": [node.source], "slopes": node.slopes.tolist()}
        case MaxPool():
            return {"kind": "maximum", "sources": [node.source], "windows": node.windows.tolist()}
        case Add():
            return {"kind": "add", "sources": list(node.sources)}
        case Concat():
            order = None if node.order is None else node.order.tolist()
            return {"kind": "concat", "sources": list(node.sources), "order": order}


def _plain_stage(stage: Operator) -> dict[str, Any]:
    if isinstance(stage, Dense):
        return {"inputs": stage.in_size, "rows": stage.matrix.tolist()}
    matrix = stage.sparse().copy()
    matrix.sort_indices()
    cuts = matrix.indptr[1:-1]
    rows, columns = (np.split(part, cuts) for part in (matrix.data, matrix.indices))
    return {
        "inputs": stage.in_size,
        "rows": [row.tolist() for row in rows],
        "columns": [row.tolist() for row in columns],
    }
