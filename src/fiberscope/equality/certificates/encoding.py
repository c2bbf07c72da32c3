"""Certificates as files: networks, domains and verdicts as JSON, written whole or not at all."""

from __future__ import annotations

import base64
import binascii
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiberscope.equality.certificates.claims import content_hash, domain_to_dict, plain_program
from fiberscope.errors import FiberscopeError, InputError
from fiberscope.files import write_atomically
from fiberscope.geometry.domains import Box, Domain
from fiberscope.network.io import load, save
from fiberscope.network.network import Network

if TYPE_CHECKING:
    from fiberscope.equality.verdict import Verdict

FORMAT = "fiberscope certificate 4"
FORMAT_3 = "fiberscope certificate 3"
"""The one before: without the plain programs."""


def write_certificate(path: Path | str, verdict: Verdict, models: tuple[Path | str, Path | str] | None) -> None:
    """Everything that is needed to replay a verdict, in one file."""
    if verdict.evidence is None:
        raise InputError("certificate: expected a proven verdict, got an undecided one, which proves nothing")
    if verdict.networks is None:
        verdict.evidence.write(path, verdict)
        return
    if verdict.rounding is not None and models is not None:
        raise InputError("models: expected none of quantised graphs, whose programs with rounding are in no other file")
    names = (None, None) if models is None else models
    programs = [plain_program(net) for net in verdict.networks]
    content = {
        "format": FORMAT,
        "claim": {
            "equal": verdict.equal,
            "tolerance": verdict.tolerance,
            "precision": (verdict.precision or "float64") if verdict.tolerance is None else None,
            **({} if verdict.margin is None else {"criterion": "argmax", "margin": verdict.margin}),
            "domain": domain_to_dict(_domain(verdict)),
            **({} if verdict.rounding is None else {"rounding": verdict.rounding.to_dict()}),
            "models": [model_to_dict(net, name) for net, name in zip(verdict.networks, names, strict=True)],
        },
        "method": verdict.method,
        "networks": [network_to_dict(net, name) for net, name in zip(verdict.networks, names, strict=True)],
        "programs": None if None in programs else programs,
        "evidence": {"kind": verdict.evidence.kind, **verdict.evidence.to_dict()},
    }
    write_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def _domain(verdict: Verdict) -> Domain:
    """Of the programs, which may have inputs for rounding."""
    if verdict.rounding is None:
        return verdict.domain
    assert isinstance(verdict.domain, Box)
    return verdict.rounding.box(verdict.domain)


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
        # reading ONNX leaves out what nobody reads, and the hash of the program would be another
        name = "net.npz" if net.is_chain or _has_dead_ends(net) else "net.onnx"
        file = Path(folder) / name
        save(net, file)
        return {"file": name, "base64": base64.b64encode(file.read_bytes()).decode()}


def _has_dead_ends(net: Network) -> bool:
    return not {*range(1, len(net.nodes))} <= {source for node in net.nodes for source in node.sources}


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
