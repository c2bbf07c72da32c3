"""``fiberscope verify``: does a certificate prove what it claims?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fiberscope as fs
from fiberscope.cli.model_options import Loader, is_quantised
from fiberscope.equality import checker
from fiberscope.errors import InputError


def verify(
    certificate: Annotated[Path, typer.Argument(help="A file written by --certificate.", show_default=False)],
    a: Annotated[Path | None, typer.Argument(help="The first model, to be compared.", show_default=False)] = None,
    b: Annotated[Path | None, typer.Argument(help="The second model.", show_default=False)] = None,
    *,
    load: Loader,
    plain: Annotated[
        bool, typer.Option("--plain", help="Let the standalone checker prove it, on Python's standard library alone.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Replay a certificate in exact arithmetic, and compare the two models of its claim with yours.

    Examples:

      fiberscope verify proof.json model.onnx small.onnx

      fiberscope verify proof.json

      fiberscope verify --plain proof.json model.onnx small.onnx

    Without the models the claim is proven of those inside of the certificate, whose hashes are printed.

    --plain runs equality/checker.py, one file that needs nothing installed: it compares the bytes of the model files
    with the hashes of the claim, and proves the claim of the plain programs inside of the certificate.

    Exit codes: 0 the claim holds, 1 the evidence does not prove it or a model is another one, 2 not a certificate, 3
    too large for the standalone checker.
    """
    if plain:
        if as_json or (a is None) != (b is None):
            raise InputError("--plain: expected a certificate and both models or none, without --json")
        raise typer.Exit(checker.main([str(path) for path in (certificate, a, b) if path is not None]))
    given = [path for path in (a, b) if path is not None and not is_quantised(path)]
    models: dict[Path | None, Any] = dict(zip(given, load.all(*given), strict=True)) if given else {}
    replay = fs.verify(certificate, models.get(a, a), models.get(b, b))
    if as_json:
        print(json.dumps({"certificate": str(certificate), **replay.to_dict()}, indent=2))
    else:
        _show(Console(soft_wrap=True), replay)
    raise typer.Exit(0 if replay.ok else 1)


def _show(console: Console, replay: Any) -> None:
    word = "[bold green]holds[/]" if replay.ok else "[bold red]does not hold[/]"
    console.print(f"{word}: the two models are ", end="", highlight=False)
    console.print(replay.claim, highlight=False, markup=False)
    for name, model in zip("ab", replay.models, strict=True):
        console.print(f"{name}: {model.text}", highlight=False, markup=False)
    console.print(f"evidence: {replay.evidence}", highlight=False, markup=False)
