"""``fiberscope report``: everything that can be said about a model, as one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import fiberscope as fs
from fiberscope.cli.array_files import load_array, load_labels
from fiberscope.cli.model_options import Loader, ModelFile
from fiberscope.extras import import_module

INTERRUPTED = 130


def report(
    model: ModelFile,
    load: Loader,
    data: Annotated[Path | None, typer.Option(help="Inputs as .npy, (points, ...).", show_default=False)] = None,
    labels: Annotated[
        Path | None, typer.Option(help="A class for each of them as .npy, whole numbers.", show_default=False)
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Another model: is it the same function?", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    box: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Where to look for regions of a model with two inputs, if not around the data.", show_default=False
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Draw every region, not only the 20,000 largest.")] = False,
    time_limit: Annotated[float, typer.Option(help="Seconds for all questions together.", min=1.0)] = 120.0,
    seed: Annotated[int, typer.Option(help="Seed of random slices and primes.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """One self-contained page about any model: layers, neurons, regions to explore, dimension, fiber, distances.

    Every answer stands beside the call that gives it and the reason why it holds. What is too large to be asked is
    said, with what to try instead. Ctrl-C writes what is there.

    Examples:

      fiberscope report model.onnx

      fiberscope report cnn.onnx --data X.npy --labels y.npy --out cnn.html

      fiberscope report model.onnx --against pruned.onnx --data X.npy
    """
    models = load.all(model, *([against] if against is not None else []))
    X = None if data is None else load_array(data)
    public: Any = fs
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("starting", total=None)
        found = import_module("fiberscope.reporting.report").report(
            models[0],
            out,
            data=X,
            labels=None if labels is None else load_labels(labels),
            against=models[1] if against is not None else None,
            domain=None if box is None else public.Box.cube(models[0].in_size, *box),
            full=full,
            time_limit=time_limit,
            seed=seed,
            progress=lambda done, total, text: shown.update(task, completed=done, total=total, description=text),
        )
    if as_json:
        print(json.dumps({"model": str(model), **found.to_dict()}, indent=2))
    else:
        _show(Console(highlight=False), found)
    if not found.complete:
        raise typer.Exit(INTERRUPTED)


def _show(console: Console, found: Any) -> None:
    for title, answer in {**found.answers, **found.unasked}.items():
        console.print(f"[bold]{title}[/]")
        console.print(f"  {answer}", markup=False)
    console.print(f"Open [bold]{found.path}[/] in a browser.")
