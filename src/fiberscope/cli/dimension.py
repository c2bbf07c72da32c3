"""``fiberscope dimension``: how many independent things the parameters of a model can do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

import fiberscope as fs
from fiberscope.cli.array_files import load_array
from fiberscope.cli.model_options import Loader, ModelFile
from fiberscope.cli.watched import watched
from fiberscope.errors import InputError

_REASONS = 3
"""Points on kinks that are explained one by one."""


def dimension_command(
    model: ModelFile,
    load: Loader,
    data: Annotated[
        Path | None,
        typer.Option(help="Batch as .npy, (points, ...); without it a decisive set of the model.", show_default=False),
    ] = None,
    spectrum: Annotated[
        int, typer.Option(help="Leading eigenvalues of the tangent kernel, never formed, instead of ranks.", min=0)
    ] = 0,
    explain: Annotated[
        bool, typer.Option("--explain", help="What the kernel of the Jacobian is made of, instead of ranks.")
    ] = False,
    rank: Annotated[
        list[str] | None,
        typer.Option(help="exact, numerical or paper, several times for several; all by default.", show_default=False),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(help="Name or pattern of parameters, several times; all by default.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of primes and samples.")] = 0,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which it stops.", min=1e-6, show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Functional dimension: exact, numerical and float32 rank of the Jacobian, symmetries, and every bound.

    Exit code 3 if only a lower bound is known: without --data, for a model whose regions cannot all be listed.

    Examples:

      fiberscope dimension model.onnx --data X.npy

      fiberscope dimension model.pt

      fiberscope dimension cnn.onnx --data images.npy --rank exact --parameters "conv*"

      fiberscope dimension model.onnx --data X.npy --explain

      fiberscope dimension large.onnx --data X.npy --spectrum 20 --json
    """
    net = load(model)
    X = None if data is None else load_array(data)
    if spectrum:
        if X is None:
            raise InputError("--spectrum: expected a batch, give --data X.npy")
        with watched("spectrum") as progress:
            values = fs.kernel_spectrum(net, X, spectrum, seed=seed, time_limit=time_limit, progress=progress)
        _show_spectrum(model, values, as_json)
        return
    if explain:
        with watched("kernel") as progress:
            kernel = fs.explain(net, X, seed=seed, time_limit=time_limit, progress=progress)
        _show_kernel(model, kernel, as_json)
        return
    with watched("ranks") as progress:
        result = fs.functional_dimension(
            net, X, ranks=rank, parameters=parameters, seed=seed, time_limit=time_limit, progress=progress
        )
    if as_json:
        print(json.dumps({"model": str(model), **result.to_dict()}, indent=2))
    else:
        _show(model, result)
    if "exact" in result.ranks and not (result.decisive or result.certified):
        raise typer.Exit(3)


def _show(model: Path, result: Any) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]{model.name}[/]  {result.num_parameters:,} parameters, {result.num_outputs} outputs")
    regions = "" if result.regions_sampled is None else f", {result.regions_sampled} regions sampled"
    console.print(f"{result.num_points} points ({result.batch}){regions}")
    if result.on_boundary:
        console.print(f"[bold]{len(result.on_boundary)} points lie exactly on a kink[/] and are left out:")
        for reason in result.reasons[:_REASONS]:
            console.print(f"  {reason}")
        if len(result.reasons) > _REASONS:
            console.print(f"  ... and {len(result.reasons) - _REASONS} more (--json lists all)")
    console.print(_ranks(result))
    for warning in result.warnings:
        console.print(f"[bold]warning[/] {warning}")
    console.print(_bounds(result))
    if result.symmetry is not None:
        console.print(_symmetry(result))


def _table(title: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 or index == len(columns) - 1 else "right")
    return table


def _ranks(result: Any) -> Table:
    table = _table("Functional dimension", "rank", "value", "evidence")
    if result.exact is not None:
        chance = f"wrong with probability below {result.failure_probability:.1g}; at least {result.lower} is proven"
        table.add_row("exact", str(result.exact), "certified: an upper bound meets it" if result.certified else chance)
    elif result.lower is not None:
        table.add_row("exact", f"at least {result.lower}", f"proven; on samples only, so at most {result.upper}")
    ranks = (
        ("numerical (float64)", result.numerical, result.cutoff, f", {_gap(result)}"),
        ("paper (float32)", result.paper, result.paper_cutoff, ""),
    )
    for name, rank, cutoff, more in ranks:
        if name.split()[0] not in result.ranks:
            continue
        if rank is None:
            table.add_row(name, "none", "the Jacobian exceeds the range of these floats")
        else:
            table.add_row(name, str(rank), f"cut-off {cutoff:.2g}{more}")
    return table


def _gap(result: Any) -> str:
    """How clear the cut is: last singular value kept over the first one dropped."""
    if np.isfinite(result.gap):
        return f"gap {result.gap:.3g}"
    if result.numerical == len(result.singular_values):
        return "nothing dropped"
    return "infinite gap: all that was dropped is zero" if result.numerical else "all of it is zero"


def _bounds(result: Any) -> Table:
    table = _table("Upper bounds", "bound", "value", "holds", "assumptions")
    for bound in sorted(result.bounds, key=lambda b: b.value):
        table.add_row(bound.name, str(bound.value), "yes" if bound.holds else "[red]no[/]", bound.assumptions)
    return table


def _symmetry(result: Any) -> Table:
    symmetry = result.symmetry
    table = _table("Hidden neurons on these points", "layer", "width", "active", "inactive", "switching", "")
    if symmetry is None:
        return table
    for layer in symmetry.layers:
        numbers = (layer.layer, layer.width, layer.active, layer.inactive, layer.switching)
        table.add_row(*map(str, numbers), "")
    orbit = "orbit not computed"
    if symmetry.orbit is not None:
        orbit = f"orbit at least {symmetry.orbit}, stabiliser at most {symmetry.stabiliser}"
    table.caption = (
        f"hidden equivalence group of dimension {symmetry.dimension}, {orbit}; "
        f"at least {symmetry.directions} directions change nothing"
    )
    table.caption_justify = "left"
    return table


def _show_kernel(model: Path, result: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"model": str(model), **result.to_dict()}, indent=2))
        return
    console = Console(highlight=False)
    console.print(f"[bold]{model.name}[/]  {result.sentence}")
    table = _table("Kernel of the Jacobian", "reason", "dimension", "on all inputs", "along it")
    words = {True: "outputs stay as they are", None: "known to first order"}
    for part in result.parts:
        table.add_row(part.kind, str(part.dimension), str(part.everywhere), words[part.integrates])
    console.print(table)
    console.print(_bounds(result))


def _show_spectrum(model: Path, result: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"model": str(model), **result.to_dict()}, indent=2))
        return
    console = Console(highlight=False)
    console.print(f"[bold]{model.name}[/]  tangent kernel of {result.size:,} rows, trace {result.trace:.6g}")
    console.print(
        f"effective rank {result.effective_rank:.4g} +- {result.standard_error:.2g}, "
        f"between {result.lower:.4g} and {result.upper:.4g}"
    )
    table: Any = _table("Leading eigenvalues", "", "value", "share", "error at most")
    for index, (value, error) in enumerate(zip(result.eigenvalues, result.errors, strict=True), start=1):
        share = f"{value / result.trace:.2%}" if result.trace else ""
        table.add_row(str(index), f"{value:.8g}", share, f"{error:.1g}")
    console.print(table)
