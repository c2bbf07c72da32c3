"""Folders with the tensors of a model in one or several ``.safetensors`` files, read one tensor at a time.

A folder with an index (``model.safetensors.index.json``) says which file holds which tensor; without one, the only
``.safetensors`` file holds all. Files are mapped, not read: a tensor is in memory while somebody holds it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fiberscope.errors import InputError
from fiberscope.files import atomic_path

INDEX = "model.safetensors.index.json"

KINDS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


@dataclass(frozen=True)
class Shards:
    """What a folder holds: for every tensor its file, shape and type (as safetensors name it)."""

    folder: Path
    files: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]
    kinds: Mapping[str, str]

    @classmethod
    def open(cls, folder: Path | str) -> Shards:
        """Look into the headers of all files; nothing else is read."""
        root = Path(folder)
        if not root.is_dir():
            raise InputError(f"{root}: expected a folder with .safetensors files, found none")
        files: dict[str, str] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        kinds: dict[str, str] = {}
        for file in _files(root):
            for name, shape, kind in _header(root / file):
                if name in files:
                    raise InputError(f"{root}: the tensor {name} stands in {files[name]} and in {file}")
                files[name], shapes[name], kinds[name] = file, shape, kind
        _check_index(root, files)
        return cls(root, files, shapes, kinds)

    @classmethod
    def of_file(cls, path: Path | str) -> Shards:
        """One file alone, whatever else is beside it."""
        file = Path(path)
        held = _header(file)
        shapes, kinds = {n: shape for n, shape, _ in held}, {n: kind for n, _, kind in held}
        return cls(file.parent, {n: file.name for n, *_ in held}, shapes, kinds)

    def read(self, name: str) -> Tensor:
        """One tensor, as it is stored."""
        if name not in self.files:
            raise InputError(f"{self.folder}: it has no tensor {name}")
        try:
            with safe_open(str(self.folder / self.files[name]), framework="pt") as file:
                found: Tensor = file.get_tensor(name)
                return found
        except (SafetensorError, OSError, ValueError) as error:
            raise InputError(f"{self.folder / self.files[name]}: the tensor {name} cannot be read") from error

    @property
    def by_file(self) -> dict[str, list[str]]:
        """The names of the tensors in every file, in the order of the headers."""
        found: dict[str, list[str]] = {}
        for name, file in self.files.items():
            found.setdefault(file, []).append(name)
        return found

    def metadata(self, file: str) -> dict[str, str]:
        with safe_open(str(self.folder / file), framework="pt") as opened:
            return dict(opened.metadata() or {})

    @property
    def others(self) -> list[Path]:
        """All other files of the folder: configuration, tokenizer, index."""
        held = set(self.files.values())
        return sorted(path for path in self.folder.iterdir() if path.is_file() and path.name not in held)


def write_shard(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """A whole ``.safetensors`` file, or none."""
    with atomic_path(path) as part:
        save_file({name: value.contiguous() for name, value in tensors.items()}, str(part), metadata=dict(metadata))


def _files(root: Path) -> list[str]:
    index = root / INDEX
    if not index.is_file():
        found = sorted(path.name for path in root.glob("*.safetensors"))
        if len(found) != 1:
            some = ", ".join(found[:3]) or "none"
            raise InputError(f"{root}: expected one .safetensors file, or {INDEX}, got {some}")
        return found
    named = sorted(set(_index(index).values()))
    for name in named:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise InputError(f"{index}: expected names of .safetensors files beside it, got {name[:60]!r}")
        if not (root / name).is_file():
            raise InputError(f"{root}: the file {name}, which its index names, is missing")
    return named


def _index(path: Path) -> dict[str, str]:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8")).get("weight_map")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: expected an index of tensors in JSON, got something else") from error
    if not isinstance(found, dict) or not found or not all(isinstance(value, str) for value in found.values()):
        raise InputError(f"{path}: expected a weight_map from tensors to files")
    return found


def _check_index(root: Path, files: Mapping[str, str]) -> None:
    if (root / INDEX).is_file():
        for name, file in _index(root / INDEX).items():
            if files.get(name) != file:
                raise InputError(f"{root / file}: the tensor {name}, which the index puts there, is missing")


def _header(path: Path) -> list[tuple[str, tuple[int, ...], str]]:
    try:
        with safe_open(str(path), framework="pt") as file:
            slices = [(name, file.get_slice(name)) for name in file.keys()]  # noqa: SIM118  # not a dict
            return [(name, tuple(one.get_shape()), str(one.get_dtype())) for name, one in slices]
    except (SafetensorError, OSError, ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a safetensors file, got something else or a damaged file") from error
