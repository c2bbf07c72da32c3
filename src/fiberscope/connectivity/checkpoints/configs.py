"""The permutation structure of a checkpoint from its configuration alone, without a single weight.

The model is built on torch's *meta* device, where tensors have shapes and no numbers, and traced at its full size.
Whether the groups are right is tried on a narrowed copy of the same architecture, with few layers and small widths,
which has numbers: every group of the large one must be one of the small one that passed its self-check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fiberscope.connectivity.structure import Structure, permutation_structure
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.extras import import_module
from fiberscope.modules.action import PERMUTATION, Group
from fiberscope.modules.tracing.groups import groups_of, pinned_of, traced

TOKENS = 6
"""Of the example that is traced."""

SMALL = {
    ("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers"): 2,
    ("vocab_size",): 61,
    ("intermediate_size", "n_inner", "ffn_dim", "d_ff"): 48,
    ("max_position_embeddings", "n_positions"): 64,
}
"""What is narrowed, by the names that configurations have for it."""

HEAD = 8
"""Dimensions of a head of the narrowed copy."""


@dataclass(frozen=True)
class Plan:
    """What moves in a checkpoint: groups by the names of its tensors, and other names of tied tensors."""

    structure: Structure
    aliases: Mapping[str, str]
    """From every name of a tensor to the one that the groups use."""
    shapes: Mapping[str, tuple[int, ...]]


def plan_of(folder: Path) -> Plan:
    """The structure of the model that a folder's ``config.json`` describes, for ``transformers``."""
    kind, config = _described(folder)
    large = _made(folder, kind, config)
    try:
        trace = traced(large, example(large, config, "meta"))
    except (RuntimeError, TypeError, ValueError, LookupError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0][:120]
        raise UnsupportedModelError(f"{folder}: {kind.__name__} does not run without numbers ({reason})") from error
    groups = tuple(group for group in groups_of(trace) if group.kind == PERMUTATION)
    if not groups:
        raise UnsupportedModelError(f"{folder}: expected neurons that can be permuted, found none")
    _check_narrowed(folder, kind, config, groups)
    names = dict(large.named_parameters()) | dict(large.named_buffers())
    first = {id(value): name for name, value in reversed(names.items())}
    tied = {**dict(large.named_parameters(remove_duplicate=False)), **dict(large.named_buffers(remove_duplicate=False))}
    aliases = {name: first[id(value)] for name, value in {**_stored(large), **tied}.items() if id(value) in first}
    shapes = {name: tuple(value.shape) for name, value in names.items()}
    return Plan(Structure(groups, pinned_of(trace), tuple(trace.unknown)), aliases, shapes)


def _stored(module: nn.Module) -> dict[str, Any]:
    """Tensors by the names that they have in files: ``transformers`` renames some of them when it saves a model.

    What it takes apart for that, as experts that are one tensor in the model, is another object and nobody's alias.
    """
    try:
        saving = import_module("transformers.core_model_loading", "reading a config.json")
        found: dict[str, Any] = saving.revert_weight_conversion(module, module.state_dict(keep_vars=True))
    except Exception:  # a version without it, or a class that its rules do not fit: the names are those of the model
        return {}
    return found


def example(module: nn.Module, config: Any, device: str) -> dict[str, Any]:
    """A few tokens, or one image."""
    if getattr(module, "main_input_name", "input_ids") == "pixel_values":
        size, channels = getattr(config, "image_size", 32), getattr(config, "num_channels", 3)
        return {"pixel_values": torch.zeros(1, channels, size, size, device=device)}
    tokens = torch.arange(3, 3 + TOKENS, device=device)[None]
    both = {"decoder_input_ids": tokens} if getattr(config, "is_encoder_decoder", False) else {}
    return {"input_ids": tokens, **both}


def transformers() -> Any:
    return import_module("transformers", "reading a config.json")


def _described(folder: Path) -> tuple[Any, Any]:
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder}: expected a config.json beside the tensors, found none")
    library = transformers()
    try:
        config = library.AutoConfig.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # classes of configurations check their values by errors of their own
        reason = "its config.json is no configuration of a model that transformers know"
        raise InputError(f"{folder}: {reason} ({_brief(error)})") from error
    names = getattr(config, "architectures", None) or []
    kind = getattr(library, names[0], None) if names else None
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise InputError(f"{folder}: expected the name of an architecture in config.json, got {names}")
    return kind, config


def _made(folder: Path, kind: Any, config: Any) -> nn.Module:
    """The model at its full size, without numbers."""
    try:
        with torch.device("meta"):
            made: nn.Module = kind(config).eval()
    except Exception as error:  # the class may not fit the configuration, or a value may mean nothing to it
        raise InputError(f"{folder}: {kind.__name__} cannot be made from its config.json ({_brief(error)})") from error
    return made


def _brief(error: Exception) -> str:
    """What kind of error, and its words in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"


def narrowed(config: Any) -> Any:
    """The same architecture with two layers, few neurons and few heads; the number of queries per key stays."""
    small = deepcopy(config)
    for names, value in SMALL.items():
        for name in names:
            now = getattr(small, name, None)
            if isinstance(now, int) and not isinstance(now, bool):
                setattr(small, name, min(now, value))
    for name in ("layer_types", "attention_types"):
        if isinstance(getattr(small, name, None), list):
            setattr(small, name, getattr(small, name)[:2])
    heads = getattr(small, "num_attention_heads", None)
    if isinstance(heads, int):
        shared = getattr(small, "num_key_value_heads", None) or heads
        kept = min(shared, 3)
        small.num_attention_heads = kept * (heads // shared)
        if getattr(small, "num_key_value_heads", None):
            small.num_key_value_heads = kept
        small.hidden_size = HEAD * small.num_attention_heads
        for name in ("head_dim", "d_kv"):
            if isinstance(getattr(small, name, None), int):
                setattr(small, name, HEAD)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if isinstance(getattr(small, name, None), int):
            setattr(small, name, min(getattr(small, name), small.vocab_size - 1))
    return small


def _check_narrowed(folder: Path, kind: Any, config: Any, groups: Iterable[Group]) -> None:
    small = narrowed(config)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = kind(small).float().eval()
        found = permutation_structure(module, example(module, small, "cpu"))
    except (RuntimeError, TypeError, ValueError, LookupError, InputError) as error:
        reason = str(error).splitlines()[0][:120]
        raise UnsupportedModelError(f"{folder}: a narrowed copy to check the structure on fails ({reason})") from error
    names = set(dict(module.named_parameters())) | set(dict(module.named_buffers()))
    passed = {_places(group, names) for group in found.only(PERMUTATION).groups}
    for group in groups:
        mine = _places(group, names)
        if mine and mine not in passed:
            raise UnsupportedModelError(f"{folder}: the group {group.name} did not pass the check on a narrowed copy")


def _places(group: Group, names: set[str]) -> frozenset[tuple[str, int, int]]:
    """Where a group stands in the tensors that the narrowed copy has, too."""
    return frozenset((axis.tensor, axis.axis, len(axis.copies)) for axis in group.axes if axis.tensor in names)
