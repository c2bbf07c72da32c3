"""``fiberscope explore``: a live page on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import fiberscope as fs
from fiberscope.cli.array_files import load_array, load_labels
from fiberscope.cli.model_options import Loader


def explore(
    load: Loader,
    models: Annotated[
        list[Path] | None,
        typer.Argument(
            help=".onnx, .npz, .safetensors, .pt or .ckpt files; none: a small network.", show_default=False
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Inputs as .npy, for slices through three of them.", show_default=False)
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="A class for each of them as .npy.", show_default=False)] = None,
    port: Annotated[int, typer.Option(help="Of the server; 0 for a free one.", min=0, max=65535)] = 0,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    upload: Annotated[int, typer.Option(help="Most megabytes of a dropped file.", min=1, max=4096)] = 64,
) -> None:
    """A page for what needs computing: drag weights and lines, slices through images, watch a training, compare two.

    The server listens to this machine alone, at an address with a random token. Ctrl-C ends it.

    Examples:

      fiberscope explore

      fiberscope explore model.onnx --data X.npy --labels y.npy

      fiberscope explore a.onnx b.onnx --port 0 --no-open
    """
    found = fs.explore(
        *(load.all(*models) if models else []),
        data=None if data is None else load_array(data),
        labels=None if labels is None else load_labels(labels),
        port=port,
        open_browser=open_browser,
        most_bytes=upload << 20,
    )
    console = Console(highlight=False)
    print(found.address, flush=True)
    console.print("Open this address in a browser on this machine; Ctrl-C ends the page.", style="dim")
    found.wait()
