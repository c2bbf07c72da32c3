"""``fiberscope verify``: does a certificate prove what it claims?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import fiberscope as fs


def verify(
    certificate: Annotated[Path, typer.Argument(help="A file written by --certificate.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Replay a certificate in exact arithmetic; the search is not done again.

    Examples:

      fiberscope verify proof.json

    Exit codes: 0 the claim holds, 1 the evidence does not prove it, 2 not a certificate.
    """
    replay = fs.verify(certificate)
    if as_json:
        print(json.dumps({"certificate": str(certificate), **replay.to_dict()}, indent=2))
    else:
        console = Console()
        claim = "equal" if replay.equal else "different"
        kind = "up to rounding" if replay.tolerance is None else f"within {replay.tolerance:g}"
        kind = "as real functions" if replay.tolerance == 0 else kind
        word = "[bold green]holds[/]" if replay.ok else "[bold red]does not hold[/]"
        console.print(f"{word}: the two models are {claim} {kind}", highlight=False)
        console.print(replay.evidence, highlight=False, markup=False)
    raise typer.Exit(0 if replay.ok else 1)
