"""The command ``fiberscope`` and what all its subcommands share: consoles, errors, exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

import fiberscope as fs
from fiberscope.cli.canon import canon
from fiberscope.cli.dimension import dimension_command
from fiberscope.cli.equal import equal
from fiberscope.cli.fiber import fiber
from fiberscope.cli.inspect import inspect
from fiberscope.cli.regions import regions
from fiberscope.cli.reproduce import reproduce
from fiberscope.cli.simplify import simplify
from fiberscope.cli.tour import tour
from fiberscope.cli.verify import verify
from fiberscope.errors import FiberscopeError

app = typer.Typer(
    name="fiberscope",
    help="Look into the fibers of neural networks: exact answers with evidence.",
    epilog="Exit codes: 0 yes or done, 1 no, 2 bad input, 3 undecided.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command(no_args_is_help=True)(inspect)
app.command(no_args_is_help=True)(regions)
app.command("dimension", no_args_is_help=True)(dimension_command)
app.command(no_args_is_help=True)(equal)
app.command(no_args_is_help=True)(verify)
app.command(no_args_is_help=True)(simplify)
app.command(no_args_is_help=True)(canon)
app.command(no_args_is_help=True)(fiber)
app.command()(reproduce)
app.command()(tour)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(fs.__version__)
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """What comes before the subcommand."""


def main() -> None:
    """Run the command line; a failure that has a name is one line on standard error and exit code 2."""
    try:
        app()
    except FiberscopeError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]error:[/] {_plain(error)}")
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted")
        sys.exit(130)


def _plain(error: Exception) -> str:
    return " ".join(str(error).split()).replace("[", r"\[")
