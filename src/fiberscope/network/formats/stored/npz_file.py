"""NumPy archives: ``.npz`` files, read and written without pickle."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fiberscope.files import dated_member, read_arrays
from fiberscope.network.formats.program import KEY, describe, restore
from fiberscope.network.formats.request import Request
from fiberscope.network.formats.stored.state_dict import OWN, Numbers, numbers_of
from fiberscope.network.network import Network


def read(path: Path, request: Request) -> Network | Numbers:
    """The network in a ``.npz`` file; one without our description is a plain state dict."""
    arrays = read_arrays(path)
    if KEY in arrays:
        request.refuse(OWN, "activation", "module", "key", "until")
        text = arrays.pop(KEY)
        return restore(str(text[()]) if text.dtype.kind == "U" and text.ndim == 0 else "", arrays)
    return numbers_of(arrays, request.key)


def encode(net: Network, dtype: str) -> bytes:
    """The bytes of a ``.npz`` file; the same network gives the same bytes."""
    made = describe(net, dtype)
    entries: dict[str, Any] = {**made.parameters, **made.constants, KEY: np.array(made.text)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in entries.items():
            # Not np.savez: its keyword arguments forbid some parameter names, and it stamps the time.
            with archive.open(dated_member(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()
