"""``fiberscope compile``: kernels into an extension, so that first answers wait for no compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import fiberscope as fs
from fiberscope.numerics.compiling.building import build, remove
from fiberscope.numerics.compiling.kernels import FOLDER, opened


def compile_kernels(
    clean: Annotated[bool, typer.Option("--clean", help="Remove the extension instead.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Say whether one is used, or why not.")] = False,
    into: Annotated[Path, typer.Option(help="Write into this folder.", hidden=True)] = FOLDER,
) -> None:
    """Compile the loops of the library once, ahead of time, for every process to come.

    Needs setuptools and a C compiler, and writes beside the package. Without it Numba compiles what a first call needs.
    """
    if status:
        say_status()
        return
    if clean:
        remove()
        typer.echo("no extension any more: Numba compiles what is asked")
        return
    path, count = build(ask, into)
    typer.echo(f"{count} functions in {path}")


def say_status() -> None:
    """Whether the extension is used; exit code 1 and the reason if not."""
    try:
        module, entries = opened(FOLDER)
    except ImportError as reason:
        typer.echo(f"no extension is used: {reason}. Numba compiles what is asked")
        raise typer.Exit(1) from None
    typer.echo(f"{sum(map(len, entries.values()))} functions of {Path(module.__file__).name} are used")


def ask() -> None:
    """Small questions, which need the kernels that are worth it."""
    rng = np.random.default_rng(0)
    for size in (2, 3, 4):
        net = fs.Network.random((size, 5, 5, 1), size)
        domain = fs.Box.cube(size)
        fs.count_regions(net, domain)
        found = fs.regions(net, domain)
        _ = found.volumes, found.sign_vectors
    wide = fs.Network.random((20, 16, 16, 16, 3), 0)
    points = rng.normal(size=(3, 20))
    for net in (wide, fs.Network.random((20, *(8,) * 8, 1), 0)):
        fs.regions_along(net, fs.Segment(points[0], points[1]))
        fs.regions_along(net, fs.Polyline(points))
        fs.count_regions(net, fs.Plane.through(*points))
        fs.regions(net, fs.Plane.through(*points))
    broad = fs.Network.random((2, 128, 128, 1), 0)
    fs.count_regions(broad, fs.Box.cube(2))
    fs.regions(broad, fs.Box.cube(2))
    one = fs.Network.random((4, 8, 8, 1), 0)
    other = fs.Network([w + 1e-4 for w in one.weights], one.biases)
    fs.equivalent(one, other, domain=fs.Box.cube(4), tolerance=0.1)
    net = fs.Network.random((8, 6, 6, 1), 0)
    fs.count_regions(net, fs.Box.cube(8))
    net = fs.Network.random((5, 8, 8, 1), 0)
    fs.functional_dimension(net, rng.normal(size=(100, 5)))
