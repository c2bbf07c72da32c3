"""``.safetensors`` files: our description stands in the header's metadata."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fiberscope.errors import InputError
from fiberscope.network.formats.program import KEY, describe, restore
from fiberscope.network.formats.state_dict import relu_chain
from fiberscope.network.network import Network


def read(path: Path, input_shape: tuple[int, ...] | None) -> Network:
    """The network in a ``.safetensors`` file; one without our description is taken for a plain state dict."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
    except (SafetensorError, OSError, ValueError, UnicodeDecodeError) as error:
        raise InputError("expected a safetensors file, got something else or a damaged file") from error
    except (TypeError, AttributeError) as error:
        raise InputError(f"expected tensors of float64, float32 or float16, got another type ({error})") from error
    if KEY in metadata:
        return restore(metadata[KEY], arrays)
    # The format sorts its tensors, so the order in which layers were saved is lost.
    return relu_chain(arrays, ordered=False)


def encode(net: Network, dtype: str) -> bytes:
    """The bytes of a ``.safetensors`` file."""
    made = describe(net, dtype)
    tensors = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in (made.parameters | made.constants).items()}
    return bytes(save(tensors, metadata={KEY: made.text}))
