"""Certificates as files: networks, domains and verdicts as JSON, written whole or not at all."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from fiberscope.equality.certificates.plain import plain_program
from fiberscope.errors import FiberscopeError, InputError
from fiberscope.files import write_atomically
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.geometry.storage import domain_of_parts, domain_parts
from fiberscope.network.io import load, save
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, PiecewiseLinear

if TYPE_CHECKING:
    from fiberscope.equality.verdict import Verdict

FORMAT = "fiberscope certificate 4"
FORMAT_3 = "fiberscope certificate 3"
"""The one before: without the plain programs."""


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


def write_certificate(path: Path | str, verdict: Verdict, models: tuple[Path | str, Path | str] | None) -> None:
    """Everything that is needed to replay a verdict, in one file."""
    if verdict.networks is None:
        raise InputError("certificate: expected a verdict with its networks, got one without")
    if verdict.evidence is None:
        raise InputError("certificate: expected a proven verdict, got an undecided one, which proves nothing")
    names = (None, None) if models is None else models
    programs = [plain_program(net) for net in verdict.networks]
    content = {
        "format": FORMAT,
        "claim": {
            "equal": verdict.equal,
            "tolerance": verdict.tolerance,
            "precision": (verdict.precision or "float64") if verdict.tolerance is None else None,
            **({} if verdict.margin is None else {"criterion": "argmax", "margin": verdict.margin}),
            "domain": domain_to_dict(verdict.domain),
            "models": [model_to_dict(net, name) for net, name in zip(verdict.networks, names, strict=True)],
        },
        "method": verdict.method,
        "networks": [network_to_dict(net, name) for net, name in zip(verdict.networks, names, strict=True)],
        "programs": None if None in programs else programs,
        "evidence": {"kind": verdict.evidence.kind, **verdict.evidence.to_dict()},
    }
    write_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def model_to_dict(net: Network, path: Path | str | None = None) -> dict[str, Any]:
    """What a claim says of a model: the hash of its plain weights, and of the bytes of its files where it had some."""
    source = net.source
    if path is not None:
        source = load(path).source
    file: dict[str, Any] | None = None
    if source.path is not None:
        file = {"name": source.path.name, "sha256": source.sha256}
        if source.data:
            file["data"] = dict(source.data)
    return {"weights": content_hash(net), "file": file, "inputs": net.in_size, "outputs": net.out_size}


def network_to_dict(net: Network, path: Path | str | None) -> dict[str, Any]:
    """A reference to a file, or the network itself."""
    if path is not None:
        return {"path": str(Path(path).resolve())}
    with tempfile.TemporaryDirectory() as folder:
        name = "net.npz" if net.is_chain else "net.onnx"
        file = Path(folder) / name
        save(net, file)
        return {"file": name, "base64": base64.b64encode(file.read_bytes()).decode()}


def network_from_dict(found: Any, weights: str) -> Network:
    """The network of a certificate; its hash must be the one that the claim names."""
    if not isinstance(found, dict):
        raise InputError("certificate: expected networks, as paths or as base64")
    try:
        net = load(found["path"]) if isinstance(found.get("path"), str) else _embedded(found)
    except FiberscopeError as error:
        raise InputError(f"certificate: a network cannot be read: {error}") from error
    if content_hash(net) != weights:
        raise InputError("certificate: a network is not the one that the claim names (the hash of its weights differs)")
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
