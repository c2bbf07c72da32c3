"""``fiberscope distance`` and ``fiberscope theory``: how far boundaries are, and what theorems say about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import fiberscope as fs
from fiberscope.cli.array_files import load_array
from fiberscope.cli.model_options import Loader, ModelFile
from fiberscope.cli.watched import watched
from fiberscope.errors import InputError

MANIFOLDS = {"circle": 2, "tractrix": 2, "sphere": 3, "ellipsoid": 3, "cylinder": 3, "torus": 3, "box": 1}
"""By name, with the fewest inputs; curves and surfaces lie in the first coordinates."""


def distance(
    model: ModelFile,
    load: Loader,
    data: Annotated[Path, typer.Option(help="Points as .npy, (count, ...).", show_default=False)],
    visible: Annotated[
        bool, typer.Option("--visible", help="To the nearest place where the function bends; searches beyond.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Regions searched per point with --visible.", min=1)] = 1000,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which it stops.", min=0.0, show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Distance of points to the boundaries of their linear regions, with proven bounds and the neuron that is nearest.

    Examples:

      fiberscope distance model.onnx --data X.npy

      fiberscope distance model.onnx --data X.npy --visible --limit 200 --json

    Exit code 3 if a search ended at its limit.
    """
    net = load(model)
    X = load_array(data)
    points = X.reshape(len(X), -1) if X.ndim > 1 else X.reshape(1, -1)
    found: Any
    with watched("distances") as progress:
        if visible:
            found = fs.visible_boundary_distance(net, points, limit=limit, time_limit=time_limit, progress=progress)
        else:
            found = fs.boundary_distance(net, points, time_limit=time_limit, progress=progress)
    if as_json:
        print(json.dumps({"model": str(model), **found.to_dict()}, indent=2))
    else:
        console = Console(highlight=False)
        known = found.distance[np.isfinite(found.distance)]
        console.print(f"[bold]{found!r}[/]")
        if len(known):
            parts = ", ".join(f"{q}% {np.percentile(known, q):.4g}" for q in (0, 25, 50, 75, 100))
            console.print(f"quantiles: {parts}; mean {known.mean():.4g}")
    if visible and not found.complete.all():
        raise typer.Exit(3)


def theory(
    widths: Annotated[str, typer.Argument(help="Widths of random networks, such as 2-10-16-1.", show_default=False)],
    on: Annotated[str, typer.Option(help=f"{', '.join(MANIFOLDS)}.")] = "circle",
    k: Annotated[int, typer.Option(help="Codimension of the boundary.", min=1)] = 1,
    init: Annotated[str, typer.Option(help="Law of the weights.")] = "he",
    bias_std: Annotated[
        float | None, typer.Option(help="Biases are normal with this deviation.", show_default=False)
    ] = None,
    networks: Annotated[int, typer.Option(help="Networks that are measured exactly.", min=2)] = 20,
    samples: Annotated[int, typer.Option(help="Samples of the integral of Theorem 1.", min=1)] = 4000,
    seed: Annotated[int, typer.Option(help="Seed of networks and samples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Theorems 1 to 3 on data geometry beside exact measurements of random networks: constants, bounds, distances.

    Examples:

      fiberscope theory 2-10-16-1

      fiberscope theory 3-10-16-1 --on sphere --networks 5 --json
    """
    try:
        numbers = tuple(int(part) for part in widths.split("-"))
    except ValueError:
        raise InputError(f"widths: expected numbers with dashes such as 2-10-16-1, got {widths!r}") from None
    if on not in MANIFOLDS:
        raise InputError(f"--on: expected one of {', '.join(MANIFOLDS)}, got {on!r}")
    ensemble = fs.Ensemble.of(numbers, init, bias_std=bias_std)
    if numbers[0] < MANIFOLDS[on]:
        raise InputError(f"--on {on}: expected at least {MANIFOLDS[on]} inputs, got {numbers[0]}")
    shape = _manifold(on, numbers[0])
    with watched("networks") as progress:
        found = fs.region_theory(ensemble, shape, k, networks=networks, samples=samples, seed=seed, progress=progress)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        print(found.table())


def _manifold(name: str, size: int) -> Any:
    if name == "box":
        return fs.Box.cube(size)
    if name in ("circle", "tractrix"):
        return (fs.Circle if name == "circle" else fs.Tractrix)(np.zeros(size))
    if name == "sphere":
        return fs.Sphere(np.zeros(size))
    if name == "ellipsoid":
        return fs.Ellipsoid(np.diag([1.0, 2.0, 0.5]) @ np.eye(3, size))
    if name == "cylinder":
        return fs.Cylinder(np.diag([1.0, 1.0, 2.0]) @ np.eye(3, size), -np.eye(3, size)[2])
    return fs.Torus(np.zeros(size), resolution=3)
