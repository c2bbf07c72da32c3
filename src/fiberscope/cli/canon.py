"""``fiberscope canon``: the canonical form of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import fiberscope as fs
from fiberscope.cli.model_options import Loader, ModelFile


def canon(
    model: ModelFile,
    load: Loader,
    out: Annotated[Path, typer.Argument(help="Where to write; the suffix chooses the format.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Rescale every hidden neuron to unit weights and sort the neurons: one model for each orbit.

    Two models that differ by a permutation and by scales that are powers of two get the same file. A model with more
    ties between neurons than the search for an order can tell apart is refused.

    Examples:

      fiberscope canon model.onnx canonical.npz
    """
    net = load(model)
    form = fs.canonical(net)
    fs.save(form, out)
    changed = not fs.identical(net, form)
    if as_json:
        print(json.dumps({"model": str(model), "out": str(out), "changed": changed, "widths": form.architecture}))
        return
    told = "rescaled and sorted" if changed else "was canonical already"
    Console().print(f"{form.architecture}: {told}, wrote {out}", highlight=False)
