"""``fiberscope regions --along``, ``--segment``, ``--polyline``: along circles, arcs, straight ways, and generators."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import typer
from rich.console import Console

import fiberscope as fs
from fiberscope.cli.array_files import load_array, load_vector
from fiberscope.errors import InputError

CURVES = ("circle", "tractrix")


@dataclass(frozen=True)
class Asked:
    """The options that name a curve."""

    along: str | None
    segment: tuple[Path, Path] | None
    polyline: Path | None
    arc: tuple[float, float] | None
    radius: float
    center: Path | None
    generator: Path | None

    @property
    def given(self) -> list[str]:
        """Which of the three kinds of curves was asked for."""
        kinds = {"--along": self.along, "--segment": self.segment, "--polyline": self.polyline}
        return [name for name, x in kinds.items() if x is not None]


def curve_of(net: Any, asked: Asked, others: list[str]) -> Any:
    """The curve that was asked for: in the network's input space, or through the latent space of a generator."""
    name, *more = asked.given
    if more:
        raise InputError(f"{name} and {more[0]}: expected one of them, got both")
    if others:
        raise InputError(f"{name}: expected no {others[0]} with it")
    if asked.generator is None:
        return _path(asked, net.in_size, "model")
    inner = _decoder(asked.generator)
    if inner.out_size != net.in_size:
        raise InputError(f"--generator: expected {net.in_size} outputs for this model, got {inner.out_size}")
    return fs.GeneratorCurve.along(inner, _path(asked, inner.in_size, "generator"))


def _decoder(path: Path) -> Any:
    """A decoder from a file of any format, or from one that :func:`fiberscope.train_generator` made."""
    if path.suffix == ".pt":
        with suppress(InputError):  # another file with that ending
            return fs.load_generator(path).network()
    return fs.load(path)


def _path(asked: Asked, size: int, what: str) -> Any:
    """A curve in R^size; a circle or tractrix lies in the first two coordinates."""
    if asked.segment is not None:
        return fs.Segment(*(load_vector(path, size) for path in asked.segment))
    if asked.polyline is not None:
        points = load_array(asked.polyline)
        if points.ndim < 2 or points[0].size != size:
            raise InputError(f"{asked.polyline}: expected points (count, ...) of {size} numbers, got {points.shape}")
        return fs.Polyline(points)
    along = asked.along
    if along not in CURVES:
        raise InputError(f"--along: expected one of {', '.join(CURVES)}, got {along!r}")
    if size < 2:
        raise InputError(f"--along {along}: expected a {what} of at least 2 inputs, got {size}")
    where = [0.0] * size if asked.center is None else load_vector(asked.center, size)
    options = {} if asked.arc is None else {"interval": asked.arc}
    return (fs.Circle if along == "circle" else fs.Tractrix)(where, asked.radius, **options)


def show_curve(net: Any, model: Path, curve: Any, plot: Path | None, count: bool, as_json: bool) -> None:
    """Find the regions along a curve and print them; exit code 3 if a decision was left open."""
    if plot is not None and plot.suffix.lower() != ".png":
        raise InputError(f"--plot: expected a name that ends in .png, got {plot}")
    if plot is not None and not plot.resolve().parent.is_dir():
        raise InputError(f"--plot: expected an existing folder, got {plot.parent}")
    if count and plot is not None:
        raise InputError("--count: expected no --plot with it")
    begin = perf_counter()
    found = fs.regions_along(net, curve)
    seconds = perf_counter() - begin
    result: dict[str, Any] = {"model": str(model), "curve": repr(curve), "num_regions": found.num_regions}
    result |= {"closed": curve.closed, "num_regions_closed": found.num_regions_closed}
    result |= {"certified": found.certified, "exact_decisions": found.exact_decisions, "length": curve.length}
    if not count:
        result |= found.to_dict()
    result["seconds"] = seconds
    if plot is not None:
        fs.plot.save_figure(_picture(net, curve, found), plot)
        result["plot"] = str(plot)
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        _print(Console(), found, result)
    if not found.certified:
        raise typer.Exit(3)


def _picture(net: Any, curve: Any, found: Any) -> Any:
    """In the plane the curve on its regions, elsewhere unrolled."""
    if net.in_size != 2:
        return fs.plot.curve_bars(found)
    lo, hi = curve.interval
    points = curve([lo + (hi - lo) * k / 400 for k in range(401)])
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.2 * float((high - low).max())
    return fs.plot.under_curve(fs.regions(net, fs.Box(low - margin, high + margin)), found)


def _print(console: Console, found: Any, result: dict[str, Any]) -> None:
    many = found.num_regions_closed
    word = "region" if many == 1 else "regions"
    loop = " of the loop" if found.curve.closed else ""
    console.print(f"[bold]{many:,} {word}[/]{loop} along {found.curve!r}, {result['seconds']:.2f} s", highlight=False)
    if found.num_regions != many:
        console.print(
            f"{found.num_regions:,} intervals of its parameter: the loop starts inside of a region", highlight=False
        )
    sure = "certified" if found.certified else f"{found.undecided} decisions left open"
    console.print(f"{sure}; {found.exact_decisions} decisions needed exact arithmetic", highlight=False)
    if result.get("latent_regions") is not None:
        console.print(f"{result['latent_regions']:,} latent regions of generator and model", highlight=False)
    if "num_pieces" in result:
        lengths = found.loop_lengths
        console.print(
            f"{result['num_pieces_closed']:,} affine pieces{loop}, {sum(result['tangential'])} tangential breakpoints; "
            f"lengths {lengths.min():.3g} to {lengths.max():.3g}, mean {lengths.mean():.3g}",
            highlight=False,
        )
    if "plot" in result:
        console.print(f"wrote {result['plot']}", highlight=False)
