"""``fiberscope regions``: where exactly is a model linear?"""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich import box as boxes
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import fiberscope as fs
from fiberscope.cli.arrays import load_vector
from fiberscope.errors import InputError

COLORS = ("mosaic", "value", "slope")

FULL = 6
"""Up to so many dimensions the whole complex is built; above, regions are counted by traversal."""


def regions(
    model: Annotated[Path, typer.Argument(help="An .onnx, .npz, .safetensors or .pt file.", show_default=False)],
    box: Annotated[
        tuple[float, float], typer.Option(help="Lower and upper bound of every coordinate (of the plane).")
    ] = (-1.0, 1.0),
    plane: Annotated[
        tuple[Path, Path, Path] | None,
        typer.Option(help="Three points as .npy files; the slice through them.", show_default=False),
    ] = None,
    axes: Annotated[
        tuple[int, int] | None,
        typer.Option(help="Two input coordinates; the slice that they span through --at.", show_default=False),
    ] = None,
    at: Annotated[
        Path | None, typer.Option(help="A point as .npy for --axes; zeros otherwise.", show_default=False)
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Count only: no structure, no certificate.")] = False,
    limit: Annotated[int | None, typer.Option(help="Stop at so many regions.", min=1, show_default=False)] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a picture (.png).", show_default=False)] = None,
    color: Annotated[str, typer.Option(help="mosaic, value or slope.")] = "mosaic",
    save: Annotated[Path | None, typer.Option(help="Keep the complex (.npz).", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Exact linear regions on a box, or on a plane through a large input space, with a certificate.

    Examples:

      fiberscope regions model.onnx --box -1 1 --plot regions.png

      fiberscope regions mnist.onnx --plane a.npy b.npy c.npy --plot slice.png

      fiberscope regions acasxu.onnx --axes 0 1 --box -0.5 0.5 --count --json

    Exit code 1 if a certificate does not hold, 3 if the count is only a lower bound.
    """
    net = fs.load(model)
    domain = _domain(net, box, plane, axes, at)
    if plot is not None and domain.dimension != 2:
        raise InputError(
            f"--plot: expected 2 dimensions, got {domain.dimension}; choose a slice with --axes or --plane"
        )
    console = Console(stderr=as_json)
    begin = perf_counter()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task("regions", total=None)

        def progress(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text)

        if count or domain.dimension > FULL:
            result = _counted(net, domain, limit, progress)
        else:
            result = _built(net, domain, limit, progress, plot, color, save)
    result = {"model": str(model), "domain": repr(domain), **result, "seconds": perf_counter() - begin}
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        _show(Console(), result)
    if result.get("certificate", {}).get("ok") is False:
        raise typer.Exit(1)
    if not result["complete"]:
        raise typer.Exit(3)


def _check_options(domain: Any, count: bool, plot: Path | None, color: str, save: Path | None) -> None:
    """Everything that can be refused before the work begins."""
    if plot is not None and domain.dimension != 2:
        raise InputError(
            f"--plot: expected 2 dimensions, got {domain.dimension}; choose a slice with --axes or --plane"
        )
    if plot is not None and plot.suffix.lower() != ".png":
        raise InputError(f"--plot: expected a name that ends in .png, got {plot}")
    if color not in COLORS:
        raise InputError(f"--color: expected one of {', '.join(COLORS)}, got {color!r}")
    if count and (plot is not None or save is not None):
        raise InputError("--count: expected neither --plot nor --save, which need the whole complex")
    for option, path in (("--plot", plot), ("--save", save)):
        if path is not None and not path.resolve().parent.is_dir():
            raise InputError(f"{option}: expected an existing folder, got {path.parent}")


def _domain(net: Any, box: tuple[float, float], plane: Any, axes: Any, at: Path | None) -> Any:
    if plane is not None and axes is not None:
        raise InputError("--plane and --axes: expected one of them, got both")
    if at is not None and axes is None:
        raise InputError("--at: expected --axes with it, got none")
    square = fs.Box.cube(2, *box)
    if plane is not None:
        a, b, c = (load_vector(path, net.in_size) for path in plane)
        return fs.Plane(a, b - a, c - a, square)
    if axes is not None:
        return fs.Plane.along(net.in_size, axes, None if at is None else load_vector(at, net.in_size), square)
    return fs.Box.cube(net.in_size, *box)


def _counted(net: Any, domain: Any, limit: int | None, progress: Any) -> dict[str, Any]:
    found = fs.count_regions(net, domain, limit=limit, progress=progress)
    return {"regions": int(found), "complete": found.complete}


def _built(
    net: Any, domain: Any, limit: int | None, progress: Any, plot: Path | None, color: str, save: Path | None
) -> dict[str, Any]:
    complex = fs.regions(net, domain, limit=limit, progress=progress)
    result: dict[str, Any] = {
        "regions": complex.num_regions,
        "complete": complex.complete,
        "f_vector": list(complex.f_vector),
        "euler_characteristic": complex.euler_characteristic,
        "exact_decisions": complex.structure.exact_decisions,
    }
    if complex.complete:
        certificate = complex.verify()
        visible = int(complex.facets.visible.sum())
        inner = len(complex.facets) - int(complex.facets.boundary.sum())
        result |= {"facets": inner, "visible_facets": visible, "certificate": certificate.to_dict()}
    if plot is not None:
        result["plot"] = str(plot)
        fs.plot.save_figure(fs.plot.regions(complex, color=color), plot)
    if save is not None:
        result["saved"] = str(save)
        complex.save(save)
    return result


def _show(console: Console, result: dict[str, Any]) -> None:
    count = f"{result['regions']:,}" if result["complete"] else f"at least {result['regions']:,}"
    word = "region" if result["regions"] == 1 else "regions"
    console.print(f"[bold]{count} {word}[/] on {result['domain']}, {result['seconds']:.2f} s", highlight=False)
    if "certificate" not in result:
        console.print("[dim]counted only: no complex, no certificate[/]")
    if "f_vector" in result:
        console.print(
            f"f-vector {', '.join(f'{n:,}' for n in result['f_vector'])}; Euler characteristic "
            f"{result['euler_characteristic']}; {result['exact_decisions']} decisions needed exact arithmetic",
            highlight=False,
        )
    if "certificate" in result:
        console.print(
            f"{result['facets']:,} facets between regions, {result['visible_facets']:,} of them visible",
            highlight=False,
        )
        table = Table(box=boxes.SIMPLE_HEAD, title="Certificate", title_justify="left", title_style="bold")
        for name in ("", "check", "evidence"):
            table.add_column(name)
        for check in result["certificate"]["checks"]:
            mark = "[green]holds[/]" if check["ok"] else "[red]fails[/]"
            table.add_row(mark, check["name"], check["text"])
        console.print(table)
    for key in ("plot", "saved"):
        if key in result:
            console.print(f"wrote {result[key]}", highlight=False)
