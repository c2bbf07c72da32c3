"""Certificates as files: networks, domains and verdicts as JSON, written whole or not at all."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.errors import FiberscopeError, InputError
from fiberscope.files import write_atomically
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.network.io import load, save
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear

if TYPE_CHECKING:
    from fiberscope.symmetry.equivalence.verdict import Verdict

FORMAT = "fiberscope certificate 1"


def content_hash(net: Network) -> str:
    """A hash of the program and all its numbers; names of parameters do not count.

    >>> content_hash(Network([[[1.0]]], [[0.0]]))[:8] == content_hash(Network([[[1.0]]], [[-0.0]]))[:8]
    True
    """
    digest = hashlib.sha256(repr((net.in_size, net.out_size, len(net.nodes))).encode())
    for node in net.nodes:
        digest.update(repr((type(node).__name__, node.sources, int(np.prod(node.shape)))).encode())
        if isinstance(node, Affine):
            for stage in node.operator.stages():
                matrix = stage.sparse()
                for array in (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data + 0.0):
                    digest.update(np.ascontiguousarray(array).tobytes())
            offset = np.zeros(node.operator.out_size) if node.offset is None else node.offset
            digest.update((offset + 0.0).tobytes())
        elif isinstance(node, PiecewiseLinear):
            digest.update((node.slopes + 0.0).tobytes())
        elif hasattr(node, "windows"):
            digest.update(np.ascontiguousarray(node.windows).tobytes())
        elif hasattr(node, "order") and node.order is not None:
            digest.update(np.ascontiguousarray(node.order).tobytes())
    return digest.hexdigest()


def write_certificate(path: Path | str, verdict: Verdict, models: tuple[Path | str, Path | str] | None) -> None:
    """Everything that is needed to replay a verdict, in one file."""
    if verdict.networks is None:
        raise InputError("certificate: expected a verdict with its networks, got one without")
    if verdict.equal is None:
        raise InputError("certificate: expected a proven verdict, got an undecided one, which proves nothing")
    names = (None, None) if models is None else models
    content = {
        "format": FORMAT,
        "claim": {"equal": verdict.equal, "tolerance": verdict.tolerance, "method": verdict.method},
        "domain": domain_to_dict(verdict.domain),
        "networks": [network_to_dict(net, name) for net, name in zip(verdict.networks, names, strict=True)],
        "bound": verdict.bound,
        "witness": None if verdict.witness is None else verdict.witness.to_dict(),
        "counterexample": None if verdict.counterexample is None else verdict.counterexample.to_dict(),
    }
    write_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def network_to_dict(net: Network, path: Path | str | None) -> dict[str, Any]:
    """A reference to a file, or the network itself."""
    found: dict[str, Any] = {"sha256": content_hash(net)}
    if path is not None:
        return found | {"path": str(Path(path).resolve())}
    with tempfile.TemporaryDirectory() as folder:
        name = "net.npz" if net.is_chain else "net.onnx"
        file = Path(folder) / name
        save(net, file)
        return found | {"file": name, "base64": base64.b64encode(file.read_bytes()).decode()}


def network_from_dict(found: Any) -> Network:
    """The network of a certificate; its hash must be that of the content."""
    if not isinstance(found, dict) or not isinstance(found.get("sha256"), str):
        raise InputError("certificate: expected networks with their sha256")
    try:
        net = load(found["path"]) if isinstance(found.get("path"), str) else _embedded(found)
    except FiberscopeError as error:
        raise InputError(f"certificate: a network cannot be read: {error}") from error
    if content_hash(net) != found["sha256"]:
        raise InputError(
            "certificate: a network is not the one that the certificate was written for (its hash differs)"
        )
    return net


def _embedded(found: dict[str, Any]) -> Network:
    text, name = found.get("base64"), found.get("file")
    if not isinstance(text, str) or name not in ("net.npz", "net.onnx"):
        raise InputError("expected a path, or base64 of net.npz or net.onnx")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError("expected base64") from error
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(data)
        return load(file)


def domain_to_dict(domain: Domain) -> dict[str, Any]:
    """A domain as plain data; floats survive JSON exactly."""
    match domain:
        case Box():
            return {"kind": "box", "low": domain.low.tolist(), "high": domain.high.tolist()}
        case Orthant() | Space():
            return {"kind": type(domain).__name__.lower(), "dimension": domain.dimension}
        case Polytope():
            return {"kind": "polytope", "A": domain.A.tolist(), "b": domain.b.tolist()}
        case Plane():
            vectors = {name: getattr(domain, name).tolist() for name in ("origin", "u", "v")}
            return {"kind": "plane", **vectors, "box": domain_to_dict(domain.box)}


def domain_from_dict(found: Any) -> Domain:
    """The domain of a certificate."""
    if not isinstance(found, dict):
        raise InputError(f"certificate: expected a domain, got {type(found).__name__}")
    try:
        match found.get("kind"):
            case "box":
                return Box(found["low"], found["high"])
            case "orthant":
                return Orthant(int(found["dimension"]))
            case "space":
                return Space(int(found["dimension"]))
            case "polytope":
                return Polytope(found["A"], found["b"])
            case "plane":
                box = domain_from_dict(found["box"])
                if isinstance(box, Box):
                    return Plane(found["origin"], found["u"], found["v"], box)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"certificate: the domain is not complete ({error})") from error
    raise InputError(f"certificate: expected a known kind of domain, got {found.get('kind')!r}")
