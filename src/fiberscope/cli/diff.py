"""``fiberscope diff``: what changed between two models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box as boxes
from rich.console import Console
from rich.table import Table
from rich.text import Text

import fiberscope as fs
from fiberscope.cli.model_options import Loader
from fiberscope.errors import InputError
from fiberscope.files import check_targets

SOURCE = "An .onnx, .npz, .safetensors, .pt or .ckpt file, or a folder of safetensors shards."


def diff(
    a: Annotated[Path, typer.Argument(help=SOURCE, show_default=False)],
    b: Annotated[Path, typer.Argument(help="What became of it.", show_default=False)],
    load: Loader,
    plot: Annotated[Path | None, typer.Option(help="Write a picture, a .png file.", show_default=False)] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds after which to give up.", min=0.001)] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """What changed, modulo the order and scale of neurons: layers, pruned neurons, quantised numbers.

    Examples:

      fiberscope diff model.onnx pruned.onnx

      fiberscope diff model/ finetuned/ --plot changes.png

    Files that are no program by themselves (state dicts, folders of shards) are compared tensor by tensor, by name.

    Exit codes: 0 nothing changed but order, scale and rounding, 1 something changed, 2 bad input.
    """
    check_targets([plot], [a, b])
    found = fs.diff(*_programs_or_tensors(load, a, b), time_limit=time_limit)
    if plot is not None:
        fs.plot.save_figure(found.plot(), plot)
    if as_json:
        print(json.dumps({"a": str(a), "b": str(b), **found.to_dict()}, indent=2))
    else:
        _show_changes(Console(), found)
        if plot is not None:
            print(f"wrote {plot}")
    raise typer.Exit(0 if found.same else 1)


def _programs_or_tensors(load: Loader, a: Path, b: Path) -> tuple[Any, Any]:
    """Both models as networks; where a file is no program by itself, both as paths to tensors."""
    for path in (a, b):
        if not path.exists():
            raise InputError(f"{path}: no such file")
    try:
        one, two = load.all(a, b)
    except fs.FiberscopeError:
        if any(value is not None for value in load.options.values()):
            raise  # somebody said what the files do not, and that is what is wrong
        return a, b  # the library says what is wrong, if these are no tensors either
    return one, two


def _show_changes(console: Console, found: fs.Difference) -> None:
    word = "[bold green]nothing changed[/]" if found.same else "[bold red]changed[/]"
    console.print(f"{word}, compared by {found.by}, rounding of {found.precision}", highlight=False)
    table = Table(box=boxes.SIMPLE_HEAD)
    for name in (found.by.removesuffix("s"), "status", "neurons", "change", "what happened"):
        table.add_column(name, overflow="fold")
    for layer in found.layers:
        before, after = layer.neurons
        neurons = str(before) if before == after else f"{before} -> {after}"
        change = "-" if layer.change is None else f"{layer.change:.3g}"
        table.add_row(*map(Text, (layer.name, layer.status, neurons, change, layer.remarks)))
    console.print(table)
