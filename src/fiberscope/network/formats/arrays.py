"""NumPy archives: ``.npz`` files, read and written without pickle."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.formats.program import KEY, describe, restore
from fiberscope.network.formats.request import Request
from fiberscope.network.formats.state_dict import OWN, from_state
from fiberscope.network.network import Network

_EPOCH = (1980, 1, 1, 0, 0, 0)


def read(path: Path, request: Request) -> Network:
    """The network in a ``.npz`` file; one without our description is a plain state dict."""
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InputError("expected a NumPy archive of several arrays, got a single array")
        with archive:
            arrays = {name: archive[name] for name in archive.files}
    except InputError:
        raise
    except Exception as error:  # on damaged bytes the parsers of zip and of array headers raise anything
        pickled = "pickle" in str(error) or "Object arrays" in str(error)
        reason = "pickled objects, which are never read" if pickled else "something else or a damaged file"
        raise InputError(f"expected a NumPy archive (.npz) of plain arrays, got {reason}") from error
    if KEY in arrays:
        request.refuse(OWN, "activation", "module", "key", "until")
        text = arrays.pop(KEY)
        return restore(str(text[()]) if text.dtype.kind == "U" and text.ndim == 0 else "", arrays)
    return from_state(arrays, request)


def encode(net: Network, dtype: str) -> bytes:
    """The bytes of a ``.npz`` file; the same network gives the same bytes."""
    made = describe(net, dtype)
    entries: dict[str, Any] = {**made.parameters, **made.constants, KEY: np.array(made.text)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in entries.items():
            # Not np.savez: its keyword arguments forbid some parameter names, and it stamps the time.
            info = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()
