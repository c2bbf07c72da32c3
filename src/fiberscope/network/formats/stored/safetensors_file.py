"""``.safetensors`` files: our description stands in the header's metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import save

from fiberscope.errors import InputError
from fiberscope.network.formats.program import KEY, describe, restore
from fiberscope.network.formats.request import Request
from fiberscope.network.formats.stored.state_dict import OWN, Numbers, numbers_of
from fiberscope.network.network import Network
from fiberscope.network.source import precision_of


def read(path: Path, request: Request) -> Network | Numbers:
    """The network in a ``.safetensors`` file; one without our description is a plain state dict."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  # not a dict
            arrays = {name: file.get_tensor(name) for name, kind in kinds.items() if kind != "BF16"}
        if len(arrays) < len(kinds):
            arrays = {name: arrays.get(name, a) for name, a in _bfloats(path, kinds).items()}
    except (SafetensorError, OSError, ValueError, UnicodeDecodeError) as error:
        raise InputError("expected a safetensors file, got something else or a damaged file") from error
    except (TypeError, AttributeError) as error:
        raise InputError(f"expected tensors of float64, float32 or float16, got another type ({error})") from error
    stored = "bfloat16" if "BF16" in kinds.values() else precision_of(*arrays.values())
    if KEY in metadata:
        request.refuse(OWN, "activation", "module", "key", "until")
        return restore(metadata[KEY], arrays, stored)
    # The format sorts its tensors, so the order in which layers were saved is lost.
    return numbers_of(arrays, request.key, ordered=False, stored=stored)


def _bfloats(path: Path, kinds: dict[str, str]) -> dict[str, Any]:
    """The tensors of type bfloat16, which NumPy does not have: the upper halves of float32 numbers."""
    found = dict.fromkeys(kinds)
    for name, entry in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        if kinds[name] == "BF16":
            upper = np.frombuffer(entry["data"], "<u2").astype(np.uint32)
            found[name] = (upper << 16).view(np.float32).reshape(entry["shape"])
    return found


def encode(net: Network, dtype: str) -> bytes:
    """The bytes of a ``.safetensors`` file."""
    made = describe(net, dtype)
    tensors = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in (made.parameters | made.constants).items()}
    return bytes(save(tensors, metadata={KEY: made.text}))
