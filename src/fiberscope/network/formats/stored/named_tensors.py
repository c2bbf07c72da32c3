"""The tensors of a checkpoint by name, one at a time, wherever they are: a mapping, a file, a folder of shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fiberscope.errors import InputError
from fiberscope.network.formats.stored.checkpoint import is_tensor, state_of
from fiberscope.network.formats.stored.shards import KINDS, Shards
from fiberscope.network.formats.stored.torch_file import content_of
from fiberscope.numerics.floats import FloatArray


@dataclass(frozen=True, slots=True)
class Tensors:
    """Shapes and types of named tensors; ``read`` gives one as float64, whole numbers included.

    >>> found = Tensors.of({"w": np.ones((2, 3), np.float32)})
    >>> found.shapes, found.kinds, found.read("w").dtype
    ({'w': (2, 3)}, ['float32'], dtype('float64'))
    """

    shapes: Mapping[str, tuple[int, ...]]
    kinds: list[str]
    read: Callable[[str], FloatArray]

    @property
    def names(self) -> Mapping[str, tuple[int, ...]]:
        return self.shapes

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Tensors:
        """Those of a state dict, perhaps inside of a checkpoint."""
        held = state_of(dict(state), None) if not all(is_tensor(v) for v in state.values()) else state
        shapes = {str(name): tuple(value.shape) for name, value in held.items()}
        kinds = [str(value.dtype).removeprefix("torch.") for value in held.values()]
        return cls(shapes, kinds, lambda name: as_float64(held[name]))

    @classmethod
    def sharded(cls, shards: Shards) -> Tensors:
        """Those of a folder of ``.safetensors`` files."""
        kinds = [str(KINDS.get(kind, "")).removeprefix("torch.") for kind in shards.kinds.values()]
        return cls(dict(shards.shapes), kinds, lambda name: as_float64(shards.read(name)))

    @classmethod
    def file(cls, path: Path) -> Tensors:
        """Those of one ``.safetensors`` file, mapped, or of a state dict saved by torch."""
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        if path.suffix == ".safetensors":
            return cls.sharded(Shards.of_file(path))
        try:
            return cls.of(state_of(content_of(path), None))
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


def as_float64(value: Any) -> FloatArray:
    """An array or tensor in float64."""
    if isinstance(value, torch.Tensor):
        value = value.detach().to(device="cpu")
        value = (value.double() if value.is_floating_point() else value).numpy()
    return np.asarray(value, dtype=np.float64)
