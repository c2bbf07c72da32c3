"""``fiberscope fiber``: the parameters that are the same function as a model, and members of that set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box as boxes
from rich.console import Console
from rich.table import Table

import fiberscope as fs
from fiberscope.cli.model_options import Loader, ModelFile
from fiberscope.errors import InputError

CODES = {True: 0, False: 1, None: 3}
"""Exit codes of the question whether the parameter is identifiable: yes, no, undecided."""


def fiber(
    model: ModelFile,
    load: Loader,
    sample: Annotated[int, typer.Option(help="How many members to write.", min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the members.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the members.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Which parameters are the same function: components, dimension, reasons, and members as models.

    "At least" stands before a dimension where parts of the fiber that are not generic may be larger.

    Examples:

      fiberscope fiber model.npz

      fiberscope fiber model.onnx --sample 10 --out members

    Exit codes: 0 identifiable (or members written), 1 not identifiable, 2 bad input, 3 undecided.
    """
    if sample and out is None:
        raise InputError("--sample: expected a folder for the members, --out DIR")
    public: Any = fs  # names load lazily
    found = public.fiber(load(model))
    written: list[str] = []
    if sample and out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for index, member in enumerate(found.sample(sample, seed)):
            path = out / f"{model.stem}_{index:0{len(str(sample - 1))}d}{model.suffix}"
            fs.save(member, path)
            written.append(str(path))
    if as_json:
        print(json.dumps({"model": str(model), **found.to_dict(), "members": written}, indent=2))
    else:
        _show(Console(), found, written)
    raise typer.Exit(0 if written else CODES[found.identifiability.identifiable])


def _show(console: Console, found: Any, written: list[str]) -> None:
    answer = found.identifiability
    word = {
        True: "[bold green]identifiable[/]",
        False: "[bold red]not identifiable[/]",
        None: "[bold yellow]undecided[/]",
    }
    console.print(f"{word[answer.identifiable]} by the theorem: {answer.theorem}", highlight=False)
    for text in (*answer.reasons, *(f"({text})" for text in answer.assumptions)):
        console.print(f"  {text}", highlight=False, markup=False)
    least = "" if found.dimension_exact else "at least "
    size = "unknown" if found.dimension is None else f"{least}{found.dimension}"
    console.print(f"dimension of the fiber, modulo rescaling: {size}", highlight=False)
    table = Table(box=boxes.SIMPLE_HEAD)
    for name in ("component", "dimension", "complete", "theorem"):
        table.add_column(name, justify="right" if name == "dimension" else "left")
    for part in found.components[:12]:
        text = f"{part.kind}{': ' + part.text if part.text else ''}"
        table.add_row(text, str(part.dimension), "yes" if part.complete else "not known", part.theorem)
    console.print(table)
    if len(found.components) > 12:
        console.print(f"and {len(found.components) - 12} more components", highlight=False)
    for path in written:
        console.print(f"wrote {path}", highlight=False, markup=False)
