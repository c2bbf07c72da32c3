"""Small files that unpack to very much: they are refused before the memory is filled."""

from __future__ import annotations

import base64
import io
import json
import struct
import tempfile
import zipfile
import zlib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

import fiberscope as fs
from fuzz.case import Area, Skipped, expect

BLOCK = 1 << 20
MEMORY = 100 << 20
"""Bytes that a refusal may take; every file below would take far more."""

Member = tuple[str, bytes, int, int]
"""A name, the deflated bytes, the size that the archive tells of it, and the checksum."""


def make_archives(rng: Random) -> tuple[Any, ...]:
    kind = rng.choice(("honest", "many", "lying", "header", "torch", "strides"))
    reader = "load" if kind in ("torch", "strides") else rng.choice(("load", "load", "verify", "complex"))
    name = rng.choice(("0.weight", "layers.0.weight", "x", "fiberscope"))
    dtype = rng.choice(("<f8", "<f4", "|u1"))
    return kind, reader, rng.choice((300, 400, 600)), rng.choice((1, 2, 8, 1024)), name, dtype, rng.randint(2, 5)


def check_archives(kind: str, reader: str, blocks: int, rows: int, name: str, dtype: str, parts: int) -> None:
    """A refusal in our own words, which took little memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("net.pt" if kind in ("torch", "strides") else "net.npz")
        if kind == "strides":
            tensor = torch.zeros(1, dtype=torch.float64).expand(rows, (blocks * BLOCK) // (8 * rows))
            torch.save({f"{name}.weight": tensor}, path)
        else:
            path.write_bytes(_archive(kind, blocks, rows, name, dtype, parts))
        small = path.stat().st_size
        expect(small < blocks * BLOCK // 100, f"the case is no bomb: {small} bytes")
        ask = {"load": _load, "verify": _verify, "complex": fs.Complex.load}[reader]
        if reader == "verify":
            path = _certificate(path)
        before = _peak(reset=True)
        try:
            found = ask(path)
        except fs.FiberscopeError as error:
            expect("\n" not in str(error), f"an error of several lines: {error}")
        else:
            expect(False, f"{small} bytes that unpack to {blocks} MiB are read as {found!r}")
        taken = _peak() - before
        expect(taken < MEMORY, f"refusing {small} bytes took {taken >> 20} MiB")


def _load(path: Path) -> Any:
    return fs.load(path, activation="relu")


def _verify(path: Path) -> Any:
    return fs.verify(path)


def _certificate(path: Path) -> Path:
    """A certificate with the archive in the place of its first network."""
    proof = path.with_suffix(".json")
    net = fs.Network([[[1.0]]], [[0.0]])
    fs.equivalent(net, net, tolerance=0).save(proof)
    found = json.loads(proof.read_text())
    found["networks"][0] = {"file": "net.npz", "base64": base64.b64encode(path.read_bytes()).decode()}
    proof.write_text(json.dumps(found))
    return proof


# -- archives, made by hand, since nobody writes these on purpose


def _archive(kind: str, blocks: int, rows: int, name: str, dtype: str, parts: int) -> bytes:
    size = blocks * BLOCK
    if kind == "torch":
        return _torch_zeros(name, rows, size // 4 // rows, blocks)
    item = np.dtype(dtype).itemsize
    if kind == "many":
        each = blocks // parts + 1
        return _zip([_zeros(f"{name}{k}.npy", _header((each * BLOCK // item,), dtype), each) for k in range(parts)])
    header = _header((rows, size // item // rows), dtype)
    if kind == "header":  # the array is said to be large, and nothing follows
        return _zip([_zeros(f"{name}.npy", header, 0)])
    member = _zeros(f"{name}.npy", header, blocks)
    if kind == "lying":  # the directory says little, the stream gives much
        member = (*member[:2], len(header) + 8, member[3])
    return _zip([member])


def _header(shape: tuple[int, ...], dtype: str) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


@cache
def _block() -> bytes:
    """A deflated block of zeros that may be repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(bytes(BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH)


@cache
def _checksum(head: bytes, blocks: int) -> int:
    found = zlib.crc32(head)
    for _ in range(blocks):
        found = zlib.crc32(bytes(BLOCK), found)
    return found


def _zeros(name: str, head: bytes, blocks: int) -> Member:
    """A header and many zeros behind it."""
    first = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = first.compress(head) + first.flush(zlib.Z_FULL_FLUSH)
    last = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    return name, start + _block() * blocks + last, len(head) + blocks * BLOCK, _checksum(head, blocks)


def _zip(members: list[Member]) -> bytes:
    body, directory = b"", b""
    for name, data, size, checksum in members:
        # version, flags, deflated, time, date
        common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, checksum, len(data), size, len(name), 0)
        entry = b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, len(body))
        directory += entry + name.encode()
        body += b"PK\3\4" + common + name.encode() + data
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    return body + directory + b"PK\5\6" + end


def _torch_zeros(name: str, rows: int, columns: int, blocks: int) -> bytes:
    """What torch would write for a matrix of zeros, deflated, without ever having that matrix."""
    buffer = io.BytesIO()
    torch.save({f"{name}.weight": torch.zeros(7, 11)}, buffer)
    with zipfile.ZipFile(buffer) as archive:
        content = {info.filename: archive.read(info) for info in archive.infolist()}
    root = next(iter(content)).partition("/")[0]
    for old, new in ((77, rows * columns), (7, rows), (11, columns)):  # pickled as one byte, and now as four
        content[f"{root}/data.pkl"] = content[f"{root}/data.pkl"].replace(
            b"K" + bytes([old]), b"J" + struct.pack("<i", new)
        )
    return _zip(
        [_zeros(n, b"", blocks) if n.endswith("/data/0") else _zeros(n, data, 0) for n, data in content.items()]
    )


# -- memory


def _peak(reset: bool = False) -> int:
    """The most memory that this process ever had, or has from now on, in bytes."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError as error:
        raise Skipped("this system does not tell how much memory was taken") from error
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


AREAS = (Area("archives", make_archives, check_archives),)
