"""``fiberscope reproduce``: run a paper's study, resume it, or list what there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fiberscope.errors import FiberscopeError, InputError
from fiberscope.extras import import_module
from fiberscope.files import check_folder

COLOURS = {True: "green", False: "red", None: "yellow"}


def reproduce(
    name: Annotated[str | None, typer.Argument(help="The study, or all; see --list.", show_default=False)] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the studies and stop.")] = False,
    scale: Annotated[str, typer.Option(help="quick (minutes on a laptop) or paper.")] = "quick",
    jobs: Annotated[int | None, typer.Option(help="Tasks at a time; all cores by default.", show_default=False)] = None,
    cluster: Annotated[
        str, typer.Option(help="local, dask://HOST:PORT, ray[://HOST:PORT], or a joblib backend.")
    ] = "local",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the results; fiberscope-studies/NAME-SCALE by default.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of the study; may be given again."),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.zip",
            help="Pack tables, figures, settings, seeds, versions and hashes into this new file.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(metavar="FILE.zip", help="Check that an archive is whole: no study is run.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Run a study of a paper and judge the paper's claims; the same command resumes a run that was interrupted.

    Exit codes: 0 done, 1 some tasks failed or an archive is damaged, 2 bad input or a full disk (finished tasks are
    kept).

    Examples:

      fiberscope reproduce --list

      fiberscope reproduce initialisation --scale quick --jobs 2

      fiberscope reproduce initialisation --scale paper --cluster dask://127.0.0.1:8786

      fiberscope reproduce all --scale quick --out studies

      fiberscope reproduce initialisation --set seeds=100 --set widths=[10,20] --out /tmp/mine

      fiberscope reproduce all --archive studies.zip

      fiberscope reproduce --check studies.zip
    """
    if check is not None:
        _check(check, as_json)
        return
    runner = import_module("fiberscope.studies.lab.runner", "a study")
    if listing:
        _list(runner.list_studies(), as_json)
        return
    if name is None:
        raise InputError("study: expected a name, got none; fiberscope reproduce --list shows them")
    options = dict(_option(text) for text in settings or ())
    if archive is not None:
        import_module("fiberscope.reporting.archive").check_place(archive)
    try:
        if name == "all":
            if options:
                raise InputError("--set: expected none with all, whose studies have options of their own")
            _run_all(runner, scale, jobs, cluster, out or runner.DEFAULT_FOLDER, archive, as_json)
            return
        study = import_module("fiberscope.studies.lab.registry").find_study(name)
        result = runner.reproduce(study, scale, jobs, cluster, out, progress=False if as_json else None, **options)
        page = import_module("fiberscope.reporting.studies").write_study_page(result, study)
        if archive is not None:
            import_module("fiberscope.reporting.archive").write_study_archive(archive, [(result, study)])
    except KeyboardInterrupt:
        Console(stderr=True).print("Finished tasks are kept: run again to resume.", highlight=False)
        raise
    if as_json:
        packed = {"archive": str(archive)} if archive is not None else {}
        print(json.dumps({**result.to_dict(), "page": str(page), **packed}, indent=2))
    else:
        _show(result, study, page)
        _say_packed(Console(), archive)
    if not result.complete:
        raise typer.Exit(1)


def _check(archive: Path, as_json: bool) -> None:
    """Say whether an archive is whole, and name what is wrong with it."""
    found = import_module("fiberscope.reporting.archive").read_study_archive(archive)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        studies = ", ".join(found.studies) or "no study"
        failed = f"; not run: {', '.join(found.failed)}" if found.failed else ""
        text = f"{'whole' if found.whole else 'NOT whole'}: {found.files} files, {studies}{failed}"
        for line in (*found.wrong, text):
            Console().print(line, highlight=False, markup=False, soft_wrap=True)
    if not found.whole:
        raise typer.Exit(1)


def _say_packed(console: Console, archive: Path | None) -> None:
    if archive is not None:
        console.print(f"Everything is in {archive}.", highlight=False, soft_wrap=True, markup=False)


def _run_all(
    runner: Any, scale: str, jobs: int | None, cluster: str, out: Path, archive: Path | None, as_json: bool
) -> None:
    """Every study, one after the other; what fails is named on the index page and stops nothing."""
    pages = import_module("fiberscope.reporting.studies")
    registry = import_module("fiberscope.studies.lab.registry")
    studies = registry.all_studies()
    check_folder(out)
    console = Console(stderr=as_json)
    done = []
    failed = {name.replace("_", "-"): f"cannot be loaded: {why}" for name, why in registry.broken_studies().items()}
    for number, study in enumerate(studies.values(), start=1):
        folder = out / f"{study.name}-{scale}"
        try:
            result = runner.reproduce(study, scale, jobs, cluster, folder, progress=False if as_json else None)
            pages.write_study_page(result, study)
        except Exception as error:  # a data set that is not there, or a defect of one study: the others are run
            known = isinstance(error, FiberscopeError)
            failed[study.name] = str(error) if known else f"unforeseen {type(error).__name__}: {error}"
            text = f"{number} of {len(studies)}  {study.name}: not run: {failed[study.name]}"
            console.print(text, highlight=False, markup=False)
            continue
        done.append((result, study))
        console.print(f"{number} of {len(studies)}  {result!r}, {result.seconds:.0f} s", highlight=False, markup=False)
        pages.write_index(out, done, failed)  # after every study, so that an interrupted run has its page
    page = pages.write_index(out, done, failed)
    if archive is not None:
        import_module("fiberscope.reporting.archive").write_study_archive(archive, done, failed, page)
    if as_json:
        packed = {"archive": str(archive)} if archive is not None else {}
        told = {"page": str(page), "studies": [r.to_dict() for r, _ in done], "failed": failed, **packed}
        print(json.dumps(told, indent=2))
    else:
        console.print(f"Open {page} in a browser.", highlight=False, soft_wrap=True, markup=False)
        _say_packed(console, archive)
    if failed or not all(result.complete for result, _ in done):
        raise typer.Exit(1)


def _option(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``, the value read as JSON where it is JSON and as text otherwise."""
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise InputError(f"--set: expected KEY=VALUE, got {text!r}")
    if key in {"progress", "name", "scale", "jobs", "cluster", "out"}:
        raise InputError(f"--set: expected an option of the study, got {key!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _list(studies: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps([info.to_dict() for info in studies], indent=2))
        return
    human = import_module("fiberscope.studies.lab.progress").human
    table = Table(box=box.SIMPLE_HEAD, leading=1)
    # the name stands above the title: in a column of its own it would leave no room for words on 80 columns
    table.add_column(
        "study, and in which paper", overflow="fold", min_width=max((len(i.name) for i in studies), default=0)
    )
    for column in ("scale", "tasks", "on one core", "status"):
        table.add_column(column, justify="right" if column in ("tasks", "on one core") else "left", no_wrap=True)
    for info in studies:
        what = f"[bold]{info.name}[/]\n{escape(info.title)}\n[dim]{escape(info.paper)}: {escape(info.figure)}[/]"
        scales = tuple(info.tasks)
        cells = (
            scales,
            [str(info.tasks[scale]) for scale in scales],
            [human(info.cost[scale]) for scale in scales],
            [info.status[scale] for scale in scales],
        )
        table.add_row(what, *("\n".join(cell) for cell in cells))
    Console().print(table)


def _show(result: Any, study: Any, page: Path) -> None:
    console = Console()
    console.print(f"[bold]{study.title}[/]  {study.paper}, {study.figure}", highlight=False)
    console.print(
        f"{result.computed} tasks computed, {result.reused} found on disk, {result.seconds:.1f} s", highlight=False
    )
    for reason in result.recomputed:
        console.print(f"computed again: {reason}", highlight=False, markup=False)
    table = Table(box=box.SIMPLE_HEAD, show_lines=False)
    for column in ("the paper", "ours", "verdict"):
        table.add_column(column, no_wrap=column == "verdict")
    for verdict in result.verdicts:
        table.add_row(escape(verdict.text), escape(verdict.ours), f"[{COLOURS[verdict.holds]}]{verdict.word}[/]")
    console.print(table)
    for failure in result.failures:
        console.print(f"failed twice: {failure.settings}: {failure.error}", style="red", markup=False)
    console.print(
        f"Tables in {result.folder}; open {page} in a browser.", highlight=False, soft_wrap=True, markup=False
    )
