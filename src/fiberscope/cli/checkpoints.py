"""``fiberscope align``, ``apply``, ``barrier``, ``merge``: checkpoints in folders, as ``transformers`` write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import fiberscope as fs
from fiberscope.cli.array_files import load_tokens
from fiberscope.cli.watched import watched
from fiberscope.errors import InputError

Folder = Annotated[Path, typer.Argument(help="A folder with config.json and .safetensors files.", show_default=False)]
Out = Annotated[Path, typer.Option("--out", help="The folder to write; it must not exist.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def align(
    a: Folder,
    b: Folder,
    out: Out,
    rounds: Annotated[int, typer.Option(help="Rounds over all groups after the first one.", min=0)] = 2,
    verify: Annotated[
        bool, typer.Option("--verify", help="Load B and the result, and compare what they give.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the neurons of checkpoint B into the order of A and write it; its function is not changed.

    Examples:

      fiberscope align base-a/ base-b/ --out b-like-a/ --verify

      fiberscope merge base-a/ b-like-a/ --out merged/

    No model is in memory: tensors are read when they are needed, and moved in the type they are stored in. A run that
    is interrupted goes on where it stopped. Fine-tunes of one base rarely need this.

    Exit code 1 if --verify finds outputs that moved by more than rounding.
    """
    with watched() as progress:
        found = fs.align_checkpoints(a, b, out, rounds=rounds, verify=verify, progress=progress)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        before, after = found.distances
        console = Console()
        console.print(f"{found.groups} groups moved, distance {before:.4g} -> {after:.4g}", highlight=False)
        if found.drift is not None:
            console.print(f"outputs moved by {found.drift:.1e}, rounding is {found.allowed:.1e}", highlight=False)
        console.print(f"wrote {out}", highlight=False)
    if verify and not found.ok:
        raise typer.Exit(1)


def apply(
    model: Folder,
    element: Annotated[Path, typer.Argument(help="What align wrote: alignment.json.", show_default=False)],
    out: Out,
    inverse: Annotated[bool, typer.Option("--inverse", help="Undo the element.")] = False,
) -> None:
    """Move the neurons of a checkpoint by an element; there and back gives the same bytes.

    Examples:

      fiberscope apply fine-tune-of-b/ b-like-a/alignment.json --out fine-tune-like-a/

      fiberscope apply b-like-a/ b-like-a/alignment.json --inverse --out b-again/
    """
    with watched() as progress:
        fs.apply_alignment(model, element, out, inverse=inverse, progress=progress)
    Console().print(f"wrote {out}", highlight=False)


def merge(
    models: Annotated[list[Path], typer.Argument(help="Two folders or more.", show_default=False)],
    out: Out,
    method: Annotated[str, typer.Option(help="weights, slerp (two models) or ties (with --base).")] = "weights",
    weights: Annotated[
        str | None, typer.Option(help="How much each counts: 1,2. Equal otherwise.", show_default=False)
    ] = None,
    base: Annotated[Path | None, typer.Option(help="What all were trained from, for ties.", show_default=False)] = None,
    keep: Annotated[float, typer.Option(help="The part of the changes that ties keeps.")] = 0.2,
) -> None:
    """Merge checkpoints tensor by tensor. They are taken as they are: align independent trainings before.

    Examples:

      fiberscope merge base-a/ b-like-a/ --out merged/

      fiberscope merge math/ code/ --base base/ --method ties --out both/
    """
    parts = None if weights is None else _numbers(weights)
    with watched() as progress:
        fs.merge_checkpoints(models, out, method, weights=parts, base=base, keep=keep, progress=progress)
    Console().print(f"wrote {out}", highlight=False)


def barrier(
    a: Folder,
    b: Folder,
    data: Annotated[Path, typer.Option(help="Tokens as an .npy file (texts, length).", show_default=False)],
    points: Annotated[int, typer.Option(help="Points along the path.", min=2)] = 11,
    batch_size: Annotated[int, typer.Option(help="Texts at once.", min=1)] = 8,
    as_json: AsJson = False,
) -> None:
    """Loss and perplexity along the straight line between two language models; both are loaded.

    Examples:

      fiberscope barrier base-a/ base-b/ --data tokens.npy

      fiberscope barrier base-a/ b-like-a/ --data tokens.npy --points 25 --json
    """
    ids = load_tokens(data)
    with watched() as progress:
        left, right = (fs.load_checkpoint(folder) for folder in (a, b))
        batch = {"input_ids": ids, "labels": ids}
        found = fs.barrier(left, right, "next_token", batch, points, batch_size=batch_size, progress=progress)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    console = Console()
    for t, loss in zip(found.t, found.curve, strict=True):
        console.print(f"t = {t:.3f}  loss {loss:.4f}", highlight=False)
    console.print(repr(found.loss), highlight=False)
    console.print(repr(found.perplexity), highlight=False)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--weights: expected numbers as in 1,2, got {text!r}") from error
