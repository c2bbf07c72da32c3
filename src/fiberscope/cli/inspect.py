"""``fiberscope inspect``: a model at a glance."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

import fiberscope as fs
from fiberscope.cli.model_options import Loader, ModelFile


def inspect(
    model: ModelFile,
    load: Loader,
    points: Annotated[int, typer.Option(help="Random inputs for the sampled roles; 0 for none.", min=0)] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of these inputs.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Architecture, parameters, idle neurons, norms and symmetries of a model.

    Examples:

      fiberscope inspect model.onnx

      fiberscope inspect checkpoint.pt --points 10000 --json
    """
    result = fs.inspect(load(model), points, seed)
    if as_json:
        print(json.dumps({"model": str(model), **result.to_dict()}, indent=2))
        return
    console = Console()
    console.print(f"[bold]{model.name}[/]  {_clip(result.architecture, console.width - len(model.name) - 2)}")
    console.print(
        f"{_shape(result.input_shape)} inputs, {_shape(result.output_shape)} outputs, "
        f"{result.num_parameters:,} parameters, {result.num_hidden:,} hidden neurons\n",
        highlight=False,
    )
    console.print(_layers(result))
    console.print(_roles(result))
    for line in _symmetries(result):
        console.print(line, highlight=False)


def _layers(result: Any) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Layers", title_justify="left", title_style="bold")
    for name in ("", "kind", "output", "parameters", "norm", "largest entry"):
        table.add_column(name, justify="left" if name in ("kind", "output") else "right")
    for index, layer in enumerate(result.layers, start=1):
        table.add_row(
            str(index),
            layer.kind,
            _shape(layer.shape),
            f"{layer.parameters:,}" if layer.parameters else "",
            "" if layer.norm is None else f"{layer.norm:.4g}",
            "" if layer.largest is None else f"{layer.largest:.4g}",
        )
    return table


def _roles(result: Any) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Hidden neurons", title_justify="left", title_style="bold")
    for name in ("layer", "width", "dead", "linear"):
        table.add_column(name, justify="right")
    sampled = None if result.sampled is None else result.sampled.per_layer()
    if sampled is not None:
        for name in ("dead*", "linear*", "switching*"):
            table.add_column(name, justify="right")
        table.caption = f"for every input, proven from the weights; * on {result.samples}"
        table.caption_justify = "left"
    for index, row in enumerate(result.structural.per_layer()):
        cells = [str(row[key]) for key in ("layer", "width", "dead", "linear")]
        if sampled is not None:
            cells += [str(sampled[index][key]) for key in ("dead", "linear", "switching")]
        table.add_row(*cells)
    return table


def _symmetries(result: Any) -> list[str]:
    lines = ["[bold]Symmetries[/]"]
    if result.rescalings is None:
        lines.append("not a plain chain of dense layers: its permutations and rescalings are not listed")
    else:
        lines.append(
            f"10^{result.log10_permutations:.1f} permutations and {result.rescalings} free positive scales "
            "give the same function"
        )
    for layer, groups in result.coincident:
        count = sum(map(len, groups))
        lines.append(
            f"layer {layer}: {count} neurons lie on {len(groups)} shared hyperplanes, {_clip(str(groups), 60)}"
        )
    return lines


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _clip(text: str, width: int) -> str:
    return text if len(text) <= max(width, 10) else text[: max(width, 10) - 3] + "..."
