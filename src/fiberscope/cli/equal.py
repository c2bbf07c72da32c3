"""``fiberscope equal``: are two models the same function?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fiberscope as fs
from fiberscope.cli.model_options import Loader, ModelFile, reads_models

CODES = {True: 0, False: 1, None: 3}
"""Exit codes: yes, no, undecided."""


@reads_models
def equal(
    a: ModelFile,
    b: Annotated[Path, typer.Argument(help="Another model.", show_default=False)],
    load: Loader,
    box: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Lower and upper bound of every input; all of space otherwise.", show_default=False),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="0: the same real function. A number: within it on the box. Otherwise: up to the rounding of the "
            "precision that the parameters are stored in."
        ),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Write the proof, for `fiberscope verify`.", show_default=False)
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds after which to give up.", min=0.001)] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Whether two models are the same function, with a proof either way.

    Examples:

      fiberscope equal model.onnx pruned.onnx

      fiberscope equal a.onnx b.onnx --box -1 1 --tolerance 1e-3 --certificate proof.json

    Exit codes: 0 equal, 1 different, 2 bad input, 3 undecided.
    """
    left, right = load.all(a, b)
    domain = None if box is None else fs.Box.cube(left.in_size, *box)
    verdict = fs.equivalent(left, right, domain, tolerance, time_limit, seed)
    if certificate is not None and verdict.equal is not None:
        verdict.save(certificate)
    if as_json:
        print(json.dumps({"a": str(a), "b": str(b), **verdict.to_dict()}, indent=2))
    else:
        _show(Console(), verdict, certificate)
    raise typer.Exit(CODES[verdict.equal])


def _show(console: Console, verdict: Any, certificate: Path | None) -> None:
    word = {True: "[bold green]equal[/]", False: "[bold red]different[/]", None: "[bold yellow]undecided[/]"}
    told = "" if verdict.bound is None else f", largest difference proven {verdict.bound:.6g}"
    console.print(f"{word[verdict.equal]} {verdict.kind} on {verdict.domain!r}{told}", highlight=False)
    console.print(f"by {verdict.method}, {1000 * verdict.seconds:.1f} ms", highlight=False)
    if verdict.reason:
        console.print(verdict.reason, highlight=False, markup=False)
    example = verdict.counterexample
    if example is not None:
        console.print(
            f"at x = {_numbers(example.x)}\n  a(x) = {_numbers(example.a)}\n  b(x) = {_numbers(example.b)}\n"
            f"difference {example.difference:.6g}, allowed {example.allowed:.6g}",
            highlight=False,
            markup=False,
        )
    if certificate is not None:
        told = f"wrote {certificate}" if verdict.equal is not None else "no certificate: nothing was proven"
        console.print(told, highlight=False)


def _numbers(values: Any) -> str:
    shown = [f"{v:.6g}" for v in values[:8]]
    return f"[{', '.join(shown)}{', ...' if len(values) > 8 else ''}]"
