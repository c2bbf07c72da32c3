"""``fiberscope recover``: the parameters of a model from its values alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import fiberscope as fs
from fiberscope.cli.model_options import Loader, ModelFile
from fiberscope.errors import InputError

CODES = {True: 0, False: 3}
"""Exit codes: recovered, or something is left unresolved."""


def recover(
    model: ModelFile,
    load: Loader,
    widths: Annotated[str, typer.Option(help="The widths to look for, such as 10-15-15-1.", show_default=False)],
    max_queries: Annotated[int | None, typer.Option(help="The most inputs to ask.", min=1, show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the lines that are searched.", min=0)] = 0,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which to give up.", min=0.0, show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the network that was found.", show_default=False)] = None,
    plot: Annotated[Path | None, typer.Option(help="File for a picture of the folds.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Ask the model as a black box, and find its parameters up to order and scale of neurons.

    Every input that is asked counts as one query. What could not be decided is named.

    Examples:

      fiberscope recover model.npz --widths 10-15-15-1

      fiberscope recover model.onnx --widths 5-8-8-2 --max-queries 20000 --out found.npz --plot folds.png

      fiberscope recover model.npz --widths 20-15-15-1 --time-limit 60 --json

    Exit codes: 0 recovered, 2 bad input, 3 something is unresolved or the time is up.
    """
    try:
        sizes = [int(text) for text in widths.split("-")]
    except ValueError as error:
        raise InputError(f"--widths: expected numbers such as 10-15-15-1, got {widths!r}") from error
    public: Any = fs  # names load lazily
    net = load(model)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("queries", total=None)

        def progress(done: int, total: int | None, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text)

        found = public.recover(net, sizes, None, max_queries, seed, progress=progress, time_limit=time_limit)
    if out is not None and found.network is not None:
        fs.save(found.network, out)
    if plot is not None and found.hyperplanes:
        fs.plot.save_figure(found.plot(), plot)
    elif plot is not None:  # the answer counts more than its picture
        Console(stderr=True).print(f"{plot}: not drawn, no layer was found", highlight=False, markup=False)
    if as_json:
        print(json.dumps({"model": str(model), **found.to_dict()}, indent=2))
    else:
        _show(Console(), found, out)
    raise typer.Exit(CODES[found.recovered])


def _show(console: Console, found: Any, out: Path | None) -> None:
    word = "[bold green]recovered[/]" if found.recovered else "[bold yellow]not recovered as a whole[/]"
    console.print(f"{word} with {found.queries:,} queries", highlight=False)
    if found.network is not None:
        text = f"largest difference at {found.held_out:,} fresh points: {found.residual:.2g}"
        console.print(f"{text} (values up to {found.size:.3g})", highlight=False)
    if found.proof is not None:
        console.print(f"proven: {found.proof}", highlight=False, markup=False)
    for item in found.unresolved:
        console.print(f"  {item}", highlight=False, markup=False)
    if out is not None and found.network is not None:
        console.print(f"wrote {out}", highlight=False, markup=False)
