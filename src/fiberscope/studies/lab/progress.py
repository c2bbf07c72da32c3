"""Progress of a run: how much is done, and how long the rest will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fiberscope.run import in_notebook, show_progress


@dataclass(frozen=True, slots=True)
class Status:
    """Where a run stands. ``seconds_left`` is None until the first task has come back."""

    study: str
    done: int
    total: int
    failed: int
    seconds_left: float | None
    message: str = ""


Watcher = Callable[[Status], None]


class Clock:
    """Estimates the time left from the pace of this run; tasks found finished on disk do not count as fast ones."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.computed = 0

    def left(self, waiting: int) -> float | None:
        """Seconds for the tasks that wait."""
        if not self.computed:
            return None
        return (time.perf_counter() - self.begin) / self.computed * waiting


@contextmanager
def watching(progress: bool | Watcher | None) -> Iterator[Watcher]:
    """A function to call with every status: the caller's own, a bar on the terminal, or nothing."""
    if callable(progress):
        yield progress
        return
    if progress is False or (progress is None and not sys.stderr.isatty() and not in_notebook()):
        yield lambda status: None
        return
    if in_notebook():
        bar_below = show_progress()
        yield lambda status: bar_below(status.done, status.total, status.study)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("", total=None, left="")

        def show(status: Status) -> None:
            if status.message:
                bar.console.print(status.message, highlight=False, markup=False)
            failed = f", {status.failed} failed" if status.failed else ""
            left = "" if status.seconds_left is None else f"{human(status.seconds_left)} left{failed}"
            bar.update(line, description=status.study, completed=status.done, total=status.total, left=left)

        yield show


def human(seconds: float) -> str:
    """A duration for people.

    >>> human(42.4), human(190.0), human(7500.0)
    ('42 s', '3 min 10 s', '2 h 05 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
