"""``fiberscope regions``: where exactly is a model linear?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich import box as boxes
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import fiberscope as fs
from fiberscope.cli.array_files import load_vector
from fiberscope.cli.model_options import Loader, ModelFile
from fiberscope.cli.regions.curves import Asked, curve_of, show_curve
from fiberscope.cli.regions.surfaces import show_surface, slice_through, surface_of
from fiberscope.errors import InputError
from fiberscope.extras import import_module
from fiberscope.numerics.compiling.kernels import compile_times

COLORS = ("mosaic", "value", "slope")

_MARKS = {True: "[green]holds[/]", False: "[red]fails[/]", None: "[yellow]undecided[/]"}


_MISFITS = {
    "--segment": ("box", "color", "radius", "center", "arc"),
    "--polyline": ("box", "color", "radius", "center", "arc"),
    "--along": ("box", "color"),
    "--on": ("box", "color", "arc", "generator"),
    "--slice": ("box", "radius", "center", "resolution", "arc", "generator"),
    "": ("radius", "center", "resolution", "arc", "generator"),
}
"""Options that would be without effect, by what is asked; the last for a box or a plane."""


_FITTING = {"resolution": "--on", "arc": "--along", "generator": "--segment, --along or --polyline"}
"""What an option belongs to, if not to --on or --along."""

_BOX, _ELSEWHERE = "On a box, or on a slice of it", "On a surface or along a curve, instead of a box"
_WORK, _OUT = "How much work", "What comes out"
"""Panels of the help: where the regions are asked for, then how much of them, then what is shown and kept."""


def regions(
    ctx: typer.Context,
    model: ModelFile,
    load: Loader,
    box: Annotated[
        tuple[float, float],
        typer.Option(help="Lower and upper bound of every coordinate (of the slice).", rich_help_panel=_BOX),
    ] = (-1.0, 1.0),
    plane: Annotated[
        tuple[Path, Path, Path] | None,
        typer.Option(
            help="Three points as .npy files; the slice through them.", show_default=False, rich_help_panel=_BOX
        ),
    ] = None,
    axes: Annotated[
        tuple[int, int] | None,
        typer.Option(
            help="Two input coordinates; the slice that they span through --at.",
            show_default=False,
            rich_help_panel=_BOX,
        ),
    ] = None,
    at: Annotated[
        Path | None,
        typer.Option(help="A point as .npy for --axes; zeros otherwise.", show_default=False, rich_help_panel=_BOX),
    ] = None,
    cut: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            "--slice",
            help="Three points; the slice through them with a margin. Each an .npy file or DATASET:INDEX.",
            show_default=False,
            rich_help_panel=_BOX,
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="A surface: sphere or torus as a mesh; round-sphere or cylinder themselves.",
            show_default=False,
            rich_help_panel=_ELSEWHERE,
        ),
    ] = None,
    resolution: Annotated[
        int | None,
        typer.Option(
            help="How often the triangles of --on are cut into four.", show_default=False, rich_help_panel=_ELSEWHERE
        ),
    ] = None,
    along: Annotated[
        str | None,
        typer.Option(help="A curve: circle or tractrix.", show_default=False, rich_help_panel=_ELSEWHERE),
    ] = None,
    segment: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Two points as .npy files; the straight way between them.",
            show_default=False,
            rich_help_panel=_ELSEWHERE,
        ),
    ] = None,
    polyline: Annotated[
        Path | None,
        typer.Option(
            help="Points or images as one .npy file, (count, ...); the chain through them.",
            show_default=False,
            rich_help_panel=_ELSEWHERE,
        ),
    ] = None,
    arc: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="First and last parameter of --along: angles of an arc.",
            show_default=False,
            rich_help_panel=_ELSEWHERE,
        ),
    ] = None,
    generator: Annotated[
        Path | None,
        typer.Option(
            help="A decoder; the curve then lies in its latent space, and its image is followed.",
            show_default=False,
            rich_help_panel=_ELSEWHERE,
        ),
    ] = None,
    radius: Annotated[
        float, typer.Option(help="Of the surface of --on or the curve of --along.", rich_help_panel=_ELSEWHERE)
    ] = 1.0,
    center: Annotated[
        Path | None,
        typer.Option(
            help="Of the surface of --on or the curve of --along, as .npy; zeros otherwise.",
            show_default=False,
            rich_help_panel=_ELSEWHERE,
        ),
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", help="Count only: no structure, no certificate.", rich_help_panel=_WORK)
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(help="Stop at so many regions.", min=1, show_default=False, rich_help_panel=_WORK),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Count in pieces, by so many processes (-1: all cores).", show_default=False, rich_help_panel=_WORK
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Where: dask://HOST:PORT, or a joblib backend; here otherwise.",
            show_default=False,
            rich_help_panel=_WORK,
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a picture (.png).", show_default=False, rich_help_panel=_OUT)
    ] = None,
    color: Annotated[str, typer.Option(help="mosaic, value or slope.", rich_help_panel=_OUT)] = "mosaic",
    save: Annotated[
        Path | None, typer.Option(help="Keep the complex (.npz).", show_default=False, rich_help_panel=_OUT)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.", rich_help_panel=_OUT)] = False,
) -> None:
    """Exact linear regions on a box, on a plane through a large input space, on a surface or along a curve.

    Examples:

      fiberscope regions model.onnx --box -1 1 --plot regions.png

      fiberscope regions mnist.onnx --plane a.npy b.npy c.npy --plot slice.png

      fiberscope regions mnist.onnx --slice mnist:3 mnist:17 mnist:42 --plot slice.png

      fiberscope regions acasxu.onnx --axes 0 1 --box -0.5 0.5 --count --json

      fiberscope regions wide.onnx --count --jobs 2

      fiberscope regions model.onnx --on sphere --resolution 4 --plot sphere.png

      fiberscope regions model.onnx --along circle --plot circle.png

      fiberscope regions model.onnx --along circle --arc 0 3.14159

      fiberscope regions mnist.onnx --segment a.npy b.npy --count

      fiberscope regions mnist.onnx --polyline images.npy --json

      fiberscope regions mnist.onnx --generator decoder.onnx --along circle --count

      fiberscope regions model.onnx --on cylinder --plot cylinder.png

    Ctrl-C ends the work, and what was found is shown. Exit code 1 if a certificate does not hold, 3 if the count is
    only a lower bound or the certificate was not finished.
    """
    begin = perf_counter()
    asked = {"--segment": segment, "--polyline": polyline, "--along": along, "--on": on, "--slice": cut}
    _check_misfits(ctx, next((name for name, x in asked.items() if x is not None), ""))
    net = load(model)
    others = {"--plane": plane, "--axes": axes, "--at": at, "--slice": cut, "--save": save}
    given = [name for name, x in others.items() if x is not None]
    pieces = {"--jobs": jobs, "--cluster": cluster}
    unfit = {"--on": on, "--resolution": resolution, "--limit": limit, **pieces}
    if along is not None or segment is not None or polyline is not None:
        curve = Asked(along, segment, polyline, arc, radius, center, generator)
        refused = given + [name for name, x in unfit.items() if x is not None]
        show_curve(net, model, curve_of(net, curve, refused), plot, count, as_json)
        return
    parallel = [name for name, x in pieces.items() if x is not None]
    if parallel and not count:
        raise InputError(f"{parallel[0]}: expected --count with it")
    if on is not None:
        shape = surface_of(net, on, resolution, radius, center, given + parallel)
        if count and plot is not None:
            raise InputError("--count: expected no --plot with it")
        show_surface(net, model, shape, limit, plot, as_json)
        return
    domain = _domain(net, box, plane, axes, at) if cut is None else slice_through(net, cut, plane or axes or at)
    _check_options(domain, count, plot, color, save)
    has_faces = import_module("fiberscope.geometry.engines.choose").has_faces
    result: dict[str, Any] = {"model": str(model), "domain": repr(domain)}
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("regions", total=None)

        def progress(done: int, total: int | None, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text)

        with compile_times() as times:
            if count or not has_faces(domain):
                ask = partial(fs.count_regions, limit=limit, jobs=jobs, cluster=cluster)
                steps = _counted(ask, net, domain, progress)
            else:
                steps = _built(fs.regions, net, domain, limit, progress, plot, color, save)
            result |= _timed(steps, times, perf_counter() - begin)
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        _show(Console(), result)
    certificate = result.get("certificate", {"ok": True})["ok"]
    if certificate is False:
        raise typer.Exit(1)
    if not result["complete"] or certificate is None:
        raise typer.Exit(3)


def _check_misfits(ctx: typer.Context, asked: str) -> None:
    """Refuse options that were given and would be ignored."""
    for name in _MISFITS[asked]:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            fitting = _FITTING.get(name, "--on or --along")
            reason = f"{asked}: expected no --{name} with it" if asked else f"--{name}: expected {fitting} with it"
            raise InputError(reason)


def _timed(steps: Iterator[tuple[str, dict[str, Any]]], times: list[float], loading: float) -> dict[str, Any]:
    """Take the steps one after the other, each with its seconds; when interrupted, what they gave so far.

    ``seconds`` is the first step alone. What compiling took (``times``, the first time on a machine) is counted apart.
    """
    result: dict[str, Any] = {}
    seconds = {"loading": loading}
    try:
        while True:
            begin, compiled = perf_counter(), sum(times)
            name, found = next(steps)
            result |= found
            seconds[name] = max(0.0, perf_counter() - begin - (sum(times) - compiled))
    except StopIteration:
        pass
    except KeyboardInterrupt:
        if not result:
            raise  # nothing was found yet
    seconds["compiling"] = sum(times)
    return {**result, "seconds": seconds["regions"], "seconds_by_step": seconds}


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


def _counted(ask: Any, net: Any, domain: Any, progress: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    found = ask(net, domain, progress=progress)
    pieces = {} if found.tiling is None else {"pieces": found.tiling.num_pieces}
    yield "regions", {"regions": int(found), "complete": found.complete, **pieces}


def _built(
    ask: Any, net: Any, domain: Any, limit: int | None, progress: Any, plot: Path | None, color: str, save: Path | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    complex = ask(net, domain, limit=limit, progress=progress)
    result: dict[str, Any] = {
        "regions": complex.num_regions,
        "complete": complex.complete,
        "f_vector": list(complex.f_vector),
        "euler_characteristic": complex.euler_characteristic,
        "exact_decisions": complex.structure.exact_decisions,
    }
    yield "regions", result
    if complex.complete:
        certificate = complex.verify(progress)
        yield "certificate", {"certificate": certificate.to_dict()}
        if certificate.ok is not None:
            inner = len(complex.facets) - int(complex.facets.boundary.sum())
            yield "facets", {"facets": inner, "visible_facets": int(complex.facets.visible.sum())}
    if save is not None:
        complex.save(save)
        yield "saving", {"saved": str(save)}
    if plot is not None:
        fs.plot.save_figure(fs.plot.regions(complex, color=color), plot)
        yield "plotting", {"plot": str(plot)}


def _show(console: Console, result: dict[str, Any]) -> None:
    count = f"{result['regions']:,}" if result["complete"] else f"at least {result['regions']:,}"
    word = "region" if result["regions"] == 1 else "regions"
    console.print(f"[bold]{count} {word}[/] on {result['domain']}, {result['seconds']:.2f} s", highlight=False)
    others = [f"{name} {took:.2f} s" for name, took in result["seconds_by_step"].items() if name != "regions" and took]
    console.print(f"[dim]besides: {', '.join(others)}[/]", highlight=False)
    if "certificate" not in result:
        pieces = f" in {result['pieces']} pieces" if "pieces" in result else ""
        console.print(f"[dim]counted only{pieces}: no complex, no certificate[/]")
    if "f_vector" in result:
        console.print(
            f"f-vector {', '.join(f'{n:,}' for n in result['f_vector'])}; Euler characteristic "
            f"{result['euler_characteristic']}; {result['exact_decisions']} decisions needed exact arithmetic",
            highlight=False,
        )
    if "facets" in result:
        console.print(
            f"{result['facets']:,} facets between regions, {result['visible_facets']:,} of them visible",
            highlight=False,
        )
    if "certificate" in result:
        table = Table(box=boxes.SIMPLE_HEAD, title="Certificate", title_justify="left", title_style="bold")
        for name in ("", "check", "evidence"):
            table.add_column(name)
        for check in result["certificate"]["checks"]:
            table.add_row(_MARKS[check["ok"]], check["name"], check["text"])
        console.print(table)
        console.print(result["certificate"]["claim"], highlight=False)
    for key in ("plot", "saved"):
        if key in result:
            console.print(f"wrote {result[key]}", highlight=False)
