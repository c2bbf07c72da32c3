"""``fiberscope regions --on`` and ``--slice``: regions on surfaces, and on a plane through three points."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import fiberscope as fs
from fiberscope.cli.array_files import load_vector
from fiberscope.errors import InputError
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray

SURFACES = ("sphere", "torus", "round-sphere", "cylinder")


def slice_through(net: Any, points: tuple[str, str, str], other: Any) -> Any:
    """The plane through three points, each an .npy file or an image of a data set."""
    if other is not None:
        raise InputError("--slice: expected neither --plane, --axes nor --at with it")
    a, b, c = (_point(text, net.in_size) for text in points)
    return fs.Plane.through(a, b, c)


def _point(text: str, size: int) -> FloatArray:
    name, found, index = text.rpartition(":")
    if not found or Path(text).suffix == ".npy":
        return load_vector(Path(text), size)
    if not index.isdigit():
        raise InputError(f"{text}: expected an .npy file, or DATASET:INDEX with an index from 0")
    images = fs.load_dataset(name).flat_inputs
    if int(index) >= len(images):
        raise InputError(f"{text}: expected an index below {len(images)}, got {index}")
    if images.shape[1] != size:
        raise InputError(f"{text}: expected {size} numbers, one per input, got {images.shape[1]}")
    return real_array(images[int(index)], text)


def surface_of(net: Any, on: str, resolution: int | None, radius: float, center: Path | None, others: list[str]) -> Any:
    """The surface that was asked for, in the network's input space."""
    if others:
        raise InputError(f"--on: expected no {others[0]} with it")
    if on not in SURFACES:
        raise InputError(f"--on: expected one of {', '.join(SURFACES)}, got {on!r}")
    if net.in_size < 3:
        raise InputError(f"--on {on}: expected a model of at least 3 inputs, got {net.in_size}")
    where = np.zeros(net.in_size) if center is None else load_vector(center, net.in_size)
    options = {} if resolution is None else {"resolution": resolution}
    if on in ("round-sphere", "cylinder") and resolution is not None:
        raise InputError(f"--on {on}: expected no --resolution with it, there is no mesh")
    if on == "round-sphere":
        return fs.Ellipsoid(radius * np.eye(3, net.in_size), where)
    if on == "cylinder":
        axes = radius * np.array([1.0, 1.0, 2.0])[:, None] * np.eye(3, net.in_size)
        return fs.Cylinder(axes, where - axes[2] / 2)
    if on == "sphere":
        return fs.Sphere(where, radius, **options)
    return fs.Torus(where, radius, 0.4 * radius, **options)


def show_surface(net: Any, model: Path, surface: Any, limit: int | None, plot: Path | None, as_json: bool) -> None:
    """Find the regions on a surface and print them; exit code 3 if the count is only a lower bound."""
    if plot is not None and plot.suffix.lower() != ".png":
        raise InputError(f"--plot: expected a name that ends in .png, got {plot}")
    if plot is not None and not plot.resolve().parent.is_dir():
        raise InputError(f"--plot: expected an existing folder, got {plot.parent}")
    begin = perf_counter()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("regions", total=None)

        def progress(done: int, total: int | None, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text)

        meshed = isinstance(surface, fs.Sphere | fs.Torus)
        found: Any = (fs.regions_on if meshed else fs.round_regions)(net, surface, progress=progress, limit=limit)
        result = {"model": str(model), **found.to_dict()}
    result |= {"triangles": len(surface.mesh.triangles)} if meshed else {"areas": found.areas.tolist()}
    result["seconds"] = perf_counter() - begin
    if plot is not None:
        fs.plot.save_figure(found.plot(), plot)
        result["plot"] = str(plot)
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        (_print if meshed else _print_round)(Console(), found, result)
    if meshed and not found.complete:
        raise typer.Exit(3)


def _print_round(console: Console, found: Any, result: dict[str, Any]) -> None:
    console.print(f"[bold]{found.num_regions:,} regions[/], {result['seconds']:.2f} s: {found!r}", highlight=False)
    console.print(
        f"area {found.areas.sum():.6g}; boundaries of length {found.boundary_length:.6g}, of which "
        f"{found.visible_length:.6g} are visible; {found.exact_decisions} decisions needed exact arithmetic",
        highlight=False,
    )
    if "plot" in result:
        console.print(f"wrote {result['plot']}", highlight=False)


def _print(console: Console, found: Any, result: dict[str, Any]) -> None:
    least = "" if found.complete else "at least "
    word = "region" if found.num_regions == 1 else "regions"
    surface = found.surface
    console.print(
        f"[bold]{least}{found.num_regions:,} {word}[/] on {surface!r}, {result['seconds']:.2f} s", highlight=False
    )
    console.print(
        f"{result['num_patterns']:,} sign vectors, {result['num_pieces']:,} pieces of {result['triangles']:,} "
        f"triangles; {result['exact_decisions']} decisions needed exact arithmetic",
        highlight=False,
    )
    visible = "" if result["visible_length"] is None else f", of which {result['visible_length']:.4g} are visible"
    console.print(
        f"area {result['area']:.6g} (round: {surface.round_area:.6g}); boundaries of length "
        f"{result['boundary_length']:.4g}{visible}",
        highlight=False,
    )
    console.print(
        f"[dim]exact for the mesh, which lies within {surface.deviation:.2g} of the round surface[/]", highlight=False
    )
    if "plot" in result:
        console.print(f"wrote {result['plot']}", highlight=False)
