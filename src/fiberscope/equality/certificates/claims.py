"""What a certificate claims something about: a program by its hash and as plain data, a domain by its numbers.

Plain data are what the standalone checker reads, and nothing else: the nodes that a network means
(:attr:`Network.nodes`), every linear map as its rows. Floats are written so that reading them gives the same number.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, assert_never

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.geometry.storage import domain_of_parts, domain_parts
from fiberscope.network.convolutions import Convolving
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Dense, Operator

LARGEST = 2_000_000
"""Entries of all linear maps up to which a network is written plainly."""


def content_hash(net: Network) -> str:
    """A hash of the program and all its plain weights; names of parameters and the file it came from do not count.

    >>> content_hash(Network([[[1.0]]], [[0.0]]))[:8] == content_hash(Network([[[1.0]]], [[-0.0]]))[:8]
    True
    """
    digest = hashlib.sha256()

    def put(*parts: Any) -> None:
        """Every part with its length, so that no two programs give the same bytes."""
        for part in parts:
            data = part if isinstance(part, bytes) else repr(part).encode()
            digest.update(f"{len(data)}:".encode() + data)

    put(net.in_size, net.out_size, len(net.nodes))
    for node in net.nodes:
        put(type(node).__name__, node.sources, int(np.prod(node.shape)))
        match node:
            case Affine():
                stages = node.operator.stages()
                put(len(stages))
                for stage in stages:
                    matrix = stage.sparse()
                    matrix.sort_indices()
                    put(matrix.shape, *(_bytes(x, "<i8") for x in (matrix.indptr, matrix.indices)))
                    put(_bytes(matrix.data + 0.0, "<f8"))
                put(_bytes(np.zeros(node.operator.out_size) if node.offset is None else node.offset + 0.0, "<f8"))
            case PiecewiseLinear():
                put(_bytes(node.slopes + 0.0, "<f8"))
            case MaxPool():
                put(node.windows.shape, _bytes(node.windows, "<i8"))
            case Concat():
                put(b"" if node.order is None else _bytes(node.order, "<i8"))
            case Add():
                pass
            case _:
                assert_never(node)
    return digest.hexdigest()


def _bytes(array: Any, kind: str) -> bytes:
    return np.ascontiguousarray(array, dtype=kind).tobytes()


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


def domain_to_dict(domain: Domain) -> dict[str, Any]:
    """A domain as plain data; floats survive JSON exactly."""
    kind, arrays = domain_parts(domain)
    parts = {name: array.tolist() for name, array in arrays.items()}
    match domain:
        case Orthant() | Space():
            parts["dimension"] = domain.dimension
        case Plane():
            parts["box"] = {"kind": "box", "low": parts.pop("low"), "high": parts.pop("high")}
        case Box() | Polytope():
            pass
    return {"kind": kind, **parts}


def domain_text(domain: Domain) -> str:
    """A domain in one line that leaves nothing out: what does not fit is named by the hash of its numbers.

    >>> domain_text(Box([0.0, 0.0], [0.1, 0.1])), domain_text(Space(3))
    ('the box [0.0, 0.1]^2', 'all of R^3')
    """
    match domain:
        case Box():
            sides = [f"[{a!r}, {b!r}]" for a, b in zip(domain.low.tolist(), domain.high.tolist(), strict=True)]
            if len(set(sides)) == 1:
                return f"the box {sides[0]}" + (f"^{len(sides)}" if len(sides) > 1 else "")
            if len(sides) <= 6:
                return f"the box {' x '.join(sides)}"
            text = f"a box with {len(sides)} different sides, the first {sides[0]}"
        case Orthant():
            return f"the orthant x >= 0 of R^{domain.dimension}"
        case Space():
            return f"all of R^{domain.dimension}"
        case Polytope():
            text = f"a polytope of {len(domain.A)} half-spaces in R^{domain.dimension}"
        case Plane():
            text = f"a plane in R^{domain.ambient} with {domain_text(domain.box)}"
    numbers = json.dumps(domain_to_dict(domain), sort_keys=True).encode()
    return f"{text} (sha256 {hashlib.sha256(numbers).hexdigest()[:16]})"


def domain_from_dict(found: Any) -> Domain:
    """The domain of a certificate."""
    if not isinstance(found, dict):
        raise InputError(f"certificate: expected a domain, got {type(found).__name__}")
    try:
        kind, parts = str(found.get("kind")), dict(found)
        if kind == "plane":
            if found["box"]["kind"] != "box":
                raise InputError(f"expected a plane with a box, got {found['box']['kind']!r}")
            parts.update(low=found["box"]["low"], high=found["box"]["high"])
        dimension = int(found["dimension"]) if kind in ("orthant", "space") else 0
        return domain_of_parts(kind, dimension, parts)
    except InputError as error:
        raise InputError(f"certificate: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"certificate: the domain is not complete ({error})") from error
