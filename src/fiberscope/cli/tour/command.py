"""``fiberscope tour``: train a small network, ask it everything, write a page with pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.panel import Panel
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fiberscope.errors import InputError
from fiberscope.extras import import_module
from fiberscope.files import check_folder

TITLE = "A tour of one small network"


def tour(
    out: Annotated[Path, typer.Option(help="Folder for the page and the pictures.")] = Path("fiberscope-tour"),
    seed: Annotated[int, typer.Option(help="Seed of the data and the training.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Train a small network on two spirals, ask it every question, write a page with pictures.

    Examples:

      fiberscope tour

      fiberscope tour --out /tmp/tour --seed 3
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out: expected a folder, got the file {out}")
    check_folder(out)
    console = Console(stderr=as_json)
    sections = []
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("starting", total=None)
        walk = import_module("fiberscope.cli.tour.stops", "the tour")
        progress.update(task, description="training a network on two spirals")
        subject = walk.train_subject(seed)
        for name, section in walk.walk(subject):
            progress.update(task, description=f"{name}: done")
            sections.append(section)
            if not as_json:
                body = f"[bold]{section.answer}[/]"
                if section.rows:
                    width = max(len(key) for key, _ in section.rows)
                    body += "\n" + "\n".join(f"[dim]{key:<{width}}[/]  {value}" for key, value in section.rows)
                console.print(Panel(body, title=section.title, title_align="left", border_style="cyan"))
        page = import_module("fiberscope.reporting.page").write_page(out, TITLE, walk.SUBTITLE, sections)
    if as_json:
        stops = [{"title": s.title, "answer": s.answer, "evidence": dict(s.rows)} for s in sections]
        print(json.dumps({"page": str(page), "stops": stops}, indent=2))
    else:
        console.print(f"Open [bold]{page}[/] in a browser.")
