"""How commands take models: one kind of argument, and one set of options that say what a file does not."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from fiberscope.errors import InputError

ModelFile = Annotated[Path, typer.Argument(help="An .onnx, .npz, .safetensors, .pt or .ckpt file.", show_default=False)]
"""The model that a command asks about."""

_PANEL = "What the file of a model does not say"


@dataclass(frozen=True, slots=True)
class Loader:
    """What the options say about the models of a command; call it with a path."""

    input_shape: tuple[int, ...] | None
    options: dict[str, Any]

    def __call__(self, path: Path) -> Any:
        """The network in a file."""
        return self.all(path)[0]

    def all(self, *paths: Path) -> list[Any]:
        """The networks in several files; each takes the options that it needs."""
        found: list[Any] = _io().load_many(paths, self.input_shape, **self.options)
        return found


def is_quantised(path: Path) -> bool:
    """Whether a file rounds what it computes: it is no network and handed on as a path."""
    return path.suffix == ".onnx" and bool(_quantised().is_quantised(path))


def input_size(model: Any) -> int:
    """How many inputs a network has, or a quantised file."""
    net = _quantised().load_quantised(model).network if isinstance(model, Path) else model
    return int(net.in_size)


def _quantised() -> Any:
    return import_module("fiberscope.network.formats.onnx.quantised")


def types(net: Any, path: Path) -> tuple[str, str]:
    """The float type in which a network would be written to a file, and the one that holds all of its numbers."""
    wanted = _io().preferred_type(net, path)
    return wanted, _io().narrowest(net, wanted)


def _io() -> Any:
    return import_module("fiberscope.network.io")


def loader(
    activation: Annotated[
        str | None,
        typer.Option(
            help="The numbers are those of dense layers in a row with relu or leaky_relu between them.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    slope: Annotated[
        float | None,
        typer.Option(help="Of leaky_relu; 0.01 otherwise.", show_default=False, rich_help_panel=_PANEL),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option(
            help="The numbers are those of the torch module that this makes: package.file:factory. It runs that code.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    input_shape: Annotated[
        str | None,
        typer.Option(help="Of one input, without the batch axis: 3,32,32.", show_default=False, rich_help_panel=_PANEL),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="Where the state dict stands in a checkpoint, if there are several: model, ema.state_dict.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="The last node to keep, by its name; a Softmax behind it is left off.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
) -> Loader:
    """The options themselves, and what they say: every command with a parameter ``load`` has them."""
    options: dict[str, Any] = {"activation": activation, "key": key, "until": until}
    if slope is not None:
        if activation != "leaky_relu":
            raise InputError("--slope: expected --activation leaky_relu beside it")
        options["slope"] = slope
    if module is not None:
        options["module"] = _factory(module)
    return Loader(None if input_shape is None else _shape(input_shape), options)


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError as error:
        raise InputError(f"--input-shape: expected sizes such as 3,32,32, got {text!r}") from error


def _factory(text: str) -> Any:
    """What ``package.file:name`` stands for; packages are also looked for in the working folder."""
    home, _, name = text.partition(":")
    if not home or not name:
        raise InputError(f"--module: expected package.file:factory, got {text!r}")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = import_module(home)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # it runs the user's code
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"--module: {text} cannot be imported ({type(error).__name__}: {reason})") from error
    finally:
        sys.path.remove(os.getcwd())
    return found
