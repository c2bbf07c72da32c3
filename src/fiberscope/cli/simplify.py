"""``fiberscope simplify``: a smaller model with the same function."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box as boxes
from rich.console import Console
from rich.table import Table

import fiberscope as fs
from fiberscope.cli.model_options import Loader, ModelFile, types


def simplify(
    model: ModelFile,
    load: Loader,
    out: Annotated[Path, typer.Argument(help="Where to write; the suffix chooses the format.", show_default=False)],
    box: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Lower and upper bound of every input; all of space otherwise.", show_default=False),
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds for the roles of neurons on the box.", min=0.0)] = 5.0,
    certificate: Annotated[
        Path | None, typer.Option(help="Write the proof, for `fiberscope verify`.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Remove dead neurons, fold linear ones, merge equal ones, compose affine maps; nothing of the function is lost.

    Examples:

      fiberscope simplify model.onnx small.onnx

      fiberscope simplify model.onnx small.onnx --box -1 1 --certificate proof.json

    The file keeps the names, types and batch axis of an ONNX model, and its precision where the rounded numbers are
    proven to be the same function up to that rounding: the proof is about the numbers that are written.

    Exit code 3 if the equality of the two could not be proven; nothing is written then.
    """
    net = load(model)
    domain = None if box is None else fs.Box.cube(net.in_size, *box)
    result = fs.simplify(net, domain, time_limit).stored(types(net, out)[0])
    if result.verdict.equal is not True:
        Console(stderr=True).print(f"not proven: {result.verdict.reason}", highlight=False, markup=False)
        raise typer.Exit(3)
    fs.save(result.network, out)
    if certificate is not None:
        # What was written is what the certificate names: the same numbers, now with the hash of the file.
        replace(result.verdict, networks=(net, fs.load(out))).save(certificate)
    if as_json:
        told = {"model": str(model), "out": str(out), "dtype": types(result.network, out)[1]}
        print(json.dumps({**told, **result.to_dict()}, indent=2))
        return
    _show(Console(), net, result, out)


def _show(console: Console, net: Any, result: Any, out: Path) -> None:
    small = result.network
    console.print(f"{result.before} -> [bold]{small.architecture}[/]", highlight=False)
    console.print(
        f"{net.num_hidden:,} -> {small.num_hidden:,} hidden neurons, "
        f"{net.num_parameters:,} -> {small.num_parameters:,} parameters",
        highlight=False,
    )
    table = Table(box=boxes.SIMPLE_HEAD)
    table.add_column("neurons", justify="right")
    table.add_column("why they went")
    for reason, count in result.counts().items():
        table.add_row(str(count), reason)
    if result.counts():
        console.print(table)
    if result.undecided:
        console.print(f"{len(result.undecided)} neurons of unknown role were left alone", highlight=False)
    how = "the same real function" if result.exact else f"the same function {result.verdict.kind}"
    console.print(f"proven: {how} on {result.verdict.domain!r}", highlight=False)
    wanted, dtype = types(small, out)
    wider = "" if dtype == wanted else f"; its numbers are not all {wanted}, so they are stored as {dtype}"
    console.print(f"wrote {out}{wider}", highlight=False)
