"""``.pt`` and ``.ckpt`` files: a state dict beside our description, or any checkpoint of another program.

They are read with ``weights_only=True``, so that no code can run.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fiberscope.errors import InputError, TooLargeError
from fiberscope.files import check_archive, check_unpacked
from fiberscope.network.formats.program import KEY, describe, restore
from fiberscope.network.formats.request import Request
from fiberscope.network.formats.stored.checkpoint import state_of
from fiberscope.network.formats.stored.state_dict import OWN, Numbers, numbers_of
from fiberscope.network.network import Network
from fiberscope.network.source import precision_of


def read(path: Path, request: Request) -> Network | Numbers:
    """The network in a ``.pt`` file; one without our description is a state dict, perhaps inside of a checkpoint."""
    content = content_of(path)
    if isinstance(content.get(KEY), str):
        request.refuse(OWN, "activation", "module", "key", "until")
        parts = [part for part in (content.get("state_dict"), content.get("constants")) if isinstance(part, Mapping)]
        stored = precision_of(*(tensor for part in parts for tensor in part.values()))
        return restore(content[KEY], {k: v for part in parts for k, v in _numpy(part).items()}, stored)
    state = state_of(content, request.key)
    _check(state)
    return numbers_of(state, None)


def content_of(path: Path) -> Mapping[Any, Any]:
    """What a file saved by torch holds, if that is a mapping."""
    try:
        check_archive(path)  # torch writes stored archives, but reads deflated ones as well
        with warnings.catch_warnings():  # of formats that it then refuses: the error says it in one line
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except TooLargeError:
        raise
    except pickle.UnpicklingError as error:
        raise InputError(
            "expected a state dict of tensors, got pickled objects (which could run code and are never read) or a "
            "damaged file; save module.state_dict(), or build the module and load that"
        ) from error
    except Exception as error:  # on damaged bytes torch's parsers raise anything
        raise InputError("expected a state dict saved by torch, got something else or a damaged file") from error
    if not isinstance(content, Mapping):
        raise InputError(f"expected a state dict of tensors, got a {type(content).__name__}")
    return content


def _check(tensors: Mapping[Any, Any]) -> None:
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise InputError(f"expected a state dict of tensors, got a {type(tensor).__name__} under {name!r}")
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            raise InputError(f"{name}: expected a plain dense tensor, got {tensor.layout}, {tensor.dtype}")
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors.values()}
    # a tensor may repeat its numbers by strides of zero, and many tensors may share one storage
    check_unpacked(sum(storages.values()), 8 * sum(tensor.numel() for tensor in tensors.values()))


def _numpy(tensors: Mapping[Any, Any]) -> dict[str, Any]:
    _check(tensors)
    # float16 and bfloat16 fit into float64; integers stay, for the indices of sparse operators.
    return {
        str(name): (tensor.detach().double() if tensor.is_floating_point() else tensor.detach()).numpy()
        for name, tensor in tensors.items()
    }


def encode(net: Network, dtype: str) -> bytes:
    """The bytes of a ``.pt`` file with the entries ``state_dict``, ``constants`` and our description."""
    made = describe(net, dtype)
    state, constants = (
        {name: torch.from_numpy(array.copy()) for name, array in part.items()}
        for part in (made.parameters, made.constants)
    )
    buffer = io.BytesIO()
    torch.save({"state_dict": state, "constants": constants, KEY: made.text}, buffer)
    return buffer.getvalue()
